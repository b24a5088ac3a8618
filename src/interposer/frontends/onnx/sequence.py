"""ONNX converters for operators along sequences of steps."""

from __future__ import annotations

from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, operator
from interposer.ir.graph import Value
from interposer.ops.sequence import CumProd, CumSum, ReverseSequence

__all__: list[str] = []


def _accumulation(op_class: type[CumSum | CumProd]) -> Converter:
    """Return the converter of CumSum or CumProd, which adds an `op_class` layer; the axis is a constant operand."""

    def convert(node: Node) -> Value:
        op = op_class(int(node.number_of(1, "axis")), node.flag("exclusive"), node.flag("reverse"))
        return node.result(op, node.value(0))

    return convert


operator("CumSum", since=11)(_accumulation(CumSum))
operator("CumProd", since=26)(_accumulation(CumProd))


@operator("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """Convert ReverseSequence; by default the time axis is the first one."""
    op = ReverseSequence(node.integer("time_axis", 0), node.integer("batch_axis", 1))
    return node.result(op, node.value(0), node.value(1))
