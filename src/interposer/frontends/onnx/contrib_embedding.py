"""ONNX converters for ONNX Runtime's embeddings of tokens, positions and segments with a layer normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.elementwise import EQUAL
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Multiplication, Subtraction
from interposer.ops.embedding import EmbeddingLookup
from interposer.ops.normalization import LayerNormalization
from interposer.ops.quantization import Cast
from interposer.ops.reduction import Reduce, ReduceOperation

__all__: list[str] = []


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(node: Node) -> Sequence[Value]:
    """Convert EmbedLayerNormalization: the normalized sum of the rows of up to three tables.

    The operands are input_ids, segment_ids, word_embedding, position_embedding, segment_embedding, gamma, beta, mask
    and position_ids. Without segment_ids, all tokens are of segment 0. The results are the output, the number of ones
    in each row of the mask, and the sum of the rows.
    """
    if node.has(1) and not node.has(4):
        raise ParseError("it has segment_ids, but no segment_embedding")
    tables = [node.value(2), node.value(3), node.optional(4)]
    embedding_sum = _embedded(node, tables, node.optional(8))
    op = LayerNormalization(-1, node.number("epsilon", 1e-12))
    return [
        node.result(op, embedding_sum, node.value(5), node.value(6)),
        _mask_index(node, node.optional(7)),
        embedding_sum,
    ]


@operator("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(node: Node) -> Sequence[Value]:
    """Convert QEmbedLayerNormalization, whose tables, gamma and beta are quantized.

    The operands are input_ids, segment_ids, the tables of words, positions and segments, gamma, beta, mask, the five
    scales, and the five zero points.
    """
    if len({node.has(index) for index in (1, 4, 10, 15)}) == 2:
        raise ParseError("it has only some of segment_ids and the table, the scale and the zero point of segments")
    tables = [node.value(2), node.value(3), node.optional(4)]
    embedding_sum = _embedded(node, tables, None, [_dequantizer(node, number) for number in range(3)])
    gamma, beta = (_dequantizer(node, number)(node.value(number + 2)) for number in (3, 4))
    op = LayerNormalization(-1, node.number("epsilon", 1e-12))
    return [node.result(op, embedding_sum, gamma, beta), _mask_index(node, node.optional(7))]


def _dequantizer(node: Node, table_index: int) -> Callable[[Value], Value]:
    """Return a function that dequantizes elements of the operand with this number among tables and factors."""

    def dequantize(stored: Value) -> Value:
        scale, zero_point = node.value(8 + table_index), node.value(13 + table_index)
        if scale.known.num_elements != 1 or zero_point.known.num_elements != 1:
            raise ParseError(
                f"a scale has shape {scale.known.shape}, its zero point {zero_point.known.shape}; expected one number"
            )
        centered = node.step(
            Subtraction(), _as_float32(node, stored), _as_float32(node, reshaped(node, zero_point, []))
        )
        return node.step(Multiplication(), centered, reshaped(node, scale, []))

    return dequantize


def _as_float32(node: Node, x: Value) -> Value:
    return node.step(Cast(DataType.FLOAT32), x)


def _embedded(
    node: Node,
    tables: Sequence[Value | None],
    position_ids: Value | None,
    dequantizers: Sequence[Callable[[Value], Value]] = (lambda rows: rows,) * 3,
) -> Value:
    """Return the sum of the rows of the tables of words, positions and segments, (batch, steps, width).

    `dequantizers` has a function for each table, by which its rows become floats.
    """
    words, positions, segments = tables
    assert words is not None
    assert positions is not None
    token_ids = node.value(0)
    if token_ids.known.rank != 2:
        raise ParseError(f"its input_ids has shape {token_ids.known.shape}; expected (batch, steps)")
    for table in tables:
        if table is not None and (table.known.rank != 2 or differ(table.known.shape[1], words.known.shape[1])):
            raise ParseError(f"a table has shape {table.known.shape}; expected (rows, {words.known.shape[1]})")
    positions_of_tokens = position_ids or _positions(node, token_ids)
    embedding_sum = node.step(
        Addition(),
        dequantizers[0](_rows(node, words, token_ids)),
        dequantizers[1](_rows(node, positions, positions_of_tokens)),
    )
    if segments is None:
        return embedding_sum
    segment_ids = node.optional(1) or node.constant(np.zeros((1, 1), np.int32))
    return node.step(Addition(), embedding_sum, dequantizers[2](_rows(node, segments, segment_ids)))


def _positions(node: Node, ids: Value) -> Value:
    """Return the positions 0, 1, ... of the tokens, (1, steps)."""
    return node.constant(np.arange(node.known(ids.known.shape[1], "number of steps"), dtype=np.int32)[np.newaxis])


def _rows(node: Node, table: Value, ids: Value) -> Value:
    """Return the rows of a table, (batch, steps, width); an index out of range is an error at run time."""
    if ids.known.rank != 2:
        raise ParseError(f"its position_ids or segment_ids has shape {ids.known.shape}; expected (batch, steps)")
    batch, num_steps = ids.known.shape
    flat_rows = node.step(EmbeddingLookup(), reshaped(node, ids, [-1]), table)
    return reshaped(node, flat_rows, [batch, num_steps, table.known.shape[1]])


def _mask_index(node: Node, mask: Value | None) -> Value:
    """Return the number of ones in each row of the mask; zeros if there is no mask."""
    if mask is None:
        return node.constant(np.zeros(node.known(node.info(0).shape[0], "batch size"), np.int32))
    ones = node.step(EQUAL, mask, node.scalar_like(1, mask))
    return node.step(Reduce((1,), operation=ReduceOperation.SUM), node.step(Cast(DataType.INT32), ones))
