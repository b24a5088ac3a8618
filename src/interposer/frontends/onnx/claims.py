"""Quantization parameters of a model's inputs, derived from the nodes that take them and from annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, Quantization
from interposer.frontends.onnx.proto import Message

__all__ = ["annotated_quantizations", "claimed_quantizations"]

# The positions of quantized operands; each is followed by its scale, and the scale by the zero point.
_QUANTIZED: Final = {
    "DequantizeLinear": (0,),
    "QGemm": (0, 3),
    "QLinearAdd": (0, 3),
    "QLinearAveragePool": (0,),
    "QLinearConv": (0, 3),
    "QLinearGlobalAveragePool": (0,),
    "QLinearLeakyRelu": (0,),
    "QLinearMatMul": (0, 3),
    "QLinearMul": (0, 3),
    "QLinearReduceMean": (0,),
    "QLinearSigmoid": (0,),
    "QLinearSoftmax": (0,),
}

_ANNOTATED: Final = frozenset({"SCALE_TENSOR", "ZERO_POINT_TENSOR"})


def claimed_quantizations(nodes: Iterable[Message], arrays: Mapping[str, Array]) -> dict[str, Quantization]:
    """Return the quantization of values by name, as implied by the operands for scale and zero point in `nodes`.

    A value is only in the result if all nodes that use it as a quantized tensor agree on one per-tensor scale and zero
    point, and these are constants (in `arrays`, by name).
    """
    claims: dict[str, set[Quantization | None]] = {}
    for node in nodes:
        for name, claim in _claims(node, arrays):
            claims.setdefault(name, set()).add(claim)
    agreed = {name: next(iter(candidates)) for name, candidates in claims.items() if len(candidates) == 1}
    return {name: claim for name, claim in agreed.items() if claim is not None}


def _claims(node: Message, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Quantization | None]]:
    several = range(2, len(node.input), 3) if node.op_type == "QLinearConcat" else ()
    for place in _QUANTIZED.get(node.op_type, several):
        names = [node.input[i] if i < len(node.input) else "" for i in range(place, place + 3)]
        yield names[0], _claim(arrays.get(names[1]), arrays.get(names[2]), has_zero_point=bool(names[2]))


def _claim(scale: Array | None, zero_point: Array | None, *, has_zero_point: bool) -> Quantization | None:
    """Return the quantization that a node states; None if it is not per-tensor, not constant or invalid.

    Scale and zero point are None if they are not constant; without `has_zero_point`, the node has none, and it is 0.
    Invalid numbers are reported later by the node's converter.
    """
    if scale is None or scale.size != 1 or (has_zero_point and zero_point is None):
        return None
    factor = float(scale.reshape(-1)[0])
    if not 0 < factor < float("inf") or (zero_point is not None and zero_point.size != 1):
        return None
    return Quantization(factor, 0 if zero_point is None else int(zero_point.reshape(-1)[0]))


def annotated_quantizations(graph: Message, arrays: Mapping[str, Array]) -> dict[str, Quantization]:
    """Return the quantization of tensors by name, from the graph's `quantization_annotation`.

    `arrays` has the initializers that the annotations refer to, by name. Several scales are per-channel scales along
    one axis. Annotations that are not understood are ignored.
    """
    quantizations = {}
    for note in graph.quantization_annotation:
        named = {entry.key: arrays.get(entry.value) for entry in note.quant_parameter_tensor_names}
        scale, point = (named.get(key) for key in ("SCALE_TENSOR", "ZERO_POINT_TENSOR"))
        quantization = None if scale is None or named.keys() - _ANNOTATED else _annotation(scale, point)
        if quantization is not None:
            quantizations[str(note.tensor_name)] = quantization
    return quantizations


def _annotation(scale: Array, point: Array | None) -> Quantization | None:
    """Return the quantization that an annotation states; None if its scale and zero point are invalid.

    Invalid annotations are ignored, since annotations do not affect results.
    """
    long = [axis for axis, size in enumerate(scale.shape) if size != 1]
    if len(long) > 1 or (point is not None and (point.size != scale.size or point.dtype.kind == "f")):
        return None
    try:
        scales = scale.astype(np.float64).reshape(-1).tolist()
        points = 0 if point is None else point.astype(np.int64).reshape(-1).tolist()
        return Quantization(scales, points, long[0] if long else None)
    except (InvalidArgumentError, TypeError, ValueError):
        return None
