"""TFLite writers for image resizing."""

from __future__ import annotations

from interposer.ops.resize import Resize, ResizeMethod
from interposer.writers.refusals import refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Tensor
from interposer.writers.tflite.tflite_layer_writers import writer

__all__: list[str] = []


@writer(Resize, quantized=True)
def resize(draft: Draft, op: Resize) -> Tensor:
    """Write Resize; the size is an operand."""
    if draft.info(0).quantization != draft.result.quantization:
        refuse("the scales of input and result differ")
    kind = "RESIZE_BILINEAR" if op.method is ResizeMethod.BILINEAR else "RESIZE_NEAREST_NEIGHBOR"
    last = op.data_layout.channels_last
    x, info = draft.channels_last(draft.operand(0), last), draft.channels_last_info(draft.result, last)
    size = draft.ints([op.target_height, op.target_width], "size")
    own = {"align_corners": op.align_corners, "half_pixel_centers": op.half_pixel_centers}
    return draft.channels_back(draft.node(kind, x, size, giving=info, **own), last)
