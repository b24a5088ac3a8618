"""ONNX writers for signal processing."""

from __future__ import annotations

from typing import Any, Final

from interposer.ops.axes import normal_axis
from interposer.ops.spectral import Dft, MelWeightMatrix, SignalWindow, Stft, WindowFunction
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor

__all__: list[str] = []

_WINDOWS: Final = {
    WindowFunction.HANN: "HannWindow",
    WindowFunction.HAMMING: "HammingWindow",
    WindowFunction.BLACKMAN: "BlackmanWindow",
}


@writer(Dft)
def dft(draft: Draft, op: Dft) -> Tensor:
    """Write Dft as DFT; the axis is an operand since opset 20."""
    length = None if op.length is None else draft.ints(op.length, "length")
    flags: dict[str, Any] = {"inverse": 1 if op.inverse else None, "onesided": 1 if op.onesided else None}
    axis, x = normal_axis(op.axis, draft.rank), draft.operand(0)
    if op.inverse and op.onesided and draft.info(0).shape[-1] == 1:
        pads = [0] * (2 * draft.rank - 1)
        x = draft.node("Pad", x, draft.ints([*pads, 1], "pads"))
    if draft.opset < 20:
        return draft.node("DFT", x, length, axis=axis, **flags)
    return draft.node("DFT", x, length, draft.ints(axis, "axis"), **flags)


@writer(Stft)
def stft(draft: Draft, op: Stft) -> Tensor:
    """Write Stft as STFT; step and length are operands."""
    signal, window = draft.operand(0), draft.optional(1)
    step, length = draft.ints(op.frame_step, "frame_step"), draft.ints(op.frame_length, "frame_length")
    shaped = window and draft.cast(window, signal.dtype)
    return draft.node("STFT", signal, step, shaped, length, onesided=int(op.onesided))


@writer(SignalWindow)
def signal_window(draft: Draft, op: SignalWindow) -> Tensor:
    """Write SignalWindow; the size is a scalar."""
    size = draft.reshape(draft.operand(0), [])
    attributes: dict[str, Any] = {"output_datatype": op.dtype, "periodic": int(op.periodic)}
    return draft.node(_WINDOWS[op.function], size, giving=op.dtype, **attributes)


@writer(MelWeightMatrix)
def mel_weight_matrix(draft: Draft, op: MelWeightMatrix) -> Tensor:
    """Write MelWeightMatrix; all operands are scalars."""
    scalars = [draft.reshape(tensor, []) for tensor in draft.tensors()]
    return draft.node("MelWeightMatrix", *scalars, giving=op.dtype, output_datatype=op.dtype)
