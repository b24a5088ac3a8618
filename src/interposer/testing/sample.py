"""Samples: one operator with the tensors to try it on. They are the inputs of every conformance check.

The samples of a family are in ``testing/samples/<family>.py``, as a generator for each operator::

    @samples(DepthToSpace)
    def depth_to_space() -> Iterator[Sample]:
        for dtype in (FLOAT32, INT8):
            yield Sample(DepthToSpace(block_size=2), [given((1, 2, 2, 8), dtype)], name=str(dtype))
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Quantization, ShapeLike, TensorInfo, integer_range
from interposer.ir.graph import Layer
from interposer.ir.network import Network

__all__ = [
    "Given",
    "Sample",
    "along_axis",
    "given",
    "given_by",
    "of",
    "registered_ops",
    "rounded",
    "samples",
    "sources_of",
    "weights",
]


@dataclass(frozen=True, eq=False)
class Given:
    """One operand of a sample: its info, and its values, which are random if none are specified.

    Random values are drawn between `low` and `high`, then rounded for integers, or quantized with the info's
    quantization. A `constant` operand is part of the network; any other operand is an input from the caller.
    """

    info: TensorInfo
    values: Array | None = None
    low: float = -4.0
    high: float = 4.0
    constant: bool = False

    def array(self, generator: np.random.Generator) -> Array:
        """Return the operand's array, also of a scalar; unspecified values are drawn from `generator`."""
        if self.values is not None:
            return self.values
        reals = generator.uniform(self.low, self.high, tuple(self.info.shape))
        return np.asarray(_stored(reals, self.info))  # NumPy's functions turn arrays without axes into numbers


def _stored(reals: Array, info: TensorInfo) -> Array:
    if info.dtype is DataType.STRING:
        return np.array([f"text {number:.1f}" for number in reals.ravel()], object).reshape(reals.shape)
    if info.dtype is DataType.BOOL:
        return np.asarray(reals > 0)
    if info.dtype.is_float:
        return reals.astype(info.dtype.numpy)
    return rounded(reals, info)


def rounded(reals: Array, info: TensorInfo) -> Array:
    """Return float values as integers of the type of `info`: quantized if it has a quantization, and saturated."""
    quantization = info.quantization
    if quantization is not None:
        reals = reals / along_axis(quantization.scales, quantization, info.rank) + along_axis(
            quantization.zero_points, quantization, info.rank
        )
    lowest, highest = integer_range(info.dtype)
    return np.asarray(np.clip(np.rint(reals), lowest, highest).astype(info.dtype.numpy))


def along_axis(numbers: Sequence[float], q: Quantization, rank: int) -> Array:
    """Return the scales or zero points of a quantization as float64, in a shape that broadcasts to a tensor."""
    shape = [1] * rank
    if q.axis is not None:
        shape[q.axis] = -1
    return np.reshape(np.asarray(numbers, np.float64), shape)


@dataclass(frozen=True, eq=False)
class Sample:
    """An operator, its operands (None for an absent optional operand), and the declared infos of its results.

    `outputs` gives infos where inference needs them, above all for quantized results. `expected` holds the results of a
    worked example; without it, those of the reference backend are expected. `statistical` marks an operator that draws
    random numbers, of which only shapes and types are compared. `exact` marks results that must be equal bit by bit.
    `extreme` marks values near the ends of the range of floats: one operator computes with them, but a composition of
    several operators with the same meaning may overflow or underflow.
    """

    op: Op
    inputs: Sequence[Given | None]
    outputs: Sequence[TensorInfo | None] = ()
    name: str = ""
    expected: Sequence[Array] | None = None
    statistical: bool = False
    exact: bool = False
    extreme: bool = False

    @property
    def id(self) -> str:
        """The operator's name and the sample's name, unique among all samples."""
        return f"{self.op.op_name()}-{self.name}" if self.name else self.op.op_name()

    def arrays(self) -> list[Array | None]:
        """Return the operands' arrays: always the same for one sample, but different between samples."""
        generator = np.random.default_rng(zlib.crc32(self.id.encode()))
        return [None if operand is None else operand.array(generator) for operand in self.inputs]

    def network(self) -> tuple[Network, dict[int, Array]]:
        """Return a network of this single layer, and its input arrays by binding id."""
        network, feeds = Network(self.id), dict[int, Array]()
        values: list[Layer | None] = []
        for index, (operand, array) in enumerate(zip(self.inputs, self.arrays(), strict=True)):
            if operand is None or array is None:
                values.append(None)
            elif operand.constant:
                values.append(network.add_constant_layer(array, operand.info.quantization, f"constant_{index}"))
            else:
                values.append(network.add_input_layer(index, operand.info, f"input_{index}"))
                feeds[index] = array
        layer = network.add_layer(self.op, *values, name="layer", outputs=self.outputs)
        for index, value in enumerate(layer.outputs):
            network.add_output_layer(index, value, f"output_{index}")
        return network, feeds


def given(
    shape: ShapeLike,
    dtype: DataType = DataType.FLOAT32,
    quantization: Quantization | None = None,
    *,
    low: float = -4.0,
    high: float = 4.0,
) -> Given:
    """Return an operand that is an input of the network, with random values between `low` and `high`."""
    return Given(TensorInfo(shape, dtype, quantization), low=low, high=high)


def weights(
    shape: ShapeLike,
    dtype: DataType = DataType.FLOAT32,
    quantization: Quantization | None = None,
    *,
    low: float = -1.0,
    high: float = 1.0,
) -> Given:
    """Return an operand that is a constant of the network, with random values between `low` and `high`."""
    return Given(TensorInfo(shape, dtype, quantization), low=low, high=high, constant=True)


def of(values: object, dtype: DataType = DataType.FLOAT32, *, constant: bool = False) -> Given:
    """Return an operand with these values, which is an input of the network unless `constant` is True."""
    array = np.asarray(values, dtype.numpy)
    return Given(TensorInfo(array.shape, dtype), array, constant=constant)


Source = Callable[[], Iterator[Sample]]
_SOURCES: Final[dict[type[Op], list[Source]]] = {}


def samples(*ops: type[Op]) -> Callable[[Source], Source]:
    """Return a decorator that registers a generator as a source of samples of these operators."""

    def add(source: Source) -> Source:
        for op in ops:
            _SOURCES.setdefault(op, []).append(source)
        return source

    return add


def registered_ops() -> tuple[type[Op], ...]:
    """Return the operators for which generators are registered so far, in the order of registration."""
    return tuple(_SOURCES)


def sources_of(op: type[Op]) -> tuple[Source, ...]:
    """Return the functions that yield samples of an operator; each may also yield samples of other operators."""
    return tuple(_SOURCES.get(op, ()))


@cache
def _given_by(source: Source) -> Mapping[type[Op], Sequence[Sample]]:
    """Call a generator of samples, and return its samples grouped by operator; the result is cached."""
    samples_by_op: dict[type[Op], list[Sample]] = {}
    for sample in source():
        samples_by_op.setdefault(type(sample.op), []).append(sample)
    return samples_by_op


def given_by(source: Source, op: type[Op]) -> Sequence[Sample]:
    """Return the samples of one operator that a generator yields."""
    return _given_by(source).get(op, ())
