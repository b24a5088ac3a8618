import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Quantization, TensorInfo
from interposer.kernels import KernelInfo, empty, reference
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from tests.computing import compute

F32 = np.float32
X = [-4.0, -1.0, 0.0, 0.5, 3.0]
EXPECTED = [
    (Activation(ActivationFunction.SIGMOID), [0.0179862, 0.2689414, 0.5, 0.6224593, 0.9525741]),
    (Activation(ActivationFunction.TANH, 2, 0.5), [-1.9280552, -0.9242343, 0, 0.4898373, 1.8102965]),
    (Activation(ActivationFunction.LINEAR, 2, 1), [-7, -1, 1, 2, 7]),
    (Activation(ActivationFunction.RELU), [0, 0, 0, 0.5, 3]),
    (Activation(ActivationFunction.BOUNDED_RELU, 1, -1), [-1, -1, 0, 0.5, 1]),
    (Activation(ActivationFunction.SOFT_RELU), [0.0181499, 0.3132617, 0.6931472, 0.9740770, 3.0485874]),
    (Activation(ActivationFunction.LEAKY_RELU, 0.1), [-0.4, -0.1, 0, 0.5, 3]),
    (Activation(ActivationFunction.ABS), [4, 1, 0, 0.5, 3]),
    (Activation(ActivationFunction.SQRT), [np.nan, np.nan, 0, 0.7071068, 1.7320508]),
    (Activation(ActivationFunction.SQUARE), [16, 1, 0, 0.25, 9]),
    (Activation(ActivationFunction.ELU, 2), [-1.9633687, -1.2642411, 0, 0.5, 3]),
    (Activation(ActivationFunction.HARD_SWISH), [0, -0.3333333, 0, 0.2916667, 3]),
    (Activation(ActivationFunction.GELU), [-0.0001267, -0.1586553, 0, 0.3457312, 2.9959503]),
    (Activation(ActivationFunction.GELU_TANH), [-0.0000702, -0.1588080, 0, 0.3457140, 2.9963627]),
    (Activation(ActivationFunction.SELU, 1.6732632, 1.0507010), [-1.7258986, -1.1113307, 0, 0.5253505, 3.1521030]),
    (Activation(ActivationFunction.CELU, 2), [-1.7293294, -0.7869387, 0, 0.5, 3]),
    (Activation(ActivationFunction.SOFTSIGN), [-0.8, -0.5, 0, 0.3333333, 0.75]),
    (Activation(ActivationFunction.HARD_SIGMOID, 0.2, 0.5), [0, 0.3, 0.5, 0.6, 1]),
    (Activation(ActivationFunction.SWISH, 1), [-0.0719448, -0.2689414, 0, 0.3112297, 2.8577224]),
    (Activation(ActivationFunction.MISH), [-0.0725918, -0.3034015, 0, 0.3752444, 2.9865350]),
    (Activation(ActivationFunction.THRESHOLDED_RELU, 0.5), [0, 0, 0, 0, 3]),
    (Activation(ActivationFunction.SHRINK, 0.5, 1.5), [-2.5, 0.5, 0, 0, 1.5]),
]


def test_every_function_has_an_example():
    assert {op.function for op, _ in EXPECTED} == set(ActivationFunction)


