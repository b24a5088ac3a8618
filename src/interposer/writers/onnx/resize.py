"""ONNX writers for image resizing and sampling."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Dim, TensorShape
from interposer.ops.grid import AffineGrid, GridPadding, GridSample, GridSampleMode
from interposer.ops.resize import Resize, ResizeMethod
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_MODES: Final = {GridSampleMode.LINEAR: "linear", GridSampleMode.NEAREST: "nearest", GridSampleMode.CUBIC: "cubic"}
_OLD_MODES: Final = {
    GridSampleMode.LINEAR: "bilinear",
    GridSampleMode.NEAREST: "nearest",
    GridSampleMode.CUBIC: "bicubic",
}
_PADDINGS: Final = {
    GridPadding.ZEROS: "zeros",
    GridPadding.BORDER: "border",
    GridPadding.REFLECTION: "reflection",
}


@writer(Resize)
def resize(draft: Draft, op: Resize) -> Tensor:
    """Write Resize; the layer's flags select one of three coordinate transformations.

    Nearest-neighbor sampling rounds coordinates down, or half up with aligned corners or half-pixel centers. Where ONNX
    would round one to another pixel, Gather nodes take the pixels.
    """
    x, nearest = draft.operand(0), op.method is ResizeMethod.NEAREST_NEIGHBOR
    if not nearest and not x.dtype.is_float:
        refuse("it mixes integers with weights of fixed-point numbers")
    if not rounds_alike(op, draft.info(0).shape):
        return _gathered(draft, op, x)
    sizes, axes = _sizes(draft, op)
    rounding = "floor" if not (op.align_corners or op.half_pixel_centers) else "round_prefer_ceil"
    return draft.node(
        "Resize",
        x,
        None,
        None,
        sizes,
        axes=axes,
        mode="nearest" if nearest else "linear",
        coordinate_transformation_mode=_coordinates(op),
        nearest_mode=rounding if nearest else None,
    )


def _coordinates(op: Resize) -> str:
    if op.align_corners:
        return "align_corners"
    return "half_pixel" if op.half_pixel_centers else "asymmetric"


def _resized_axes(op: Resize, shape: TensorShape) -> list[tuple[int, int, int]]:
    """Return height and width, as axis, size of the input, and size of the result; only those of known size."""
    height, width, _ = op.data_layout.axes()
    targets = (height, op.target_height), (width, op.target_width)
    return [(axis, size, target) for axis, target in targets if not isinstance(size := shape[axis], Dim)]


def rounds_alike(op: Resize, shape: TensorShape) -> bool:
    """Return True if ONNX's coordinates select the same pixels of an image as those of the layer, which are float32.

    They may differ where a coordinate is half-way between two pixels. True, too, if a size is not known.
    """
    axes = _resized_axes(op, shape)
    return (
        op.method is not ResizeMethod.NEAREST_NEIGHBOR
        or len(axes) < 2
        or all(np.array_equal(_pixels(op, size, target), _onnx_pixels(op, size, target)) for _, size, target in axes)
    )


def _pixels(op: Resize, size: int, target_size: int) -> NDArray[np.int64]:
    """Return the pixels that the layer takes along an axis of `size` pixels; its coordinates are float32."""
    source_span, target_span = (
        (size - 1, target_size - 1) if op.align_corners and target_size > 1 else (size, target_size)
    )
    offset = np.float32(0.5 if op.half_pixel_centers else 0)
    places = (np.arange(target_size, dtype=np.float32) + offset) * (np.float32(source_span) / np.float32(target_span))
    return _within(np.floor(places.astype(np.float64) + 0.5) if op.align_corners else np.floor(places), size)


def _onnx_pixels(op: Resize, size: int, target_size: int) -> NDArray[np.int64]:
    """Return the pixels that ONNX takes along an axis of `size` pixels, with the coordinates that the node names."""
    x, scale = np.arange(target_size, dtype=np.float64), target_size / size
    if op.align_corners:
        return _within(np.floor(x * ((size - 1) / max(target_size - 1, 1)) + 0.5), size)
    if op.half_pixel_centers:
        return _within(np.floor((x + 0.5) / scale - 0.5 + 0.5), size)
    return _within(np.floor(x / scale), size)


def _within(places: NDArray[np.floating], size: int) -> NDArray[np.int64]:
    return np.clip(places.astype(np.int64), 0, size - 1)


def _gathered(draft: Draft, op: Resize, x: Tensor) -> Tensor:
    """Return the pixels of `x` that the layer takes, gathered along height and width."""
    for axis, size, target in _resized_axes(op, draft.info(0).shape):
        x = draft.node("Gather", x, draft.ints(_pixels(op, size, target).tolist(), "pixels"), axis=axis)
    return x


def _sizes(draft: Draft, op: Resize) -> tuple[Tensor, list[int] | None]:
    """Return the operand sizes of Resize, and the axes that it is for: None for all, else height and width.

    All axes are listed if batch and channels are known; before opset 18 the layer is refused otherwise.
    """
    batch, channels, *_ = draft.info(0).shape
    targets = [op.target_height, op.target_width]
    if not isinstance(batch, Dim) and not isinstance(channels, Dim):
        return draft.ints([batch, channels, *targets], "sizes"), None
    if draft.opset < 18:
        refuse("batch and channels are not known, which Resize asks for before opset 18")
    return draft.ints(targets, "sizes"), [2, 3]


@writer(Resize, quantized=True)
def quantized_resize(draft: Draft, op: Resize) -> Tensor:
    """Write a quantized Resize with nearest-neighbor sampling, which moves the integers; other methods are refused."""
    has_same_quantization = draft.info(0).quantization == draft.result.quantization
    if op.method is not ResizeMethod.NEAREST_NEIGHBOR or not has_same_quantization:
        refuse("it mixes integers with weights of fixed-point numbers")
    return resize(draft, op)


@writer(GridSample)
def grid_sample(draft: Draft, op: GridSample) -> Tensor:
    """Write GridSample; its modes had other names before opset 20."""
    mode = (_MODES if draft.opset >= 20 else _OLD_MODES)[op.mode]
    align = 1 if op.align_corners else None
    return draft.node(
        "GridSample", *draft.tensors(), mode=mode, padding_mode=_PADDINGS[op.padding_mode], align_corners=align
    )


@writer(GridSample, quantized=True)
def quantized_grid_sample(draft: Draft, op: GridSample) -> Tensor:
    """Write a quantized GridSample with nearest-neighbor sampling, which moves the integers; other modes are refused.

    So is zero padding with a zero point other than 0, since ONNX pads with the integer 0.
    """
    has_same_quantization = draft.info(0).quantization == draft.result.quantization
    zeros = op.padding_mode is GridPadding.ZEROS and draft.info(0).zero_point
    if op.mode is not GridSampleMode.NEAREST or not has_same_quantization or zeros:
        refuse("it computes with the float values that integers stand for")
    return grid_sample(draft, op)


@writer(AffineGrid)
def affine_grid(draft: Draft, op: AffineGrid) -> Tensor:
    """Write AffineGrid; its size operand has a number of channels too, here 1, on which the grid does not depend."""
    batch = draft.known(draft.info(0).shape[0], "batch")
    size = draft.ints([batch, 1, *op.extents], "size")
    return draft.node("AffineGrid", draft.operand(0), size, align_corners=1 if op.align_corners else None)
