"""Layers that stand for whole nodes, in the forms that the package onnx has no cases for."""

import numpy as np
import pytest
from onnx import helper

from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RecurrentDirection, RnnSequence
from tests.frontends.onnx.models import agree, model, needs_onnx, ours, single


def real(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def recurrent(kind, gates, directions=1, outputs=2, **attributes):
    weights = [real(directions, gates * 3, 2), real(directions, gates * 3, 3), real(directions, 2 * gates * 3)]
    return single(kind, real(4, 2, 2), *weights, outputs=outputs, hidden_size=3, **attributes)


@pytest.mark.parametrize(
    ("kind", "gates", "op"), [("RNN", 1, RnnSequence), ("GRU", 3, GruSequence), ("LSTM", 4, LstmSequence)]
)
def test_a_recurrent_node_is_one_layer(kind, gates, op):
    value = recurrent(kind, gates, 2, direction="bidirectional", clip=0.5)
    [layer] = [layer for layer in load(value).graph.topological() if isinstance(layer.op, op)]
    assert layer.op.direction is RecurrentDirection.BIDIRECTIONAL
    assert layer.op.clip == 0.5


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_agrees_with_the_reference(kind, gates):
    agree(recurrent(kind, gates), real(4, 2, 2), atol=1e-5)


def test_backwards_is_forwards_over_the_turned_sequence():
    x = real(4, 2, 2)
    [forwards, last] = ours(recurrent("GRU", 3), x[::-1].copy())
    [backwards, same] = ours(recurrent("GRU", 3, direction="reverse"), x)
    np.testing.assert_allclose(backwards, forwards[::-1], rtol=1e-5)
    np.testing.assert_allclose(last, same, rtol=1e-5)


def test_functions_take_their_parameters_one_after_the_other():
    value = recurrent(
        "LSTM",
        4,
        activations=["HardSigmoid", "Tanh", "LeakyRelu"],
        activation_alpha=[0.3, 0.2],
        activation_beta=[0.4],
    )
    [layer] = [layer for layer in load(value).graph.topological() if isinstance(layer.op, LstmSequence)]
    assert [(function.name, round(a, 3), round(b, 3)) for function, a, b in layer.op.functions()] == [
        ("HARD_SIGMOID", 0.3, 0.4),
        ("TANH", 1.0, 1.0),
        ("LEAKY_RELU", 0.2, 1.0),
    ]


def test_a_function_or_a_direction_that_nobody_knows_is_named():
    with pytest.raises(UnsupportedOperatorError, match="its activation 'Sine' is not known"):
        load(recurrent("RNN", 1, activations=["Sine"]))
    with pytest.raises(ParseError, match="its direction is 'up'; expected forward, reverse or bidirectional"):
        load(recurrent("RNN", 1, direction="up"))


def test_numbers_to_come_make_a_range_when_they_come():
    value = model(
        [helper.make_node("Range", ["start", "limit", "delta"], ["y"])],
        {name: np.zeros((), np.int64) for name in ("start", "limit", "delta")},
    )
    assert ours(value, 2, 9, 3)[0].tolist() == [2, 5, 8]


def test_the_largest_elements_were_counted_by_an_attribute():
    x = np.float32([[3, 1, 2]])
    [values, places] = ours(single("TopK", x, outputs=2, opset=9, k=2), x)
    assert (values.tolist(), places.tolist()) == ([[3, 2]], [[0, 2]])


def test_negative_indices_had_no_place_before_they_counted_from_the_end():
    indices, values = np.array([-1, 1]), np.float32([0, 1])
    old, new = (ours(single("OneHot", indices, np.array(3), values, opset=opset), indices)[0] for opset in (10, 11))
    assert old.tolist() == [[0, 0, 0], [0, 1, 0]]
    assert new.tolist() == [[0, 0, 1], [0, 1, 0]]


def test_elements_were_scattered_under_another_name():
    x = np.zeros(3, np.float32)
    [result] = ours(single("Scatter", x, np.array([1]), np.float32([5]), opset=10), x)
    assert result.tolist() == [0, 5, 0]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            single("ScatterElements", real(2), np.array([0]), real(1), reduction="xor"),
            "its reduction is 'xor'; expected none, add, mul, max, min",
        ),
        (
            single("GridSample", real(1, 1, 2, 2), real(1, 1, 1, 2), mode="round"),
            "its mode is 'round' and its padding_mode 'zeros'",
        ),
        (single("Einsum", real(2, 2), equation="ij->k"), "equation 'ij->k': no input has the letter 'k' of the result"),
        (
            single("RoiAlign", real(1, 1, 2, 2), real(1, 4), np.array([0]), mode="min"),
            "its mode is 'min' and its spatial_scale 1",
        ),
        (
            single("Attention", real(1, 2, 4), real(1, 2, 4), real(1, 2, 4), opset=23),
            "it needs the attribute 'q_num_heads'",
        ),
        (single("Trilu", real(2, 2), np.array([1, 2])), r"its k is int64\[2\]; expected one number"),
    ],
)
def test_what_cannot_be_meant_is_named(given, text):
    with pytest.raises(ParseError, match=text):
        load(given)


def test_factors_of_groups_were_one_for_each_group():
    x, gamma, beta = real(2, 4, 3), np.float32([1, 2]), np.float32([0, 1])
    [result] = ours(single("GroupNormalization", x, gamma, beta, opset=18, num_groups=2), x)
    each = [np.repeat(values, 2) for values in (gamma, beta)]
    [expected] = ours(single("GroupNormalization", x, *each, opset=21, num_groups=2), x)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_hard_maximum_was_one_over_all_axes_from_the_given_one_on():
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    [result] = ours(single("Hardmax", x, opset=11, axis=1), x)
    assert result.sum() == 2
    assert result[:, 2, 1].tolist() == [1, 1]


