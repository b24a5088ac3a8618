"""Clean-up of all nodes: remove unused nodes and constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interposer.writers.emission import live
from interposer.writers.onnx.forms import form
from interposer.writers.onnx.sheet import Sheet

__all__ = ["clean"]


def clean(sheet: Sheet, outputs: Sequence[str], annotated: Iterable[str]) -> None:
    """Remove nodes and constants that the outputs do not depend on.

    `annotated` are the names of constants that quantization annotations use, which are not removed.
    """
    _drop_dead(sheet, outputs)
    used_names = {*annotated, *outputs, *(name for node in sheet.nodes for name in node.reads)}
    sheet.constants = {name: array for name, array in sheet.constants.items() if name in used_names}


def _drop_dead(sheet: Sheet, outputs: Sequence[str]) -> None:
    sheet.nodes = live(sheet.nodes, outputs)
    needed_names = {*outputs, *(name for node in sheet.nodes for name in node.reads)}
    for node in sheet.nodes:  # unused optional results need no name
        known_form = form(node.kind, sheet.opset)
        optional = known_form.optional if known_form else frozenset()
        node.outputs = [
            "" if index in optional and name not in needed_names else name for index, name in enumerate(node.outputs)
        ]
        while node.outputs and not node.outputs[-1]:
            node.outputs.pop()
