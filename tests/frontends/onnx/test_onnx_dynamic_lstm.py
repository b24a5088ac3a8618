"""DynamicQuantizeLSTM: results that ONNX Runtime gave, the layers that it becomes, and errors for invalid nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Quantization, TensorInfo
from interposer.core.errors import ParseError, UnwritableError
from interposer.frontends.onnx import load
from interposer.ops import LstmSequence
from interposer.writers import onnx
from tests.frontends.onnx.contrib.arrays import dynamic_lstm
from tests.frontends.onnx.contrib.case import fed

# The first unit of the results of ONNX Runtime 1.32 for a bidirectional layer with all operands and lengths 5, 0 and 3.
OUTPUT = [
    [[-0.43159825, 0.0, 0.09656481], [-0.63007778, 0.0, -0.76516795]],
    [[-0.15504441, 0.0, 0.16220380], [-0.52409148, 0.0, -0.69943941]],
    [[-0.48175767, 0.0, 0.01228660], [-0.32328412, 0.0, -0.18620463]],
    [[-0.25300956, 0.0, 0.0], [-0.27439854, 0.0, 0.0]],
    [[0.09037192, 0.0, 0.0], [-0.00525921, 0.0, 0.0]],
]
HIDDEN_STATE = [[0.09037192, 0.0, 0.01228660], [-0.63007778, 0.0, -0.76516795]]
CELL_STATE = [[0.14358008, 0.0, 0.08812115], [-2.26205087, 0.0, -2.64435148]]


def all_operands():
    return dynamic_lstm("", np.uint8, "bidirectional", True, {3, 4, 5, 6, 7})


def refusal(case):
    with pytest.raises(ParseError) as caught:
        load(case.file())
    return caught.value.message


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("backends", [["CpuRef"], ["CpuAcc", "CpuRef"]], ids=" ".join)
def test_an_lstm_gives_the_numbers_that_onnx_runtime_gave(backends, request):
    if "CpuAcc" in backends:
        request.getfixturevalue("cpuacc")
    case = all_operands()
    results = ip.load(case.file(), backends=backends).run(case.feeds())
    for result, expected in zip(results, (OUTPUT, HIDDEN_STATE, CELL_STATE), strict=True):
        np.testing.assert_allclose(result[..., 0], np.float32(expected), rtol=0, atol=1e-6)


def test_the_weights_of_an_lstm_stay_integers():
    layers = [
        layer for layer in load(all_operands().file()).graph.topological() if layer.op.op_name() == "LstmSequence"
    ]
    assert [layer.op.direction.value for layer in layers] == ["forward", "reverse"]
    for layer in layers:
        assert [str(layer.inputs[n].known.dtype) for n in (1, 2)] == ["uint8", "uint8"]
        assert layer.inputs[1].known.quantization.axis == 1


@pytest.mark.needs_cpuref
def test_scales_that_a_model_computes_give_weights_of_floats():
    case = dynamic_lstm("", np.int8, "forward", True, {3})
    computed = [operand and dataclasses.replace(operand, fixed=number not in (0, 8, 9)) for number, operand in
                enumerate(case.inputs)]  # fmt: skip
    of_constants = ip.load(case.file(), backends=["CpuRef"]).run(case.feeds())
    case = dataclasses.replace(case, inputs=computed)
    results = ip.load(case.file(), backends=["CpuRef"]).run(case.feeds())
    for result, expected in zip(results, of_constants, strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("optional", [{3}, {3, 4, 5, 6, 7}])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_an_lstm_is_written_as_the_operator_that_it_comes_from(dtype, optional):
    case = dynamic_lstm("", dtype, "bidirectional", True, optional)
    network = load(case.file())
    written = onnx.write(network)
    assert [(node.op_type, node.domain) for node in written.graph.node if node.domain] == [
        ("DynamicQuantizeLSTM", "com.microsoft")
    ] * 2
    assert {(imported.domain, imported.version) for imported in written.opset_import} >= {("com.microsoft", 1)}
    results = [ip.load(model, backends=["CpuRef"]).run(case.feeds()) for model in (network, written)]
    for result, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_zero_points_that_onnx_runtime_refuses_are_not_written():
    network = Network("odd")
    x = network.add_input_layer(0, TensorInfo((3, 1, 4)), name="x")
    quantization = Quantization(0.1, 7)
    weights = [
        network.add_constant_layer(np.ones((1, 8, size), np.int8), quantization, name=f"weights_{size}")
        for size in (4, 2)
    ]
    layer = network.add_layer(LstmSequence(dynamic_quantization=True), x, *weights, name="lstm")
    network.add_output_layer(0, layer.outputs[0], name="y")
    with pytest.raises(UnwritableError, match="takes int8 weights with zero points of 0, uint8 ones with equal ones"):
        onnx.write(network)


def test_an_lstm_whose_weights_do_not_fit_says_the_shape_that_is_expected():
    case = all_operands()
    inputs = [*case.inputs[:3], fed(np.zeros((2, 31), np.float32)), *case.inputs[4:]]
    message = refusal(dataclasses.replace(case, inputs=inputs))
    assert message.endswith("its input number 3 has shape [2, 31]; expected [2, 32]")


@pytest.mark.parametrize("shape", [(), (3,), (2, 8)])
def test_scales_of_the_weights_are_one_for_each_direction_or_column(shape):
    case = all_operands()
    inputs = [*case.inputs[:8], fed(np.ones(shape, np.float32)), *case.inputs[9:]]
    message = refusal(dataclasses.replace(case, inputs=inputs))
    assert message.endswith(f"its input number 8 has shape {[*shape]}; expected [2] or [2, 16]")


def test_an_lstm_with_the_batch_first_is_refused_with_the_reason():
    case = all_operands()
    message = refusal(dataclasses.replace(case, attributes=case.attributes | {"layout": 1}))
    assert "its layout is 1; ONNX Runtime computes layout 0 only" in message
