"""Names of layers and places in the source code, from the metadata of fx nodes."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["layer_name", "place_of"]

_LINE: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def layer_name(node: Any) -> str:
    """Return the name of the layer for a node: the path of its module and the node's name.

    >>> from types import SimpleNamespace
    >>> layer_name(SimpleNamespace(name="linear_3", meta={"nn_module_stack": {"a": ("encoder.layer.0", None)}}))
    'encoder.layer.0/linear_3'
    """
    path = _module_path(node)
    return f"{path}/{node.name}" if path else str(node.name)


def _module_path(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    if path.startswith("L["):
        path = path.removeprefix("L['self']").replace("['", ".").replace("']", "").lstrip(".")
    return path.split("@")[0]


def place_of(node: Any) -> str:
    """Return where a node comes from: its name, its module, and the line of the program that called the operator."""
    path, line = _module_path(node), _line(node)
    places = [f"in module {path!r}" if path else "", f"at {line}" if line else ""]
    return " ".join(filter(None, [f"node {str(node.name)!r}", *places]))


def _line(node: Any) -> str:
    """Return file and line number of the innermost call that the node records; empty if there is none."""
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    if not lines:
        return ""
    file, number, _ = lines[-1]
    return f"{file.rpartition('/')[2]}:{number}"
