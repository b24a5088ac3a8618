"""Random quantized ONNX models whose every value is that of exact arithmetic, rounded half to even."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

import interposer as ip
from tests.parameters import slow_unless

pytestmark = pytest.mark.needs_cpuref
onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

SCALES = (0.5, 0.25, 1 / 64, 0.1, 0.3, 0.05, 0.0123)
"""The scales that are drawn: with powers of two and multiples of each other, many results are halfway."""


@dataclass
class Quantized:
    """A quantized tensor of the model, with its values: integers that are exact by the oracle."""

    name: str
    values: np.ndarray
    scale: np.float32
    zero: int

    @property
    def distances(self) -> np.ndarray:
        return self.values.astype(np.int64) - self.zero

    @property
    def reals(self) -> np.ndarray:
        return self.distances.astype(np.float32) * self.scale


@dataclass
class Model:
    """An ONNX model of layers between DequantizeLinear and QuantizeLinear, which computes its values as it grows."""

    draw: np.random.Generator
    nodes: list = field(default_factory=list)
    constants: list = field(default_factory=list)
    tensors: list[Quantized] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.draw.choice([np.int8, np.uint8]))
        limits = np.iinfo(self.dtype)
        shape = (1, int(self.draw.integers(1, 5)), int(self.draw.integers(2, 7)), int(self.draw.integers(2, 7)))
        values = self.draw.integers(limits.min, limits.max, shape, endpoint=True).astype(self.dtype)
        self.feed = Quantized("x", values, self.scale(), self.zero())
        self.tensors.append(self.feed)

    def scale(self) -> np.float32:
        return np.float32(self.draw.choice(SCALES))

    def zero(self) -> int:
        return int(self.draw.integers(*((-9, 9) if self.dtype == np.int8 else (119, 137))))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def real(self, tensor: Quantized) -> str:
        return self.node(
            "DequantizeLinear", tensor.name, self.constant(tensor.scale),
            self.constant(np.asarray(tensor.zero, tensor.values.dtype)),
        )  # fmt: skip

    def quantized(self, real: str, steps: Callable[[np.float64], np.ndarray]) -> None:
        """Quantize the result `real`; `steps` gives its exact number of steps of a scale."""
        scale, zero = self.scale(), self.zero()
        name = self.node("QuantizeLinear", real, self.constant(scale), self.constant(np.asarray(zero, self.dtype)))
        limits = np.iinfo(self.dtype)
        values = np.clip(np.rint(steps(scale)) + zero, limits.min, limits.max).astype(self.dtype)
        self.tensors.append(Quantized(name, values, scale, zero))

    def weights(self, shape: tuple[int, ...], channels: int) -> tuple[str, np.ndarray, np.ndarray]:
        """Return the name of dequantized weights with channels along axis 0, their integers, and the scales."""
        integers = self.draw.integers(-127, 127, shape, endpoint=True).astype(np.int8)
        if self.draw.random() < 0.5:
            scales = np.array([self.scale() for _ in range(channels)])
            name = self.node("DequantizeLinear", self.constant(integers), self.constant(scales), axis=0)
            return name, integers.astype(np.int64), scales
        scale = self.scale()
        return (
            self.node("DequantizeLinear", self.constant(integers), self.constant(scale)),
            integers.astype(np.int64),
            (np.full(channels, scale)),
        )

    def bias(self, products: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return the operands for a bias, which may be none, and its float values."""
        kind = self.draw.integers(3)
        if kind == 0:
            return [], np.zeros(len(products))
        if kind == 1:
            real = self.draw.normal(0, 3, len(products)).astype(np.float32)
            return [self.constant(real)], real.astype(np.float64)
        integers, scales = self.draw.integers(-2000, 2000, len(products)).astype(np.int32), products.astype(np.float32)
        name = self.node("DequantizeLinear", self.constant(integers), self.constant(scales), axis=0)
        return [name], (integers.astype(np.float32) * scales).astype(np.float64)

    def build(self) -> bytes:
        last, type_number = self.tensors[-1], helper.np_dtype_to_tensor_dtype(self.dtype)
        graph = helper.make_graph(
            self.nodes, "quantized",
            [helper.make_tensor_value_info("x", type_number, self.feed.values.shape)],
            [helper.make_tensor_value_info(last.name, type_number, last.values.shape)], self.constants,
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def convolution(model: Model, x: Quantized) -> None:
    depthwise, channels = model.draw.random() < 0.4, x.values.shape[1]
    outputs = channels if depthwise else int(model.draw.integers(1, 9))
    size = tuple(min(int(model.draw.integers(1, 4)), extent) for extent in x.values.shape[2:])
    name, integers, scales = model.weights((outputs, 1 if depthwise else channels, *size), outputs)
    products = scales.astype(np.float64) * np.float64(x.scale)
    operands, bias = model.bias(products)
    clamps = model.draw.random() < 0.3
    real = model.node("Conv", model.real(x), name, *operands, group=channels if depthwise else 1)
    windows = np.lib.stride_tricks.sliding_window_view(x.distances, size, axis=(2, 3))
    form = "nchwij,cij->nchw" if depthwise else "nihwkl,oikl->nohw"
    sums = np.einsum(form, windows, integers[:, 0] if depthwise else integers)
    values = sums * products.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
    if clamps:
        real, values = model.node("Relu", real), np.maximum(values, 0)
    model.quantized(real, lambda scale: values / np.float64(scale))


def fully_connected(model: Model, x: Quantized) -> None:
    rows = x.values.reshape(1, -1)
    flat = Quantized(model.node("Flatten", x.name), rows, x.scale, x.zero)
    outputs = int(model.draw.integers(1, 20))
    name, integers, scales = model.weights((outputs, rows.shape[1]), outputs)
    products = scales.astype(np.float64) * np.float64(x.scale)
    operands, bias = model.bias(products)
    real = model.node("Gemm", model.real(flat), name, *operands, transB=1)
    values = flat.distances @ integers.T * products + bias
    model.quantized(real, lambda scale: values / np.float64(scale))
    last = model.tensors.pop()
    shape = model.constant(np.array([1, outputs, 1, 1], np.int64))
    values_4d = last.values.reshape(1, outputs, 1, 1)
    model.tensors.append(Quantized(model.node("Reshape", last.name, shape), values_4d, last.scale, last.zero))


def product(model: Model, x: Quantized) -> None:
    real_x, turned = model.real(x), model.node("Transpose", model.real(x), perm=[0, 1, 3, 2])
    sums = x.distances @ x.distances.swapaxes(2, 3)
    values = sums * (np.float64(x.scale) * np.float64(x.scale))
    model.quantized(model.node("MatMul", real_x, turned), lambda scale: values / np.float64(scale))


def arithmetic(model: Model, x: Quantized) -> None:
    kind = str(model.draw.choice(["Add", "Sub", "Mul"]))
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[kind]
    alike = [tensor for tensor in model.tensors if tensor.values.shape == x.values.shape]
    other = alike[int(model.draw.integers(len(alike)))]
    result = function(x.reals, other.reals)
    model.quantized(model.node(kind, model.real(x), model.real(other)), lambda scale: result / scale)


def average(model: Model, x: Quantized) -> None:
    if model.draw.random() < 0.5:
        count, sums = x.values.shape[2] * x.values.shape[3], x.distances.sum(axis=(2, 3), keepdims=True)
        real = model.node("GlobalAveragePool", model.real(x))
    else:
        size = tuple(min(int(model.draw.integers(1, 4)), extent) for extent in x.values.shape[2:])
        count = size[0] * size[1]
        sums = np.lib.stride_tricks.sliding_window_view(x.distances, size, axis=(2, 3)).sum(axis=(4, 5))
        real = model.node("AveragePool", model.real(x), kernel_shape=size)
    model.quantized(real, lambda scale: sums * np.float64(x.scale) / (count * np.float64(scale)))


def leaky(model: Model, x: Quantized) -> None:
    slope = np.float32(model.draw.choice([0.5, 0.25, 0.1]))
    result = np.where(x.reals >= 0, x.reals, slope * x.reals)
    real = model.node("LeakyRelu", model.real(x), alpha=float(slope))
    model.quantized(real, lambda scale: result / scale)


LAYERS = (convolution, convolution, fully_connected, product, arithmetic, arithmetic, average, leaky)


def random_model(number: int) -> Model:
    model = Model(np.random.default_rng([11, number]))
    for _ in range(int(model.draw.integers(1, 7))):
        LAYERS[int(model.draw.integers(len(LAYERS)))](model, model.tensors[-1])
    return model


def problems(numbers: range, ids: list[str]) -> list[str]:
    """Return the models whose result on these backends is not the exact one, with the number of wrong values."""
    found = []
    for number in numbers:
        model = random_model(number)
        [result] = ip.load(model.build(), ids, format="onnx").run([model.feed.values])
        wrong = int((result != model.tensors[-1].values).sum())
        if wrong:
            found.append(f"model {number}: {wrong} of {result.size} values")
    return found


@pytest.mark.parametrize("start", slow_unless(lambda start: start == 0, range(0, 10000, 100)))
@pytest.mark.parametrize("ids", [["CpuRef"], ["CpuAcc", "CpuRef"]], ids="-".join)
def test_quantized_models_are_rounded_as_onnx_says(ids, start, request):
    if "CpuAcc" in ids:
        request.getfixturevalue("cpuacc")
    assert problems(range(start, start + 100), ids) == []
