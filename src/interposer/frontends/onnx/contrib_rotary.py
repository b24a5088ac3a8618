"""ONNX converters for ONNX Runtime's rotary position embeddings."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.core.types import differ
from interposer.frontends.onnx.contrib_heads import steps_from
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.ir.graph import Value
from interposer.ops.attention import RotaryEmbedding

__all__: list[str] = []


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node) -> Value:
    """Convert RotaryEmbedding, whose operands are input, position_ids, cos_cache and sin_cache.

    The attributes scale and is_packed_batching do not change the result.
    """
    x, cos = node.value(0), node.value(2)
    size = node.integer("rotary_embedding_dim", 0)
    if size and not node.integer("num_heads", 0):
        raise ParseError("it needs the attribute num_heads, as it has rotary_embedding_dim")
    op = RotaryEmbedding(
        interleaved=node.integer("interleaved", 0) == 1,
        num_heads=_heads(node, x, cos) if x.known.rank == 3 else 0,
        rotary_embedding_dim=size,
    )
    return node.add(op, x, cos, node.value(3), _positions(node, x))


def _heads(node: Node, x: Value, cos: Value) -> int:
    """Return the number of heads of an input of rank 3; without the attribute, whole heads are rotated."""
    if node.integer("num_heads", 0):
        return node.integer("num_heads")
    if cos.known.rank != 2:
        raise ParseError(f"its cos_cache has shape {cos.known.shape}; expected rank 2")
    width, half = node.known(x.known.shape[2], "width"), node.known(cos.known.shape[1], "size of a head")
    if half == 0 or width % (2 * half):
        raise ParseError(f"its input has {width} elements in a row, which heads of {2 * half} elements do not divide")
    return width // (2 * half)


def _positions(node: Node, x: Value) -> Value:
    """Return the position of each step, (batch, steps); one number is the position of the first step."""
    ids = node.value(1)
    if ids.known.rank == 2:
        return ids
    if ids.known.rank > 2 or differ(ids.known.shape.num_elements, 1):
        raise ParseError(f"its position_ids has shape {ids.known.shape}; expected one number, or (batch, steps)")
    batch, steps = x.known.shape[0], x.known.shape[-2]
    return steps_from(node, ids, node.known(batch, "batch size"), node.known(steps, "number of steps"))
