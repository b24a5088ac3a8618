"""The reference page of the operators in TFLite files that are read."""

from __future__ import annotations

import inspect
from typing import Final

import interposer.frontends.tflite  # noqa: F401 - registers the converters
from interposer.formats.tflite.schema import OPERATORS
from interposer.frontends.tflite.tflite_converters import Entry, find, find_complex, operators

__all__ = ["tflite_page"]

HEAD: Final = """# TFLite, operators

<!-- Written by tools/generate.py; do not edit. -->

The builtin operators of the TFLite schema, in the order of their codes, and the custom operators that are built in. An
empty row means that files with the operator are refused. *complex* marks operators of complex numbers.
[The guide](../tflite.md) describes the format.
"""
BUILTIN: Final = [name for name in OPERATORS if name != "CUSTOM" and not name.startswith("PLACEHOLDER")]
"""The builtin operators; the schema lists two codes more that stand for no operator."""
_PREFIX: Final = "CUSTOM "


def tflite_page() -> str:
    """Return the page in Markdown."""
    count = sum(_described(name) != "" for name in BUILTIN)
    custom = [name.removeprefix(_PREFIX) for name in operators() if name.startswith(_PREFIX)]
    table = ["| operator | conversion |", "| --- | --- |"]
    builtin = [f"| `{name}` | {_described(name)} |" for name in BUILTIN]
    custom_rows = [f"| `{name}` | {_first_line(find(name, True))} |" for name in custom]
    parts = [HEAD, f"## {count} of {len(BUILTIN)} builtin operators", "", *table, *builtin]
    return "\n".join([*parts, "", "## Custom operators", "", *table, *custom_rows])


def _described(name: str) -> str:
    entry, numbers = find(name, False), find_complex(name)
    if entry is not None and entry is numbers:
        return f"{_first_line(entry)} (complex)"
    return _first_line(entry) + (" (also complex)" if numbers else "")


def _first_line(entry: Entry | None) -> str:
    """Return the first line of a converter's documentation, with each name of an operator as code."""
    text = "" if entry is None else (inspect.getdoc(entry.convert) or "").partition("\n")[0]
    return text.replace("|", "\\|")
