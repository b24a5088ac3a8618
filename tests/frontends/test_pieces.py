"""Splits and rolls along axes of unknown size, in formats that describe them without sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import interposer as ip
from interposer.core.errors import InvalidNetworkError, ParseError
from tests.frontends.tensorflow.graphs import const, graph, node, placeholder
from tests.frontends.tflite.one_operator import T, ints, one_operator


def rows(count):
    return np.arange(2 * count, dtype=np.float32).reshape(count, 2)


def onnx_split(opset, count, in_a_loop=False):
    """Return a model that splits its input along axis 0, or one that does so in a loop of one iteration."""
    outputs = [f"y{number}" for number in range(count)]
    attributes = {"num_outputs": count} if opset >= 18 else {}
    nodes = [helper.make_node("Split", ["x" if not in_a_loop else "state"], outputs, axis=0, **attributes)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in outputs]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])]
    initializers = []
    if in_a_loop:
        state = helper.make_tensor_value_info("state", TensorProto.FLOAT, [None, None])
        number = helper.make_tensor_value_info("number", TensorProto.INT64, [])
        again = helper.make_tensor_value_info("again", TensorProto.BOOL, [])
        nodes += [helper.make_node("Concat", [*outputs[::-1], "state"], ["next"], axis=0)]
        result = helper.make_tensor_value_info("next", TensorProto.FLOAT, [None, None])
        body = helper.make_graph(nodes, "body", [number, again, state], [again, result])
        nodes = [helper.make_node("Loop", ["two", "", "x"], ["y"], body=body)]
        values = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])]
        initializers = [onnx.numpy_helper.from_array(np.array(2), "two")]
    made = helper.make_graph(nodes, "splits", given, values, initializers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("size", [4, 6])
@pytest.mark.parametrize("opset", [17, 18])
def test_onnx_splits_an_axis_of_unknown_size_into_equal_pieces(opset, size):
    pieces = ip.load(onnx_split(opset, 2)).run([rows(size)])
    for piece, expected in zip(pieces, np.split(rows(size), 2), strict=True):
        np.testing.assert_array_equal(piece, expected)


def test_onnx_splits_into_smaller_last_pieces_since_opset_18():
    model = ip.load(onnx_split(18, 4))
    assert [piece[:, 0].tolist() for piece in model.run([rows(7)])] == [[0, 2], [4, 6], [8, 10], [12]]
    assert [piece[:, 0].tolist() for piece in model.run([rows(5)])] == [[0, 2], [4, 6], [8], []]


def test_onnx_refuses_before_opset_18_what_cannot_be_split_into_equal_pieces():
    model = ip.load(onnx_split(17, 2))
    with pytest.raises(InvalidNetworkError, match=r"sizes is \(2, 2\), 4 in all, but axis 0 has size 5"):
        model.run([rows(5)])
    assert len(model.run([rows(4)])) == 2
    with pytest.raises(ParseError, match="an axis of size 5 cannot be cut into 2 equal pieces before opset 18"):
        ip.load(onnx_split(17, 2), shapes={"x": (5, 2)})


@pytest.mark.parametrize("opset", [17, 18])
def test_onnx_splits_a_state_of_a_loop_whose_size_grows(opset):
    expected = rows(4)
    for _ in range(2):
        first, second = np.split(expected, 2)
        expected = np.concatenate([second, first, expected])
    result = ip.load(onnx_split(opset, 2, in_a_loop=True)).run([rows(4)])[0]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("size", [4, 6])
def test_tensorflow_splits_an_axis_of_unknown_size(size):
    equal = node("Split", "y", "axis", "x", num_split=2)
    rest = node("SplitV", "z", "x", "sizes", "axis", num_split=3)
    constants = const("axis", np.int32(0)), const("sizes", np.int32([1, -1, 2]))
    ends = [node("Identity", f"out{n}", name) for n, name in enumerate(["y", "y:1", "z", "z:1", "z:2"])]
    model = ip.load(graph(placeholder("x", [None, 2]), *constants, equal, rest, *ends), format="tensorflow")
    expected = [*np.split(rows(size), 2), *np.split(rows(size), [1, size - 2])]
    for piece, part in zip(model.run([rows(size)]), expected, strict=True):
        np.testing.assert_array_equal(piece, part)


@pytest.mark.parametrize("shift", [2, -1, 0, 9])
def test_tensorflow_rolls_along_an_axis_of_unknown_size(shift):
    constants = const("shift", np.int32([shift])), const("axis", np.int32([0]))
    roll = node("Roll", "y", "x", "shift", "axis")
    model = ip.load(graph(placeholder("x", [None, 2]), *constants, roll), format="tensorflow")
    for size in (5, 1, 0):
        np.testing.assert_array_equal(model.run([rows(size)])[0], np.roll(rows(size), shift, axis=0))


def test_tflite_splits_an_axis_of_unknown_size():
    x, piece = T((4, 2), signature=(-1, 2)), T((2, 2), signature=(-1, 2))
    equal = one_operator("SPLIT", [ints(0), x], [piece, piece], ("SplitOptions", {"num_splits": 2}))
    rest = one_operator(
        "SPLIT_V", [x, ints([1, -1]), ints(0)], [T((1, 2)), piece], ("SplitVOptions", {"num_splits": 2})
    )
    for size in (4, 6):
        for made, at in ((equal, size // 2), (rest, 1)):
            for result, part in zip(ip.load(made).run([rows(size)]), np.split(rows(size), [at]), strict=True):
                np.testing.assert_array_equal(result, part)
