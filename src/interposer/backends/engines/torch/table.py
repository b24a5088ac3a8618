"""The table of torch functions by operator, which the family files fill."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from interposer.backends.engines.engine import RefusedError
from interposer.ir.graph import Layer
from interposer.schema import Op
from interposer.types import DataType

__all__ = ["ANY", "FLOATS", "NUMBERS", "Function", "makes", "refusals", "torch_function"]

Function: TypeAlias = Callable[..., Any]
"""From tensors, None where an optional one is absent, to a tensor or a tuple of them."""
Maker: TypeAlias = Callable[[Any, Layer], Function]
M = TypeVar("M", bound=Maker)

FLOATS: Final = frozenset(DataType.of(name) for name in ("float32", "float64", "float16", "bfloat16"))
NUMBERS: Final = FLOATS | {DataType.of(name) for name in ("int8", "uint8", "int16", "int32", "int64")}
ANY: Final = NUMBERS | {DataType.BOOL}


class _Entry(NamedTuple):
    make: Maker
    types: Collection[DataType]
    moves: bool


_TABLE: Final[dict[str, _Entry]] = {}


def makes(*ops: type[Op], types: Collection[DataType] = FLOATS, moves: bool = False) -> Callable[[M], M]:
    """Let a function make the torch functions of operators from operator and layer; it may raise `RefusedError`.

    `types` are those of the first operand. What only `moves` elements may hold quantized ones, of one quantization.
    """

    def add(make: M) -> M:
        _TABLE.update({op.op_name(): _Entry(make, types, moves) for op in ops})
        return make

    return add


def refusals(layer: Layer) -> list[str]:
    """Why there is no torch function for a layer; empty where there is one."""
    entry = _TABLE.get(layer.kind)
    if entry is None:
        return [f"there is no torch function for {layer.kind}"]
    first = layer.input_infos[0] if layer.inputs else None
    if first is not None and first.dtype not in entry.types:
        return [f"{layer.values[0].name!r} is {first.dtype}; takes {', '.join(sorted(map(str, entry.types)))}"]
    quantizations = {value.known.quantization for value in (*layer.values, *layer.outputs)}
    if any(quantizations) and not (entry.moves and _is_moved(layer)):
        return ["torch computes no quantized tensors; it only moves them"]
    return []


def _is_moved(layer: Layer) -> bool:
    """Whether what goes in and out stands for the same real numbers, with one scale; indices have none."""
    held = [
        value.known for value in (*layer.values, *layer.outputs) if value.known.dtype is layer.output_infos[0].dtype
    ]
    return len({info.quantization for info in held}) == 1 and not any(
        info.quantization and info.quantization.per_axis for info in held
    )


def torch_function(layer: Layer) -> Function:
    """The function for a layer; `RefusedError` where there is none."""
    found = refusals(layer)
    if found:
        raise RefusedError("; ".join(found))
    return _TABLE[layer.kind].make(layer.op, layer)
