"""Operators that decode image files."""

from __future__ import annotations

from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import UNKNOWN, DataType, TensorInfo

__all__ = ["ImageDecoder", "PixelFormat"]


class PixelFormat(Enum):
    """The channels of a pixel in the output of `ImageDecoder`, in their order."""

    RGB = "RGB"
    """Red, green, blue."""
    BGR = "BGR"
    """Blue, green, red."""
    GRAYSCALE = "Grayscale"
    """Brightness."""


@op
class ImageDecoder(Op):
    """Decode the bytes of an image file: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP or a portable image (PNM).

    A file that cannot be decoded gives an image of height and width 0.

    Shapes:
        input: (bytes,)
        output: (H, W, C), where C is 3, or 1 in grayscale

    Example:
        >>> file = np.frombuffer(b"P6 2 1 255 " + bytes([255, 0, 0, 1, 2, 3]), np.uint8)
        >>> compute(ImageDecoder(), file).tolist()
        [[[255, 0, 0], [1, 2, 3]]]
        >>> compute(ImageDecoder(PixelFormat.BGR), file).tolist()
        [[[0, 0, 255], [3, 2, 1]]]
        >>> compute(ImageDecoder(), np.zeros(9, np.uint8)).shape
        (0, 0, 3)

    Source:
        ONNX ImageDecoder-20.
    """

    input = operand(rank=1, dtypes=[DataType.UINT8])
    output = result(rank=3, dtypes=[DataType.UINT8], dynamic=True)

    pixel_format: PixelFormat = attribute(default=PixelFormat.RGB, doc="The channels of a pixel.")

    @property
    def channels(self) -> int:
        """The number of channels of the decoded image."""
        return 1 if self.pixel_format is PixelFormat.GRAYSCALE else 3

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((UNKNOWN, UNKNOWN, self.channels), DataType.UINT8)
