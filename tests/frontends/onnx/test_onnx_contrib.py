"""ONNX Runtime's own operators: the layers that they become, and the errors for invalid nodes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import interposer as ip
from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.onnx import load
from tests.frontends.onnx.contrib.case import Case, fed, fixed, normal, whole
from tests.frontends.onnx.models import model, ours

WEIGHTS = fixed(whole((8, 2, 8), np.uint8))
SCALES = fixed(np.full((8, 2), 0.5, np.float32))
FOUR_BITS = {"K": 32, "N": 8, "bits": 4, "block_size": 16}


def operators(case):
    return [layer.op.op_name() for layer in load(case.file()).graph.topological() if layer.op.op_name() != "Constant"]


def refusal(case):
    with pytest.raises(ParseError) as caught:
        load(case.file())
    return caught.value.message


def test_a_product_with_four_bit_weights_stays_packed():
    case = Case("MatMulNBits", "", [fed(normal((1, 32))), WEIGHTS, SCALES], attributes=FOUR_BITS)
    assert operators(case) == ["Input", "BlockDequantize", "FullyConnected", "Output"]
    [layer] = [layer for layer in load(case.file()).graph.topological() if layer.op.op_name() == "BlockDequantize"]
    assert [value.known.dtype for value in layer.values] == [DataType.UINT4, DataType.FLOAT32, DataType.UINT4]


def test_whole_float_zero_points_become_integers():
    points = fixed(np.full((8, 2), 7, np.float32))
    case = Case("MatMulNBits", "", [fed(normal((1, 32))), WEIGHTS, SCALES, points], attributes=FOUR_BITS)
    assert operators(case) == ["Input", "BlockDequantize", "FullyConnected", "Output"]


def test_a_selection_with_valid_constant_indices_needs_no_comparison():
    case = Case("GatherBlockQuantized", "", [fixed(whole((5, 16), np.uint8)), fed([1]), fixed(normal((5, 2)))],
                ["f4"], {"block_size": 16})  # fmt: skip
    assert "Where" in operators(case)
    constant = Case(
        "GatherBlockQuantized", "", [case.inputs[0], fixed([1, -5]), case.inputs[2]], ["f4"], case.attributes
    )
    assert "Where" not in operators(constant)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K": 0}, "K is 0; expected 1 to 2147483647"),
        ({"block_size": 24}, "block_size is 24; expected a power of two, 16 or more"),
        ({"N": 7}, "its input number 1 has shape [8, 2, 8]; expected [7, 2, 8]"),
        ({"K": 40}, "its input has shape [1, 32]; expected rows of 40 elements, as K says"),
    ],
    ids=["no columns", "odd block", "other rows", "other columns"],
)  # fmt: skip
def test_a_product_with_packed_weights_names_the_wrong_attribute(change, message):
    case = Case("MatMulNBits", "", [fed(normal((1, 32))), WEIGHTS, SCALES], attributes=FOUR_BITS | change)
    assert refusal(case) == message


def test_a_skip_tensor_of_another_shape_is_named():
    case = Case("SkipLayerNormalization", "", [fed(normal((2, 3, 8))), fed(normal((2, 1, 8))), fixed(normal((8,)))])
    assert refusal(case) == "its input has shape [2, 3, 8], but skip has [2, 1, 8]"


def test_an_unknown_fused_activation_is_named():
    case = Case("FusedGemm", "", [fed(normal((2, 3))), fixed(normal((3, 4)))], attributes={"activation": "Sine"})
    assert refusal(case) == (
        "its activation is 'Sine'; expected Elu, HardSigmoid, HardSwish, LeakyRelu, Relu, Selu, Sigmoid, Softplus, "
        "Softsign, Tanh, ThresholdedRelu or Clip"
    )


def test_operators_without_a_converter_are_listed_with_their_counts():
    case = Case("LongformerAttention", "", [fed(normal((2, 3)))])
    with pytest.raises(ip.errors.UnsupportedOperatorError) as caught:
        load(case.file())
    assert caught.value.operators == {"com.microsoft.LongformerAttention": 1}


def blocked_network(size):
    """Return a model with blocks of `size` channels, as ONNX Runtime's optimizer writes it, and its usual weights."""
    weights = [normal((24, 3, 3, 3)), normal((24, 24, 1, 1), seed=1)]
    padded = -(-24 // size) * size
    first = np.zeros((padded, 3, 3, 3), np.float32)
    first[:24] = weights[0]
    second = np.zeros((padded, padded, 1, 1), np.float32)
    second[:24, :24] = weights[1]
    stored = [
        first.reshape(padded // size, size, 3, 3, 3).transpose(0, 2, 3, 4, 1),
        second.reshape(padded // size, size, padded // size, size, 1, 1).transpose(0, 2, 4, 5, 3, 1),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], domain="com.microsoft.nchwc", activation="Relu"),
        helper.make_node("Conv", ["a", "second"], ["b"], domain="com.microsoft.nchwc"),
        helper.make_node("ReorderOutput", ["b"], ["y"], domain="com.microsoft.nchwc", channels=24),
    ]
    arrays = [
        np.ascontiguousarray(array).reshape(shape.shape) for array, shape in zip(stored, (first, second), strict=True)
    ]
    domains = [helper.make_opsetid("com.microsoft.nchwc", 1)]
    constants = dict(zip(("first", "second"), arrays, strict=True))
    return model(nodes, {"x": (1, 3, 6, 6)}, constants=constants, domains=domains), weights


@pytest.mark.parametrize("size", [8, 16])
def test_weights_in_blocks_of_channels_are_sorted_back(size):
    blocked, weights = blocked_network(size)
    x = normal((1, 3, 6, 6), seed=2)
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "second"], ["y"]),
    ]
    usual = model(nodes, {"x": x.shape}, constants=dict(zip(("first", "second"), weights, strict=True)))
    np.testing.assert_allclose(ours(blocked, x)[0], ours(usual, x)[0], rtol=1e-5, atol=1e-5)


def test_an_image_in_blocks_that_is_not_square_is_enlarged():
    image = normal((1, 16, 2, 3))
    case = Case("Upsample", "", [fed(image)], domain="com.microsoft.nchwc", attributes={"scales": [1, 1, 2, 3]})
    (result,) = ip.load(case.file()).run(case.feeds())
    np.testing.assert_array_equal(result, image.repeat(2, 2).repeat(3, 3))
