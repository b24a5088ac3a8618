"""Converters for complex numbers, which have real and imaginary part as their last axis, and for Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import DataType
from interposer.frontends.elementwise import ATAN2, COS, EQUAL, EXP, IS_NAN, LESS, NEG, SIN
from interposer.frontends.torch.call import Call, Operand
from interposer.frontends.torch.matmul import product
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.rearrange import Stack
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.spectral import Dft

__all__ = ["BY_PARTS", "complex_of", "part_of"]

_MOVING: Final = (
    "alias.default", "as_strided.default", "broadcast_to.default", "clone.default", "cumsum.default", "detach.default",
    "diagonal.default", "diagonal_copy.default", "diff.default", "empty.memory_format", "empty_like.default",
    "expand.default", "expand_copy.default", "flip.default", "gather.default", "index.Tensor", "index_select.default",
    "lift_fresh_copy.default", "masked_select.default", "mean.default", "mean.dim", "mT.default", "neg.default",
    "new_empty.default", "new_zeros.default", "new_empty_strided.default", "permute.default", "permute_copy.default",
    "reflection_pad1d.default", "reflection_pad2d.default", "replication_pad1d.default", "replication_pad2d.default",
    "replication_pad3d.default", "_pad_circular.default", "repeat.default", "repeat_interleave.self_int",
    "reshape.default", "roll.default", "slice.Tensor", "split.Tensor", "split_with_sizes.default",
    "split_with_sizes_copy.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "squeeze_copy.default",
    "squeeze_copy.dim", "squeeze_copy.dims", "sum.default", "sum.dim_IntList", "t.default", "transpose.int",
    "transpose_copy.int", "tril.default", "triu.default", "unbind.int", "unbind_copy.int", "unfold.default",
    "unsqueeze.default", "_unsafe_view.default", "view.default", "view_copy.default", "zero.default", "zeros.default",
    "zeros_like.default",
)  # fmt: skip
BY_PARTS: Final[dict[str, tuple[int, ...]]] = {f"aten.{name}": () for name in _MOVING} | {
    "aten.cat.default": (0,),
    "aten.constant_pad_nd.default": (2,),
    "aten.copy.default": (1,),
    "aten.diagonal_scatter.default": (1,),
    "aten.fill.Scalar": (1,),
    "aten.full.default": (1,),
    "aten.full_like.default": (1,),
    "aten.index_put.default": (2,),
    "aten.masked_fill.Scalar": (2,),
    "aten.new_full.default": (2,),
    "aten.pad.default": (3,),
    "aten.scalar_tensor.default": (0,),
    "aten.select_scatter.default": (1,),
    "aten.slice_scatter.default": (1,),
    "aten.stack.default": (0,),
    "aten.where.ScalarOther": (1, 2),
    "aten.where.ScalarSelf": (1, 2),
    "aten.where.self": (1, 2),
}
"""Operators that apply to the real and the imaginary part separately, and their operands that are complex numbers.

