"""The Arm NN writer: `write` converts a network, a graph or a part of a graph to bytes; `save` writes them to a file.

Layer writers are functions in family files, one for each operator of Interposer: the inverse of the front end's
converters. A function takes a `Draft`, adds layers of Arm NN to it, and returns the layer's results::

    @writer(Softmax)
    def softmax(draft: Draft, op: Softmax) -> Tensor:
        return draft.final("Softmax", draft.operand(0), descriptor={"beta": op.beta})

Layers that Arm NN cannot express are refused with a reason; `reasons` returns the reasons for a layer without writing a
file.
"""

from interposer.writers.armnn.model import Written, reasons, save, write, written
from interposer.writers.armnn.releases import RELEASES

__all__ = ["RELEASES", "Written", "reasons", "save", "write", "written"]
