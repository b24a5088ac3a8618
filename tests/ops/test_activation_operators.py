import math
import pickle

import numpy as np
import pytest

from interposer import Network
from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo
from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from tests.computing import compute


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
    [error] = Activation(ActivationFunction.CELU, a=0).violations(info("float32"))
    assert error == "a is 0, but CELU divides by it"


def test_parameters_that_are_not_given_are_those_of_the_function():
    parameters = {function: (Activation(function).a, Activation(function).b) for function in ActivationFunction}
    others = {function: pair for function, pair in parameters.items() if pair != (0, 0)}
    f = ActivationFunction
    assert others == {
        f.TANH: (1, 1), f.LINEAR: (1, 0), f.BOUNDED_RELU: (6, 0), f.LEAKY_RELU: (0.01, 0), f.ELU: (1, 0),
        f.SELU: (1.67326319217681884765625, 1.05070102214813232421875), f.CELU: (1, 0), f.HARD_SIGMOID: (0.2, 0.5),
        f.SWISH: (1, 0), f.THRESHOLDED_RELU: (1, 0), f.SHRINK: (0.5, 0),
    }  # fmt: skip


@pytest.mark.parametrize("function", ActivationFunction)
def test_no_function_with_its_default_parameters_is_constant(function):
    results = compute(Activation(function), np.float32([0.25, 0.75, 1.5, 2.5]))
    assert len(set(results.tolist())) > 1


@pytest.mark.parametrize("parameters", [{}, {"a": 0.0}, {"a": 1.0, "b": 0.0}, {"a": 2.0, "b": 3.0}])
@pytest.mark.parametrize("function", ActivationFunction)
def test_parameters_survive_every_form_of_an_activation(function, parameters):
    op = Activation(function, **parameters)
    network = Network()
    network.add_output_layer(0, network.add_layer(op, network.add_input_layer(0, TensorInfo((2,)))))
    parsed = [layer.op for layer in Network.parse(str(network)) if isinstance(layer.op, Activation)]
    assert [*parsed, Op.from_plain(op.to_plain()), pickle.loads(pickle.dumps(op))] == [op] * 3


def test_the_method_of_a_network_has_the_same_defaults():
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2,)))
    assert network.add_activation_layer(x, function=ActivationFunction.TANH).op == Activation(ActivationFunction.TANH)
    assert network.add_activation_layer(x, function=ActivationFunction.ELU, a=0.0).op.a == 0


def test_a_bound_that_is_nan_does_not_bound():
    x = np.float32([-7, 0, 7, math.nan])
    bounded = Activation(ActivationFunction.BOUNDED_RELU, a=math.nan, b=math.nan)
    assert (bounded.a, bounded.b) == (math.inf, -math.inf)
    np.testing.assert_array_equal(compute(bounded, x), x)
    np.testing.assert_array_equal(compute(bounded.replace(a=1.0), x), np.float32([-7, 0, 1, math.nan]))


@pytest.mark.parametrize("op", [Softmax(axis=2), LogSoftmax(axis=2), Hardmax(axis=2)])
def test_an_axis_that_is_not_there_is_named(op):
    assert op.violations(info("float32")) == ["axis is 2, but the input has rank 2; expected -2 to 1"]


def test_a_scalar_has_no_axis():
    assert Softmax().violations(TensorInfo()) == [
        "axis is -1, but the input has rank 0; expected none, as it is a scalar"
    ]
