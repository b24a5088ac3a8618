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

__all__ = ["convolved"]


@writer(Convolution2d, DepthwiseConvolution2d, Convolution3d)
def convolution(draft: Draft, op: Convolution2d | DepthwiseConvolution2d | Convolution3d) -> Tensor:
    """Write a convolution as Conv, with channels first and weights with the output channels first."""
    return convolved(draft, op, "Conv", draft.optional(2))


@writer(IntegerConvolution2d, also_quantized=True)
def integer_convolution(draft: Draft, op: IntegerConvolution2d) -> Tensor:
    """Write IntegerConvolution2d as ConvInteger."""
    points = zero_point(draft, 2, draft.info(0)), zero_point(draft, 3, draft.info(1), from_end=4)
    return convolved(draft, op, "ConvInteger", *points)


def convolved(
    draft: Draft,
    op: Convolution2d | DepthwiseConvolution2d | Convolution3d | IntegerConvolution2d,
    kind: str,
    *others: Tensor | None,
) -> Tensor:
    """Write the ONNX operator `kind` (Conv or a similar one) for a convolution layer, and return its result.

    `others` are its operands after input and weights.
    """
    weights, sizes, groups = _weights_of(draft, op)
    windows: Sequence[Window] = op.windows(*(draft.known(size, "window's size") for size in sizes))
    attributes = kernel_attributes(windows) | {"group": groups if groups != 1 else None}
    return draft.node(kind, draft.operand(0), weights, *others, **attributes)


def _weights_of(
    draft: Draft, op: Convolution2d | DepthwiseConvolution2d | Convolution3d | IntegerConvolution2d
) -> tuple[Tensor, Sequence[int], int]:
    """Return the weights as (O, I / groups, ...), the window's dimensions and the groups."""
    weights, shape = draft.operand(1), draft.info(1).shape
    if isinstance(op, Convolution3d):
        return draft.transpose(weights, (4, 3, 0, 1, 2)), shape[:3], op.groups
    if isinstance(op, DepthwiseConvolution2d):
        groups = draft.known(draft.info(0).shape[1], "number of channels")
        return draft.transpose(weights, (3, 0, 1, 2)), shape[1:3], groups
    return weights, shape[2:], op.groups


@writer(TransposeConvolution2d)
def transpose_convolution(draft: Draft, op: TransposeConvolution2d) -> Tensor:
    """Write TransposeConvolution2d; the result is cropped or extended at its end to its size."""
    height, width = (draft.known(size, "window's size") for size in draft.info(1).shape[2:])
    rows, columns = op.windows(height, width)
    (rows, more_rows), (columns, more_columns) = _reaching(draft, rows, 2), _reaching(draft, columns, 3)
    weights = draft.transpose(draft.operand(1), (1, 0, 2, 3))
    attributes = kernel_attributes((rows, columns)) | {
        "group": op.groups if op.groups != 1 else None,
        "output_padding": [more_rows, more_columns] if more_rows or more_columns else None,
    }
    return draft.node("ConvTranspose", draft.operand(0), weights, draft.optional(2), **attributes)


def _reaching(draft: Draft, window: Window, axis: int) -> tuple[Window, int]:
    """Return the window with the end pad that gives the output size along `axis`, and the number of missing cells.

    Cells are missing if the output is larger than what the windows cover; they become output padding.
    """
    input_size, output_size = draft.info(0).shape[axis], draft.result.shape[axis]
    op = draft.layer.op
    assert isinstance(op, TransposeConvolution2d)
    if op.output_shape is None:
        return window, 0
    covered = window.covered(draft.known(input_size, "image's size")) - window.pad_before
    return window._replace(pad_after=max(0, covered - output_size)), max(0, output_size - covered)
