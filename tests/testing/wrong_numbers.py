"""Backends with one wrong computation each, for the conformance kit to find and to name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from interposer import ops
from interposer.backend import Backend, KernelInfo, KernelTable
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Quantization, TensorInfo, integer_range
from interposer.kernels import evaluate
from interposer.ops import Activation, ActivationFunction, BinaryOperation, ReduceOperation, UnaryOperation
from tests.testing.planted import Planted

ALL = frozenset(DataType) - {DataType.STRING}


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a kernel: the operator, its arrays and infos, and the right results."""

    op: Any
    arrays: list[Array | None]
    info: KernelInfo

    def evaluated(self, op: Op | None = None, arrays: Sequence[Array | None] | None = None) -> Array:
        """The first result of the reference kernel, here or on another operator or other arrays."""
        op, arrays = op or self.op, list(self.arrays if arrays is None else arrays)
        infos = [info and info.with_shape(array.shape) for info, array in zip(self.info.inputs, arrays, strict=False)
                 if array is not None]  # fmt: skip
        outputs = self.info.outputs
        if op is not self.op or arrays is not self.arrays:
            outputs = [infer_info and TensorInfo(infer_info.shape, declared.dtype, declared.quantization)
                       for infer_info, declared in zip(op.infer_infos(*infos), outputs, strict=True)]  # fmt: skip
        return evaluate(op, arrays, infos, outputs)[0]

    @property
    def right(self) -> Array:
        """The right result."""
        return evaluate(self.op, self.arrays, self.info.inputs, self.info.outputs)[0]

    @property
    def output(self) -> TensorInfo:
        """The info of the result."""
        return self.info.output

    def real(self, index: int) -> Array:
        """An input as float64, with its scale and zero point applied."""
        info, array = self.info.inputs[index], self.arrays[index]
        assert info is not None and array is not None
        return dequantized(array, info)

    def exact(self) -> Array:
        """The exact result in steps of the output, before rounding, the zero point and clamping."""
        reals = [None if array is None else self.real(index) for index, array in enumerate(self.arrays)]
        infos = [None if real is None else TensorInfo(real.shape, real.dtype) for real in reals]
        op = ops.Activation(ActivationFunction.LINEAR, 1.0, 0.0) if isinstance(self.op, ops.Quantize) else self.op
        [result] = evaluate(op, reals, infos, op.infer_infos(*infos))
        assert self.output.quantization is not None
        return result / self.output.quantization.scale

    def stored(self, steps: Array, *, clamp: bool = True) -> Array:
        """Whole steps as stored integers, clamped or with the highest bits lost."""
        assert self.output.quantization is not None
        codes = steps + self.output.quantization.zero_point
        low, high = integer_range(self.output.dtype)
        codes = np.clip(codes, low, high) if clamp else codes
        return codes.astype(np.int64).astype(self.output.dtype.numpy)


def dequantized(array: Array, info: TensorInfo) -> Array:
    q = info.quantization
    if q is None:
        return array.astype(np.float64)
    shape = [1] * array.ndim
    if q.axis is not None:
        shape[q.axis] = -1
    return (array.astype(np.float64) - np.reshape(q.zero_points, shape)) * np.reshape(q.scales, shape)


Problem = Callable[[Call], Array]
PROBLEMS: list[Planted] = []


def planted(
    operator: type[Op], samples: str, message: str, *, names_it: bool = True, kind: str = "numbers"
) -> Callable[[Problem], Problem]:
    """Plant the decorated function in a backend in place of the kernel of an operator.

    The docstring of the function is the description of the error; `samples` is a pattern for the samples that find it.
    """

    def add(fault: Problem) -> Problem:
        assert fault.__doc__ is not None
        name = "".join(word.capitalize() for word in fault.__name__.split("_"))
        backend = type(name, (Backend,), {"id": name, "kernels": table_of(operator, fault)})
        what = fault.__doc__.strip().rstrip(".")
        case = f"results/{operator.op_name()}-{samples}"
        PROBLEMS.append(Planted(what, backend, case, message, kind, (operator,), names_it))
        return fault

    return add


