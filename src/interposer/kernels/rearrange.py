"""Kernels of the operators that move elements without computing."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.types import Array, Quantization, TensorInfo
from interposer.kernels.encoding import encoded
from interposer.kernels.fixedpoint import along_axis, limits, round_half_away
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)

__all__: list[str] = []

_NUMPY_MODES: Final = {
    PaddingMode.REFLECT: "reflect",
    PaddingMode.SYMMETRIC: "symmetric",
    PaddingMode.EDGE: "edge",
    PaddingMode.WRAP: "wrap",
}


@kernel(Transpose, Permute)
def transpose(op: Transpose | Permute, x: Array) -> Array:
    """Compute `Transpose`, and `Permute` with the inverse permutation."""
    return x.transpose(op.permutation)


@kernel(Concat)
def concat(op: Concat, inputs: tuple[Array, ...], *, info: KernelInfo) -> Array:
    """Compute `Concat`; every input is first converted to the quantization of the output."""
    inputs_and_infos = zip(inputs, info.inputs, strict=True)
    return np.concatenate([_requantized(x, input_info, info.output) for x, input_info in inputs_and_infos], op.axis)


def _requantized(x: Array, source: TensorInfo | None, target: TensorInfo) -> Array:
    source_quantization, target_quantization = source.quantization if source else None, target.quantization
    if source_quantization is None or target_quantization is None or source_quantization == target_quantization:
        return x
    return _rescaled(x, source_quantization, target_quantization, target)


def _rescaled(
    x: Array, source_quantization: Quantization, target_quantization: Quantization, target: TensorInfo
) -> Array:
    """Convert quantized values to the quantization and the type of `target`, and clamp them to this type.

    This is ``round(x * scale + bias)`` in float32, as in TFLite's reference.
    """
    old_scale, old_zero_point = along_axis(source_quantization, x.ndim)
    new_scale, new_zero_point = along_axis(target_quantization, x.ndim)
    scale = old_scale.astype(np.float32) * (np.float32(1) / new_scale.astype(np.float32))
    bias = -old_zero_point.astype(np.float32) * scale
    quantized = round_half_away(x.astype(np.float32) * scale + bias) + new_zero_point
    return np.clip(quantized, *limits(target.dtype)).astype(np.int64).astype(target.dtype.numpy)


@kernel(Splitter)
def splitter(op: Splitter, x: Array) -> tuple[Array, ...]:
    """Compute `Splitter`; the pieces are views between the cumulative sums of the sizes."""
    return tuple(np.split(x, np.cumsum(op.sizes[:-1]), op.axis)) if op.sizes else ()


@kernel(Stack)
def stack(op: Stack, inputs: tuple[Array, ...], *, info: KernelInfo) -> Array:
    """Compute `Stack`; every input is first converted to the quantization of the output."""
    inputs_and_infos = zip(inputs, info.inputs, strict=True)
    return np.stack([_requantized(x, input_info, info.output) for x, input_info in inputs_and_infos], op.axis)


@kernel(Slice)
def slice_box(op: Slice, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Slice`; the inferred output shape gives the sizes."""
    return x[tuple(slice(begin, begin + size) for begin, size in zip(op.begin, info.output.shape, strict=True))]


@kernel(StridedSlice)
def strided_slice(op: StridedSlice, x: Array) -> Array:
    """Compute `StridedSlice` by Python slices, which clamp their bounds as TFLite does."""
    return x[op.index(x.ndim)]


@kernel(Pad)
def pad(op: Pad, x: Array, *, info: KernelInfo) -> Array:
    """Compute `Pad`: for constant padding, copy the input into a filled tensor, for other modes gather its elements."""
    if op.padding_mode is PaddingMode.CONSTANT:
        padded = np.array(np.broadcast_to(encoded(op.pad_value, info.output), tuple(info.output.shape)))
        interior = tuple(
            slice(pad_before, pad_before + size) for (pad_before, _), size in zip(op.pad_list, x.shape, strict=True)
        )
        padded[interior] = x
        return padded
    mode = _NUMPY_MODES[op.padding_mode]
    for axis, padding in enumerate(op.pad_list):
        if any(padding):
            x = x.take(np.pad(np.arange(x.shape[axis]), padding, mode=mode), axis)  # type: ignore[call-overload]
    return x


@kernel(Tile)
def tile(op: Tile, x: Array) -> Array:
    """Compute `Tile` by NumPy."""
    return np.tile(x, op.multiples)


@kernel(ReverseV2)
def reverse(op: ReverseV2, x: Array) -> Array:
    """Compute `ReverseV2` as a view with negative strides."""
    return np.flip(x, op.axis)
