"""Hints at the cause of a wrong result, each from the wrong numbers themselves."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.testing import Tolerances
from interposer.testing.tolerances import bias

NAN, INF = np.nan, np.inf
NUMBERS = np.random.default_rng(5).uniform(-4.0, 4.0, (4, 6, 7)).astype(np.float32)
STEPS = np.random.default_rng(6).integers(-90, 90, (4, 6, 7)).astype(np.int8)
Q = Quantization(0.5)


def given(array: Array, q: Quantization | None = None) -> tuple[Array, TensorInfo]:
    return array, TensorInfo(array.shape, DataType.of(array.dtype), q)


def hint(
    actual: Array,
    wanted: Array,
    q: Quantization | None = None,
    inputs: tuple[tuple[Array, TensorInfo], ...] = (),
    earlier: Array | None = None,
    tolerances: Tolerances | None = None,
) -> str:
    """What the failure of a result says after "hint: "; empty without a hint."""
    info = TensorInfo(wanted.shape, DataType.of(wanted.dtype), q)
    text = (tolerances or Tolerances()).difference(actual.astype(wanted.dtype), wanted, info, inputs, earlier)
    assert text is not None
    return text.partition("; hint: ")[2]


def with_wrong(places: object, wanted: Array = NUMBERS) -> Array:
    """A result that is wrong at some places, by another number at each."""
    wrong_copy = wanted.copy()
    wrong_copy[places] += np.random.default_rng(7).uniform(1.0, 9.0, wanted.shape).astype(wanted.dtype)[places]
    return wrong_copy


# --- offsets and factors ----------------------------------------------------------------------------------------------


def test_an_offset_of_every_element_is_named_with_its_size() -> None:
    assert hint(NUMBERS + 1, NUMBERS) == "every element is too high by 1: zero point or bias?"
    assert hint(STEPS - 4, STEPS, Q) == "every element is too low by 4 steps: zero point or bias?"


def test_an_offset_of_one_step_is_named_where_no_step_is_allowed() -> None:
    text = hint(STEPS + 1, STEPS, Q, tolerances=Tolerances(steps=0))
    assert text == "every element is one step too high: rounding or bias?"


def test_a_factor_of_every_element_is_named_with_its_size() -> None:
    assert hint(NUMBERS * 2.5, NUMBERS) == "every element is 2.5 times the right one: scale?"
    assert hint(-NUMBERS, NUMBERS) == "every element has the wrong sign"


def test_a_factor_of_each_channel_is_named_with_the_axis_of_the_channels() -> None:
    factors = np.float32([1, 2, 4, 0.5, 3, 7]).reshape(6, 1)
    expected = "every slice along axis 1 has a factor of its own: scales of channels taken as one, or mixed up?"
    assert hint(NUMBERS * factors, NUMBERS) == expected


def test_an_offset_of_each_channel_is_named_with_the_axis_of_the_channels() -> None:
    offsets = np.float32([1, 2, -4, 5, 3, 7]).reshape(6, 1)
    expected = "every slice along axis 1 has an offset of its own: bias or zero points of channels?"
    assert hint(NUMBERS + offsets, NUMBERS) == expected


# --- rounding and bias ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (np.floor, "steps too low, and may be 0.25; hint: rounded down (floor) instead of to the nearest?"),
        (np.ceil, "steps too high, and may be 0.25; hint: rounded up instead of to the nearest?"),
        (np.trunc, "steps too near to zero, and may be 0.25; hint: truncated instead of rounded?"),
    ],
)
def test_a_rounding_that_is_wrong_within_one_step_shows_in_the_mean(rounding: np.ufunc, expected: str) -> None:
    real = np.random.default_rng(8).uniform(-100.0, 100.0, 2000)
    actual, requested = (each(real).astype(np.int8) for each in (rounding, np.rint))
    error = bias(actual, requested, TensorInfo((2000,), "int8", Q))
    assert error is not None
    assert error.endswith(expected)


def test_an_offset_of_one_step_shows_in_the_mean() -> None:
    expected = np.tile(STEPS.reshape(-1), 4)
    error = bias(expected + np.int8(1), expected, TensorInfo(expected.shape, "int8", Q))
    assert error == (
        f"{expected.size} elements are on average 1.00 steps too high, and may be 0.25; hint: an offset of one step, "
        "in the rounding or the zero point?"
    )


def test_a_rounding_to_the_nearest_is_no_bias() -> None:
    real = np.random.default_rng(9).uniform(-100.0, 100.0, 2000)
    array = np.rint(real + np.random.default_rng(1).uniform(-0.3, 0.3, 2000)).astype(np.int8)
    assert bias(array, np.rint(real).astype(np.int8), TensorInfo((2000,), "int8", Q)) is None


def test_a_clamp_that_misses_the_end_of_the_range_is_named_with_both_ends() -> None:
    expected = np.full(100, -128, np.int8)
    error = bias(np.full(100, -127, np.int8), expected, TensorInfo((100,), "int8", Q))
    assert error == (
        "100 of 100 elements that saturate at -128 are not -128 but mostly -127; hint: clamped to -127 instead of -128?"
    )


def test_numbers_halfway_between_two_integers_are_named() -> None:
    x = np.float32([0.5, 1.5, 2.5, -0.5, 1.2, 2.9, -3.4])
    actual, requested = np.trunc(x + np.copysign(0.5, x)), np.rint(x)
    expected = "only numbers halfway between two integers are wrong: half to even, or half away from zero?"
    assert hint(actual.astype(np.float32), requested, inputs=(given(x),)) == expected


def test_a_type_that_is_too_coarse_is_named() -> None:
    array = NUMBERS.astype(np.float16).astype(np.float32)
    expected = "every element is a float16 number: computed, summed or stored in float16?"
    assert hint(array, NUMBERS) == expected


# --- ranges -----------------------------------------------------------------------------------------------------------


def test_a_clamp_is_named_with_its_limits() -> None:
    text = hint(np.clip(NUMBERS, -1, 1), NUMBERS)
    assert text.startswith("clamped to -1 and 1, although results reach from -")
    assert text.endswith(": saturation?")


def test_integers_that_wrap_around_instead_of_saturating_are_named() -> None:
    wide = STEPS.astype(np.int32) * 2
    actual, requested = wide.astype(np.int8), np.clip(wide, -128, 127).astype(np.int8)
    expected = "elements beyond the range wrap around instead of saturating at -128 and 127"
    assert hint(actual, requested, Q) == expected


def test_an_accumulator_that_is_too_narrow_is_named_with_its_bits() -> None:
    requested = STEPS.astype(np.int32) * 1000
    array = requested.astype(np.int16).astype(np.int32)
    expected = "elements are off by multiples of 2**16 in the sum: is the accumulator only 16 bits wide?"
    assert hint(array, requested) == expected


# --- special values ---------------------------------------------------------------------------------------------------


def test_special_values_are_named() -> None:
    requested, spread = NUMBERS.copy(), NUMBERS.copy()
    requested[1, 2, 3] = NAN
    assert hint(NUMBERS, requested) == "NaN is lost: does a comparison such as max, min or clamp drop it?"
    spread[1, 2, 3:5] = NAN
    expected = "NaN appears in elements that must not depend on it: do 0 * NaN or Inf - Inf spread?"
    assert hint(spread, NUMBERS) == expected
    spread[1, 2, 3:5] = INF
    assert hint(spread, NUMBERS) == "infinities appear in place of finite numbers: overflow?"


def test_denormal_numbers_that_are_flushed_to_zero_are_named() -> None:
    tiny = np.float32([1e-40, 3e-41, -2e-39])
    assert hint(np.zeros_like(tiny), tiny) == "denormal numbers are flushed to zero"


def test_the_sign_of_a_zero_is_named_where_bits_count() -> None:
    exact = Tolerances().exact(bits=True)
    text = hint(np.float32([0.0, 1.0]), np.float32([-0.0, 1.0]), tolerances=exact)
    assert text == "only the sign of zeros is wrong: -0.0 and 0.0 are different numbers here"


# --- memory and place -------------------------------------------------------------------------------------------------


def test_an_output_that_is_never_written_to_is_named() -> None:
    expected = "the output still holds what the kit filled the memory with: was it never written to?"
    assert hint(np.full_like(NUMBERS, NAN), NUMBERS) == expected


def test_a_result_of_the_run_before_is_named() -> None:
    expected = "equal to the result of the run before: is the output stale, or were the inputs not read again?"
    assert hint(NUMBERS[::-1], NUMBERS, earlier=NUMBERS[::-1]) == expected


def test_axes_in_another_order_are_named() -> None:
    array = NUMBERS.transpose(0, 2, 1).reshape(NUMBERS.shape)
    expected = "equal to the right result with its axes in the order [0, 2, 1]: layout, or axes swapped?"
    assert hint(array, NUMBERS) == expected


def test_a_result_that_is_reversed_or_moved_is_named_with_the_axis() -> None:
    assert hint(NUMBERS[:, ::-1], NUMBERS) == "equal to the right result reversed along axis 1"
    expected = "the right result moved by 1 along axis 2: padding or start at the wrong side?"
    assert hint(np.roll(NUMBERS, 1, axis=2), NUMBERS) == expected


def test_the_tail_of_a_vector_is_named_with_the_width_of_the_vector() -> None:
    expected = "only elements from 4 on along axis 1 (of 6) are wrong: the tail of a vector of 4?"
    assert hint(with_wrong(np.s_[:, 4:]), NUMBERS) == expected


def test_the_border_of_an_image_is_named_with_its_axes() -> None:
    border = np.ones(NUMBERS.shape, bool)
    border[:, 1:-1, 1:-1] = False
    assert hint(with_wrong(border), NUMBERS) == "only elements at the border of axes [1, 2] are wrong: padding?"


def test_some_slices_along_an_axis_are_named() -> None:
    assert hint(with_wrong(np.s_[:, :, 2:4]), NUMBERS) == "only elements at [2, 3] along axis 2 are wrong"
    expected = "only the first slice along axis 0 is right: is the batch ignored?"
    assert hint(with_wrong(np.s_[1:]), NUMBERS) == expected


def test_truth_values_that_are_inverted_are_named() -> None:
    assert hint(NUMBERS <= 0, NUMBERS > 0) == "every truth value is inverted"


def test_a_few_elements_that_show_no_pattern_get_no_hint() -> None:
    assert hint(with_wrong((np.array([0, 1, 3]), np.array([0, 3, 2]), np.array([3, 2, 0]))), NUMBERS) == ""
