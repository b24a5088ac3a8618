import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import FLOATS, Quantization, TensorInfo
from interposer.kernels import KernelInfo, evaluate, reference
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    UnaryOperation,
    Where,
)
from tests.computing import compute

F32 = np.float32


def binary(operation, a, b):
    return compute(ElementwiseBinary(operation).canonical(), np.asarray(a), np.asarray(b))


def unary(operation, x):
    return compute(ElementwiseUnary(operation), np.asarray(x))


# --- plain numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (BinaryOperation.ADD, [9, -5, 4]),
        (BinaryOperation.SUB, [5, -9, 6]),
        (BinaryOperation.MUL, [14, -14, -5]),
        (BinaryOperation.DIV, [3, -3, -5]),
        (BinaryOperation.FLOOR_DIV, [3, -4, -5]),
        (BinaryOperation.MOD, [1, 1, 0]),
        (BinaryOperation.FMOD, [1, -1, 0]),
        (BinaryOperation.MAXIMUM, [7, 2, 5]),
        (BinaryOperation.MINIMUM, [2, -7, -1]),
        (BinaryOperation.SQ_DIFF, [25, 81, 36]),
        (BinaryOperation.POWER, [49, 49, 0]),
        (BinaryOperation.BITWISE_AND, [2, 0, 5]),
        (BinaryOperation.BITWISE_OR, [7, -5, -1]),
        (BinaryOperation.BITWISE_XOR, [5, -5, -6]),
    ],
)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_are_computed_as_integers(operation, expected, dtype):
    result = binary(operation, np.array([7, -7, 5], dtype), np.array([2, 2, -1], dtype))
    assert result.tolist() == expected


@pytest.mark.parametrize(
    "operation", [BinaryOperation.DIV, BinaryOperation.FLOOR_DIV, BinaryOperation.MOD, BinaryOperation.FMOD]
)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_an_integer_divided_by_zero_gives_zero(operation, dtype):
    assert binary(operation, np.array([5, 0], dtype), np.array([0, 0], dtype)).tolist() == [0, 0]


def test_floats_divided_by_zero_give_infinity_or_no_number():
    result = binary(BinaryOperation.DIV, F32([1, -1, 0]), F32([0, 0, 0]))
    np.testing.assert_array_equal(result, [np.inf, -np.inf, np.nan])


def test_integers_wrap_around():
    assert binary(BinaryOperation.ADD, np.int8([127]), np.int8([1])).tolist() == [-128]
    assert binary(BinaryOperation.SUB, np.uint8([0]), np.uint8([1])).tolist() == [255]
    assert binary(BinaryOperation.DIV, np.int8([-128]), np.int8([-1])).tolist() == [-128]


def test_whole_powers_with_negative_exponents_truncate_towards_zero():
    result = binary(BinaryOperation.POWER, np.int32([2, 1, -1, -1, 0]), np.int32([-1, -5, -3, -4, -2]))
    assert result.tolist() == [0, 1, -1, 1, 0]


def test_an_integer_to_the_power_of_a_float_truncates_towards_zero():
    assert binary(BinaryOperation.POWER, np.int32([2, 9, 0]), F32([1.5, 0.5, -1])).tolist() == [2, 3, 0]


def test_a_float_to_the_power_of_an_integer_stays_a_float():
    result = binary(BinaryOperation.POWER, F32([1.5]), np.int64([2]))
    assert result.dtype == F32
    assert result.tolist() == [2.25]


def test_shifts_move_all_bits_out_where_they_are_wide_enough():
    assert binary(BinaryOperation.SHIFT_LEFT, np.uint8([3, 3]), np.uint8([7, 8])).tolist() == [128, 0]
    assert binary(BinaryOperation.SHIFT_RIGHT, np.int8([-5, -5]), np.int8([1, 9])).tolist() == [-3, -1]


def test_the_larger_of_a_number_and_no_number_is_no_number():
    for operation in (BinaryOperation.MAXIMUM, BinaryOperation.MINIMUM):
        assert np.isnan(binary(operation, F32([np.nan, 1]), F32([1, np.nan]))).all()


