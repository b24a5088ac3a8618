"""Edits that make a network smaller or simpler, for the shrinker to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.ops.control import Input
from interposer.testing.judge.draft import Draft, Place, Step

__all__ = ["EDITS", "Edit", "Recorded"]

Recorded = Mapping[Place, tuple[TensorInfo, Array]]
"""The info and the array of every result of a draft."""

Candidate = Callable[[], Draft]
"""A function that creates a draft; raises `InterposerError` or `ValueError` if the edit is impossible."""
Edit = Callable[[Draft, Recorded], Iterator[Candidate]]
"""A function that yields candidates smaller or simpler than a draft, the most promising first."""


def one_output(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield for each output a draft in which it is the only output; `recorded` is not used."""
    if len(draft.outputs) > 1:
        yield from (partial(_ending, draft, (place,)) for place in draft.outputs)


def _ending(draft: Draft, outputs: tuple[Place, ...]) -> Draft:
    return replace(draft, outputs=outputs).needed()


def fewer_outputs(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield for each output a draft without this output; `recorded` is not used."""
    if len(draft.outputs) > 2:
        for number in range(len(draft.outputs)):
            yield partial(_ending, draft, draft.outputs[:number] + draft.outputs[number + 1 :])


def earlier_end(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which an intermediate value is the only output; values of the first layers come first."""
    for number, step in enumerate(draft.steps):
        places = tuple(Place(number, result) for result in range(len(step.quantizations)))
        if step.computes:
            yield partial(_ending, draft, places)


def later_start(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which the results of a layer become inputs, whose arrays are taken from `recorded`.

    The last layers come first.
    """
    for number in reversed(range(len(draft.steps))):
        if draft.steps[number].computes and recorded:
            yield partial(_starting_after, draft, number, recorded)


def _starting_after(draft: Draft, number: int, recorded_values: Recorded) -> Draft:
    step = draft.steps[number]
    places = [Place(number, result) for result in range(len(step.quantizations))]
    used_places = [place for place in places if any(place in reader.inputs for reader in draft.steps)]
    if any(recorded_values[place][0].element is not None for place in used_places):
        raise InvalidArgumentError("a sequence cannot be an input of its own")
    new_inputs, rewired_draft = [], draft
    for place in used_places:
        info, array = recorded_values[place]
        name = f"{step.name}_{place.result}" if place.result else step.name
        new_inputs.append(
            Step(Input(), f"{name}_value", (), (info.quantization,), (info.with_shape(array.shape),), array)
        )
        rewired_draft = rewired_draft.with_place(place, Place(-len(new_inputs)))
    return _prepended(rewired_draft, new_inputs).needed()


def _prepended(draft: Draft, steps: list[Step]) -> Draft:
    """Return the draft with new inputs added before all other steps.

    The caller marks references to the new steps by negative numbers: -1 stands for the first of them, -2 for the
    second.
    """
    count = len(steps)

    def shifted(place: Place) -> Place:
        return Place(-place.step - 1, 0) if place.step < 0 else Place(place.step + count, place.result)

    following_steps = [
        replace(step, inputs=tuple(None if p is None else shifted(p) for p in step.inputs)) for step in draft.steps
    ]
    return replace(draft, steps=(*steps, *following_steps), outputs=tuple(map(shifted, draft.outputs)))


def bypass(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which the consumers of a layer read one of its operands instead of its result.

    Both must have the same info, which is taken from `recorded`.
    """
    for number, step in enumerate(draft.steps):
        if not (step.computes and recorded) or len(step.quantizations) != 1:
            continue
        for place in dict.fromkeys(step.inputs):
            if place is not None and recorded[place][0] == recorded[Place(number)][0]:
                yield partial(_bypassing, draft, Place(number), place)


def _bypassing(draft: Draft, old: Place, new: Place) -> Draft:
    return draft.with_place(old, new).needed()


def fewer_operands(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which one of the optional operands of a layer is absent; `recorded` is not used."""
    for number, step in enumerate(draft.steps):
        for index in reversed(range(len(step.inputs))):
            operand = step.op.operands[min(index, len(step.op.operands) - 1)]
            if step.inputs[index] is not None and (operand.optional or operand.variadic):
                yield partial(_without_operand, draft, number, index, is_variadic=operand.variadic)


def _without_operand(draft: Draft, number: int, index: int, *, is_variadic: bool) -> Draft:
    step = draft.steps[number]
    inputs = (*step.inputs[:index], *(() if is_variadic else (None,)), *step.inputs[index + 1 :])
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return draft.with_step(number, replace(step, inputs=inputs)).needed()


def default_attributes(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which one attribute of an operator has its default value; `recorded` is not used."""
    for number, step in enumerate(draft.steps):
        for name in step.op.changed_attributes() if step.computes else ():
            if not step.op.attributes[name].required:
                yield partial(_with_default, draft, number, name)


def _with_default(draft: Draft, number: int, name: str) -> Draft:
    step = draft.steps[number]
    op = step.op.replace(**{name: step.op.attributes[name].default})
    return draft.with_step(number, replace(step, op=op))


# --- sizes ------------------------------------------------------------------------------------------------------------


def smaller_sizes(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which inputs and constants are cropped to smaller sizes; `recorded` is not used.

    First, all dimensions of the same size are reduced together, with or without attributes of that value. Then, single
    dimensions are reduced.
    """
    arrays = [step.array for step in draft.steps if step.array is not None]
    for old_size in sorted({size for array in arrays for size in array.shape if size > 1}, reverse=True):
        for new_size in dict.fromkeys((1, old_size // 2, old_size - 1)):
            yield partial(_resized, draft, old_size, new_size, attributes=True)
            yield partial(_resized, draft, old_size, new_size, attributes=False)
    for number, step in enumerate(draft.steps):
        for axis, old_size in enumerate(() if step.array is None else step.array.shape):
            for new_size in dict.fromkeys((1, old_size // 2, old_size - 1) if old_size > 1 else ()):
                yield partial(_cut_step, draft, number, {axis: new_size})


def _cut_step(draft: Draft, number: int, sizes: Mapping[int, int]) -> Draft:
    return draft.with_step(number, _cut(draft.steps[number], sizes))


def _resized(draft: Draft, old_size: int, new_size: int, *, attributes: bool) -> Draft:
    resized_steps = []
    for step in draft.steps:
        if step.array is not None:
            resized_steps.append(
                _cut(step, {axis: new_size for axis, size in enumerate(step.array.shape) if size == old_size})
            )
        else:
            resized = replace(step, quantizations=tuple(_shorter(q, old_size, new_size) for q in step.quantizations))
            resized_steps.append(
                replace(resized, op=_with_size(step.op, old_size, new_size)) if attributes else resized
            )
    return replace(draft, steps=tuple(resized_steps))


def _cut(step: Step, sizes: Mapping[int, int]) -> Step:
    """Return an input or a constant whose array is cropped to its first elements.

    `sizes` maps axes to their new sizes.
    """
    array = step.array
    assert array is not None
    cropped = np.ascontiguousarray(array[tuple(slice(0, sizes.get(axis)) for axis in range(array.ndim))])
    quantization = step.quantizations[0]
    for axis, size in sizes.items():
        quantization = None if quantization is None else _cropped_quantization(axis, size, quantization)
    return step.with_array(
        cropped.reshape([sizes.get(axis, size) for axis, size in enumerate(array.shape)]), quantization
    )


def _cropped_quantization(axis: int, size: int, quantization: Quantization) -> Quantization:
    if quantization.axis != axis:
        return quantization
    return Quantization(quantization.scales[:size], quantization.zero_points[:size], axis)


def _shorter(quantization: Quantization | None, old_size: int, new_size: int) -> Quantization | None:
    if quantization is None or quantization.axis is None or len(quantization.scales) != old_size:
        return quantization
    return _cropped_quantization(quantization.axis, new_size, quantization)


def _with_size(op: Op, old_size: int, new_size: int) -> Op:
    """Return the operator with every integer attribute that equals the old size replaced by the new size."""
    changes: dict[str, Any] = {}
    for name, attribute in op.changed_attributes().items():
        if type(attribute) is int and attribute == old_size:
            changes[name] = new_size
        elif (
            isinstance(attribute, tuple) and old_size in attribute and all(type(number) is int for number in attribute)
        ):
            changes[name] = tuple(new_size if number == old_size else number for number in attribute)
    return op.replace(**changes) if changes else op


# --- numbers ----------------------------------------------------------------------------------------------------------


def simpler_numbers(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which the elements of an input or a constant are zeros, ones or small integers.

    `recorded` is not used.
    """
    for number, step in enumerate(draft.steps):
        array = step.array
        if array is None or array.dtype == object or not array.size:
            continue
        yield from (partial(_with_numbers, draft, number, simplify) for simplify in _SIMPLER)


def _with_numbers(draft: Draft, number: int, simplify: Callable[[Array], Array]) -> Draft:
    step = draft.steps[number]
    assert step.array is not None
    return draft.with_step(number, step.with_array(simplify(step.array), step.quantizations[0]))


def _like(function: Callable[[Array], Any]) -> Callable[[Array], Array]:
    def simpler(array: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(array)).astype(array.dtype).reshape(array.shape)

    return simpler


_SIMPLER: Final = (
    _like(np.zeros_like),
    _like(np.ones_like),
    _like(lambda array: np.clip(np.round(array.astype(np.float64)), -2, 2)),
    _like(lambda array: np.where(np.arange(array.size).reshape(array.shape) == 0, array, 0)),
    _like(lambda array: np.round(array.astype(np.float64))),
    _like(lambda array: np.where(np.arange(array.size).reshape(array.shape) < array.size // 2, array, 0)),
    _like(lambda array: np.where(np.isfinite(array.astype(np.float64)), array, 0)),
)


def simpler_quantizations(draft: Draft, recorded: Recorded) -> Iterator[Candidate]:
    """Yield drafts in which a quantized tensor has scale 1 or zero point 0; `recorded` is not used."""
    for number, step in enumerate(draft.steps):
        if any(q is not None and not q.per_axis for q in step.quantizations):
            yield from (partial(_with_quantization, draft, number, simplify) for simplify in (_unscaled, _centered))


def _unscaled(quantization: Quantization) -> Quantization:
    return quantization if quantization.per_axis else Quantization(1.0, quantization.zero_point)


def _centered(quantization: Quantization) -> Quantization:
    return quantization if quantization.per_axis else Quantization(quantization.scale, 0)


def _with_quantization(draft: Draft, number: int, simplify: Callable[[Quantization], Quantization]) -> Draft:
    return draft.with_step(number, _requantized(draft.steps[number], simplify))


def _requantized(step: Step, simplify: Callable[[Quantization], Quantization]) -> Step:
    quantizations = tuple(None if q is None else simplify(q) for q in step.quantizations)
    if step.array is not None:
        return step.with_array(step.array, quantizations[0])
    return replace(step, quantizations=quantizations)


EDITS: Final[tuple[Edit, ...]] = (
    earlier_end,
    one_output,
    fewer_outputs,
    later_start,
    bypass,
    fewer_operands,
    default_attributes,
    smaller_sizes,
    simpler_numbers,
    simpler_quantizations,
)
"""All edits, ordered by how much they remove."""
