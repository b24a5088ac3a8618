"""Samples of image decoding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.core.types import DataType
from interposer.ops import ImageDecoder, PixelFormat
from interposer.testing.sample import Given, Sample, of, samples
from interposer.testing.samples.common import u8

__all__: list[str] = []


def _file(data: bytes) -> Given:
    return of(np.frombuffer(data, np.uint8), DataType.UINT8)


@samples(ImageDecoder)
def decoded() -> Iterator[Sample]:
    """Yield ImageDecoder samples: a portable image in every pixel format, and bytes that are not an image."""
    colours = _file(b"P6 2 1 255 " + bytes([255, 255, 255, 1, 2, 3]))
    expected = {
        PixelFormat.RGB: [[[255, 255, 255], [1, 2, 3]]],
        PixelFormat.BGR: [[[255, 255, 255], [3, 2, 1]]],
        PixelFormat.GRAYSCALE: [[[255], [2]]],
    }
    for pixels, values in expected.items():
        yield Sample(ImageDecoder(pixels), [colours], name=pixels.value, expected=[u8(values)])
    yield Sample(ImageDecoder(), [_file(b"no image")], name="damaged", expected=[np.empty((0, 0, 3), np.uint8)])