Where such an operand is a float, its imaginary part is 0.
"""


def part_of(c: Call, x: Value, index: int) -> Value:
    """Return the real (0) or imaginary (1) part of complex numbers."""
    return c.gather(x, index, x.known.rank - 1)


def complex_of(c: Call, real: Value, imaginary: Value) -> Value:
    """Return complex numbers with these parts, which broadcast."""
    shape = list(np.broadcast_shapes(c.shape(real), c.shape(imaginary)))
    return c.step(Stack(len(shape)), c.broadcast(real, shape), c.broadcast(imaginary, shape))


def _parts(c: Call, x: Operand | complex, index: int) -> tuple[Value, Value]:
    """Return the parts of operand number `index` of the node, which may be a tensor of floats or a number."""
    return _parts_of_type(c, x, index, c.dtype)


def _parts_of_type(c: Call, x: Operand | complex, index: int, dtype: DataType) -> tuple[Value, Value]:
    if not isinstance(x, Value):
        number = complex(x)
        return c.scalar(number.real, dtype), c.scalar(number.imag, dtype)
    if c.is_complex(index):
        return part_of(c, x, 0), part_of(c, x, 1)
    return c.cast(x, dtype), c.scalar(0, dtype)


@aten("view_as_real", "view_as_complex", "view_as_real_copy", "view_as_complex_copy", complex_numbers=True)
def reinterpreted(c: Call, x: Value) -> Value:
    """Convert view_as_real and view_as_complex, which change nothing here."""
    return x


@aten("complex", complex_numbers=True)
def complex_(c: Call, real: Value, imaginary: Value) -> Value:
    """Convert complex."""
    return complex_of(c, real, imaginary)


@aten("polar", complex_numbers=True)
def polar(c: Call, size: Value, angle: Value) -> Value:
    """Convert polar: complex numbers by their absolute values and angles."""
    return complex_of(c, c.times(size, c.step(COS, angle)), c.times(size, c.step(SIN, angle)))


@aten("real", "imag", "select.int", complex_numbers=True)
def real(c: Call, x: Value, *args: Any) -> Value:
    """Convert real, imag and select of complex numbers."""
    name = str(c.node.target)
    if "select" in name:
        dim, index = args
        axis = dim % (x.known.rank - 1)
        return c.squeezed(c.cut(x, axis, index % c.size(x, axis), 1), axis)
    return part_of(c, x, 0 if "real" in name else 1)


@aten("_conj", "conj", "_conj_physical", "conj_physical", "_neg_view", complex_numbers=True)
def conjugate(c: Call, x: Value) -> Value:
    """Convert the conjugation."""
    if "neg_view" in str(c.node.target):
        return c.step(NEG, x)
    return c.times(x, c.constant(np.array([1, -1], x.known.dtype.numpy)))


@aten("abs", complex_numbers=True)
def absolute(c: Call, x: Value) -> Value:
    """Convert abs of complex numbers."""
    return c.step(Reduce((-1,), False, ReduceOperation.L2), x)


@aten("angle", complex_numbers=True)
def angle(c: Call, x: Value) -> Value:
    """Convert angle of complex numbers."""
    return c.binary(ATAN2, part_of(c, x, 1), part_of(c, x, 0))


@aten("angle")
def angle_of_float(c: Call, x: Value) -> Value:
    """Convert angle of floats: pi for negative numbers, else 0."""
    x = c.cast(x, c.dtype)
    angle = c.where(c.binary(LESS, x, 0), c.scalar(math.pi, c.dtype), c.scalar(0, c.dtype))
    return c.where(c.step(IS_NAN, x), x, angle)


@aten("mul.Tensor", "mul.Scalar", complex_numbers=True)
def multiply(c: Call, a: Operand, b: Operand) -> Value:
    """Convert the product of complex numbers."""
    (a_real, a_imag), (b_real, b_imag) = _parts(c, a, 0), _parts(c, b, 1)
    return complex_of(
        c,
        c.minus(c.times(a_real, b_real), c.times(a_imag, b_imag)),
        c.plus(c.times(a_real, b_imag), c.times(a_imag, b_real)),
    )


@aten("div.Tensor", "div.Scalar", complex_numbers=True)
def divide(c: Call, a: Operand, b: Operand) -> Value:
    """Convert the quotient of complex numbers."""
    (a_real, a_imag), (b_real, b_imag) = _parts(c, a, 0), _parts(c, b, 1)
    size = c.plus(c.times(b_real, b_real), c.times(b_imag, b_imag))
    numerator = (
        c.plus(c.times(a_real, b_real), c.times(a_imag, b_imag)),
        c.minus(c.times(a_imag, b_real), c.times(a_real, b_imag)),
    )
    return complex_of(c, *(c.over(part, size) for part in numerator))


@aten("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", complex_numbers=True)
def add(c: Call, a: Operand, b: Operand, alpha: Operand = 1) -> Value:
    """Convert sums and differences of complex numbers."""
    name = str(c.node.target)
    (a_real, a_imag), (b_real, b_imag) = _parts(c, a, 0), _parts(c, b, 1)
    if alpha != 1:
        b_real, b_imag = c.times(b_real, alpha), c.times(b_imag, alpha)
    if "rsub" in name:
        (a_real, a_imag), (b_real, b_imag) = (b_real, b_imag), (a_real, a_imag)
    combine = c.minus if "sub" in name else c.plus
    return complex_of(c, combine(a_real, b_real), combine(a_imag, b_imag))


@aten("ones", "new_ones", "ones_like", complex_numbers=True)
def ones(c: Call, *_: Any, **__: Any) -> Value:
    """Convert ones of complex numbers."""
    sizes = [*(int(size) for size in c.example.shape), 2]
    return c.broadcast(c.constant(np.array([1, 0], c.dtype.numpy)), sizes)


@aten("reciprocal", complex_numbers=True)
def reciprocal(c: Call, x: Value) -> Value:
    """Convert the reciprocal of complex numbers."""
    real_part, imaginary = part_of(c, x, 0), part_of(c, x, 1)
    size = c.plus(c.times(real_part, real_part), c.times(imaginary, imaginary))
    return complex_of(c, c.over(real_part, size), c.over(c.step(NEG, imaginary), size))


@aten("square", complex_numbers=True)
def square(c: Call, x: Value) -> Value:
    """Convert the square of complex numbers."""
    a, b = part_of(c, x, 0), part_of(c, x, 1)
    return complex_of(c, c.minus(c.times(a, a), c.times(b, b)), c.times(c.times(a, b), 2))


@aten("eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar", complex_numbers=True)
def equal(c: Call, a: Operand, b: Operand) -> Value:
    """Convert equality of complex numbers."""
    dtype = next(operand.known.dtype for operand in (a, b) if isinstance(operand, Value))
    (a_real, a_imag), (b_real, b_imag) = (
        [c.cast(part, dtype) for part in _parts_of_type(c, operand, index, dtype)]
        for index, operand in enumerate((a, b))
    )
    is_same = c.both(c.binary(EQUAL, a_real, b_real), c.binary(EQUAL, a_imag, b_imag))
    return c.negated(is_same) if "aten.ne" in str(c.node.target) else is_same


@aten("addmm", "baddbmm", "addmv", complex_numbers=True)
def add_product(c: Call, x: Value, a: Value, b: Value, beta: Operand = 1, alpha: Operand = 1) -> Value:
    """Convert beta * x + alpha * (a @ b) of complex numbers."""
    if isinstance(beta, complex) or isinstance(alpha, complex) or not all(c.is_complex(i) for i in range(3)):
        c.unsupported("it has complex factors, or floats among its operands")
    (a_real, a_imag), (b_real, b_imag) = (tuple(part_of(c, operand, i) for i in (0, 1)) for operand in (a, b))
    scaled_product = complex_of(
        c,
        c.minus(product(c, a_real, b_real), product(c, a_imag, b_imag)),
        c.plus(product(c, a_real, b_imag), product(c, a_imag, b_real)),
    )
    scaled_product = scaled_product if alpha == 1 else c.times(scaled_product, alpha)
    return scaled_product if beta == 0 else c.plus(x if beta == 1 else c.times(x, beta), scaled_product)


@aten("exp", complex_numbers=True)
def exponential(c: Call, x: Value) -> Value:
    """Convert exp of complex numbers."""
    magnitude, angle = c.step(EXP, part_of(c, x, 0)), part_of(c, x, 1)
    return complex_of(c, c.times(magnitude, c.step(COS, angle)), c.times(magnitude, c.step(SIN, angle)))


@aten("_to_copy", "to.dtype", complex_numbers=True)
def to_copy(c: Call, x: Value, *_: Any) -> Value:
    """Convert casts from and to complex numbers."""
    was_complex, is_now = c.is_complex(0), c.example.is_complex()
    if was_complex and not is_now:
        return c.cast(part_of(c, x, 0), c.dtype)
    x = c.cast(x, c.dtype)
    return x if was_complex else complex_of(c, x, c.scalar(0, c.dtype))


@aten("mm", "bmm", "matmul", "mv", complex_numbers=True)
def matmul(c: Call, a: Value, b: Value) -> Value:
    """Convert matrix products of complex numbers."""
    (a_real, a_imag), (b_real, b_imag) = _parts(c, a, 0), _parts(c, b, 1)
    return complex_of(
        c,
        c.minus(product(c, a_real, b_real), product(c, a_imag, b_imag)),
        c.plus(product(c, a_real, b_imag), product(c, a_imag, b_real)),
    )


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def _normalized(c: Call, x: Value, count: int, normalization: int, *, inverse: bool) -> Value:
    """Apply PyTorch's normalization (0 none, 1 by the root of the count, 2 by it); the inverse divides already."""
    factor = (1.0, count**-0.5, 1.0 / count)[normalization] * (count if inverse else 1)
    return x if abs(factor - 1) < 1e-15 else c.times(x, factor)


