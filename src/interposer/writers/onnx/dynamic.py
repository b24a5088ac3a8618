"""ONNX writers for operators whose shapes or counts are only known at run time, random numbers, and image decoding."""

from __future__ import annotations

from typing import Any, Final

from interposer.core.types import DataType, TensorInfo
from interposer.ops.axes import normal_axis
from interposer.ops.deformable import DeformableConvolution2d
from interposer.ops.dynamic import (
    DynamicBroadcastTo,
    DynamicPad,
    DynamicReshape,
    DynamicSlice,
    DynamicSplitter,
    DynamicTile,
    DynamicTopK,
)
from interposer.ops.images import ImageDecoder
from interposer.ops.randomness import Distribution, RandomFill
from interposer.ops.rearrange import PaddingMode
from interposer.ops.trees import TreeEnsemble
from interposer.ops.window import Window
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.encoding import encoded, filled
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.onnx_window_attributes import kernel_attributes
from interposer.writers.onnx.rearrange import FARTHEST
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_MODES: Final = {PaddingMode.CONSTANT: None, PaddingMode.REFLECT: "reflect", PaddingMode.EDGE: "edge"}
_PARAMETERS: Final = {Distribution.UNIFORM: ("low", "high"), Distribution.NORMAL: ("mean", "scale")}


def _wide(draft: Draft, index: int) -> Tensor:
    return draft.cast(draft.operand(index), DataType.INT64)


@writer(DynamicReshape, moves=True)
def dynamic_reshape(draft: Draft, op: DynamicReshape) -> Tensor:
    """Write DynamicReshape; a dimension of 0 is copied, or means 0 with allowzero."""
    return draft.node("Reshape", draft.operand(0), _wide(draft, 1), allowzero=None if op.copy_zeros else 1)


@writer(DynamicBroadcastTo, moves=True)
def dynamic_broadcast_to(draft: Draft, op: DynamicBroadcastTo) -> Tensor:
    """Write DynamicBroadcastTo as Expand."""
    return draft.node("Expand", draft.operand(0), _wide(draft, 1))


@writer(DynamicTile, moves=True)
def dynamic_tile(draft: Draft, op: DynamicTile) -> Tensor:
    """Write DynamicTile as Tile."""
    return draft.node("Tile", draft.operand(0), _wide(draft, 1))


@writer(DynamicSlice, moves=True)
def dynamic_slice(draft: Draft, op: DynamicSlice) -> Tensor:
    """Write DynamicSlice as Slice."""
    axes = draft.ints([normal_axis(axis, draft.rank) for axis in op.axes], "axes")
    ends, steps = _wide(draft, 2), None if draft.optional(3) is None else _wide(draft, 3)
    known_steps = None if steps is None else draft.info(3).constant
    if steps is not None and (known_steps is None or (known_steps < 0).any()):
        ends = draft.node("Min", ends, draft.ints([FARTHEST], "farthest"))
    return draft.node("Slice", draft.operand(0), _wide(draft, 1), ends, axes, steps)


@writer(DynamicSplitter, moves=True)
def dynamic_splitter(draft: Draft, op: DynamicSplitter) -> list[Tensor]:
    """Write DynamicSplitter as Split."""
    axis = normal_axis(op.axis, draft.rank)
    return draft.nodes("Split", draft.operand(0), _wide(draft, 1), count=op.num_outputs, axis=axis)


@writer(DynamicPad, moves=True)
def dynamic_pad(draft: Draft, op: DynamicPad) -> Tensor:
    """Write DynamicPad; the operand lists all pads at the starts, then all pads at the ends."""
    if op.padding_mode not in _MODES:
        refuse(f"ONNX has no {op.padding_mode.name} for pads that are not known")
    pads = draft.reshape(draft.transpose(_wide(draft, 1), (1, 0)), [-1])
    fill = draft.constant(encoded(op.pad_value, draft.result), draft.operand(0).dtype, "value")
    is_constant_pad = op.padding_mode is PaddingMode.CONSTANT
    return draft.node("Pad", draft.operand(0), pads, fill if is_constant_pad else None, mode=_MODES[op.padding_mode])


@writer(DynamicTopK, moves=True)
def dynamic_top_k(draft: Draft, op: DynamicTopK) -> list[Tensor]:
    """Write DynamicTopK; k is a vector of one number."""
    k = draft.reshape(_wide(draft, 1), [1])
    results = draft.nodes("TopK", draft.operand(0), k, count=2, axis=op.axis, largest=None if op.largest else 0)
    return [results[0], draft.cast(results[1], op.index_dtype)]


@writer(RandomFill)
def random_fill(draft: Draft, op: RandomFill) -> Tensor:
    """Write RandomFill as RandomUniformLike or RandomNormalLike on a tensor of zeros, which gives the shape.

    A layer with a seed is refused, as ONNX does not define the numbers for a seed.
    """
    names = _PARAMETERS[op.distribution]
    attributes: dict[str, Any] = dict(zip(names, (op.a, op.b), strict=True))
    kind = "RandomUniformLike" if op.distribution is Distribution.UNIFORM else "RandomNormalLike"
    if op.seed is not None:
        refuse("its seed gives certain numbers, of which ONNX says nothing")
    if op.b == 0 and op.distribution is Distribution.NORMAL:
        return filled(draft, draft.operand(0), op.a, draft.result)
    drawn_type = op.dtype if draft.gives(kind, op.dtype) else DataType.FLOAT32
    zeros = filled(draft, draft.operand(0), 0.0, TensorInfo((), DataType.FLOAT32))
    return draft.cast(draft.node(kind, zeros, giving=drawn_type, dtype=drawn_type, **attributes), op.dtype)


@writer(ImageDecoder)
def image_decoder(draft: Draft, op: ImageDecoder) -> Tensor:
    """Write ImageDecoder as the operator of this name (since opset 20)."""
    return draft.node("ImageDecoder", draft.operand(0), pixel_format=op.pixel_format.value)


@writer(DeformableConvolution2d)
def deformable_convolution(draft: Draft, op: DeformableConvolution2d) -> Tensor:
    """Write DeformableConvolution2d as DeformConv (since opset 19)."""
    height, width = (draft.known(n, "window's size") for n in draft.info(1).shape[2:])
    windows = (
        Window(height, op.stride_y, op.dilation_y, op.pad_top, op.pad_bottom),
        Window(width, op.stride_x, op.dilation_x, op.pad_left, op.pad_right),
    )
    groups: dict[str, Any] = {
        "group": op.groups if op.groups != 1 else None,
        "offset_group": op.offset_groups if op.offset_groups != 1 else None,
    }
    operands = (draft.optional(index) for index in range(5))
    return draft.node("DeformConv", *operands, **kernel_attributes(windows), **groups)


@writer(TreeEnsemble)
def tree_ensemble(draft: Draft, op: TreeEnsemble) -> Tensor:
    """Refuse TreeEnsemble, which belongs to another operator set."""
    refuse("ONNX has trees in the domain ai.onnx.ml only, which is not written")
