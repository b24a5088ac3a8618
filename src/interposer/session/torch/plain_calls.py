"""`PlainCalls`: the short way for calls with tensors or arrays, not nested, that change none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from interposer.frontends.torch.package import pytree, torch
from interposer.frontends.torch.program import Program
from interposer.session.torch.arrays import tensor_of

__all__ = ["PlainCalls"]


class PlainCalls:
    """The arguments and results of a program whose arguments are tensors and whose results are tensors or fixed values.

    `names` are the names of the arguments in order, and `positions` the index of the argument for each input of
    the network in order.
    """

    def __init__(self, program: Program, names: Sequence[str], positions: Sequence[int], dtypes: Sequence[Any]) -> None:
        self._names, self._count = tuple(names), len(names)
        self._inputs = tuple(zip(positions, (dtypes[position] for position in positions), strict=True))
        self._tensor, self._array = torch.Tensor, np.ndarray
        self._structure = _structure(program.out_spec)
        numbers = count()
        self._leaves = [(True, next(numbers)) if result.name else (False, result.value) for result in program.results]

    @classmethod
    def of(cls, program: Program, names: Sequence[str], inputs: Sequence[str]) -> PlainCalls | None:
        """Return the short way for a program, or None if its calls need checks or conversions of other kinds.

        `names` are the names of the module's arguments as for `bound_arguments`, and `inputs` the names of the inputs
        of the network in order.
        """
        positional, keywords = program.in_spec.children()
        if len(names) < positional.num_children or program.mutated_inputs or program.strided_inputs:
            return None
        if not all(spec.is_leaf() for spec in (*positional.children(), *keywords.children())):
            return None
        dtypes = _dtypes(program)
        positions = {argument.name: index for index, argument in enumerate(program.arguments)}
        is_plain = all(argument.name and dtypes[argument.name] is not None for argument in program.arguments)
        if not is_plain or any(result.is_number or result.is_complex for result in program.results):
            return None
        dtypes_in_order = [dtypes[argument.name] for argument in program.arguments]
        argument_names = [*names[: positional.num_children], *keywords.context]
        return cls(program, argument_names, [positions[name] for name in inputs], dtypes_in_order)

    def arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], bool] | None:
        """Return the arrays of a call in the order of the network's inputs, and whether an argument is a tensor.

        Returns None for a call that `bound_arguments` has to take, such as one with wrong arguments.
        """
        if kwargs:
            if len(args) + len(kwargs) != self._count:
                return None
            try:
                args = [*args, *[kwargs[name] for name in self._names[len(args) :]]]
            except KeyError:
                return None
        elif len(args) != self._count:
            return None
        arrays, has_tensor = [], False
        for position, dtype in self._inputs:
            argument = args[position]
            if type(argument) is self._array:
                arrays.append(argument)
            elif type(argument) is self._tensor and argument.dtype is dtype and not argument.requires_grad:
                try:
                    arrays.append(argument.numpy())
                except (RuntimeError, TypeError):
                    return None
                has_tensor = True
            else:
                return None
        return arrays, has_tensor

    def results(self, outputs: Sequence[Any], *, as_tensors: bool) -> Any:
        """Return the outputs of the network in the structure that the module returns."""
        values = [tensor_of(array) for array in outputs] if as_tensors else outputs
        leaves = [values[leaf] if is_output else leaf for is_output, leaf in self._leaves]
        return self._structure(leaves)


def _dtypes(program: Program) -> dict[str, Any]:
    """Return the type of each user input that is a tensor, by name; None for complex tensors and others."""
    dtypes = dict[str, Any]()
    for node in program.module.graph.nodes:
        if node.op == "placeholder":
            example = node.meta.get("val")
            is_real = isinstance(example, torch.Tensor) and not example.is_complex()
            dtypes[node.name] = example.dtype if is_real else None
    return dtypes


def _structure(spec: Any) -> Callable[[list[Any]], Any]:
    """Return the function that makes a structure of a list of its leaves."""
    if spec.is_leaf():
        return lambda leaves: leaves[0]
    if not all(child.is_leaf() for child in spec.children()):
        return lambda leaves: pytree.tree_unflatten(leaves, spec)
    unflatten, context = pytree.SUPPORTED_NODES[spec.type].unflatten_fn, spec.context
    return lambda leaves: unflatten(leaves, context)
