"""Cases of operators on quantized tensors, whose results are compared exactly."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from tests.frontends.tflite.cases.case import Case, Operand, case, fed, fixed
from tests.frontends.tflite.one_operator import Scaled, T

BYTES = ("int8", "uint8")
TYPES = (*BYTES, "int16")
ACTIVATIONS = (0, 1, 2, 3)
SHAPE = (2, 3, 4)


def scaled(dtype: str, scale: float, zero: int = 0) -> Scaled:
    """Return a scale and a zero point: `zero` for int8, shifted for uint8, and 0 for int16, whose scale is finer."""
    if dtype == "int16":
        return scale / 100, 0
    return scale, zero + (128 if dtype == "uint8" else 0)


@cache
def codes(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return seeded random quantized values, which nobody may change; those of int16 are rather small."""
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -20000), min(limits.max, 20000)
    values = np.random.RandomState(seed).randint(low, high + 1, shape).astype(dtype)
    if values.size > 3:
        values.flat[0], values.flat[1] = limits.min, limits.max
    values.flags.writeable = False
    return values


def x_of(
    shape: tuple[int, ...], dtype: str, scale: float = 0.05, zero: int = 3, seed: int = 0, *, constant: bool = False
) -> Operand:
    return Operand(codes(shape, dtype, seed), constant, scaled(dtype, scale, zero))


def y_of(shape: tuple[int, ...], dtype: str, scale: float = 0.06, zero: int = -5) -> T:
    return T(shape, dtype, scaled(dtype, scale, zero))


def sums() -> Iterator[Case]:
    names = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}
    shapes = ((SHAPE, SHAPE), (SHAPE, (4,)), ((1, 4), (3, 1)), ((), (3,)))
    for dtype, (name, table), (a, b) in product(TYPES, names.items(), shapes):
        inputs, output = [x_of(a, dtype), x_of(b, dtype, 0.03, -7, 1)], y_of(np.broadcast_shapes(a, b), dtype, 0.11)
        for activation in ACTIVATIONS if a == b else (0,):
            plain: dict[str, Any] = {} if name == "MUL" else {"pot_scale_int16": False}
            options = (table, {**plain, "fused_activation_function": activation})
            yield case(name, f"{dtype} {a} {b} {activation}", inputs, [output], options)


def comparisons() -> Iterator[Case]:
    for dtype, name in product(TYPES, ("MAXIMUM", "MINIMUM")):
        inputs = [x_of(SHAPE, dtype), x_of((3, 1), dtype, seed=1)]
        yield case(name, f"{dtype} of one scale", inputs, [y_of(SHAPE, dtype, 0.05, 3)])
    names = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    for dtype, name in product(BYTES, names):
        for other in (x_of(SHAPE, dtype, 0.04, -9, 1), x_of((4,), dtype, 0.05, 3, 1)):
            inputs, label = [x_of(SHAPE, dtype), other], f"quantized {dtype} {other.array.shape}"
            yield case(name, label, inputs, [T(SHAPE, "bool")])


def of_one_type() -> Iterator[Case]:
    for seed in range(3):
        inputs = [x_of(SHAPE, "int8", seed=seed), x_of(SHAPE, "int8", 0.04, -9, seed + 9)]
        yield case("SQUARED_DIFFERENCE", f"int8 {seed}", inputs, [y_of(SHAPE, "int8", 0.4)])
    for dtype, least in (("uint8", 140), ("int8", 12), ("int16", 900)):
        divisor = Operand(np.maximum(codes(SHAPE, dtype, 1), least), scaled=scaled(dtype, 0.02, 0))
        for activation in ACTIVATIONS:
            options = ("DivOptions", {"fused_activation_function": activation})
            yield case(
                "DIV", f"{dtype} {activation}", [x_of(SHAPE, dtype), divisor], [y_of(SHAPE, dtype, 0.2)], options
            )


def every(dtype: str, shape: tuple[int, ...] = (16, 16)) -> np.ndarray:
    """Return all values of a type of 8 bits, or as many of int16."""
    limits = np.iinfo(dtype)
    count = int(np.prod(shape))
    return np.linspace(limits.min, limits.max, count).round().astype(dtype).reshape(shape)


