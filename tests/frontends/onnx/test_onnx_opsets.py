"""Operators as earlier opsets had them: what an attribute was, what broadcasting and axes meant."""

import numpy as np
import pytest
from onnx import helper

from interposer.core.errors import InvalidArgumentError, ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from interposer.frontends.onnx import onnx_converters as registry
from tests.frontends.onnx.models import model, ours, single

RNG = np.random.default_rng(8)
X = RNG.uniform(-3, 3, (2, 3, 4, 5)).astype(np.float32)


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize(
    ("op", "opset", "operands", "attributes", "expected"),
    [
        ("Add", 6, [np.ones(3, np.float32)], {"broadcast": 1, "axis": 1}, X + 1),
        ("Mul", 6, [np.float32([[1], [2], [3], [4]])], {"broadcast": 1, "axis": -2}, X * [[1], [2], [3], [4]]),
        ("Sub", 6, [np.ones(5, np.float32)], {"broadcast": 1}, X - 1),
        ("Reshape", 4, [], {"shape": [0, -1]}, X.reshape(2, -1)),
        ("Reshape", 13, [np.array([0, -1])], {}, X.reshape(2, -1)),
        ("Squeeze", 11, [], {"axes": [0]}, None),
        ("Unsqueeze", 11, [], {"axes": [0, 5]}, X[None, ..., None]),
        ("ReduceSum", 11, [], {"axes": [1], "keepdims": 0}, X.sum(axis=1)),
        ("ReduceMean", 13, [], {"axes": [-1]}, X.mean(axis=-1, keepdims=True)),
        ("Slice", 9, [], {"starts": [1, -2], "ends": [9, 5], "axes": [1, 3]}, X[:, 1:, :, -2:]),
        ("Slice", 9, [], {"starts": [1], "ends": [2]}, X[1:2]),
        ("Pad", 1, [], {"paddings": [0, 0, 1, 0, 0, 0, 0, 2]}, np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)))),
        ("Pad", 10, [], {"pads": [0] * 7 + [1], "value": 2.0}, np.pad(X, ((0, 0),) * 3 + ((0, 1),), constant_values=2)),
        ("Clip", 6, [], {"min": -1.0, "max": 1.0}, np.clip(X, -1, 1)),
        ("Clip", 6, [], {"max": 1.0}, np.minimum(X, 1)),
        ("Clip", 6, [], {}, X),
        ("Cast", 1, [], {"to": "INT32"}, X.astype(np.int32)),
        ("Cast", 1, [], {"to": "DOUBLE"}, X.astype(np.float64)),
        ("PRelu", 6, [np.float32([1, 2, 3])], {}, np.where(X < 0, X * np.reshape([1, 2, 3], (3, 1, 1)), X)),
        ("PRelu", 6, [np.float32([2])], {}, np.where(X < 0, X * 2, X)),
        ("Selu", 1, [], {}, 1.0507 * np.where(X > 0, X, 1.6732 * (np.exp(X) - 1))),
        ("Softmax", 12, [], {}, softmax(X.reshape(2, -1), 1).reshape(X.shape)),
        ("Softmax", 12, [], {"axis": -1}, softmax(X, -1)),
        ("Softmax", 12, [], {"axis": 0}, softmax(X.reshape(1, -1), 1).reshape(X.shape)),
        ("LogSoftmax", 1, [], {"axis": 2}, np.log(softmax(X.reshape(6, -1), 1)).reshape(X.shape)),
        ("Dropout", 6, [], {"is_test": 1}, X),
        ("Dropout", 10, [], {"ratio": 0.5}, X),
        ("Upsample", 1, [], {"height_scale": 2.0, "width_scale": 1.0}, X.repeat(2, axis=2)),
        ("Upsample", 7, [], {"scales": [1.0, 1.0, 2.0, 3.0]}, X.repeat(2, axis=2).repeat(3, axis=3)),
        ("Upsample", 9, [np.float32([1, 1, 1, 2])], {}, X.repeat(2, axis=3)),
        ("Resize", 10, [np.float32([1, 1, 2, 1])], {}, X.repeat(2, axis=2)),
        ("Transpose", 1, [], {"perm": [1, 0, 2, 3]}, X.transpose(1, 0, 2, 3)),
        ("Concat", 1, [X], {}, np.concatenate([X, X], axis=1)),
        ("Gemm", 6, [], {}, None),
        ("Affine", 7, [], {"alpha": 0.5, "beta": 2.0}, X * 0.5 + 2),
        ("ImageScaler", 7, [], {"scale": 0.5, "bias": [1.0, 2.0, 3.0]}, X * 0.5 + np.reshape([1, 2, 3], (3, 1, 1))),
        ("ScaledTanh", 7, [], {"alpha": 0.5, "beta": 2.0}, np.tanh(X * 2) * 0.5),
        ("ParametricSoftplus", 7, [], {"alpha": 0.5, "beta": 2.0}, np.log1p(np.exp(X * 2)) * 0.5),
        ("Crop", 7, [], {"border": [0, 1, 2, 1]}, X[:, :, 1:3, :3]),
        ("Crop", 7, [], {"border": [1, 1, 0, 0], "scale": [2, 3]}, X[:, :, 1:3, 1:4]),
    ],
)  # fmt: skip
def test_an_operator_means_what_its_opset_says(op, opset, operands, attributes, expected):
    x = X if expected is not None else X[:1, 0, 0] if op == "Squeeze" else X[0, 0]
    if op == "Squeeze":
        expected = x[0]
    if op == "Gemm":
        operands, expected = [x.T.copy(), np.float32([1.0])], x @ x.T + 1
    [result] = ours(single(op, x, *operands, opset=opset, **attributes), x)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "x", "attributes", "text"),
    [
        ("ImageScaler", X, {"bias": [1.0]}, "its bias has 1 numbers for 3 channels"),
        ("ImageScaler", X[:, :1], {"bias": [1.0, 2.0]}, "its bias has 2 numbers for 1 channels"),
        ("ImageScaler", X[..., None], {"bias": [1.0, 2.0, 3.0]}, "expected rank 4"),
        ("Crop", X[0], {"border": [0, 0, 0, 0]}, "expected rank 4"),
        ("Crop", X, {"border": [0, 3, 0, 2]}, "it keeps -1 rows and 5 columns of 4 and 5; expected 0 or more"),
        ("Crop", X, {"border": [0, 0, 0, 0], "scale": [2, -1]}, "it keeps 2 rows and -1 columns of 4 and 5"),
    ],
)
def test_a_removed_operator_that_does_not_fit_its_image_is_refused(op, x, attributes, text):
    with pytest.raises(ParseError, match=text):
        load(single(op, x, opset=7, **attributes))


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("ReduceL2", {}, [[7]]),
        ("ReduceLogSum", {"keepdims": 0}, [2]),
        ("ReduceLogSum", {"noop_with_empty_axes": 1}, [[1, 0, 1, 1]]),
        ("ReduceLogSumExp", {}, [[5]]),
    ],
)
def test_reductions_of_integers_to_fractions_are_truncated(op, attributes, expected):
    operands = (None,) if "noop_with_empty_axes" in attributes else (np.array([1]),)
    [result] = ours(single(op, np.array([[3, 1, 4, 5]]), *operands, **attributes), np.array([[3, 1, 4, 5]]))
    assert (result.tolist(), result.dtype) == (expected, np.int64)


