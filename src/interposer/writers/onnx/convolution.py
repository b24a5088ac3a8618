"""ONNX writers for convolutions of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.ops.convolution import (
    Convolution2d,
    DepthwiseConvolution2d,
    IntegerConvolution2d,
    TransposeConvolution2d,
)
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.window import Window
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.matmul import zero_point
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.onnx_window_attributes import kernel_attributes
from interposer.writers.onnx.tensor import Tensor

__all__ = ["convolved", "prepared"]


@writer(Convolution2d, DepthwiseConvolution2d, Convolution3d)
def convolution(draft: Draft, op: Convolution2d | DepthwiseConvolution2d | Convolution3d) -> Tensor:
    """Write a convolution as Conv, with channels first and weights with the output channels first."""
    return convolved(draft, op, "Conv", draft.optional(2))


@writer(IntegerConvolution2d)
@writer(IntegerConvolution2d, quantized=True)
def integer_convolution(draft: Draft, op: IntegerConvolution2d) -> Tensor:
    """Write IntegerConvolution2d as ConvInteger."""
    points = zero_point(draft, 2, draft.info(0)), zero_point(draft, 3, draft.info(1), from_end=4)
    return convolved(draft, op, "ConvInteger", *points)


def convolved(
    draft: Draft,
    op: Convolution2d | DepthwiseConvolution2d | Convolution3d | IntegerConvolution2d,
    kind: str,
    *others: Tensor | None,
    layout: bool = True,
) -> Tensor:
    """Write the ONNX operator `kind` (Conv or a similar one) for a convolution layer, and return its result.

    `others` are its operands after input and weights. The result has the layer's own layout, or channels first if
    `layout` is False.
    """
    rank, last = draft.rank, op.data_layout.channels_last
    x, weights, sizes, groups = prepared(draft, op)
    windows: Sequence[Window] = op.windows(*(draft.known(item, "window's size") for item in sizes))
    attributes = kernel_attributes(windows) | {"group": groups if groups != 1 else None}
    result = draft.node(kind, x, weights, *others, **attributes)
    return draft.from_channels_first(result, rank, last) if layout else result


def prepared(
    draft: Draft, op: Convolution2d | DepthwiseConvolution2d | Convolution3d | IntegerConvolution2d
) -> tuple[Tensor, Tensor, Sequence[int], int]:
    """Return the input with channels first, weights (O, I / groups, ...), the window's dimensions and the groups."""
    shape, last = draft.info(1).shape, op.data_layout.channels_last
    x, weights = draft.to_channels_first(draft.operand(0), draft.rank, last), draft.operand(1)
    if isinstance(op, Convolution3d):
        return x, draft.transpose(weights, (4, 3, 0, 1, 2)), shape[:3], op.groups
    if isinstance(op, DepthwiseConvolution2d):
        groups = draft.known(draft.info(0).shape[op.data_layout.axes().channels], "number of channels")
        return x, draft.transpose(weights, (3, 0, 1, 2)), shape[1:3], groups
    sizes = shape[1:3] if last else shape[2:]
    return x, draft.to_channels_first(weights, 4, last), sizes, op.groups


@writer(TransposeConvolution2d)
def transpose_convolution(draft: Draft, op: TransposeConvolution2d) -> Tensor:
    """Write TransposeConvolution2d; the result is cropped or extended at its end to its size."""
    last, (h, w, _) = op.data_layout.channels_last, op.data_layout.axes()
    shape = draft.info(1).shape
    rows, columns = op.windows(*(draft.known(shape[axis], "window's size") for axis in (h, w)))
    (rows, more_rows), (columns, more_columns) = (
        _reaching(draft, window, axis) for window, axis in ((rows, h), (columns, w))
    )
    x = draft.to_channels_first(draft.operand(0), 4, last)
    weights = draft.transpose(draft.operand(1), (3, 0, 1, 2) if last else (1, 0, 2, 3))
    attributes = kernel_attributes((rows, columns)) | {
        "group": op.groups if op.groups != 1 else None,
        "output_padding": [more_rows, more_columns] if more_rows or more_columns else None,
    }
    result = draft.node("ConvTranspose", x, weights, draft.optional(2), **attributes)
    return draft.from_channels_first(result, 4, last)


def _reaching(draft: Draft, window: Window, axis: int) -> tuple[Window, int]:
    """Return the window with the end pad that gives the output size along `axis`, and the number of missing cells.

    Cells are missing if the output is larger than what the windows cover; they become output padding.
    """
    before, after = draft.info(0).shape[axis], draft.results[0].shape[axis]
    op = draft.layer.op
    assert isinstance(op, TransposeConvolution2d)
    if op.output_shape is None:
        return window, 0
    covered = window.covered(draft.known(before, "image's size")) - window.pad_before
    return window._replace(pad_after=max(0, covered - after)), max(0, after - covered)