def unary() -> Iterator[Case]:
    fixed_outputs = {"LOGISTIC": (1 / 256, -128, 1 / 32768), "TANH": (1 / 128, 0, 1 / 32768)}
    for name, (scale, zero, scale16) in fixed_outputs.items():
        for dtype in TYPES:
            for step in (0.01, 0.05, 0.3):
                q = (step / 100, 0) if dtype == "int16" else scaled(dtype, step, 3)
                result = (scale16, 0) if dtype == "int16" else scaled(dtype, scale, zero)
                yield case(name, f"{dtype} {step}", [Operand(every(dtype), scaled=q)], [T((16, 16), dtype, result)])
        result = (1 / 32768, 0)
        power = [Operand(every("int16"), scaled=(2**-12, 0))]
        yield case(name, "int16 of a power of two", power, [T((16, 16), "int16", result)])
    rows: list[tuple[str, tuple[str, ...], tuple[float, int], tuple[float, int], Any]] = [
        ("RELU", TYPES, (0.05, 3), (0.04, -100), None),
        ("RELU6", TYPES, (0.06, 3), (0.04, -100), None),
        ("RELU_N1_TO_1", BYTES, (0.05, 3), (0.02, 5), None),
        ("RELU_0_TO_1", BYTES, (0.05, 3), (0.02, 5), None),
        ("ELU", ("int8",), (0.05, 3), (0.04, -90), None),
        ("HARD_SWISH", BYTES, (0.06, 3), (0.05, -100), None),
        ("LEAKY_RELU", TYPES, (0.06, 3), (0.05, -70), ("LeakyReluOptions", {"alpha": 0.2})),
        ("GELU", TYPES, (0.05, 3), (0.04, -90), ("GeluOptions", {"approximate": False})),
        ("GELU", BYTES, (0.04, 3), (0.04, -90), ("GeluOptions", {"approximate": True})),
        ("EXP", ("int8", "int16"), (0.02, 3), (0.1, -128), None),
        ("LOG", ("int8",), (0.05, -128), (0.05, 3), None),
        ("ABS", ("int8", "int16"), (0.05, 3), (0.06, -128), None),
        ("RSQRT", ("int8", "int16"), (0.05, -128), (0.05, -128), None),
        ("SQRT", ("int8",), (0.05, -128), (0.02, -128), None),
    ]
    for name, types, (scale, zero), (out, out_zero), options in rows:
        for dtype in types:
            for number, factor in enumerate((1.0, 1.7, 0.37)):
                values = every(dtype)
                if name in {"LOG", "RSQRT"}:
                    values = np.maximum(values, 1 if dtype == "int16" else -127)
                x, y = scaled(dtype, scale * factor, zero), scaled(dtype, out, out_zero)
                label = f"{dtype} {number} {options[1] if options else ''}".rstrip()
                yield case(name, label, [Operand(values, scaled=x)], [T((16, 16), dtype, y)], options)
    for dtype in BYTES:
        alpha = x_of((4,), dtype, 0.01, 0, 5, constant=True)
        yield case("PRELU", dtype, [x_of((1, 2, 3, 4), dtype), alpha], [y_of((1, 2, 3, 4), dtype)])


def probabilities() -> Iterator[Case]:
    for dtype in TYPES:
        for shape in ((3, 7), (2, 3, 5), (1, 1), (5,)):
            for step, beta in ((0.05, 1.0), (0.2, 0.5), (0.3, 1.5)):
                q = (1 / 32768, 0) if dtype == "int16" else scaled(dtype, 1 / 256, -128)
                x, options = (
                    x_of(shape, dtype, step * (4 if dtype == "int16" else 1)),
                    ("SoftmaxOptions", {"beta": beta}),
                )
                yield case("SOFTMAX", f"{dtype} {shape} {beta}", [x], [T(shape, dtype, q)], options)
    for dtype in BYTES:
        for step in (0.05, 0.2):
            x, q = x_of((3, 7), dtype, step), scaled(dtype, 16 / 256, 127)
            yield case("LOG_SOFTMAX", f"{dtype} {step}", [x], [T((3, 7), dtype, q)])
            q = scaled(dtype, 1 / 128, 0)
            yield case("L2_NORMALIZATION", f"{dtype} {step}", [x], [T((3, 7), dtype, q)], ("L2NormOptions", {}))