def table_of(operator: type[Op], fault: Problem) -> KernelTable:
    table = KernelTable()

    @table(operator, dtypes=ALL)
    def kernel(op: Op, *arrays: Array, info: KernelInfo) -> Array:
        operands = [operand for group in arrays for operand in (group if isinstance(group, tuple) else (group,))]
        return np.asarray(fault(Call(op, operands, info)), info.output.dtype.numpy)

    return table


# --- rounding, clamping and accumulators of quantized tensors ---------------------------------------------------------


@planted(ops.Quantize, "many-int8", "truncated instead of rounded")
def truncates(call: Call) -> Array:
    """Quantized results are truncated towards zero."""
    return call.stored(np.trunc(call.exact()))


@planted(ops.FullyConnected, "many-int8", r"rounded down \(floor\) instead of to the nearest")
def rounds_down(call: Call) -> Array:
    """Quantized sums are rounded down."""
    return call.stored(np.floor(call.exact()))


@planted(ops.Mean, "many-uint8", "rounded up instead of to the nearest")
def rounds_up(call: Call) -> Array:
    """Quantized means are rounded up."""
    return call.stored(np.ceil(call.exact()))


@planted(ops.Addition, "many-int8", "1.00 steps too high.*an offset of one step, in the rounding or the zero point")
def one_step_too_high(call: Call) -> Array:
    """One is added to every quantized element."""
    return call.stored(np.rint(call.exact()) + 1)


@planted(ops.Convolution2d, "many-tensor-uint8", "1.00 steps too low.*an offset of one step")
def one_step_too_low(call: Call) -> Array:
    """One is subtracted from every quantized element of a convolution."""
    return call.stored(np.rint(call.exact()) - 1)


@planted(ops.Quantize, "special-int8", "half to even, or half away from zero")
def half_to_even(call: Call) -> Array:
    """Numbers halfway between two steps are rounded to even instead of away from zero."""
    return call.stored(np.rint(np.nan_to_num(call.exact(), nan=0.0)))


@planted(ops.FullyConnected, "many-int8", "is the accumulator only 16 bits wide")
def adds_in_int16(call: Call) -> Array:
    """Products of int8 are summed in 16 bits."""
    sums = integer_sums(call).astype(np.int64).astype(np.int16)
    return call.stored(np.rint(sums * scale_of_sums(call)))


def integer_sums(call: Call) -> Array:
    x, w = (call.arrays[index].astype(np.int64) - call.info.inputs[index].quantization.zero_point for index in (0, 1))
    return x @ w


def scale_of_sums(call: Call) -> float:
    scales = [info.quantization.scale for info in (*call.info.inputs[:2], call.output)]
    return scales[0] * scales[1] / scales[2]


@planted(ops.Addition, "many-int8", "wrap around instead of saturating at -128 and 127")
def does_not_clamp(call: Call) -> Array:
    """Quantized sums beyond the range of int8 wrap around."""
    return call.stored(np.rint(call.exact()), clamp=False)


@planted(ops.Quantize, "many-int8", "clamped to -127 instead of -128")
def clamps_to_minus_127(call: Call) -> Array:
    """The lowest quantized value is never used."""
    return np.maximum(call.right, -127)


@planted(ops.Multiplication, "many-int16", "clamped to -128 and 127")
def clamps_16_bits_as_8(call: Call) -> Array:
    """Results of 16 bits are clamped to the range of 8 bits."""
    return np.clip(call.right, -128, 127)


@planted(ops.Convolution2d, "many-channels-int8", "(slice along axis 3 has a factor|along axis 3)")
def one_scale_for_all_channels(call: Call) -> Array:
    """The scale of the first channel of the weights is used for all channels."""
    q = call.info.inputs[1].quantization
    if q.axis is None:
        return call.right
    alike = Quantization([q.scales[0]] * len(q.scales), 0, q.axis)
    infos = [call.info.inputs[0], TensorInfo(call.arrays[1].shape, call.info.inputs[1].dtype, alike)]
    of_bias = call.info.inputs[2].quantization
    bias = Quantization([of_bias.scales[0]] * len(of_bias.scales), 0, of_bias.axis)
    infos.append(TensorInfo(call.arrays[2].shape, call.info.inputs[2].dtype, bias))
    return evaluate(call.op, call.arrays, infos, [call.output])[0]


