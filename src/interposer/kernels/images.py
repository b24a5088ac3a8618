"""Image decoding kernel, which uses Pillow."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from interposer.core.errors import MissingDependencyError
from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.ops.images import ImageDecoder, PixelFormat

__all__: list[str] = []


@kernel(ImageDecoder)
def decode_image(op: ImageDecoder, data: Array) -> Array:
    """Compute `ImageDecoder` with Pillow.

    If Pillow raises an error or warns, such as of an image that is far too large, the result is an empty image.

    Raises:
        MissingDependencyError: Pillow is not installed.
    """
    pillow = _pillow()
    try:
        with warnings.catch_warnings(action="error"), pillow.open(io.BytesIO(data.tobytes())) as image:
            pixels = np.asarray(image.convert("L" if op.channels == 1 else "RGB"), np.uint8)
    except Exception:  # whatever a damaged file makes Pillow raise
        return np.empty((0, 0, op.channels), np.uint8)
    return pixels[..., ::-1] if op.pixel_format is PixelFormat.BGR else pixels.reshape(*pixels.shape[:2], -1)


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise MissingDependencyError("pillow", "images", "decoding images") from error
    return Image
