"""Einsum as transposes, reshapes, sums and matrix products, which every backend has fast kernels for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.types import INTEGERS, MAX_RANK, DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    BatchMatMul,
    Einsum,
    Multiplication,
    Reduce,
    ReduceOperation,
    Reshape,
    StridedSlice,
    Transpose,
)
from interposer.rewriting.pattern import New, Replacement, rewrite

__all__ = ["EINSUMS"]

_WIDE: Final = frozenset({DataType.FLOAT32, DataType.FLOAT64, *(dtype for dtype in INTEGERS if dtype.bits >= 8)})
_NARROW: Final = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
_ELLIPSIS: Final = "..."


class _Term(NamedTuple):
    """An operand of an einsum, or the product of several, with a name and a size for each of its axes.

    `roundings` counts the layers whose results are rounded. Layers that only move elements are not counted.
    """

    value: Value | New
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    roundings: int = 0

    def with_value(self, value: Value | New, names: Sequence[str], roundings: int | None = None) -> _Term:
        """Return a term for `value`, which was computed from this term and has only the axes `names`.

        The sizes of the axes are those of this term, and so is the number of roundings if `roundings` is None.
        """
        size = dict(zip(self.names, self.sizes, strict=True))
        count = self.roundings if roundings is None else roundings
        return _Term(value, tuple(names), tuple(size[name] for name in names), count)


@rewrite(Einsum)
def einsum_as_products(op: Einsum, layer: Layer) -> Replacement:
    """Sum axes that only one operand has, then multiply pairs of operands by BatchMatMul, or by Multiplication.

    Integers wrap around in Einsum and in all new layers. Float16 and bfloat16 tensors are rounded once by Einsum, so at
    most one of the new layers may round.
    """
    infos = [value.known for value in layer.values]
    if not all(_is_unquantized(info) for info in infos) or not layer.output.known.is_concrete:
        return None
    names, output = _axis_names(op, infos)
    sizes = _full_sizes(names, infos)
    terms = [_simple(*value_and_names, sizes) for value_and_names in zip(layer.values, names, strict=True)]
    if len(sizes) > MAX_RANK or None in terms:
        return None
    output_names = [name for name in output if sizes[name] != 1]
    term = _contracted([term for term in terms if term is not None], output_names)
    if term.roundings > 1 and infos[0].dtype in _NARROW:
        return None
    return _reshaped(_transposed(term, output_names), layer.output.known.shape)


def _is_unquantized(info: TensorInfo) -> bool:
    return info.is_concrete and info.dtype in _WIDE | _NARROW and info.quantization is None


# --- axes and their names ---------------------------------------------------------------------------------------------


def _axis_names(op: Einsum, infos: Sequence[TensorInfo]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return a name for each axis of the operands and of the result.

    An axis of an ellipsis is named by its distance from the end of the ellipsis, because ellipses of different ranks
    are aligned there.
    """
    words, output = op.words()
    ranks = [info.rank - len(word.replace(_ELLIPSIS, "")) for word, info in zip(words, infos, strict=True)]
    names = [_spelled(word, rank) for word, rank in zip(words, ranks, strict=True)]
    return names, _spelled(output, max(ranks))


def _spelled(word: str, ellipsis_rank: int) -> tuple[str, ...]:
    leading_letters, ellipsis, trailing_letters = word.partition(_ELLIPSIS)
    middle = [f".{distance}" for distance in range(ellipsis_rank, 0, -1)] if ellipsis else []
    return (*leading_letters, *middle, *trailing_letters)


def _full_sizes(names: Iterable[tuple[str, ...]], infos: Iterable[TensorInfo]) -> dict[str, int]:
    """Return the size of each named axis; an operand may also have size 1 there, which is broadcast.

    `names` are the axes of each operand, and `infos` their infos.
    """
    sizes: dict[str, int] = {}
    for word, info in zip(names, infos, strict=True):
        for name, size in zip(word, info.shape, strict=True):
            sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
    return sizes


def _simple(value: Value, names: tuple[str, ...], sizes: dict[str, int]) -> _Term | None:
    """Return an operand as a term without axes of size 1, in which every name occurs once.

    If a name occurs twice, the diagonal of these axes is taken; None if their sizes differ or are 0. `names` are the
    names of the operand's axes, and `sizes` their full sizes.
    """
    shape = value.known.shape
    axes = [(name, size) for name, size in zip(names, shape, strict=True) if size != 1]
    if any(name in names[:index] for index, name in enumerate(names)) and not _has_equal_axes(names, shape):
        return None
    term = _Term(value, tuple(name for name, _ in axes), tuple(size for _, size in axes))
    if len(axes) < len(shape):
        term = term._replace(value=New(Reshape(term.sizes), [value]))
    for name in dict.fromkeys(term.names):
        while term.names.count(name) > 1:
            term = _diagonal(term, name)
    return term


