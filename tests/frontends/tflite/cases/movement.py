"""Cases of operators that move, select and reduce elements, on the data types that TFLite's kernels have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.tflite.cases.case import Case, Operand, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T

DTYPES = ("float32", "int32", "uint8", "int64", "bool", "int16", "int8")
NUMBERS = ("float32", "int32", "int64")
OF_FLOATS = (
    "ABS", "EXP", "SQRT", "RSQRT", "NEG", "LOG", "SIN", "COS", "CEIL", "ROUND", "SIGN", "SQUARE", "FLOOR", "LOGISTIC",
    "TANH", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ELU", "HARD_SWISH", "ZEROS_LIKE", "LOG_SOFTMAX",
)  # fmt: skip


def functions() -> Iterator[Case]:
    for name in OF_FLOATS:
        low = 1 if name in {"SQRT", "RSQRT", "LOG"} else -9
        yield case(name, "float32", [fed(numbers((2, 3, 4), low=low))], [T((2, 3, 4))])
    x = fed(numbers((2, 3, 4)))
    for name, table, values in (
        ("LEAKY_RELU", "LeakyRelu", {"alpha": 0.5}), ("GELU", "Gelu", {}), ("GELU", "Gelu", {"approximate": True}),
        ("SOFTMAX", "Softmax", {"beta": 0.5}), ("L2_NORMALIZATION", "L2Norm", {}),
        ("FAKE_QUANT", "FakeQuant", {"min": -1.0, "max": 2.0, "num_bits": 8}),
        ("LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalization",
         {"radius": 1, "bias": 1.0, "alpha": 0.5, "beta": 0.5}),
    ):  # fmt: skip
        image = fed(numbers((1, 2, 3, 4))) if name.startswith("LOCAL") else x
        output = T(image.array.shape)
        options, optimized = (f"{table}Options", values), name.startswith("LOCAL")
        yield case(name, f"{values}", [image], [output], options, optimized=optimized)
    yield case("PRELU", "float32", [x, fixed(numbers((1, 1, 4)), "float32")], [T((2, 3, 4))])
    yield case("ATAN2", "float32", [x, fed(numbers((2, 3, 4), seed=1))], [T((2, 3, 4))])
    for dtype in ("int32", "uint8", "int8", "int16"):
        pair = [fed(numbers((2, 3), dtype)), fed(numbers((2, 3), dtype, 1, 0, 3))]
        for name in ("BITWISE_XOR", "RIGHT_SHIFT"):
            yield case(name, dtype, pair, [T((2, 3), dtype)])
    flags = [fed(numbers((2, 3), "bool")), fed(numbers((2, 3), "bool", 1))]
    yield case("LOGICAL_NOT", "bool", flags[:1], [T((2, 3), "bool")])
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        yield case(name, "bool", flags, [T((2, 3), "bool")])
    texts = [Operand(np.array([["a", "b"], ["", "a"]], object)), Operand(np.array(["a", ""], object))]
    for name in ("EQUAL", "NOT_EQUAL"):
        yield case(name, "string", texts, [T((2, 2), "bool")])


def moves() -> Iterator[Case]:
    for dtype in DTYPES:
        array = numbers((2, 3, 4), dtype)
        x = fed(array)
        yield case("TRANSPOSE", dtype, [x, fixed([2, 0, 1])], [T((4, 2, 3), dtype)])
        yield case("RESHAPE", dtype, [x, fixed([4, -1])], [T((4, 6), dtype)])
        yield case("SQUEEZE", dtype, [fed(array[np.newaxis])], [T((2, 3, 4), dtype)], ("SqueezeOptions", {}))
        yield case("EXPAND_DIMS", dtype, [x, fixed([1])], [T((2, 1, 3, 4), dtype)])
        strides = [fixed([0, 1, 3]), fixed([2, 3, 0]), fixed([1, 1, -1])]
        yield case("STRIDED_SLICE", dtype, [x, *strides], [T((2, 2, 3), dtype)], ("StridedSliceOptions", {}))
        for index in ("int32", "int64"):
            range_ = [fixed([0, 1, 1], index), fixed([-1, 2, 2], index)]
            yield case("SLICE", f"{dtype} {index}", [x, *range_], [T((2, 2, 2), dtype)])
            yield case("TILE", f"{dtype} {index}", [x, fixed([1, 2, 1], index)], [T((2, 6, 4), dtype)])
            borders = fixed([[0, 1], [1, 0], [2, 2]], index)
            yield case("PAD", f"{dtype} {index}", [x, borders], [T((3, 4, 8), dtype)])
            yield case("FILL", f"{dtype} {index}", [fixed([2, 3], index), fed(1, dtype)], [T((2, 3), dtype)])
            wide = [fed(numbers((3, 1), dtype)), fixed([2, 3, 4], index)]
            yield case("BROADCAST_TO", f"{dtype} {index}", wide, [T((2, 3, 4), dtype)], version=2)
            sizes = [x, fixed([1, -1], index), fixed(1)]
            split = [T((2, 1, 4), dtype), T((2, 2, 4), dtype)]
            yield case("SPLIT_V", f"{dtype} {index}", sizes, split, ("SplitVOptions", {"num_splits": 2}))
        yield case("PADV2", dtype, [x, borders, fixed(1, dtype)], [T((3, 4, 8), dtype)])
        for mode in (0, 1):
            options = ("MirrorPadOptions", {"mode": mode})
            yield case("MIRROR_PAD", f"{dtype} {mode}", [x, borders], [T((3, 4, 8), dtype)], options)
        yield case("CONCATENATION", dtype, [x, x], [T((2, 3, 8), dtype)], ("ConcatenationOptions", {"axis": -1}))
        packed = ("PackOptions", {"axis": 1, "values_count": 2})
        yield case("PACK", dtype, [x, x], [T((2, 2, 3, 4), dtype)], packed)
        yield case("UNPACK", dtype, [x], [T((2, 4), dtype)] * 3, ("UnpackOptions", {"axis": 1, "num": 3}))
        halves = ("SplitOptions", {"num_splits": 2})
        yield case("SPLIT", dtype, [fixed(2), x], [T((2, 3, 2), dtype)] * 2, halves)
        yield case("REVERSE_V2", dtype, [x, fixed([1])], [T((2, 3, 4), dtype)])
        options = ("ReverseSequenceOptions", {"seq_dim": 1})
        yield case("REVERSE_SEQUENCE", dtype, [x, fixed([2, 1])], [T((2, 3, 4), dtype)], options)
        yield case("EMBEDDING_LOOKUP", dtype, [fed([1, 0, 1], "int32"), x], [T((3, 3, 4), dtype)])
        yield case("RANK", dtype, [x], [T((), "int32")])
        yield case("WHERE", dtype, [x], [T((0, 3), "int64")])
        other = fed(numbers((2, 3, 4), dtype, 4))
        yield case("SELECT", dtype, [fed([True, False]), x, other], [T((2, 3, 4), dtype)])
        yield case("SELECT_V2", dtype, [fed(numbers((3, 1), "bool")), x, other], [T((2, 3, 4), dtype)])
        ones = [fed([0, 2, 1], "int32"), fixed(3), fixed(1, dtype), fixed(0, dtype)]
        yield case("ONE_HOT", dtype, ones, [T((3, 3), dtype)], ("OneHotOptions", {"axis": -1}))
        update = fed(numbers((1, 2, 2), dtype, 3))
        yield case("DYNAMIC_UPDATE_SLICE", dtype, [x, update, fed([1, 1, 3], "int32")], [T((2, 3, 4), dtype)])
        yield case("BITCAST", dtype, [x], [T((2, 3, 4), dtype)])
        yield case(
            "MATRIX_DIAG", dtype, [fed(numbers((2, 3), dtype))], [T((2, 3, 3), dtype)], crashes_litert=dtype == "bool"
        )


def images() -> Iterator[Case]:
    for dtype in ("float32", "int32", "uint8", "int8", "int64"):
        x = fed(numbers((1, 4, 4, 4), dtype))
        yield case("SPACE_TO_DEPTH", dtype, [x], [T((1, 2, 2, 16), dtype)], ("SpaceToDepthOptions", {"block_size": 2}))
        yield case("DEPTH_TO_SPACE", dtype, [x], [T((1, 8, 8, 1), dtype)], ("DepthToSpaceOptions", {"block_size": 2}))
        block, zeros = fixed([2, 2]), fixed([[0, 0], [0, 0]])
        yield case("SPACE_TO_BATCH_ND", dtype, [x, block, zeros], [T((4, 2, 2, 4), dtype)])
        tall = fed(numbers((4, 2, 2, 3), dtype))
        yield case("BATCH_TO_SPACE_ND", dtype, [tall, block, zeros], [T((1, 4, 4, 3), dtype)])
        for name, table in (
            ("RESIZE_BILINEAR", "ResizeBilinear"),
            ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighbor"),
        ):
            for values in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
                options = (f"{table}Options", values)
                yield case(name, f"{dtype} {values}", [x, fixed([3, 7])], [T((1, 3, 7, 4), dtype)], options)


def windows() -> Iterator[Case]:
    x = fed(numbers((2, 5, 6, 4)))
    for padding in (0, 1):
        for stride in (1, 2):
            o = {"padding": padding, "stride_w": stride, "stride_h": stride}
            sizes = tuple(-(-n // stride) if padding == 0 else (n - 2) // stride + 1 for n in (5, 6))
            label = f"padding {padding} stride {stride}"
            for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
                pool = ("Pool2DOptions", o | {"filter_width": 2, "filter_height": 2})
                yield case(name, label, [x], [T((2, *sizes, 4))], pool)
            weights, bias = fixed(numbers((3, 2, 2, 4), seed=1), "float32"), fixed(numbers((3,)), "float32")
            yield case("CONV_2D", label, [x, weights, bias], [T((2, *sizes, 3))], ("Conv2DOptions", o))
            weights, bias = fixed(numbers((1, 2, 2, 8), seed=1), "float32"), fixed(numbers((8,)), "float32")
            options = ("DepthwiseConv2DOptions", o | {"depth_multiplier": 2})
            yield case("DEPTHWISE_CONV_2D", label, [x, weights, bias], [T((2, *sizes, 8))], options)
            full = tuple(n * stride if padding == 0 else (n - 1) * stride + 2 for n in (5, 6))
            weights = fixed(numbers((3, 2, 2, 4), seed=1), "float32")
            inputs, output = [fixed([2, *full, 3]), weights, x], T((2, *full, 3))
            yield case("TRANSPOSE_CONV", label, inputs, [output], ("TransposeConvOptions", o))
            volume = fed(numbers((1, 3, 5, 6, 2)))
            weights = fixed(numbers((1, 2, 2, 2, 3), seed=1), "float32")
            options = ("Conv3DOptions", o | {"stride_d": 1})
            yield case("CONV_3D", label, [volume, weights], [T((1, 3, *sizes, 3))], options)
    y, weights, bias = (
        fed(numbers((2, 3, 4))),
        fixed(numbers((5, 4), seed=1), "float32"),
        fixed(numbers((5,)), "float32"),
    )
    for keep, shape in ((True, (2, 3, 5)), (False, (6, 5))):
        options = ("FullyConnectedOptions", {"keep_num_dims": keep})
        yield case("FULLY_CONNECTED", f"{keep}", [y, weights, bias], [T(shape)], options)
    pair = [y, fed(numbers((1, 4, 2), seed=2))]
    yield case("BATCH_MATMUL", "float32", pair, [T((2, 3, 2))], ("BatchMatMulOptions", {}))


def reductions() -> Iterator[Case]:
    for dtype in NUMBERS:
        x = fed(numbers((2, 3, 4), dtype, low=-3, high=3))
        for keep, shape in ((True, (2, 1, 4)), (False, (2, 4))):
            for name in ("SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
                yield case(
                    name, f"{dtype} {keep}", [x, fixed([1])], [T(shape, dtype)], ("ReducerOptions", {"keep_dims": keep})
                )
        for name in ("ARG_MAX", "ARG_MIN"):
            for index, number in (("int32", 2), ("int64", 4)):
                options = (f"{name.title().replace('_', '')}Options", {"output_type": number})
                yield case(name, f"{dtype} {index}", [x, fixed(1)], [T((2, 4), index)], options)
        yield case("TOPK_V2", dtype, [x, fixed(2)], [T((2, 3, 2), dtype), T((2, 3, 2), "int32")])
        for index, number in (("int32", 2), ("int64", 4)):
            options, outputs = ("UniqueOptions", {"idx_out_type": number}), [T((0,), dtype), T((4,), index)]
            yield case("UNIQUE", f"{dtype} {index}", [fed([3, 1, 3, 2], dtype)], outputs, options)
        options = ("CumsumOptions", {"exclusive": True, "reverse": True})
        yield case("CUMSUM", dtype, [x, fixed(1)], [T((2, 3, 4), dtype)], options)
        yield case("ADD_N", dtype, [x, x, x], [T((2, 3, 4), dtype)])
        yield case("RANGE", dtype, [fixed(1, dtype), fixed(7, dtype), fixed(2, dtype)], [T((3,), dtype)])
        matrices = [fed(numbers((2, 3, 4), dtype)), fed(numbers((2, 3), dtype, 3))]
        yield case("MATRIX_SET_DIAG", dtype, matrices, [T((2, 3, 4), dtype)])


CASES = [*functions(), *moves(), *images(), *windows(), *reductions()]
