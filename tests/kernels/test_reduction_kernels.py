import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation
from tests.computing import compute

F32 = np.float32
X = [[1.0, -2.0, 4.0], [0.5, 8.0, 2.0]]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ReduceOperation.SUM, [3, 10.5]),
        (ReduceOperation.MEAN, [1, 3.5]),
        (ReduceOperation.MAX, [4, 8]),
        (ReduceOperation.MIN, [-2, 0.5]),
        (ReduceOperation.PROD, [-8, 8]),
        (ReduceOperation.L1, [7, 10.5]),
        (ReduceOperation.L2, [4.5825757, 8.2613558]),
        (ReduceOperation.LOG_SUM, [1.0986123, 2.3513753]),
        (ReduceOperation.LOG_SUM_EXP, [4.0509458, 8.0030272]),
        (ReduceOperation.SUM_SQUARE, [21, 68.25]),
    ],
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-6), (F32, 1e-6), (np.float16, 1e-3), (ml_dtypes.bfloat16, 1e-2)]
)
def test_real_numbers_along_an_axis(operation, expected, dtype, tolerance):
    result = compute(Reduce(axis=(1,), operation=operation), np.array(X, dtype))
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ReduceOperation.SUM, -66),
        (ReduceOperation.MEAN, -16),
        (ReduceOperation.PROD, 0),
        (ReduceOperation.MAX, 100),
        (ReduceOperation.MIN, -128),
    ],
)
def test_integers_wrap_around_and_their_mean_truncates(operation, expected):
    assert compute(Reduce(operation=operation), np.int8([100, -128, -127, 89])) == expected


def test_a_mean_of_large_integers_does_not_overflow_on_the_way():
    assert compute(Mean(), np.uint8([255, 255, 253])) == 254
    assert compute(Mean(), np.int32([2**31 - 1, 2**31 - 1])) == 2**31 - 1


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ReduceOperation.ALL, [True, False]),
        (ReduceOperation.ANY, [True, True]),
        (ReduceOperation.MIN, [True, False]),
        (ReduceOperation.MAX, [True, True]),
    ],
)
def test_truth_values(operation, expected):
    result = compute(Reduce(axis=(1,), operation=operation), np.array([[True, True], [False, True]]))
    assert result.tolist() == expected


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ReduceOperation.SUM, 0),
        (ReduceOperation.PROD, 1),
        (ReduceOperation.MAX, -np.inf),
        (ReduceOperation.MIN, np.inf),
        (ReduceOperation.LOG_SUM_EXP, -np.inf),
        (ReduceOperation.MEAN, np.nan),
    ],
)
def test_what_comes_of_nothing(operation, expected):
    np.testing.assert_array_equal(compute(Reduce(axis=(1,), operation=operation), np.empty((2, 0), F32)), expected)


def test_what_comes_of_no_integers():
    nothing = np.empty((0,), np.int8)
    assert compute(Reduce(operation=ReduceOperation.MAX), nothing) == -128
    assert compute(Reduce(operation=ReduceOperation.MIN), nothing) == 127
    assert compute(Mean(), nothing) == 0


def test_great_exponents_do_not_overflow():
    op = Reduce(operation=ReduceOperation.LOG_SUM_EXP)
    np.testing.assert_allclose(compute(op, F32([1000, 1000])), 1000.6931, rtol=1e-6)
    assert compute(op, F32([np.inf, 0])) == np.inf


def test_a_scalar_is_its_own_sum():
    assert compute(Reduce(), np.array(3.0, F32)) == 3
    assert compute(Mean(), np.int8(3), quantized=[Quantization(0.5)]) == 3


@given(
    arrays.arrays(np.int32, (2, 3, 4), elements=st.integers(-1000, 1000)),
    st.lists(st.integers(-3, 2), max_size=3),
    st.booleans(),
)
def test_the_sum_of_sums_is_the_sum(x, axis, keep_dims):
    result = compute(Reduce(axis=tuple(axis), keep_dims=keep_dims), x)
    assert result.sum() == x.sum()
    assert result.ndim == (3 if keep_dims else 3 - len({axi % 3 for axi in axis} or range(3)))


