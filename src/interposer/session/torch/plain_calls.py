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

    `names` are the names of the arguments in order, and `places` the index of the argument for each input of the
    network in order.
    """

    def __init__(self, program: Program, names: Sequence[str], places: Sequence[int], dtypes: Sequence[Any]) -> None:
        self._names, self._count = tuple(names), len(names)
        self._inputs = tuple(zip(places, (dtypes[place] for place in places), strict=True))
        self._tensor, self._array = torch.Tensor, np.ndarray
        self._structure = _structure(program.out_spec)
        numbers = count()
        self._leaves = [(True, next(numbers)) if item.name else (False, item.value) for item in program.results]

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
        places = {argument.name: index for index, argument in enumerate(program.arguments)}
        plain = all(argument.name and dtypes[argument.name] is not None for argument in program.arguments)
        if not plain or any(item.is_number or item.is_complex for item in program.results):
            return None
        order = [dtypes[argument.name] for argument in program.arguments]
        known = [*names[: positional.num_children], *keywords.context]
        return cls(program, known, [places[name] for name in inputs], order)

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
        for place, dtype in self._inputs:
            value = args[place]
            if type(value) is self._array:
                arrays.append(value)
            elif type(value) is self._tensor and value.dtype is dtype and not value.requires_grad:
                try:
                    arrays.append(value.numpy())
                except (RuntimeError, TypeError):
                    return None
                has_tensor = True
            else:
                return None
        return arrays, has_tensor

    def results(self, outputs: Sequence[Any], *, as_tensors: bool) -> Any:
        """Return the outputs of the network in the structure that the module returns."""
        values = [tensor_of(array) for array in outputs] if as_tensors else outputs
        leaves = [values[item] if is_output else item for is_output, item in self._leaves]
        return self._structure(leaves)


def _dtypes(program: Program) -> dict[str, Any]:
    """Return the type of each user input that is a tensor, by name; None for complex tensors and others."""
    result = dict[str, Any]()
    for node in program.module.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            is_real = isinstance(value, torch.Tensor) and not value.is_complex()
            result[node.name] = value.dtype if is_real else None
    return result


def _structure(spec: Any) -> Callable[[list[Any]], Any]:
    """Return the function that makes a structure of a list of its leaves."""
    if spec.is_leaf():
        return lambda leaves: leaves[0]
    if not all(child.is_leaf() for child in spec.children()):
        return lambda leaves: pytree.tree_unflatten(leaves, spec)
    unflatten, context = pytree.SUPPORTED_NODES[spec.type].unflatten_fn, spec.context
    return lambda leaves: unflatten(leaves, context)
