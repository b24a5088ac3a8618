"""Random networks, as strategies of hypothesis.

They are valid, small, of known shapes, and the reference kernels can run them: with several inputs and outputs, layers
with optional operands, with any number of operands and with several results, constants, images and quantized tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np

from interposer.errors import MissingDependencyError
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    Concat,
    Convolution2d,
    Dequantize,
    ElementwiseUnary,
    FullyConnected,
    Maximum,
    Mean,
    Multiplication,
    Pad,
    Pooling2d,
    PoolingAlgorithm,
    Quantize,
    Reduce,
    ReduceOperation,
    Reshape,
    Slice,
    Softmax,
    Splitter,
    Subtraction,
    Tile,
    Transpose,
    UnaryOperation,
)
from interposer.schema import Op
from interposer.types import Array, DataLayout, DataType, Quantization, TensorInfo

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["feeds_for", "hypothesis", "networks"]

_T = TypeVar("_T")
_FUNCTIONS: Final = (ActivationFunction.RELU, ActivationFunction.SIGMOID, ActivationFunction.BOUNDED_RELU)
_SCALES: Final = (0.1, 0.5, 1.0)
_ROOM: Final = 256
"""Tensors grow to about as many elements, so that many networks run in little time."""


def hypothesis() -> Any:
    """The package, which comes with the extra `testing`.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import hypothesis as found  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError("hypothesis", "testing", "drawing random networks") from error
    return found


def networks(max_layers: int = 8, favoured: Collection[type[Op]] = ()) -> SearchStrategy[Network]:
    """A strategy for valid networks of so many layers, and some that these need; what no layer takes is an output.

    Operators that are `favoured` come more often than others.
    """
    strategies = hypothesis().strategies
    composite: Callable[..., Callable[[], SearchStrategy[Network]]] = strategies.composite
    return composite(lambda draw: _network(_Drawing(draw, strategies), max_layers, frozenset(favoured)))()


def feeds_for(graph: Graph, seed: int = 0) -> dict[int, Array]:
    """Random data for every input of a graph, by binding id: small whole numbers."""
    random = np.random.default_rng(seed)
    infos = {layer.op.binding_id: layer.output.known for layer in graph.inputs}  # type: ignore[attr-defined]
    return {key: random.integers(-8, 8, tuple(info.shape)).astype(info.dtype.numpy) for key, info in infos.items()}


class _Draw(Protocol):
    def integer(self, low: int, high: int) -> int: ...
    def one_of(self, choices: Sequence[_T]) -> _T: ...
    def order(self, count: int) -> tuple[int, ...]: ...


class _Drawing:
    """What is drawn, in the words that are used here; smaller numbers and earlier choices count as simpler."""

    def __init__(self, draw: Callable[[Any], Any], strategies: Any) -> None:
        self._draw, self._strategies = draw, strategies

    def integer(self, low: int, high: int) -> int:
        return int(self._draw(self._strategies.integers(low, high)))

    def one_of(self, choices: Sequence[_T]) -> _T:
        found: _T = self._draw(self._strategies.sampled_from(choices))
        return found

    def order(self, count: int) -> tuple[int, ...]:
        return tuple(self._draw(self._strategies.permutations(range(count))))


