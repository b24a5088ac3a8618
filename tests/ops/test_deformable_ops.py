"""Deformable convolutions: without offsets they are plain ones, and operands that do not fit are reported."""

import numpy as np
import pytest

from interposer.core.types import TensorInfo
from interposer.kernels import compute
from interposer.ops import Convolution2d, DeformableConvolution2d

IMAGE, WEIGHTS, OFFSET = TensorInfo((1, 4, 5, 6)), TensorInfo((2, 4, 3, 3)), TensorInfo((1, 18, 3, 4))


@pytest.mark.parametrize("options", [
    {}, {"stride_x": 2, "pad_left": 1, "pad_bottom": 2}, {"dilation_y": 2, "pad_top": 1}, {"groups": 2},
])  # fmt: skip
def test_without_offsets_it_is_a_convolution(options):
    rng = np.random.default_rng(2)
    groups = options.get("groups", 1)
    x, w = rng.normal(size=(2, 4, 7, 6)), rng.normal(size=(4, 4 // groups, 3, 2))
    expected = compute(Convolution2d(**options), x, w)
    offset = np.zeros((2, 12, *expected.shape[2:]))
    np.testing.assert_allclose(compute(DeformableConvolution2d(**options), x, w, offset), expected, atol=1e-12)


def test_whole_offsets_move_the_image():
    x, w = np.arange(12.0).reshape(1, 1, 3, 4), np.ones((1, 1, 1, 1))
    offset = np.stack([np.ones((3, 4)), -np.ones((3, 4))])[np.newaxis]
    expected = [[0, 4, 5, 6], [0, 8, 9, 10], [0, 0, 0, 0]]
    assert compute(DeformableConvolution2d(), x, w, offset)[0, 0].tolist() == expected


def test_a_pixel_of_weight_zero_does_not_count_even_if_it_is_infinite():
    x, w = np.array([[[[1.0, np.inf, np.nan]]]]), np.ones((1, 1, 1, 1))
    assert compute(DeformableConvolution2d(), x, w, np.zeros((1, 2, 1, 3)))[0, 0, 0, :2].tolist() == [1, np.inf]


@pytest.mark.parametrize(("infos", "options", "fault"), [
    ((TensorInfo((1, 3, 5, 6)), WEIGHTS, OFFSET), {},
     "input has 3 channels and weights [2, 4, 3, 3]; mismatch with groups = 1"),
    ((IMAGE, WEIGHTS, OFFSET), {"offset_groups": 3}, "input has 4 channels; expected a multiple of offset_groups = 3"),
    ((IMAGE, WEIGHTS, TensorInfo((1, 9, 3, 4))), {}, "offset has shape [1, 9, 3, 4]; expected [1, 18, 3, 4]"),
    ((IMAGE, WEIGHTS, OFFSET, TensorInfo((3,))), {}, "bias has 3 elements; expected 2, one for each output channel"),
    ((IMAGE, WEIGHTS, OFFSET, None, TensorInfo((1, 9, 3, 3))), {},
     "mask has shape [1, 9, 3, 3]; expected [1, 9, 3, 4]"),
])  # fmt: skip
def test_what_does_not_fit_is_told(infos, options, fault):
    assert DeformableConvolution2d(**options).violations(*infos)[0] == fault