def _has_equal_axes(names: tuple[str, ...], shape: Sequence[int]) -> bool:
    """Return True if axes of the same name have the same size, other than 0."""
    return len(set(zip(names, shape, strict=True))) == len(set(names)) and 0 not in shape


def _diagonal(term: _Term, name: str) -> _Term:
    """Return a term in which the first two axes with this name are replaced by their diagonal, its last axis."""
    first = term.names.index(name)
    second = term.names.index(name, first + 1)
    other_axes = tuple(axis for axis in range(len(term.names)) if axis not in (first, second))
    size, leading_sizes = term.sizes[first], tuple(term.sizes[axis] for axis in other_axes)
    order = (*other_axes, first, second)
    transposed = New(Transpose(order), [term.value]) if order != tuple(sorted(order)) else term.value
    flat = New(Reshape((*leading_sizes, size * size)), [transposed])
    num_leading = len(leading_sizes)
    begin, end, stride = (0,) * (num_leading + 1), (*leading_sizes, size * size), (*[1] * num_leading, size + 1)
    names = (*(term.names[axis] for axis in other_axes), name)
    return term._replace(value=New(StridedSlice(begin, end, stride), [flat]), names=names, sizes=(*leading_sizes, size))


# --- contraction ------------------------------------------------------------------------------------------------------


def _contracted(terms: list[_Term], output_names: Sequence[str]) -> _Term:
    """Multiply all terms, pair by pair, and sum over the axes that are not in `output_names`."""
    for positions in _path(terms, output_names):
        factors = [terms[index] for index in positions]
        terms = [term for index, term in enumerate(terms) if index not in positions]
        for position in range(1, len(factors)):
            later_terms = [*terms, *factors[position + 1 :]]
            needed_names = [
                *output_names,
                *dict.fromkeys(name for term in later_terms for name in term.names if name not in output_names),
            ]
            factors[position] = _product(factors[position - 1], factors[position], needed_names)
        terms.append(factors[-1])
    return _summed(reduce(lambda a, b: _product(a, b, output_names), terms), output_names)


