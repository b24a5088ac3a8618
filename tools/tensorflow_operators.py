"""The reference page of the operators that the TensorFlow front end converts."""

from __future__ import annotations

import inspect
from typing import Final

from interposer.frontends.tensorflow import operators
from interposer.frontends.tensorflow.tensorflow_converters import find

__all__ = ["tensorflow_page"]

HEAD: Final = """# TensorFlow: operators

<!-- Written by tools/generate.py; do not edit. -->

This page lists the operators of frozen graphs and SavedModels that are converted, with the module of the converter.
[The guide](../tensorflow.md) describes the formats.

| operator | family | conversion |
| --- | --- | --- |
"""


def tensorflow_page() -> str:
    """Return the page in Markdown: a table with a row for each operator."""
    return HEAD + "".join(_row(name) for name in operators())


def _row(name: str) -> str:
    entry = find(name)
    assert entry is not None
    line = (inspect.getdoc(entry.convert) or "").partition("\n")[0]
    family = entry.convert.__module__.rpartition(".")[2]
    return f"| {name} | {family} | {line} |\n"
