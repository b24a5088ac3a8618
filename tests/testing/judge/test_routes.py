"""Networks through model formats and back."""

from __future__ import annotations

from interposer.core.types import DataType, TensorInfo
from interposer.ir.network import Network
from interposer.ops import DynamicBroadcastTo
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