# --- quantized numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "expected"), [(np.int8, 23), (np.uint8, 24)])
def test_sums_of_int8_are_rescaled_in_float32_and_those_of_uint8_in_fixed_point_as_in_tensorflow_lite(dtype, expected):
    shift = 128 if dtype is np.uint8 else 0
    codes = (np.array([[75, 5, -49, 64, 16, 1]]) + shift).astype(dtype)
    source, target = Quantization(0.1, shift - 3), Quantization(0.3, shift - 20)
    total = compute(Reduce((1,), operation=ReduceOperation.SUM), codes, quantized=[source], result=target)
    assert total.tolist() == [expected + shift]


def test_sums_of_int16_use_the_whole_range_and_saturate():
    codes = np.int16([[9000, 8000, 3000], [-9000, -8000, -3000], [30000, 2000, 1000], [-30000, -2000, -1000]])
    total = compute(
        Reduce((1,), operation=ReduceOperation.SUM), codes, quantized=[Quantization(0.5)], result=Quantization(0.5)
    )
    assert total.tolist() == [20000, -20000, 32767, -32768]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize(
    "operation",
    [
        ReduceOperation.SUM,
        ReduceOperation.MEAN,
        ReduceOperation.MAX,
        ReduceOperation.MIN,
        ReduceOperation.PROD,
        ReduceOperation.L1,
        ReduceOperation.L2,
    ],
)
def test_a_quantized_result_is_less_than_a_step_from_the_real_one(operation, dtype):
    codes = np.random.default_rng(5).integers(0, 90, (6, 3)).astype(dtype)
    source, target = Quantization(0.05, 40), Quantization(0.1, 30)
    reduced = compute(Reduce(axis=(1,), operation=operation), codes, quantized=[source], result=target)
    reals = compute(Reduce(axis=(1,), operation=operation), (0.05 * (codes.astype(np.float64) - 40)).astype(F32))
    limits = np.iinfo(dtype)
    np.testing.assert_allclose(reduced, np.clip(reals / 0.1 + 30, limits.min, limits.max), atol=0.7)


def test_the_greatest_of_one_quantization_is_the_greatest_stored_integer():
    result = compute(
        Reduce(axis=(0,), operation=ReduceOperation.MAX), np.int32([[1, 9], [5, 2]]), quantized=[Quantization(0.1, 7)]
    )
    assert result.tolist() == [5, 9]


def test_channels_with_scales_of_their_own_are_computed_as_real_numbers():
    result = compute(
        Mean(axis=(0,)), np.int8([[2, 2], [4, 4]]), quantized=[Quantization([0.5, 2.0], 0, axis=1)],
        result=Quantization(0.25),
    )  # fmt: skip
    assert result.tolist() == [6, 24]


def test_a_product_that_leaves_32_bits_is_saturated():
    result = compute(
        Reduce(operation=ReduceOperation.PROD), np.int8([127] * 9), quantized=[Quantization(0.5, -128)],
        result=Quantization(1.0),
    )  # fmt: skip
    assert result == 127


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int64])
def test_the_place_of_the_least_and_the_greatest(dtype):
    x = np.array([[3, 1, 7], [5, 9, 9]], dtype)
    assert compute(ArgMinMax(), x).tolist() == [1, 0]
    assert compute(ArgMinMax(ArgMinMaxFunction.MAX, axis=0, keep_dims=True), x).tolist() == [[1, 1, 1]]


def test_of_equals_the_first_or_the_last_is_taken():
    x = np.int32([[4, 9, 9], [2, 2, 5]])
    assert compute(ArgMinMax(ArgMinMaxFunction.MAX), x).tolist() == [1, 2]
    assert compute(ArgMinMax(ArgMinMaxFunction.MAX, select_last_index=True), x).tolist() == [2, 2]
    assert compute(ArgMinMax(ArgMinMaxFunction.MIN, select_last_index=True), x).tolist() == [0, 1]


def test_a_place_has_the_type_that_was_asked_for():
    result = compute(ArgMinMax(dtype=DataType.INT64), np.uint8([5, 1]), quantized=[Quantization(0.1, 3)])
    assert result.dtype == np.int64
    assert result == 1


def test_what_is_not_defined_is_refused_with_the_type():
    with pytest.raises(InvalidArgumentError) as error:
        compute(Reduce(operation=ReduceOperation.LOG_SUM), np.int32([1]))
    assert str(error.value) == "Reduce: LOG_SUM of int32 is not defined"
