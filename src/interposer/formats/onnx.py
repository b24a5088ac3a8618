"""Recognizing ONNX models in protobuf's text format by their content."""

from __future__ import annotations

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


def is_text(head: bytes) -> bool:
    """Return True if the first bytes of a file are a model in protobuf's text format."""
    return first_field(head) in _FIELDS
