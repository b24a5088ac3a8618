"""What is done to the nodes as a whole: those that nobody needs go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interposer.writers.onnx.sheet import Sheet

__all__ = ["clean"]


def clean(sheet: Sheet, outputs: Sequence[str], annotated: Iterable[str]) -> None:
    """Drop nodes and constants that the outputs do not depend on."""
    _drop_dead(sheet, outputs)


def _drop_dead(sheet: Sheet, outputs: Iterable[str]) -> None:
    needed = set(outputs)
    kept = []
    for step in reversed(sheet.steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            kept.append(step)
    sheet.steps = kept[::-1]
    for step in kept:  # results that nobody takes need no name
        step.outputs = [name if name in needed else "" for name in step.outputs]
        while step.outputs and not step.outputs[-1]:
            step.outputs.pop()
