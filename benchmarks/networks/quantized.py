"""Networks of 8-bit integers, which ONNX Runtime's tools write from those of float32.

`qdq` has QuantizeLinear and DequantizeLinear around every layer: uint8 activations, int8 weights with a scale for each
output channel, and scales that a few seeded inputs give. `dynamic` computes the scales of the activations in each run.
Both need the package onnxruntime.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

__all__ = ["IDS", "STYLES", "dynamic", "qdq"]

IDS: Final = 4096
"""Ids of rows in tables are smaller than this."""

SAMPLES: Final = 2
"""Inputs from which the scales of activations are computed."""


def qdq(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network with layers between DequantizeLinear and QuantizeLinear."""
    from onnxruntime import quantization  # noqa: PLC0415 - it needs a package

    kinds = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}

    def write(source: Path, target: Path) -> None:
        form = quantization.QuantFormat.QDQ
        quantization.quantize_static(source, target, _reader(model), form, per_channel=True, **kinds)

    return _written(model, write)


def dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network with DynamicQuantizeLinear, MatMulInteger and ConvInteger."""
    from onnxruntime import quantization  # noqa: PLC0415 - it needs a package

    def write(source: Path, target: Path) -> None:
        quantization.quantize_dynamic(source, target, weight_type=quantization.QuantType.QInt8)

    return _written(model, write)


STYLES: Final[dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]]] = {"qdq": qdq, "dynamic": dynamic}


def _written(model: onnx.ModelProto, write: Callable[[Path, Path], None]) -> onnx.ModelProto:
    """Return the model that a tool of ONNX Runtime writes for a model.

    The tools read and write files, and log advice.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "quantized.onnx")
        onnx.save(model, source)
        logging.disable(logging.WARNING)
        try:
            write(source, target)
        finally:
            logging.disable(logging.NOTSET)
        return onnx.load(target)


def _reader(model: onnx.ModelProto) -> Any:
    from onnxruntime import quantization  # noqa: PLC0415 - it needs a package

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Seeded inputs, one after the other."""

        def __init__(self) -> None:
            self.samples = _samples(model)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.samples, None)

    return Reader()


def _samples(model: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(0)
    for _ in range(SAMPLES):
        yield {
            graph_input.name: _random(generator, graph_input.name, graph_input.type.tensor_type)
            for graph_input in model.graph.input
        }


def _random(generator: np.random.Generator, name: str, kind: Any) -> Any:
    """Return random inputs: normally distributed floats, ids, and ones for other integers, so that no mask hides."""
    shape = [dim.dim_value for dim in kind.shape.dim]
    if name.startswith("ids"):
        return generator.integers(0, IDS, shape)
    if kind.elem_type == TensorProto.FLOAT:
        return generator.standard_normal(shape, np.float32)
    return np.ones(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
