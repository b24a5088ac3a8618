"""Operators with windows that are made of others, and features of audio, give what plain loops compute."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidArgumentError, ParseError, UnsupportedOperatorError
from interposer.frontends.tensorflow import load
from tests.frontends.tensorflow.graphs import Type, const, graph, node, one, placeholder

IMAGE = np.random.default_rng(0).normal(size=(2, 7, 6, 3)).astype(np.float32)


def results_of(data, arrays, **arguments):
    results = [ip.load(load(data, **arguments), ids).run(list(arrays)) for ids in (["CpuRef"], None)]
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
    return results[0]


def padded(image, kernel, strides, rates, same, border):
    """Return the image with the borders of the padding SAME, and the sizes of the result."""
    sizes, pads = [], [(0, 0)]
    for axis in (0, 1):
        span, size = (kernel[axis] - 1) * rates[axis] + 1, image.shape[1 + axis]
        sizes.append(-(-size // strides[axis]) if same else (size - span) // strides[axis] + 1)
        total = max(0, (sizes[-1] - 1) * strides[axis] + span - size) if same else 0
        pads.append((total // 2, total - total // 2))
    return np.pad(image, [*pads, (0, 0)], constant_values=border), sizes


def windows_of(image, kernel, strides=(1, 1), rates=(1, 1), same=False, border=0.0):
    """Return the windows as an array [batch, rows, columns, height, width, channels]."""
    image, sizes = padded(image, kernel, strides, rates, same, border)
    result = np.empty((image.shape[0], *sizes, *kernel, image.shape[3]), image.dtype)
    for y, x, i, j in np.ndindex(*sizes, *kernel):
        result[:, y, x, i, j] = image[:, y * strides[0] + i * rates[0], x * strides[1] + j * rates[1]]
    return result


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("kernel", "strides", "rates"), [((3, 2), (2, 3), (1, 1)), ((2, 2), (1, 2), (2, 3))])
def test_patches_are_the_elements_of_windows(kernel, strides, rates, same):
    lists = {"ksizes": kernel, "strides": strides, "rates": rates}
    attributes = {name: [1, *value, 1] for name, value in lists.items()}
    data = one("ExtractImagePatches", [IMAGE], padding="SAME" if same else "VALID", **attributes)
    expected = windows_of(IMAGE, kernel, strides, rates, same)
    [result] = results_of(data, [IMAGE])
    np.testing.assert_array_equal(result, expected.reshape(*expected.shape[:3], -1))


@pytest.mark.parametrize("same", [True, False])
def test_dilation_is_the_maximum_after_adding_the_filter(same):
    weights = np.random.default_rng(1).normal(size=(3, 2, 3)).astype(np.float32)
    lists = {"strides": [1, 2, 1, 1], "rates": [1, 2, 1, 1]}
    data = one("Dilation2D", [IMAGE], {1: weights}, padding="SAME" if same else "VALID", **lists)
    expected = (windows_of(IMAGE, (3, 2), (2, 1), (2, 1), same, -np.inf) + weights).max((3, 4))
    np.testing.assert_allclose(results_of(data, [IMAGE])[0], expected, rtol=1e-6)


@pytest.mark.parametrize("of_batch", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_places_of_maxima_count_channels_first(of_batch, same):
    attributes = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "include_batch_in_index": of_batch}
    kinds = {"T": Type("float32"), "Targmax": Type("int32")}
    data = one("MaxPoolWithArgmax", [IMAGE], padding="SAME" if same else "VALID", **attributes, **kinds)
    maxima, places = results_of(data, [IMAGE], outputs=["y", "y:1"])
    assert places.dtype == np.int32
    flat = IMAGE.reshape(-1) if of_batch else IMAGE.reshape(2, -1)
    found = flat[places] if of_batch else np.stack([flat[n][places[n]] for n in range(2)])
    np.testing.assert_array_equal(found, maxima)
    np.testing.assert_array_equal(maxima, windows_of(IMAGE, (3, 2), (2, 2), same=same, border=-np.inf).max((3, 4)))


@pytest.mark.parametrize("size", [(3, 4), (7, 6), (9, 11), (1, 1)])
@pytest.mark.parametrize("corners", [True, False])
def test_the_resized_area_is_the_mean_of_what_each_pixel_covers(size, corners):
    data = one("ResizeArea", [IMAGE], {1: np.int32(size)}, align_corners=corners)
    expected = np.zeros((2, *size, 3))
    scales = [(n - 1) / (m - 1) if corners and m > 1 else n / m for n, m in zip((7, 6), size, strict=True)]
    for y, x in np.ndindex(*size):
        total = 0.0
        for i in range(int(y * scales[0]), int(np.ceil((y + 1) * scales[0]))):
            for j in range(int(x * scales[1]), int(np.ceil((x + 1) * scales[1]))):
                height = min(i + 1, (y + 1) * scales[0]) - max(i, y * scales[0])
                width = min(j + 1, (x + 1) * scales[1]) - max(j, x * scales[1])
                expected[:, y, x] += IMAGE[:, min(i, 6), min(j, 5)] * height * width
                total += height * width
        expected[:, y, x] /= total
    np.testing.assert_allclose(results_of(data, [IMAGE])[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_a_transposed_convolution_of_a_volume_spreads_each_element(padding):
    random = np.random.default_rng(2)
    x, weights = (random.normal(size=shape).astype(np.float32) for shape in ((2, 2, 3, 2, 3), (3, 2, 3, 4, 3)))
    steps, kernel = (2, 2, 1), (3, 2, 3)
    sizes = [n * s if padding == "SAME" else (n - 1) * s + k for n, s, k in zip((2, 3, 2), steps, kernel, strict=True)]
    data = one(
        "Conv3DBackpropInputV2", [x], {0: np.int32([2, *sizes, 4]), 1: weights},
        strides=[1, *steps, 1], padding=padding, T=Type("float32"),
    )  # fmt: skip
    before = [
        max(0, (n - 1) * s + k - size) // 2 for n, s, k, size in zip((2, 3, 2), steps, kernel, sizes, strict=True)
    ]
    wide = np.zeros((2, *(size + 4 for size in sizes), 4))
    for d, h, w, i, j, k in np.ndindex(2, 3, 2, *kernel):
        wide[:, d * 2 + i, h * 2 + j, w + k] += x[:, d, h, w] @ weights[i, j, k].T
    cut = tuple(slice(start, start + size) for start, size in zip(before, sizes, strict=True))
    np.testing.assert_allclose(results_of(data, [x])[0], wide[(slice(None), *cut)], rtol=1e-4, atol=1e-5)


# --- audio ------------------------------------------------------------------------------------------------------------


def recording(*more):
    return graph(
        placeholder("file", (), "str"),
        node("DecodeWav", "wav", "file"),
        node("AudioSpectrogram", "spectrum", "wav", window_size=6, stride=4, magnitude_squared=True),
        node("Mfcc", "y", "spectrum", "wav:1", filterbank_channel_count=5, dct_coefficient_count=3),
        *more,
    )


def test_a_spectrogram_has_the_powers_of_frequencies():
    samples = np.random.default_rng(3).normal(size=(14, 1)).astype(np.float32)
    [result] = results_of(recording(), [samples], shapes={"wav": (14, 1)}, outputs=["spectrum"])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(6) / 6)
    frames = np.stack([samples[start : start + 6, 0] * window for start in (0, 4, 8)])
    expected = np.abs(np.fft.rfft(np.pad(frames, ((0, 0), (0, 2))))) ** 2
    np.testing.assert_allclose(result, expected[np.newaxis], rtol=1e-4, atol=1e-5)


def test_every_output_of_a_node_may_become_an_input():
    shapes = {"wav": (40, 1), "wav:1": ()}
    model = ip.load(load(recording(), shapes=shapes, values={"wav:1": 16000}), ["CpuRef"])
    assert (list(model.inputs), model.outputs["y"].shape) == (["wav"], (1, 9, 3))
    with pytest.raises(InvalidArgumentError) as caught:
        load(recording(), shapes={"wav": (40, 1)})
    assert str(caught.value) == (
        "shapes: node 'wav' becomes an input, but its output 1 is read too; give 'wav:1' a shape as well"
    )


def test_a_spectrogram_of_too_few_samples_is_refused():
    with pytest.raises(UnsupportedOperatorError, match="its input has 5 samples, less than its window of 6"):
        load(recording(), shapes={"wav": (5, 1)}, outputs=["spectrum"])


def test_windows_that_do_not_fit_are_refused():
    data = graph(
        placeholder("x", (1, 2, 2, 1)), const("filter", np.zeros((3, 3, 1), np.float32)),
        node("Dilation2D", "y", "x", "filter", strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID"),
    )  # fmt: skip
    with pytest.raises(ParseError, match=r"its window of \[3, 3\] does not fit into its input of \[2, 2\]"):
        load(data)
