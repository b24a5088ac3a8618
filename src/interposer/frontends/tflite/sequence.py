"""TFLite converters for operators along sequences of steps."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.sequence import CumSum, ReverseSequence

__all__: list[str] = []


@operator("CUMSUM", options=True)
def running_sum(node: Node) -> Value:
    """Convert CUMSUM; the axis is an input."""
    op = CumSum(node.integer_of(1, "the axis"), node.options["exclusive"], node.options["reverse"])
    return node.result(op, node.value(0))


@operator("REVERSE_SEQUENCE", options=True)
def reverse_sequence(node: Node) -> Value:
    """Convert REVERSE_SEQUENCE; time and batch axes are options."""
    op = ReverseSequence(node.options["seq_dim"], node.options["batch_dim"])
    return node.result(op, node.value(0), node.value(1))
