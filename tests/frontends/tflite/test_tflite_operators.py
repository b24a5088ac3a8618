"""What every operator of TFLite becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends import tflite
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output
from tests.evaluation import run_network

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.cases.all_cases import CASES
from tests.frontends.tflite.one_operator import T, ints, one_operator

X = T((2, 3, 4, 5))
Q8 = T((2, 3, 4, 5), "int8", (0.5, 3))
AXES = ints([1, -1])
SAME = {"padding": 0, "stride_w": 2, "stride_h": 1}
RELU6 = {"fused_activation_function": 3}


def floats(*shape: int) -> T:
    """A constant of floats."""
    return T(shape, value=np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def example(name: str, inputs: list[T | None], outputs: list[T], options: Any, *expected: str) -> Any:
    """An operator, and the layers that it becomes as they are printed."""
    return pytest.param(name, inputs, outputs, options, list(expected), id=f"{name} {' '.join(expected)[:40]}")


def _plain(names: str, expected: str) -> list[Any]:
    return [example(name, [X], [X], None, expected.format(name)) for name in names.split()]


def _binary(names: dict[str, str], result: str, given: str = "float32") -> list[Any]:
    inputs = [T((2, 3), given), T((3,), given)]
    return [example(name, inputs, [T((2, 3), result)], None, text) for name, text in names.items()]


def _along(name: str) -> str:
    return f"<ReduceOperation.{name}: '{name.lower()}'>"


WINDOW = "pad_right=1, pad_top=1, pad_bottom=1, stride_x=2, data_layout=<DataLayout.NHWC: 'NHWC'>"
POOL = "pad_right=1, pad_top=1, pad_bottom=1, pool_width=3, pool_height=3, stride_x=2, stride_y=1"
NHWC = "data_layout=<DataLayout.NHWC: 'NHWC'>"
BOUNDED = "Activation(function=<ActivationFunction.BOUNDED_RELU: 'bounded_relu'>, a={}"

EXAMPLES = [
    example(
        "CONV_2D", [X, floats(7, 3, 3, 5), floats(7)], [T((2, 3, 2, 7))], ("Conv2DOptions", SAME | RELU6),
        f"Convolution2d({WINDOW})", BOUNDED.format("6.0)"),
    ),
    example(
        "CONV_2D", [T((1, 9, 9, 4)), floats(6, 3, 3, 2), None], [T((1, 3, 3, 6))],
        ("Conv2DOptions", {"padding": 1, "stride_w": 2, "stride_h": 1, "dilation_w_factor": 2, "dilation_h_factor": 3}),
        f"Convolution2d(stride_x=2, dilation_x=2, dilation_y=3, {NHWC}, groups=2)",
    ),
    example(
        "CONV_3D", [T((1, 4, 5, 6, 2)), floats(2, 3, 3, 2, 7), floats(7)], [T((1, 4, 3, 3, 7))],
        ("Conv3DOptions", {"stride_d": 1, "stride_h": 2, "stride_w": 2}),
        "Convolution3d(pad_right=1, pad_top=1, pad_bottom=1, pad_back=1, stride_x=2, stride_y=2)",
    ),
    example(
        "DEPTHWISE_CONV_2D", [X, floats(1, 3, 3, 10), floats(10)], [T((2, 3, 2, 10))],
        ("DepthwiseConv2DOptions", SAME | {"depth_multiplier": 2}), f"DepthwiseConvolution2d({WINDOW})",
    ),
    example(
        "TRANSPOSE_CONV", [ints([2, 3, 8, 7]), floats(7, 3, 3, 5), X], [T((2, 3, 8, 7))],
        ("TransposeConvOptions", SAME),
        f"TransposeConvolution2d({WINDOW}, output_shape=(2, 3, 8, 7))",
    ),
    *(
        example(
            f"{kind}_POOL_2D", [X], [T((2, 3, 2, 5))],
            ("Pool2DOptions", SAME | {"filter_width": 3, "filter_height": 3}),
            f"Pooling2d({pool}{POOL}, {NHWC})",
        )
        for kind, pool in [
            ("MAX", ""),
            ("AVERAGE", "pool_type=<PoolingAlgorithm.AVERAGE: 'average'>, "),
            ("L2", "pool_type=<PoolingAlgorithm.L2: 'l2'>, "),
        ]
    ),
    example(
        "FULLY_CONNECTED", [X, floats(7, 20), floats(1, 7)], [T((6, 7))], ("FullyConnectedOptions", RELU6),
        "FullyConnected(transpose_weight_matrix=True)", BOUNDED.format("6.0)"),
    ),
    example(
        "FULLY_CONNECTED", [X, floats(7, 5), None], [T((2, 3, 4, 7))],
        ("FullyConnectedOptions", {"keep_num_dims": True}),
        "FullyConnected(transpose_weight_matrix=True, keep_dims=True)",
    ),
    example(
        "BATCH_MATMUL", [T((2, 4, 3)), T((2, 4, 5))], [T((2, 3, 5))], ("BatchMatMulOptions", {"adj_x": True}),
        "BatchMatMul(transpose_x=True)",
    ),
    *_plain("LOGISTIC", "Activation()"),
    *_plain("TANH", "Activation(function=<ActivationFunction.TANH: 'tanh'>, a=1.0, b=1.0)"),
    *_plain("RELU", "Activation(function=<ActivationFunction.RELU: 'relu'>)"),
    *_plain("RELU6", BOUNDED.format("6.0)")),
    *_plain("RELU_0_TO_1", BOUNDED.format("1.0)")),
    *_plain("RELU_N1_TO_1", BOUNDED.format("1.0, b=-1.0)")),
    *_plain("ELU", "Activation(function=<ActivationFunction.ELU: 'elu'>, a=1.0)"),
    *_plain("HARD_SWISH", "Activation(function=<ActivationFunction.HARD_SWISH: 'hard_swish'>)"),
    *_plain("LOG_SOFTMAX", "LogSoftmax()"),
    example("SOFTMAX", [X], [X], ("SoftmaxOptions", {"beta": 0.5}), "Softmax(beta=0.5)"),
    example(
        "LEAKY_RELU", [X], [X], ("LeakyReluOptions", {"alpha": 0.25}),
        "Activation(function=<ActivationFunction.LEAKY_RELU: 'leaky_relu'>, a=0.25)",
    ),
    example("GELU", [X], [X], ("GeluOptions", {}), "Activation(function=<ActivationFunction.GELU: 'gelu'>)"),
    example(
        "GELU", [X], [X], ("GeluOptions", {"approximate": True}),
        "Activation(function=<ActivationFunction.GELU_TANH: 'gelu_tanh'>)",
    ),
    example("PRELU", [X, floats(1, 1, 5)], [X], None, "Prelu()"),
    *(
        example(
            name, [T((2, 3)), T((3,))], [T((2, 3))], (f"{name.title()}Options", RELU6), text, BOUNDED.format("6.0)")
        )
        for name, text in [
            ("ADD", "Addition()"), ("SUB", "Subtraction()"), ("MUL", "Multiplication()"), ("DIV", "Division()")
        ]
    ),
    *_binary({"MAXIMUM": "Maximum()", "MINIMUM": "Minimum()"}, "float32"),
    *_binary(
        {
            name: f"ElementwiseBinary(operation=<BinaryOperation.{member}: '{member.lower()}'>)"
            for name, member in {
                "SQUARED_DIFFERENCE": "SQ_DIFF", "POW": "POWER", "FLOOR_DIV": "FLOOR_DIV", "FLOOR_MOD": "MOD",
                "ATAN2": "ATAN2",
            }.items()
        },
        "float32",
    ),
    *_binary(
        {
            "BITWISE_XOR": "ElementwiseBinary(operation=<BinaryOperation.BITWISE_XOR: 'bitwise_xor'>)",
            "RIGHT_SHIFT": "ElementwiseBinary(operation=<BinaryOperation.SHIFT_RIGHT: 'shift_right'>)",
        },
        "int32",
        "int32",
    ),
    *_binary(
        {
            "EQUAL": "Comparison()",
            "NOT_EQUAL": "Comparison(operation=<ComparisonOperation.NOT_EQUAL: 'not_equal'>)",
            "GREATER": "Comparison(operation=<ComparisonOperation.GREATER: 'greater'>)",
            "GREATER_EQUAL": "Comparison(operation=<ComparisonOperation.GREATER_OR_EQUAL: 'greater_or_equal'>)",
            "LESS": "Comparison(operation=<ComparisonOperation.LESS: 'less'>)",
            "LESS_EQUAL": "Comparison(operation=<ComparisonOperation.LESS_OR_EQUAL: 'less_or_equal'>)",
        },
        "bool",
    ),
    *_binary(
        {
            "LOGICAL_AND": "LogicalBinary()",
            "LOGICAL_OR": "LogicalBinary(operation=<LogicalBinaryOperation.LOGICAL_OR: 'logical_or'>)",
        },
        "bool",
        "bool",
    ),
    *_plain("ABS", "ElementwiseUnary()"),
    *(
        example(name, [X], [X], None, f"ElementwiseUnary(operation=<UnaryOperation.{name}: '{name.lower()}'>)")
        for name in ("EXP", "SQRT", "RSQRT", "NEG", "LOG", "SIN", "COS", "CEIL", "ROUND", "SIGN", "SQUARE")
    ),
    *_plain("FLOOR", "Floor()"),
    example(
        "LOGICAL_NOT", [T((2,), "bool")], [T((2,), "bool")], None,
        "ElementwiseUnary(operation=<UnaryOperation.LOGICAL_NOT: 'logical_not'>)",
    ),
    example("ADD_N", [X, X, X], [X], None, "Addition()", "Addition()"),
    example("SELECT_V2", [T((3,), "bool"), T((2, 3)), T((2, 1))], [T((2, 3))], None, "Where()"),
    example(
        "SELECT", [T((2,), "bool"), T((2, 3)), T((2, 3))], [T((2, 3))], None,
        "Reshape(target_shape=(-1, 1))", "Where()",
    ),
    example("SELECT", [T((2, 3), "bool"), T((2, 3)), T((2, 3))], [T((2, 3))], None, "Where()"),
    example("QUANTIZE", [X], [Q8], None, "Quantize(dtype=DataType.INT8)"),
    example("DEQUANTIZE", [Q8], [X], None, "Dequantize()"),
    example("DEQUANTIZE", [T((2,), "float16")], [T((2,))], None, "ConvertFp16ToFp32()"),
    example(
        "FAKE_QUANT", [X], [X], ("FakeQuantOptions", {"min": -1.0, "max": 3.0, "num_bits": 4}),
        "FakeQuantization(min=-1.0, max=3.0, num_bits=4)",
    ),
    example("CAST", [X], [T((2, 3, 4, 5), "int64")], ("CastOptions", {}), "Cast(dtype=DataType.INT64)"),
    example("MEAN", [X, AXES], [T((2, 4))], ("ReducerOptions", {}), "Mean(axis=(1, 3))"),
    *(
        example(
            name, [X, AXES], [T((2, 1, 4, 1))], ("ReducerOptions", {"keep_dims": True}),
            f"Reduce(axis=(1, 3), keep_dims=True{text})",
        )
        for name, text in [
            ("SUM", ""), ("REDUCE_MAX", f", operation={_along('MAX')}"), ("REDUCE_MIN", f", operation={_along('MIN')}"),
            ("REDUCE_PROD", f", operation={_along('PROD')}"),
        ]
    ),
    *(
        example(
            f"REDUCE_{name}", [T((2, 3), "bool"), ints([0])], [T((3,), "bool")], ("ReducerOptions", {}),
            f"Reduce(axis=(0,), operation={_along(name)})",
        )
        for name in ("ANY", "ALL")
    ),
    example("SUM", [X, ints([])], [X], ("ReducerOptions", {})),
    example(
        "ARG_MAX", [X, ints(1)], [T((2, 4, 5), "int64")], ("ArgMaxOptions", {"output_type": 4}),
        "ArgMinMax(function=<ArgMinMaxFunction.MAX: 'max'>, axis=1, dtype=DataType.INT64)",
    ),
    example("ARG_MIN", [X, ints(-1)], [T((2, 3, 4), "int32")], ("ArgMinOptions", {}), "ArgMinMax()"),
    example("RESHAPE", [X, ints([6, -1])], [T((6, 20))], None, "Reshape(target_shape=(6, -1))"),
    example(
        "RESHAPE", [X], [T((6, 20))], ("ReshapeOptions", {"new_shape": [6, 20]}), "Reshape(target_shape=(6, 20))"
    ),
    example("RESHAPE", [T((1,))], [T(())], ("ReshapeOptions", {"new_shape": [0]}), "Reshape(target_shape=())"),
    example("SQUEEZE", [T((1, 3, 1))], [T((3,))], ("SqueezeOptions", {}), "Reshape(target_shape=(3,))"),
    example(
        "SQUEEZE", [T((1, 3, 1))], [T((1, 3))], ("SqueezeOptions", {"squeeze_dims": [-1]}),
        "Reshape(target_shape=(1, 3))",
    ),
    example("EXPAND_DIMS", [T((2, 3)), ints(-1)], [T((2, 3, 1))], None, "Reshape(target_shape=(2, 3, 1))"),
    example("SHAPE", [X], [T((4,), "int64")], ("ShapeOptions", {"out_type": 4})),
    example("RANK", [X], [T((), "int32")], None),
    example("FILL", [ints([2, 3]), T(())], [T((2, 3))], None, "BroadcastTo(shape=(2, 3))"),
    example("ZEROS_LIKE", [T((90, 90))], [T((90, 90))], None, "BroadcastTo(shape=(90, 90))"),
    example("RANGE", [ints(1), ints(8), ints(3)], [T((3,), "int32")], None),
    example(
        "ONE_HOT", [T((2,), "int32"), ints(3), T((), value=np.float32(5)), T((), value=np.float32(-1))], [T((2, 3))],
        ("OneHotOptions", {"axis": -1}), "Reshape(target_shape=(2, 1))", "Comparison()", "Where()",
    ),
    example("BROADCAST_TO", [T((3, 1)), ints([2, 3, 4])], [T((2, 3, 4))], None, "BroadcastTo(shape=(2, 3, 4))"),
    example("TRANSPOSE", [X, ints([0, 3, 1, -2])], [T((2, 5, 3, 4))], None, "Transpose(permutation=(0, 3, 1, 2))"),
    example(
        "CONCATENATION", [X, X], [T((2, 3, 4, 10))], ("ConcatenationOptions", {"axis": -1} | RELU6), "Concat(axis=-1)",
        BOUNDED.format("6.0)"),
    ),
    example("PACK", [X, X], [T((2, 2, 3, 4, 5))], ("PackOptions", {"axis": 1, "values_count": 2}), "Stack(axis=1)"),
    example(
        "UNPACK", [T((2, 3))], [T((2,)), T((2,)), T((2,))], ("UnpackOptions", {"axis": -1, "num": 3}),
        "Splitter(axis=1, sizes=(1, 1, 1))", *["Reshape(target_shape=(2,))"] * 3,
    ),
    example(
        "SPLIT", [ints(1), T((2, 6))], [T((2, 3)), T((2, 3))], ("SplitOptions", {"num_splits": 2}),
        "Splitter(axis=1, sizes=(3, 3))",
    ),
    example(
        "SPLIT_V", [T((2, 6)), ints([1, -1]), ints(-1)], [T((2, 1)), T((2, 5))], ("SplitVOptions", {"num_splits": 2}),
        "Splitter(axis=1, sizes=(1, 5))",
    ),
    example("SLICE", [T((4, 5)), ints([1, 2]), ints([2, -1])], [T((2, 3))], None, "Slice(begin=(1, 2), size=(2, -1))"),
    example(
        "STRIDED_SLICE", [T((4, 5)), ints([1, 3]), ints([2, 0]), ints([1, -2])], [T((2,))],
        ("StridedSliceOptions", {"shrink_axis_mask": 1, "begin_mask": 2}),
        "StridedSlice(begin=(1, 3), end=(2, 0), stride=(1, -2), begin_mask=2, shrink_axis_mask=1)",
    ),
    example(
        "STRIDED_SLICE", [T((4, 5)), ints([1, 3]), ints([2, 1]), ints([1, 1])], [T((2, 1))],
        ("StridedSliceOptions", {"offset": True}),
        "StridedSlice(begin=(1, 3), end=(3, 4), stride=(1, 1))",
    ),
    example("PAD", [T((2, 3)), ints([[1, 0], [0, 2]])], [T((3, 5))], None, "Pad(pad_list=((1, 0), (0, 2)))"),
    example(
        "PADV2", [T((2,), "int8", (0.5, 3)), ints([[1, 0]]), T((1,), "int8", (0.5, 3), value=np.int8([7]))],
        [T((3,), "int8", (0.5, 3))], None, "Pad(pad_list=((1, 0),), pad_value=2.0)",
    ),
    example(
        "MIRROR_PAD", [T((3,)), ints([[1, 2]])], [T((6,))], ("MirrorPadOptions", {"mode": 1}),
        "Pad(pad_list=((1, 2),), padding_mode=<PaddingMode.SYMMETRIC: 2>)",
    ),
    example("TILE", [T((2, 3)), ints([2, 1])], [T((4, 3))], None, "Tile(multiples=(2, 1))"),
    example("REVERSE_V2", [T((2, 3)), ints([1])], [T((2, 3))], None, "ReverseV2(axis=(1,))"),
    example(
        "GATHER", [X, ints([[0, 2], [1, 1]])], [T((2, 2, 4, 5))], ("GatherOptions", {"axis": 1, "batch_dims": 1}),
        "Gather(axis=1, batch_dims=1)",
    ),
    example("GATHER_ND", [X, ints([[0, 2], [1, 1]])], [T((2, 4, 5))], None, "GatherNd()"),
    example("EMBEDDING_LOOKUP", [ints([1, 0]), T((3, 4))], [T((2, 4))], None, "Gather()"),
    example(
        "SPACE_TO_BATCH_ND", [T((1, 3, 4, 2)), ints([2, 2]), ints([[0, 1], [0, 0]])], [T((4, 2, 2, 2))], None,
        f"SpaceToBatchNd(block_shape=(2, 2), pad_list=((0, 1), (0, 0)), {NHWC})",
    ),
    example(
        "BATCH_TO_SPACE_ND", [T((4, 2, 2, 2)), ints([2, 2]), ints([[0, 1], [0, 0]])], [T((1, 3, 4, 2))], None,
        f"BatchToSpaceNd(block_shape=(2, 2), crops=((0, 1), (0, 0)), {NHWC})",
    ),
    example(
        "SPACE_TO_DEPTH", [T((1, 4, 4, 2))], [T((1, 2, 2, 8))], ("SpaceToDepthOptions", {"block_size": 2}),
        "SpaceToDepth(block_size=2)",
    ),
    example(
        "DEPTH_TO_SPACE", [T((1, 2, 2, 8))], [T((1, 4, 4, 2))], ("DepthToSpaceOptions", {"block_size": 2}),
        "DepthToSpace(block_size=2)",
    ),
    example(
        "RESIZE_BILINEAR", [X, ints([6, 8])], [T((2, 6, 8, 5))], ("ResizeBilinearOptions", {"align_corners": True}),
        f"Resize(target_width=8, target_height=6, method=<ResizeMethod.BILINEAR: 0>, {NHWC}, align_corners=True)",
    ),
    example(
        "RESIZE_NEAREST_NEIGHBOR", [X, ints([6, 8])], [T((2, 6, 8, 5))],
        ("ResizeNearestNeighborOptions", {"half_pixel_centers": True}),
        f"Resize(target_width=8, target_height=6, {NHWC}, half_pixel_centers=True)",
    ),
    example("L2_NORMALIZATION", [X], [X], ("L2NormOptions", {}), "L2Normalization(axis=-1)"),
    example(
        "LOCAL_RESPONSE_NORMALIZATION", [X], [X],
        ("LocalResponseNormalizationOptions", {"radius": 2, "bias": 1.0, "alpha": 0.5, "beta": 0.75}),
        "Normalization(norm_size=5, alpha=0.5, beta=0.75, k=1.0, axis=-1)",
    ),
    example(
        "CUMSUM", [X, ints(1)], [X], ("CumsumOptions", {"exclusive": True}), "CumSum(axis=1, exclusive=True)",
    ),
    example(
        "REVERSE_SEQUENCE", [X, ints([1, 2])], [X], ("ReverseSequenceOptions", {"seq_dim": 1, "batch_dim": 0}),
        "ReverseSequence(time_axis=1, batch_axis=0)",
    ),
    example("MATRIX_DIAG", [T((2, 3))], [T((2, 3, 3))], None, "MatrixDiag()"),
    example("MATRIX_SET_DIAG", [T((2, 3, 4)), T((2, 3))], [T((2, 3, 4))], None, "MatrixSetDiag()"),
    example(
        "SCATTER_ND", [ints([[1], [3]]), T((2, 5)), ints([4, 5])], [T((4, 5))], None,
        "ScatterNd(function=<ScatterFunction.ADD: 'add'>, input_enabled=False)",
    ),
    example("DYNAMIC_UPDATE_SLICE", [T((4, 5)), T((2, 2)), ints([1, 9])], [T((4, 5))], None, "DynamicUpdateSlice()"),
    example(
        "WHERE", [T((2, 3), "bool")], [T((6, 2), "int64", signature=(-1, 2))], None, "NonZero()",
        "Transpose(permutation=(1, 0))",
    ),
    example(
        "UNIQUE", [T((5,))], [T((1,), signature=(-1,)), T((5,), "int32")], ("UniqueOptions", {"idx_out_type": 2}),
        "Unique(sorted=False, index_dtype=DataType.INT32)",
    ),
    example("TOPK_V2", [T((2, 5)), ints(3)], [T((2, 3)), T((2, 3), "int32")], None, "TopK(k=3)"),
    example("BITCAST", [T((2, 3))], [T((2, 3), "int32")], None, "Bitcast(dtype=DataType.INT32)"),
]  # fmt: skip


def layers(network: Network) -> list[str]:
    """The operators as they are printed, without the border and constants."""
    return [repr(layer.op) for layer in network if not isinstance(layer.op, Input | Output | Constant)]


@pytest.mark.parametrize(("name", "inputs", "outputs", "options", "expected"), EXAMPLES)
def test_an_operator_becomes_layers_that_give_what_the_file_says(name, inputs, outputs, options, expected):
    network = tflite.load(one_operator(name, inputs, outputs, options))
    assert layers(network) == expected
    network.validate()
    infos = {layer.name: layer.output.known for layer in network.graph.inputs}
    result = run_network(network, {name: np.ones(info.shape, info.dtype.numpy) for name, info in infos.items()})
    assert [(array.shape, array.dtype.name) for array in result.values()] == [
        (output.shape, output.dtype) for output in outputs
    ]


def test_a_range_is_added_up_as_tflite_does_it():
    inputs = [T((), value=np.float32(value)) for value in (0, 1, 0.1)]
    [result] = run_network(tflite.load(one_operator("RANGE", inputs, [T((10,))])), {}).values()
    expected = [np.float32(0)]
    while len(expected) < 10:
        expected.append(expected[-1] + np.float32(0.1))
    np.testing.assert_array_equal(result, np.array(expected))


@pytest.mark.parametrize(("axis", "expected"), [(-1, [[5, -1, -1], [-1, -1, 5]]), (0, [[5, -1], [-1, -1], [-1, 5]])])
def test_a_one_hot_has_one_value_at_the_index(axis, expected):
    inputs = [T((2,), "int32"), ints(3), T((), value=np.float32(5)), T((), value=np.float32(-1))]
    shape = np.shape(expected)
    network = tflite.load(one_operator("ONE_HOT", inputs, [T(shape)], ("OneHotOptions", {"axis": axis})))
    assert run_network(network, {"i0": np.int32([0, 2])})["o0"].tolist() == expected


@pytest.mark.parametrize(("name", "expected"), [("SUM", [3, 5, 8]), ("MEAN", [3, 5, 8])])
def test_a_reduction_without_axes_still_changes_the_quantization(name, expected):
    inputs = [T((3,), "int8", (0.05, 0)), ints(np.zeros(0, np.int32))]
    network = tflite.load(one_operator(name, inputs, [T((3,), "int8", (0.2, 0))], ("ReducerOptions", {})))
    assert run_network(network, {"i0": np.int8([10, 20, 30])})["o0"].tolist() == expected


def test_the_bits_of_an_element_are_several_narrow_ones():
    network = tflite.load(one_operator("BITCAST", [T((2,), "int32")], [T((2, 4), "uint8")]))
    assert run_network(network, {"i0": np.int32([513, -1])})["o0"].tolist() == [[1, 2, 0, 0], [255] * 4]


@pytest.mark.parametrize(
    ("given", "target", "text"),
    [
        (T((1,), "string"), T((1,), "int32"), "string as int32: the elements have no fixed width"),
        (T((1,), "int32"), T((1,), "string"), "int32 as string: the elements have no fixed width"),
        (T((3,), "uint8"), T((), "int32"), r"uint8 of shape \[3\] as int32 needs a last axis of size 4"),
        (T((2,), "int4"), T((1,), "int8"), "it makes int8 of int4"),
    ],
)
def test_bits_that_make_no_whole_elements_are_refused(given, target, text):
    with pytest.raises(ParseError, match=text):
        tflite.load(one_operator("BITCAST", [given], [target]))


def _is_of_tables(name):
    return name.startswith("HASHTABLE") and name != "HASHTABLE_LOOKUP"


def test_every_builtin_operator_has_an_example():
    handles = {"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", *filter(_is_of_tables, tflite.operators())}
    recurrent = {name for name in tflite.operators() if name.endswith(("LSTM", "RNN")) or name in {"SVDF", "DENSIFY"}}
    elsewhere = {"CALL", "CALL_ONCE", "IF", "WHILE", "STABLEHLO_CASE", "STABLEHLO_WHILE", *handles, *recurrent} | {
        case.operator for case in CASES if case.expected is not None
    }
    builtin = {name for name in tflite.operators() if not name.startswith("CUSTOM ")}
    assert {parameters.values[0] for parameters in EXAMPLES} | elsewhere == builtin


PROBLEMS: list[Any] = [
    ("CONV_2D", [T((3, 3)), floats(7, 3, 3, 5)], ("Conv2DOptions", SAME), "input 0 has shape [3, 3]; expected rank 4"),
    ("CONV_2D", [X, floats(7, 3)], ("Conv2DOptions", SAME), "input 1 has shape [7, 3]; expected rank 4"),
    ("CONV_2D", [X], ("Conv2DOptions", SAME), "input 1 is missing"),
    (
        "CONV_2D", [X, floats(7, 3, 3, 5)], ("Conv2DOptions", {"stride_w": 0}),
        "stride 0 and dilation 1 along the height; expected at least 1",
    ),
    (
        "CONV_2D", [X, floats(7, 3, 3, 5)], ("Conv2DOptions", SAME | {"padding": 9}),
        "padding 9 is not known; expected 0 (SAME) or 1 (VALID)",
    ),
    (
        "CONV_2D", [X, floats(7, 3, 3, 5)], ("Conv2DOptions", SAME | {"fused_activation_function": 5}),
        "the fused activation 5 is not supported",
    ),
    ("CONV_2D", [X, floats(7, 3, 3, 4)], ("Conv2DOptions", SAME), "input has 5 channels, but weights have 4"),
    ("CONV_2D", [X, X], ("Pool2DOptions", {}), "CONV_2D has Pool2DOptions instead of Conv2DOptions"),
    ("RESHAPE", [X], None, "it has no shape, neither as an input nor as an option"),
    ("RESHAPE", [X, floats(2)], None, "the shape (input 1) is float32; expected integers"),
    ("RESHAPE", [X, ints([7, -1])], None, "an input of shape [2, 3, 4, 5] cannot be reshaped to (7, -1)"),
    ("PAD", [X, ints([1, 1, 2, 2])], None, "the paddings (input 1) has shape [4]; expected two columns"),
    ("SPLIT", [ints(4), X], None, "axis 4 is not one of shape [2, 3, 4, 5]"),
    ("SPLIT", [ints([1, 2]), X], None, "the axis (input 0) has 2 elements; expected one"),
    (
        "SPLIT_V", [X, ints([-1, -1]), ints(1)], None,
        "the sizes are [-1, -1]; only one of them may be -1, which stands for the remainder",
    ),
    ("SQUEEZE", [X], ("SqueezeOptions", {"squeeze_dims": [1]}), "axis 1 of shape [2, 3, 4, 5] cannot be dropped"),
    ("EXPAND_DIMS", [X, ints(6)], None, "an axis cannot be inserted at 6 into shape [2, 3, 4, 5]"),
    ("MIRROR_PAD", [X, ints([[1, 1]] * 4)], ("MirrorPadOptions", {"mode": 2}), "mode 2 is not known"),
    ("RESIZE_BILINEAR", [X, ints([1, 2, 3])], None, "the size is (1, 2, 3); expected height and width"),
    ("QUANTIZE", [X], None, "its output has no scale"),
    ("RANGE", [ints(0), ints(5), ints(0)], None, "expected three numbers, and a step that is not 0"),
    ("RANGE", [ints(0), ints(2**30), ints(1)], None, "it gives 1073741824 numbers; at most 1048576 are supported"),
    (
        "ONE_HOT", [T((2,), "int32"), ints(-3), T(()), T(())], ("OneHotOptions", {}),
        "the depth is -3; expected 0 to 1048576",
    ),
    (
        "TRANSPOSE", [X, ints([0, 0, 1, 2])], None,
        "permutation is (0, 0, 1, 2); expected every axis of the input, 0 to 3, once",
    ),
    (
        "FULLY_CONNECTED", [X, floats(7, 20)], ("FullyConnectedOptions", {"weights_format": 1}),
        "weights in format 1 are not supported; only the plain format is",
    ),
    (
        "MAX_POOL_2D", [X], ("Pool2DOptions", SAME),
        "a window of height 0 and width 0; expected at least 1",
    ),
    (
        "LOCAL_RESPONSE_NORMALIZATION", [X], ("LocalResponseNormalizationOptions", {"radius": -1}),
        "the radius is -1; expected 0 or more",
    ),
    ("SHAPE", [X], ("ShapeOptions", {}), "Shape: dtype is float32; expected one of int32, int64"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "options", "fault"), PROBLEMS)
def test_an_operator_that_cannot_be_meant_is_refused_with_its_place(name, inputs, options, fault):
    with pytest.raises(ParseError) as caught:
        tflite.load(one_operator(name, inputs, [T((2, 3))], options))
    where = "subgraphs[0].operators[0]" if "instead of" in fault else f"operators[0] {name}"
    assert str(caught.value) == f"{where}: {fault}"


def test_a_result_of_another_type_than_the_file_says_is_refused():
    with pytest.raises(ParseError) as caught:
        tflite.load(one_operator("ABS", [X], [T((2, 3, 4, 5), "int32")]))
    assert str(caught.value) == "operators[0] ABS: its output is int32 in the file, but it gives float32"


def test_too_many_outputs_are_refused():
    with pytest.raises(ParseError) as caught:
        tflite.load(one_operator("ABS", [X], [X, X]))
    assert str(caught.value) == "operators[0] ABS: it has 2 outputs; expected 1"


@pytest.mark.parametrize("kind", ["ADD", "MAXIMUM", "MINIMUM"])
def test_a_result_has_the_type_that_litert_computes_with(kind: str) -> None:
    options = {"ADD": ("AddOptions", {})}.get(kind, ("MaximumMinimumOptions", {}))
    content = one_operator(kind, [T((4,)), T((4,))], [T((4,), "int32")], options)
    a, b = np.float32([1.5, -2, 0.25, 8]), np.float32([0.5, 3, -0.25, 8.5])
    function = {"ADD": np.add, "MAXIMUM": np.maximum, "MINIMUM": np.minimum}[kind]
    [result] = ip.load(content, ["CpuRef"]).run([a, b])
    assert (result.dtype, result.tolist()) == (np.float32, function(a, b).tolist())
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    interpreter = litert.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), (a, b), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    wanted = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert (wanted.dtype, wanted.tolist()) == (result.dtype, result.tolist())


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", 3), ("uint8", 120)])
def test_softmax_widens_to_int16(dtype: str, zero_point: int) -> None:
    scaled = T((2, 5), dtype, (0.05, zero_point))
    content = one_operator("SOFTMAX", [scaled], [T((2, 5), "int16", (1 / 32768, 0))], ("SoftmaxOptions", {"beta": 1.0}))
    x = np.array([[1, 20, 90, 4, 100], [7, 7, 7, 7, 7]], dtype)
    [result] = ip.load(content, ["CpuRef"]).run([x])
    exact = np.exp((x.astype(float) - zero_point) * 0.05)
    exact = exact / exact.sum(-1, keepdims=True) * 32768
    assert result.dtype == np.int16
    np.testing.assert_allclose(result, exact, atol=1)
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    interpreter = litert.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    wanted = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(result, wanted, atol=4)
