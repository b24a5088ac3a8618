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

_MOVES: Final = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth",
        "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""The operators that move or choose elements of their first operand, whose results have its quantization."""

_ANNOTATED: Final = frozenset({"SCALE_TENSOR", "ZERO_POINT_TENSOR"})


def claimed_quantizations(
    nodes: Iterable[Message], arrays: Mapping[str, Array], values: Iterable[str]
) -> dict[str, Quantization]:
    """Return the quantization of `values` by name, as implied by the operands for scale and zero point in `nodes`.

    A value is only in the result if all nodes that use it as a quantized tensor agree on one per-tensor scale and zero
    point, and these are constants (in `arrays`, by name). Nodes that move its elements before are passed over. The
    `nodes` are in topological order. The result also has values that consist of moved elements of `values`.
    """
    claims_of_name: dict[str, set[Quantization | None]] = {}
    for node in reversed(_readers(nodes, set(values))):
        for name, quantization in _claims(node, arrays):
            claims_of_name.setdefault(name, set()).add(quantization)
        if node.op_type in _MOVES:
            moved_claims = set().union(*(claims_of_name.get(output, ()) for output in node.output))
            claims_of_name.setdefault(node.input[0], set()).update(moved_claims)
    agreed_quantizations = {
        name: next(iter(claims_of_value))
        for name, claims_of_value in claims_of_name.items()
        if len(claims_of_value) == 1
    }
    return {name: quantization for name, quantization in agreed_quantizations.items() if quantization is not None}


def _readers(nodes: Iterable[Message], values: set[str]) -> list[Message]:
    """Return the nodes that read one of these values, or elements of one that were moved."""
    readers = []
    for node in nodes:
        inputs = node.input
        if not values.isdisjoint(inputs):
            readers.append(node)
            if node.op_type in _MOVES and inputs[0] in values:
                values.update(filter(None, node.output))
    return readers


def _claims(node: Message, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Quantization | None]]:
    positions = range(2, len(node.input), 3) if node.op_type == "QLinearConcat" else ()
    for position in _QUANTIZED.get(node.op_type, positions):
        names = [node.input[i] if i < len(node.input) else "" for i in range(position, position + 3)]
        yield names[0], _claim(arrays.get(names[1]), arrays.get(names[2]), has_zero_point=bool(names[2]))


def _claim(scale: Array | None, zero_point: Array | None, *, has_zero_point: bool) -> Quantization | None:
    """Return the quantization that a node states; None if it is not per-tensor, not constant or invalid.

    Scale and zero point are None if they are not constant; without `has_zero_point`, the node has none, and it is 0.
    Invalid numbers are reported later by the node's converter.
    """
    if scale is None or scale.size != 1 or (has_zero_point and zero_point is None):
        return None
    scale_number = float(scale.reshape(-1)[0])
    if not 0 < scale_number < float("inf") or (zero_point is not None and zero_point.size != 1):
        return None
    return Quantization(scale_number, 0 if zero_point is None else int(zero_point.reshape(-1)[0]))


def annotated_quantizations(graph: Message, arrays: Mapping[str, Array]) -> dict[str, Quantization]:
    """Return the quantization of tensors by name, from the graph's `quantization_annotation`.

    `arrays` has the initializers that the annotations refer to, by name. Several scales are per-channel scales along
    one axis. Annotations that are not understood are ignored.
    """
    quantizations = {}
    for annotation in graph.quantization_annotation:
        arrays_by_key = {entry.key: arrays.get(entry.value) for entry in annotation.quant_parameter_tensor_names}
        scale, zero_point = (arrays_by_key.get(key) for key in ("SCALE_TENSOR", "ZERO_POINT_TENSOR"))
        quantization = None if scale is None or arrays_by_key.keys() - _ANNOTATED else _annotation(scale, zero_point)
        if quantization is not None:
            quantizations[str(annotation.tensor_name)] = quantization
    return quantizations


def _annotation(scale: Array, zero_point: Array | None) -> Quantization | None:
    """Return the quantization that an annotation states; None if its scale and zero point are invalid.

    Invalid annotations are ignored, since annotations do not affect results.
    """
    long_axes = [axis for axis, size in enumerate(scale.shape) if size != 1]
    if len(long_axes) > 1 or (
        zero_point is not None and (zero_point.size != scale.size or zero_point.dtype.kind == "f")
    ):
        return None
    try:
        scales = scale.astype(np.float64).reshape(-1).tolist()
        zero_points = 0 if zero_point is None else zero_point.astype(np.int64).reshape(-1).tolist()
        return Quantization(scales, zero_points, long_axes[0] if long_axes else None)
    except (InvalidArgumentError, TypeError, ValueError):
        return None