@pytest.mark.parametrize(("op", "expected"), EXPECTED, ids=lambda value: getattr(value, "function", ""))
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-6), (np.float32, 1e-6), (np.float16, 1e-3), (ml_dtypes.bfloat16, 1e-2)]
)
def test_functions_of_real_numbers(op, expected, dtype, tolerance):
    result = compute(op, np.array(X, dtype))
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ActivationFunction.GELU, [-4.0496941e-03, -1.2668497e-04, -1.4332579e-06, -7.6198530e-23, np.nan]),
        (ActivationFunction.GELU_TANH, [-3.6373921e-03, -7.0245948e-05, -2.2917962e-07, -1.2040923e-37, np.nan]),
    ],
    ids=str,
)
def test_a_gelu_has_all_digits_where_it_is_small(function, expected):
    result = compute(Activation(function), np.array([-3, -4, -5, -10, -np.inf], F32))
    np.testing.assert_allclose(result, expected, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_relu_needs_no_infinity_in_the_type(dtype):
    result = compute(Activation(ActivationFunction.RELU), np.array(X, dtype=getattr(ml_dtypes, dtype)))
    assert result.astype(np.float32).tolist() == [0, 0, 0, 0.5, 3]


@pytest.mark.parametrize(
    "op", [Activation(), Activation(ActivationFunction.TANH, 1, 1), Activation(ActivationFunction.MISH)]
)
def test_far_from_zero_nothing_overflows(op):
    result = compute(op, F32([-1000, 1000]))
    assert np.isfinite(result).all()


def test_integers_are_clamped_to_whole_numbers_within_the_bounds():
    result = compute(Activation(ActivationFunction.BOUNDED_RELU, a=2.5, b=-1.5), np.int32([-9, -1, 2, 9]))
    assert result.tolist() == [-1, -1, 2, 2]
    result = compute(Activation(ActivationFunction.RELU), np.int8([-9, 9]))
    assert result.tolist() == [0, 9]


def test_a_bound_beyond_the_type_is_no_bound():
    result = compute(Activation(ActivationFunction.BOUNDED_RELU, a=np.inf, b=-1000), np.uint8([0, 255]))
    assert result.tolist() == [0, 255]


def test_plain_integers_have_no_sigmoid():
    with pytest.raises(InvalidArgumentError) as error:
        compute(Activation(), np.int32([1]))
    assert str(error.value) == "Activation: SIGMOID of int32 is not defined"


def test_a_clamp_of_one_quantization_keeps_stored_integers_within_the_bounds():
    quantization = Quantization(0.05, -100)
    result = compute(
        Activation(ActivationFunction.BOUNDED_RELU, 6, 0), np.int8([-128, -100, 0, 20, 127]), quantized=[quantization]
    )
    assert result.tolist() == [-100, -100, 0, 20, 20]


def test_a_clamp_may_write_where_it_reads():
    op = Activation(ActivationFunction.RELU)
    info = TensorInfo((3,), "uint8", Quantization(1.0, 4))
    call = KernelInfo.of(op, [info], [info])
    x = np.uint8([0, 4, 9])
    reference().find(op, call).call(op, [x], call, [x])
    assert x.tolist() == [4, 4, 9]


SMOOTH = [op for op, _ in EXPECTED if op.function is not ActivationFunction.SQRT]


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.function.name)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
def test_a_quantized_function_is_about_a_step_from_the_real_one_at_most(op, dtype):
    limits = np.iinfo(dtype)
    codes = np.linspace(max(limits.min, -1000), min(limits.max, 1000), 101).astype(dtype)
    scale = 8 / (int(codes[-1]) - int(codes[0]))
    zero_point = 0 if codes.dtype.itemsize > 1 else int(codes[50])
    result_quantization = Quantization(0.2, 0 if codes.dtype.itemsize > 1 else zero_point)
    quantized_result = compute(op, codes, quantized=[Quantization(scale, zero_point)], result=result_quantization)
    reals = compute(op, (scale * (codes.astype(np.float64) - zero_point)).astype(F32))
    expected = np.clip(reals / result_quantization.scale + result_quantization.zero_point, limits.min, limits.max)
    assert np.abs(quantized_result - expected).max() <= 1.1


def test_channels_with_scales_of_their_own_are_computed_as_real_numbers():
    result = compute(
        Activation(ActivationFunction.RELU), np.int8([[3, -4]]), quantized=[Quantization([0.5, 2.0], 0, axis=1)]
    )
    assert result.tolist() == [[3, 0]]


# --- softmax ----------------------------------------------------------------------------------------------------------


def test_scores_become_probabilities_and_their_logarithms():
    np.testing.assert_allclose(compute(Softmax(), F32([[1, 2, 3]])), [[0.0900306, 0.2447285, 0.6652409]], rtol=1e-6)
    np.testing.assert_allclose(
        compute(LogSoftmax(), F32([[1, 2, 3]])), [[-2.4076060, -1.4076060, -0.4076060]], rtol=1e-6
    )


