"""Hints: likely causes of a wrong result, derived from the wrong numbers.

Each rule looks at one `Evidence` and names a likely cause, or returns None. The rules are ordered from the most
specific to the most general, and the first one that applies gives the hint. A hint is a guess: it shows the
author of a backend where to look first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import combinations, permutations, product
from typing import Final

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo, integer_range
from interposer.testing.sample import along_axis

__all__ = ["Evidence", "hint"]

Near = Callable[[Array, Array], Array]
Rule = Callable[["Evidence"], str | None]

_FILL: Final = 5
"""The integer with which the kit fills memory before the backend uses it; float memory is filled with NaN."""
_MOST_AXES: Final = 5
_VECTORS: Final = (16, 8, 4)


@dataclass(frozen=True, eq=False)
class Evidence:
    """A wrong result next to the expected one, from which rules guess the cause of the error.

    Args:
        actual: the result of the backend.
        expected: the expected result, of the same shape and type.
        wrong: True for each element that is wrong.
        info: the tensor info of the result.
        near: a function that returns for each element whether two float64 arrays are equal within the tolerance.
        inputs: the input arrays of the layer, with their infos.
        previous_result: the result of the previous run; None if there was none.
    """

    actual: Array
    expected: Array
    wrong: Array
    info: TensorInfo
    near: Near
    inputs: Sequence[tuple[Array, TensorInfo]] = ()
    previous_result: Array | None = None

    @cached_property
    def zero_point(self) -> Array:
        """The zero point of the result's quantization, in a shape that broadcasts to the result."""
        quantization = self.info.quantization
        return (
            np.zeros(())
            if quantization is None
            else along_axis(quantization.zero_points, quantization, self.expected.ndim)
        )

    @cached_property
    def is_number(self) -> bool:
        """True if the result is a tensor of integers or floats."""
        return self.info.element is None and self.info.dtype not in (DataType.BOOL, DataType.STRING)

    @cached_property
    def a(self) -> Array:
        """The result of the backend as float64, without the zero point."""
        return np.asarray(self.actual.astype(np.float64) - self.zero_point)

    @cached_property
    def b(self) -> Array:
        """The expected result as float64, without the zero point."""
        return np.asarray(self.expected.astype(np.float64) - self.zero_point)

    @cached_property
    def plain(self) -> Array:
        """A mask of the elements that rules can judge: finite in both results, and not at an end of an integer type."""
        finite = np.isfinite(self.a) & np.isfinite(self.b)
        return np.asarray(finite & ~self.at_end(self.actual) & ~self.at_end(self.expected))

    def at_end(self, array: Array) -> Array:
        """Return an array that is True for each integer at an end of its type's range."""
        if not self.info.dtype.is_integer:
            return np.zeros(array.shape, bool)
        low, high = integer_range(self.info.dtype)
        return np.asarray((array == low) | (array == high))

    def equal(self, array: Array, expected: Array) -> bool:
        """Return True if the arrays have the same shape and all elements are equal within the tolerance."""
        return array.shape == expected.shape and bool(self.near(array, expected).all())

    @property
    def all_wrong(self) -> bool:
        """True if at least three quarters of the elements are wrong."""
        return bool(self.wrong.size > 1 and np.count_nonzero(self.wrong) >= 0.75 * self.wrong.size)


def hint(evidence: Evidence) -> str:
    """Return the hint of the first rule that applies, or an empty text."""
    with np.errstate(all="ignore"):
        if evidence.is_number:
            return next((text for rule in _RULES if (text := rule(evidence))), "")
        return _inverted(evidence) or ""


def _inverted(evidence: Evidence) -> str | None:
    if evidence.info.dtype is DataType.BOOL and evidence.wrong.size > 1 and evidence.wrong.all():
        return "every truth value is inverted"
    return None


# --- not computed -----------------------------------------------------------------------------------------------------