class _Growth:
    """A network that grows; `values` are all that a layer may take."""

    def __init__(self, draw: _Draw, favoured: Collection[type[Op]]) -> None:
        self.draw, self.favoured = draw, favoured
        self.network = Network(draw.one_of(["", "net"]))
        self.values: list[Value] = []

    def input(self, number: int) -> None:
        quantization = self.draw.one_of([None, None, self.quantization()])
        shape = [self.draw.integer(1, 4) for _ in range(self.draw.integer(1, 4))]
        info = TensorInfo(shape, DataType.INT8 if quantization else DataType.FLOAT32, quantization)
        self.values.append(self.network.add_input_layer(number, info).output)

    def quantization(self) -> Quantization:
        return Quantization(self.draw.one_of(_SCALES), self.draw.integer(-3, 3))

    def add(self, op: Op, *values: Value | None, outputs: TensorInfo | None = None) -> Value:
        """A layer's only result."""
        return self.network.add_layer(op, *values, outputs=outputs).output

    def one_of(self, *ops: Op) -> Op:
        """One of these operators, of those that are favoured where any is."""
        return self.draw.one_of([op for op in ops if type(op) in self.favoured] or ops)

    def real(self, value: Value) -> Value:
        """The value as float32."""
        if value.known.is_quantized:
            return self.add(Dequantize(), value)
        return value

    def constant(self, *shape: int) -> Value:
        """Quarters from -2 to 2."""
        numbers = [self.draw.integer(-8, 8) for _ in range(int(np.prod(shape)))]
        return self.network.add_constant_layer(np.array(numbers, np.float32).reshape(shape) / 4).output

    def alike(self, value: Value) -> Value:
        """Some value of the same kind, perhaps the same one."""
        return self.draw.one_of([other for other in self.values if other.known == value.known] or [value])

    def axis(self, value: Value) -> int:
        return self.draw.integer(0, value.known.rank - 1)

    def image(self, value: Value) -> Value:
        """The value as float32 of rank 4, the last axis being the channels."""
        value = self.real(value)
        if value.known.rank == 4:
            return value
        return self.add(Reshape((1, value.known.shape[0] if value.known.rank else 1, -1, 1)), value)


def _network(draw: _Draw, max_layers: int, favoured: frozenset[type[Op]]) -> Network:
    growth = _Growth(draw, favoured)
    growers = [*_GROWERS, *(grow for grow, ops in _GROWERS.items() if not favoured.isdisjoint(ops) for _ in _GROWERS)]
    for number in range(draw.integer(1, 3)):
        growth.input(number)
    for number in range(max_layers):
        if number and not draw.integer(0, 9):  # asked anew for every layer, so that any layer can be left out
            break
        value, grow = draw.one_of(growth.values), draw.one_of(growers)
        if value.known.num_elements <= _ROOM:
            made = grow(growth, value)
            growth.values += [made] if isinstance(made, Value) else made
    unused = [value for value in growth.values if not value.uses]
    for number, value in enumerate(unused):
        growth.network.add_output_layer(number, value)
    growth.network.validate()
    return growth.network


# --- what may follow a value; simpler layers first --------------------------------------------------------------------


def _reshaped(growth: _Growth, value: Value) -> Value:
    return growth.add(Reshape(growth.draw.one_of([(-1,), (1, -1), tuple(value.known.shape)])), value)


def _transposed(growth: _Growth, value: Value) -> Value:
    return growth.add(Transpose(growth.draw.order(value.known.rank)), value)


def _split(growth: _Growth, value: Value) -> list[Value]:
    axis = growth.axis(value)
    extent = value.known.shape[axis]
    first = growth.draw.integer(1, extent)
    sizes = (first, extent - first) if first < extent else (first,)
    layer: Layer = growth.network.add_layer(Splitter(axis, sizes), value)
    return list(layer.outputs)


def _joined(growth: _Growth, value: Value) -> Value:
    chosen = [growth.alike(value) for _ in range(growth.draw.integer(1, 3))]
    op = Concat(growth.axis(value))
    [inferred] = op.infer_infos(*(one.known for one in chosen))
    assert inferred is not None
    return growth.add(op, *chosen, outputs=inferred.with_quantization(chosen[0].known.quantization))


def _padded(growth: _Growth, value: Value) -> Value:
    pads = [(growth.draw.integer(0, 1), growth.draw.integer(0, 1)) for _ in range(value.known.rank)]
    return growth.add(Pad(tuple(pads), float(growth.draw.integer(-1, 1))), value)


