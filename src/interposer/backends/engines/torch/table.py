"""The table of torch functions by operator, which the family files fill.

Layers with quantized tensors are computed with float values: see `interposer.backends.engines.torch.reals`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from interposer.backend import Op
from interposer.backends.engines.engine import RefusedError
from interposer.backends.engines.torch.package import torch
from interposer.core.types import DataType
from interposer.ir.graph import Layer, Value

__all__ = [
    "ANY",
    "FLOATS",
    "NUMBERS",
    "Function",
    "computes_in_floats",
    "in_float32",
    "kind_of",
    "makes",
    "only_moves",
    "refusals",
    "torch_function",
]

Function: TypeAlias = Callable[..., Any]
"""A function of tensors (None for an absent optional one) that returns a tensor or a tuple of tensors.

It is called once, while a subgraph is traced. Constants are tensors, and all other arguments are tracing proxies
without a shape or values. Shapes must be read from the layer."""
Maker: TypeAlias = Callable[[Any, Layer], Function]
M = TypeVar("M", bound=Maker)

FLOATS: Final = frozenset(DataType.of(name) for name in ("float32", "float64", "float16", "bfloat16"))
NUMBERS: Final = FLOATS | {DataType.of(name) for name in ("int8", "uint8", "int16", "int32", "int64")}
ANY: Final = NUMBERS | {DataType.BOOL}
QUANTIZED: Final = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16})
"""The quantized types whose values float32 represents exactly."""


class _Entry(NamedTuple):
    make: Maker
    types: Collection[DataType]
    moves: bool


_TABLE: Final[dict[str, _Entry]] = {}


def makes(*ops: type[Op], types: Collection[DataType] = FLOATS, moves: bool = False) -> Callable[[M], M]:
    """Register the decorated function for these operators.

    It takes the operator and a layer, and returns a torch function on the layer's tensors. It raises `RefusedError` for
    a layer that torch cannot compute. `types` are the accepted types of the first operand; a quantized operand counts
    as float32. An operator that only `moves` elements takes stored integers unchanged if all tensors have the same
    quantization.
    """

    def add(make: M) -> M:
        _TABLE.update({op.op_name(): _Entry(make, types, moves) for op in ops})
        return make

    return add


def refusals(layer: Layer) -> list[str]:
    """Return why there is no torch function for a layer; empty if there is one."""
    entry = _TABLE.get(layer.kind)
    if entry is None:
        return [f"there is no torch function for {layer.kind}"]
    first = layer.values[0] if layer.values else None
    in_floats = computes_in_floats(layer)
    kind = None if first is None else first.known.dtype if entry.moves and not in_floats else kind_of(first)
    if first is not None and kind not in entry.types:
        return [f"{first.name!r} is {kind}; takes {', '.join(sorted(map(str, entry.types)))}"]
    if in_floats and entry.moves and not layer.output_infos[0].is_quantized:
        return ["quantized inputs are moved to an output that is not quantized"]
    return list(_wide_quantized(layer)) if in_floats else []


def _wide_quantized(layer: Layer) -> Iterator[str]:
    """Yield a reason for each tensor whose quantized type has more values than float32 can represent.

    Only the first two operands and the outputs are checked, as a bias may be int32.
    """
    for value in (*layer.values[:2], *layer.outputs):
        if value.known.is_quantized and value.known.dtype not in QUANTIZED:
            yield f"{value.name!r} is quantized {value.known.dtype}; takes {', '.join(sorted(map(str, QUANTIZED)))}"


def computes_in_floats(layer: Layer) -> bool:
    """Return True if a layer has quantized tensors, and does more than move their elements."""
    infos = [value.known for value in (*layer.values, *layer.outputs)]
    return any(info.is_quantized for info in infos) and not only_moves(layer)


def only_moves(layer: Layer) -> bool:
    """Return True if a layer moves elements, and its inputs and outputs have the same float values."""
    entry = _TABLE.get(layer.kind)
    return entry is not None and entry.moves and _is_moved(layer)


def _is_moved(layer: Layer) -> bool:
    """Return True if elements can be moved as stored integers: all tensors of the output's type share one quantization.

    It must be per-tensor, not per-axis.
    """
    infos = [
        value.known for value in (*layer.values, *layer.outputs) if value.known.dtype is layer.output_infos[0].dtype
    ]
    return len({info.quantization for info in infos}) == 1 and not any(
        info.quantization and info.quantization.per_axis for info in infos
    )


def kind_of(value: Value) -> DataType:
    """Return the type in which a tensor is computed: float32 for a quantized tensor."""
    return DataType.FLOAT32 if value.known.is_quantized else value.known.dtype


def in_float32(function: Function, kind: DataType) -> Function:
    """Return a function of tensors of `kind` that computes float16 and bfloat16 in float32, and rounds the result.

    It is used where intermediate results, such as squares and sums, may overflow although the result does not.
    """
    if kind not in _HALVES:
        return function
    half = getattr(torch, str(kind))
    return lambda *tensors: function(*(None if x is None else x.float() for x in tensors)).to(half)


_HALVES: Final = frozenset({DataType.FLOAT16, DataType.BFLOAT16})


def torch_function(layer: Layer) -> Function:
    """Return the function for a layer; raise `RefusedError` if there is none."""
    reasons = refusals(layer)
    if reasons:
        raise RefusedError("; ".join(reasons))
    return _TABLE[layer.kind].make(layer.op, layer)