def test_an_angle_knows_its_quadrant():
    result = binary(BinaryOperation.ATAN2, F32([1, -1]), F32([-1, -1]))
    np.testing.assert_allclose(result, [3 * np.pi / 4, -3 * np.pi / 4], rtol=1e-6)


def test_truth_values_have_bits_and_an_order():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert binary(BinaryOperation.BITWISE_XOR, a, b).tolist() == [False, True, False]
    assert compute(Maximum(), a, b).tolist() == [True, True, False]
    assert compute(Minimum(), a, b).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once_at_the_end(dtype):
    a, b = np.array([1.0], dtype), np.array([2.0**-9], dtype)
    difference = a.astype(F32) - b.astype(F32)
    assert binary(BinaryOperation.SQ_DIFF, a, b) == (difference**2).astype(dtype)


@pytest.mark.parametrize("dtype", sorted(FLOATS, key=str))
def test_every_float_is_added(dtype):
    [result] = compute(Addition(), np.array([1.5], dtype.numpy), np.array([0.5], dtype.numpy))
    assert result == 2


def test_what_is_not_defined_is_refused_with_the_type():
    with pytest.raises(InvalidArgumentError) as error:
        binary(BinaryOperation.BITWISE_AND, F32([1]), F32([1]))
    assert str(error.value) == "ElementwiseBinary: BITWISE_AND of float32 is not defined"
    with pytest.raises(InvalidArgumentError) as error:
        unary(UnaryOperation.SIN, np.int32([1]))
    assert str(error.value) == "ElementwiseUnary: SIN of int32 is not defined"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (UnaryOperation.ABS, [2.5, 0, 1.5]),
        (UnaryOperation.NEG, [2.5, 0, -1.5]),
        (UnaryOperation.SIGN, [-1, 0, 1]),
        (UnaryOperation.SQUARE, [6.25, 0, 2.25]),
        (UnaryOperation.CEIL, [-2, 0, 2]),
        (UnaryOperation.FLOOR, [-3, 0, 1]),
        (UnaryOperation.ROUND, [-2, 0, 2]),
        (UnaryOperation.EXP, [0.0820850, 1, 4.4816890]),
        (UnaryOperation.SQRT, [np.nan, 0, 1.2247449]),
        (UnaryOperation.RSQRT, [np.nan, np.inf, 0.8164966]),
        (UnaryOperation.LOG, [np.nan, -np.inf, 0.4054651]),
        (UnaryOperation.RECIPROCAL, [-0.4, np.inf, 0.6666667]),
        (UnaryOperation.SIN, [-0.5984721, 0, 0.9974950]),
        (UnaryOperation.COS, [-0.8011436, 1, 0.0707372]),
        (UnaryOperation.TAN, [0.7470223, 0, 14.1014200]),
        (UnaryOperation.ERF, [-0.9995930, 0, 0.9661051]),
        (UnaryOperation.ATAN, [-1.1902899, 0, 0.9827937]),
        (UnaryOperation.SINH, [-6.0502045, 0, 2.1292794]),
        (UnaryOperation.COSH, [6.1322895, 1, 2.3524096]),
        (UnaryOperation.ASINH, [-1.6472311, 0, 1.1947632]),
        (UnaryOperation.ACOSH, [np.nan, np.nan, 0.9624237]),
    ],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-6), (np.float16, 2e-3)])
def test_functions_of_one_number(operation, expected, dtype, tolerance):
    result = unary(operation, np.array([-2.5, 0, 1.5], dtype))
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [(UnaryOperation.ASIN, 0.5235988), (UnaryOperation.ACOS, 1.0471976), (UnaryOperation.ATANH, 0.5493061)],
)
def test_functions_of_a_number_between_minus_one_and_one(operation, expected):
    assert unary(operation, F32([0.5])) == pytest.approx(expected, rel=1e-6)


