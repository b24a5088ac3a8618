"""Whole models: names, bindings, sources, order, and the ways in which a model can be given."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from onnx import helper, numpy_helper

from interposer.core.errors import InvalidArgumentError, ParseError, UnboundInputError
from interposer.core.types import Dim, TensorInfo, TensorShape
from interposer.frontends.onnx import load
from interposer.ops import Convolution2d, DepthwiseConvolution2d, FullyConnected, Reshape
from tests.evaluation import run_network
from tests.frontends.onnx.models import agree, info, model, ours, single, theirs

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
RNG = np.random.default_rng(11)


def chain(*kinds, shape=(2, 3), **extra):
    """A model in which every node takes the result of the one before."""
    names = ["x", *(f"t{i}" for i in range(1, len(kinds))), "y"]
    nodes = [helper.make_node(kind, [names[i]], [names[i + 1]], name=f"n{i}") for i, kind in enumerate(kinds)]
    return model(nodes, {"x": shape}, **extra)


# --- a model in the network -------------------------------------------------------------------------------------------


def test_the_digits_of_the_demo_are_those_of_the_reference():
    image = RNG.random((1, 1, 8, 8), np.float32)
    network = load(DIGITS)
    result = run_network(network, {"image": image})["probabilities"]
    np.testing.assert_allclose(result, theirs(onnx.load(DIGITS), image)[0], atol=1e-6)
    network.validate()
    assert network.outputs[0].values[0].known == TensorInfo((1, 10))


def test_layers_are_named_after_nodes_and_borders_after_the_model():
    network = load(chain("Relu", "Neg", "Abs"))
    assert [layer.name for layer in network] == ["x", "n0", "n1", "n2", "y"]
    assert network.graph.layer("n1").source == "node 'n1' (Neg)"
    assert network.name == "test"


def test_nodes_without_a_name_are_counted_by_kind():
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in ("xs", "st", "ty")]
    assert [layer.name for layer in load(model(nodes, {"x": (2,)}))] == ["x", "Relu_0", "Relu_1", "Relu_2", "y"]


def test_a_node_that_is_called_like_an_output_gets_another_name():
    value = model([helper.make_node("Relu", ["x"], ["y"], name="y")], {"x": (2,)})
    assert [layer.name for layer in load(value)] == ["x", "y/layer", "y"]


def test_layers_on_the_way_are_named_after_node_and_operator():
    weights = RNG.random((4, 2, 3), np.float32)
    network = load(single("Conv", np.zeros((1, 2, 5), np.float32), weights))
    names = [layer.name for layer in network if layer.kind != "Constant"]
    assert names == ["x0", "node/Reshape", "node/Convolution2d", "node", "y"]


def test_inputs_and_outputs_count_in_the_order_of_the_model():
    nodes = [helper.make_node("Sub", ["b", "w"], ["p"]), helper.make_node("Add", ["a", "p"], ["q"])]
    value = model(nodes, {"b": (2,), "w": np.ones(2, np.float32), "a": (2,)}, ["q", "p"], {"w": np.ones(2, np.float32)})
    network = load(value)
    assert {number: layer.name for number, layer in network.inputs.items()} == {0: "b", 1: "a"}
    assert {number: layer.name for number, layer in network.outputs.items()} == {0: "q", 1: "p"}


def test_an_input_may_be_an_output_and_be_given_twice():
    network = load(model([], {"x": (2,)}, ["x"]))
    assert [layer.kind for layer in network] == ["Input", "Output"]


def test_an_initializer_may_be_an_output():
    value = model([], {}, ["c"], {"c": np.float32([1, 2])})
    assert ours(value)[0].tolist() == [1, 2]


def test_what_nobody_asks_for_is_left_out():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["unused"])]
    assert [layer.kind for layer in load(model(nodes, {"x": (2,)}, constants={"c": np.ones(3)}))] == [
        "Input", "Activation", "Output",
    ]  # fmt: skip


def test_what_no_output_depends_on_need_not_be_supported():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Unheard", ["x"], ["unused"])]
    assert len(load(model(nodes, {"x": (2,)}))) == 3


def test_nodes_of_one_name_are_told_apart_by_numbers():
    nodes = [helper.make_node("Neg", [a], [b], name="n") for a, b in ("xs", "st", "ty")]
    assert [layer.name for layer in load(model(nodes, {"x": (2,)}))] == ["x", "n", "n_1", "n_2", "y"]


def test_nodes_may_stand_in_any_order():
    value = chain("Relu", "Neg", "Abs")
    nodes = list(value.graph.node)
    del value.graph.node[:]
    value.graph.node.extend(nodes[::-1])
    assert [layer.name for layer in load(value)] == ["x", "n0", "n1", "n2", "y"]


def test_a_depthwise_convolution_is_one_in_the_network():
    x = np.zeros((1, 4, 5, 5), np.float32)
    ops = {
        group: {
            layer.kind: layer.op
            for layer in load(single("Conv", x, np.zeros((8, 4 // group, 3, 3), np.float32), group=group))
        }
        for group in (1, 2, 4)
    }
    assert ops[1]["Convolution2d"] == Convolution2d()
    assert ops[2]["Convolution2d"] == Convolution2d(groups=2)
    assert ops[4]["DepthwiseConvolution2d"] == DepthwiseConvolution2d()
    assert "Transpose" not in ops[4]


def test_factors_of_a_product_go_into_its_weights():
    network = load(
        single("Gemm", np.zeros((2, 3), np.float32), np.ones((3, 4), np.float32), np.ones(4, np.float32), alpha=0.5)
    )
    [layer] = [layer for layer in network if layer.op == FullyConnected()]
    assert layer.operand("weights").constant[0, 0] == 0.5


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_open_extents_keep_their_names():
    network = load(chain("Relu", shape=("batch", 3)))
    assert network.outputs[0].values[0].known.shape == TensorShape(("batch", 3))
    assert load(chain("Relu", shape=(None, 3))).inputs[0].output.known.shape[0] is Dim("x_0")


@pytest.mark.parametrize(
    "shapes",
    [{"x": (4, 3)}, {"batch": 4}, {"x": [np.int64(4), None]}, {"x": (4, None), "batch": 4}, {"x_1": 3, "batch": 4}],
)
def test_open_extents_can_be_bound_by_input_or_by_name(shapes):
    second = None if "x_1" in shapes else 3
    network = load(chain("Relu", shape=("batch", second)), shapes=shapes)
    assert network.outputs[0].values[0].known.shape == (4, 3)


def test_an_extent_that_is_bound_for_one_input_is_bound_for_all():
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    network = load(model(nodes, {"a": ("n", 2), "b": ("n", "m")}), shapes={"a": (5, 2)})
    assert [layer.output.known.shape for layer in network.inputs.values()] == [(5, 2), TensorShape((5, "m"))]


def test_an_input_without_a_shape_needs_one():
    value = chain("Relu", shape=None)
    assert load(value, shapes={"x": (2, "n")}).inputs[0].output.known.shape == TensorShape((2, "n"))
    with pytest.raises(UnboundInputError) as caught:
        load(value)
    assert str(caught.value) == (
        "operators that need to know more of the inputs:\n  - 1 x Input ('x': no shape; give shapes={'x': (...)})"
    )


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"z": (1, 3)}, "shapes: the network has no input 'z' (it has: x)"),
        ({"bach": 1}, "shapes: the network has no dimension 'bach'; did you mean 'batch'? (it has: batch)"),
        ({"x": (1, 2, 3)}, "shapes: 'x' has the shape [batch, 3]; [1, 2, 3] was given, which has another rank"),
        ({"x": (1, 3), "batch": 2}, "shapes: 'batch' is both 2 and 1"),
        ({"batch": -1}, "shapes: 'batch' is -1; expected 0 to 2147483647"),
        ({"x": "13"}, "shapes: 'x' is '13'; expected a shape, such as (1, 3, 8)"),
        ({"x": (1.0, 3)}, "shapes: 'x': a dimension must be an integer, a name or None, not 1.0"),
        ({1: 3}, "shapes: the network has no dimension 1 (it has: batch)"),
        ({"x": 2}, "shapes: 'x' is an input of the shape [batch, 3]; give all its dimensions, not 2"),
        ({"x": (2**31, 3)}, "shapes: 'x' has the size 2147483648; expected 0 to 2147483647"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, text):
    with pytest.raises(InvalidArgumentError) as caught:
        load(chain("Relu", shape=("batch", 3)), shapes=shapes)
    assert str(caught.value) == text


def test_a_dimension_that_the_model_fixes_can_be_resized():
    result = load(chain("Relu", "Neg", shape=("batch", 3)), shapes={"x": (2, 7)})
    assert [layer.output.known.shape for layer in result if layer.outputs] == [(2, 7)] * 3


def test_a_reshape_that_does_not_fit_a_resized_input_is_named():
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"], name="flat")]
    value = model(nodes, {"x": (2, 3)}, constants={"to": np.int64([3, 2])})
    with pytest.raises(ParseError) as caught:
        load(value, shapes={"x": (2, 4)})
    assert str(caught.value).startswith("node 'flat' (Reshape): ")


def flattening(target, shape):
    """What exporters write for x.view(x.shape[0], -1) and the like: the shape is taken apart and put together again."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["first"]),
        helper.make_node("Unsqueeze", ["first", "axes"], ["listed"]),
        helper.make_node("Concat", ["listed", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"], name="reshape"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array(target)}
    return model(nodes, {"x": shape}, constants=constants)


@pytest.mark.parametrize(("target", "tail"), [([-1], (12,)), ([12], (12,)), ([2, 6], (2, 6))])
def test_a_shape_that_is_computed_from_the_input_folds_even_where_an_extent_is_open(target, tail):
    network = load(flattening(target, ("batch", 3, 4)))
    assert [layer.kind for layer in network] == ["Input", "Reshape", "Output"]
    assert network.outputs[0].values[0].known.shape == TensorShape(("batch", *tail))
    x = RNG.random((5, 3, 4), np.float32)
    np.testing.assert_array_equal(run_network(network, {"x": x})["y"], x.reshape(5, *tail))


def test_a_shape_that_is_known_folds_to_a_reshape():
    network = load(flattening([-1], (5, 3, 4)))
    assert [layer.op for layer in network if layer.kind == "Reshape"] == [Reshape((5, 12))]


def test_extents_are_multiplied_where_they_are_known():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1),
        helper.make_node("ReduceProd", ["shape"], ["size"], keepdims=1),
        helper.make_node("Split", ["shape"], ["h", "w"], num_outputs=2),
        helper.make_node("Mul", ["h", "w"], ["area"]),
        helper.make_node("Sub", ["area", "size"], ["zero"]),
        helper.make_node("Concat", ["zero", "size"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    network = load(model(nodes, {"x": (2, 3, 4)}))
    assert network.outputs[0].values[0].known.shape == (2, 12)


def test_several_open_extents_pass_where_they_stay_in_place():
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["u"]),
        helper.make_node("Squeeze", ["u", "axes"], ["s"]),
        helper.make_node("Flatten", ["s"], ["y"]),
    ]
    network = load(model(nodes, {"x": ("n", 2, "h", "w")}, constants={"axes": np.array([-1])}))
    assert network.outputs[0].values[0].known.shape == TensorShape(("n", None))
    x = RNG.random((3, 2, 4, 5), np.float32)
    np.testing.assert_array_equal(run_network(network, {"x": x})["y"], x.reshape(3, -1))


def test_a_convolution_with_open_extents_runs_at_any_size():
    value = single(
        "Conv", np.zeros((1, 2, 3, 3), np.float32), RNG.random((3, 2, 3, 3), np.float32), auto_pad="SAME_UPPER"
    )
    for dim, name in zip(value.graph.input[0].type.tensor_type.shape.dim, ["n", "", "h", "w"], strict=True):
        if name:
            dim.dim_param = name
    x = RNG.random((2, 2, 7, 6), np.float32)
    agree(value, x)


def test_a_fill_of_a_shape_that_is_data_stays():
    value = model([helper.make_node("ConstantOfShape", ["x"], ["y"])], {"x": np.array([1, 2])})
    network = load(value)
    assert [layer.kind for layer in network] == ["Input", "Fill", "Output"]
    assert network.outputs[0].values[0].known.shape == TensorShape((None, None))


# --- constants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": numpy_helper.from_array(np.array([1.5]))}, np.array([1.5])),
        ({"value_float": 2.5}, np.float32(2.5)),
        ({"value_floats": [2.5, 1.0]}, np.float32([2.5, 1.0])),
        ({"value_int": 7}, np.int64(7)),
        ({"value_ints": [7, 8]}, np.int64([7, 8])),
        ({"value_string": "text"}, np.array("text", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ],
)
def test_constants_come_in_many_forms(attributes, expected):
    [result] = ours(model([helper.make_node("Constant", [], ["y"], **attributes)], {}))
    assert result.dtype == np.asarray(expected).dtype
    assert result.tolist() == np.asarray(expected).tolist()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((2, 11, 3), [2, 5, 8]), ((5, 0, -2), [5, 3, 1]), ((1, 1, 1), []), ((0.5, 2.0, 0.5), [0.5, 1.0, 1.5])],
)
def test_a_range_counts(numbers, expected):
    names = ["start", "limit", "delta"]
    constants = dict(zip(names, map(np.array, numbers), strict=True))
    assert ours(model([helper.make_node("Range", names, ["y"])], {}, constants=constants))[0].tolist() == expected