def _transformed(c: Call, x: Value, axes: Sequence[int], *, inverse: bool) -> Value:
    for axis in axes:
        x = c.step(Dft(axis, inverse=inverse), x)
    return x


@aten("_fft_r2c", complex_numbers=True)
def fft_of_floats(c: Call, x: Value, dims: Sequence[int], normalization: int, onesided: bool) -> Value:
    """Convert the transform of floats; with `onesided`, half of the frequencies along the last axis in `dims`."""
    rank = x.known.rank
    axes = [dim % rank for dim in dims]
    count = math.prod(c.size(x, axis) for axis in axes)
    spectrum = c.step(Dft(axes[-1], onesided=onesided), c.unsqueezed(x, rank))
    return _normalized(c, _transformed(c, spectrum, axes[:-1], inverse=False), count, normalization, inverse=False)


@aten("_fft_c2r", complex_numbers=True)
def fft_to_floats(c: Call, x: Value, dims: Sequence[int], normalization: int, last: int) -> Value:
    """Convert the inverse transform to floats."""
    rank = x.known.rank - 1
    axes = [dim % rank for dim in dims]
    x = _transformed(c, x, axes[:-1], inverse=True)
    count = math.prod(c.size(x, axis) for axis in axes[:-1]) * last
    size = last // 2 + 1
    if c.size(x, axes[-1]) > size:
        x = c.cut(x, axes[-1], 0, size)
    signal = c.squeezed(c.step(Dft(axes[-1], last, inverse=True, onesided=True), x), rank)
    return _normalized(c, signal, count, normalization, inverse=True)


@aten("_fft_c2c", complex_numbers=True)
def fft_of_complex(c: Call, x: Value, dims: Sequence[int], normalization: int, forward: bool) -> Value:
    """Convert the transform of complex numbers, and its inverse."""
    axes = [dim % (x.known.rank - 1) for dim in dims]
    count = math.prod(c.size(x, axis) for axis in axes)
    transformed = _transformed(c, x, axes, inverse=not forward)
    return _normalized(c, transformed, count, normalization, inverse=not forward)