def test_halves_are_rounded_to_even_numbers():
    assert unary(UnaryOperation.ROUND, F32([0.5, 1.5, -0.5, -1.5])).tolist() == [0, 2, 0, -2]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (UnaryOperation.IS_NAN, [True, False, False, False]),
        (UnaryOperation.IS_INF, [False, True, True, False]),
        (UnaryOperation.IS_POSITIVE_INF, [False, True, False, False]),
        (UnaryOperation.IS_NEGATIVE_INF, [False, False, True, False]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_what_is_no_ordinary_number_is_told(operation, expected, dtype):
    assert unary(operation, np.array([np.nan, np.inf, -np.inf, 1], dtype)).tolist() == expected


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (UnaryOperation.ABS, [-128, 3, 1, 0]),
        (UnaryOperation.NEG, [-128, 3, -1, 0]),
        (UnaryOperation.SIGN, [-1, -1, 1, 0]),
        (UnaryOperation.FLOOR, [-128, -3, 1, 0]),
        (UnaryOperation.RECIPROCAL, [0, 0, 1, 0]),
        (UnaryOperation.BITWISE_NOT, [127, 2, -2, -1]),
    ],
)
def test_functions_of_integers_give_integers(operation, expected):
    assert unary(operation, np.int8([-128, -3, 1, 0])).tolist() == expected


def test_floor_is_a_layer_of_its_own():
    assert compute(Floor(), np.array([1.5, -1.5], ml_dtypes.bfloat16)).tolist() == [1, -2]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ComparisonOperation.EQUAL, [False, True, False]),
        (ComparisonOperation.NOT_EQUAL, [True, False, True]),
        (ComparisonOperation.LESS, [True, False, False]),
        (ComparisonOperation.LESS_OR_EQUAL, [True, True, False]),
        (ComparisonOperation.GREATER, [False, False, True]),
        (ComparisonOperation.GREATER_OR_EQUAL, [False, True, True]),
    ],
)
@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float64, ml_dtypes.bfloat16])
def test_numbers_compare(operation, expected, dtype):
    result = compute(Comparison(operation), np.array([1, 2, 3], dtype), np.array(2, dtype))
    assert result.tolist() == expected


def test_texts_and_truth_values_compare():
    texts = np.array(["a", "b"], object)
    assert compute(Comparison(ComparisonOperation.EQUAL), texts, np.array(["a", "c"], object)).tolist() == [True, False]
    truths = np.array([True, False])
    assert compute(Comparison(ComparisonOperation.NOT_EQUAL), truths, truths[::-1]).tolist() == [True, True]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (LogicalBinaryOperation.LOGICAL_AND, [True, False, False]),
        (LogicalBinaryOperation.LOGICAL_OR, [True, True, False]),
        (LogicalBinaryOperation.LOGICAL_XOR, [False, True, False]),
    ],
)
def test_truth_values_are_joined(operation, expected):
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert compute(LogicalBinary(operation), a, b).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, object])
def test_a_choice_moves_elements_of_any_type(dtype):
    a, b = np.array([1, 0], dtype), np.array([[0], [1]], dtype)
    result = compute(Where(), np.array([True, False]), a, b)
    assert result.tolist() == np.array([[1, 0], [1, 1]], dtype).tolist()


def test_the_slope_is_taken_where_the_input_is_negative():
    result = compute(Prelu(), F32([[-2, 3], [0, -4]]), F32([0.5, -1]))
    assert result.tolist() == [[-1, 3], [0, 4]]


# --- quantized numbers ------------------------------------------------------------------------------------------------


def test_a_quantized_sum_is_rounded_to_the_steps_of_its_result():
    result = compute(
        Addition(), np.uint8([10, 250]), np.uint8([20, 255]),
        quantized=[Quantization(0.5, 10), Quantization(0.25, 0)], result=Quantization(1.0, 5),
    )  # fmt: skip
    assert result.tolist() == [10, 189]


@pytest.mark.parametrize("op", [Addition(), Multiplication(), ElementwiseBinary(BinaryOperation.SQ_DIFF), Prelu()])
@given(data=st.data())
def test_a_table_of_all_pairs_gives_what_the_arithmetic_gives(op, data):
    quantized = [Quantization(0.02, -3), Quantization(data.draw(st.floats(0.01, 0.1)), 5)]
    seed = data.draw(st.integers(0, 1000))
    a, b = np.random.default_rng(seed).integers(-128, 128, (2, 2**16)).astype(np.int8)
    by_table = compute(op, a, b, quantized=quantized, result=Quantization(0.05, 1))
    part = compute(op, a[:100], b[:100], quantized=quantized, result=Quantization(0.05, 1))
    np.testing.assert_array_equal(by_table[:100], part)