@planted(ops.Addition, "many-int8", r"every element is too low by 4 steps: zero point or bias")
def ignores_the_zero_point_of_an_input(call: Call) -> Array:
    """The zero point of the first input is ignored."""
    q = call.info.inputs[0].quantization
    if q is None:
        return call.right
    return call.stored(np.rint(call.exact() + q.zero_point * q.scale / call.output.quantization.scale))


@planted(ops.Quantize, "float32-to-uint8", "every element is too low by 128 steps: zero point or bias")
def ignores_the_zero_point_of_the_output(call: Call) -> Array:
    """The zero point of the output is ignored."""
    low, high = integer_range(call.output.dtype)
    return np.clip(call.right.astype(np.int64) - call.output.quantization.zero_point, low, high)


@planted(ops.Dequantize, "*-to-float32", "all wrong elements are too low by 8: signed or unsigned")
def reads_uint8_as_int8(call: Call) -> Array:
    """Quantized values of uint8 are read as int8."""
    array, info = call.arrays[0], call.info.inputs[0]
    if info.dtype is not DataType.UINT8:
        return call.right
    return dequantized(array.view(np.int8), info)


# --- integers ---------------------------------------------------------------------------------------------------------


@planted(ops.Addition, "special-ends-int32", "are saturated at -2147483648 and 2147483647, where the operator wraps")
def saturates_int32(call: Call) -> Array:
    """Sums of int32 saturate where they have to wrap around."""
    a, b = (array.astype(np.float64) for array in call.arrays)
    low, high = integer_range(call.output.dtype)
    return np.clip(a + b, low, high).astype(np.int64) if call.output.dtype is DataType.INT32 else call.right


@planted(ops.Reduce, "beyond-16-bits", "is the accumulator only 16 bits wide")
def adds_integers_in_int16(call: Call) -> Array:
    """Sums of int32 are stored in 16 bits."""
    return call.right.astype(np.int16)


@planted(ops.Division, "worked*", "all wrong elements are one too low: rounded down")
def rounds_quotients_down(call: Call) -> Array:
    """Quotients of integers are rounded down instead of truncated."""
    a, b = call.arrays
    return np.floor_divide(a, b) if a.dtype.kind == "i" else call.right


@planted(ops.Cast, "float32-to-int32", "one too far from zero: rounded instead of truncated")
def rounds_casts(call: Call) -> Array:
    """Casts to integers round instead of truncating."""
    return np.rint(call.arrays[0]) if call.output.dtype.is_integer else call.right


# --- axes and layouts -------------------------------------------------------------------------------------------------


@planted(
    ops.Softmax,
    "*float32-from-end--2",
    "(all|most) elements are wrong: layout, exchanged axes, or the order of operands",
    names_it=False,
)
def takes_every_negative_axis_as_the_last(call: Call) -> Array:
    """Softmax along axis -2 is taken along axis -1."""
    axis = -1 if call.op.axis < 0 else call.op.axis
    return call.evaluated(call.op.replace(axis=axis))


@planted(ops.Transpose, "tail-120", r"its axes in the order \[\d, \d, \d\]: layout, or axes swapped")
def transposes_the_other_way(call: Call) -> Array:
    """Elements are transposed by the inverse permutation."""
    order = np.argsort(call.op.permutation)
    return call.arrays[0].transpose(order).reshape(call.output.shape)


@planted(ops.Pooling2d, "tail-max-nchw-7", "layout, or axes swapped|right numbers in another order|layout, axis")
def gives_channels_last(call: Call) -> Array:
    """A result in NCHW is stored as NHWC."""
    return np.moveaxis(call.right, 1, -1).reshape(call.right.shape)


def pasted(results: Array, shape: Sequence[int]) -> Array:
    """As much of an array as fits into a shape, and zeros."""
    out = np.zeros(tuple(shape), results.dtype)
    common = tuple(slice(0, min(pair)) for pair in zip(results.shape, out.shape, strict=True))
    out[common] = results[common]
    return out


@planted(ops.Convolution2d, "tail-nhwc-3-to-7", "(all|most) elements are wrong: layout, exchanged axes", names_it=False)
def swaps_strides(call: Call) -> Array:
    """The strides of the two axes are exchanged."""
    op = call.op
    return pasted(call.evaluated(op.replace(stride_x=op.stride_y, stride_y=op.stride_x)), call.output.shape)


