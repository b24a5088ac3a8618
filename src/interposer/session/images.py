"""Images as inputs of networks. This module reads image files for all commands, and for calibration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np

from interposer.core.errors import InvalidArgumentError, MissingDependencyError
from interposer.core.records import dataclass
from interposer.core.types import UNKNOWN, Array, DataLayout, DataType, Dim, TensorInfo

__all__ = ["Preprocessing", "read_image"]

MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's color mode for each number of channels."""


@dataclass(frozen=True)
class Preprocessing:
    """The conversion of pixel values 0 to 255 to an input: ``(pixel - mean) / std``, with one value or one per channel.

    `layout` is that of the input, which is needed if its shape fits both. Without `mean` and `std`, an integer input
    takes the pixel values (int8: less 128), a float input pixel / 255. With `quantize`, other files have float values
    for quantized inputs, which are quantized.
    """

    layout: DataLayout | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    quantize: bool = False


def read_image(path: str, name: str, info: TensorInfo, preprocessing: Preprocessing) -> Array:
    """Return an image file as an array for the input `name`, which must have the shape of an image.

    The image is resized (bilinear) to the input's height and width, converted to grayscale or color as its channels
    require, and its pixel values are converted as `preprocessing` says.

    Raises:
        MissingDependencyError: Pillow is not installed.
        InvalidArgumentError: the file is not an image, is damaged or too large, or the input does not accept images.
        OSError: the file cannot be opened.
    """
    label = f"input {name!r} {info}"
    size = _image_size(label, info, preprocessing.layout)
    pixels = _pixels(path, size)
    values = _values(label, pixels, info, preprocessing)
    if not size.channels_last:
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values.reshape(values.shape if info.rank == 3 else (1, *values.shape)))


# --- layout of the input ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ImageSize:
    height: int
    width: int
    channels: int
    channels_last: bool


def _image_size(label: str, info: TensorInfo, layout: DataLayout | None) -> _ImageSize:
    if info.rank not in (3, 4):
        raise InvalidArgumentError(f"{label} is no image (rank 3 or 4); give its values in a .npy file")
    if info.rank == 4 and info.shape[0] not in (1, UNKNOWN) and not isinstance(info.shape[0], Dim):
        raise InvalidArgumentError(f"{label} takes {info.shape[0]} images at once; give them in a .npy file")
    sizes = info.shape[-3:]
    is_channels_last = layout.channels_last if layout is not None else _is_channels_last(label, sizes)
    height, width, channels = sizes if is_channels_last else (*sizes[1:], sizes[0])
    if channels not in MODES:
        raise InvalidArgumentError(
            f"{label} has {channels} channels as {'NHWC' if is_channels_last else 'NCHW'}; an image has 1, 3 or 4"
        )
    return _ImageSize(height, width, channels, is_channels_last)


def _is_channels_last(label: str, sizes: Sequence[int]) -> bool:
    may_be_first, may_be_last = sizes[0] in MODES, sizes[-1] in MODES
    if may_be_first and may_be_last:
        raise InvalidArgumentError(f"{label} can be NHWC or NCHW; give the layout (--layout NHWC or --layout NCHW)")
    if not may_be_first and not may_be_last:
        raise InvalidArgumentError(
            f"{label} has no axis of 1, 3 or 4 channels, first or last; "
            "give its values in a .npy file, or the shape of the input (--shape)"
        )
    return may_be_last


# --- reading ----------------------------------------------------------------------------------------------------------


def _pixels(path: str, size: _ImageSize) -> Array:
    """Return the pixel values (uint8) of an image file as [height, width, channels], resized to `size`.

    `size` has the height, width and number of channels that the input of the network requires.
    """
    pillow = _pillow()
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        try:
            picture = _resized(pillow, pillow.open(file), size)
        except Exception as error:  # decoders raise exceptions of any type
            _refuse(pillow, path, error)
    return np.asarray(picture, np.uint8).reshape(picture.height, picture.width, size.channels)


def _pillow() -> ModuleType:
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingDependencyError("pillow", "images", "reading images") from error
    return Image


def _resized(pillow: ModuleType, picture: Any, size: _ImageSize) -> Any:
    converted_picture = picture.convert(MODES[size.channels])
    width = converted_picture.width if isinstance(size.width, Dim) else size.width
    height = converted_picture.height if isinstance(size.height, Dim) else size.height
    return converted_picture.resize((width, height), pillow.Resampling.BILINEAR)


def _refuse(pillow: ModuleType, path: str, error: Exception) -> NoReturn:
    if isinstance(error, pillow.UnidentifiedImageError):
        message = (
            "no image that Pillow knows, nor a .npy or .npz file; the name of bare numbers must end in .bin or .raw"
        )
    elif isinstance(error, pillow.DecompressionBombWarning | pillow.DecompressionBombError):
        message = f"the image has more than {pillow.MAX_IMAGE_PIXELS:,} pixels, which no network needs; scale it down"
    else:
        message = f"the image is truncated or damaged: {str(error) or type(error).__name__}"
    raise InvalidArgumentError(f"{path}: {message}") from error


# --- from pixels to values --------------------------------------------------------------------------------------------


def _values(label: str, pixels: Array, info: TensorInfo, preprocessing: Preprocessing) -> Array:
    is_normalized = bool(preprocessing.mean or preprocessing.std)
    if info.dtype.is_float:
        return _normalized(label, pixels, preprocessing, 255.0 if not is_normalized else 1.0).astype(info.dtype.numpy)
    if is_normalized and info.quantization is not None:
        return _quantized(_normalized(label, pixels, preprocessing, 1.0), info)
    if is_normalized:
        raise InvalidArgumentError(f"{label} takes bare integers; mean and std are for real and quantized numbers")
    if info.dtype not in _FROM_PIXELS:
        raise InvalidArgumentError(f"{label} is {info.dtype}; an image is uint8, int8 or floats; give a .npy file")
    return _FROM_PIXELS[info.dtype](pixels)


_FROM_PIXELS: Final[dict[DataType, Callable[[Array], Array]]] = {
    DataType.UINT8: lambda pixels: pixels,
    DataType.INT8: lambda pixels: (pixels.astype(np.int16) - 128).astype(np.int8),
}


def _normalized(label: str, pixels: Array, preprocessing: Preprocessing, std: float) -> Array:
    mean = _each_channel(label, pixels, "mean", preprocessing.mean or (0.0,))
    deviation = _each_channel(label, pixels, "std", preprocessing.std or (std,))
    return ((pixels - mean) / deviation).astype(np.float32)


def _each_channel(label: str, pixels: Array, title: str, numbers: tuple[float, ...]) -> Array:
    channels = pixels.shape[-1]
    if len(numbers) not in (1, channels):
        accepted_counts = "1" if channels == 1 else f"1 or {channels}"
        raise InvalidArgumentError(f"{title} has {len(numbers)} numbers; {label} takes {accepted_counts}")
    return np.array(numbers, np.float64)


def _quantized(numbers: Array, info: TensorInfo) -> Array:
    limits = np.iinfo(info.dtype.numpy)
    rounded_numbers = np.rint(numbers / info.scale) + info.zero_point
    array: Array = np.clip(rounded_numbers, limits.min, limits.max).astype(info.dtype.numpy)
    return array