def _path(terms: Sequence[_Term], output_names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the positions of the terms to multiply in each step, in an order that needs few operations.

    The product of each step is appended to the remaining terms. `output_names` are the axes of the result. The list is
    empty for fewer than three terms.
    """
    if len(terms) < 3:
        return []
    number_of_name = {
        name: number for number, name in enumerate(dict.fromkeys(name for term in terms for name in term.names))
    }
    operands: list[Any] = [
        operand
        for term in terms
        for operand in (np.broadcast_to(np.float32(0), term.sizes), [number_of_name[name] for name in term.names])
    ]
    path, _ = np.einsum_path(*operands, [number_of_name[name] for name in output_names], optimize="greedy")
    return [tuple(positions) for positions in path[1:]]


def _product(a: _Term, b: _Term, needed_names: Sequence[str]) -> _Term:
    """Multiply two terms, and sum over the axes that are not in `needed_names`; use a matrix product if possible."""
    a, b = _summed(a, {*b.names, *needed_names}), _summed(b, {*a.names, *needed_names})
    rows, columns = (
        [name for name in needed_names if name in x.names and name not in y.names] for x, y in ((a, b), (b, a))
    )
    if rows and columns and needed_names.index(columns[0]) < needed_names.index(rows[0]):
        a, b, rows, columns = b, a, columns, rows
    batch = [name for name in needed_names if name in a.names and name in b.names]
    summed = [name for name in a.names if name in b.names and name not in needed_names]
    if not summed or (batch and not rows and not columns):
        return _summed(
            _multiplied(a, b, [*(name for name in needed_names if name in {*a.names, *b.names}), *summed]), needed_names
        )
    return _matrix_product(a, b, batch, rows, columns)


def _summed(term: _Term, kept_names: Collection[str]) -> _Term:
    """Sum a term over the axes that are not in `kept_names`; return it unchanged if there are none."""
    axes = tuple(axis for axis, name in enumerate(term.names) if name not in kept_names)
    if not axes:
        return term
    names = [name for name in term.names if name in kept_names]
    return term.with_value(
        New(Reduce(operation=ReduceOperation.SUM, axis=axes), [term.value]), names, term.roundings + 1
    )


def _multiplied(a: _Term, b: _Term, names: Sequence[str]) -> _Term:
    """Multiply two terms element by element; the result has the axes `names`, and absent axes are broadcast."""
    size = {**dict(zip(a.names, a.sizes, strict=True)), **dict(zip(b.names, b.sizes, strict=True))}
    operands = [_spread(_transposed(x, [name for name in names if name in x.names]), names) for x in (a, b)]
    sizes = tuple(size[name] for name in names)
    return _Term(New(Multiplication(), operands), tuple(names), sizes, a.roundings + b.roundings + 1)


def _spread(term: _Term, names: Sequence[str]) -> Value | New:
    """Insert axes of size 1 into a term, so that its axes line up with `names` for broadcasting.

    Names before the first axis of the term are left out, because broadcasting adds them.
    """
    size = dict(zip(term.names, term.sizes, strict=True))
    first_present = next((index for index, name in enumerate(names) if name in size), len(names))
    return _reshaped(term, [size.get(name, 1) for name in names[first_present:]])


def _matrix_product(a: _Term, b: _Term, batch: list[str], rows: list[str], columns: list[str]) -> _Term:
    """Multiply two terms by BatchMatMul, and return the product with the axes `batch`, `rows` and `columns`.

    `batch` are axes of both terms that remain, `rows` those of `a` alone, and `columns` those of `b` alone. All other
    axes are summed over. Each group of axes is merged into one for the BatchMatMul.
    """
    summed = min(
        ([name for name in x.names if name not in {*batch, *rows, *columns}] for x in (a, b)),
        key=lambda order: _moves(a, batch, rows, order) + _moves(b, batch, columns, order),
    )
    left_matrix, transpose_x = _matrices(a, batch, rows, summed)
    right_matrix, rows_last = _matrices(b, batch, columns, summed)
    product = New(BatchMatMul(transpose_x=transpose_x, transpose_y=not rows_last), [left_matrix, right_matrix])
    names = (*batch, *rows, *columns)
    size = {**dict(zip(a.names, a.sizes, strict=True)), **dict(zip(b.names, b.sizes, strict=True))}
    sizes = tuple(size[name] for name in names)
    value = product if len(rows) == len(columns) == 1 else New(Reshape(sizes), [product])
    return _Term(value, names, sizes, a.roundings + b.roundings + 1)


def _moves(term: _Term, batch: list[str], rows: list[str], summed: list[str]) -> bool:
    """Return True if a term has to be transposed to become a batch of matrices of `rows` by `summed` axes.

    Both orders of the last two groups are possible without it.
    """
    return term.names not in ((*batch, *rows, *summed), (*batch, *summed, *rows))


def _matrices(term: _Term, batch: list[str], rows: list[str], summed: list[str]) -> tuple[Value | New, bool]:
    """Return a term as a batch of matrices, and True if its rows are their last axis, else False.

    The groups of axes `batch`, `rows` and `summed` are merged into one axis each. If the term has to be transposed, the
    group with its last axis stays last.
    """
    must_transpose = _moves(term, batch, rows, summed)
    rows_last = term.names[-1] in rows if must_transpose else bool(rows) and term.names == (*batch, *summed, *rows)
    order = [*batch, *summed, *rows] if rows_last else [*batch, *rows, *summed]
    arranged = _transposed(term, order)
    groups = [summed, rows] if rows_last else [rows, summed]
    size = dict(zip(term.names, term.sizes, strict=True))
    shape = [*(size[name] for name in batch), *(math.prod(size[name] for name in group) for group in groups)]
    return _reshaped(arranged, shape), rows_last


# --- moves ------------------------------------------------------------------------------------------------------------


def _transposed(term: _Term, names: Sequence[str]) -> _Term:
    if term.names == tuple(names):
        return term
    axes = tuple(term.names.index(name) for name in names)
    return term.with_value(New(Transpose(axes), [term.value]), names)


def _reshaped(term: _Term, shape: Sequence[int]) -> Value | New:
    return term.value if term.sizes == tuple(shape) else New(Reshape(tuple(shape)), [term.value])


EINSUMS: Final = (einsum_as_products,)
