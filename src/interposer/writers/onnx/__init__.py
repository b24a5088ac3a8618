"""The ONNX writer: `write` converts a network, a graph or a part of a graph to a model; `save` writes it to a file.

Layer writers are functions in family files (convolution, elementwise ...), one for each operator of Interposer. A
function takes a `Draft`, adds nodes to it, and returns the tensors that are the layer's results::

    @writer(Hardmax)
    def hardmax(draft: Draft, op: Hardmax) -> Tensor:
        return draft.node("Hardmax", draft.operand(0), axis=op.axis)

The draft handles types: if an ONNX operator does not accept a type, operands are cast to a wider one. Layers that ONNX
cannot express are refused with a reason; `reasons` returns the reasons for a layer without writing a model.
"""

from interposer.writers.onnx.file import save
from interposer.writers.onnx.model import newest_opset, reasons, write

__all__ = ["newest_opset", "reasons", "save", "write"]