def test_the_factor_sharpens():
    np.testing.assert_allclose(compute(Softmax(beta=2), F32([0, 1])), [0.1192029, 0.8807971], rtol=1e-6)


def test_great_scores_do_not_overflow():
    assert compute(Softmax(), F32([1000, 1000])).tolist() == [0.5, 0.5]
    np.testing.assert_allclose(compute(LogSoftmax(), F32([1000, 0])), [0, -1000])


@given(arrays.arrays(F32, (2, 3, 4), elements=st.floats(-20, 20, width=32)), st.integers(-3, 2))
def test_probabilities_sum_to_one_along_the_axis(x, axis):
    result = compute(Softmax(axis=axis), x)
    np.testing.assert_allclose(result.sum(axis=axis), 1, rtol=1e-5)
    np.testing.assert_allclose(compute(LogSoftmax(axis=axis), x), np.log(result.astype(np.float64)), atol=1e-4)


@given(arrays.arrays(np.uint8, (3, 5), elements=st.integers(0, 255)))
def test_a_quantized_softmax_works_along_any_axis(x):
    along_last = compute(Softmax(), x, quantized=[Quantization(0.1, 3)])
    along_first = compute(Softmax(axis=0), x.T, quantized=[Quantization(0.1, 3)])
    np.testing.assert_array_equal(along_first, along_last.T)


def test_quantized_values_times_zero_have_equal_shares():
    op, quantization = LogSoftmax(beta=0.0), Quantization(1 / 16, 127)
    logarithms = compute(op, np.int8([-128, 3, 5, 7, 127]), quantized=[Quantization(0.1, 4)], result=quantization)
    assert logarithms.tolist() == [101] * 5  # log(1 / 5) is about -26 / 16


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("op", [Softmax(), LogSoftmax()])
def test_a_result_in_other_steps_than_tflite_prescribes_is_rounded_from_real_numbers(op, dtype):
    x = np.arange(-20, 20, 5).astype(dtype) + np.array(100, dtype)
    source, result_quantization = Quantization(0.1, 100 if np.dtype(dtype).itemsize == 1 else 0), Quantization(0.02, 5)
    quantized_result = compute(op, x, quantized=[source], result=result_quantization)
    reals = compute(op, (0.1 * (x.astype(F32) - source.zero_point)).astype(F32))
    limits = np.iinfo(dtype)
    np.testing.assert_allclose(quantized_result, np.clip(reals / 0.02 + 5, limits.min, limits.max), atol=0.51)


def test_a_softmax_with_a_negative_factor_does_not_overflow():
    x = np.float32([[2320, 0], [np.inf, 1]])
    assert compute(Softmax(beta=-1.0), x).tolist() == [[0, 1], [0, 1]]
    assert compute(LogSoftmax(beta=-1.0), x).tolist() == [[-2320, 0], [-np.inf, 0]]


def test_a_softmax_over_nothing_is_nothing():
    assert compute(Softmax(), np.empty((2, 0), F32)).shape == (2, 0)
    assert empty(TensorInfo((2, 0))).size == 0


def test_plain_integers_have_no_softmax():
    with pytest.raises(InvalidArgumentError, match="^Softmax: input is int32; takes floats$"):
        compute(Softmax(), np.int32([1]))


@given(arrays.arrays(F32, (2, 3, 4), elements=st.integers(-3, 3).map(F32)), st.integers(-3, 2))
def test_a_hard_maximum_marks_the_first_of_the_greatest(x, axis):
    result = compute(Hardmax(axis), x)
    assert result.sum(axis=axis).tolist() == np.ones(result.sum(axis=axis).shape).tolist()
    np.testing.assert_array_equal(result.argmax(axis=axis), x.argmax(axis=axis))


def test_a_quantized_hard_maximum_says_one_in_its_own_steps():
    result = compute(Hardmax(), np.uint8([3, 9, 9]), quantized=[Quantization(0.5, 3)])
    assert result.tolist() == [3, 5, 3]
