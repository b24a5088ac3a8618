"""Recognition of files that people give instead of a model, by their first bytes."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["foreign"]

_KINDS: Final = (
    (rb"version https://git-lfs", "the file is a pointer of Git LFS, not a model; get the model with: git lfs pull"),
    (rb"(?i:\s*<(!doctype html|html|head|\?xml))", "the file is a web page, not a model; download the model itself"),
    (rb"\x89HDF\r\n", "the file is in HDF5, which is not supported; save the model in another format"),
    (
        rb"(?s:PK\x03\x04.{22}.{4}metadata\.json)",
        "the file is a model of Keras, which is not supported; write it with Keras' model.export(folder)",
    ),
    (
        rb"model_checkpoint_path:|(?s:\x00\x00.\x08.\x1a)",
        "the file is a part of a checkpoint of TensorFlow, which has no graph; write a SavedModel or a frozen graph",
    ),
    (
        rb"(?s:\n%(size)b\x12%(size)b\n%(size)b\n[\x01-\x7f][A-Z])" % {b"size": rb"[\x80-\xff]{0,4}[\x00-\x7f]"},
        "the file is a meta graph of TensorFlow, which has no values of variables; "
        "write a SavedModel or a frozen graph",
    ),
    (rb"PK\x03\x04|\x1f\x8b|BZh[1-9]|\xfd7zXZ|7z\xbc\xaf|Rar!", "the file is an archive; extract the model from it"),
    (rb"(?s:.{257})ustar", "the file is an archive; extract the model from it"),
)  # fmt: skip


def foreign(head: bytes) -> str | None:
    """Return what the file is that begins with these bytes, and what to do; None if it may be a model."""
    for pattern, message in _KINDS:
        if re.match(pattern, head[:512]):
            return message
    return None
