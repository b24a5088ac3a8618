"""Recognizing ONNX models in protobuf's text format by their content."""

from __future__ import annotations

import re
from typing import Final

from interposer.formats.text import first_field

__all__ = ["is_text"]

_FIELDS: Final = frozenset(
    {
        b"doc_string", b"domain", b"functions", b"graph", b"ir_version", b"metadata_props", b"model_version",
        b"opset_import", b"producer_name", b"producer_version", b"training_info",
    }
)  # fmt: skip
"""The fields of a model, with one of which its text begins."""
_GRAPH: Final = re.compile(
    rb"graph\s*:?\s*[{<]\s*(node|name|initializer|sparse_initializer|doc_string|input|output|value_info)\s*[:{<]"
)
"""The beginning of a graph, which distinguishes it from a network in the text form."""


def is_text(head: bytes) -> bool:
    """Return True if the first bytes of a file are a model in protobuf's text format."""
    field = first_field(head)
    return field in _FIELDS and (field != b"graph" or _GRAPH.search(head) is not None)
