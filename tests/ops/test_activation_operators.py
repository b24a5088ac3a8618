import pytest

from interposer.core.types import Quantization, TensorInfo
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax


def info(dtype, quantization=None):
    return TensorInfo((2, "n"), dtype, quantization)


def test_an_activation_gives_what_it_takes():
    assert Activation(ActivationFunction.RELU).infer_infos(info("float16")) == (info("float16"),)


@pytest.mark.parametrize(
    ("op", "dtype", "prescribed"),
    [
        (Activation(ActivationFunction.SIGMOID), "uint8", Quantization(1 / 256, 0)),
        (Activation(ActivationFunction.SIGMOID), "int8", Quantization(1 / 256, -128)),
        (Activation(ActivationFunction.SIGMOID), "int16", Quantization(1 / 32768, 0)),
        (Activation(ActivationFunction.TANH, 1, 1), "uint8", Quantization(1 / 128, 128)),
        (Activation(ActivationFunction.TANH, 1, 1), "int8", Quantization(1 / 128, 0)),
        (Softmax(), "int8", Quantization(1 / 256, -128)),
        (LogSoftmax(), "uint8", Quantization(1 / 16, 255)),
        (LogSoftmax(), "int8", Quantization(1 / 16, 127)),
    ],
)
def test_a_result_whose_range_is_known_gets_the_quantization_that_tflite_prescribes(op, dtype, prescribed):
    assert op.infer_infos(info(dtype, Quantization(0.1, 7))) == (info(dtype, prescribed),)


def test_other_results_keep_the_quantization_of_the_input():
    quantized = info("int8", Quantization(0.1, 7))
    assert Activation(ActivationFunction.RELU).infer_infos(quantized) == (quantized,)


def test_bounds_in_the_wrong_order_are_named():
    [error] = Activation(ActivationFunction.BOUNDED_RELU, a=-1, b=6).violations(info("float32"))
    assert error == "the upper bound a is -1, below the lower bound b, 6"


def test_celu_cannot_divide_by_zero():
    [error] = Activation(ActivationFunction.CELU).violations(info("float32"))
    assert error == "a is 0, but CELU divides by it"


@pytest.mark.parametrize("op", [Softmax(axis=2), LogSoftmax(axis=2), Hardmax(axis=2)])
def test_an_axis_that_is_not_there_is_named(op):
    assert op.violations(info("float32")) == ["axis is 2, but the input has rank 2; expected -2 to 1"]


def test_a_scalar_has_no_axis():
    assert Softmax().violations(TensorInfo()) == [
        "axis is -1, but the input has rank 0; expected none, as it is a scalar"
    ]
