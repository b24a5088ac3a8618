"""Checks and conversions of the arguments of model calls: inputs and outputs as lists or mappings of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from interposer.core.containers import as_stored
from interposer.core.conversion import converted
from interposer.core.dlpack import as_array
from interposer.core.errors import BindingError, did_you_mean, memory_to
from interposer.core.types import Array, TensorInfo, TensorShape

__all__ = ["input_arrays", "inputs_by_name", "named_inputs", "outputs_by_number"]


def input_arrays(infos: Mapping[str, TensorInfo], inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Array]:
    """Return an array of the declared type and shape for each input, by name in the order of `infos`.

    `infos` are the inputs of the model. Arrays that fit already are not copied.

    Raises:
        BindingError: the number, names, shapes or types of the inputs do not fit.
    """
    by_name = inputs_by_name(infos, inputs)
    return {
        name: by_name[name]
        if _fits(by_name[name], info)
        else as_stored(f"input {name!r}", info, by_name[name], _converted)
        for name, info in infos.items()
    }


def inputs_by_name(infos: Mapping[str, TensorInfo], inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name, in the order of `infos`.

    Raises:
        BindingError: there are too few or too many inputs, or a name is unknown.
    """
    if isinstance(inputs, Mapping):
        inputs = _in_order(infos, inputs)
    if not isinstance(inputs, list | tuple):
        hint = "; write run([array]), or call the model with the array" if len(infos) == 1 else ""
        raise BindingError(f"run takes a list of arrays or a mapping by name, not {type(inputs).__name__}{hint}")
    if len(inputs) != len(infos):
        names = ", ".join(map(repr, infos))
        raise BindingError(f"{len(inputs)} inputs were given; the model has {len(infos)} ({names})")
    return dict(zip(infos, inputs, strict=True))


def named_inputs(
    infos: Mapping[str, TensorInfo], inputs: Any, named: Mapping[str, Any], reserved: Sequence[str]
) -> Mapping[str, Any]:
    """Check the inputs that a call passes as keywords, `named`, and return them by name.

    `inputs` is what the call passes as an argument, and must be None. `infos` are the inputs of the model, and
    `reserved` are the keywords that the called method reserves.

    Raises:
        BindingError: inputs are given both ways, or a keyword is not the name of an input.
    """
    if inputs is None:
        return _known(infos, named, reserved)
    first = next(iter(named))
    if first not in infos:
        raise BindingError(_unknown_keyword(infos, first, reserved))
    mixed_text = f"inputs are given both as an argument and by keyword ({first!r}); use one way for all of them"
    raise BindingError(_hidden("inputs") if "inputs" in infos else mixed_text)


def _known(
    infos: Mapping[str, TensorInfo], named_arrays: Mapping[str, Any], reserved_names: Sequence[str]
) -> Mapping[str, Any]:
    for name in named_arrays:
        if name not in infos:
            raise BindingError(_unknown_keyword(infos, name, reserved_names))
    hidden = [name for name in infos if name in reserved_names and name not in named_arrays]
    if hidden and named_arrays:
        raise BindingError(_hidden(hidden[0]))
    return named_arrays


def _hidden(name: str) -> str:
    return f"the input {name!r} has the name of an argument; give all inputs in a mapping: {{{name!r}: ..., ...}}"


def _unknown_keyword(infos: Mapping[str, TensorInfo], name: str, reserved_names: Sequence[str]) -> str:
    hint = did_you_mean(name, infos) or did_you_mean(name, reserved_names, cutoff=0.75)
    names = ", ".join(map(repr, infos)) or "none"
    return f"{name!r} is neither an input of the model ({names}) nor an argument{hint}"


def _in_order(infos: Mapping[str, TensorInfo], inputs: Mapping[str, Any]) -> list[Any]:
    for name in inputs:
        if name not in infos:
            raise BindingError(f"the model has no input {name!r}{did_you_mean(str(name), infos)}")
    missing_names = [name for name in infos if name not in inputs]
    if missing_names:
        raise BindingError(f"no array was given for {', '.join(map(repr, missing_names))}")
    return [inputs[name] for name in infos]


def outputs_by_number(numbers: Mapping[str, int], outputs: Sequence[Any] | Mapping[str, Any]) -> dict[int, Any]:
    """Return the arrays to write outputs to, by binding id; `numbers` has the binding ids of the outputs by name.

    `outputs` is a list with an array for each output in order, or a mapping with arrays for some of them by name.

    Raises:
        BindingError: there are too few or too many outputs, or a name is unknown.
    """
    if isinstance(outputs, Mapping):
        for name in outputs:
            if name not in numbers:
                raise BindingError(f"the model has no output {name!r}{did_you_mean(str(name), numbers)}")
        return {numbers[name]: array for name, array in outputs.items()}
    if not isinstance(outputs, list | tuple):
        raise BindingError(f"outputs are a list of arrays or a mapping by name, not {type(outputs).__name__}")
    if len(outputs) != len(numbers):
        names = ", ".join(map(repr, numbers))
        raise BindingError(f"{len(outputs)} outputs were given; the model has {len(numbers)} ({names})")
    return dict(zip(numbers.values(), outputs, strict=True))


def _fits(tensor: Any, info: TensorInfo) -> TypeGuard[Array]:
    """Return True if a value is an array with the type and shape of `info`, so that it needs no conversion.

    Arrays of strings never fit, as their elements have to be checked.
    """
    return (
        type(tensor) is np.ndarray
        and info.is_tensor
        and tensor.shape == info.shape
        and tensor.dtype == info.dtype.numpy
        and tensor.dtype.kind != "O"
    )


def _converted(title: str, info: TensorInfo, tensor: Any) -> Array:
    if _fits(tensor, info):
        return tensor
    array = _typed(title, info, tensor)
    shape = TensorShape(array.shape)
    if not info.shape.accepts(shape):
        raise BindingError(f"{title} has shape {shape}; expected {info.shape}")
    return array


def _typed(title: str, info: TensorInfo, tensor: Any) -> Array:
    with memory_to(f"make an array of {title}, a {type(tensor).__name__}", BindingError):
        array = as_array(tensor, title)
    has_type = isinstance(tensor, np.ndarray | np.generic) or hasattr(tensor, "__dlpack__")
    try:
        return converted(array, info.dtype, numbers=None if has_type else tensor)
    except ValueError as error:
        raise BindingError(f"{title} {error}") from None
    except MemoryError as error:
        raise BindingError(f"{title} is {array.dtype}; there is no memory to make it {info.dtype}: {error}") from error