def _stale(evidence: Evidence) -> str | None:
    if (
        evidence.previous_result is None
        or evidence.previous_result.shape != evidence.actual.shape
        or len(np.unique(evidence.actual)) < 2
    ):
        return None
    if not np.array_equal(evidence.previous_result, evidence.actual, equal_nan=True):
        return None
    return "equal to the result of the run before: is the output stale, or were the inputs not read again?"


def _never_written(evidence: Evidence) -> str | None:
    wrong_elements = evidence.actual[evidence.wrong]
    if evidence.info.dtype.is_float:
        is_fill = (
            evidence.all_wrong
            and np.isnan(evidence.a[evidence.wrong]).all()
            and not any(_has_special(*pair) for pair in evidence.inputs)
        )
    else:
        is_fill = bool(wrong_elements.size > 1 and (wrong_elements == _FILL).all())
    if not is_fill:
        return None
    which = "the output still holds" if evidence.all_wrong else "the wrong elements still hold"
    return f"{which} what the kit filled the memory with: was it never written to?"


def _has_special(array: Array, info: TensorInfo) -> bool:
    return info.element is None and info.dtype.is_float and not bool(np.isfinite(array.astype(np.float64)).all())


def _zeros(evidence: Evidence) -> str | None:
    if np.count_nonzero(evidence.wrong) > 1 and not evidence.a[evidence.wrong].any():
        return "all wrong elements are 0: were they computed at all?"
    return None


# --- special values ---------------------------------------------------------------------------------------------------


def _nan(evidence: Evidence) -> str | None:
    a, b = np.isnan(evidence.a[evidence.wrong]), np.isnan(evidence.b[evidence.wrong])
    if b.all() and not a.any():
        return "NaN is lost: does a comparison such as max, min or clamp drop it?"
    if a.all() and not b.any():
        return "NaN appears in elements that must not depend on it: do 0 * NaN or Inf - Inf spread?"
    return None


def _denormals(evidence: Evidence) -> str | None:
    if not evidence.info.dtype.is_float:
        return None
    smallest_normal = _smallest_normal(evidence.info.dtype)
    a, b = evidence.a[evidence.wrong], np.abs(evidence.b[evidence.wrong])
    if not a.any() and ((b > 0) & (b < smallest_normal)).all():
        return "denormal numbers are flushed to zero"
    return None


def _smallest_normal(dtype: DataType) -> float:
    if dtype in (DataType.FLOAT32, DataType.FLOAT64, DataType.FLOAT16):
        return float(np.finfo(dtype.numpy).smallest_normal)
    return 2.0**-126 if dtype is DataType.BFLOAT16 else 0.0


def _signed_zero(evidence: Evidence) -> str | None:
    if not evidence.info.dtype.is_float or evidence.a[evidence.wrong].any() or evidence.b[evidence.wrong].any():
        return None
    return "only the sign of zeros is wrong: -0.0 and 0.0 are different numbers here"


def _infinities(evidence: Evidence) -> str | None:
    if np.isinf(evidence.b[evidence.wrong]).all():
        return "only infinite results are wrong: does a function or a clamp treat infinity as a finite number?"
    if np.isinf(evidence.a[evidence.wrong]).all():
        return "infinities appear in place of finite numbers: overflow?"
    return None


_KINDS: Final[tuple[tuple[str, Callable[[Array, float], Array]], ...]] = (
    ("NaN", lambda x, tiny: np.isnan(x)),
    ("infinite", lambda x, tiny: np.isinf(x)),
    ("NaN or infinite", lambda x, tiny: ~np.isfinite(x)),
    ("denormal", lambda x, tiny: (x != 0) & (np.abs(x) < tiny)),
)


