"""Quantized tensors as real numbers: what goes into a function is dequantized, and what comes out of it quantized.

The tensors of the network stay quantized; a result that lies between two steps may be rounded to the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from interposer.backends.engines.memory import shareable
from interposer.backends.engines.torch.package import torch
from interposer.backends.engines.torch.table import Function, makes
from interposer.ir.graph import Layer, Value
from interposer.ops import Dequantize, Quantize
from interposer.types import TensorInfo

__all__ = ["in_reals"]


@makes(Quantize, Dequantize)
def convert(op: Quantize | Dequantize, layer: Layer) -> Function:
    """Reading and writing do it all."""
    info = layer.output_infos[0]
    kind = torch.float32 if info.is_quantized else getattr(torch, str(info.dtype))
    return lambda x: x.to(kind)


def in_reals(function: Function, layer: Layer) -> Function:
    """A function of reals on the tensors of a layer; constants are dequantized once."""
    readers = [_as_it_is if value is None else _reader(value) for value in layer.inputs]
    readers += [_as_it_is] * (len(layer.op.operands) - len(readers))
    writers = [_writer(info) for info in layer.output_infos]

    def compute(*tensors: Any) -> Any:
        reals = [None if x is None else read(x) for x, read in zip(tensors, readers, strict=True)]
        found = function(*reals)
        several = found if isinstance(found, tuple | list) else (found,)
        return tuple(write(x) for write, x in zip(writers, several, strict=True))

    return compute


def _as_it_is(x: Any) -> Any:
    return x


def _reader(value: Value) -> Callable[[Any], Any]:
    info = value.known
    if not info.is_quantized:
        return _as_it_is
    scale, zero = _parameters(info)
    if value.is_constant and value.constant is not None:
        known = (torch.from_numpy(shareable(value.constant)).to(torch.float32) - zero) * scale
        return lambda x: known.to(x.device)
    return lambda x: (x.to(torch.float32) - zero.to(x.device)) * scale.to(x.device)


def _writer(info: TensorInfo) -> Callable[[Any], Any]:
    if not info.is_quantized:
        return _as_it_is
    scale, zero = _parameters(info)
    kind, limits = getattr(torch, str(info.dtype)), np.iinfo(info.dtype.numpy)
    low, high = int(limits.min), int(limits.max)
    return lambda x: (torch.round(x / scale.to(x.device)) + zero.to(x.device)).clamp(low, high).to(kind)


def _parameters(info: TensorInfo) -> tuple[Any, Any]:
    """Scale and zero point, shaped so that they broadcast with the tensor."""
    q = info.quantization
    assert q is not None
    shape = [len(q.scales) if axis == q.axis else 1 for axis in range(info.rank)] if q.per_axis else []
    scales, zeros = (np.asarray(given, np.float32).reshape(shape) for given in (q.scales, q.zero_points))
    return torch.from_numpy(scales), torch.from_numpy(zeros)
