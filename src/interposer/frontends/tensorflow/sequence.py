"""TensorFlow converters for operators along sequences of steps."""

from __future__ import annotations

from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value
from interposer.ops.sequence import CumProd, CumSum, ReverseSequence

__all__: list[str] = []


@operator("Cumsum", "Cumprod")
def accumulation(node: Node) -> Value:
    """Convert running sums and products; the axis is an operand."""
    kind = CumSum if node.kind == "Cumsum" else CumProd
    op = kind(node.integer_of(1, "axis"), node.flag("exclusive", False), node.flag("reverse", False))
    return node.result(op, node.value(0))


@operator("ReverseSequence")
def reverse_sequence(node: Node) -> Value:
    """Convert ReverseSequence; the lengths are an operand."""
    op = ReverseSequence(node.integer("seq_dim"), node.integer("batch_dim", 0))
    return node.result(op, node.value(0), node.value(1))
