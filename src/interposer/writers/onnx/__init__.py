"""The ONNX writer: `write` turns a network, a graph or a part of one into a model, `save` into a file.

Operators are functions in family files (convolution, elementwise ...), one for each operator of ours. A function gets
a `Draft`, adds nodes to it, and gives the tensors that are the layer's results::

    @writer(Hardmax)
    def hardmax(draft: Draft, op: Hardmax) -> Tensor:
        return draft.node("Hardmax", draft.operand(0), axis=op.axis)

Types are looked after by the draft: where an operator of ONNX does not take a type, a wider one is used inside. What
ONNX cannot express is refused with a reason; `reasons` tells it of a layer without writing anything.
"""

from interposer.writers.onnx.file import save
from interposer.writers.onnx.model import newest_opset, reasons, write

__all__ = ["newest_opset", "reasons", "save", "write"]
