"""Extreme values, layer by layer and in pairs of layers, to find out where a backend silently computes in another type.

Integers above 2^24 show arithmetic in float32, integers above 2^31 arithmetic in 32 bits, and large values of float16
sums in float16. The results must be those of the reference kernels.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from interposer.core.errors import InterposerError, UnsupportedLayerError
from interposer.core.schema import Op
from interposer.core.traits import Role
from interposer.core.types import Array, DataType, TensorInfo, integer_range
from interposer.ir.computations import label_of, numbers_of, pair_of, types_of
from interposer.ir.graph import Graph, Layer, Value, binding_id
from interposer.ir.network import Network
from interposer.kernels import evaluate
from interposer.ops import (
    Activation,
    ActivationFunction,
    BinaryOperation,
    Cast,
    Comparison,
    ComparisonOperation,
    Concat,
    ElementwiseBinary,
    ElementwiseUnary,
    Reduce,
    ReduceOperation,
    Reshape,
    Transpose,
    UnaryOperation,
)
from interposer.ops.control import Constant, Input, Output
from interposer.testing.bench import Bench, Loaded
from interposer.testing.exact import suited
from interposer.testing.oracle import reference_values
from interposer.testing.sample import Sample

__all__ = ["Subject", "cells_of", "errors", "pairs", "pairs_of", "subject_of"]

Draw = Callable[[np.random.Generator, tuple[int, ...], DataType], Array]


# --- values -----------------------------------------------------------------------------------------------------------


def _beyond_24_bits(generator: np.random.Generator, shape: tuple[int, ...], dtype: DataType) -> Array:
    """Return integers of which float32 represents few exactly, many of them neighbours, and among them small ones."""
    neighbours, other_numbers = (
        (1 << 25) + generator.integers(1, 4, shape),
        generator.integers(1 << 24, 1 << 27, shape) * 2 + 1,
    )
    small_numbers = generator.integers(1, 4, shape)
    return _signed(
        generator, np.choose(generator.integers(3, size=shape), (neighbours, other_numbers, small_numbers)), dtype
    )


def _beyond_31_bits(generator: np.random.Generator, shape: tuple[int, ...], dtype: DataType) -> Array:
    """Return integers above 2^31, some of which are equal in their lower 32 bits, and among them small ones."""
    large_numbers = (generator.integers(1, 1 << 8, shape) << 32) + generator.choice([0, 1, 77, 3_000_000_001], shape)
    small_numbers = generator.integers(1, 4, shape)
    return _signed(
        generator, np.choose(generator.integers(3, size=shape), (large_numbers, large_numbers, small_numbers)), dtype
    )


def _ends(generator: np.random.Generator, shape: tuple[int, ...], dtype: DataType) -> Array:
    """Return the least and the largest integers of the type, and numbers near them; 0 is not among them."""
    low, high = integer_range(dtype)
    numbers = [low or 1, low + 1, low + 2, high // 2 + 1, high - 1, high]
    return np.array(numbers, dtype.numpy)[generator.integers(len(numbers), size=shape)]


def _halves(generator: np.random.Generator, shape: tuple[int, ...], dtype: DataType) -> Array:
    return _signed(generator, np.exp(generator.uniform(np.log(300), np.log(60000), shape)), dtype)


def _large(generator: np.random.Generator, shape: tuple[int, ...], dtype: DataType) -> Array:
    return _signed(generator, 10 ** generator.uniform(20, 38.4, shape), dtype)


def _special(generator: np.random.Generator, shape: tuple[int, ...], dtype: DataType) -> Array:
    return generator.choice([0.0, -0.0, np.inf, -np.inf, 1.0, -1.0], shape).astype(dtype.numpy)


def _signed(generator: np.random.Generator, magnitudes: Array, dtype: DataType) -> Array:
    """Return magnitudes in a type, with random signs if the type has negative numbers."""
    signs = 1 if dtype.is_integer and integer_range(dtype)[0] == 0 else generator.choice([-1, 1], magnitudes.shape)
    return np.asarray(magnitudes * signs).astype(dtype.numpy)


_DRAWS: Final[Mapping[str, Draw]] = {
    "beyond24": _beyond_24_bits,
    "beyond31": _beyond_31_bits,
    "ends": _ends,
    "halves": _halves,
    "large": _large,
    "special": _special,
}


def _conditions(dtype: DataType) -> list[str]:
    """Return the conditions that hold for values of a type."""
    if dtype.is_integer:
        return [name for name, bits in (("beyond24", 32), ("beyond31", 64), ("ends", 8)) if dtype.bits >= bits]
    return {DataType.FLOAT16: ["halves", "special"], DataType.FLOAT32: ["large", "special"]}.get(dtype, [])


# --- subjects ---------------------------------------------------------------------------------------------------------


class Subject(NamedTuple):
    """A network of one layer, or of a pair of layers, with inputs for each condition.

    `label` and `types` identify it in a recording; of a pair, both labels. `feeds` has the arrays of its inputs by
    binding id, with ordinary values; `extremes` has pairs of a condition and such arrays.
    """

    label: str
    types: str
    network: Network
    feeds: Mapping[int, Array]
    extremes: Sequence[tuple[str, Mapping[int, Array]]]


def subject_of(sample: Sample) -> Subject | None:
    """Return the subject of a sample; None if no extreme values are defined for its tensors."""
    first = next((operand for operand in sample.inputs if operand is not None), None)
    if sample.statistical or first is None or not first.info.is_tensor:
        return None
    network, feeds = sample.network()
    layer = network.graph.layer("layer")
    types = types_of(layer)
    if types is None or layer.regions or not _data_inputs(layer):
        return None
    return Subject(label_of(layer.op), types, network, feeds, _extremes(layer, feeds, sample.id))


_SMALL_OPERANDS: Final = ("SHIFT_LEFT", "SHIFT_RIGHT", "POWER")
"""Operations whose second operand stays small: larger distances and exponents give no defined or no useful results."""


def _data_inputs(layer: Layer) -> list[Value]:
    """Return the inputs of the network that a layer computes with as data."""
    is_small = label_of(layer.op).endswith(_SMALL_OPERANDS)
    indices = layer.op.inputs_of(Role.DATA, 1 if is_small else len(layer.inputs))
    values = [layer.inputs[index] for index in indices]
    return [value for value in values if value is not None and not value.is_constant and value.known.is_concrete]


def _extremes(layer: Layer, feeds: Mapping[int, Array], seed: str) -> list[tuple[str, Mapping[int, Array]]]:
    ids = {value: binding_id(value.producer) for value in _data_inputs(layer)}
    conditions = dict.fromkeys(name for value in ids for name in _conditions(value.known.dtype))
    return [(name, {**feeds, **arrays}) for name in conditions for arrays in _draws(name, ids, seed)]


def _draws(condition: str, ids: Mapping[Value, int], seed: str) -> Iterator[dict[int, Array]]:
    """Yield several random inputs of a condition, which depend on `seed`; `ids` are binding ids of the values."""
    yield from (_drawn(condition, ids, f"{seed} {number}") for number in range(_TIMES))


_TIMES: Final = 3


def _drawn(condition: str, ids: Mapping[Value, int], seed: str) -> dict[int, Array]:
    generator = np.random.default_rng(zlib.crc32(f"{seed} {condition}".encode()))
    chosen_infos = {key: value.known for value, key in ids.items() if condition in _conditions(value.known.dtype)}
    return {
        key: _DRAWS[condition](generator, tuple(map(int, info.shape)), info.dtype) for key, info in chosen_infos.items()
    }


def cells_of(samples: Iterable[Sample], most: int) -> dict[tuple[str, str], list[Subject]]:
    """Return the subjects of samples by their label and types: for each pair, at most `most`, at even distances."""
    cells: dict[tuple[str, str], list[Subject]] = {}
    for sample in samples:
        subject = subject_of(sample)
        if subject is not None and subject.extremes:
            cells.setdefault((subject.label, subject.types), []).append(subject)
    return {key: _some(subjects, most) for key, subjects in cells.items()}


def _some(subjects: Sequence[Subject], max_subjects: int) -> list[Subject]:
    return list(subjects[:: max(1, -(-len(subjects) // max_subjects))])


# --- pairs ------------------------------------------------------------------------------------------------------------

Stage = Callable[[Network, Layer], Layer]
"""A function that adds a layer to a network, which reads the result of another layer."""
_PAIR_SHAPE: Final = (2, 6)
_PAIR_TYPES: Final = tuple(map(DataType.of, ("int32", "int64", "int8")))
"""The types of pairs. Of floats, an engine may keep more precision between two layers."""


def pairs() -> Iterator[Subject]:
    """Yield all pairs of the layers that engines merge with their neighbours, for each type of numbers."""
    for dtype in _PAIR_TYPES:
        stages = list(_stages(dtype))
        for first in stages:
            yield from pairs_of(first, stages, dtype)


def pairs_of(first: Stage, seconds: Iterable[Stage], dtype: DataType) -> Iterator[Subject]:
    """Yield the pairs of a first layer with each of the second ones, on inputs of a type.

    Pairs that have no valid types, such as arithmetic after a comparison, are left out.
    """
    for second in seconds:
        network = Network()
        x = network.add_input_layer(0, TensorInfo(_PAIR_SHAPE, dtype))
        try:
            first_layer = first(network, x)
            layer = second(network, first_layer)
            infos = [value.known for value in (first_layer.output, layer.output)]
        except InterposerError:
            continue
        network.add_output_layer(0, layer)
        label, types = pair_of(first_layer, layer)
        if types is None or not all(info.is_concrete for info in infos):
            continue
        extremes = [(name, arrays) for name in _conditions(dtype) for arrays in _draws(name, {x.output: 0}, label)]
        feeds = {0: np.arange(12).reshape(_PAIR_SHAPE).astype(dtype.numpy)}
        yield Subject(label, types, network, feeds, extremes)


def _stages(dtype: DataType) -> Iterator[Stage]:
    """Yield the layers of which pairs are made: arithmetic with a constant, clamps, casts, moves and reductions."""
    number = {32: (1 << 30) + 1, 64: (1 << 33) + 1}.get(dtype.bits, 100)
    for operation in (BinaryOperation.MAXIMUM, BinaryOperation.MINIMUM):
        for bound in (number, -number) if str(dtype)[0] != "u" else (number,):
            yield _binary(operation, bound)
    for operation in _WITH_SMALL:
        yield _binary(operation, 3)
    for function in _FUNCTIONS:
        yield _unary(Activation(function, a=100.0))
    for unary in _UNARIES:
        yield _unary(ElementwiseUnary(unary))
    for comparison in (ComparisonOperation.EQUAL, ComparisonOperation.LESS):
        yield _compared(comparison, number)
    for other_type in map(DataType.of, ("float32", "int32", "int64", "bool")):
        yield _unary(Cast(dtype=other_type))
    yield from (
        _unary(Reshape((3, 4))),
        _unary(Transpose((1, 0))),
        lambda network, x: network.add_layer(Concat(0), x, x),
    )
    for reduction in _REDUCTIONS:
        yield _unary(Reduce(axis=(1,), operation=reduction, keep_dims=True))


_WITH_SMALL: Final = (BinaryOperation.ADD, BinaryOperation.SUB, BinaryOperation.MUL, BinaryOperation.DIV)
_FUNCTIONS: Final = (ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU)
_UNARIES: Final = (UnaryOperation.ABS, UnaryOperation.NEG, UnaryOperation.SQRT, UnaryOperation.SQUARE)
_REDUCTIONS: Final = (ReduceOperation.SUM, ReduceOperation.MEAN, ReduceOperation.MAX)


def _binary(operation: BinaryOperation, number: int) -> Stage:
    return lambda network, x: network.add_layer(ElementwiseBinary(operation), x, _constant(network, x, number))


def _compared(operation: ComparisonOperation, number: int) -> Stage:
    return lambda network, x: network.add_layer(Comparison(operation), x, _constant(network, x, number))


def _unary(op: Op) -> Stage:
    return lambda network, x: network.add_layer(op, x)


def _constant(network: Network, x: Layer, number: int) -> Layer:
    return network.add_constant_layer(np.array([number]).astype(x.output.known.dtype.numpy))


# --- trials -----------------------------------------------------------------------------------------------------------


def errors(bench: Bench, subject: Subject) -> dict[str, str] | None:
    """Run a subject on the backend of a bench, and return a text for each condition under which it is wrong.

    A run that fails only for extreme values has the condition "fails". There are no errors if the backend fails or is
    wrong for ordinary values, which other checks report. None if the backend refuses a layer.
    """
    if not bench.takes_all(subject.network.graph):
        return None
    try:
        with bench.loaded(bench.optimize(subject.network)) as loaded_network:
            if _fails(loaded_network, bench, subject):
                return {}
            texts = [(name, _error(loaded_network, bench, subject, feeds)) for name, feeds in subject.extremes]
    except UnsupportedLayerError:
        return None
    except InterposerError as error:
        return {"fails": str(error)}
    return {name: text for name, text in texts if text}


def _fails(loaded_network: Loaded, bench: Bench, subject: Subject) -> bool:
    """Return True if the backend is wrong, or fails, on ordinary values."""
    try:
        return bool(_error(loaded_network, bench, subject, subject.feeds))
    except InterposerError:
        return True


def _error(loaded_network: Loaded, bench: Bench, subject: Subject, feeds: Mapping[int, Array]) -> str:
    """Return how the results differ from those of the reference kernels; empty if they do not, or if it has none."""
    graph = subject.network.graph
    try:
        with np.errstate(all="ignore"):
            expected = reference_values(graph, feeds)
            overflows = _overflows(graph, expected)
    except InterposerError:  # the reference does not accept these values
        return ""
    if overflows is None:
        return ""
    results = loaded_network.run(feeds)
    for layer in graph.outputs:
        key, value = binding_id(layer), layer.values[0]
        actual = np.where(overflows[value], expected[value], results[key]) if value in overflows else results[key]
        text = _difference(bench, value, actual, expected[value])
        if text:
            return f"output {key}: {text}"
    return ""


def _difference(bench: Bench, value: Value, actual: Array, expected: Array) -> str | None:
    tolerances = suited(bench.tolerances, value.producer)
    return tolerances.difference(actual, expected, value.known.with_shape(expected.shape))


def _overflows(graph: Graph, values: Mapping[Value, Array]) -> dict[Value, Array] | None:
    """Return masks of the elements of results that exceed the range of float16, or of integers of 32 bits and more.

    No arithmetic gives a useful result there. None if an element of a value between two layers does, so that nothing
    can be compared.
    """
    masks: dict[Value, Array] = {}
    for layer in graph.topological():
        if isinstance(layer.op, Input | Constant | Output):
            continue
        for value, array in zip(layer.outputs, _in_floats(layer, values), strict=False):
            masks[value] = _is_outside(array, value.known.dtype)
            if masks[value].any() and any(not isinstance(user.op, Output) for user in value.consumers):
                return None
    return masks


def _is_outside(array: Array, dtype: DataType) -> Array:
    """Return a mask of the elements of float64 that a type cannot represent; the ends of 64-bit integers count too."""
    if dtype is DataType.FLOAT16:
        return np.asarray(~(np.abs(array) < _END_OF_HALVES))
    low, high = integer_range(dtype)
    return np.asarray((array <= float(low - 1)) | (array >= float(high + 1)))


_END_OF_HALVES: Final = 65520.0
"""The least number that float16 rounds to infinity."""


def _is_wide(dtype: DataType) -> bool:
    return dtype is DataType.FLOAT16 or (dtype.is_integer and dtype.bits >= 32)


def _in_floats(layer: Layer, values: Mapping[Value, Array]) -> Sequence[Array]:
    """Return the results of arithmetic of float16 or wide integers, and of casts to them, computed in float64.

    For other layers, return nothing.
    """
    numbers = set(numbers_of(layer))
    if isinstance(layer.op, Cast) and _is_wide(layer.output.known.dtype):
        return [values[layer.values[0]].astype(np.float64)]
    if not all(_is_wide(value.known.dtype) for value in (*numbers, *layer.outputs)):
        return ()
    floats = {value: values[value].astype(np.float64) if value in numbers else values[value] for value in layer.values}
    arrays = [None if value is None else floats[value] for value in layer.inputs]
    infos = [None if array is None else TensorInfo(array.shape, DataType.of(array.dtype)) for array in arrays]
    try:
        results = evaluate(
            layer.op, arrays, infos, [TensorInfo(v.known.shape, DataType.FLOAT64) for v in layer.outputs]
        )
    except InterposerError:  # the operator takes no floats
        return ()
    return [array for array in results if array.dtype == np.float64]
