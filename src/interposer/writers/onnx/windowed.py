"""ONNX writers for sliding windows along any number of axes: max pooling with indices, unpooling, LpPool and Col2Im."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.types import Dim
from interposer.ops.pooling import OutputShapeRounding
from interposer.ops.window import Window
from interposer.ops.windowed import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.onnx_window_attributes import kernel_attributes
from interposer.writers.onnx.pooling import comparable
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


def _windows(draft: Draft, op: LpPooling | MaxPoolingWithIndices) -> tuple[Sequence[Window], int | None]:
    """Return the windows of a pooling layer, and the value of the ONNX attribute ceil_mode: 1, or None for the default.

    If the sizes are known, the windows' end pads give the rounded output size, and the mode is None.
    """
    sizes, counts = draft.info(0).shape[2:], draft.result.shape[2:]
    if any(isinstance(dimension, Dim) for dimension in sizes):
        return op.windows(), 1 if op.output_shape_rounding is OutputShapeRounding.CEILING else None
    columns = zip(op.windows(), sizes, counts, strict=True)
    return [window._replace(pad_after=window.pad_after_for(size, count)) for window, size, count in columns], None


@writer(MaxPoolingWithIndices)
def max_pooling_with_indices(draft: Draft, op: MaxPoolingWithIndices) -> list[Tensor]:
    """Write MaxPoolingWithIndices as MaxPool with its second result."""
    windows, ceil_mode = _windows(draft, op)
    _check_pads(windows)
    order = 1 if op.column_major else None
    attributes = kernel_attributes(windows) | {"ceil_mode": ceil_mode, "storage_order": order}
    x = draft.operand(0)
    maxima, places = draft.nodes("MaxPool", comparable(draft, x), count=2, **attributes)
    return [draft.cast(maxima, x.dtype), places]


@writer(MaxPoolingWithIndices, quantized=True)
def quantized_max_pooling(draft: Draft, op: MaxPoolingWithIndices) -> list[Tensor]:
    """Write MaxPoolingWithIndices of quantized values, whose maximum is that of the integers."""
    if draft.info(0).quantization != draft.result.quantization:
        refuse("the scales of input and result differ")
    return max_pooling_with_indices(draft, op)


def _check_pads(windows: Sequence[Window]) -> None:
    if any(max(w.pad_before, w.pad_after) >= w.reach for w in windows):
        refuse("some of its windows see nothing but padding")


@writer(LpPooling)
def lp_pooling(draft: Draft, op: LpPooling) -> Tensor:
    """Write LpPooling as LpPool (with dilations since opset 18)."""
    windows, ceil_mode = _windows(draft, op)
    if draft.opset < 18 and (ceil_mode or any(w.dilation > 1 for w in windows)):
        refuse(f"LpPool of opset {draft.opset} has neither dilations nor a mode of rounding")
    return draft.node("LpPool", draft.operand(0), **kernel_attributes(windows), ceil_mode=ceil_mode, p=op.p)


@writer(MaxUnpooling, moves=True)
def max_unpooling(draft: Draft, op: MaxUnpooling) -> Tensor:
    """Write MaxUnpooling as MaxUnpool with stride 1 and a window size from which the result's dimensions follow."""
    if draft.result.zero_point:
        refuse("its zero point is not 0")
    window = [size - n + 1 for size, n in zip(op.extents, draft.shape(0)[2:], strict=True)]
    if min(window) < 1:
        refuse("its result is smaller than its input")
    x = comparable(draft, draft.operand(0))
    return draft.cast(draft.node("MaxUnpool", x, draft.operand(1), kernel_shape=window), draft.operand(0).dtype)


@writer(Col2Im)
def col2im(draft: Draft, op: Col2Im) -> Tensor:
    """Write Col2Im; image and block shapes are operands."""
    attributes = kernel_attributes(op.windows())
    block = draft.ints(attributes.pop("kernel_shape"), "block")
    return draft.node("Col2Im", draft.operand(0), draft.ints(op.image_shape, "image"), block, **attributes)
