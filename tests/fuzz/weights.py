"""Where the weights stand in a model file: what is left is structure, in which every byte matters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

LEAST = 64
"""Shorter constants (shapes, axes, pads) count as structure."""


def weights_of(path: Path) -> list[tuple[int, int]]:
    """The ranges of bytes in which a file has its weights, in order."""
    data = path.read_bytes()
    constants = (_onnx if path.suffix == ".onnx" else _tflite)(data)
    starts = ((data.find(constant), len(constant)) for constant in constants if len(constant) >= LEAST)
    return sorted({(start, start + size) for start, size in starts if start >= 0})


def _onnx(data: bytes) -> Iterator[bytes]:
    import onnx

    model = onnx.ModelProto.FromString(data)
    yield from (tensor.raw_data for tensor in model.graph.initializer)


def _tflite(data: bytes) -> Iterator[bytes]:
    import tflite

    model = tflite.Model.GetRootAs(data, 0)
    for index in range(model.BuffersLength()):
        buffer = model.Buffers(index)
        if buffer.DataLength():
            yield buffer.DataAsNumpy().tobytes()
