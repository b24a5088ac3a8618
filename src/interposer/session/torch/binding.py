"""The arguments of a call as a PyTorch module takes them, bound to the inputs of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.errors import BindingError, did_you_mean
from interposer.frontends.torch.package import pytree, torch
from interposer.frontends.torch.program import Argument, Program
from interposer.session.torch.arrays import array_of, tensor_of

__all__ = ["Binding", "bound_arguments", "has_tensors", "structured"]


class Binding:
    """The arguments of one call: `leaves` are the values in the order of the program's flat arguments."""

    def __init__(self, program: Program, leaves: Sequence[Any]) -> None:
        self._program, self.leaves = program, leaves

    def inputs(self) -> dict[str, Any]:
        """Return the inputs of the network by name, with arrays in place of tensors.

        Raises:
            BindingError: a value differs from one that the export has baked in, a tensor cannot be read, or an
                argument that the program changes in place shares memory with another one.
        """
        inputs = dict[str, Any]()
        for argument, leaf in zip(self._program.arguments, self.leaves, strict=True):
            if not argument.name:
                _check_baked(argument.value, leaf)
            else:
                inputs[argument.name] = _input(argument, leaf)
            if argument.name in self._program.strided_inputs:
                _check_contiguous(argument.name, leaf)
            if argument.name in self._program.mutated_inputs:
                _check_elements(argument.name, leaf)
        for name in self._program.mutated_inputs:
            _check_apart(name, inputs)
        return inputs

    def write_back(self, outputs: Mapping[str, Any]) -> None:
        """Write new values to the arguments that the program changes in place.

        `outputs` are the outputs of the network by name.

        Raises:
            BindingError: an argument that is changed is neither a tensor nor an array that can be written to.
        """
        leaves_by_name = {
            argument.name: leaf for argument, leaf in zip(self._program.arguments, self.leaves, strict=True)
        }
        for name, output in self._program.mutated_inputs.items():
            _overwrite(name, leaves_by_name[name], outputs[output])


