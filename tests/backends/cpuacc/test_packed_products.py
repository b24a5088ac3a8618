"""Matrix products with weights of few bits, which stay packed, give CpuRef's results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    BlockDequantize,
    Cast,
    Dequantize,
    FullyConnected,
    Gather,
    Transpose,
)
from interposer.optimizer import simplified
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

TYPES = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4, "int8": np.int8, "uint8": np.uint8}
LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255)}


class Net:
    """A network of float inputs whose weights are dequantized; with a shape, `x` is an input of this shape."""

    def __init__(self, *shape: int, dtype: str = "float32") -> None:
        self.network, self.random = ip.Network("packed"), np.random.default_rng(11)
        self.dtype, self.shapes = DataType.of(dtype), list[tuple[int, ...]]()
        if shape:
            self.x = self.input(*shape)

    def input(self, *shape: int) -> Value:
        self.shapes.append(shape)
        return self.network.add_input_layer(len(self.shapes) - 1, TensorInfo(shape, self.dtype)).output

    def add(self, op: object, *operands: Value | None) -> Value:
        return self.network.add_layer(op, *operands).output

    def constant(self, array: Array, q: Quantization | None = None) -> Value:
        return self.network.add_constant_layer(array, q).output

    def floats(self, *shape: int, dtype: str = "float32", low: float = -1, high: float = 1) -> Value:
        return self.constant(self.random.uniform(low, high, shape).astype(DataType.of(dtype).numpy))

    def integers(self, kind: str, *shape: int, spread: float = 1) -> Array:
        low, high = (int(limit * spread) for limit in LIMITS[kind])
        return self.random.integers(low, high, shape, endpoint=True).astype(TYPES[kind])

    def blocks(
        self, kind: str, shape: tuple[int, int], block: int, axis: int = 0, *, zeros: bool = True,
        scale: str = "float32", dtype: str = "float32",
    ) -> Value:  # fmt: skip
        """Return weights with a scale for each block."""
        op = BlockDequantize(block, axis, DataType.of(dtype))
        counts = tuple(op.shape_of_scales(TensorInfo(shape, kind)))
        points = self.constant(self.integers(kind, *counts, spread=0.5)) if zeros else None
        scales = self.floats(*counts, dtype=scale, low=0.01, high=0.1)
        return self.add(op, self.constant(self.integers(kind, *shape)), scales, points)

    def assert_close(self, *results: Value, threads: int = 1, rewrite: bool = True, tolerance: float = 1e-5) -> None:
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        inputs = [self.random.standard_normal(shape).astype(self.dtype.numpy) for shape in self.shapes]
        options = ip.OptimizerOptions(rewrite=rewrite, model_options={"CpuAcc": {"NumberOfThreads": threads}})
        found = ip.load(self.network, ["CpuAcc"], options=options).run(inputs)
        expected = reference_results(self.network, inputs)
        for number, (item, other) in enumerate(zip(found, expected, strict=True)):
            item, other = item.astype(np.float64), other.astype(np.float64)
            assert item.shape == other.shape
            atol, name = tolerance * np.abs(other).max(initial=1e-30), f"result {number} of shape {other.shape}"
            np.testing.assert_allclose(item, other, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("rewrite", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40])
def test_every_type_with_and_without_zero_points(rows: int, kind: str, zeros: bool, rewrite: bool) -> None:
    net, products = Net(), []
    for depth, columns, block in ((64, 96, 32), (100, 70, 16), (33, 130, 64), (40, 17, 5)):
        x = net.input(rows, depth)
        for axis in (0, 1):
            shape = (depth, columns) if axis == 0 else (columns, depth)
            weights = net.blocks(kind, shape, block, axis, zeros=zeros)
            products.append(net.add(BatchMatMul(transpose_y=axis == 1), x, weights))
    net.assert_close(*products, rewrite=rewrite)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("rows", [1, 64])
def test_every_usual_size_of_blocks(rows: int, block: int, threads: int) -> None:
    net = Net(rows, 600)
    net.assert_close(net.add(BatchMatMul(), net.x, net.blocks("uint4", (600, 330), block)), threads=threads)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, 20])
def test_one_scale_or_a_scale_for_each_channel(rows: int, kind: str, axis: int | None) -> None:
    for transposed in (False, True):
        net = Net(rows, 80)
        shape = (96, 80) if transposed else (80, 96)
        scales = net.random.uniform(0.01, 0.1, 1 if axis is None else shape[axis]).tolist()
        points = [3] if axis is None else net.integers(kind, shape[axis], spread=0.5).astype(int).tolist()
        q = Quantization(scales, points, axis)
        weights = net.add(Dequantize(), net.constant(net.integers(kind, *shape), q))
        net.assert_close(net.add(BatchMatMul(transpose_y=transposed), net.x, weights))


@pytest.mark.parametrize("rewrite", [False, True])
@pytest.mark.parametrize("rows", [1, 30])
def test_blocks_along_the_columns(rows: int, rewrite: bool) -> None:
    net = Net(rows, 64)
    net.assert_close(net.add(BatchMatMul(), net.x, net.blocks("int4", (64, 96), 32, axis=1)), rewrite=rewrite)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize("kind", ["int4", "uint8"])
def test_scales_of_half_precision(kind: str, rows: int, dtype: str) -> None:
    net = Net(rows, 96)
    net.assert_close(net.add(BatchMatMul(), net.x, net.blocks(kind, (96, 80), 32, scale=dtype)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [1, 30])
def test_networks_of_half_precision(rows: int, dtype: str) -> None:
    net = Net(rows, 96, dtype=dtype)
    weights = net.blocks("int4", (96, 80), 32, scale=dtype, dtype=dtype)
    plain = net.floats(80, 70, dtype=dtype)
    product = net.add(BatchMatMul(), net.add(BatchMatMul(), net.x, weights), plain)
    net.assert_close(product, tolerance=1e-2 if dtype == "float16" else 3e-2)


@pytest.mark.parametrize("rows", [1, 30])
def test_weights_that_are_transposed_and_cast_on_the_way(rows: int) -> None:
    for rewrite in (False, True):
        net = Net(rows, 96)
        weights = net.blocks("int4", (80, 96), 32, axis=1, scale="float16", dtype="float16")
        weights = net.add(Transpose((1, 0)), net.add(Cast(DataType.FLOAT32), weights))
        net.assert_close(net.add(BatchMatMul(), net.x, weights), rewrite=rewrite, tolerance=1e-3)


@pytest.mark.parametrize("rows", [1, 30])
def test_bias_activation_and_residual(rows: int) -> None:
    net = Net(2, rows, 64)
    first = net.add(BatchMatMul(), net.x, net.blocks("int4", (64, 72), 32))
    first = net.add(Activation(ActivationFunction.GELU), net.add(Addition(), first, net.floats(72)))
    second = net.add(BatchMatMul(), first, net.blocks("uint4", (72, 64), 24))
    net.assert_close(net.add(Activation(ActivationFunction.RELU), net.add(Addition(), second, net.x)))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_fully_connected_layers(transposed: bool, keep: bool) -> None:
    net = Net(3, 2, 64)
    axis = 1 if transposed else 0
    weights = net.blocks("int8", (80, 64) if transposed else (64, 80), 16, axis)
    net.assert_close(net.add(FullyConnected(transposed, keep_dims=keep), net.x, weights, net.floats(80)))


def test_a_vector_and_a_batch() -> None:
    for shape in ((64,), (1, 64), (2, 3, 1, 64), (2, 0, 64)):
        net = Net(*shape)
        net.assert_close(net.add(BatchMatMul(), net.x, net.blocks("int4", (64, 80), 32)))


def test_several_readers_of_the_same_weights() -> None:
    net = Net(1, 80)
    weights = net.blocks("int4", (80, 80), 16)
    first = net.add(BatchMatMul(), net.x, weights)
    second = net.add(BatchMatMul(transpose_y=True), first, weights)
    net.assert_close(second, net.add(Addition(), weights, net.add(BatchMatMul(), first, weights)))


def test_an_embedding_table_that_is_also_the_last_matrix() -> None:
    net = Net(5)
    indices = net.add(Cast(DataType.INT32), net.add(Activation(ActivationFunction.BOUNDED_RELU, 90.0, 0.0), net.x))
    table = net.blocks("uint4", (100, 64), 32, axis=1)
    net.assert_close(net.add(BatchMatMul(transpose_y=True), net.add(Gather(axis=0), table, indices), table))


@pytest.mark.parametrize("block", [8, 9, 1 << 40, (1 << 63) - 1])
def test_blocks_may_be_longer_than_their_axis(block: int) -> None:
    net = Net(3, 1)
    net.assert_close(net.add(BlockDequantize(block, 1), net.constant(net.integers("int8", 3, 8)), net.x))
    net = Net(3, 8)
    net.assert_close(net.add(BatchMatMul(), net.x, net.blocks("int8", (8, 600), block)))


def test_infinite_scales_and_activations() -> None:
    net = Net(2, 64)
    codes, scales = net.constant(net.integers("int4", 64, 80)), net.random.uniform(0.01, 0.1, (2, 80))
    scales[0, 3] = np.inf
    weights = net.add(BlockDequantize(32, 0), codes, net.constant(scales.astype(np.float32)))
    net.network.add_output_layer(0, net.add(BatchMatMul(), net.x, weights))
    x = net.random.standard_normal((2, 64)).astype(np.float32)
    found, expected = ip.load(net.network, ["CpuAcc"]).run([x])[0], reference_results(net.network, [x])[0]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


def test_weights_stay_quantized_for_cpuacc_and_become_floats_for_cpuref() -> None:
    net = Net(1, 64)
    net.network.add_output_layer(0, net.add(BatchMatMul(), net.x, net.blocks("int4", (64, 80), 32)))
    shown = {}
    for name in ("CpuAcc", "CpuRef"):
        graph = simplified(net.network, [name]).graph
        shown[name] = sorted(layer.kind for layer in graph if _is_computed(layer))
    assert shown == {"CpuAcc": ["BatchMatMul", "BlockDequantize"], "CpuRef": ["BatchMatMul"]}


def _is_computed(layer: Layer) -> bool:
    return layer.kind not in ("Input", "Output", "Constant")


def test_a_network_from_the_cache_has_the_same_weights(tmp_path) -> None:
    net = Net(1, 128)
    weights = net.blocks("uint4", (128, 4096), 32)
    net.network.add_output_layer(0, net.add(BatchMatMul(), net.x, weights))
    x = net.random.standard_normal((1, 128)).astype(np.float32)
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"CacheDirectory": str(tmp_path)}})
    first, second = (ip.load(net.network, ["CpuAcc"], options=options).run([x])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
