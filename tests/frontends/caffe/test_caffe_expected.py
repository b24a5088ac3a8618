"""Layers that OpenCV does not have, or reads otherwise, give the results that a plain computation in NumPy gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends import caffe
from interposer.types import Array
from tests.frontends.caffe.build import caffemodel, inputs_text, random_array

IMAGE = random_array("image", (2, 4, 7, 9))
LEAST = np.finfo(np.float32).min


def results_of(layer: str, inputs: Sequence[Array], weights: Sequence[Array] = ()) -> list[Array]:
    """Return the results of a layer `y` that reads the blobs x0, x1, ..., on the reference and on all backends."""
    names = {f"x{i}": array for i, array in enumerate(inputs)}
    bottoms = " ".join(f'bottom: "{name}"' for name in names)
    text = f'{inputs_text({name: array.shape for name, array in names.items()})}layer {{ name: "y" {bottoms} {layer} }}'
    network = caffe.load(text.encode(), weights=caffemodel(text, {"y": weights}) if weights else None)
    return [ip.load(network, backends).run(names)[0] for backends in (["CpuRef"], None)]


def check(layer: str, inputs: Sequence[Array], expected: Any, weights: Sequence[Array] = ()) -> None:
    for result in results_of(f'top: "y" {layer}', inputs, weights):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def along_channels(array: Array) -> Array:
    return array.reshape(-1, 1, 1)


def vectors(*names: str) -> list[Array]:
    return [np.abs(random_array(name, (4,))) + np.float32(0.5) for name in names]


def test_bn_with_two_blobs_multiplies_and_adds():
    factors, shift = vectors("factors", "shift")
    expected = IMAGE * along_channels(factors) + along_channels(shift)
    check('type: "BN" bn_param { bn_mode: INFERENCE }', [IMAGE], expected, [factors, shift])


def test_bn_with_two_blobs_and_without_recorded_statistics_is_refused():
    with pytest.raises(ParseError) as error:
        results_of('top: "y" type: "BN"', [IMAGE], vectors("factors", "shift"))
    assert str(error.value) == (
        "layer[1] y: it has 2 blobs; expected 2 with the bn_mode INFERENCE, or 4 with mean and variance"
    )


def test_bn_with_four_blobs_normalizes():
    factors, shift, mean, variance = vectors("factors", "shift", "mean", "variance")
    normal = (IMAGE - along_channels(mean)) / np.sqrt(along_channels(variance) + 0.01)
    expected = normal * along_channels(factors) + along_channels(shift)
    check('type: "BN" bn_param { eps: 0.01 frozen: true }', [IMAGE], expected, [factors, shift, mean, variance])


def test_batch_norm_with_five_blobs_multiplies_and_adds():
    mean, variance, factors, shift = vectors("mean", "variance", "factors", "shift")
    normal = (IMAGE - along_channels(mean)) / np.sqrt(along_channels(variance) + 1e-5)
    blobs = [mean * 2, variance * 2, np.float32([2]), factors, shift]
    check('type: "BatchNorm"', [IMAGE], normal * along_channels(factors) + along_channels(shift), blobs)


@pytest.mark.parametrize("shape", [(2, 4, 7, 9), (5, 4)])
def test_batch_norm_without_recorded_statistics_takes_those_of_the_batch(shape: tuple[int, ...]):
    x = random_array("x", shape)
    axes = (0, *range(2, len(shape)))
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 0.01)
    check('type: "BatchNorm" batch_norm_param { use_global_stats: false eps: 0.01 }', [x], expected)


@pytest.mark.parametrize(("size", "width"), [((8, 7), 4), ((8, 8), 5)])
def test_a_last_window_of_pooling_outside_the_image_has_the_least_number(size: tuple[int, int], width: int):
    x = random_array("x", (1, 2, *size))
    expected = np.full((1, 2, 5, width), LEAST)
    expected[:, :, :4, :4] = x[:, :, ::2, ::2]
    check('type: "Pooling" pooling_param { kernel_size: 1 stride: 2 }', [x], expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("pool: AVE kernel_size: 1 stride: 2",
         "its last window is outside the image, and the average of no element is not a number"),
        ("kernel_size: 10 stride: 2", "its window of 10 exceeds the image of size 8"),
        ("kernel_size: 9 stride: 2 ceil_mode: false", "its window of 9 exceeds the image of size 8"),
    ],
)  # fmt: skip
def test_windows_of_pooling_without_a_result_are_refused(parameters: str, message: str):
    with pytest.raises(ParseError) as error:
        results_of(f'top: "y" type: "Pooling" pooling_param {{ {parameters} }}', [random_array("x", (1, 2, 8, 8))])
    assert str(error.value) == f"layer[1] y: {message}"


@pytest.mark.parametrize(("pool", "function"), [("MAX", np.max), ("AVE", np.mean)])
def test_a_window_of_pooling_that_exceeds_the_image_by_less_than_its_stride_is_cut(
    pool: str, function: Callable[..., Array]
):
    x = random_array("x", (1, 3, 2, 4))
    expected = np.concatenate([function(x[..., :3], (2, 3)), function(x[..., 2:], (2, 3))]).T.reshape(1, 3, 1, 2)
    check(f'type: "Pooling" pooling_param {{ pool: {pool} kernel_size: 3 stride: 2 }}', [x], expected)


def test_holes_are_dilations():
    weights = [random_array("weights", (3, 4, 3, 3)), random_array("bias", (3,))]
    shared = 'type: "Convolution" convolution_param { num_output: 3 kernel_size: 3 pad: 2'
    for text in ("hole: 2", "hole_h: 2 hole_w: 2"):
        [expected, _] = results_of(f'top: "y" {shared} dilation: 2 }}', [IMAGE], weights)
        check(f"{shared} {text} }}", [IMAGE], expected, weights)


def test_roi_pooling_takes_the_maxima_of_regions():
    regions = np.float32([[0, 0, 0, 8, 6], [1, 2, 1, 5, 4], [0, 4, 4, 4, 4]])
    text = 'type: "ROIPooling" roi_pooling_param { pooled_h: 1 pooled_w: 1 spatial_scale: 0.5 }'
    pieces = [IMAGE[0, :, :4, :5], IMAGE[1, :, 1:3, 1:4], IMAGE[0, :, 2:3, 2:3]]
    # 1 / 2 and 5 / 2 are rounded away from zero
    check(text, [IMAGE, regions], np.stack([piece.max((1, 2)) for piece in pieces])[:, :, None, None])
    [result, _] = results_of(f'top: "y" {text}', [IMAGE, regions.reshape(3, 5, 1, 1)])
    assert result.shape == (3, 4, 1, 1)


def test_roi_pooling_refuses_regions_of_four_numbers():
    text = 'top: "y" type: "ROIPooling" roi_pooling_param { pooled_h: 1 pooled_w: 1 }'
    with pytest.raises(ParseError) as error:
        results_of(text, [IMAGE, np.zeros((3, 4), np.float32)])
    assert str(error.value) == (
        "layer[2] y: its bottoms have the shapes [[2, 4, 7, 9], [3, 4]]; "
        "expected images, and five numbers for each region"
    )


def test_batch_reindex_selects_images():
    check('type: "BatchReindex"', [IMAGE, np.float32([1, 0, 1])], IMAGE[[1, 0, 1]])


POOLED = """
layer { name: "p" type: "Pooling" bottom: "x" top: "p" top: "mask" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "u" type: "Upsample" bottom: "p" bottom: "mask" top: "u" upsample_param { upsample_h: 7 upsample_w: 9 } }
"""


@pytest.mark.parametrize("backends", [["CpuRef"], None])
def test_upsample_writes_the_maxima_of_every_channel_to_their_places(backends: list[str] | None):
    expected, places = np.zeros_like(IMAGE), np.zeros((2, 4, 4, 5), np.float32)
    for n, c, i, j in np.ndindex(places.shape):
        window = IMAGE[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        row, column = np.unravel_index(window.argmax(), window.shape)
        places[n, c, i, j] = (2 * i + row) * 9 + 2 * j + column
        expected[n, c, 2 * i + row, 2 * j + column] = window.max()
    text = inputs_text({"x": IMAGE.shape}) + POOLED
    mask, result = ip.load(text.encode(), backends, outputs=["mask", "u"]).run([IMAGE])
    np.testing.assert_array_equal(mask, places)
    np.testing.assert_array_equal(result, expected)


def test_upsample_writes_maxima_to_their_places_and_can_cut_a_row():
    x = np.float32([[[[5, 7]]]])
    check(
        'type: "Upsample" upsample_param { scale: 2 pad_out_h: true }',
        [x, np.float32([[[[1, 2]]]])],
        np.float32([[[[0, 5, 7, 0]]]]),
    )


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ('type: "Exp" exp_param { base: 2 scale: 0.5 shift: 1 }', 2 ** (1 + 0.5 * IMAGE)),
        ('type: "Log" log_param { base: 10 shift: 2 }', np.log10(IMAGE + 2)),
        ('type: "Threshold" threshold_param { threshold: 0.25 }', IMAGE > 0.25),
        ('type: "Clip" clip_param { min: -0.5 max: 0.25 }', IMAGE.clip(-0.5, 0.25)),
        ('type: "ReLU6"', IMAGE.clip(0, 6)),
        ('type: "Tile" tile_param { axis: 2 tiles: 3 }', np.tile(IMAGE, (1, 1, 3, 1))),
        ('type: "Reduction" reduction_param { axis: 2 operation: MEAN coeff: 2 }', 2 * IMAGE.mean((2, 3))),
        ('type: "Reduction" reduction_param { operation: ASUM }', np.abs(IMAGE).sum()),
        ('type: "Reduction" reduction_param { axis: -1 operation: SUMSQ }', (IMAGE**2).sum(-1)),
        ('type: "ArgMax" argmax_param { axis: 1 }', IMAGE.argmax(1)[:, None]),
        ('type: "ArgMax"', IMAGE.reshape(2, -1).argmax(1).reshape(2, 1, 1, 1)),
        ('type: "Upsample" upsample_param { scale: 2 }', IMAGE.repeat(2, 2).repeat(2, 3)),
    ],
)  # fmt: skip
def test_a_layer_of_one_blob_gives_what_numpy_gives(layer: str, expected: Array):
    check(layer, [IMAGE], expected)


def test_operands_are_placed_from_an_axis_on():
    rows, columns = random_array("rows", (2, 4)), random_array("columns", (7,))
    check('type: "Scale" scale_param { axis: 0 }', [IMAGE, rows], IMAGE * rows[:, :, None, None])
    check('type: "Scale" scale_param { axis: 2 }', [IMAGE], IMAGE * columns[:, None], [columns])
    check('type: "Bias" bias_param { axis: -2 }', [IMAGE], IMAGE + columns[:, None], [columns])
    weights = random_array("weights", (5, 9))
    text = 'type: "InnerProduct" inner_product_param { num_output: 5 axis: -1 bias_term: false }'
    check(text, [IMAGE], IMAGE @ weights.T, [weights])
    factors = random_array("factors", (2, 4, 1, 1))
    check('type: "Axpy"', [factors, IMAGE, IMAGE], IMAGE * factors + IMAGE)
