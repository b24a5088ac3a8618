"""The Arm NN writer for Resize."""

from __future__ import annotations

from interposer.formats.armnn.schema import LAYOUTS, RESIZE_METHODS
from interposer.ops.resize import Resize
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor

__all__: list[str] = []


@writer(Resize)
def resize(draft: Draft, op: Resize) -> Tensor:
    """Write Resize."""
    fields = {
        "targetHeight": op.target_height,
        "targetWidth": op.target_width,
        "method": RESIZE_METHODS.index(op.method.name),
        "dataLayout": LAYOUTS.index(op.data_layout.name),
        "alignCorners": op.align_corners,
        "halfPixelCenters": op.half_pixel_centers,
    }
    return draft.final("Resize", draft.operand(0), descriptor=fields)
