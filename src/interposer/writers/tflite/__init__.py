"""The TFLite writer: `write` turns a network, a graph or a part of one into the bytes of a file, `save` into a file.

Operators are functions in family files (convolution, elementwise ...), one for each operator of ours, which are the
inverse of the front end's. A function gets a `Draft`, adds operators to it, and gives the layer's results::

    @writer(MatrixDiag, moves=True)
    def matrix_diagonal(draft: Draft, op: MatrixDiag) -> Tensor:
        return draft.final("MATRIX_DIAG", draft.operand(0))

Where an operator of TFLite does not take a type, a wider one is used inside. Images are written with their channels
last; transposes that this takes are moved to where they meet and cancel out. What TFLite cannot express is refused with
a reason; `reasons` tells it of a layer without writing anything.
"""

from interposer.writers.tflite.file import save
from interposer.writers.tflite.model import Traced, reasons, traced, write

__all__ = ["Traced", "reasons", "save", "traced", "write"]
