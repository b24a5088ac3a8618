import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Quantization
from interposer.ops.grid import AffineGrid, GridPadding, GridSample, GridSampleMode
from tests.computing import compute

F32 = np.float32
IMAGES = arrays.arrays(F32, (1, 2, 3, 4), elements=st.integers(-9, 9).map(F32))
PLACES = arrays.arrays(F32, (1, 2, 3, 2), elements=st.floats(-3, 3, width=32))
IDENTITY = F32([[[1, 0, 0], [0, 1, 0]]])
LINEAR, NEAREST, CUBIC = GridSampleMode.LINEAR, GridSampleMode.NEAREST, GridSampleMode.CUBIC


@given(IMAGES, st.sampled_from(GridSampleMode), st.sampled_from(GridPadding), st.booleans())
@settings(max_examples=30)
def test_the_grid_of_the_identity_gives_the_image_itself(image, mode, padding, corners):
    grid = compute(AffineGrid((3, 4), corners), IDENTITY)
    result = compute(GridSample(mode, padding, corners), image, grid)
    np.testing.assert_allclose(result, image, atol=1e-4)


@given(IMAGES, PLACES, st.sampled_from([LINEAR, CUBIC]), st.booleans())
@settings(max_examples=30)
def test_beyond_the_border_the_image_continues_with_its_outer_pixels(image, places, mode, corners):
    extended = np.pad(image, ((0, 0), (0, 0), (8, 8), (8, 8)), mode="edge")
    small, large = (F32(shape[:1:-1]) - corners for shape in (image.shape, extended.shape))
    result = compute(GridSample(mode, GridPadding.BORDER, corners), image, places)
    expected = compute(GridSample(mode, GridPadding.BORDER, corners), extended, places * small / large)
    np.testing.assert_allclose(result, expected, atol=1e-3)


def test_a_cubic_curve_at_the_border_mixes_the_outer_pixel_several_times():
    line, places = F32([[[[1, 2, 4]]]]), F32([[[[-1.5, 0], [-9, 0], [9, 0], [np.inf, 0]]]])
    result = compute(GridSample(CUBIC, GridPadding.BORDER, align_corners=True), line, places)
    np.testing.assert_allclose(result.ravel(), [0.90625, 1, 4, 4])


@given(IMAGES, PLACES, st.sampled_from([LINEAR, CUBIC]), st.sampled_from(GridPadding), st.booleans())
@settings(max_examples=30)
def test_a_mirrored_image_is_sampled_at_mirrored_places(image, places, mode, padding, corners):
    op = GridSample(mode, padding, corners)
    mirrored = compute(op, image[..., ::-1], places * F32([-1, 1]))
    np.testing.assert_allclose(mirrored, compute(op, image, places), atol=1e-3)


@given(IMAGES, PLACES, st.booleans())
@settings(max_examples=20)
def test_a_reflection_repeats_with_twice_the_image(image, places, corners):
    op = GridSample(LINEAR, GridPadding.REFLECTION, corners)
    moved = compute(op, image, places + F32([4, -4]))
    np.testing.assert_allclose(moved, compute(op, image, places), atol=1e-3)


def test_outside_of_the_image_lie_zeros_and_quantized_ones_are_real():
    far = np.full((1, 1, 1, 2), 9, F32)
    assert compute(GridSample(), np.ones((1, 1, 2, 2), F32), far).item() == 0
    codes, q = np.full((1, 1, 2, 2), 9, np.uint8), [Quantization(0.5, 7)]
    assert compute(GridSample(NEAREST), codes, far, quantized=q).item() == 7
    assert compute(GridSample(LINEAR), codes, far, quantized=q).item() == 7


def test_half_way_between_two_pixels_is_their_mean_or_the_even_one():
    image, half = F32([[[[1, 3]]]]), F32([[[[0, 0]]]])
    assert compute(GridSample(LINEAR, align_corners=True), image, half).item() == 2
    assert compute(GridSample(NEAREST, align_corners=True), image, half).item() == 1


def test_a_cubic_curve_goes_through_a_straight_line():
    line = np.arange(8, dtype=F32).reshape(1, 1, 8)
    places = F32([2.25, 3.5, 4.75])
    grid = (2 * places / 7 - 1).reshape(1, 3, 1).astype(F32)
    result = compute(GridSample(CUBIC, align_corners=True), line, grid)
    np.testing.assert_allclose(result.ravel(), places, atol=0.1)
    np.testing.assert_allclose(result[0, 0, 1], 3.5, rtol=1e-5)


def test_a_single_pixel_is_mirrored_everywhere():
    op = GridSample(LINEAR, GridPadding.REFLECTION, align_corners=True)
    assert compute(op, F32([[[[5]]]]), F32([[[[0.7, -3]]]])).item() == 5


def test_a_grid_is_turned_and_moved():
    quarter = F32([[[0, -1, 0.5], [1, 0, 0]]])
    result = compute(AffineGrid((1, 2), align_corners=True), quarter)
    np.testing.assert_allclose(result, [[[[0.5, -1], [0.5, 1]]]])


def test_integers_that_are_not_quantized_cannot_be_mixed():
    with pytest.raises(InvalidArgumentError, match="^GridSample: input is int32; takes floats and quantized tensors"):
        compute(GridSample(), np.ones((1, 1, 2, 2), np.int32), np.zeros((1, 1, 1, 2), F32))