def test_statistics_of_narrow_numbers_have_32_bits():
    x = real(2, 4).astype(np.float16)
    result = ours(single("LayerNormalization", x, np.ones(4, np.float16), outputs=3), x)
    assert [array.dtype for array in result] == [np.float16, np.float32, np.float32]
    np.testing.assert_allclose(result[1], x.astype(np.float32).mean(axis=1, keepdims=True), rtol=1e-6)


VOLUME = real(2, 4, 4, 3, 5)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]},
        {"dilations": [1, 2, 1], "auto_pad": "SAME_UPPER"},
        {"group": 2},
    ],
)
def test_a_convolution_of_volumes(attributes):
    weights = real(6, 4 // attributes.get("group", 1), 2, 2, 3)
    agree(single("Conv", VOLUME, weights, real(6), **attributes), VOLUME, atol=1e-4)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
def test_pooling_of_volumes(kind):
    agree(single(kind, VOLUME, kernel_shape=[2, 2, 3], strides=[2, 1, 2], opset=22), VOLUME, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 1, 2], "output_padding": [1, 0, 1]},
        {"pads": [1, 0, 1, 0, 1, 1]},
        {"strides": [2, 2, 2], "output_shape": [8, 6, 10]},
    ],
)
def test_a_transposed_convolution_of_volumes_is_that_of_their_planes(attributes):
    """With weights of one plane and rows apart, it is the transposed convolution of images for each plane."""
    weights = real(4, 3, 1, 2, 2)
    flat = {
        key: numbers[-2:] if len(numbers) == 3 else [*numbers[1:3], *numbers[4:]] for key, numbers in attributes.items()
    }
    planes = VOLUME.transpose(0, 2, 1, 3, 4).reshape(8, 4, 3, 5)
    [images] = ours(single("ConvTranspose", planes, weights[:, :, 0], real(3), **flat), planes)
    deep = {
        key: [1 if key == "strides" else 0, *numbers[1:]] if len(numbers) == 3 else [0, *numbers[1:3], 0, *numbers[4:]]
        for key, numbers in attributes.items()
    }
    deep |= {"output_shape": [4, *attributes["output_shape"][1:]]} if "output_shape" in attributes else {}
    [result] = ours(single("ConvTranspose", VOLUME, weights, real(3), **deep), VOLUME)
    expected = images.reshape(2, 4, *images.shape[1:]).transpose(0, 2, 1, 3, 4)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_a_transposed_convolution_of_volumes_has_groups():
    weights = real(4, 3, 2, 2, 2)
    parts = [
        ours(single("ConvTranspose", VOLUME[:, i : i + 2], weights[i : i + 2]), VOLUME[:, i : i + 2])[0] for i in (0, 2)
    ]
    [result] = ours(single("ConvTranspose", VOLUME, weights, group=2), VOLUME)
    np.testing.assert_allclose(result, np.concatenate(parts, axis=1), rtol=1e-4, atol=1e-5)


def test_more_than_three_spatial_axes_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="its input has 4 spatial axes; 1 to 3 are supported"):
        load(single("MaxPool", real(1, 1, 2, 2, 2, 2), kernel_shape=[1, 1, 1, 1]))


def test_the_norm_of_a_channel():
    for p in (1, 2, 3):
        [result] = ours(single("GlobalLpPool", VOLUME, p=p), VOLUME)
        expected = (np.abs(VOLUME) ** p).sum(axis=(2, 3, 4), keepdims=True) ** (1 / p)
        np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 6), (3, 3), (7, 2), (4, 0)])
def test_the_middle_is_cut_out_or_put_into_the_middle(shape):
    x = real(4, 6)
    agree(single("CenterCropPad", x, np.array(shape)), x)


def test_channels_of_blocks_may_be_counted_by_channels_of_the_image():
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    [result] = ours(single("SpaceToDepth", x, blocksize=2, mode="CRD"), x)
    assert result.ravel().tolist() == list(range(8))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_leaves_out_a_class_that_is_to_be_ignored(reduction, weighted):
    scores, labels = real(2, 3, 4), np.array([[0, 2, -5, 1], [-5, 1, 1, 0]])
    operands = [labels, np.float32([1, 2, 3])] if weighted else [labels]
    agree(single("NegativeLogLikelihoodLoss", scores, *operands, reduction=reduction, ignore_index=-5), scores)
    value = single("SoftmaxCrossEntropyLoss", scores, *operands, outputs=2, reduction=reduction, ignore_index=-5)
    agree(value, scores)


@needs_onnx(22, "there is no opset 27")
def test_a_causal_convolution_goes_on_where_it_stopped():
    x, weights, bias = real(1, 3, 6), real(3, 1, 4), real(3)

    def convolved(part, past):
        return ours(
            single("CausalConvWithState", part, weights, bias, past, outputs=2, opset=27, activation="silu"), part
        )

    whole, last = convolved(x, None)
    first, state = convolved(x[:, :, :2], None)
    second, end = convolved(x[:, :, 2:], state)
    np.testing.assert_allclose(np.concatenate([first, second], 2), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(end, last)


@needs_onnx(22, "there is no opset 27")
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_a_rule_of_linear_attention_needs_its_operands(rule):
    operands = [real(1, 2, 4)] * 3
    heads = {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": rule, "opset": 27, "outputs": 2}
    if rule == "linear":
        assert len(ours(single("LinearAttention", *operands, **heads), operands[0])) == 2
    else:
        with pytest.raises(ParseError, match="which does not go with the operands decay and beta that it has"):
            load(single("LinearAttention", *operands, **heads))
