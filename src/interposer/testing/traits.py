"""Checks that the declared traits of an operator hold on its samples, as the reference kernels compute them.

There is one check for each trait, for the roles of operands, and for `Op.in_place`. A check computes the operator again
on operands that are changed in a way for which the trait promises a result.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import Array, DataType, Quantization, TensorInfo, integer_range
from interposer.ir.inference import infos_for
from interposer.kernels import KernelInfo, evaluate, reference
from interposer.kernels.fixedpoint import dequantize
from interposer.testing.exact import has_one_quantization
from interposer.testing.sample import Sample
from interposer.testing.tolerances import Tolerances, same

__all__ = ["trait_errors"]


def trait_errors(samples: Iterable[Sample]) -> list[str]:
    """Return an error for each trait, role or other property that an operator declares, and a sample disproves.

    The operators need reference kernels, which are registered by `interposer.kernels.reference.kernel`. Sequences and
    optionals are not examined.
    """
    return [f"{sample.id}: {error}" for sample in samples for error in _errors(sample)]


def _errors(sample: Sample) -> Iterator[str]:
    op = sample.op
    yield from _role_errors(sample)
    if sample.statistical and Trait.RANDOM not in op.traits:
        yield "it does not have the trait RANDOM, but its results are random"
    if not op.executable or sample.statistical:
        return
    if type(op) not in reference():
        yield "it has no reference kernel"
        return
    call = _Call.of(sample)
    if call is None or reference().reasons(op, KernelInfo.of(op, call.inputs, call.outputs)):
        return
    if op.pure and not all(map(same, call.results, call.computed())):
        yield "it is pure, but gives other results on the same operands"
    for trait in op.traits & _disprovable(call):
        yield from _CHECKS[trait](call)
    yield from _in_place_errors(call)
    yield from _quantization_errors(call)


# --- calls ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Call:
    """An operator with arrays as operands, and the infos of operands and results."""

    op: Op
    arrays: tuple[Array | None, ...]
    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    has_one_quantization: bool
    seed: int

    @classmethod
    def of(cls, sample: Sample) -> _Call | None:
        """Return the call of a sample; None for a sample with sequences or optionals."""
        network, _ = sample.network()
        layer = network.graph.layer("layer")
        if layer.regions or any(info is not None and not info.is_tensor for info in layer.input_infos):
            return None
        if not all(info.is_tensor for info in layer.output_infos):
            return None
        inputs = tuple(layer.input_infos)
        seed = zlib.crc32(sample.id.encode())
        outputs = tuple(infos_for(layer, inputs))
        return cls(sample.op, tuple(sample.arrays()), inputs, outputs, has_one_quantization(layer), seed)

    @cached_property
    def results(self) -> list[Array]:
        """The results, computed once."""
        return self.computed()

    def computed(self) -> list[Array]:
        """Compute the results again."""
        arrays = [None if array is None else array.copy() for array in self.arrays]
        return evaluate(self.op, arrays, self.inputs, self.outputs)

    def on(self, arrays: Sequence[Array | None]) -> _Call:
        """Return a call on other arrays of the same types and shapes."""
        return replace(self, arrays=tuple(arrays), inputs=tuple(_without_constant(self.inputs)))

    def places(self, role: Role) -> list[int]:
        """Return the indices of the connected operands with a role."""
        indices = self.op.inputs_of(role, len(self.arrays))
        return [index for index in indices if self.arrays[index] is not None]

    def with_data(self, make: Callable[[int, TensorInfo], Array]) -> _Call:
        """Return a call with other data; `make` gets the index and the info of each data operand."""
        arrays = list(self.arrays)
        for index in self.places(Role.DATA):
            info = self.inputs[index]
            assert info is not None
            arrays[index] = make(index, info)
        return self.on(arrays)

    def generator(self) -> np.random.Generator:
        """Return a generator of random numbers that is always the same for a sample."""
        return np.random.default_rng(self.seed)


def _without_constant(infos: Iterable[TensorInfo | None]) -> Iterator[TensorInfo | None]:
    return (None if info is None else info.with_constant(None) for info in infos)


def _disprovable(call: _Call) -> Trait:
    """Return the traits that a sample can disprove; moved elements must not be rescaled."""
    known_traits = Trait.COMMUTATIVE | Trait.CONVERTS
    if call.has_one_quantization:
        known_traits |= Trait.MOVES | Trait.CHOOSES | Trait.EXACT
    return known_traits if any(map(_is_per_axis, (*call.inputs, *call.outputs))) else known_traits | Trait.POINTWISE


def _is_per_axis(info: TensorInfo | None) -> bool:
    return info is not None and info.quantization is not None and info.quantization.per_axis


# --- traits -----------------------------------------------------------------------------------------------------------


def _moves(call: _Call) -> Iterator[str]:
    """Yield an error if replacing each element of the data by another one does not do the same to the results."""
    generator = call.generator()
    labelled = call.with_data(lambda _, info: _labels(info, generator))
    data = [array for index in call.places(Role.DATA) if (array := labelled.arrays[index]) is not None]
    labels = np.unique(np.concatenate([_bits(array) for array in data])) if data else np.empty(0)
    new_labels = generator.permutation(labels)

    def rename(array: Array) -> Array:
        return _unbits(new_labels[np.searchsorted(labels, _bits(array))], array)

    other_call = labelled.with_data(lambda index, _: rename(np.asarray(labelled.arrays[index])))
    for number, (first_result, second_result) in enumerate(zip(labelled.results, other_call.results, strict=True)):
        name = call.op.result_name(number)
        if (
            not data
            or first_result.dtype != data[0].dtype
            or call.outputs[number].dtype.bits != _data_info(call).dtype.bits
        ):
            if not same(first_result, second_result):
                yield f"it has the trait MOVES, but {name} depends on the values of the data"
            continue
        yield from _moved_errors(call.op, name, (_bits(first_result), _bits(second_result)), labels, new_labels)


def _moved_errors(op: Op, name: str, results: tuple[Array, Array], labels: Array, new_labels: Array) -> Iterator[str]:
    first_result, second_result = results
    if first_result.shape != second_result.shape:
        yield f"it has the trait MOVES, but the shape of {name} depends on the values of the data"
        return
    places = np.minimum(np.searchsorted(labels, first_result), max(0, len(labels) - 1))
    from_data = (labels[places] == first_result) if len(labels) else np.zeros(first_result.shape, bool)
    is_moved = from_data & (new_labels[places] == second_result) if len(labels) else from_data
    is_filled = first_result == second_result
    if not (is_moved | is_filled).all():
        yield f"it has the trait MOVES, but elements of {name} are not those of the data"
    elif not is_moved.all() and Trait.FILLS not in op.traits:
        yield f"it does not have the trait FILLS, but {name} has elements that are in no operand"


def _labels(info: TensorInfo, generator: np.random.Generator) -> Array:
    """Return an array of elements that differ as far as the type allows, in random order."""
    count = int(info.num_elements)
    numbers = generator.permutation(count) + 1
    if info.dtype is DataType.STRING:
        return np.array([f"label {number}" for number in numbers], object).reshape(tuple(info.shape))
    if info.dtype is DataType.BOOL:
        return np.asarray(numbers % 2 == 0).reshape(tuple(info.shape))
    if not info.dtype.is_float:
        lowest, highest = integer_range(info.dtype)
        numbers = numbers % min(highest - lowest + 1, 1 << 20) + lowest
    return np.asarray(numbers).astype(info.dtype.numpy).reshape(tuple(info.shape))


def _bits(array: Array) -> Array:
    """Return the elements of an array as one row that can be sorted: integers with the same bits, or strings."""
    row: Array = np.ascontiguousarray(array).reshape(-1)
    return row.astype(str).astype(object) if array.dtype == object else row.view(f"u{array.itemsize}")


def _unbits(bits: Array, like: Array) -> Array:
    return bits.reshape(like.shape) if like.dtype == object else bits.view(like.dtype).reshape(like.shape)


def _data_info(call: _Call) -> TensorInfo:
    info = call.inputs[call.places(Role.DATA)[0]]
    assert info is not None
    return info


_LARGEST_STEP: Final = 5
"""The largest distance from zero of the numbers among which elements are chosen; its square fits every type."""


def _chooses(call: _Call) -> Iterator[str]:
    """Yield an error if an increasing function that maps zero to zero does not commute with the operator."""
    info, data = _data_info(call), call.places(Role.DATA)
    if info.dtype in (DataType.STRING, DataType.BOOL) or _is_coarse(info.dtype) or _is_per_axis(info):
        return
    if not info.num_elements:
        return
    lowest, highest = (-(10**6), 10**6) if info.dtype.is_float else integer_range(info.dtype)
    zero = info.zero_point if info.is_quantized else 0
    low, high = (min(_LARGEST_STEP, math.isqrt(room)) for room in (zero - lowest, highest - zero))
    generator = call.generator()

    def drawn(_: int, info: TensorInfo) -> Array:
        return np.asarray(generator.integers(-low, high + 1, tuple(info.shape)) + zero).astype(info.dtype.numpy)

    def increased(array: Array) -> Array:
        steps = array.astype(np.float64) - zero
        return np.asarray(np.sign(steps) * steps**2 + zero).astype(array.dtype)

    call = call.with_data(drawn)
    arrays = [array for index in data if (array := call.arrays[index]) is not None]
    elements = np.concatenate([[zero], *(array.astype(np.float64).reshape(-1) for array in arrays)])
    other_call = call.with_data(lambda index, _: increased(np.asarray(call.arrays[index])))
    first, second = call.results[0], other_call.results[0]
    if not np.isin(first.astype(np.float64), elements).all():
        yield f"it has the trait CHOOSES, but elements of {call.op.result_name(0)} are not those of the data"
    elif not np.array_equal(increased(first), second):
        yield "it has the trait CHOOSES, but does not commute with increasing functions"


def _pointwise(call: _Call) -> Iterator[str]:
    """Yield an error if computing some of the positions, in another order, gives other elements there."""
    shape = tuple(map(int, call.outputs[0].shape))
    count = int(np.prod(shape))
    try:
        flat_operands = [None if array is None else np.broadcast_to(array, shape).reshape(-1) for array in call.arrays]
    except ValueError:
        yield f"it has the trait POINTWISE, but its operands do not broadcast to the shape of the result, {shape}"
        return
    if len(call.outputs) != 1:
        yield f"it has the trait POINTWISE, but {len(call.outputs)} results"
        return
    chosen_positions = call.generator().permutation(count)[: -(-count // 2)]

    row_shape = (1,) * max(0, len(shape) - 1) + chosen_positions.shape

    def some(info: TensorInfo | None) -> TensorInfo | None:
        return None if info is None else info.with_constant(None).with_shape(row_shape)

    arrays = [None if row is None else row[chosen_positions].reshape(row_shape) for row in flat_operands]
    output = some(call.outputs[0])
    assert output is not None
    part = replace(call, arrays=tuple(arrays), inputs=tuple(map(some, call.inputs)), outputs=(output,))
    expected = call.results[0].reshape(-1)[chosen_positions].reshape(tuple(output.shape))
    difference = Tolerances().difference(part.results[0], expected, output)
    if difference:
        yield f"it has the trait POINTWISE, but an element depends on other positions: {difference}"


def _commutative(call: _Call) -> Iterator[str]:
    """Yield an error if swapping the first two operands changes the result."""
    first, second, *other_indices = range(len(call.arrays))
    order = [second, first, *other_indices]
    swapped_call = replace(
        call, arrays=tuple(call.arrays[i] for i in order), inputs=tuple(call.inputs[i] for i in order)
    )
    if not all(map(_equal, call.results, swapped_call.results)):
        yield "it has the trait COMMUTATIVE, but gives another result if the operands are swapped"


def _equal(first: Array, second: Array) -> bool:
    if first.dtype == object or first.dtype.kind in "biu":
        return np.array_equal(first, second)
    return np.array_equal(first.astype(np.float64), second.astype(np.float64), equal_nan=True)


def _converts(call: _Call) -> Iterator[str]:
    """Yield an error if the result does not have the numbers of the operand, as near as its type can represent them."""
    info, output = call.inputs[0], call.outputs[0]
    array, [result, *_] = call.arrays[0], call.results
    assert info is not None and array is not None
    if array.shape != result.shape:
        yield f"it has the trait CONVERTS, but the shape {array.shape} becomes {result.shape}"
        return
    if len(call.arrays) > 1 or DataType.STRING in (info.dtype, output.dtype) or _is_coarse(output.dtype):
        return
    real_input, real_result = _real(array, info), _real(result, output)
    step = max(_step(info), _step(output))
    with np.errstate(all="ignore"):
        is_near = np.abs(real_input - real_result) <= step + 1e-2 * np.abs(real_input) + 1e-7
        is_near |= array.astype(np.float64) == result.astype(np.float64)  # a Cast of quantized values keeps these
    if not (is_near | ~np.isfinite(real_input) | ~np.isfinite(real_result) | _is_saturated(real_input, output)).all():
        yield "it has the trait CONVERTS, but the result has other numbers than the operand"


def _real(array: Array, info: TensorInfo) -> Array:
    if info.quantization is not None and info.is_quantized:
        return np.asarray(dequantize(array, info.quantization), np.float64)
    return array.astype(np.float64)


def _step(info: TensorInfo) -> float:
    if info.is_quantized and info.quantization is not None:
        return max(info.quantization.scales)
    return 0.0 if info.dtype.is_float else 1.0


def _is_coarse(dtype: DataType) -> bool:
    return dtype.is_float and dtype.bits < 16


def _is_saturated(real: Array, info: TensorInfo) -> Array:
    """Return which numbers are out of the range of a type."""
    if info.dtype.is_float:
        return np.abs(real) > 6e4
    if info.dtype is DataType.BOOL:
        return np.ones(real.shape, bool)
    low, high = (_real(np.full(real.shape, bound, info.dtype.numpy), info) for bound in integer_range(info.dtype))
    return np.asarray((real < low) | (real > high))


def _exact(call: _Call) -> Iterator[str]:
    """Yield an error if a float result has an element other than 0, 1, and the data or its negative."""
    data = [array for index in call.places(Role.DATA) if (array := call.arrays[index]) is not None]
    elements = [array.astype(np.float64).reshape(-1) for array in data if array.dtype != object]
    numbers = [float(value) for value in call.op.attribute_values().values() if isinstance(value, int | float)]
    known_magnitudes = np.abs(np.concatenate([*elements, [0.0, 1.0], numbers]))
    for number, (result, info) in enumerate(zip(call.results, call.outputs, strict=True)):
        reals = np.abs(result.astype(np.float64)) if info.dtype.is_float else np.zeros(0)
        if not (np.isin(reals, known_magnitudes) | np.isnan(reals)).all():
            yield f"it has the trait EXACT, but {call.op.result_name(number)} has elements that were computed"


_CHECKS: Final[dict[Trait, Callable[[_Call], Iterator[str]]]] = {
    Trait.MOVES: _moves,
    Trait.CHOOSES: _chooses,
    Trait.POINTWISE: _pointwise,
    Trait.COMMUTATIVE: _commutative,
    Trait.CONVERTS: _converts,
    Trait.EXACT: _exact,
}


# --- roles, memory and quantization -----------------------------------------------------------------------------------


def _role_errors(sample: Sample) -> Iterator[str]:
    for index, operand in enumerate(sample.inputs):
        role, dtype = sample.op.role(index), None if operand is None else operand.info.dtype
        if dtype is not None and role in _TYPES and not _TYPES[role](dtype):
            yield f"{sample.op.operand_name(index)} has the role {role.name}, but is {dtype}"


_TYPES: Final[dict[Role, Callable[[DataType], bool]]] = {
    Role.SIZES: lambda dtype: dtype.is_integer,
    Role.INDICES: lambda dtype: dtype.is_integer,
    Role.CONDITION: lambda dtype: dtype is DataType.BOOL or dtype.is_float,
    Role.WEIGHTS: lambda dtype: dtype.is_float or dtype.is_integer,
    Role.BIAS: lambda dtype: dtype.is_float or dtype.is_integer,
}


def _in_place_errors(call: _Call) -> Iterator[str]:
    """Yield an error if elements of an operand that the result may overwrite affect other elements than their own."""
    names = {declared_operand.name: index for index, declared_operand in enumerate(call.op.operands)}
    for name in call.op.in_place:
        array = call.arrays[names[name]]
        if array is None or array.size != call.results[0].size or array.size < 2 or array.dtype.kind not in "fiu":
            continue
        places = call.generator().permutation(array.size)[:_TRIED_PLACES]
        if not any(_stays_in_place(call, names[name], int(place)) for place in places):
            yield f"in_place names {name!r}, but an element of it affects other elements of the result"


_TRIED_PLACES: Final = 8
"""The number of elements that are changed in turn; the largest and the smallest may affect all others by a range."""


def _stays_in_place(call: _Call, operand: int, place: int) -> bool:
    """Return True if a small change of one element of an operand changes no other element of the result."""
    array = np.array(call.arrays[operand])
    is_other = np.arange(array.size) != place
    element = array.reshape(-1)[place]
    array.reshape(-1)[place] = element * 0.99 if array.dtype.kind == "f" else max(element, 1) - 1
    changed_call = call.on([array if index == operand else old for index, old in enumerate(call.arrays)])
    [first], [second] = call.results, changed_call.results
    return same(first.reshape(-1)[is_other], second.reshape(-1)[is_other])


def _quantization_errors(call: _Call) -> Iterator[str]:
    """Yield an error if the infos of quantized results are not those that the operator declares."""
    data = [info for index in call.places(Role.DATA) if (info := call.inputs[index]) is not None]
    if not data or data[0].dtype is not DataType.FLOAT32:
        return
    declared_quantization = call.op.result_quantization(DataType.INT8)
    if declared_quantization is ResultQuantization.PRESCRIBED:
        infos = [
            info if info is None or index not in call.places(Role.DATA) else _quantized(info)
            for index, info in enumerate(call.inputs)
        ]
        result_info: Any = call.op.infer_infos(*infos)[0]
        if result_info is None or result_info.quantization is None or result_info.dtype is not DataType.INT8:
            yield "its results have a PRESCRIBED quantization, but `infer` returns none"


def _quantized(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.shape, DataType.INT8, Quantization(1 / 16))
