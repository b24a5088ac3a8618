"""TFLite converters for operators that select elements by index."""

from __future__ import annotations

from interposer.core.types import DataType
from interposer.frontends.tflite.blockwise import is_blockwise
from interposer.frontends.tflite.hybrid import signed
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.gather import Gather, GatherNd
from interposer.ops.quantization import Cast, Dequantize

__all__: list[str] = []


@operator("GATHER", options=True)
def gather(node: Node) -> Value:
    """Convert GATHER; axis and batch axes are options."""
    op = Gather(node.options["axis"], node.options["batch_dims"])
    return node.result(op, node.value(0), _indices(node))


def _indices(node: Node) -> Value:
    """Return the indices (input 1) as int32 or int64; TFLite also takes int16."""
    indices = node.value(1)
    return node.step(Cast(DataType.INT32), indices) if indices.known.dtype is DataType.INT16 else indices


@operator("GATHER_ND")
def gather_nd(node: Node) -> Value:
    """Convert GATHER_ND; each row of the indices is the position of a slice."""
    return node.result(GatherNd(), node.value(0), _indices(node))


@operator("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Value:
    """Convert EMBEDDING_LOOKUP: rows of a table, which may be quantized even if the result is float."""
    table = node.value(1)
    if table.known.is_quantized and node.output_info.dtype.is_float:
        table = node.step(Dequantize(node.output_info.dtype), signed(node, table))
    if is_blockwise(table) and table.known.dtype is not node.output_info.dtype:
        return node.result(Cast(node.output_info.dtype), node.step(Gather(), table, node.value(0)))
    return node.result(Gather(), table, node.value(0))
