"""Random numbers, and what depends on them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from interposer.core.errors import ParseError
from interposer.frontends.onnx import load
from tests.frontends.onnx.models import agree, model, ours, single, theirs


def drawn(op, inputs=(), **attributes):
    node = helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["y"], name="node", **attributes)
    return model([node], {f"x{i}": x for i, x in enumerate(inputs)}, opset=22)


@pytest.mark.parametrize(("op", "bounds"), [
    ("RandomUniform", {"low": -2.0, "high": 3.0}), ("RandomNormal", {"mean": 5.0, "scale": 0.25}),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_a_seed_gives_the_numbers_of_the_reference_evaluator(op, bounds, dtype):
    value = drawn(op, shape=[3, 4], seed=11.0, dtype=dtype, **bounds)
    np.testing.assert_allclose(ours(value)[0], theirs(value)[0], rtol=1e-5)
    assert ours(value)[0].dtype == theirs(value)[0].dtype


@pytest.mark.parametrize("op", ["RandomUniformLike", "RandomNormalLike"])
def test_shape_and_type_are_those_of_another_tensor(op):
    x = np.zeros((2, 5), np.float16)
    [result] = ours(drawn(op, [x], seed=3.0), x)
    assert (result.shape, result.dtype) == ((2, 5), np.float16)
    assert len(np.unique(result)) > 5


def test_without_a_seed_every_run_draws_others():
    value = drawn("RandomUniform", shape=[8])
    assert ours(value)[0].tolist() != ours(value)[0].tolist()
    assert load(value).graph.layer("node").kind == "RandomFill"


def test_probabilities_decide_how_often_there_is_a_one():
    p = np.float32([0, 1, 0.25] * 4000)
    [result] = ours(drawn("Bernoulli", [p], seed=1.0), p)
    rows = result.reshape(-1, 3)
    assert (rows[:, 0].max(), rows[:, 1].min()) == (0, 1)
    assert abs(rows[:, 2].mean() - 0.25) < 0.03
    whole = drawn("Bernoulli", [p], dtype=TensorProto.INT64)
    assert ours(whole, p)[0].dtype == np.int64


def test_classes_are_drawn_by_the_logarithms_of_their_probabilities():
    scores = np.log(np.float32([[0.7, 0.2, 0.1]]))
    [result] = ours(drawn("Multinomial", [scores], sample_size=4000, seed=2.0), scores)
    assert result.dtype == np.int32
    np.testing.assert_allclose(np.bincount(result[0]) / 4000, [0.7, 0.2, 0.1], atol=0.04)


def test_a_negative_deviation_is_refused():
    with pytest.raises(ParseError, match=r"its scale is -1; expected 0 or more"):
        load(drawn("RandomNormal", shape=[2], scale=-1.0))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_drops_while_training_only(training):
    x = np.ones((40, 50), np.float32)
    value = single("Dropout", x, np.float32(0.25), np.array(training), opset=22, outputs=2, seed=5)
    y, mask = ours(value, x)
    agree(value, x)
    assert mask.dtype == np.bool_
    np.testing.assert_allclose(y, mask * (4 / 3 if training else 1), rtol=1e-6)
    assert mask.all() != training


def test_batch_normalization_while_training_gives_running_statistics():
    x = np.random.default_rng(0).normal(2, 3, (4, 3, 5)).astype(np.float32)
    numbers = [np.float32([1, 2, 3]), np.float32([0, 1, 0]), np.float32([0.5, 0, 1]), np.float32([1, 2, 3])]
    value = single("BatchNormalization", x, *numbers, opset=15, outputs=3, training_mode=1, momentum=0.8)
    agree(value, x, rtol=1e-4, atol=1e-5)


def test_an_image_in_a_file_is_decoded():
    data = np.frombuffer(b"P6 2 1 255 " + bytes([9, 8, 7, 1, 2, 3]), np.uint8)
    assert ours(single("ImageDecoder", data, pixel_format="BGR"), data)[0].tolist() == [[[7, 8, 9], [3, 2, 1]]]
    with pytest.raises(ParseError, match="its pixel_format is 'CMYK'; expected RGB, BGR, Grayscale"):
        load(single("ImageDecoder", data, pixel_format="CMYK"))


def test_what_is_no_image_has_no_pixels():
    for data in (np.zeros(0, np.uint8), np.frombuffer(b"P6 90000 90000 255 ", np.uint8)):
        assert ours(single("ImageDecoder", data), data)[0].shape == (0, 0, 3)


def test_windows_that_are_moved_by_offsets():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(2, 4, 7, 6)).astype(np.float32), rng.normal(size=(6, 2, 3, 2)).astype(np.float32)
    offset = rng.uniform(-2, 2, (2, 24, 4, 6)).astype(np.float32)
    bias, mask = rng.normal(size=6).astype(np.float32), rng.uniform(size=(2, 12, 4, 6)).astype(np.float32)
    attributes = {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 1]}
    agree(single("DeformConv", x, w, offset, bias, mask, opset=22, **attributes), x, rtol=1e-4, atol=1e-5)
