"""Changing how numbers are stored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import (
    Cast,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    FakeQuantization,
    Quantize,
    RoundingMethod,
)
from tests.computing import compute

Q = Quantization(0.5, 3)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (RoundingMethod.HALF_AWAY_FROM_ZERO, [4, 2, 5, 6, 0]),
        (RoundingMethod.HALF_TO_EVEN, [3, 3, 5, 5, 1]),
    ],
)
def test_real_numbers_half_way_go_where_the_operator_says(rounding, expected):
    x = np.array([0.25, -0.25, 0.75, 1.25, -1.25], np.float32)
    assert compute(Quantize(rounding=rounding), x, result=Q).tolist() == expected


def test_real_numbers_out_of_range_are_clamped_and_nan_is_zero():
    x = np.array([1e30, -np.inf, np.nan], np.float32)
    assert compute(Quantize(DataType.INT8), x, result=Q).tolist() == [127, -128, 3]


def test_scales_may_lie_along_an_axis_both_ways():
    q = Quantization([1.0, 0.25], [0, -4], axis=1)
    x = np.array([[1.0, 1.0], [-2.0, -2.0]], np.float32)
    codes = compute(Quantize(DataType.INT8), x, result=q)
    assert codes.tolist() == [[1, 0], [-2, -12]]
    np.testing.assert_array_equal(compute(Dequantize(), codes, quantized=[q]), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_of_any_type_are_quantized_and_come_back(dtype):
    x = np.array([-1.5, 0.0, 4.0]).astype(DataType.of(dtype).numpy)
    codes = compute(Quantize(), x, result=Q)
    assert codes.tolist() == [0, 3, 11]
    result = compute(Dequantize(DataType.of(dtype)), codes, quantized=[Q])
    assert result.dtype == x.dtype
    assert result.tolist() == x.tolist()


@given(st.integers(0, 255), st.floats(1e-6, 1e6), st.integers(0, 255))
def test_a_code_survives_being_dequantized_and_quantized(code, scale, zero_point):
    q = Quantization(np.float32(scale), zero_point)
    real = compute(Dequantize(), np.array([code], np.uint8), quantized=[q])
    assert compute(Quantize(), real, result=q).item() == code


def test_codes_of_one_scale_become_codes_of_another():
    codes = np.array([0, 127, 128, 255], np.uint8)
    result = compute(Quantize(DataType.INT8), codes, quantized=[Quantization(0.5, 128)], result=Quantization(0.5, 0))
    assert result.tolist() == [-128, -1, 0, 127]


def test_a_result_without_scale_is_refused():
    with pytest.raises(InvalidArgumentError, match="the output has no scale; declare it with outputs="):
        evaluate(Quantize(), [np.zeros(1, np.float32)], [TensorInfo((1,))], [TensorInfo((1,), "uint8")])


def test_fake_quantization_gives_numbers_of_the_steps():
    x = np.array([-10, -0.01, 0.0, 0.01, 0.02, 1.0, 10], np.float32)
    step = np.float32(1.0) / 255
    result = compute(FakeQuantization(0.0, 1.0), x)
    np.testing.assert_allclose(result, [0, 0, 0, 3 * step, 5 * step, 1, 1], rtol=1e-6)


def test_the_range_of_fake_quantization_is_moved_so_that_zero_is_a_step():
    result = compute(FakeQuantization(-0.1, 1.0, num_bits=2), np.array([-1, 0, 2], np.float32))
    np.testing.assert_allclose(result, [0, 0, 1.1], rtol=1e-6)


def test_a_narrow_range_leaves_out_the_least_step():
    x, wide = np.linspace(-2, 2, 101, dtype=np.float32), FakeQuantization(-1.0, 1.0, num_bits=2)
    assert len(np.unique(compute(wide, x))) == 4
    assert np.unique(compute(wide.replace(narrow_range=True), x)).tolist() == [-1, 0, 1]


def test_conversions_round_to_the_nearest_half_to_even():
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, 70000], np.float32)
    assert compute(ConvertFp32ToFp16(), x).tolist() == [1, 1 + 2**-9, np.inf]
    y = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    narrow = compute(ConvertFp32ToBf16(), y)
    assert compute(ConvertBf16ToFp32(), narrow).tolist() == [1, 1 + 2**-6]
    assert compute(ConvertFp16ToFp32(), np.array([0.5], np.float16)).dtype == np.float32


@pytest.mark.parametrize(
    ("given_", "dtype", "expected"),
    [
        (np.float32([1.9, -1.9, 300, -300, np.nan, np.inf]), "int8", [1, -1, 127, -128, 0, 127]),
        (np.float32([1e30, -1e30, -1.5]), "int64", [2**63 - 1, -(2**63), -1]),
        (np.float32([1e30, -1, 2.0**63]), "uint64", [2**64 - 1, 0, 2**63]),
        (np.int32([300, -1]), "uint8", [44, 255]),
        (np.float32([0.0, -0.0, 0.1, np.nan]), "bool", [False, False, True, True]),
        (np.array([True, False]), "float16", [1.0, 0.0]),
        (np.int8([-1, 2]), "bfloat16", [-1.0, 2.0]),
        (np.array([-1, 7], DataType.INT4.numpy), "uint4", [15, 7]),
        (np.array([15, 7], DataType.UINT4.numpy), "int4", [-1, 7]),
    ],
)
def test_casting_clamps_floats_and_wraps_integers(given_, dtype, expected):
    result = compute(Cast(DataType.of(dtype)), given_)
    assert result.dtype == DataType.of(dtype).numpy
    assert result.tolist() == expected


def test_casting_takes_stored_integers_as_they_are():
    assert compute(Cast(DataType.FLOAT32), np.uint8([5]), quantized=[Q]).tolist() == [5.0]