def _input(argument: Argument, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        if argument.dtype not in (None, leaf.dtype):
            raise BindingError(
                f"input {argument.name!r} is a tensor of type {leaf.dtype}, and the program was exported with "
                f"{argument.dtype}; convert the tensor, or export the module again"
            )
        return array_of(leaf, f"input {argument.name!r}")
    if leaf is None:
        raise BindingError(f"None was given for input {argument.name!r}; the program was exported with a tensor")
    return leaf


def _check_contiguous(name: str, tensor: Any) -> None:
    """Raise `BindingError` if the memory of a tensor is not laid out as the program reads it by `as_strided`."""
    if isinstance(tensor, torch.Tensor) and not (tensor.is_contiguous() and tensor.storage_offset() == 0):
        raise BindingError(
            f"the program reads the memory of its argument {name!r} by strides (as_strided); give a contiguous tensor, "
            "such as x.clone(memory_format=torch.contiguous_format)"
        )


def _check_elements(name: str, tensor: Any) -> None:
    """Raise `BindingError` if elements of a tensor that the program changes share memory, as after `expand`."""
    if not isinstance(tensor, torch.Tensor) or tensor.is_contiguous():
        return
    extent = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step < extent:
            raise BindingError(
                f"elements of the argument {name!r} share memory, and the program changes it in place; "
                "give a copy, such as x.clone(memory_format=torch.contiguous_format)"
            )
        extent += step * (size - 1)


def _check_apart(name: str, inputs: Mapping[str, Any]) -> None:
    """Raise `BindingError` if the input `name`, which the program changes, shares memory with another input."""
    for other_name, array in inputs.items():
        if other_name != name and _overlap(inputs[name], array):
            raise BindingError(
                f"the arguments {name!r} and {other_name!r} share memory, and the program changes {name!r} in place; "
                "give a copy of one of them"
            )


def _overlap(a: Any, b: Any) -> bool:
    """Return True if two arrays share memory, or if that is too expensive to find out."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return False
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type] # the stub only knows -1 and 0
    except np.exceptions.TooHardError:
        return True


_MOST_WORK: Final = 100_000
"""The number of steps after which NumPy stops searching for an element that two arrays share."""


def _check_baked(exported_leaf: Any, leaf: Any) -> None:
    if exported_leaf is leaf:
        return
    is_equal = type(exported_leaf) is type(leaf) and not isinstance(leaf, torch.Tensor) and exported_leaf == leaf
    if not is_equal:
        leaf_text = "a tensor" if isinstance(leaf, torch.Tensor | np.ndarray) else repr(leaf)
        raise BindingError(
            f"{leaf_text} was given for an argument that was exported as {exported_leaf!r}; export the module again"
        )


def _overwrite(name: str, target: Any, array: Any) -> None:
    if isinstance(target, torch.Tensor):
        with torch.inference_mode(target.is_inference()), torch.no_grad():
            target.copy_(tensor_of(array, is_complex=target.dtype.is_complex))
    elif isinstance(target, np.ndarray) and target.flags.writeable:
        np.copyto(target, array)
    else:
        raise BindingError(
            f"the program changes its argument {name!r} in place; give a tensor or an array that can be written to"
        )


def bound_arguments(program: Program, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Binding:
    """Return the binding for a call ``module(*args, **kwargs)``.

    Positional arguments may be given by keyword, and keyword arguments by position. `names` are the names of the
    module's arguments, as far as they were used in the export. An argument that the export did not use may be None.

    Raises:
        BindingError: arguments are missing, unknown or given twice, or have another structure than in the export.
    """
    positional, keywords = program.in_spec.children()
    keys = list(keywords.context)
    names_in_order = [*names[: positional.num_children], *keys] if len(names) >= positional.num_children else []
    arguments = _by_name(names_in_order, positional.num_children, keys, args, kwargs)
    leaves = list[Any]()
    for name, spec in zip(arguments, [*positional.children(), *(_child(keywords, key) for key in keys)], strict=True):
        leaves += _flat(name, spec, arguments[name])
    return Binding(program, leaves)


def _child(spec: Any, key: str) -> Any:
    return spec.children()[list(spec.context).index(key)]


def _by_name(
    known_names: Sequence[str], count: int, keys: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments by name, in the order of the export."""
    names = list(known_names) or [*(f"argument {index}" for index in range(count)), *keys]
    arguments = dict(zip(names, args, strict=False))
    if any(argument is not None for argument in args[len(names) :]):
        raise BindingError(f"{len(args)} arguments were given; the program takes {len(names)} ({_listed(names)})")
    for name, value in kwargs.items():
        if name in arguments:
            raise BindingError(f"the argument {name!r} was given twice, by position and by keyword")
        if name in names:
            arguments[name] = value
        elif value is not None:
            raise BindingError(
                f"the program has no argument {name!r}{did_you_mean(name, names)} (it has: {_listed(names)})"
            )
    missing_names = [name for name in names if name not in arguments]
    if missing_names:
        raise BindingError(f"no value was given for {_listed(missing_names)}")
    return {name: arguments[name] for name in names}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _flat(name: str, spec: Any, argument: Any) -> list[Any]:
    """Return the leaves of an argument, which must have the structure that the export has seen."""
    if spec.is_leaf():
        return [argument]
    try:
        return list(spec.flatten_up_to(argument))
    except (ValueError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise BindingError(f"the argument {name!r} has another structure than in the export: {reason}") from error


def has_tensors(leaves: Sequence[Any]) -> bool:
    """Return True if one of the arguments of a call is a tensor, so that results are tensors too."""
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def structured(program: Program, outputs: Mapping[str, Any], *, as_tensors: bool) -> Any:
    """Return the results of a program in the structure that the module returns.

    `outputs` are the outputs of the network by name. Results are tensors or arrays; sizes are Python numbers.
    """
    return pytree.tree_unflatten(list(_results(program, outputs, as_tensors)), program.out_spec)


def _results(program: Program, outputs: Mapping[str, Any], as_tensors: bool) -> Iterator[Any]:
    for result in program.results:
        if not result.name:
            yield result.value
        elif result.is_number:
            yield outputs[result.name].item()
        elif as_tensors:
            yield tensor_of(outputs[result.name], is_complex=result.is_complex)
        else:
            yield _complex(outputs[result.name]) if result.is_complex else outputs[result.name]


def _complex(array: Any) -> Any:
    """Return an array of complex numbers, of an array with real and imaginary part as the last axis."""
    return array[..., 0] + 1j * array[..., 1]
