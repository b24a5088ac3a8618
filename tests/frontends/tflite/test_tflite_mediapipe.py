"""Custom operators of MediaPipe, compared with plain loops."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends import tflite
from tests.frontends.tflite.build import encode, operator, tensor

SAME, VALID = 1, 2


def custom(name: str, inputs: list[np.ndarray], shapes: list[list[int]], options: bytes, fed: int = 1) -> bytes:
    """Return a file with one custom operator; all inputs after the first `fed` are constants."""
    tensors, buffers = [], list[dict[str, Any]]([{}])
    for number, array in enumerate(inputs):
        if number >= fed:
            buffers.append({"data": array.tobytes()})
        tensors.append(tensor(f"i{number}", list(array.shape), buffer=len(buffers) - 1 if number >= fed else 0))
    tensors += [tensor(f"o{number}", shape) for number, shape in enumerate(shapes)]
    results = list(range(len(inputs), len(tensors)))
    step = operator(list(range(len(inputs))), results, opcode_index=0, custom_options=options)
    graph = {"tensors": tensors, "inputs": list(range(fed)), "outputs": results, "operators": [step]}
    codes = [{"deprecated_builtin_code": 32, "builtin_code": 32, "custom_code": name}]
    return encode({"version": 3, "operator_codes": codes, "buffers": buffers, "subgraphs": [graph]})


def run(data: bytes, *feeds: np.ndarray) -> list[np.ndarray]:
    with ip.load(data, ["CpuRef"]) as model:
        return model.run(list(feeds))


def numbers(*shape: int) -> np.ndarray:
    return np.random.RandomState(sum(shape)).standard_normal(shape).astype(np.float32)


def transposed(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, stride: int, same: bool) -> np.ndarray:
    """Return the transposed convolution, computed by adding each input element to its window."""
    size = weights.shape[1]
    pads = [max(0, size - (extent - 1) % stride - 1) if same else 0 for extent in x.shape[1:3]]
    full = np.zeros((x.shape[0], *(stride * (n - 1) + size for n in x.shape[1:3]), len(weights)), np.float32)
    for row, column in np.ndindex(*x.shape[1:3]):
        window = np.einsum("oyxi,bi->byxo", weights, x[:, row, column])
        full[:, row * stride : row * stride + size, column * stride : column * stride + size] += window
    ends = [full.shape[axis + 1] - (pad - pad // 2) for axis, pad in enumerate(pads)]
    return full[:, pads[0] // 2 : ends[0], pads[1] // 2 : ends[1]] + bias


@pytest.mark.parametrize("padding", [SAME, VALID])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (4, 2), (3, 1), (2, 3)])
def test_transposed_convolution_with_bias(padding, size, stride):
    x, weights, bias = numbers(2, 4, 3, 3), numbers(5, size, size, 3), numbers(5)
    expected = transposed(x, weights, bias, stride, padding == SAME)
    options = struct.pack("<3i", padding, stride, stride)
    data = custom("Convolution2DTransposeBias", [x, weights, bias], [list(expected.shape)], options)
    np.testing.assert_allclose(run(data, x)[0], expected, rtol=1e-5, atol=1e-5)


def window_options(padding: int, stride: int, size: int, activation: int = 0) -> bytes:
    return struct.pack("<6i", padding, stride, stride, size, size, activation)


def pooled(x: np.ndarray, stride: int, size: int, same: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the maxima of all windows, and the numbers of their cells in the windows."""
    counts = [-(-n // stride) if same else (n - size) // stride + 1 for n in x.shape[1:3]]
    before = [
        max(0, (c - 1) * stride + size - n) // 2 if same else 0 for c, n in zip(counts, x.shape[1:3], strict=True)
    ]
    values = np.full((x.shape[0], *counts, x.shape[3]), -np.inf, np.float32)
    cells = np.zeros_like(values)
    for place in np.ndindex(*values.shape):
        batch, row, column, channel = place
        for y, z in np.ndindex(size, size):
            at = row * stride - before[0] + y, column * stride - before[1] + z
            if 0 <= at[0] < x.shape[1] and 0 <= at[1] < x.shape[2] and x[batch, *at, channel] > values[place]:
                values[place], cells[place] = x[batch, *at, channel], y * size + z
    return values, cells


@pytest.mark.parametrize(("padding", "stride", "size"), [(SAME, 2, 2), (VALID, 2, 2), (SAME, 2, 3), (VALID, 1, 3)])
def test_max_pooling_with_the_places_of_the_maxima(padding, stride, size):
    x = numbers(2, 5, 6, 3)
    values, cells = pooled(x, stride, size, padding == SAME)
    shapes = [list(values.shape), list(values.shape)]
    data = custom("MaxPoolingWithArgmax2D", [x], shapes, window_options(padding, stride, size))
    maxima, places = run(data, x)
    np.testing.assert_array_equal(maxima, values)
    np.testing.assert_allclose(places, cells + 0.1)


@pytest.mark.parametrize("padding", [SAME, VALID])
def test_max_unpooling_writes_the_maxima_to_their_places(padding):
    x = numbers(2, 4, 6, 3)
    values, cells = pooled(x, 2, 2, padding == SAME)
    data = custom("MaxUnpooling2D", [values, cells + np.float32(0.1)], [[2, 4, 6, 3]], window_options(padding, 2, 2), 2)
    [image] = run(data, values, cells + np.float32(0.1))
    assert np.count_nonzero(image) == values.size
    np.testing.assert_array_equal(image[image != 0], x[image != 0])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Convolution2DTransposeBias", b"", "its options have 0 bytes; expected at least 12"),
        ("Convolution2DTransposeBias", struct.pack("<3i", 0, 2, 2), r"its options are \(0, 2, 2\); expected padding 1"),
        ("Convolution2DTransposeBias", struct.pack("<3i", 1, 0, 2), r"its options are \(1, 0, 2\); expected padding 1"),
        ("MaxPoolingWithArgmax2D", window_options(1, 2, 2, 3), "the fused activation 3 is not supported"),
    ],
)
def test_damaged_options_are_refused(name, options, message):
    inputs = [numbers(1, 4, 4, 3), numbers(2, 2, 2, 3), numbers(2)]
    shapes = [[1, 8, 8, 2]] if name.startswith("Conv") else [[1, 2, 2, 3]] * 2
    data = custom(name, inputs if name.startswith("Conv") else inputs[:1], shapes, options)
    with pytest.raises(ParseError, match=message):
        tflite.load(data)
