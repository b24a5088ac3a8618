"""Networks through model formats and back."""

from __future__ import annotations

import pytest

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.network import Network
from interposer.ops import DynamicBroadcastTo, Multiplication, Requantization
from interposer.testing.judge.routes import Route, through


def test_a_shape_that_is_an_input_makes_a_network_not_expressible():
    network = Network("expanded")
    x = network.add_input_layer(0, TensorInfo((1, 3)), name="x")
    shape = network.add_input_layer(1, TensorInfo((2,), DataType.INT64), name="shape")
    network.add_output_layer(0, network.add_layer(DynamicBroadcastTo(), x, shape, name="y"))
    reason = through(Route.ONNX, network)
    assert isinstance(reason, str)
    assert reason.startswith("the model becomes a network only when values of inputs are known: ")
    assert "1 x Expand" in reason


@pytest.mark.parametrize("rounding", list(Requantization))
def test_a_file_of_tflite_is_exact_unless_the_network_rounds_half_to_even(rounding):
    network = Network("scaled")
    info = TensorInfo((1, 3), DataType.INT8, Quantization(0.5))
    x = network.add_input_layer(0, info, name="x")
    product = network.add_layer(Multiplication(requantization=rounding), x, x, name="y", outputs=[info])
    network.add_output_layer(0, product)
    assert Route.TFLITE.is_exact(network) == (rounding is Requantization.FIXED_POINT)
    assert Route.ONNX.is_exact(network)
