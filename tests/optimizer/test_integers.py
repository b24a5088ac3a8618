"""Layers between Dequantize and Quantize that become quantized layers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interposer as ip
from interposer.backend import Backend, BackendId, Capabilities
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import KernelTable
from interposer.ops import (
    Activation,
    ActivationFunction,
    BatchMatMul,
    Concat,
    Convolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    Mean,
    Pooling2d,
    PoolingAlgorithm,
    Quantize,
    Requantization,
    Reshape,
    RoundingMethod,
    Softmax,
    Splitter,
    Transpose,
    TransposeConvolution2d,
)
from interposer.optimizer import optimize
from interposer.optimizer.optimizer_options import OptimizerOptions
from interposer.runtime import Runtime

TO_EVEN = RoundingMethod.HALF_TO_EVEN
RNG = np.random.default_rng(3)
FLOATS = OptimizerOptions(compute_in_integers=False)


class Net:
    """A network whose tensors are quantized and dequantized between layers."""

    def __init__(self, dtype="uint8"):
        self.network, self.dtype, self.count = ip.Network("net"), DataType.of(dtype), 0
        self.zero = 7 if dtype == "uint8" else 0 if dtype == "int16" else -3

    def q(self, scale=0.05, zero=None):
        return Quantization(scale, self.zero if zero is None else zero)

    def input(self, shape, scale=0.05):
        layer = self.network.add_input_layer(self.count, TensorInfo(shape, self.dtype, self.q(scale)))
        self.count += 1
        return self.network.add_dequantize_layer(layer)

    def weights(self, codes, scales, axis=None, zero=0):
        constant = self.network.add_constant_layer(codes, Quantization(scales, zero, axis))
        return self.network.add_dequantize_layer(constant)

    def quantize(self, value, scale=0.1, zero=None, rounding=TO_EVEN):
        info = TensorInfo(value.output.known.shape, self.dtype, self.q(scale, zero))
        return self.network.add_layer(Quantize(self.dtype, rounding), value, outputs=[info])

    def output(self, layer):
        self.network.add_output_layer(0, layer)
        return self.network

    def add(self, op, *inputs):
        return self.network.add_layer(op, *inputs)


def kinds(optimized):
    return [layer.kind for layer in optimized.graph.topological() if layer.kind not in {"Input", "Constant", "Output"}]


def run(optimized, feeds):
    with Runtime() as runtime:
        return runtime.enqueue_workload(runtime.load_network(optimized), feeds)[0]


def feeds_of(network, seed=0):
    rng = np.random.default_rng(seed)
    infos = {layer.op.binding_id: layer.output.known for layer in network.graph.inputs}
    return {
        i: rng.integers(*_range(info.dtype), tuple(info.shape), endpoint=True).astype(info.dtype.numpy)
        for i, info in infos.items()
    }


def _range(dtype):
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def compare(network, expected, steps=1, often=0.02, least=3):
    """The optimized layers, and that results are within so many steps of those with float values, and how often.

    The results have `least` different values or more.
    """
    folded, floats = optimize(network, ["CpuRef"]), optimize(network, ["CpuRef"], options=FLOATS)
    assert kinds(folded) == expected
    feeds = feeds_of(network)
    result, requested = (run(item, feeds).astype(np.int64) for item in (folded, floats))
    assert np.abs(result - requested).max() <= steps
    assert (result != requested).mean() <= often
    assert len(np.unique(result)) >= least


def convolution(net, op=None, channels=(3, 8), shape=(8, 3, 3, 3), bias=True, axis=0, kind=np.int8, zero=0):
    codes = RNG.integers(-100, 100, shape).astype(kind) if kind is np.int8 else RNG.integers(0, 255, shape).astype(kind)
    scales = RNG.uniform(0.002, 0.004, shape[axis]).tolist() if axis is not None else 0.003
    x = net.input((2, channels[0], 9, 8))
    w = net.weights(codes, scales, axis, zero)
    product = Quantization((np.float32(0.05) * np.float32(scales)).tolist(), 0, None if axis is None else 0)
    offsets = RNG.integers(-3000, 3000, channels[1]).astype(np.int32)
    b = net.add(ip.ops.Dequantize(), net.network.add_constant_layer(offsets, product)) if bias else None
    return net.add(op or Convolution2d(pad_left=1, pad_top=1, stride_x=2), x, w, *([b] if bias else []))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_is_computed_in_integers(dtype, axis, bias):
    net = Net(dtype)
    often = 0.15 if dtype == "int16" else 0.02  # factors have 16 bits there
    compare(net.output(net.quantize(convolution(net, axis=axis, bias=bias))), ["Convolution2d"], often=often)


def test_a_convolution_with_bytes_without_sign_for_weights():
    net = Net()
    compare(net.output(net.quantize(convolution(net, axis=None, kind=np.uint8, zero=130))), ["Convolution2d"])


def test_other_convolutions_are_computed_in_integers_too():
    net = Net("int8")
    deep = convolution(net, DepthwiseConvolution2d(), (8, 8), (1, 3, 3, 8), axis=3)
    compare(net.output(net.quantize(deep)), ["DepthwiseConvolution2d"])
    net = Net("int8")
    spread = convolution(net, TransposeConvolution2d(stride_x=2, stride_y=2), (3, 8), (8, 3, 3, 3))
    compare(net.output(net.quantize(spread)), ["TransposeConvolution2d"])


def test_weights_that_are_moved_first_stay_stored_integers():
    net = Net("int8")
    codes = RNG.integers(-100, 100, (8, 1, 3, 3)).astype(np.int8)
    w = net.add(Transpose((1, 2, 3, 0)), net.weights(codes, RNG.uniform(0.002, 0.004, 8).tolist(), axis=0))
    deep = net.add(DepthwiseConvolution2d(), net.input((1, 8, 6, 6)), w)
    compare(net.output(net.quantize(deep)), ["DepthwiseConvolution2d"])


def test_a_bias_of_real_numbers_is_added_exactly():
    net = Net()
    x, w = net.input((1, 2, 4, 4)), net.weights(RNG.integers(-9, 9, (4, 2, 1, 1)).astype(np.int8), 0.01)
    b = net.network.add_constant_layer(RNG.normal(size=4).astype(np.float32), name="b")
    optimized = optimize(net.output(net.quantize(net.add(Convolution2d(), x, w, b), 0.02)), ["CpuRef"])
    assert kinds(optimized) == ["Convolution2d"]
    assert str(optimized.graph.layer("b").output.known.dtype) == "float32"
    [layer] = [layer for layer in optimized.graph if layer.kind == "Convolution2d"]
    assert layer.op.requantization is Requantization.HALF_TO_EVEN


def test_weights_with_scales_along_another_axis_than_the_results_are_real_numbers():
    net = Net("int8")
    x, w = net.input((1, 3, 4, 4)), net.weights(np.ones((8, 3, 1, 1), np.int8), [0.1, 0.2, 0.3], axis=1)
    b = net.network.add_constant_layer(np.zeros(8, np.float32))
    result = kinds(optimize(net.output(net.quantize(net.add(Convolution2d(), x, w, b))), ["CpuRef"]))
    assert "Dequantize" in result


def test_products_may_be_far_out_of_the_range_of_the_result():
    net = Net("int16")
    product = net.add(ip.ops.Multiplication(), net.input((40,)), net.input((40,)))
    compare(net.output(net.quantize(product, 0.0002)), ["Multiplication"], steps=0, least=2)
    net = Net("int8")
    dense = net.add(FullyConnected(), net.input((30, 99)), net.weights(np.full((99, 2), 100, np.int8), 1.0))
    compare(net.output(net.quantize(dense, 1e-6)), ["FullyConnected"], steps=0, least=2)


@pytest.mark.parametrize("bits", ["int4", "uint4", "int2"])
def test_weights_of_few_bits_are_unpacked(bits):
    net = Net("int8")
    codes = RNG.integers(0, 2, (6, 5)).astype(DataType.of(bits).numpy)
    dense = net.add(FullyConnected(), net.input((30, 6)), net.weights(codes, 0.101))
    compare(net.output(net.quantize(dense)), ["FullyConnected"])


def test_a_product_with_known_weights_is_fully_connected():
    net = Net()
    w = net.weights(RNG.integers(-90, 90, (6, 5)).astype(np.int8), RNG.uniform(0.01, 0.02, 5).tolist(), axis=1)
    compare(net.output(net.quantize(net.add(BatchMatMul(), net.input((2, 3, 6)), w), zero=128)), ["FullyConnected"])
    net = Net()
    product = net.add(BatchMatMul(), net.input((2, 3, 6)), net.input((2, 6, 4)))
    compare(net.output(net.quantize(product, 1.0)), ["BatchMatMul"])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("name", ["addition", "subtraction", "multiplication", "maximum", "minimum"])
def test_arithmetic_is_computed_in_integers(dtype, name):
    net = Net(dtype)
    wide = 0.0004 if dtype == "int16" else 0.05
    a, b = net.input((40, 40), wide), net.input((40, 40), wide if name in {"maximum", "minimum"} else wide / 3)
    total = getattr(net.network, f"add_{name}_layer")(a, b)
    compare(net.output(net.quantize(total, wide)), [name.capitalize()], steps=0)


@pytest.mark.parametrize(
    "function",
    [
        ActivationFunction.SIGMOID,
        ActivationFunction.TANH,
        ActivationFunction.SWISH,
        ActivationFunction.GELU,
        ActivationFunction.ELU,
        ActivationFunction.LEAKY_RELU,
    ],
)
def test_functions_of_bytes_are_looked_up_and_give_what_floats_give(function):
    net = Net()
    result = net.quantize(net.add(Activation(function, 0.5, 1.0), net.input((300,))), 0.01)
    compare(net.output(result), ["Activation"], steps=0)


def test_softmax_between_quantized_tensors_stays_in_floats():
    net = Net("int8")
    network = net.output(net.quantize(net.add(Softmax(), net.input((30, 10))), 1 / 256, -128))
    assert kinds(optimize(network, ["CpuRef"])) == ["Dequantize", "Softmax", "Quantize"]


def test_means_and_pools():
    whole, window = (
        Pooling2d(PoolingAlgorithm.AVERAGE),
        {"pool_width": 3, "pool_height": 2, "stride_x": 1, "stride_y": 1},
    )
    net = Net()
    compare(net.output(net.quantize(net.add(whole, net.input((4, 30, 3, 3))), 0.041)), ["Mean"], often=0.2)
    net = Net()
    part = net.add(Pooling2d(PoolingAlgorithm.AVERAGE, **window), net.input((1, 3, 8, 8)))
    compare(net.output(net.quantize(part, 0.05)), ["Pooling2d"], often=0.1)  # ties of sixths are frequent
    net = Net()
    fine = net.add(Pooling2d(PoolingAlgorithm.AVERAGE, **window), net.input((1, 3, 8, 8)))
    compare(net.output(net.quantize(fine, 0.02)), ["Pooling2d"], often=0.1)
    net = Net()
    sums = net.add(Mean((1,)), net.input((20, 30)))
    compare(net.output(net.quantize(sums, 0.043)), ["Mean"], often=0.2)


def test_what_moves_or_chooses_works_on_stored_integers_and_is_exact():
    net = Net()
    x = net.input((1, 4, 6, 6))
    moved = net.add(Transpose((0, 2, 3, 1)), net.add(Pooling2d(pool_width=2, pool_height=2, stride_x=2, stride_y=2), x))
    relu = net.add(Activation(ActivationFunction.RELU), net.add(Reshape((9, 4)), moved))
    network = net.output(net.quantize(relu, 0.05))
    compare(network, ["Pooling2d", "Transpose", "Reshape", "Activation"], steps=0)


def test_pieces_and_joints():
    net = Net()
    a, b = net.input((4, 40)), net.input((4, 40), 0.02)
    compare(net.output(net.quantize(net.add(Concat(1), a, b), 0.05)), ["Dequantize", "Quantize", "Concat"], steps=0)
    net = Net()
    pieces = net.network.add_layer(Splitter(1, (10, 30)), net.input((4, 40)))
    info = TensorInfo((4, 30), "uint8", net.q())
    piece = net.network.add_layer(Quantize(DataType.UINT8, TO_EVEN), pieces.outputs[1], outputs=[info])
    compare(net.output(piece), ["Slice"], steps=0)


@pytest.mark.parametrize(("zero", "expected"), [(0, ["Convolution2d"]), (50, ["Convolution2d", "Activation"])])
def test_a_clamp_before_quantizing_is_one_of_codes_or_none(zero, expected):
    net = Net()
    clamped = net.add(Activation(ActivationFunction.RELU), convolution(net))
    compare(net.output(net.quantize(clamped, 0.1, zero)), expected)


def test_a_clamp_on_both_sides_is_exact():
    net = Net()
    clamped = net.add(Activation(ActivationFunction.BOUNDED_RELU, 6.0, 0.0), convolution(net))
    compare(net.output(net.quantize(clamped, 0.1)), ["Convolution2d", "Activation"])


def test_the_result_is_as_near_when_it_was_moved_before_it_is_quantized():
    net = Net()
    moved = net.add(Transpose((0, 2, 3, 1)), convolution(net))
    compare(net.output(net.quantize(moved)), ["Convolution2d", "Transpose"])


def test_a_layer_whose_real_numbers_are_wanted_elsewhere_computes_with_them():
    net = Net()
    total = net.network.add_addition_layer(net.input((3,)), net.input((3,)))
    network = net.output(net.quantize(total))
    network.add_output_layer(1, total)
    assert "Dequantize" in kinds(optimize(network, ["CpuRef"]))


def test_a_quantize_that_rounds_as_tflite_does_wants_real_numbers():
    net = Net()
    total = net.network.add_addition_layer(net.input((3,)), net.input((3,)))
    network = net.output(net.quantize(total, rounding=RoundingMethod.HALF_AWAY_FROM_ZERO))
    assert kinds(optimize(network, ["CpuRef"])) == ["Dequantize", "Dequantize", "Addition", "Quantize"]


class FloatAdder(Backend):
    """Adds float values only."""

    id = BackendId("FloatAdder")
    kernels = KernelTable()
    capabilities = Capabilities()


@FloatAdder.kernels(ip.ops.Addition, dtypes={DataType.FLOAT32})
def _add(op, a, b):
    return a + b


class FloatAdderAndMultiplier(Backend):
    """Adds float values, and multiplies float or quantized values."""

    id = BackendId("FloatAdderAndMultiplier")
    kernels = KernelTable()
    capabilities = Capabilities()


FloatAdderAndMultiplier.kernels(ip.ops.Addition, dtypes={DataType.FLOAT32})(_add)
FloatAdderAndMultiplier.kernels(ip.ops.Multiplication)(_add)


def test_layers_are_decided_one_by_one_if_the_preferred_backend_refuses_one_of_the_quantized_layers():
    net = Net()
    total = net.network.add_addition_layer(net.input((3,)), net.input((3,)))
    product = net.network.add_multiplication_layer(net.input((3,)), net.input((3,)))
    net.network.add_output_layer(1, net.quantize(total))
    network = net.output(net.quantize(product))
    with Runtime() as runtime:
        runtime.registry.register("FloatAdderAndMultiplier", FloatAdderAndMultiplier)
        optimized = optimize(network, ["FloatAdderAndMultiplier", "CpuRef"], runtime.device_spec)
    assert sorted(kinds(optimized)) == ["Addition", "Dequantize", "Dequantize", "Multiplication", "Quantize"]


def test_a_layer_stays_with_the_preferred_backend_that_takes_only_real_numbers():
    net = Net()
    total = net.network.add_addition_layer(net.input((3,)), net.input((3,)))
    network = net.output(net.quantize(total))
    with Runtime() as runtime:
        runtime.registry.register("FloatAdder", FloatAdder)
        first = optimize(network, ["FloatAdder", "CpuRef"], runtime.device_spec)
        last = optimize(network, ["CpuRef", "FloatAdder"], runtime.device_spec)
    assert "Dequantize" in kinds(first)
    assert kinds(last) == ["Addition"]


@settings(max_examples=25, deadline=None)
@given(st.floats(0.001, 2), st.floats(0.001, 2), st.integers(0, 255), st.integers(0, 255), st.integers(0, 9))
def test_a_fully_connected_layer_is_one_step_away_at_most(scale, out, zero, out_zero, seed):
    net = Net()
    rng = np.random.default_rng(seed)
    x = net.network.add_input_layer(0, TensorInfo((5, 12), "uint8", Quantization(scale, zero)))
    w = net.weights(rng.integers(-128, 128, (12, 7)).astype(np.int8), rng.uniform(0.01, 0.1, 7).tolist(), axis=1)
    dense = net.add(FullyConnected(), net.network.add_dequantize_layer(x), w)
    network = net.output(net.quantize(dense, out * scale, out_zero))
    feeds = feeds_of(network, seed)
    result, expected = (run(optimize(network, ["CpuRef"], options=o), feeds).astype(int) for o in (None, FLOATS))
    assert np.abs(result - expected).max() <= 1