def _special_inputs(evidence: Evidence) -> str | None:
    floats = [(x.astype(np.float64), _smallest_normal(info.dtype)) for x, info in evidence.inputs
              if info.element is None and info.dtype.is_float and x.shape == evidence.wrong.shape]  # fmt: skip
    for title, is_special in _KINDS:
        is_matching = np.zeros(evidence.wrong.shape, bool)
        for x, smallest_normal in floats:
            is_matching |= is_special(x, smallest_normal)
        if is_matching.any() and not is_matching.all() and not (evidence.wrong & ~is_matching).any():
            return f"only elements whose input is {title} are wrong"
    return None


# --- ranges -----------------------------------------------------------------------------------------------------------


def _overflow(evidence: Evidence) -> str | None:
    if not evidence.info.dtype.is_integer:
        return None
    low, high = integer_range(evidence.info.dtype)
    a, b = evidence.at_end(evidence.actual)[evidence.wrong], evidence.at_end(evidence.expected)[evidence.wrong]
    if b.all() and a.mean() < 0.1 and (np.abs(evidence.a - evidence.b)[evidence.wrong] > (high - low) / 4).any():
        return f"elements beyond the range wrap around instead of saturating at {low} and {high}"
    if a.all() and not evidence.info.is_quantized:
        return f"elements are saturated at {low} and {high}, where the operator wraps around"
    return None


def _clamped(evidence: Evidence) -> str | None:
    low, high = float(evidence.a.min()), float(evidence.a.max())
    clipped = np.clip(evidence.b, low, high)
    if (
        evidence.b.size < 8
        or not low < high
        or np.isnan(evidence.b).any()
        or not evidence.equal(evidence.a, clipped)
        or evidence.wrong.all()
    ):
        return None
    zero = float(evidence.zero_point.flat[0]) if evidence.zero_point.size == 1 else 0.0
    range_text = f"although results reach from {evidence.b.min() + zero:g} to {evidence.b.max() + zero:g}"
    return f"clamped to {low + zero:g} and {high + zero:g}, {range_text}: saturation?"


def _narrow(evidence: Evidence) -> str | None:
    errors = (evidence.a - evidence.b)[evidence.wrong & evidence.plain]
    for bits in (32, 16, 8):
        modulus = 2.0**bits * _accumulator_scale(evidence)
        wraps = np.rint(errors / modulus)
        allowed_error = 1.0 if evidence.info.is_quantized else 0.0
        if (
            errors.size > 1
            and modulus >= 16
            and wraps.all()
            and (np.abs(errors - wraps * modulus) <= allowed_error).all()
        ):
            return f"elements are off by multiples of 2**{bits} in the sum: is the accumulator only {bits} bits wide?"
    return None


def _accumulator_scale(evidence: Evidence) -> float:
    """Return how many steps of the result one unit of a product's integer accumulator is worth.

    That is the product of the scales of both operands, divided by the scale of the result. It is 1 for integers that
    are not quantized, and 0 for floats, or if a scale is unknown or per-axis.
    """
    if not evidence.info.is_quantized:
        return float(evidence.info.dtype.is_integer)
    scales = [info.quantization for _, info in evidence.inputs[:2] if info.quantization is not None]
    if len(scales) < 2 or any(q.axis is not None for q in (*scales, evidence.info.quantization) if q is not None):
        return 0.0
    assert evidence.info.quantization is not None
    return float(scales[0].scale * scales[1].scale / evidence.info.quantization.scale)


# --- offsets and factors ----------------------------------------------------------------------------------------------


def _offset(evidence: Evidence) -> str | None:
    is_wrong = evidence.wrong & evidence.plain
    errors = (evidence.a - evidence.b)[is_wrong]
    if (
        errors.size < 2
        or np.count_nonzero(evidence.plain) < evidence.plain.size / 4
        or errors.size < 0.9 * np.count_nonzero(evidence.plain)
    ):
        return None
    offset = float(np.median(errors))
    slack = 1 if evidence.info.is_quantized and abs(offset) > 1 else 0
    is_alike = (
        evidence.near(evidence.b[is_wrong] + offset, evidence.a[is_wrong])
        if evidence.info.dtype.is_float
        else np.abs(errors - offset) <= slack
    )
    if not is_alike.all():
        return None
    direction = "high" if offset > 0 else "low"
    if evidence.info.is_quantized and abs(offset) == 1:
        return f"every element is one step too {direction}: rounding or bias?"
    unit = " steps" if evidence.info.is_quantized else ""
    return f"every element is too {direction} by {abs(offset):.6g}{unit}: zero point or bias?"