def pools() -> Iterator[Case]:
    for dtype in TYPES:
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            for padding in (0, 1):
                for activation in ACTIVATIONS:
                    options = {"padding": padding, "stride_w": 2, "stride_h": 1, "filter_width": 3, "filter_height": 2,
                               "fused_activation_function": activation}  # fmt: skip
                    shape = (2, 5, 3, 3) if padding == 0 else (2, 4, 2, 3)
                    x, y = x_of((2, 5, 6, 3), dtype), y_of(shape, dtype, 0.05, 3)
                    yield case(name, f"{dtype} {padding} {activation}", [x], [y], ("Pool2DOptions", options))


def reductions() -> Iterator[Case]:
    for dtype in TYPES:
        for axes in ((1,), (1, 2), (0, 1, 2, 3), (3,)):
            shape = tuple(size for axis, size in enumerate((2, 3, 4, 5)) if axis not in axes)
            inputs = [x_of((2, 3, 4, 5), dtype), fixed(list(axes))]
            options = ("ReducerOptions", {})
            for scale, zero in ((0.05, 3), (0.11, -5)):
                yield case("MEAN", f"{dtype} {axes} {scale}", inputs, [y_of(shape, dtype, scale, zero)], options)
            sums = [y_of(shape, dtype, 0.9, 4)]
            yield case("SUM", f"{dtype} {axes}", inputs, sums, options, optimized=dtype != "uint8")
            for name in ("REDUCE_MAX", "REDUCE_MIN"):
                yield case(name, f"{dtype} {axes}", inputs, [y_of(shape, dtype, 0.05, 3)], options)
    for dtype in ("int8", "int16"):
        inputs = [x_of((2, 3), dtype, 0.01), fixed([1])]
        yield case("REDUCE_PROD", f"{dtype} quantized", inputs, [y_of((2,), dtype, 0.02)], ("ReducerOptions", {}))


def weights_of(shape: tuple[int, ...], dtype: str, axis: int | None, step: float = 0.004) -> Operand:
    """Return constant weights, with a scale for each index along `axis` if it is given."""
    values = codes(shape, "int8" if dtype == "int16" else dtype, 7)
    if dtype != "uint8":
        values = np.maximum(values, -127)
    if dtype == "uint8":
        return Operand(values, True, (step, 120))
    if axis is None:
        return Operand(values, True, (step, 0))
    scales = [step * (1 + number / 5) for number in range(shape[axis])]
    return Operand(values, True, (scales, [0] * shape[axis]), {"axis": axis})


def bias_of(count: int, dtype: str, weights: Operand, scale: float) -> Operand:
    values = np.random.RandomState(3).randint(-2000, 2000, count)
    scales = (np.atleast_1d(weights.scaled[0]) * scale).tolist() if weights.scaled else [1.0]
    return Operand(values.astype("int64" if dtype == "int16" else "int32"), True, (scales, [0] * len(scales)))


