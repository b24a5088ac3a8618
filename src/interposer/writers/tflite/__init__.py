"""The TFLite writer: `write` converts a network, a graph or a part of a graph to bytes; `save` writes them to a file.

Layer writers are functions in family files (convolution, elementwise ...), one for each operator of Interposer: the
inverse of the front end's converters. A function takes a `Draft`, adds operators to it, and returns the layer's
results::

    @writer(MatrixDiag, moves=True)
    def matrix_diagonal(draft: Draft, op: MatrixDiag) -> Tensor:
        return draft.final("MATRIX_DIAG", draft.operand(0))

If a TFLite operator does not accept a type, operands are cast to a wider one. Images are written with their channels
last; the transposes that this requires are moved until they cancel out. Layers that TFLite cannot express are refused
with a reason; `reasons` returns the reasons for a layer without writing a file.
"""

from interposer.writers.tflite.model import Traced, reasons, save, traced, write

__all__ = ["Traced", "reasons", "save", "traced", "write"]
