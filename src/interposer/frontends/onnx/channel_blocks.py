"""The number of channels of a block in graphs with ONNX Runtime's operators on images whose channels are in blocks."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from interposer.core.types import Array
from interposer.frontends.onnx.operator_names import NCHWC
from interposer.frontends.onnx.proto import Message

__all__ = ["block_size"]


def block_size(nodes: Sequence[Message], arrays: Mapping[str, Array]) -> int:
    """Return the number of channels of a block, 8 or 16, for the nodes of a graph; `arrays` are its initializers.

    The file does not state it. The sizes of weights rule out one of the numbers, or else it is the number that ONNX
    Runtime uses on this processor, as such files are only valid on the kind of processor that they were written on.
    """
    weights = [arrays.get(node.input[1]) for node in nodes if _is_convolution(node)]
    shapes = [array.shape for array in weights if array is not None and array.ndim == 4]
    if any(shape[0] % 16 or (shape[1] > 16 and shape[1] % 16) for shape in shapes):
        return 8
    if any(8 < shape[1] < 16 for shape in shapes) or _has_wide_padding(nodes, arrays):
        return 16
    return _block_size_of_processor()


def _is_convolution(node: Message) -> bool:
    return bool(node.domain == NCHWC and node.op_type == "Conv" and len(node.input) > 1)


def _has_wide_padding(nodes: Sequence[Message], arrays: Mapping[str, Array]) -> bool:
    """Return True if the channels of a convolution were padded by 8 or more, which only blocks of 16 require."""
    weights_by_output = {
        node.output[0]: arrays.get(node.input[1]) for node in nodes if _is_convolution(node) and node.output
    }
    for node in nodes:
        if node.domain == NCHWC and node.op_type == "ReorderOutput" and node.input:
            weights = weights_by_output.get(node.input[0])
            channels = next((int(attribute.i) for attribute in node.attribute if attribute.name == "channels"), 0)
            if weights is not None and weights.ndim == 4 and channels and weights.shape[0] - channels >= 8:
                return True
    return False


def _block_size_of_processor() -> int:
    if platform.machine().lower() in ("aarch64", "arm64"):
        return 16
    try:
        return 16 if "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") else 8
    except OSError:
        return 8
