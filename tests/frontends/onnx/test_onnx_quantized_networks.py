"""Quantized networks in both styles, against ONNX's reference evaluator: every layer is one step off at most."""

import numpy as np
import pytest
from onnx import helper

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends.onnx import load
from interposer.runtime import Runtime
from tests.frontends.onnx.models import model, theirs

RNG = np.random.default_rng(4)
MICROSOFT = [helper.make_opsetid("com.microsoft", 1)]


def run(given, *feeds, **options):
    """The outputs, as a backend gives them, and the kinds of layers that run."""
    optimized = ip.optimize(load(given), ["CpuRef"], options=ip.OptimizerOptions(**options))
    kinds = [layer.kind for layer in optimized.graph.topological() if layer.kind not in {"Input", "Constant", "Output"}]
    with Runtime() as runtime:
        result = runtime.enqueue_workload(runtime.load_network(optimized), dict(enumerate(feeds)))
    return [result[i] for i in range(len(result))], kinds


class Net:
    """A network whose tensors all are quantized and dequantized, as quantization tools write it."""

    def __init__(self, dtype=np.uint8):
        self.nodes, self.constants, self.dtype = [], {}, dtype
        self.zero = {np.uint8: 120, np.int8: -5, np.int16: 0}[dtype]

    def constant(self, name, value):
        self.constants[name] = np.asarray(value)
        return name

    def add(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def stored(self, name, scale, zero=None):
        """Quantizes a tensor, and gives the dequantized one."""
        zero = self.zero if zero is None else zero
        numbers = [
            self.constant(f"{name}_scale", np.float32(scale)),
            self.constant(f"{name}_zero", np.array(zero, self.dtype)),
        ]
        self.add("QuantizeLinear", [name, *numbers], f"{name}_q")
        return self.add("DequantizeLinear", [f"{name}_q", *numbers], f"{name}_d")

    def weights(self, name, shape, channel=None):
        codes = RNG.integers(-127, 128, shape).astype(np.int8)
        scale = RNG.uniform(0.004, 0.01, () if channel is None else shape[channel]).astype(np.float32)
        operands = [self.constant(f"{name}_q", codes), self.constant(f"{name}_scale", scale)]
        return self.add("DequantizeLinear", operands, name, **({} if channel is None else {"axis": channel})), scale

    def bias(self, name, count, scale):
        codes = RNG.integers(-500, 500, count).astype(np.int32)
        scale = np.broadcast_to(np.float32(scale), count)
        operands = [self.constant(f"{name}_q", codes), self.constant(f"{name}_scale", scale)]
        return self.add("DequantizeLinear", operands, name, axis=0)


def small_cnn(dtype=np.uint8, per_channel=True, finer=1):
    """Convolutions, a residual, pools, a gate, and a classifier."""
    net, channel = Net(dtype), 0 if per_channel else None
    h = net.stored("x", 0.02 / finer)
    w, scale = net.weights("w1", (8, 3, 3, 3), channel)
    h = net.add("Conv", [h, w, net.bias("b1", 8, np.float32(0.02 / finer) * scale)], "c1", pads=[1] * 4, strides=[2, 2])
    h = skip = net.stored(net.add("Relu", [h], "r1"), 0.03 / finer, np.iinfo(dtype).min if finer == 1 else None)
    w, scale = net.weights("w2", (8, 1, 3, 3), channel)
    h = net.add("Conv", [h, w], "c2", pads=[1] * 4, group=8)
    h = net.add("Clip", [h, net.constant("low", np.float32(0)), net.constant("high", np.float32(6))], "r2")
    h = net.stored(net.add("Add", [skip, net.stored(h, 0.03 / finer)], "sum"), 0.05 / finer)
    gate = net.stored(net.add("Sigmoid", [h], "gate"), 1 / 256 / finer)
    h = net.stored(net.add("Mul", [h, gate], "gated"), 0.05 / finer)
    pools = [
        net.stored(net.add("MaxPool", [h], "max", kernel_shape=[2, 2], strides=[2, 2]), 0.05 / finer),
        net.stored(net.add("AveragePool", [h], "mean", kernel_shape=[2, 2], strides=[2, 2]), 0.05 / finer),
    ]
    h = net.stored(net.add("Concat", pools, "both", axis=1), 0.05 / finer)
    h = net.stored(net.add("GlobalAveragePool", [h], "whole"), 0.02 / finer)
    h = net.stored(net.add("Flatten", [h], "flat"), 0.02 / finer)
    w, scale = net.weights("w3", (10, 16), channel)
    bias = net.bias("b3", 10, np.float32(0.02 / finer) * scale)
    net.stored(net.add("Gemm", [h, w, bias], "scores", transB=1), 0.05 / finer)
    return net


X = RNG.normal(size=(4, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("per_channel", [True, False])
def test_a_network_of_dequantized_tensors_runs_in_integers(dtype, per_channel):
    net = small_cnn(dtype, per_channel)
    value = model(net.nodes, {"x": X}, ["scores_q"], net.constants, opset=21)
    [result], kinds = run(value, X)
    assert "Dequantize" not in kinds
    assert kinds.count("Quantize") == 1
    [expected], [floats] = theirs(value, X), run(value, X, compute_in_integers=False)[0]
    assert np.abs(floats.astype(int) - expected).max() <= 1
    assert np.abs(result.astype(int) - expected).max() <= 2  # a step in each of nine layers can add up
    assert len(np.unique(expected)) > 10


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_every_layer_is_one_step_off_at_most(dtype):
    """Each layer gets the same stored integers as in the reference evaluator."""
    net = small_cnn(dtype, finer=64 if dtype is np.int16 else 1)
    names = [node.output[0] for node in net.nodes if node.op_type == "QuantizeLinear"]
    whole = model(net.nodes, {"x": X}, names, net.constants, opset=21)
    stored = dict(zip(names, theirs(whole, X), strict=True))
    for name in names[1:]:
        part = cut(net, name, stored)
        [result], _ = run(part, *(stored[value.name] for value in part.graph.input))
        assert np.abs(result.astype(int) - stored[name]).max() <= 1, name


def cut(net, name, stored):
    """The part of the network from stored integers to the next ones of that name."""
    created = {node.output[0]: node for node in net.nodes}
    nodes, inputs, pending = [], {}, [name]
    while pending:
        value = pending.pop()
        if value in stored and value != name:
            inputs[value] = stored[value]
        elif value in created and created[value] not in nodes:
            nodes.append(created[value])
            pending += created[value].input
    ordered = [node for node in net.nodes if node in nodes]
    return model(ordered, inputs, [name], net.constants, opset=21)


# --- ONNX Runtime's own operators -------------------------------------------------------------------------------------

A, B = (RNG.integers(0, 256, (2, 8, 6, 6)).astype(np.uint8) for _ in range(2))


def numbers(*pairs):
    """Scales and zero points, one after the other."""
    return [item for scale, zero in pairs for item in (np.float32(scale), np.array(zero, np.uint8))]


def as_constants(operands):
    return {f"k{i}": np.asarray(operand) for i, operand in enumerate(operands) if operand is not None}


def alike(ours_node, theirs_nodes, inputs, constants, steps=1):
    """The operator gives what dequantizing, computing and quantizing gives; return the kinds of its layers."""
    value = model([ours_node], inputs, ["y"], constants, domains=MICROSOFT)
    expected = theirs(model(theirs_nodes, inputs, ["y"], constants), *inputs.values())[0]
    [result], kinds = run(value, *inputs.values())
    assert result.dtype == expected.dtype
    assert np.abs(result.astype(int) - expected).max() <= steps
    return " ".join(kinds)


def node(op, inputs, output="y", **attributes):
    domain = {"domain": "com.microsoft"} if op.startswith(("QL", "QG")) else {}
    return helper.make_node(op, inputs, [output], name=output, **domain, **attributes)


def real(stored, scale, zero, output, **attributes):
    return node("DequantizeLinear", [stored, scale, zero], output, **attributes)


@pytest.mark.parametrize(("ours", "theirs"), [("QLinearAdd", "Add"), ("QLinearMul", "Mul")])
def test_arithmetic_on_two_quantized_tensors(ours, theirs):
    constants = as_constants(numbers((0.02, 3), (0.01, 130), (0.04, 90)))
    names = list(constants)
    kind = alike(
        node(ours, ["a", *names[:2], "b", *names[2:]]),
        [
            real("a", *names[:2], "ra"), real("b", *names[2:4], "rb"),
            node(theirs, ["ra", "rb"], "r"), node("QuantizeLinear", ["r", *names[4:]]),
        ],
        {"a": A, "b": B},
        constants,
    )  # fmt: skip
    assert kind == {"Add": "Addition", "Mul": "Multiplication"}[theirs]


@pytest.mark.parametrize(("ours", "theirs", "attributes", "extra", "kind"), [
    ("QLinearSigmoid", "Sigmoid", {}, {}, "Activation"),
    ("QLinearLeakyRelu", "LeakyRelu", {"alpha": 0.2}, {}, "Activation"),
    ("QLinearSoftmax", "Softmax", {"axis": 3}, {"opset": 13}, "Dequantize Softmax Quantize"),
    ("QLinearGlobalAveragePool", "GlobalAveragePool", {}, {}, "Mean"),
    ("QLinearAveragePool", "AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, {}, "Pooling2d"),
])  # fmt: skip
def test_functions_of_a_quantized_tensor(ours, theirs, attributes, extra, kind):
    constants = as_constants(numbers((0.02, 128), (0.025, 110)))
    names = list(constants)
    result = alike(
        node(ours, ["a", *names], **attributes, **extra),
        [
            real("a", *names[:2], "ra"),
            node(theirs, ["ra"], "r", **attributes),
            node("QuantizeLinear", ["r", *names[2:]]),
        ],
        {"a": A},
        constants,
    )
    assert result == kind


def test_a_mean_over_axes():
    constants = as_constants(numbers((0.02, 128), (0.01, 110)))
    value = model([node("QLinearReduceMean", ["a", *constants], axes=[2, -1], keepdims=0)], {"a": A}, ["y"], constants,
                  domains=MICROSOFT)  # fmt: skip
    [result], kinds = run(value, A)
    expected = np.rint((A.astype(float) - 128).mean(axis=(2, 3)) * 2 + 110)
    assert np.abs(result - expected).max() <= 1
    assert kinds == ["Mean"]


def test_joining_tensors_of_different_scales():
    constants = as_constants(numbers((0.03, 9), (0.02, 128), (0.05, 100)))
    names = list(constants)
    value = model([node("QLinearConcat", [*names[:2], "a", *names[2:4], "b", *names[4:]], axis=1)], {"a": A, "b": B},
                  ["y"], constants, domains=MICROSOFT)  # fmt: skip
    [result], kinds = run(value, A, B)
    parts = [(A.astype(float) - 128) * 0.02, (B.astype(float) - 100) * 0.05]
    expected = np.clip(np.rint(np.concatenate(parts, axis=1) / 0.03 + 9), 0, 255)
    np.testing.assert_array_equal(result, expected)
    assert sorted(kinds) == ["Concat", "Dequantize", "Dequantize", "Quantize", "Quantize"]


@pytest.mark.parametrize("to_reals", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
def test_a_product_with_a_bias(to_reals, per_channel):
    a, b = RNG.integers(0, 256, (5, 7)).astype(np.uint8), RNG.integers(-100, 100, (4, 7)).astype(np.int8)
    scales = RNG.uniform(0.01, 0.02, 4).astype(np.float32) if per_channel else np.float32(0.015)
    bias = RNG.integers(-900, 900, 4).astype(np.int32)
    operands = [np.float32(0.02), np.uint8(120), b, scales, np.zeros(scales.shape, np.int8), bias]
    operands += [] if to_reals else numbers((0.05, 128))
    constants = as_constants(operands)
    value = model([node("QGemm", ["a", *constants], transB=1)], {"a": a}, ["y"], constants, domains=MICROSOFT)
    [result], kinds = run(value, a)
    wide = (a.astype(int) - 120) @ b.T.astype(int) + bias
    expected = wide * 0.02 * scales
    if to_reals:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    else:
        assert np.abs(result - np.clip(np.rint(expected / 0.05 + 128), 0, 255)).max() <= 1
        assert kinds == ["FullyConnected"]


def test_forms_of_these_operators_that_are_not_supported_are_named():
    constants = as_constants(numbers((0.02, 128), (0.01, 110)))
    with pytest.raises(ParseError, match="it has 4 inputs; expected two, and three more for each tensor"):
        load(model([node("QLinearConcat", ["a", *list(constants)[:3]], axis=1)], {"a": A}, ["y"], constants,
                   domains=MICROSOFT))  # fmt: skip