def _same_offset(evidence: Evidence) -> str | None:
    """Return a hint if all wrong elements differ from the expected ones by the same amount."""
    offsets = (evidence.a - evidence.b)[evidence.wrong]
    if (
        offsets.size < 2
        or not np.isfinite(offsets).all()
        or abs(offsets[0]) <= 1
        or np.ptp(offsets) > 1e-6 * abs(offsets[0])
    ):
        return None
    direction = "high" if offsets[0] > 0 else "low"
    return f"all wrong elements are too {direction} by {abs(offsets[0]):.6g}: signed or unsigned, or a lost carry?"


def _factor(evidence: Evidence) -> str | None:
    factor = _ratio(evidence, evidence.a, evidence.b, evidence.plain)
    if (
        factor is None
        or factor == 1
        or np.abs(evidence.a - evidence.b)[evidence.plain].max()
        < (4 + 4 * abs(factor)) * evidence.info.dtype.is_integer
    ):
        return None
    if factor == -1:
        return "every element has the wrong sign"
    return f"every element is {factor:.6g} times the right one: scale?"


def _ratio(evidence: Evidence, a: Array, b: Array, plain: Array) -> float | None:
    """Return the factor by which all results differ from the expected ones; None if there is no such factor.

    There must be at least three different expected values other than 0.

    Args:
        evidence: the wrong result, for its type and tolerance.
        a: the results as float64, without the zero point.
        b: the expected results in the same form.
        plain: True for the elements to judge.
    """
    is_nonzero = plain & (b != 0)
    if np.count_nonzero(is_nonzero) < 3 or len(np.unique(b[is_nonzero])) < 3:
        return None
    largest = np.argmax(np.where(is_nonzero, np.abs(b), 0.0))
    factor = float(a.flat[largest] / b.flat[largest])
    slack = 1.0 + abs(factor) if evidence.info.dtype.is_integer else 0.0
    fits = np.abs(a - factor * b) <= slack if slack else evidence.near(b * factor, a)
    return factor if factor != 0 and fits[plain].all() else None


def _by_slice(evidence: Evidence) -> str | None:
    """Return a hint if every slice along an axis has a different factor or a different offset."""
    for axis in range(evidence.b.ndim):
        if not 1 < evidence.b.shape[axis] < evidence.b.size:
            continue
        arrays = evidence.a, evidence.b, evidence.plain
        slices = [[np.take(array, i, axis) for array in arrays] for i in range(evidence.b.shape[axis])]
        factors = [_ratio(evidence, *pair) for pair in slices]
        if None not in factors and len({round(factor, 3) for factor in factors if factor}) > 1:
            return (
                f"every slice along axis {axis} has a factor of its own: scales of channels taken as one, or mixed up?"
            )
        offsets = [float(np.median((a - b)[plain])) if plain.any() else 0.0 for a, b, plain in slices]
        fits = (
            evidence.near(b + offset, a)[plain].all() for (a, b, plain), offset in zip(slices, offsets, strict=True)
        )
        if len({round(offset, 3) for offset in offsets}) > 1 and min(a.size for a, _, _ in slices) > 2 and all(fits):
            return f"every slice along axis {axis} has an offset of its own: bias or zero points of channels?"
    return None


# --- order of the elements --------------------------------------------------------------------------------------------


