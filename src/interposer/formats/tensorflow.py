"""Recognizing the files of TensorFlow by their content: frozen graphs and SavedModels, binary or text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from interposer.formats.text import first_field

__all__ = ["BINARY", "TEXT", "is_saved_model", "is_saved_model_content", "is_tensorflow", "is_text", "missing"]

BINARY: Final = "saved_model.pb"
TEXT: Final = "saved_model.pbtxt"
"""The names of the file in the folder of a SavedModel that has the graph."""

_NAME: Final = 0x0A
_OPERATOR: Final = 0x12
"""The first bytes of the fields of a binary node: its name, and its operator."""
_SCHEMA_VERSION: Final = b"\x08\x01\x12"
_WORDS: Final = (b"node", b"library", b"versions", b"saved_model_schema_version", b"meta_graphs")


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Return True if a path is the folder of a SavedModel."""
    return any((Path(os.fsdecode(path)) / name).is_file() for name in (BINARY, TEXT))


def missing(folder: Path) -> str:
    """Return the message for a folder that is no SavedModel; it names a folder inside that is one."""
    inner = sorted(path.parent.name for path in folder.glob(f"*/{BINARY}"))
    return f"the folder holds no {BINARY}" + (f", but its folder {inner[-1]!r} does" if inner else "")


def is_tensorflow(head: bytes) -> bool:
    """Return True if the first bytes of a file (some hundreds) may be those of a graph or of a SavedModel.

    A binary graph begins with a node, and a node with its name and its operator.
    """
    if is_text(head) or is_saved_model_content(head):
        return True
    if len(head) < 4 or head[0] != _NAME:
        return False
    at = 1
    while at < len(head) - 1 and head[at] >= 0x80:
        at += 1
    return _begins_with_node(head[at + 1 :])


def _begins_with_node(data: bytes) -> bool:
    texts = []
    for tag in (_NAME, _OPERATOR):
        if len(data) < 2 or data[0] != tag or data[1] >= 0x80:
            return False
        texts.append(data[2 : 2 + data[1]])
        data = data[2 + data[1] :]
    name, kind = texts
    return bool(name) and kind[:1].isalpha() and kind.replace(b"_", b"").isalnum()


def is_saved_model_content(head: bytes) -> bool:
    """Return True if the first bytes of a file are those of a SavedModel, and not of a graph."""
    if is_text(head):
        return first_field(head).startswith((b"saved_model", b"meta_graphs"))
    at = len(_SCHEMA_VERSION)
    if not head.startswith(_SCHEMA_VERSION):
        return False
    while at < len(head) - 1 and head[at] >= 0x80:
        at += 1
    return head[at + 1 : at + 2] == bytes([_NAME])


def is_text(head: bytes) -> bool:
    """Return True if the first bytes of a file are a graph or a SavedModel in protobuf's text format.

    A binary graph begins with a line feed (0x0A), which a text may also do.
    """
    return first_field(head) in _WORDS
