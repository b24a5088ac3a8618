"""Recurrent layers, and layers made of windows, give the results of plain loops in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends import caffe
from interposer.types import Array
from tests.frontends.caffe.build import caffemodel, inputs_text, random_array

STEPS, BATCH, DEPTH, SIZE = 5, 3, 4, 2
X = random_array("x", (STEPS, BATCH, 2, DEPTH // 2))
MARKS = np.ones((STEPS, BATCH), np.float32)
MARKS[0], MARKS[2, 1] = 0, 0
STATIC = random_array("static", (BATCH, 3))


def results_of(layer: str, inputs: Sequence[Array], weights: Sequence[Array] = (), tops: int = 1) -> list[Array]:
    """Return the tops of a layer that reads the blobs x0, x1, ...; on the reference and on all backends alike."""
    names = {f"x{i}": array for i, array in enumerate(inputs)}
    blobs = " ".join([*(f'bottom: "{name}"' for name in names), *(f'top: "y{i}"' for i in range(tops))])
    text = inputs_text({name: array.shape for name, array in names.items()}) + f'layer {{ name: "l" {blobs} {layer} }}'
    network = caffe.load(
        text.encode(),
        weights=caffemodel(text, {"l": weights}) if weights else None,
        outputs=[f"y{i}" for i in range(tops)],
    )
    found = [ip.load(network, backends).run(names) for backends in (["CpuRef"], None)]
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
    return found[0]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def blobs_of(rows: int, *more: Sequence[int], static: bool = False) -> list[Array]:
    shapes = [(rows, DEPTH), (rows,), *([(rows, 3)] * static), (rows, SIZE), *more]
    return [random_array(f"blob{n}", tuple(shape)) for n, shape in enumerate(shapes)]


def lstm(blobs: Sequence[Array], h: Array, c: Array, static: Array | None) -> tuple[list[Array], Array, Array]:
    outputs = []
    for x, mark in zip(X.reshape(STEPS, BATCH, DEPTH), MARKS[..., None], strict=True):
        gates = x @ blobs[0].T + blobs[1] + (h * mark) @ blobs[-1].T
        gates = gates if static is None else gates + static @ blobs[2].T
        i, f, o, g = np.split(gates, 4, axis=1)
        c = mark * sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return outputs, h, c


@pytest.mark.parametrize("static", [True, False])
def test_lstm_begins_again_where_the_marks_are_zero(static: bool) -> None:
    blobs = blobs_of(4 * SIZE, static=static)
    inputs = [X, MARKS, *([STATIC] * static)]
    [result] = results_of(f'type: "LSTM" recurrent_param {{ num_output: {SIZE} }}', inputs, blobs)
    zeros = np.zeros((BATCH, SIZE), np.float32)
    expected, _, _ = lstm(blobs, zeros, zeros, STATIC if static else None)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_lstm_may_expose_its_states() -> None:
    blobs = blobs_of(4 * SIZE)
    states = [random_array(name, (1, BATCH, SIZE)) for name in "hc"]
    layer = f'type: "LSTM" recurrent_param {{ num_output: {SIZE} expose_hidden: true }}'
    results = results_of(layer, [X, MARKS, *states], blobs, tops=3)
    expected = lstm(blobs, states[0][0], states[1][0], None)
    np.testing.assert_allclose(results[0], expected[0], rtol=1e-4, atol=1e-5)
    for result, state in zip(results[1:], expected[1:], strict=True):
        np.testing.assert_allclose(result, state[None], rtol=1e-4, atol=1e-5)


def test_one_step_of_lstm_is_a_layer_of_its_own() -> None:
    state, gates = random_array("c", (1, BATCH, SIZE)), random_array("gates", (1, BATCH, 4 * SIZE))
    mark = np.array([[1, 0, 1]], np.float32)
    after, output = results_of('type: "LSTMUnit"', [state, gates, mark], tops=2)
    i, f, o, g = np.split(gates, 4, axis=2)
    expected = mark[..., None] * sigmoid(f) * state + sigmoid(i) * np.tanh(g)
    np.testing.assert_allclose(after, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(output, sigmoid(o) * np.tanh(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("static", [True, False])
def test_rnn_returns_the_tanh_of_its_hidden_states(static: bool) -> None:
    blobs = blobs_of(SIZE, (SIZE, SIZE), (SIZE,), static=static)
    layer = f'type: "RNN" recurrent_param {{ num_output: {SIZE} }}'
    [result] = results_of(layer, [X, MARKS, *([STATIC] * static)], blobs)
    h = np.zeros((BATCH, SIZE))
    for x, mark, output in zip(X.reshape(STEPS, BATCH, DEPTH), MARKS[..., None], result, strict=True):
        around = STATIC @ blobs[2].T if static else 0
        h = np.tanh((h * mark) @ blobs[-3].T + x @ blobs[0].T + blobs[1] + around)
        np.testing.assert_allclose(output, np.tanh(h @ blobs[-2].T + blobs[-1]), rtol=1e-4, atol=1e-5)


def test_sequences_without_matching_marks_are_refused() -> None:
    layer = f'type: "LSTM" recurrent_param {{ num_output: {SIZE} }}'
    with pytest.raises(ParseError, match=r"its bottoms have the shapes \[5, 3, 2, 2\] and \[4, 3\]; expected"):
        results_of(layer, [X, MARKS[1:]], blobs_of(4 * SIZE))


def test_im2col_makes_channels_of_the_elements_of_windows() -> None:
    x = random_array("image", (2, 3, 6, 7))
    window = "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0 dilation: 1 dilation: 2"
    [result] = results_of(f'type: "Im2col" convolution_param {{ {window} }}', [x])
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    expected = np.empty((2, 3, 3, 2, 3, 5), np.float32)
    for i, j, y, z in np.ndindex(3, 2, 3, 5):
        expected[:, :, i, j, y, z] = padded[:, :, 2 * y + i, z + 2 * j]
    np.testing.assert_array_equal(result, expected.reshape(2, 18, 3, 5))


def test_deconvolution_of_volumes_spreads_every_element() -> None:
    x, weights = random_array("volume", (2, 3, 2, 3, 2)), random_array("weights", (3, 4, 2, 3, 2))
    bias = random_array("bias", (4,))
    parameters = "num_output: 4 kernel_size: 2 kernel_size: 3 kernel_size: 2 stride: 2 pad: 0 pad: 1 pad: 0"
    [result] = results_of(f'type: "Deconvolution" convolution_param {{ {parameters} }}', [x], [weights, bias])
    wide = np.zeros((2, 4, 4, 7, 4))
    for d, h, w, i, j, k in np.ndindex(2, 3, 2, 2, 3, 2):
        wide[:, :, 2 * d + i, 2 * h + j, 2 * w + k] += x[:, :, d, h, w] @ weights[:, :, i, j, k]
    np.testing.assert_allclose(result, wide[:, :, :, 1:-1] + bias.reshape(-1, 1, 1, 1), rtol=1e-4, atol=1e-5)
