"""ONNX writers for operators that select: nonzero or unique elements, the largest elements, boxes."""

from __future__ import annotations

import numpy as np

from interposer.core.types import DataType
from interposer.ops.choice import RandomMultinomial, TopK
from interposer.ops.detection import NonMaxSuppression
from interposer.ops.regions import RoiAlign, RoiAlignMode
from interposer.ops.selection import Compress, NonZero, Unique
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(NonZero)
def non_zero(draft: Draft, op: NonZero) -> Tensor:
    """Write NonZero as the operator of this name."""
    return draft.node("NonZero", draft.operand(0))


@writer(NonZero, quantized=True)
def quantized_non_zero(draft: Draft, op: NonZero) -> Tensor:
    """Write NonZero of quantized values, which are compared with the zero point."""
    x, q = draft.operand(0), draft.info(0).quantization
    assert q is not None, "only quantized tensors come here"
    shape = [-1 if axis == q.axis else 1 for axis in range(draft.rank)] if q.per_axis else []
    points = draft.constant(np.reshape(q.zero_points, shape), x.dtype, "zero_point")
    return draft.node("NonZero", draft.node("Not", draft.node("Equal", x, points)))


@writer(Compress, moves=True)
def compress(draft: Draft, op: Compress) -> Tensor:
    """Write Compress as the operator of this name."""
    return draft.node("Compress", *draft.tensors(), axis=op.axis)


@writer(Unique, moves=True)
def unique(draft: Draft, op: Unique) -> list[Tensor]:
    """Write Unique; the int64 indices are cast to int32 if the layer's are."""
    results = draft.nodes("Unique", draft.operand(0), count=4, axis=op.axis, sorted=None if op.sorted else 0)
    return [results[0], *(draft.cast(indices, op.index_dtype) for indices in results[1:])]


@writer(TopK, moves=True)
def top_k(draft: Draft, op: TopK) -> list[Tensor]:
    """Write TopK, sorted best first."""
    largest = None if op.largest else 0
    results = draft.nodes("TopK", draft.operand(0), draft.ints([op.k], "k"), count=2, axis=op.axis, largest=largest)
    return [results[0], draft.cast(results[1], op.index_dtype)]


@writer(RandomMultinomial)
def random_multinomial(draft: Draft, op: RandomMultinomial) -> Tensor:
    """Write RandomMultinomial as Multinomial, whose seed is an attribute."""
    if draft.optional(1) is not None:
        refuse("its seeds are an operand, but an attribute of Multinomial")
    return draft.node("Multinomial", draft.operand(0), giving=op.dtype, dtype=op.dtype, sample_size=op.num_samples)


@writer(NonMaxSuppression)
def non_max_suppression(draft: Draft, op: NonMaxSuppression) -> Tensor:
    """Write NonMaxSuppression; its parameters are operands of 32 bits."""
    boxes, scores = (draft.cast(tensor, DataType.FLOAT32) for tensor in draft.tensors())
    score = None if op.score_threshold is None else draft.constant([op.score_threshold], DataType.FLOAT32)
    return draft.node(
        "NonMaxSuppression",
        boxes,
        scores,
        draft.ints([op.max_output_boxes_per_class], "max_output_boxes_per_class"),
        draft.constant([op.iou_threshold], DataType.FLOAT32, "iou_threshold"),
        score,
        center_point_box=1 if op.center_point_box else None,
    )


@writer(RoiAlign)
def roi_align(draft: Draft, op: RoiAlign) -> Tensor:
    """Write RoiAlign; it is refused if the scale or the sampling ratio differs between height and width.

    ONNX has one of each for both axes.
    """
    if op.height_stride != op.width_stride or op.height_sampling_ratio != op.width_sampling_ratio:
        refuse("its strides or sampling ratios differ in height and width")
    x, regions, batches = draft.tensors()
    coordinates = "half_pixel" if op.half_pixel else "output_half_pixel"
    if draft.opset < 16:
        if op.half_pixel:
            refuse(f"RoiAlign of opset {draft.opset} has no half_pixel")
        coordinates = ""
    return draft.node(
        "RoiAlign",
        x,
        draft.cast(regions, x.dtype),
        draft.cast(batches, DataType.INT64),
        mode="avg" if op.mode is RoiAlignMode.AVERAGE else "max",
        output_height=op.output_height,
        output_width=op.output_width,
        sampling_ratio=op.height_sampling_ratio,
        spatial_scale=1 / op.height_stride,
        coordinate_transformation_mode=coordinates or None,
    )
