"""Constant strings in TFLite files: a count, the offset of each string and of the end, and the bytes of all strings."""

from __future__ import annotations

import numpy as np

from interposer.core.errors import DamagedFileError, ParseError
from interposer.core.types import Array
from interposer.frontends.tflite.contents import Tensor

__all__ = ["texts_of"]


def texts_of(data: bytes, tensor: Tensor, where: str) -> Array:
    """Return the strings in the bytes of a constant as an array of texts, with the tensor's shape.

    `ParseError` with the location `where` is raised if the bytes are damaged, or if a string is not UTF-8.
    """
    count = int.from_bytes(data[:4], "little", signed=True)
    if count != tensor.elements or len(data) < 4 * (count + 2):
        raise DamagedFileError(
            f"tensor {tensor.name!r} has {len(data)} bytes for {tensor.elements} strings", where=where
        )
    offsets = np.frombuffer(data, "<i4", count + 1, 4).tolist()
    if offsets[0] != 4 * (count + 2) or sorted(offsets) != offsets or offsets[-1] > len(data):
        raise DamagedFileError(f"tensor {tensor.name!r} has strings outside of its bytes", where=where)
    texts = np.empty(count, object)
    texts[:] = [_text(data[start:end], tensor, where) for start, end in zip(offsets[:-1], offsets[1:], strict=True)]
    return texts.reshape(tensor.shape)


def _text(encoded: bytes, tensor: Tensor, where: str) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise ParseError(
            f"tensor {tensor.name!r} has a string that is not UTF-8: {encoded[:40]!r}", where=where
        ) from error
