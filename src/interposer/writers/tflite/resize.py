"""TFLite writers for image resizing."""

from __future__ import annotations

from interposer.ops.resize import Resize, ResizeMethod
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(Resize, also_quantized=True)
def resize(draft: Draft, op: Resize) -> Tensor:
    """Write Resize; the size is an operand."""
    if draft.info(0).quantization != draft.result.quantization:
        refuse("the scales of input and result differ")
    kind = "RESIZE_BILINEAR" if op.method is ResizeMethod.BILINEAR else "RESIZE_NEAREST_NEIGHBOR"
    size = draft.ints([op.target_height, op.target_width], "size")
    fields = {"align_corners": op.align_corners, "half_pixel_centers": op.half_pixel_centers}
    return draft.final(kind, draft.operand(0), size, **fields)