def convolutions() -> Iterator[Case]:
    for dtype in TYPES:
        for axis in (None, 0) if dtype != "uint8" else (None,):
            for padding, stride, dilation, activation in ((0, 1, 1, 0), (1, 2, 1, 1), (0, 2, 1, 3), (1, 1, 2, 2)):
                kind = "per tensor" if axis is None else "per channel"
                label = f"{dtype} {kind} {padding} {stride} {dilation} {activation}"
                sizes = [-(-6 // stride) if padding == 0 else -(-(6 - 2 * dilation) // stride)] * 2
                x = x_of((2, 6, 6, 4), dtype)
                window = {"padding": padding, "stride_w": stride, "stride_h": stride, "dilation_w_factor": dilation,
                          "dilation_h_factor": dilation, "fused_activation_function": activation}  # fmt: skip
                weights = weights_of((5, 3, 3, 4), dtype, axis)
                bias = bias_of(5, dtype, weights, scaled(dtype, 0.05)[0])
                y = y_of((2, *sizes, 5), dtype, 0.1)
                yield case("CONV_2D", label, [x, weights, bias], [y], ("Conv2DOptions", window))
                weights = weights_of((1, 3, 3, 8), dtype, None if axis is None else 3)
                bias = bias_of(8, dtype, weights, scaled(dtype, 0.05)[0])
                options = ("DepthwiseConv2DOptions", {**window, "depth_multiplier": 2})
                y = y_of((2, *sizes, 8), dtype, 0.1)
                yield case("DEPTHWISE_CONV_2D", label, [x, weights, bias], [y], options)
            for padding in (0, 1):
                size = 8 if padding == 0 else 9
                x, weights = x_of((1, 4, 4, 3), dtype), weights_of((5, 3, 3, 3), dtype, axis)
                bias = bias_of(5, dtype, weights, scaled(dtype, 0.05)[0])
                options = ("TransposeConvOptions", {"padding": padding, "stride_w": 2, "stride_h": 2})
                for count in (3, 4):
                    inputs = [fixed([1, size, size, 5]), weights, x, bias][:count]
                    label = f"{dtype} {axis} {padding} {count}"
                    yield case("TRANSPOSE_CONV", label, inputs, [y_of((1, size, size, 5), dtype, 0.1)], options)


def products() -> Iterator[Case]:
    for dtype in TYPES:
        for axis in (None, 0) if dtype != "uint8" else (None,):
            for activation in ACTIVATIONS:
                x, weights = x_of((3, 8), dtype), weights_of((5, 8), dtype, axis)
                bias = bias_of(5, dtype, weights, scaled(dtype, 0.05)[0])
                options = ("FullyConnectedOptions", {"fused_activation_function": activation})
                label, y = f"{dtype} {axis} {activation}", y_of((3, 5), dtype, 0.03)
                yield case("FULLY_CONNECTED", label, [x, weights, bias], [y], options)
                yield case("FULLY_CONNECTED", f"{label} without bias", [x, weights, None], [y], options)
    for dtype in ("int8", "int16"):
        for adj_x, adj_y in ((False, False), (True, False), (False, True), (True, True)):
            a, b = (4, 3) if adj_x else (3, 4), (5, 4) if adj_y else (4, 5)
            inputs = [x_of((2, *a), dtype), x_of((1, *b), dtype, 0.02, -4, 1)]
            options = ("BatchMatMulOptions", {"adj_x": adj_x, "adj_y": adj_y})
            label = f"{dtype} {adj_x} {adj_y}"
            yield case("BATCH_MATMUL", label, inputs, [y_of((2, 3, 5), dtype, 0.1)], options)
            if dtype == "int8":
                yield case("BATCH_MATMUL", f"{label} to int32", inputs, [T((2, 3, 5), "int32")], options)
    x, weights = codes((3, 8), "int16"), codes((5, 8), "int16", 4)
    inputs = [Operand(x, scaled=(0.001, 0)), Operand(weights, True, (0.0001, 0)), None]
    yield case(
        "FULLY_CONNECTED", "int16 weights", inputs, [T((3, 5), "int16", (0.01, 0))], ("FullyConnectedOptions", {})
    )


def conversions() -> Iterator[Case]:
    reals = fed((np.arange(-40, 40) / 7).astype(np.float32))
    for dtype in TYPES:
        yield case("QUANTIZE", f"float32 to {dtype}", [reals], [y_of((80,), dtype)])
        yield case("DEQUANTIZE", dtype, [x_of(SHAPE, dtype)], [T(SHAPE)])
        for other in TYPES:
            for scale, zero in ((0.05, 3), (0.021, -9), (0.3, 4)):
                y = T((16, 16), other, scaled(other, scale, zero))
                x = Operand(every(dtype), scaled=scaled(dtype, 0.05, 3))
                yield case("QUANTIZE", f"{dtype} to {other} {scale}", [x], [y])


def joins() -> Iterator[Case]:
    for dtype in TYPES:
        options = ("ConcatenationOptions", {"axis": 1})
        equal = [x_of((2, 3), dtype), x_of((2, 2), dtype, seed=1)]
        yield case("CONCATENATION", f"{dtype} of one scale", equal, [y_of((2, 5), dtype, 0.05, 3)], options)
        inputs = [x_of((2, 3), dtype), x_of((2, 2), dtype, 0.09, -8, 1)]
        if dtype != "int16":  # LiteRT joins int16 of other scales without rescaling it
            label = f"{dtype} of several scales"
            yield case("CONCATENATION", label, inputs, [y_of((2, 5), dtype, 0.07)], options)


IMAGE = (1, 4, 6, 3)


def movement() -> Iterator[Case]:
    for dtype in TYPES:
        yield from moved_by(dtype)
        yield from chosen(dtype)


def moved_by(dtype: str) -> Iterator[Case]:
    x = x_of(IMAGE, dtype)

    def moved(
        name: str, shape: tuple[int, ...], *more: Operand, options: Any = None, label: str = "", version: int = 1
    ) -> Case:
        inputs, output, title = [x, *more], y_of(shape, dtype, 0.05, 3), f"quantized {dtype} {label}".rstrip()
        return case(name, title, inputs, [output], options, version=version)

    yield moved("PAD", (1, 6, 7, 3), fixed([[0, 0], [1, 1], [0, 1], [0, 0]]))
    yield moved(
        "MIRROR_PAD",
        (1, 6, 7, 3),
        fixed([[0, 0], [1, 1], [0, 1], [0, 0]]),
        options=("MirrorPadOptions", {"mode": 1}),
    )
    yield moved("PADV2", (1, 6, 6, 3), fixed([[0, 0], [1, 1], [0, 0], [0, 0]]), x_of((), dtype, constant=True))
    yield moved("TRANSPOSE", (1, 6, 4, 3), fixed([0, 2, 1, 3]))
    yield moved("RESHAPE", (4, 18), fixed([4, 18]))
    yield moved("SLICE", (1, 2, 3, 3), fixed([0, 1, 2, 0]), fixed([1, 2, 3, 3]))
    yield moved(
        "STRIDED_SLICE",
        (1, 2, 3, 3),
        fixed([0, 0, 0, 0]),
        fixed([1, 4, 6, 3]),
        fixed([1, 2, 2, 1]),
        options=("StridedSliceOptions", {}),
    )
    yield moved("GATHER", (1, 2, 6, 3), fixed([3, 1]), options=("GatherOptions", {"axis": 1}))
    yield moved("TILE", (2, 4, 12, 3), fixed([2, 1, 2, 1]))
    yield moved("BROADCAST_TO", (2, 4, 6, 3), fixed([2, 4, 6, 3]), version=3)
    yield moved("SPACE_TO_DEPTH", (1, 2, 3, 12), options=("SpaceToDepthOptions", {"block_size": 2}))
    yield moved("SPACE_TO_BATCH_ND", (4, 2, 3, 3), fixed([2, 2]), fixed([[0, 0], [0, 0]]))
    yield moved("REVERSE_V2", IMAGE, fixed([1]))
    yield moved("EXPAND_DIMS", (1, 1, 4, 6, 3), fixed(1))
    yield moved("SQUEEZE", (4, 6, 3), options=("SqueezeOptions", {"squeeze_dims": [0]}))
    for align, half in ((False, False), (True, False), (False, True)):
        options = {"align_corners": align, "half_pixel_centers": half}
        for size in ((7, 4), (2, 9)):
            label, sizes = f"{align} {half} {size}", fixed(list(size))
            yield moved(
                "RESIZE_BILINEAR", (1, *size, 3), sizes, options=("ResizeBilinearOptions", options), label=label
            )
            yield moved(
                "RESIZE_NEAREST_NEIGHBOR",
                (1, *size, 3),
                sizes,
                options=("ResizeNearestNeighborOptions", options),
                label=label,
            )


def chosen(dtype: str) -> Iterator[Case]:
    x = x_of(IMAGE, dtype)
    for name, table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):
        yield case(name, f"quantized {dtype}", [x, fixed(2)], [T((1, 4, 3), "int32")], (table, {"output_type": 2}))
    yield case(
        "TOPK_V2",
        f"quantized {dtype}",
        [x_of((3, 7), dtype), fixed(3)],
        [y_of((3, 3), dtype, 0.05, 3), T((3, 3), "int32")],
    )
    condition = fed(np.arange(72).reshape(IMAGE) % 3 == 0)
    for name in ("SELECT", "SELECT_V2"):
        yield case(
            name, f"quantized {dtype}", [condition, x, x_of(IMAGE, dtype, seed=2)], [y_of(IMAGE, dtype, 0.05, 3)]
        )


CASES = [
    *sums(), *comparisons(), *of_one_type(), *unary(), *probabilities(), *pools(), *reductions(), *convolutions(),
    *products(), *conversions(), *joins(), *movement(),
]  # fmt: skip