def _sliced(growth: _Growth, value: Value) -> Value:
    begin = [growth.draw.integer(0, extent - 1) for extent in value.known.shape]
    return growth.add(Slice(tuple(begin), (-1,) * value.known.rank), value)


def _tiled(growth: _Growth, value: Value) -> Value:
    return growth.add(Tile(tuple(growth.draw.integer(1, 2) for _ in value.known.shape)), value)


def _activated(growth: _Growth, value: Value) -> Value:
    functions = (Activation(function, 6.0) for function in _FUNCTIONS)
    return growth.add(growth.one_of(*functions, Softmax(), ElementwiseUnary(UnaryOperation.NEG)), growth.real(value))


def _combined(growth: _Growth, value: Value) -> Value:
    value = growth.real(value)
    op = growth.one_of(Addition(), Subtraction(), Multiplication(), Maximum())
    if growth.draw.integer(0, 1):
        return growth.add(op, value, growth.alike(value))
    return growth.add(op, value, growth.constant(*value.known.shape[-1:]))


def _connected(growth: _Growth, value: Value) -> Value:
    value = growth.add(Reshape((1, -1)), growth.real(value))
    units = growth.draw.integer(1, 3)
    bias = growth.constant(units) if growth.draw.integer(0, 1) else None
    return growth.add(FullyConnected(), value, growth.constant(value.known.shape[-1], units), bias)


def _multiplied(growth: _Growth, value: Value) -> Value:
    value = growth.real(value)
    return growth.add(BatchMatMul(), value, growth.constant(value.known.shape[-1], growth.draw.integer(1, 3)))


def _convolved(growth: _Growth, value: Value) -> Value:
    value = growth.image(value)
    height, width = (min(2, extent) for extent in value.known.shape[1:3])
    weights = growth.constant(growth.draw.integer(1, 3), height, width, value.known.shape[3])
    pad, stride = growth.draw.integer(0, 1), growth.draw.integer(1, 2)
    op = Convolution2d(pad_left=pad, pad_top=pad, stride_x=stride, data_layout=DataLayout.NHWC)
    return growth.add(op, value, weights)


def _pooled(growth: _Growth, value: Value) -> Value:
    value = growth.image(value)
    height, width = (min(2, extent) for extent in value.known.shape[1:3])
    op = Pooling2d(
        growth.draw.one_of([PoolingAlgorithm.MAX, PoolingAlgorithm.AVERAGE]),
        pool_width=width, pool_height=height, stride_x=1, stride_y=growth.draw.integer(1, 2),
        data_layout=DataLayout.NHWC,
    )  # fmt: skip
    return growth.add(op, value)


def _reduced(growth: _Growth, value: Value) -> Value:
    axis, keep = (growth.axis(value),), True
    maximum = Reduce(axis, keep, ReduceOperation.MAX)
    return growth.add(growth.one_of(Mean(axis, keep), maximum), growth.real(value))


def _quantized(growth: _Growth, value: Value) -> Value:
    value = growth.real(value)
    info = TensorInfo(value.known.shape, DataType.INT8, growth.quantization())
    return growth.add(Quantize(DataType.INT8), value, outputs=info)


_GROWERS: Final[Mapping[Callable[[_Growth, Value], Value | list[Value]], Collection[type[Op]]]] = {
    _reshaped: {Reshape},
    _transposed: {Transpose},
    _split: {Splitter},
    _joined: {Concat},
    _activated: {Activation, Softmax, ElementwiseUnary},
    _combined: {Addition, Subtraction, Multiplication, Maximum},
    _connected: {FullyConnected},
    _quantized: {Quantize},
    _padded: {Pad},
    _sliced: {Slice},
    _tiled: {Tile},
    _multiplied: {BatchMatMul},
    _convolved: {Convolution2d},
    _pooled: {Pooling2d},
    _reduced: {Mean, Reduce},
}
"""What makes a layer behind a value, and the operators that it may add."""
