"""Layers at the border of a graph and those that only say where data comes from or goes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import ANYTHING, Array, Quantization, TensorInfo

__all__ = ["Constant", "Debug", "Input", "MemCopy", "MemImport", "Merge", "Output", "PreCompiled", "StandIn", "Switch"]


@op(executable=False)
class Input(Op):
    """Bring a tensor of the caller into the network; its info is declared where the layer is added.

    Shapes:
        output: as declared

    Source:
        Arm NN InputLayer.
    """

    output = result()

    binding_id: int = attribute(default=0, doc="The number by which the caller gives this tensor.")


@op(executable=False)
class Output(Op):
    """Give a tensor of the network to the caller.

    Shapes:
        input: any

    Source:
        Arm NN OutputLayer.
    """

    input = operand(dtypes=ANYTHING)

    binding_id: int = attribute(default=0, doc="The number by which the caller asks for this tensor.")


@op(executable=False)
class Constant(Op):
    """A tensor whose value is part of the network.

    Shapes:
        output: the shape of ``value``

    Source:
        Arm NN ConstantLayer; ONNX initializers and Constant; TFLite tensors with a buffer.
    """

    output = result()

    value: Array = attribute(doc="The data.")
    quantization: Quantization | None = attribute(default=None, doc="How stored integers stand for float values.")

    def infer(self) -> TensorInfo:
        return TensorInfo.of(self.value, self.quantization)


@op(executable=False)
class MemCopy(Op):
    """Copy a tensor from the memory of one backend to that of another; the optimizer inserts it.

    Shapes:
        input, output: any, the same

    Source:
        Arm NN MemCopyLayer.
    """

    input = operand(dtypes=ANYTHING)
    output = result(like="input")


@op(executable=False)
class MemImport(Op):
    """Let a backend use the memory of another one in place; the optimizer inserts it.

    Shapes:
        input, output: any, the same

    Source:
        Arm NN MemImportLayer.
    """

    input = operand(dtypes=ANYTHING)
    output = result(like="input")


@op(executable=False, pure=False)
class Debug(Op):
    """Pass a tensor on and show it: to the registered callback, or as a line of JSON on standard output.

    Shapes:
        input, output: any, the same

    Source:
        Arm NN DebugLayer.
    """

    input = operand(dtypes=ANYTHING)
    output = result(like="input")

    watched: str = attribute(default="", doc="Name of the layer whose output is shown.")
    slot: int = attribute(default=0, ge=0, doc="Which of that layer's outputs it is.")


@op
class Merge(Op):
    """Pass on whichever input is there; where both are, they must have the same shape and the first is taken.

    Shapes:
        a, b, output: any, the same

    Example:
        >>> compute(Merge(), [1, 2], [3, 4]).tolist()
        [1, 2]

    Source:
        Arm NN MergeLayer.
    """

    a = operand()
    b = operand(same_dtype_as="a")
    output = result(like="a")

    def check(self, a: TensorInfo, b: TensorInfo) -> Iterator[str]:
        if not a.shape.accepts(b.shape):
            yield f"a has shape {a.shape} and b {b.shape}; expected the same shape"


@op
class Switch(Op):
    """Give the data to both outputs; which of them is live is told by the condition.

    Shapes:
        data, output_false, output_true: any, the same
        condition: any

    Example:
        >>> output_false, output_true = compute(Switch(), [1, 2], True)
        >>> output_false.tolist(), output_true.tolist()
        ([1, 2], [1, 2])

    Source:
        Arm NN SwitchLayer.
    """

    data = operand()
    condition = operand()
    output_false = result(like="data")
    output_true = result(like="data")


@op(executable=False)
class StandIn(Op):
    """Hold the place of an operator that a front end does not know; it can be looked at, not run.

    Shapes:
        inputs, outputs: any; outputs as declared where the layer is added

    Source:
        Arm NN StandInLayer.
    """

    inputs = operand(dtypes=ANYTHING, variadic=True, optional=True)
    outputs = result(variadic=True)

    num_outputs: int = attribute(default=1, ge=0, doc="How many tensors the operator gives.")
    description: str = attribute(default="", doc="What it stands in for.")

    def num_results(self) -> int:
        return self.num_outputs


@op(executable=False)
class PreCompiled(Op):
    """A part of the network that a backend has compiled: an opaque object of its own, and the border of the part.

    Shapes:
        inputs, outputs: those of the part that it replaces

    Source:
        Arm NN PreCompiledLayer.
    """

    inputs = operand(dtypes=ANYTHING, variadic=True, optional=True)
    outputs = result(variadic=True, dynamic=True)

    num_outputs: int = attribute(default=1, ge=0, doc="How many tensors the part gives.")
    object: Any = attribute(default=None, doc="What the backend needs to run it; no part of any file.")

    def num_results(self) -> int:
        return self.num_outputs
