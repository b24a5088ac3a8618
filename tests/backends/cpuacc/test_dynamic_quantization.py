"""Networks that quantize in each run give CpuRef's results: the same integers, and the same floats after them."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Cast,
    DynamicQuantize,
    IntegerConvolution2d,
    IntegerMatMul,
    Multiplication,
    Pooling2d,
)
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

FIRST, LAST = DataLayout.NCHW, DataLayout.NHWC
FLOAT: DataType = DataType.FLOAT32
CLAMPS = {
    "nothing": None,
    "a ReLU": Activation(ActivationFunction.RELU),
    "a clamp": Activation(ActivationFunction.BOUNDED_RELU, a=1.5, b=-0.5),
    "a sigmoid": Activation(ActivationFunction.SIGMOID),
}


class Net:
    """A network of one float input."""

    def __init__(self, *shape: int) -> None:
        self.network, self.random, self.shape = ip.Network("dynamic"), np.random.default_rng(7), shape
        self.x = self.network.add_input_layer(0, TensorInfo(shape), name="x").output

    def add(self, op: object, *operands: Value | None) -> Value:
        return self.network.add_layer(op, *operands).output

    def quantized(self, x: Value) -> list[Value]:
        return list(self.network.add_layer(DynamicQuantize(), x).outputs)

    def bytes_of(self, dtype: str, *shape: int) -> Value:
        limits = np.iinfo(dtype)
        values = self.random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return self.network.add_constant_layer(values).output

    def floats(self, *shape: int) -> Value:
        return self.network.add_constant_layer(self.random.uniform(0.001, 0.01, shape).astype(np.float32)).output

    def scaled(self, sums: Value, scale: Value, factors: Value, bias: Value | None = None) -> Value:
        """Return the sums as floats, times both scales, plus the bias."""
        product = self.add(Multiplication(), self.add(Cast(FLOAT), sums), self.add(Multiplication(), scale, factors))
        return product if bias is None else self.add(Addition(), bias, product)

    def assert_equal(self, *results: Value, threads: int = 1) -> None:
        for number, result in enumerate(results):
            self.network.add_output_layer(number, result)
        x = self.random.standard_normal(self.shape).astype(np.float32)
        options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
        found = ip.load(self.network, ["CpuAcc"], options=options).run([x])
        expected = reference_results(self.network, [x])
        for item, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(item, other)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 64, 70), (37, 33, 17), (130, 128, 260)])
def test_a_product_with_scales_and_bias_is_equal(
    rows: int, depth: int, columns: int, weights: str, clamp: str, threads: int
) -> None:
    net = Net(2, rows, depth)
    x, scale, zero = net.quantized(net.x)
    sums = net.add(IntegerMatMul(), x, net.bytes_of(weights, depth, columns), zero, net.bytes_of(weights))
    y = net.scaled(sums, scale, net.floats(columns), net.floats(columns))
    function = CLAMPS[clamp]
    y = y if function is None or clamp == "a sigmoid" else net.add(function, y)

    net.assert_equal(y, threads=threads)


@pytest.mark.parametrize("layout", [FIRST, LAST])
@pytest.mark.parametrize("groups", [1, 3, 12])
@pytest.mark.parametrize("points", ["none", "one", "each"])
def test_convolutions_with_scales_and_bias_are_equal(points: str, groups: int, layout: DataLayout) -> None:
    net = Net(*((2, 12, 7, 6) if layout is FIRST else (2, 7, 6, 12)))
    filters = (24, 12 // groups, 3, 2) if layout is FIRST else (24, 3, 2, 12 // groups)
    by_channel = (24, 1, 1) if layout is FIRST else (24,)
    point = {"none": None, "one": net.bytes_of("int8"), "each": net.bytes_of("int8", 24, 1, 1, 1)}[points]
    op = IntegerConvolution2d(data_layout=layout, groups=groups, pad_left=1, pad_bottom=2, stride_y=2)
    x, scale, zero = net.quantized(net.x)

    sums = net.add(op, x, net.bytes_of("int8", *filters), zero, point)
    y = net.add(Activation(ActivationFunction.RELU), net.scaled(sums, scale, net.floats(), net.floats(*by_channel)))
    pooled = net.add(Pooling2d(pool_height=2, pool_width=2, stride_x=1, stride_y=1, data_layout=layout), y)
    again, second, third = net.quantized(pooled)

    net.assert_equal(sums, y, again, second, third)


def test_sums_with_two_readers_are_kept_as_integers_and_scaled() -> None:
    net = Net(5, 20)
    x, scale, zero = net.quantized(net.x)
    sums = net.add(IntegerMatMul(), x, net.bytes_of("int8", 20, 9), zero)

    net.assert_equal(sums, net.scaled(sums, scale, net.floats()))


def test_a_bias_for_each_row_is_added_to_scaled_sums() -> None:
    net = Net(5, 20)
    x, scale, zero = net.quantized(net.x)
    sums = net.add(IntegerMatMul(), x, net.bytes_of("int8", 20, 5), zero)

    net.assert_equal(net.scaled(sums, scale, net.floats(5, 1), net.floats(5, 1)))


@pytest.mark.parametrize("points", [(), (4, 1), (3, 1, 1), (1, 6)])
def test_products_of_two_computed_matrices_are_equal(points: tuple[int, ...]) -> None:
    net = Net(3, 4, 6)
    x, _, zero = net.quantized(net.x)
    b = net.add(Cast(DataType.INT8), net.bytes_of("uint8", 6, 5))

    net.assert_equal(
        net.add(IntegerMatMul(), x, b, net.bytes_of("uint8", *points)), net.add(IntegerMatMul(), x, b, zero)
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("value", [0.0, 1.0, -2.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [1, 40, 100_000])
def test_any_numbers_are_quantized_alike(count: int, value: float, threads: int) -> None:
    network = ip.Network("numbers")
    for number, result in enumerate(
        network.add_layer(DynamicQuantize(), network.add_input_layer(0, TensorInfo((count,)), name="x")).outputs
    ):
        network.add_output_layer(number, result)
    numbers: list[Array] = [np.full(count, value, np.float32), np.linspace(0, 3, count, dtype=np.float32)]
    numbers[1][count // 2] = value
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    model, reference = ip.load(network, ["CpuAcc"], options=options), ip.load(network, ["CpuRef"])

    for x in numbers:
        for found, expected in zip(model.run([x]), reference.run([x]), strict=True):
            np.testing.assert_array_equal(found, expected)
