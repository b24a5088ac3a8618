"""The reference page of the layers in Arm NN files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from interposer.core.families import import_families
from interposer.core.schema import registered_ops
from interposer.formats.armnn.schema import layers
from interposer.frontends.armnn.armnn_converters import find as converter_of
from interposer.writers.armnn.armnn_layer_writers import LAYER_WRITERS
from interposer.writers.armnn.releases import RELEASES, SINCE

__all__ = ["armnn_page"]

HEAD: Final = """# Arm NN files, layers

<!-- Written by tools/generate.py; do not edit. -->

The layers of the format in its order, with the release of Arm NN that first reads them. Interposer reads all of them.
Below are the operators that are written. [The guide](../armnn-files.md) describes the format.
"""
_BORDERS: Final = {"Input": "Becomes an input of the network.", "Output": "Becomes an output of the network."}


def armnn_page() -> str:
    """Return the page in Markdown."""
    import_families("interposer.writers.armnn")
    known = layers()
    read = [f"| `{kind}` | {SINCE.get(kind, RELEASES[0])} | {_conversion(kind)} |" for kind in known]
    ops = registered_ops()
    written = [f"| `{name}` | {_first_line(_writer(ops[name]))} |" for name in LAYER_WRITERS.operators()]
    parts = [HEAD, f"## {len(known)} layers", "", "| layer | since | conversion |", "| --- | --- | --- |", *read]
    return "\n".join([*parts, "", f"## {len(written)} operators that are written", "",
                      "| operator | writer |", "| --- | --- |", *written])  # fmt: skip


def _conversion(kind: str) -> str:
    convert = converter_of(kind)
    return _first_line(convert) if convert is not None else _BORDERS[kind]


def _writer(op: Any) -> Callable[..., Any]:
    entry = LAYER_WRITERS.find(op)
    assert entry is not None
    return entry.write


def _first_line(function: Callable[..., Any]) -> str:
    """Return the first line of a function's documentation."""
    return (inspect.getdoc(function) or "").partition("\n")[0].replace("|", "\\|")
