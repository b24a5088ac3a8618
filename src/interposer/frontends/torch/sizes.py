"""Symbolic sizes of PyTorch (``SymInt``) as integers or unknown dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interposer.core.types import UNKNOWN, Dim
from interposer.frontends.torch.package import torch

__all__ = ["bound_symbols", "is_symbolic", "number_of", "shape_of", "size_of", "symbols_of"]


def is_symbolic(value: Any) -> bool:
    """Return True for a symbolic integer, float or bool of PyTorch."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _expression(value: Any) -> Any:
    return value.node.expr


def symbols_of(value: Any) -> frozenset[str]:
    """Return the names of the symbols that a symbolic number depends on; empty for a plain number."""
    return frozenset(str(symbol) for symbol in _expression(value).free_symbols) if is_symbolic(value) else frozenset()


def number_of(value: Any, known: Mapping[str, int]) -> Any:
    """Return a symbolic number as a Python number, given the values of symbols by name; None if it is not determined.

    A plain number is returned unchanged.
    """
    if not is_symbolic(value):
        return value
    expression = _expression(value)
    if not all(str(symbol) in known for symbol in expression.free_symbols):
        return None
    number = expression.subs({symbol: known[str(symbol)] for symbol in expression.free_symbols})
    kind = int if isinstance(value, torch.SymInt) else float if isinstance(value, torch.SymFloat) else bool
    return kind(number)


def size_of(value: Any, known: Mapping[str, int]) -> int:
    """Return a size as an integer, or as an unknown dimension that has a name if the size is a single symbol."""
    number = number_of(value, known)
    if number is not None:
        return int(number)
    expression = _expression(value)
    return Dim(str(expression)) if expression.is_Symbol and not str(expression).startswith("u") else UNKNOWN


def shape_of(tensor: Any, known: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a fake tensor; a complex one has a last axis of 2 for real and imaginary part."""
    sizes = tuple(size_of(size, known) for size in tensor.shape)
    return (*sizes, 2) if tensor.is_complex() else sizes


def bound_symbols(declared: Sequence[Any], sizes: Sequence[int]) -> dict[str, int]:
    """Return the values of the symbols in a declared shape, given the sizes of a tensor with this shape.

    A size that is a linear expression of one symbol, such as ``2*s0``, is solved for it. Symbols of unknown sizes and
    of other expressions are left out.
    """
    size_of_symbol: dict[str, int] = {}
    for symbolic, size in zip(declared, sizes, strict=False):
        if is_symbolic(symbolic) and not isinstance(size, Dim):
            size_of_symbol.update(_solved(_expression(symbolic), size))
    return size_of_symbol


def _solved(expression: Any, size: int) -> dict[str, int]:
    symbols = list(expression.free_symbols)
    if len(symbols) != 1:
        return {}
    if expression.is_Symbol:
        return {str(expression): size}
    start, slope = (int(expression.subs({symbols[0]: at})) for at in (0, 1))
    solution, remainder = divmod(size - start, slope - start) if slope != start else (0, 1)
    return {} if remainder or int(expression.subs({symbols[0]: solution})) != size else {str(symbols[0]): solution}