def test_a_batch_normalization_of_old_has_its_statistics_in_the_same_order():
    scale, bias, mean, variance = (RNG.uniform(0.5, 2, 3).astype(np.float32) for _ in range(4))
    expected = (X - mean[:, None, None]) / np.sqrt(variance + 1e-5)[:, None, None] * scale[:, None, None]
    [result] = ours(single("BatchNormalization", X, scale, bias, mean, variance, opset=7), X)
    np.testing.assert_allclose(result, expected + bias[:, None, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [2, 11])
def test_a_split_of_old_has_its_sizes_as_an_attribute(opset):
    result = ours(single("Split", X, opset=opset, outputs=2, axis=3, split=[2, 3]), X)
    np.testing.assert_array_equal(np.concatenate(result, axis=3), X)
    assert result[0].shape[3] == 2


def test_groups_had_one_factor_each_at_first():
    x, factors = X[:, :2], np.float32([2, 3])
    [result] = ours(single("GroupNormalization", x, factors, np.zeros(2, np.float32), opset=18, num_groups=2), x)
    flat = x.reshape(2, 2, -1)
    normal = (flat - flat.mean(axis=2, keepdims=True)) / np.sqrt(flat.var(axis=2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, (normal * factors[:, None]).reshape(x.shape), rtol=1e-4, atol=1e-5)


def test_the_version_of_a_node_is_that_of_its_own_domain():
    first = helper.make_node("Softmax", ["x"], ["y"], domain="ai.onnx")
    value = model([first], {"x": X}, opset=12, domains=[helper.make_opsetid("com.example", 99)])
    np.testing.assert_allclose(ours(value, X)[0], softmax(X.reshape(2, -1), 1).reshape(X.shape), rtol=1e-5)


def test_an_operator_that_the_opset_does_not_have_yet_is_not_supported():
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(single("Where", np.array([True]), X, X, opset=8))
    assert str(caught.value) == ("operators that are not supported:\n  - 1 x Where (opset 8; node 'node')")


def test_the_table_knows_since_when_a_form_holds():
    load(single("Relu", X))
    known = registry.operators()
    assert known["Softmax"] == (1, 13)
    assert known["Upsample"] == (1, 7, 9)
    assert len(known) > 110


def test_a_form_has_one_function():
    with pytest.raises(InvalidArgumentError, match="^Softmax has two functions since opset 13$"):
        registry.operator("Softmax", since=13)(lambda node: node.value(0))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"axis": 3, "broadcast": 1}, "node 'node' (Add): b of shape [3, 4] does not fit into a of shape [2, 3, 4, 5]"),
        ({"axis": 7, "broadcast": 1}, "node 'node' (Add): axis is 7, but the input has rank 4; expected -4 to 3"),
    ],
)
def test_a_place_that_an_old_broadcast_cannot_mean_is_refused(attributes, text):
    with pytest.raises(ParseError) as caught:
        load(single("Add", X, np.ones((3, 4), np.float32), opset=6, **attributes))
    assert str(caught.value).startswith(text)