def _permuted(evidence: Evidence) -> str | None:
    if not 2 <= evidence.b.ndim <= _MOST_AXES:
        return None
    for order in permutations(range(evidence.b.ndim)):
        transposed = evidence.b.transpose(order)
        if order != tuple(range(evidence.b.ndim)) and evidence.equal(evidence.a.reshape(-1), transposed.reshape(-1)):
            return f"equal to the right result with its axes in the order {list(order)}: layout, or axes swapped?"
    return None


def _moved(evidence: Evidence) -> str | None:
    for axis, size in enumerate(evidence.b.shape):
        if size > 1 and evidence.equal(evidence.a, np.flip(evidence.b, axis)):
            return f"equal to the right result reversed along axis {axis}"
    for shift in _moves(evidence.b.shape):
        target_slices = tuple(
            slice(max(step, 0), size + min(step, 0)) for step, size in zip(shift, evidence.b.shape, strict=True)
        )
        source_slices = tuple(
            slice(max(-step, 0), size + min(-step, 0)) for step, size in zip(shift, evidence.b.shape, strict=True)
        )
        if evidence.equal(evidence.a[target_slices], evidence.b[source_slices]):
            places = " and ".join(f"{step} along axis {axis}" for axis, step in enumerate(shift) if step)
            return f"the right result moved by {places}: padding or start at the wrong side?"
    return None