@planted(
    ops.DepthwiseConvolution2d, "tail-nhwc-3-*", "(all|most) elements are wrong: layout, exchanged axes", names_it=False
)
def swaps_dilations(call: Call) -> Array:
    """The dilations of the two axes are exchanged."""
    op = call.op
    return pasted(call.evaluated(op.replace(dilation_x=op.dilation_y, dilation_y=op.dilation_x)), call.output.shape)


@planted(ops.Convolution2d, "uneven-pads-nhwc-float32", r"moved by -2 along axis 2: padding or start at the wrong side")
def pads_the_wrong_side(call: Call) -> Array:
    """The left padding of an image is added at the right."""
    op = call.op
    return call.evaluated(op.replace(pad_left=op.pad_right, pad_right=op.pad_left))


@planted(ops.Pad, "special", "moved by -1 along axis 1 and 2 along axis 2: padding or start at the wrong side")
def pads_behind(call: Call) -> Array:
    """The paddings before and after an axis are exchanged."""
    return call.evaluated(call.op.replace(pad_list=tuple((after, before) for before, after in call.op.pad_list)))


@planted(ops.Addition, "tail-column", "(all|most) elements are wrong: layout, exchanged axes", names_it=False)
def broadcasts_in_the_other_order(call: Call) -> Array:
    """A column is broadcast as if it were a row."""
    a, b = call.arrays
    shape = tuple(call.output.shape)
    return call.right if a.shape != shape or b.shape == shape else a + np.resize(b, shape)


@planted(ops.ReverseV2, "special", "equal to the right result reversed along axis 1")
def reverses_nothing(call: Call) -> Array:
    """The order along an axis is not reversed."""
    return call.arrays[0]


