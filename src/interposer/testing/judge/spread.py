"""The allowed range of a network's results, estimated by perturbed evaluations of the reference.

A backend may differ from the reference in every layer by that layer's tolerance. The effect on the network's results
depends on the following layers. A difference of nearly equal numbers, a division by nearly zero or the normalization of
nearly equal elements magnifies the error. Rounding, comparison and selection turn it into a jump.

Larger tolerances would allow too much elsewhere. Instead, the reference is evaluated several times, layer by layer,
with the result of every inexact layer perturbed within its tolerance. Each element may lie between the smallest and the
largest number that these evaluations gave.

A backend may also add the terms of a sum in another order, or fuse multiplications and additions. Where large terms
cancel out, its error is small beside the terms and large beside the result. Some evaluations therefore perturb the
operands of inexact layers with float results by a few rounding errors, too.

Perturbations never hit a threshold, a zero or an equality exactly. Therefore some evaluations move results to zero or
to a multiple of 1/2 within the tolerance, and comparisons of numbers with overlapping ranges get random results.
Numbers that overflow only in a narrow type remain finite in the evaluations in float64. Layers that only move or select
elements are exact, and integers are never perturbed, so quantized results remain exact after such layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from interposer.core.errors import InterposerError
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo, integer_range, smallest_float
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops import BinaryOperation, Cast, Comparison, ElementwiseBinary, LshProjection, LshProjectionType
from interposer.testing.exact import suited
from interposer.testing.judge.reference import (
    ValueArrays,
    border_values,
    computing_layers,
    evaluate_layer,
    evaluate_widely,
    narrowed,
    widened,
)
from interposer.testing.tolerances import Tolerances

__all__ = ["Spread", "inexact_values", "spreads"]

Noise = Callable[[Array, Array, "Stream"], Array]
"""A function that perturbs each value by at most its allowed difference."""

_ROUNDING: Final = {DataType.FLOAT16: 2.0**-11, DataType.BFLOAT16: 2.0**-8, DataType.FLOAT64: 2.0**-53}

_ROUNDINGS: Final = 8
"""By how many rounding errors operands are perturbed: those of a sum of some hundred terms, in any usual order."""


def rounding_error(dtype: DataType) -> float:
    """Return the largest relative error of rounding a number to this type."""
    return _ROUNDING.get(dtype, 2.0**-24)


def _underflow(dtype: DataType) -> float:
    """Return the largest absolute error of rounding a number that is smaller than every normal number of its type."""
    return smallest_float(dtype) / 2


class Stream:
    """A pseudo-random stream of bits and numbers; a seed gives the same in every process and version of NumPy."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.Philox(key=seed)

    def bits(self, shape: tuple[int, ...]) -> Array:
        """Return an array of random booleans of this shape."""
        return np.asarray(self._words(shape) >> np.uint64(63) == 1)

    def fractions(self, shape: tuple[int, ...]) -> Array:
        """Return an array of random numbers from -1 to 1 of this shape."""
        return (self._words(shape) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0

    def _words(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self._source.random_raw(int(np.prod(shape)))).reshape(shape)


# --- how an element is perturbed --------------------------------------------------------------------------------------


def _up(values: Array, allowed: Array, stream: Stream) -> Array:
    return values + allowed


def _down(values: Array, allowed: Array, stream: Stream) -> Array:
    return values - allowed


def _outward(values: Array, allowed: Array, stream: Stream) -> Array:
    return np.asarray(values + np.where(np.signbit(values), -allowed, allowed))


def _inward(values: Array, allowed: Array, stream: Stream) -> Array:
    return values - np.where(np.signbit(values), -allowed, allowed)


def _signs(values: Array, allowed: Array, stream: Stream) -> Array:
    return np.asarray(values + np.where(stream.bits(values.shape), allowed, -allowed))


def _fractions(values: Array, allowed: Array, stream: Stream) -> Array:
    return np.asarray(values + stream.fractions(values.shape) * allowed)


_GOLDEN: Final = (5**0.5 - 1) / 2


def _rising(values: Array, allowed: Array, stream: Stream) -> Array:
    """Add another part of the allowed differences to each element, so that any two equal ones become different.

    With `_falling`, each of the two becomes the larger one once, whichever a layer that selects elements compares.
    """
    positions = np.arange(values.size, dtype=np.float64).reshape(values.shape) * _GOLDEN % 1.0
    return np.asarray(values + (2.0 * positions - 1.0) * allowed)


def _falling(values: Array, allowed: Array, stream: Stream) -> Array:
    return _rising(values, -allowed, stream)


def _opposite(number: int, sign: int) -> Noise:
    """Return a perturbation by random signs that are the same in every evaluation, all of them multiplied by `sign`.

    The results of linear functions move to one side, and with the other `sign` to the other side. `number` chooses the
    random signs.
    """

    def opposite(values: Array, allowed: Array, stream: Stream) -> Array:
        return np.asarray(values + np.where(Stream(number).bits(values.shape), sign, -sign) * allowed)

    return opposite


def _slight(noise: Noise) -> Noise:
    """Return a perturbation by 1/64 of the allowed differences.

    The square of a difference of nearly equal numbers is smallest between the largest perturbations, not at them.
    """

    def slight(values: Array, allowed: Array, stream: Stream) -> Array:
        return noise(values, allowed / 64, stream)

    return slight


def _snapped(zero: float) -> Noise:
    """Return a perturbation of values that makes critical numbers exact: those at which functions have jumps or poles.

    A value that may be 0 within its allowed difference becomes `zero` (0.0 or -0.0). One that may be a multiple of 1/2
    becomes that multiple. Other perturbations would never hit these numbers exactly.
    """

    def snap(values: Array, allowed: Array, stream: Stream) -> Array:
        nearest = np.round(2 * values) / 2
        snapped = np.where(np.abs(nearest - values) <= allowed, nearest, values)
        return np.where(np.abs(values) <= allowed, zero, snapped)

    return snap


def _unchanged(values: Array, allowed: Array, stream: Stream) -> Array:
    return values


@dataclass(frozen=True)
class _Mode:
    """The settings of one perturbed evaluation of a network.

    `noise` changes results within their allowed difference. `wide` says when results remain in float64 between layers:
    never (empty), "always", "sometimes", or "between casts". `equal` decides undecidable cases: the result of a
    comparison whose operands may be equal, and whether a quotient that may be an integer is that integer or just below
    it. None decides at random for every element. `operands` says whether the float operands of inexact layers with
    float results are perturbed by a few rounding errors, too.
    """

    noise: Noise
    wide: str = ""
    equal: bool | None = None
    operands: bool = False


_MODES: Final = (
    _Mode(_up),
    _Mode(_down),
    _Mode(_outward, equal=False),
    _Mode(_inward, equal=True),
    _Mode(_snapped(0.0), equal=True),
    _Mode(_snapped(-0.0)),
    *(_Mode(_signs) for _ in range(6)),
    *(_Mode(_fractions) for _ in range(2)),
    _Mode(_unchanged, wide="always"),
    _Mode(_unchanged, wide="between casts"),
    _Mode(_outward, wide="always"),
    _Mode(_signs, wide="sometimes"),
    *(_Mode(_slight(noise)) for noise in (_up, _down, _signs, _signs)),
    _Mode(_rising),
    _Mode(_falling),
    *(_Mode(_opposite(number, sign), operands=True) for number in range(3) for sign in (1, -1)),
)


# --- what the evaluations show ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The allowed range of a tensor's elements, estimated by several evaluations with small perturbations.

    `reference` is the array that the reference computes, and `perturbed` are those of the perturbed evaluations.
    """

    info: TensorInfo
    reference: Array
    perturbed: tuple[Array, ...]
    tolerances: Tolerances

    @property
    def is_exact(self) -> bool:
        """True if no perturbation affects the tensor."""
        return not self.perturbed

    def wrong(self, array: Array) -> Array | str:
        """Return a mask of the elements of `array` that are outside of the allowed range.

        If the type or the shape is wrong, a text says so.
        """
        if array.dtype != self.info.dtype.numpy:
            return f"its type is {array.dtype} instead of {self.info.dtype.numpy}"
        same_shape = [evaluated for evaluated in (self.reference, *self.perturbed) if evaluated.shape == array.shape]
        if not same_shape:
            return f"its shape is {list(array.shape)} instead of {list(self.reference.shape)}"
        if array.dtype == object:
            return self._wrong_items(array, same_shape)
        with np.errstate(all="ignore"):
            compare = self._wrong_floats if self.info.dtype.is_float else self._wrong_integers
            return compare(array, same_shape)

    def _wrong_items(self, array: Array, evaluations: Sequence[Array]) -> Array | str:
        """Return which strings of `array` differ from the strings of all evaluations, whose arrays are `evaluations`.

        If the tensor is a sequence, its elements are compared one by one, and a text describes the first wrong one.
        """
        if self.info.element is None:
            return np.asarray(~np.logical_or.reduce([array == evaluated for evaluated in evaluations]))
        for index, element in enumerate(array):
            expected, *other_elements = [evaluated[index] for evaluated in evaluations]
            is_wrong = Spread(self.info.element, expected, tuple(other_elements), self.tolerances).wrong(element)
            if isinstance(is_wrong, str):
                return f"element {index}: {is_wrong}"
            if is_wrong.any():
                return f"element {index}: {np.count_nonzero(is_wrong)} of {is_wrong.size} numbers differ"
        return np.zeros(array.shape, bool)

    def _wrong_integers(self, array: Array, evaluations: Sequence[Array]) -> Array:
        low, high = np.minimum.reduce(evaluations), np.maximum.reduce(evaluations)
        return np.asarray((array < low) | (array > high))

    def _wrong_floats(self, array: Array, evaluations: Sequence[Array]) -> Array:
        float_evaluations = [evaluation.astype(np.float64) for evaluation in evaluations]
        float_evaluations += [
            narrowed(evaluation, self.info).astype(np.float64)
            for evaluation in evaluations
            if evaluation.dtype != array.dtype
        ]
        low, high = np.fmin.reduce(float_evaluations), np.fmax.reduce(float_evaluations)
        actual, error = array.astype(np.float64), 0.0 if self.is_exact else rounding_error(self.info.dtype)
        in_range = (actual >= low - _part(low, error)) & (actual <= high + _part(high, error))
        return np.asarray(
            ~(in_range | (np.isnan(actual) & np.logical_or.reduce([np.isnan(floats) for floats in float_evaluations])))
        )


def _part(numbers: Array, error: float) -> Array:
    """Return ``error * abs(numbers)`` for each number; 0 for infinities and NaN."""
    return np.where(np.isfinite(numbers), error * np.abs(numbers), 0.0)


def inexact_values(graph: Graph, tolerances: Tolerances) -> set[Value]:
    """Return the values of a graph that may differ from the reference, as a layer before them is not exact."""
    inexact: set[Value] = set()
    for layer in computing_layers(graph):
        if suited(tolerances, layer) is tolerances or not inexact.isdisjoint(layer.values):
            inexact.update(layer.outputs)
    return inexact


def spreads(
    graph: Graph,
    feeds: Mapping[int, Array],
    reference_values: ValueArrays,
    tolerances: Tolerances,
    *,
    rounded_feeds: bool = False,
) -> dict[Value, Spread]:
    """Return the spread of every value of a graph.

    Args:
        graph: a graph whose tensor infos are inferred.
        feeds: the arrays of the inputs by binding id.
        reference_values: every value as the reference computes it.
        tolerances: the allowed differences of one layer's results.
        rounded_feeds: whether float inputs were rounded when they were stored, and may be perturbed by that error.
    """
    runs = [_Run(mode, Stream(number), tolerances, reference_values) for number, mode in enumerate(_MODES)]
    for run in runs:
        run.values = border_values(graph, feeds)
        if rounded_feeds:
            run.round_inputs(graph)
    for layer in computing_layers(graph):
        unsure = _unsure(layer, reference_values, runs)
        for run in runs:
            run.compute(layer, unsure)
    return {value: _spread(value, reference_values, runs, tolerances) for value in reference_values}


def _spread(value: Value, reference_values: ValueArrays, runs: Sequence[_Run], tolerances: Tolerances) -> Spread:
    perturbed = (run.values[value] for run in runs if value in run.values)
    differing_arrays = tuple(array for array in perturbed if array is not reference_values[value])
    return Spread(
        value.known,
        reference_values[value],
        differing_arrays + _around_unrounded(value, reference_values, runs, tolerances),
        tolerances,
    )


def _is_of_floats(info: TensorInfo) -> bool:
    return info.element is None and info.dtype.is_float


def _around_unrounded(
    value: Value, reference_values: ValueArrays, runs: Sequence[_Run], tolerances: Tolerances
) -> tuple[Array, ...]:
    """Return lower and upper bounds of a value for backends that compute in float64 and round only the last result.

    They are taken from the evaluations without noise among `runs`. Where numbers cancel out, the perturbations of all
    layers may be larger than the exact result, so that no perturbed evaluation comes near to it.
    """
    info, bounds = value.known, list[Array]()
    for run in runs:
        array = run.values.get(value)
        if (
            run.mode.noise is _unchanged
            and array is not None
            and array is not reference_values[value]
            and _is_of_floats(info)
        ):
            numbers = array.astype(np.float64)
            with np.errstate(all="ignore"):
                allowed_differences = _allowed(numbers, info.dtype, tolerances)
            bounds += [numbers - allowed_differences, numbers + allowed_differences]
    return tuple(bounds)


@dataclass
class _Run:
    """One perturbed evaluation of a network in progress.

    `reference` has the values as the reference computes them, and `values` those of this evaluation so far, except
    those that cannot be computed.
    """

    mode: _Mode
    stream: Stream
    tolerances: Tolerances
    reference: ValueArrays
    values: ValueArrays = None  # type: ignore[assignment]

    def round_inputs(self, graph: Graph) -> None:
        """Perturb the inputs by their rounding error; evaluations in float64 keep them unrounded.

        A zero may be a number that underflowed when it was stored, and a backend that fuses layers may take its square
        root.
        """
        for layer in graph.inputs:
            info, array = layer.output.known, self.values[layer.output]
            if _is_of_floats(info):
                numbers = array.astype(np.float64)
                allowed_differences = np.nan_to_num(
                    np.abs(numbers) * rounding_error(info.dtype), posinf=0.0
                ) + _underflow(info.dtype)
                self.values[layer.output] = self._noisy(numbers if self.mode.wide else array, info, allowed_differences)

    def compute(self, layer: Layer, unsure: Array | None) -> None:
        """Compute a layer on the perturbed values, perturb its results, and store them in `values`.

        `unsure` marks the elements that tolerated differences can change completely, such as comparisons of nearly
        equal numbers. They get one of their possible results, without further noise. Nothing is stored if an operand
        is missing.
        """
        if any(value not in self.values for value in layer.values):
            return
        tolerances = suited(self.tolerances, layer)
        is_exact = tolerances is not self.tolerances
        if is_exact and all(self.values[value] is self.reference[value] for value in layer.values):
            self.values.update({value: self.reference[value] for value in layer.outputs})
            return
        for value, computed in zip(layer.outputs, self._results(layer, is_exact=is_exact), strict=False):
            array = computed if unsure is None else self._decided(layer, computed, unsure)
            noisy = array if is_exact else self._perturbed(value.known, array)
            if unsure is not None and unsure.shape == array.shape:
                noisy = np.where(unsure, array, noisy)
            self.values[value] = self._shared(value, noisy)

    def _results(self, layer: Layer, *, is_exact: bool) -> list[Array]:
        """Return the results of a layer on the perturbed values; an empty list if the reference cannot compute them."""
        try:
            return self._evaluated(layer, is_exact=is_exact)
        except InterposerError:
            return []

    def _evaluated(self, layer: Layer, *, is_exact: bool) -> list[Array]:
        if self._is_wide(layer):
            return evaluate_widely(layer, self.values)
        inputs = {value: narrowed(self.values[value], value.known) for value in layer.values}
        if self.mode.operands and not is_exact and all(_is_of_floats(output.known) for output in layer.outputs):
            return evaluate_layer(layer, {value: self._rounded(value, array) for value, array in inputs.items()})
        if all(inputs[value] is self.reference[value] for value in layer.values):
            return [self.reference[value] for value in layer.outputs]
        return evaluate_layer(layer, inputs)

    def _rounded(self, value: Value, array: Array) -> Array:
        """Return an operand perturbed by a few rounding errors of float32, or of its own type if that is wider.

        Operands of narrower types stay as they are, since backends compute with them in float32.
        """
        if not _is_of_floats(value.known):
            return array
        error = min(rounding_error(value.known.dtype), rounding_error(DataType.FLOAT32))
        return self._noisy(array, value.known, _part(array.astype(np.float64), _ROUNDINGS * error))

    def _is_wide(self, layer: Layer) -> bool:
        match self.mode.wide:
            case "always":
                return True
            case "between casts":
                return not isinstance(layer.op, Cast)
            case "sometimes":
                return bool(self.stream.bits((1,))[0])
        return False

    def _shared(self, value: Value, array: Array) -> Array:
        """Return the reference's array of `value` if `array` is equal to it bit by bit, so that memory is shared.

        Else `array`.
        """
        reference = self.reference[value]
        is_equal = array is reference or (
            array.dtype == reference.dtype and array.dtype != object and array.tobytes() == reference.tobytes()
        )
        return reference if is_equal and array.shape == reference.shape else array

    def _decided(self, layer: Layer, array: Array, unsure: Array) -> Array:
        """Return a layer's results `array` with the elements replaced where `unsure` is True.

        There, a comparison, division or hash can have one of two results: the mode, or a random bit, chooses between
        them.
        """
        if unsure.shape != array.shape:
            return array
        is_equal = self.stream.bits(array.shape) if self.mode.equal is None else np.full(array.shape, self.mode.equal)
        if isinstance(layer.op, LshProjection):
            return _hashed(layer.op, int(self.reference[layer.values[0]].shape[1]), array, is_equal)
        if isinstance(layer.op, Comparison):
            return np.where(unsure, is_equal, array)
        a, b = (widened(self.values[value], value.known) for value in layer.values)
        with np.errstate(all="ignore"):
            return np.where(unsure, _divided(layer, a, b, is_equal), array).astype(array.dtype)

    def _perturbed(self, info: TensorInfo, array: Array) -> Array:
        if info.element is not None or info.dtype is DataType.STRING:
            return array
        if info.dtype.is_float:
            with np.errstate(all="ignore"):
                allowed_differences = _allowed(array.astype(np.float64), info.dtype, self.tolerances)
            return self._noisy(array, info, allowed_differences)
        if info.is_quantized and self.tolerances.steps:
            return self._off_by_steps(array, info)
        return array

    def _noisy(self, array: Array, info: TensorInfo, allowed_differences: Array) -> Array:
        with np.errstate(all="ignore"):
            noisy = self.mode.noise(array.astype(np.float64), allowed_differences, self.stream)
            return np.where(np.isfinite(array.astype(np.float64)), noisy, array).astype(array.dtype)

    def _off_by_steps(self, array: Array, info: TensorInfo) -> Array:
        steps = np.full(array.shape, self.tolerances.steps, np.float64)
        noisy = np.round(self.mode.noise(array.astype(np.float64), steps, self.stream))
        low, high = integer_range(info.dtype)
        saturated: Array = np.clip(noisy, low, high).astype(array.dtype)
        return saturated


_DIVISIONS: Final = (BinaryOperation.MOD, BinaryOperation.FMOD, BinaryOperation.FLOOR_DIV)


def _divides(layer: Layer) -> bool:
    """Return True if a layer computes integer quotients or remainders, which jump at multiples of the divisor."""
    return isinstance(layer.op, ElementwiseBinary) and layer.op.operation in _DIVISIONS


def _divided(layer: Layer, a: Array, b: Array, is_exact: Array) -> Array:
    """Return the integer quotients or remainders of `a` and `b`, whose quotients are nearly integers.

    Where `is_exact` is True, `a` is taken for a multiple of `b`, otherwise for slightly less than a multiple.
    """
    match getattr(layer.op, "operation", None):
        case BinaryOperation.FLOOR_DIV:
            return np.asarray(np.round(a / b) - ~is_exact)
        case BinaryOperation.FMOD:
            return np.where(is_exact, 0.0, np.copysign(b, a))
    return np.where(is_exact, 0.0, b)


def _hashed(op: LshProjection, bits: int, array: Array, ones: Array) -> Array:
    """Return the hashes `array` with their bits all set to 1 (where `ones` is True) or 0, the extremes of the range.

    `bits` is the number of bits per hash.
    """
    if op.type is LshProjectionType.DENSE:
        return ones.astype(array.dtype)
    return np.asarray((array >> bits << bits) + np.where(ones, (1 << bits) - 1, 0), array.dtype)


def _unsure(layer: Layer, reference_values: ValueArrays, runs: Sequence[_Run]) -> Array | None:
    """Return a mask of a layer's undecidable results, those that allowed differences of operands can change completely.

    They are comparisons of floats whose ranges overlap, and integer quotients whose range contains an integer, unless
    both operands are exact. The ranges are taken from `reference_values` and the perturbed evaluations `runs`. Hashes
    of an operand that is not exact are always undecidable. None is returned for other layers.
    """
    if isinstance(layer.op, LshProjection):
        is_exact = all(run.values.get(value) is reference_values[value] for value in layer.values for run in runs)
        return None if is_exact else np.ones(reference_values[layer.output].shape, bool)
    if not (isinstance(layer.op, Comparison) or _divides(layer)):
        return None
    if not all(value.known.dtype.is_float for value in layer.values):
        return None
    ranges = []
    for value in layer.values:
        perturbed = [
            run.values[value]
            for run in runs
            if value in run.values and run.values[value].shape == reference_values[value].shape
        ]
        numbers = [widened(array, value.known) for array in (reference_values[value], *perturbed)]
        ranges.append((np.fmin.reduce(numbers), np.fmax.reduce(numbers)))
    (low, high), (other_low, other_high) = ranges
    is_inexact = (low != high) | (other_low != other_high)
    if isinstance(layer.op, Comparison):
        return np.asarray(is_inexact & (low <= other_high) & (other_low <= high))
    with np.errstate(all="ignore"):
        corners = np.broadcast_arrays(low / other_low, low / other_high, high / other_low, high / other_high)
        return np.asarray(is_inexact & (np.ceil(np.min(corners, axis=0)) <= np.floor(np.max(corners, axis=0))))


def _allowed(values: Array, dtype: DataType, tolerances: Tolerances) -> Array:
    """Return the allowed difference of each element of a float tensor, according to the tolerance of its type.

    It is a fraction of the element plus a fraction of the largest element.
    """
    finite = np.isfinite(values)
    largest = np.abs(values, where=finite, out=np.zeros_like(values)).max(initial=0.0)
    tolerance = tolerances.of(dtype)
    return np.asarray(np.where(finite, tolerance.relative * np.abs(values) + tolerance.absolute * largest, 0.0))
