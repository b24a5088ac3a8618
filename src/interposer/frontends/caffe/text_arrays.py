"""Decoding of the arrays in a file in protobuf's text format, where every number is a field such as ``data: 0.5``."""

from __future__ import annotations

import re
import warnings
from typing import Final

import numpy as np

from interposer.core.types import Array

__all__ = ["without_arrays"]

_RUN: Final = re.compile(rb"(?<!\w)(?:double_)?data:[ad-finotublN_:\s\d.+\-E]+")
"""A field with a number, and the characters after it of which such fields consist."""
_DTYPES: Final = {b"data:": "<f4", b"double_data:": "<f8"}


def without_arrays(text: bytes) -> tuple[bytes, list[bytes]]:
    """Return a text without the numbers of fields ``data`` and ``double_data``, and their arrays.

    Each run of such a field becomes one field with the number of its array. The text is unchanged and there are no
    arrays if a run has anything else, such as a comment or another field.
    """
    pieces, arrays, end = list[bytes](), list[bytes](), 0
    for run in _RUN.finditer(text):
        array = _array(run[0])
        if array is None or b"#" in text[text.rfind(b"\n", 0, run.start()) + 1 : run.start()]:
            return text, []
        name = run[0].partition(b":")[0]
        pieces += [text[end : run.start()], b'%s: "%d" ' % (name, len(arrays))]
        arrays.append(array.tobytes())
        end = run.end()
    return b"".join([*pieces, text[end:]]), arrays


def _array(run: bytes) -> Array | None:
    """Return the numbers of a run of one field; None if it has anything else."""
    field = run[: run.index(b":") + 1]
    numbers = run.replace(field, b" ")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            array = np.fromstring(numbers, _DTYPES[field], sep=" ")
    except (DeprecationWarning, ValueError):
        return None
    return array if len(array) == run.count(field) else None