# --- ways to give a model ---------------------------------------------------------------------------------------------


def test_a_path_bytes_a_message_and_text_are_all_the_same(tmp_path):
    value = chain("Relu", "Neg")
    data, text = value.SerializeToString(), text_format.MessageToString(value).encode()
    (tmp_path / "net.onnx").write_bytes(data)
    (tmp_path / "net.txt").write_bytes(text)
    sources = [value, data, bytearray(data), memoryview(data), text, tmp_path / "net.onnx", str(tmp_path / "net.txt")]
    for source in sources:
        assert [layer.name for layer in load(source)] == ["x", "n0", "n1", "y"]


def test_something_else_is_no_model():
    with pytest.raises(InvalidArgumentError, match=r"^a model must be a path, bytes or an onnx.ModelProto, not int$"):
        load(7)


def test_an_input_of_another_kind_is_refused():
    value = chain("Relu")
    value.graph.input[0].type.CopyFrom(helper.make_sparse_tensor_type_proto(onnx.TensorProto.FLOAT, (2,)))
    expected = "^input 'x': it is a sparse tensor; only tensors, sequences and optionals are supported$"
    with pytest.raises(ParseError, match=expected):
        load(value)


def test_a_sequence_where_a_tensor_is_needed_is_refused():
    value = chain("Relu")
    value.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(info("x", (2,)).type))
    with pytest.raises(ParseError, match=r"sequence\[x_0\] of float32\[2\]; expected a tensor$"):
        load(value)