steps = st.floats(0.01, 1).map(F32)


@given(arrays.arrays(np.int8, 20, elements=st.integers(-128, 127)), steps, steps, st.integers(-128, 127))
def test_what_tflite_has_no_rule_for_is_within_half_a_step(x, scale, result_scale, zero_point):
    result_quantization = Quantization(result_scale, zero_point)
    quantized_result = compute(
        ElementwiseUnary(UnaryOperation.SIN), x, quantized=[Quantization(scale, 3)], result=result_quantization
    )
    expected = np.clip(np.sin(scale * (x.astype(F32) - 3)) / result_scale + zero_point, -128, 127)
    assert np.abs(quantized_result - expected).max() <= 0.5 + 1e-4


def test_channels_with_scales_of_their_own_are_computed_as_real_numbers():
    per_channel = Quantization([0.5, 2.0], 0, axis=0)
    result = compute(ElementwiseUnary(UnaryOperation.NEG), np.int8([3, 4]), quantized=[per_channel])
    assert result.tolist() == [-3, -4]
    result = compute(
        Addition(),
        np.int8([3, 4]),
        np.int8([1, 1]),
        quantized=[per_channel, Quantization(1.0)],
        result=Quantization(0.5),
    )
    assert result.tolist() == [5, 18]


def test_a_quotient_by_a_quantized_zero_is_zero():
    result = compute(
        Division(), np.uint8([9, 1]), np.uint8([4, 4]), quantized=[Quantization(1.0, 2), Quantization(1.0, 4)],
        result=Quantization(1.0, 7),
    )  # fmt: skip
    assert result.tolist() == [7, 7]


def test_quantized_numbers_compare_as_what_they_stand_for():
    result = compute(
        Comparison(ComparisonOperation.LESS), np.uint8([9, 9]), np.uint8([4, 5]),
        quantized=[Quantization(0.5, 1), Quantization(0.5 * 2, 1)],
    )  # fmt: skip
    assert result.tolist() == [False, False]
    result = compute(
        Comparison(ComparisonOperation.GREATER), np.int16([100]), np.int16([99]),
        quantized=[Quantization(0.001), Quantization(0.002)],
    )  # fmt: skip
    assert result.tolist() == [False]


def test_a_choice_between_quantized_tensors_requantizes_where_it_must():
    condition, a, b = np.array([True, False]), np.int8([4, 4]), np.int8([3, 3])
    same = compute(Where(), condition, a, b, quantized=[None, Quantization(0.5), Quantization(0.5)])
    assert same.tolist() == [4, 3]
    mixed = compute(Where(), condition, a, b, quantized=[None, Quantization(0.5), Quantization(2.0)])
    assert mixed.tolist() == [4, 12]


@pytest.mark.parametrize(
    ("a", "b", "result", "reason"),
    [
        (Quantization(1.0), None, Quantization(1.0), "b is not quantized, unlike a"),
        (None, Quantization(1.0), None, "b is quantized, unlike a"),
        (Quantization(1.0), Quantization(1.0), None, "output is not quantized, unlike a"),
    ],
)
def test_a_mixture_of_quantized_and_plain_integers_is_refused(a, b, result, reason):
    infos = [TensorInfo((1,), "int8", quantization) for quantization in (a, b, result)]
    with pytest.raises(InvalidArgumentError) as error:
        evaluate(Addition(), [np.int8([1]), np.int8([1])], infos[:2], infos[2:])
    assert reason in str(error.value)


def test_the_reference_takes_every_unary_operation_on_some_type():
    for operation in UnaryOperation:
        op = ElementwiseUnary(operation)
        infos = [TensorInfo((1,), dtype) for dtype in ("float32", "int32", "bool")]
        valid = [info for info in infos if not op.violations(info)]
        assert any(reference().find(op, KernelInfo.of(op, [info], op.infer_infos(info))) for info in valid), operation
