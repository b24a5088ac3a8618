"""Clean-up of all nodes: remove unused nodes and constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interposer.writers.onnx.forms import form
from interposer.writers.onnx.sheet import Sheet

__all__ = ["clean"]


def clean(sheet: Sheet, outputs: Sequence[str], annotated: Iterable[str]) -> None:
    """Remove nodes and constants that the outputs do not depend on.

    `annotated` are the names of constants that quantization annotations use, which are not removed.
    """
    _drop_dead(sheet, outputs)
    used = {*annotated, *outputs, *(name for step in sheet.steps for name in (*step.inputs, *step.captured))}
    sheet.constants = {name: array for name, array in sheet.constants.items() if name in used}


def _drop_dead(sheet: Sheet, outputs: Iterable[str]) -> None:
    needed = set(outputs)
    cached = []
    for step in reversed(sheet.steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            needed.update(step.captured)
            cached.append(step)
    sheet.steps = cached[::-1]
    for step in cached:  # unused optional results need no name
        known = form(step.kind, sheet.opset)
        optional = known.optional if known else frozenset()
        step.outputs = [
            "" if index in optional and name not in needed else name for index, name in enumerate(step.outputs)
        ]
        while step.outputs and not step.outputs[-1]:
            step.outputs.pop()
