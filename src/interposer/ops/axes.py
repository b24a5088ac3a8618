"""Helpers for operators that work along axes: negative axes, broadcasting, and per-axis quantization."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from interposer.core.types import Dim, TensorInfo, TensorShape, differ

__all__ = [
    "axes_problems",
    "broadcast_shapes",
    "normal_axes",
    "normal_axis",
    "quantized_axis_problems",
    "same_shapes",
    "transposed",
    "zero_point_problems",
]


def normal_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the front; a negative one counts from the end. The range is not checked."""
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return the axes counted from the front, in increasing order; negative ones count from the end."""
    return tuple(sorted(normal_axis(axis, rank) for axis in axes))


def axes_problems(axes: Sequence[int], rank: int, name: str = "axis", of: str = "the input") -> Iterator[str]:
    """Yield an error message if an axis is out of range for a tensor of this rank, or if an axis is repeated.

    `name` is the attribute and `of` the tensor that the message names. Axes may be negative, counted from the end.
    """
    for axis in axes:
        if not -rank <= axis < rank:
            allowed_text = f"{-rank} to {rank - 1}" if rank else "none, as it is a scalar"
            yield f"{name} is {axis}, but {of} has rank {rank}; expected {allowed_text}"
            return
    if len(set(normal_axes(axes, rank))) < len(axes):
        yield f"{name} is {tuple(axes)}, which names an axis twice"


def broadcast_shapes(*shapes: TensorShape) -> TensorShape | None:
    """Return the common shape by NumPy's broadcasting rule, or None if the shapes are incompatible.

    >>> broadcast_shapes(TensorShape((5, 1, "n")), TensorShape((4, 1)))
    TensorShape(5, 4, n)
    """
    if shapes and shapes[0].is_ranked and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    aligned_dims = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    dims = [_broadcast_dim(dims_of_axis) for dims_of_axis in aligned_dims]
    return None if None in dims else TensorShape(reversed(dims))


def _broadcast_dim(dims: Iterable[int]) -> int | None:
    not_one = [dim for dim in dict.fromkeys(dims) if dim != 1]
    known_dims = [dim for dim in not_one if not isinstance(dim, Dim)]
    if len(known_dims) > 1:
        return None
    if known_dims:
        return known_dims[0]
    return not_one[0] if len(not_one) == 1 else Dim() if not_one else 1


def quantized_axis_problems(info: TensorInfo, changed: Iterable[int], verb: str) -> Iterator[str]:
    """Yield an error message if the input is quantized per axis along one of the `changed` axes.

    These axes are counted from the front. `verb` says what the operator does to these axes, such as "reduce".
    """
    axis = info.quantization.axis if info.quantization else None
    if axis is not None and axis in changed:
        yield f"the input is quantized along axis {axis}, which the operator would {verb}; dequantize it first"


def transposed(info: TensorInfo, permutation: Sequence[int]) -> TensorInfo:
    """Return the info with permuted axes: axis i of the result is axis ``permutation[i]``. Per-axis scales follow."""
    shape = TensorShape(info.shape[axis] for axis in permutation)
    quantization = info.quantization
    if quantization is not None and quantization.axis is not None:
        quantization = quantization.along(tuple(permutation).index(quantization.axis))
    return TensorInfo(shape, info.dtype, quantization)


def same_shapes(shapes: Sequence[TensorShape], free_axis: int | None = None) -> bool:
    """Return True if all shapes have the same rank and no known dimensions that differ, except along `free_axis`.

    Unknown dimensions are compatible with all others.
    """
    reference = shapes[0]
    return all(
        len(shape) == len(reference)
        and not any(differ(a, b) for axis, (a, b) in enumerate(zip(shape, reference, strict=True)) if axis != free_axis)
        for shape in shapes
    )


def zero_point_problems(name: str, info: TensorInfo, zero_point: TensorInfo | None) -> Iterator[str]:
    """Yield an error message if the zero points of the operand `name` do not broadcast to the operand's shape.

    `info` is the operand's, `zero_point` that of the tensor of zero points, or None if it is absent.
    """
    if zero_point is None:
        return
    broadcast = broadcast_shapes(info.shape, zero_point.shape)
    if broadcast is None or len(broadcast) > info.rank or any(map(differ, broadcast, info.shape)):
        yield f"{name}_zero_point of shape {zero_point.shape} does not broadcast to {name} of shape {info.shape}"
