"""What the nodes say of the integers that a caller gives: an input that is taken with one scale is quantized so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from interposer.frontends.onnx.proto import Message
from interposer.types import Array, Quantization

__all__ = ["claimed_quantizations"]

# Which operands are quantized; the scale comes behind each, and the zero point behind that.
_QUANTIZED: Final = {"DequantizeLinear": (0,), "QLinearConv": (0, 3), "QLinearMatMul": (0, 3)}


def claimed_quantizations(nodes: Iterable[Message], arrays: Mapping[str, Array]) -> dict[str, Quantization]:
    """The quantization of every value of which all nodes that name scales name the same ones, constant and single."""
    claims: dict[str, set[Quantization | None]] = {}
    for node in nodes:
        for name, claim in _claims(node, arrays):
            claims.setdefault(name, set()).add(claim)
    agreed = {name: next(iter(found)) for name, found in claims.items() if len(found) == 1}
    return {name: claim for name, claim in agreed.items() if claim is not None}


def _claims(node: Message, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Quantization | None]]:
    for place in _QUANTIZED.get(node.op_type, ()):
        names = [node.input[i] if i < len(node.input) else "" for i in range(place, place + 3)]
        yield names[0], _claim(arrays.get(names[1]), arrays.get(names[2]), has_zero_point=bool(names[2]))


def _claim(scale: Array | None, zero_point: Array | None, *, has_zero_point: bool) -> Quantization | None:
    """None where a number is not a constant, or cannot be meant, which whoever reads the node will say."""
    if scale is None or scale.size != 1 or (has_zero_point and zero_point is None):
        return None
    factor = float(scale.reshape(-1)[0])
    if not 0 < factor < float("inf") or (zero_point is not None and zero_point.size != 1):
        return None
    return Quantization(factor, 0 if zero_point is None else int(zero_point.reshape(-1)[0]))
