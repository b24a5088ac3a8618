"""ONNX converters for signal processing."""

from __future__ import annotations

from typing import Final

from interposer.frontends.axes import checked_axis
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.frontends.onnx.tensors import data_type
from interposer.ir.graph import Value
from interposer.ops.reshape import Reshape
from interposer.ops.spectral import Dft, MelWeightMatrix, SignalWindow, Stft, WindowFunction

__all__: list[str] = []

_WINDOWS: Final = {
    "HannWindow": WindowFunction.HANN,
    "HammingWindow": WindowFunction.HAMMING,
    "BlackmanWindow": WindowFunction.BLACKMAN,
}


@operator("DFT", since=17)
def dft_along_attribute(node: Node) -> Value:
    """Convert DFT with the axis as an attribute."""
    return _dft(node, node.integer("axis", 1))


@operator("DFT", since=20)
def dft(node: Node) -> Value:
    """Convert DFT with the axis as an operand."""
    axis = int(node.number_of(2, "axis")) if node.has(2) else -2
    if node.info(0).is_ranked:
        checked_axis(axis, node.info(0).rank)
    return _dft(node, axis)


def _dft(node: Node, axis: int) -> Value:
    length = int(node.number_of(1, "dft_length")) if node.has(1) else None
    return node.result(Dft(axis, length, node.flag("inverse"), node.flag("onesided")), node.value(0))


@operator("STFT", since=17)
def stft(node: Node) -> Value:
    """Convert STFT; the default frame length is that of the window, or else of the signal."""
    window = node.optional(2)
    if node.has(3):
        length = int(node.number_of(3, "frame_length"))
    else:
        shape = node.info(0).shape[1:] if window is None else window.known.shape
        length = node.known(shape[0], "frame's length")
    op = Stft(int(node.number_of(1, "frame_step")), length, node.flag("onesided", True))
    signal = node.value(0)
    if signal.known.rank == 2:  # ONNX Runtime also takes real signals without an axis for the parts of a number
        signal = node.step(Reshape((0, 0, 1), copy_zeros=True), signal)
    return node.result(op, signal, window)


def _window(function: WindowFunction) -> Converter:
    def convert(node: Node) -> Value:
        op = SignalWindow(function, node.flag("periodic", True), data_type(node.integer("output_datatype", 1)))
        return node.result(op, node.value(0))

    return convert


for _name, _function in _WINDOWS.items():
    operator(_name, since=17)(_window(_function))


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Value:
    """Convert MelWeightMatrix; all parameters are operands."""
    op = MelWeightMatrix(data_type(node.integer("output_datatype", 1)))
    return node.result(op, *(node.value(i) for i in range(5)))
