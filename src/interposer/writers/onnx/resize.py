"""ONNX writers for image resizing and sampling."""

from __future__ import annotations

from typing import Final

from interposer.core.types import Dim
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

    Nearest-neighbor sampling rounds coordinates down, or half up with aligned corners or half-pixel centers.
    """
    x, last = draft.operand(0), op.data_layout.channels_last
    nearest = op.method is ResizeMethod.NEAREST_NEIGHBOR
    if not nearest and not x.dtype.is_float:
        refuse("it mixes integers with weights of fixed-point numbers")
    first = draft.to_channels_first(x, 4, last)
    sizes, axes = _sizes(draft, op)
    rounding = "floor" if not (op.align_corners or op.half_pixel_centers) else "round_prefer_ceil"
    result = draft.node(
        "Resize",
        first,
        None,
        None,
        sizes,
        axes=axes,
        mode="nearest" if nearest else "linear",
        coordinate_transformation_mode=_coordinates(op),
        nearest_mode=rounding if nearest else None,
    )
    return draft.from_channels_first(result, 4, last)


def _coordinates(op: Resize) -> str:
    if op.align_corners:
        return "align_corners"
    return "half_pixel" if op.half_pixel_centers else "asymmetric"


def _sizes(draft: Draft, op: Resize) -> tuple[Tensor, list[int] | None]:
    """Return the operand sizes of Resize, and the axes that it is for: None for all, else height and width.

    All axes are listed if batch and channels are known; before opset 18 the layer is refused otherwise.
    """
    shape, channels = draft.info(0).shape, op.data_layout.axes().channels
    targets = [op.target_height, op.target_width]
    if not isinstance(shape[0], Dim) and not isinstance(shape[channels], Dim):
        return draft.ints([shape[0], shape[channels], *targets], "sizes"), None
    if draft.opset < 18:
        refuse("batch and channels are not known, which Resize asks for before opset 18")
    return draft.ints(targets, "sizes"), [2, 3]


@writer(Resize, quantized=True)
def resize_codes(draft: Draft, op: Resize) -> Tensor:
    """Write a quantized Resize with nearest-neighbor sampling, which moves the integers; other methods are refused."""
    same = draft.info(0).quantization == draft.results[0].quantization
    if op.method is not ResizeMethod.NEAREST_NEIGHBOR or not same:
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
def grid_sample_of_codes(draft: Draft, op: GridSample) -> Tensor:
    """Write a quantized GridSample with nearest-neighbor sampling, which moves the integers; other modes are refused.

    So is zero padding with a zero point other than 0, since ONNX pads with the integer 0.
    """
    same = draft.info(0).quantization == draft.results[0].quantization
    zeros = op.padding_mode is GridPadding.ZEROS and draft.info(0).zero_point
    if op.mode is not GridSampleMode.NEAREST or not same or zeros:
        refuse("it computes with the float values that integers stand for")
    return grid_sample(draft, op)


@writer(AffineGrid)
def affine_grid(draft: Draft, op: AffineGrid) -> Tensor:
    """Write AffineGrid; the size is the shape of the whole sampled result."""
    batch = draft.known(draft.info(0).shape[0], "batch")
    size = draft.ints([batch, 1, *op.extents], "size")
    return draft.node("AffineGrid", draft.operand(0), size, align_corners=1 if op.align_corners else None)