@planted(ops.DepthToSpace, "special", "right numbers in another order: layout, axis or index")
def mixes_blocks_and_channels(call: Call) -> Array:
    """Blocks are taken from neighbouring channels instead of distant ones."""
    x = call.arrays[0]
    n, h, w, c = x.shape
    b = call.op.block_size
    return x.reshape(n, h, w, c // b**2, b, b).transpose(0, 1, 4, 2, 5, 3).reshape(n, h * b, w * b, c // b**2)


@planted(
    ops.BatchMatMul, "transposed-01-float32", "(all|most) elements are wrong: layout, exchanged axes", names_it=False
)
def forgets_to_transpose(call: Call) -> Array:
    """The second matrix is not transposed, only read as if it were."""
    if not call.op.transpose_y:
        return call.right
    y = call.arrays[1]
    shape = (*y.shape[:-2], y.shape[-1], y.shape[-2])
    return call.evaluated(call.op.replace(transpose_y=False), [call.arrays[0], y.reshape(shape)])


# --- special values ---------------------------------------------------------------------------------------------------


@planted(Activation, "special-relu-nan", "NaN is lost: does a comparison such as max, min or clamp drop it")
def loses_nan(call: Call) -> Array:
    """ReLU gives 0 for NaN."""
    relu = call.op.function is ActivationFunction.RELU
    return np.fmax(call.arrays[0], 0) if relu and call.output.dtype.is_float else call.right


@planted(ops.Maximum, "special-pairs-float32", "NaN is lost")
def prefers_numbers_to_nan(call: Call) -> Array:
    """The larger of a number and NaN is the number."""
    return np.fmax(*call.arrays) if call.output.dtype.is_float else call.right


@planted(ops.ElementwiseUnary, "special-neg-zeros", "only the sign of zeros is wrong")
def loses_the_sign_of_zero(call: Call) -> Array:
    """The negative of 0.0 is 0.0 instead of -0.0."""
    return 0 - call.arrays[0] if call.op.operation is UnaryOperation.NEG else call.right


@planted(Activation, "special-tanh-infinite", "NaN appears in elements that must not depend on it")
def divides_infinities(call: Call) -> Array:
    """The hyperbolic tangent of an infinity is Inf / Inf."""
    if call.op.function is not ActivationFunction.TANH or not call.output.dtype.is_float:
        return call.right
    x = np.exp(2 * call.arrays[0].astype(np.float64) * call.op.b)
    return call.op.a * (x - 1) / (x + 1)


@planted(ops.Addition, "special-denormal", "denormal numbers are flushed to zero")
def flushes_denormals(call: Call) -> Array:
    """Denormal sums become 0."""
    right = call.right
    if call.output.dtype is not DataType.FLOAT32:
        return right
    return np.where(np.abs(right) < np.finfo(np.float32).smallest_normal, np.float32(0), right)


@planted(ops.Softmax, "worked", "NaN appears in elements that must not depend on it: do 0 . NaN or Inf - Inf spread")
def overflows_in_softmax(call: Call) -> Array:
    """Softmax does not subtract the largest score first."""
    if not call.output.dtype.is_float:
        return call.right
    powers = np.exp(call.arrays[0] * call.op.beta)
    return powers / powers.sum(axis=call.op.axis, keepdims=True)


@planted(ops.Convolution2d, "special-nan", "NaN appears in elements that must not depend on it")
def spreads_nan(call: Call) -> Array:
    """A NaN anywhere in an image reaches every result."""
    return call.right + 0 * call.arrays[0].sum() if call.output.dtype.is_float else call.right


# --- precision --------------------------------------------------------------------------------------------------------


@planted(ops.Reduce, "long-sum-float32", "every element is a float16 number: computed, summed or stored in float16")
def adds_in_float16(call: Call) -> Array:
    """Sums of float32 are stored in float16."""
    if call.op.operation is not ReduceOperation.SUM or call.output.dtype is not DataType.FLOAT32:
        return call.right
    return np.cumsum(call.arrays[0], axis=1, dtype=np.float16)[:, -1]


@planted(ops.FullyConnected, "long-float16", "elements are wrong by more than", names_it=False)
def adds_float16_in_float16(call: Call) -> Array:
    """Long sums of float16 are stored in float16, where they stop growing."""
    if call.output.dtype is not DataType.FLOAT16 or call.arrays[2] is not None:
        return call.right
    products = call.arrays[0][:, :, None] * call.arrays[1][None]
    return np.cumsum(products, axis=1, dtype=np.float16)[:, -1]


@planted(
    ops.BatchMatMul, "matrices-float32", "every element is a bfloat16 number: computed, summed or stored in bfloat"
)
def stores_bfloat16(call: Call) -> Array:
    """Products of float32 are stored as bfloat16 in between."""
    return call.right.astype(DataType.BFLOAT16.numpy) if call.output.dtype is DataType.FLOAT32 else call.right


@planted(Activation, "sigmoid-float32", "elements are wrong by more than", names_it=False)
def approximates_roughly(call: Call) -> Array:
    """A sigmoid is approximated by a rational function."""
    x = call.arrays[0]
    rough = call.op.function is ActivationFunction.SIGMOID and call.output.dtype.is_float
    return 0.5 + 0.5 * x / (1 + np.abs(x)) if rough else call.right


# --- factors, offsets and what is left out ----------------------------------------------------------------------------


@planted(ops.Mean, "type-float32", "every element is 1.5 times the right one: scale")
def divides_by_too_few(call: Call) -> Array:
    """A sum is divided by one element too few."""
    count = call.arrays[0].size // max(call.right.size, 1)
    return call.right * (count / (count - 1)) if call.output.dtype.is_float and count > 1 else call.right


@planted(ops.Subtraction, "float32", "every element has the wrong sign")
def subtracts_the_other_way(call: Call) -> Array:
    """The first operand is subtracted from the second."""
    return -call.right if call.output.dtype.is_float else call.right


@planted(ops.FullyConnected, "plain-3x6-bias", "every slice along axis 1 has an offset of its own: bias or zero points")
def forgets_the_bias(call: Call) -> Array:
    """The bias is not added."""
    return call.evaluated(arrays=call.arrays[:2]) if call.output.dtype is DataType.FLOAT32 else call.right


@planted(ops.Multiplication, "tail-full", "only elements from 32 on along axis 2 .* the tail of a vector of 16")
def stops_at_the_last_vector(call: Call) -> Array:
    """Elements of a row beyond the last full vector of 16 are not computed."""
    right = call.right.copy()
    if right.ndim and right.shape[-1] > 16:
        right[..., right.shape[-1] // 16 * 16 :] = 0
    return right


@planted(ops.Resize, "tail-bilinear-nhwc", "only the first slice along axis 0 is right: is the batch ignored")
def computes_the_first_image_alone(call: Call) -> Array:
    """Every image of a batch gets the result of the first one."""
    right = call.right
    return np.broadcast_to(right[:1], right.shape) if right.size else right


@planted(ops.Pooling2d, "*average-exclude-floor-padded-float32", "are wrong: padding")
def counts_the_padding(call: Call) -> Array:
    """An average over a window counts its padding as zeros."""
    op = call.op.replace(padding_method=ops.PaddingMethod.IGNORE_VALUE)
    return call.evaluated(op)


@planted(ops.Convolution2d, "padded-nhwc-no-bias", "are wrong: padding")
def pads_with_ones(call: Call) -> Array:
    """The border of an image is padded with 1 instead of 0."""
    op, x = call.op, call.arrays[0]
    if op.data_layout is not ops.Convolution2d().data_layout.NHWC or call.output.dtype is not DataType.FLOAT32:
        return call.right
    pads = ((0, 0), (op.pad_top, op.pad_bottom), (op.pad_left, op.pad_right), (0, 0))
    bare = op.replace(pad_top=0, pad_bottom=0, pad_left=0, pad_right=0)
    return call.evaluated(bare, [np.pad(x, pads, constant_values=1), *call.arrays[1:]])


@planted(ops.BatchNormalization, "tail-nhwc", "elements are wrong by more than", names_it=False)
def divides_by_the_variance(call: Call) -> Array:
    """Elements are divided by the variance instead of its root."""
    x, mean, variance, beta, gamma = call.arrays
    return call.evaluated(arrays=[x, mean, variance**2, beta, gamma])


@planted(ops.Transpose, "tail-021", "the output still holds what the kit filled the memory with: was it never written")
def writes_nothing(call: Call) -> Array:
    """The output is not written to."""
    return call.right


PROBLEMS[-1].backend.kernels = KernelTable()  # type: ignore[attr-defined]


@PROBLEMS[-1].backend.kernels(ops.Transpose, dtypes=ALL)  # type: ignore[attr-defined]
def nothing(op: Op, x: Array, *, out: Array) -> None:
    """A kernel that leaves its output as it is."""


class Cache:
    """The result of the first call, by shape."""

    results: ClassVar[dict[tuple[int, ...], Array]] = {}


_OVERFLOW = "infinities appear in place of finite numbers: overflow"


@planted(Activation, "magnitude-mish-1e30", _OVERFLOW)
def multiplies_before_it_divides(call: Call) -> Array:
    """Mish is computed as a product of large numbers that is divided at the end."""
    if call.op.function is not ActivationFunction.MISH or call.output.dtype is not DataType.FLOAT32:
        return call.right
    x = call.arrays[0]
    with np.errstate(all="ignore"):
        e = np.exp(np.minimum(x, np.float32(20)))
        w = e * (e + 2)
        return x * w / (w + 2)


@planted(ops.Mean, "magnitude-3e38-axis0", _OVERFLOW)
def adds_before_it_divides(call: Call) -> Array:
    """The sum of all elements is computed in float32 before it is divided by their number."""
    x = call.arrays[0]
    if call.output.dtype is not DataType.FLOAT32 or not x.size:
        return call.right
    with np.errstate(all="ignore"):
        total = np.sum(x, axis=tuple(call.op.axis), dtype=np.float32).reshape(call.right.shape)
        return total / np.float32(x.size / max(total.size, 1))


@planted(ops.L2Normalization, "magnitude-1e20", "all wrong elements are 0")
def squares_in_float32(call: Call) -> Array:
    """Squares of large elements overflow, so that a normalized row is zero."""
    x = call.arrays[0]
    with np.errstate(all="ignore"):
        overflows = np.isinf(np.square(x.astype(np.float32))) & np.isfinite(x)
    return np.where(overflows, 0, call.right)


@planted(ops.Minimum, "float32", "equal to the result of the run before: is the output stale")
def answers_from_memory(call: Call) -> Array:
    """The result of the first run is given again in every later one."""
    return Cache.results.setdefault(tuple(call.output.shape), call.right)


@planted(ops.ElementwiseBinary, "*power-float32", "elements are wrong", names_it=False)
def exchanges_operands(call: Call) -> Array:
    """The base and the exponent are exchanged."""
    exchanged = call.op.operation is BinaryOperation.POWER and call.arrays[0].shape == call.arrays[1].shape
    return call.evaluated(arrays=call.arrays[::-1]) if exchanged else call.right