def _moves(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield shifts of a tensor of this shape, as the number of elements to move along each axis.

    Each shift moves one or two axes that are long enough by one or two elements in either direction.
    """
    axes = [axis for axis, size in enumerate(shape) if size > 2][:_MOST_AXES]
    for count in (1, 2):
        for chosen_axes in combinations(axes, count):
            for steps in product((1, -1, 2, -2), repeat=count):
                if all(abs(step) < shape[axis] - 1 for axis, step in zip(chosen_axes, steps, strict=True)):
                    step_of_axis = dict(zip(chosen_axes, steps, strict=True))
                    yield tuple(step_of_axis.get(axis, 0) for axis in range(len(shape)))


def _reordered(evidence: Evidence) -> str | None:
    if len(np.unique(evidence.b)) > 2 and evidence.equal(
        np.sort(evidence.a, axis=None), np.sort(evidence.b, axis=None)
    ):
        return "the right numbers in another order: layout, axis or index?"
    return None


# --- precision and rounding -------------------------------------------------------------------------------------------


def _ties(evidence: Evidence) -> str | None:
    if (
        np.abs((evidence.a - evidence.b)[evidence.wrong]).max(initial=0) > 1
        or not evidence.inputs
        or evidence.inputs[0][0].shape != evidence.wrong.shape
    ):
        return None
    x, info = evidence.inputs[0]
    if info.element is not None or not info.dtype.is_float:
        return None
    quantization = evidence.info.quantization
    scaled = x.astype(np.float64) / (
        quantization.scale if quantization is not None and quantization.axis is None else 1.0
    )
    ties = np.abs(scaled - np.trunc(scaled)) == 0.5
    if ties.any() and not (evidence.wrong & ~ties).any():
        return "only numbers halfway between two integers are wrong: half to even, or half away from zero?"
    return None


def _coarse(evidence: Evidence) -> str | None:
    if evidence.info.dtype not in (DataType.FLOAT32, DataType.FLOAT64) or evidence.actual.size < 2:
        return None
    for dtype in (DataType.BFLOAT16, DataType.FLOAT16, DataType.FLOAT32):
        coarse_values = evidence.b.astype(dtype.numpy).astype(np.float64)
        is_stored = dtype is not evidence.info.dtype and np.array_equal(
            evidence.a, evidence.a.astype(dtype.numpy).astype(np.float64)
        )
        if is_stored and not np.array_equal(evidence.b, coarse_values):
            return f"every element is a {dtype} number: computed, summed or stored in {dtype}?"
    return None


def _one_step(evidence: Evidence) -> str | None:
    errors = (evidence.a - evidence.b)[evidence.wrong]
    if not evidence.info.dtype.is_integer or np.abs(errors).max(initial=0) != 1 or np.ptp(evidence.b) < 3:
        return None
    signed_distance = np.asarray(errors * np.sign(evidence.b[evidence.wrong]))
    if (errors < 0).all():
        return "all wrong elements are one too low: rounded down?"
    if (errors > 0).all():
        return "all wrong elements are one too high: rounded up?"
    if (signed_distance < 0).all():
        return "all wrong elements are one too near to zero: truncated instead of rounded?"
    if (signed_distance > 0).all():
        return "all wrong elements are one too far from zero: rounded instead of truncated?"
    return "all wrong elements are one off, in both directions: rounding?"


# --- place of the wrong elements --------------------------------------------------------------------------------------


def _vector_tail(evidence: Evidence) -> str | None:
    """Return a hint if all elements after a multiple of a vector width are wrong, along an axis or in memory order."""
    for axis, size in (*enumerate(evidence.wrong.shape), (None, evidence.wrong.size)):
        slices = (
            evidence.wrong.reshape(size, -1) if axis is None else np.moveaxis(evidence.wrong, axis, 0).reshape(size, -1)
        )
        is_wrong = np.asarray(slices.any(axis=1))
        for width in _VECTORS:
            body = size - size % width
            if 0 < body < size and is_wrong[body:].all() and not is_wrong[:body].any():
                place = "in memory order" if axis is None else f"along axis {axis}"
                return f"only elements from {body} on {place} (of {size}) are wrong: the tail of a vector of {width}?"
    return None


def _slices(evidence: Evidence) -> str | None:
    """Return a hint if some slices along an axis are wrong, and all others are right."""
    for axis, size in enumerate(evidence.wrong.shape):
        other_axes = tuple(other_axis for other_axis in range(evidence.wrong.ndim) if other_axis != axis)
        wrong_indices = np.flatnonzero(evidence.wrong.any(axis=other_axes))
        if size < 2 or len(wrong_indices) == size:
            continue
        if (
            len(wrong_indices) <= size // 2
            and size > 2
            and evidence.wrong.ndim > 1
            and wrong_indices[0] != 0
            and wrong_indices[-1] != size - 1
        ):
            return f"only elements at {wrong_indices.tolist()} along axis {axis} are wrong"
        if axis == 0 and evidence.wrong.ndim > 2 and wrong_indices[0] == 1:
            return "only the first slice along axis 0 is right: is the batch ignored?"
    return None


def _border(evidence: Evidence) -> str | None:
    axes = [axis for axis, size in enumerate(evidence.wrong.shape) if size >= 3]
    sides = [(axis, end) for axis in axes for end in (0, -1)]
    for axis, end in sides:
        if not np.delete(evidence.wrong, end, axis).any():
            side = "first" if end == 0 else "last"
            return f"only the {side} elements along axis {axis} are wrong: padding?"
    for border_axes in _neighbours(axes):
        inner_slices = tuple(
            slice(1, -1) if axis in border_axes else slice(None) for axis in range(evidence.wrong.ndim)
        )
        if not evidence.wrong[inner_slices].any():
            return f"only elements at the border of axes {list(border_axes)} are wrong: padding?"
    return None


def _neighbours(axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in (1, 2, 3):
        yield from (candidate for candidate in combinations(axes, count) if candidate[-1] - candidate[0] == count - 1)


def _everything(evidence: Evidence) -> str | None:
    share = "all" if evidence.wrong.all() else "most"
    return (
        f"{share} elements are wrong: layout, exchanged axes, or the order of operands?" if evidence.all_wrong else None
    )


_RULES: Final[tuple[Rule, ...]] = (
    _denormals, _signed_zero, _stale, _never_written, _nan, _infinities, _special_inputs, _vector_tail, _ties, _zeros,
    _overflow, _narrow, _offset, _same_offset, _one_step, _factor, _permuted, _moved, _by_slice, _clamped, _coarse,
    _slices, _border, _reordered, _everything,
)  # fmt: skip
