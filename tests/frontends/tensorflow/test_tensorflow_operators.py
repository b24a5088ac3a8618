"""Every operator in a frozen graph of its own: the result of OpenVINO's reader, or a worked example."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.tensorflow import load
from tests.frontends.tensorflow.graphs import Type, const, graph, node, one, placeholder

RNG = np.random.default_rng(9)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def positive(*shape):
    return RNG.uniform(0.1, 0.9, size=shape).astype(np.float32)


def ints(*shape):
    return RNG.integers(1, 9, size=shape).astype(np.int32)


IMAGE, WEIGHTS = floats(2, 9, 8, 4), floats(3, 2, 4, 6)
CHANNELS_FIRST = np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2))
VOLUME = floats(1, 5, 6, 7, 4)
T = Type("float32")

UNARY = [
    "Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Log", "Neg",
    "Reciprocal", "Relu", "Relu6", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "LogSoftmax",
    "Softplus", "Softsign", "Sqrt", "Square", "Tan", "Tanh", "L2Loss", "ZerosLike", "OnesLike", "Log1p", "Expm1",
    "StopGradient", "Snapshot", "CheckNumerics", "Shape", "Size", "Rank", "LeakyRelu",
]  # fmt: skip
BINARY = [
    "Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "FloorDiv", "FloorMod", "Pow",
    "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "DivNoNan",
]  # fmt: skip
REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod"]


def windows(**more):
    return {"strides": [1, 2, 2, 1], "padding": "SAME", "T": T, **more}


CASES = {
    **{name: (name, [positive(3, 4)], {}, {"T": T}) for name in UNARY},
    **{name: (name, [positive(2, 3, 4), positive(4)], {}, {"T": T}) for name in BINARY},
    **{
        name: (name, [floats(2, 3, 4)], {1: np.int32([1, -1])}, {"keep_dims": True, "T": T, "Tidx": Type("int32")})
        for name in REDUCTIONS
    },
    "AddN": ("AddN", [floats(3), floats(3), floats(3)], {}, {"N": 3, "T": T}),
    "ArgMax": (
        "ArgMax",
        [floats(3, 4)],
        {1: np.int32(1)},
        {"T": T, "Tidx": Type("int32"), "output_type": Type("int64")},
    ),
    "AvgPool": ("AvgPool", [IMAGE], {}, windows(ksize=[1, 3, 2, 1])),
    "BatchMatMulV2": ("BatchMatMulV2", [floats(2, 3, 4), floats(2, 5, 4)], {}, {"adj_y": True, "T": T}),
    "BatchToSpaceND": (
        "BatchToSpaceND",
        [floats(4, 2, 3, 2)],
        {1: np.int32([2, 2]), 2: np.int32([[0, 1], [1, 0]])},
        {"T": T},
    ),
    "BiasAdd": ("BiasAdd", [IMAGE], {1: floats(4)}, {"T": T}),
    "BiasAdd NCHW": ("BiasAdd", [CHANNELS_FIRST], {1: floats(4)}, {"T": T, "data_format": "NCHW"}),
    "BroadcastTo": ("BroadcastTo", [floats(3, 1)], {1: np.int32([2, 3, 4])}, {"T": T}),
    "Cast": ("Cast", [floats(6) * 9], {}, {"SrcT": T, "DstT": Type("int32")}),
    "ConcatV2": ("ConcatV2", [floats(2, 3), floats(2, 4)], {2: np.int32(-1)}, {"N": 2, "T": T, "Tidx": Type("int32")}),
    "Conv2D": ("Conv2D", [IMAGE], {1: WEIGHTS}, windows()),
    "Conv2D valid": ("Conv2D", [IMAGE], {1: WEIGHTS}, windows(padding="VALID", strides=[1, 3, 1, 1])),
    "Conv2D dilated": ("Conv2D", [IMAGE], {1: WEIGHTS}, windows(strides=[1, 1, 1, 1], dilations=[1, 2, 3, 1])),
    "Conv2D explicit": (
        "Conv2D",
        [IMAGE],
        {1: WEIGHTS},
        windows(padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0]),
    ),
    "Conv2D NCHW": ("Conv2D", [CHANNELS_FIRST], {1: WEIGHTS}, windows(data_format="NCHW", strides=[1, 1, 2, 1])),
    "Conv2D computed weights": ("Conv2D", [IMAGE, WEIGHTS], {}, windows()),
    "Conv3D": ("Conv3D", [VOLUME], {1: floats(2, 3, 2, 4, 5)}, windows(strides=[1, 1, 2, 2, 1])),
    "Conv2DBackpropInput": (
        "Conv2DBackpropInput",
        [floats(2, 5, 4, 4)],
        {0: np.int32([2, 10, 7, 5]), 1: floats(3, 2, 5, 4)},
        windows(),
    ),
    "Conv2DBackpropInput valid": (
        "Conv2DBackpropInput",
        [floats(2, 5, 4, 4)],
        {0: np.int32([2, 11, 8, 5]), 1: floats(3, 2, 5, 4)},
        windows(padding="VALID"),
    ),
    "Cumsum": (
        "Cumsum",
        [floats(2, 5)],
        {1: np.int32(1)},
        {"exclusive": True, "reverse": True, "T": T, "Tidx": Type("int32")},
    ),
    "DepthToSpace": ("DepthToSpace", [floats(1, 2, 3, 8)], {}, {"block_size": 2, "T": T}),
    "DepthwiseConv2dNative": ("DepthwiseConv2dNative", [IMAGE], {1: floats(3, 2, 4, 2)}, windows()),
    "DepthwiseConv2dNative NCHW": (
        "DepthwiseConv2dNative",
        [CHANNELS_FIRST],
        {1: floats(3, 2, 4, 2)},
        windows(data_format="NCHW", strides=[1, 1, 2, 2]),
    ),
    "Einsum": ("Einsum", [floats(2, 3, 4), floats(2, 4, 5)], {}, {"N": 2, "equation": "bij,bjk->bik", "T": T}),
    "ExpandDims": ("ExpandDims", [floats(2, 3)], {1: np.int32(-1)}, {"T": T, "Tdim": Type("int32")}),
    "FakeQuantWithMinMaxVars": (
        "FakeQuantWithMinMaxVars",
        [floats(9)],
        {1: np.float32(-1), 2: np.float32(2)},
        {"num_bits": 8},
    ),
    "FusedBatchNormV3": (
        "FusedBatchNormV3",
        [IMAGE],
        {1: positive(4), 2: floats(4), 3: floats(4), 4: positive(4)},
        {"epsilon": 0.001, "is_training": False, "T": T, "U": T},
    ),
    "FusedBatchNorm NCHW": (
        "FusedBatchNorm",
        [CHANNELS_FIRST],
        {1: positive(4), 2: floats(4), 3: floats(4), 4: positive(4)},
        {"epsilon": 0.001, "is_training": False, "data_format": "NCHW", "T": T},
    ),
    "Fill": ("Fill", [np.float32(3)], {0: np.int32([2, 3])}, {"T": T, "index_type": Type("int32")}),
    "GatherNd": (
        "GatherNd",
        [floats(2, 3)],
        {1: np.int32([[0, 1], [1, 2]])},
        {"Tparams": T, "Tindices": Type("int32")},
    ),
    "GatherV2": (
        "GatherV2",
        [floats(2, 3)],
        {1: np.int32([2, 0]), 2: np.int32(1)},
        {"Tparams": T, "Tindices": Type("int32")},
    ),
    "MatMul": ("MatMul", [floats(3, 4)], {1: floats(5, 4)}, {"transpose_b": True, "T": T}),
    "MatMul computed": ("MatMul", [floats(4, 3), floats(4, 5)], {}, {"transpose_a": True, "T": T}),
    "MaxPool": ("MaxPool", [IMAGE], {}, windows(ksize=[1, 3, 2, 1])),
    "MaxPool NCHW": (
        "MaxPool",
        [CHANNELS_FIRST],
        {},
        windows(ksize=[1, 1, 3, 2], strides=[1, 1, 2, 2], data_format="NCHW"),
    ),
    "MaxPool3D": ("MaxPool3D", [VOLUME], {}, windows(ksize=[1, 2, 3, 2, 1], strides=[1, 2, 1, 2, 1])),
    "MirrorPad": ("MirrorPad", [floats(2, 3)], {1: np.int32([[1, 0], [2, 1]])}, {"mode": "REFLECT", "T": T}),
    "OneHot": (
        "OneHot",
        [ints(3)],
        {1: np.int32(5), 2: np.float32(2), 3: np.float32(-1)},
        {"axis": -1, "T": T, "TI": Type("int32")},
    ),
    "Pack": ("Pack", [floats(2, 3), floats(2, 3)], {}, {"N": 2, "axis": 1, "T": T}),
    "Pad": ("Pad", [floats(2, 3)], {1: np.int32([[1, 0], [2, 3]])}, {"T": T}),
    "PadV2": ("PadV2", [floats(2, 3)], {1: np.int32([[1, 0], [2, 3]]), 2: np.float32(7)}, {"T": T}),
    "Range": ("Range", [np.float32(1)], {1: np.float32(5), 2: np.float32(0.5)}, {"Tidx": T}),
    "Reshape": ("Reshape", [floats(2, 6)], {1: np.int32([3, -1])}, {"T": T}),
    "ResizeBilinear": ("ResizeBilinear", [IMAGE], {1: np.int32([5, 13])}, {"half_pixel_centers": True, "T": T}),
    "ResizeNearestNeighbor": ("ResizeNearestNeighbor", [IMAGE], {1: np.int32([18, 16])}, {"T": T}),
    "ReverseV2": ("ReverseV2", [floats(2, 3)], {1: np.int32([-1])}, {"T": T}),
    "ScatterNd": (
        "ScatterNd",
        [floats(2, 2)],
        {0: np.int32([[1], [3]]), 2: np.int32([5, 2])},
        {"T": T, "Tindices": Type("int32")},
    ),
    "Select": ("Select", [floats(3, 4), floats(3, 4)], {0: np.array([True, False, True])}, {"T": T}),
    "SelectV2": ("SelectV2", [floats(3, 4), floats(4)], {0: np.array([[True], [False], [True]])}, {"T": T}),
    "Slice": ("Slice", [floats(2, 6)], {1: np.int32([0, 1]), 2: np.int32([-1, 2])}, {"T": T}),
    "SpaceToBatchND": (
        "SpaceToBatchND",
        [floats(1, 4, 6, 2)],
        {1: np.int32([2, 2]), 2: np.int32([[0, 0], [1, 1]])},
        {"T": T},
    ),
    "SpaceToDepth": ("SpaceToDepth", [floats(1, 4, 6, 2)], {}, {"block_size": 2, "T": T}),
    "Squeeze": ("Squeeze", [floats(2, 1, 3, 1)], {}, {"squeeze_dims": [-1], "T": T}),
    "StridedSlice": (
        "StridedSlice",
        [floats(2, 6, 3, 4)],
        {1: np.int32([0, 1, 0, 0, 0]), 2: np.int32([0, -1, 0, 0, 1]), 3: np.int32([1, 2, 1, 1, 1])},
        {"begin_mask": 1, "end_mask": 1, "ellipsis_mask": 4, "new_axis_mask": 8, "shrink_axis_mask": 16, "T": T},
    ),
    "Tile": ("Tile", [floats(2, 3)], {1: np.int32([2, 3])}, {"T": T}),
    "Transpose": ("Transpose", [floats(2, 3, 4)], {1: np.int32([2, 0, 1])}, {"T": T}),
}


def run(data, arrays, backend="CpuRef"):
    network = load(data, outputs=["y"])
    names = [layer.name for layer in network.graph.inputs]
    feeds = {name: arrays[int(name[1:])] for name in names}
    return ip.load(network, [backend, "CpuRef"]).run(feeds)[0]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_agrees_with_openvino(name, tmp_path):
    openvino = pytest.importorskip("openvino")
    op, arrays, constants, attributes = CASES[name]
    data = one(op, arrays, constants, **attributes)
    (tmp_path / "model.pb").write_bytes(data)
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(tmp_path / "model.pb"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    feeds = {port: arrays[int(port.any_name.partition(":")[0][1:])] for port in compiled.inputs}
    theirs, ours = compiled(feeds)[compiled.outputs[0]], run(data, arrays)
    assert ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


EXAMPLES = {
    "FloorMod of negative numbers": ("FloorMod", [np.int32([-7, 7]), np.int32([4, -4])], {}, {}, [1, -1]),
    "TruncateMod": ("TruncateMod", [np.int32([-7, 7]), np.int32([4, -4])], {}, {}, [-3, 3]),
    "TruncateDiv": ("TruncateDiv", [np.int32([-7, 7]), np.int32([4, -4])], {}, {}, [-1, -1]),
    "FloorDiv": ("FloorDiv", [np.int32([-7, 7]), np.int32([4, -4])], {}, {}, [-2, -2]),
    "DivNoNan": ("DivNoNan", [np.float32([1, 6]), np.float32([0, 2])], {}, {}, [0, 3]),
    "Xlogy": ("Xlogy", [np.float32([0, 2]), np.float32([0, 1])], {}, {}, [0, 0]),
    "IsFinite": ("IsFinite", [np.float32([1, np.inf, np.nan])], {}, {}, [True, False, False]),
    "no axes to reduce": ("Sum", [np.float32([[1, 2]])], {1: np.zeros(0, np.int32)}, {}, [[1, 2]]),
    "an axis first": ("Concat", [np.float32([1]), np.float32([2])], {0: np.int32(0)}, {}, [1, 2]),
    "Where": ("Where", [np.array([[True, False], [True, True]])], {}, {}, [[0, 0], [1, 0], [1, 1]]),
    "OneHot of a negative index": (
        "OneHot",
        [np.int32([-1, 1])],
        {1: np.int32(2), 2: np.float32(5), 3: np.float32(0)},
        {},
        [[0, 0], [0, 5]],
    ),
    "TensorScatterSub": (
        "TensorScatterSub",
        [np.float32([5, 6, 7])],
        {1: np.int32([[2], [0]]), 2: np.float32([1, 2])},
        {},
        [3, 6, 6],
    ),
    "MatrixBandPart": (
        "MatrixBandPart",
        [np.ones((3, 3), np.float32)],
        {1: np.int32(0), 2: np.int32(1)},
        {},
        [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
    ),
    "a range shifted to zero": (
        "FakeQuantWithMinMaxVars",
        [np.float32([0.5, 2, 9])],
        {1: np.float32(1), 2: np.float32(4)},
        {"num_bits": 2},
        [1, 2, 3],
    ),
    "Roll": ("Roll", [np.int32([1, 2, 3, 4])], {1: np.int32(1), 2: np.int32(0)}, {}, [4, 1, 2, 3]),
    "Bitcast to a narrower type": (
        "Bitcast",
        [np.int32([-2, 65537])],
        {},
        {"T": Type("int32"), "type": Type("int16")},
        [[-2, -1], [1, 1]],
    ),
    "Bitcast to a wider type": (
        "Bitcast",
        [np.uint8([[0, 0, 128, 63], [0, 0, 0, 192]])],
        {},
        {"T": Type("uint8"), "type": Type("float32")},
        [1, -2],
    ),
    "Cast truncates": ("Cast", [np.float32([-1.9, 1.9])], {}, {"DstT": Type("int32")}, [-1, 1]),
    "NonMaxSuppressionV3": (
        "NonMaxSuppressionV3",
        [np.float32([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 2, 1, 3]]), np.float32([0.5, 0.75, 0.25])],
        {2: np.int32(3), 3: np.float32(0.5), 4: np.float32(0)},
        {},
        [1, 2],
    ),
    "CropAndResize outside the image": (
        "CropAndResize",
        [np.float32([[[[1], [3]], [[5], [7]]]])],
        {1: np.float32([[0, 0, 1, 1], [0, 0.5, 2, 0.5]]), 2: np.int32([0, 0]), 3: np.int32([2, 1])},
        {"extrapolation_value": -1.0},
        [[[[2]], [[6]]], [[[2]], [[-1]]]],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operator_gives_the_result_of_a_worked_example(name):
    op, arrays, constants, attributes, expected = EXAMPLES[name]
    assert run(one(op, arrays, constants, **attributes), arrays).tolist() == expected


@pytest.mark.parametrize(("array", "dtype"), [(np.int32([1]), "uint8"), (np.uint8([[1, 2]]), "uint16")])
def test_the_layer_with_the_bits_of_another_type_has_the_name_of_the_node(array, dtype):
    data = one("Bitcast", [array], {}, T=Type(array.dtype.name), type=Type(dtype))
    [output] = load(data, outputs=["y"]).graph.outputs
    assert output.values[0].producer.name == "y/layer"  # the output itself is named "y"


@pytest.mark.parametrize("op", ["Add", "AddV2", "Mul", "BiasAdd", "MatMul"])
def test_constants_of_half_precision_are_used_beside_floats(op):
    x, half = floats(2, 2), np.float16([[1.5, -2], [0.25, 3]] if op == "MatMul" else [1.5, -2])
    data = graph(placeholder("x0", (2, 2)), const("half", half), node(op, "y", "x0", "half", T=Type("float32")))
    whole = half.astype(np.float32)
    expected = {"Mul": np.multiply, "MatMul": np.matmul}.get(op, np.add)(x, whole)
    np.testing.assert_allclose(run(data, [x]), expected, rtol=1e-6)


def sliced(begin, end, strides, **masks):
    """Return a graph that slices a tensor, with bounds of which one element is where a vector has its maximum."""
    nodes = [placeholder("x0", (6, 3, 4)), placeholder("x1", (4,)), const("axis", np.int32(0))]
    nodes.append(node("ArgMax", "top", "x1", "axis", output_type=Type("int32")))
    for name, bounds in (("begin", begin), ("end", end)):
        parts = []
        for place, bound in enumerate(bounds):
            parts.append("top" if bound is None else f"{name}{place}")
            nodes += [] if bound is None else [const(parts[-1], np.int32(bound))]
        nodes.append(node("Pack", name, *parts, N=len(parts), axis=0))
    return graph(
        *nodes, const("strides", np.int32(strides)), node("StridedSlice", "y", "x0", "begin", "end", "strides", **masks)
    )


@pytest.mark.parametrize(
    ("graph_of", "expected"),
    [
        (lambda: sliced([None], [5], [1]), lambda x: x[2:5]),
        (lambda: sliced([None], [0], [1], shrink_axis_mask=1), lambda x: x[2]),
        (lambda: sliced([0, None], [0, 0], [1, 1], begin_mask=1, end_mask=3), lambda x: x[:, 2:]),
        (lambda: sliced([0, None], [0, 0], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2), lambda x: x[:, 2]),
        (lambda: sliced([5, 0], [None, 2], [-1, 1], begin_mask=2), lambda x: x[5:2:-1, :2]),
        (lambda: sliced([-9, None], [-99, 0], [-1, 1], end_mask=2), lambda x: x[-9:-99:-1, 2:]),
        (
            lambda: sliced([0, None, 0], [0, 0, 0], [1, 1, 1], ellipsis_mask=1, shrink_axis_mask=2, new_axis_mask=4),
            lambda x: x[..., 2, np.newaxis],
        ),
    ],
)
def test_bounds_of_a_slice_may_be_data(graph_of, expected):
    x, peak = floats(6, 3, 4), np.float32([0, 1, 5, 2])
    assert np.array_equal(run(graph_of(), [x, peak]), expected(x))


def test_combined_suppression_pads_what_it_selects():
    boxes = np.float32([[0, 0, 1, 1], [0, 0, 1, 0.9], [0, 0.5, 1, 1.5]]).reshape(1, 3, 1, 4)
    scores = np.float32([[[0.5, 0.1], [0.75, 0.2], [0.25, 0.9]]])
    limits = {2: np.int32(2), 3: np.int32(4), 4: np.float32(0.5), 5: np.float32(0.15)}
    data = one("CombinedNonMaxSuppression", [boxes, scores], limits)
    outputs = ["y", "y:1", "y:2", "y:3"]
    model = ip.load(load(data, outputs=outputs), ["CpuRef"])
    selected, best, classes, count = model.run([boxes, scores])
    assert best.tolist() == np.float32([[0.9, 0.75, 0.25, 0.2]]).tolist() and count.tolist() == [4]
    assert classes.tolist() == [[1, 0, 0, 1]]
    assert selected[0, 0].tolist() == [0, 0.5, 1, 1]


def test_batch_norm_of_training_normalizes_by_the_batch():
    empty = np.zeros(0, np.float32)
    constants = {1: np.ones(4, np.float32), 2: np.zeros(4, np.float32), 3: empty, 4: empty}
    y = run(one("FusedBatchNormV3", [IMAGE], constants, epsilon=0.0, is_training=True), [IMAGE])
    assert np.allclose(y.mean((0, 1, 2)), 0, atol=1e-5) and np.allclose(y.var((0, 1, 2)), 1, atol=1e-4)


def test_local_response_normalization_sums_the_neighbouring_channels():
    x = floats(1, 1, 1, 8)
    y = run(one("LRN", [x], depth_radius=2, bias=1.5, alpha=0.25, beta=0.75), [x])
    sums = np.convolve(x[0, 0, 0] ** 2, np.ones(5), "same")
    assert np.allclose(y[0, 0, 0], x[0, 0, 0] / (1.5 + 0.25 * sums) ** 0.75, atol=1e-6)


def test_a_transposed_convolution_can_be_larger_than_what_its_windows_cover():
    x, weights = floats(1, 2, 2, 1), np.ones((2, 2, 1, 1), np.float32)
    data = one(
        "Conv2DBackpropInput", [x], {0: np.int32([1, 6, 6, 1]), 1: weights}, strides=[1, 3, 3, 1], padding="SAME"
    )
    y = run(data, [x])[0, :, :, 0]
    assert y.shape == (6, 6) and np.allclose(y[0:2, 0:2], x[0, 0, 0, 0]) and np.allclose(y[:, 5], 0)


@pytest.mark.parametrize("shift", [0, 1, -1, 7, -(2**63), 2**63 - 1])
def test_an_axis_of_unknown_size_is_rolled_by_any_shift(shift):
    data = graph(
        placeholder("x0", (None,)),
        const("shift", np.int64(shift)),
        const("axis", np.int64(0)),
        node("Roll", "y", "x0", "shift", "axis"),
    )
    x = floats(3)
    np.testing.assert_array_equal(run(data, [x]), np.roll(x, shift % 3))


def test_batch_dimensions_may_be_open():
    data = graph(
        placeholder("x", (None, 4, 6)),
        node("Shape", "shape", "x"),
        const("zero", np.int32([0])),
        const("one", np.int32([1])),
        node("StridedSlice", "batch", "shape", "zero", "one", "one", shrink_axis_mask=1),
        const("rest", np.int32(24)),
        node("Pack", "target", "batch", "rest", axis=0),
        node("Reshape", "y", "x", "target"),
    )
    assert str(load(data).graph.outputs[0].values[0].known.shape) == "[x_0, 24]"


@pytest.mark.parametrize(
    ("op", "arrays", "constants", "attributes", "message"),
    [
        (
            "MaxPool",
            [IMAGE],
            {},
            windows(ksize=[1, 1, 1, 2]),
            "its ksize are [1, 1, 1, 2], with a window along the batch or the channels",
        ),
        ("Conv2D", [IMAGE], {1: WEIGHTS}, windows(data_format="NCHW_VECT_C"), "its data_format is 'NCHW_VECT_C'"),
        (
            "NonMaxSuppressionV5",
            [floats(3, 4), floats(3)],
            {2: np.int32(3), 3: np.float32(0.5), 4: np.float32(0), 5: np.float32(1)},
            {},
            "its soft_nms_sigma is not 0",
        ),
    ],
)
def test_forms_that_are_not_supported_are_refused(op, arrays, constants, attributes, message):
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(one(op, arrays, constants, **attributes))
    assert f"1 x {op} (node 'y': {message})" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "arrays", "constants", "attributes", "message"),
    [
        ("Conv2D", [IMAGE], {1: WEIGHTS}, {"padding": "SAME"}, "it needs the attribute 'strides'"),
        (
            "Conv2D",
            [IMAGE],
            {1: WEIGHTS},
            windows(strides=[1, 0, 1, 1]),
            "its strides are [1, 0, 1, 1]; expected 4 numbers of 1 or more",
        ),
        (
            "Conv2D",
            [IMAGE],
            {1: WEIGHTS},
            windows(padding="FULL"),
            "its padding is 'FULL'; expected SAME, VALID or EXPLICIT",
        ),
        ("Conv2D", [IMAGE[0]], {1: WEIGHTS}, windows(), "its input has the shape [9, 8, 4]; expected rank 4"),
        ("MatMul", [floats(3, 4)], {1: floats(3, 5)}, {}, "a of shape [3, 4] has rows of 4 elements, but b takes 3"),
        (
            "Split",
            [floats(2, 5)],
            {0: np.int32(1)},
            {"num_split": 2},
            "an axis of size 5 cannot be cut into 2 equal pieces",
        ),
        (
            "SplitV",
            [floats(2, 5)],
            {1: np.int32([-1, -1]), 2: np.int32(1)},
            {"num_split": 2},
            "the sizes are [-1, -1]; only one of them may be -1, which stands for the remainder",
        ),
        ("Relu", [], {}, {}, "it has no input number 0"),
        (
            "Squeeze",
            [floats(2, 3)],
            {},
            {"squeeze_dims": [1]},
            "axis 1 of its input of shape [2, 3] does not have size 1",
        ),
        ("Cast", [floats(2)], {}, {"DstT": Type("resource")}, "tensors of type resource are not supported"),
    ],
)
def test_nodes_that_break_the_format_are_refused(op, arrays, constants, attributes, message):
    with pytest.raises(ParseError) as caught:
        load(one(op, arrays, constants, **attributes), outputs=["y"])
    assert str(caught.value) == f"node 'y' ({op}): {message}"


@pytest.mark.parametrize(("factor", "dims"), [(1.0, (2, 3, 2, 3)), (0.25, (2, 3, 2, 3)), (1.0, (1, 1, 1, 3))])
def test_the_moments_of_training_are_the_running_ones(factor, dims):
    x, old = floats(*dims), np.float32([0.5, -1, 2])
    ones = np.ones(3, np.float32)
    data = one(
        "FusedBatchNormV3", [x], {1: ones, 2: 0 * ones, 3: old, 4: old},
        is_training=True, exponential_avg_factor=factor,
    )  # fmt: skip
    mean, variance, biased = ip.load(data, ["CpuRef"], outputs=["y:1", "y:2", "y:4"]).run([x])
    rows = x.reshape(-1, 3)
    unbiased = rows.var(0) * len(rows) / max(len(rows) - 1, 1)
    np.testing.assert_allclose(mean, rows.mean(0) * factor + old * (1 - factor), rtol=1e-5)
    np.testing.assert_allclose(variance, unbiased * factor + old * (1 - factor), rtol=1e-5)
    np.testing.assert_allclose(biased, rows.var(0), rtol=1e-5)
