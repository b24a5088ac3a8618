"""Layers at the border of a graph, and layers that copy, mark or pass on data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import ANYTHING, Array, Quantization, TensorInfo

__all__ = ["Constant", "Debug", "Input", "MemCopy", "MemImport", "Merge", "Output", "PreCompiled", "StandIn", "Switch"]


@op(executable=False)
class Input(Op):
    """An input of the network; its shape and type are declared where the layer is added.

    With ``state``, it is no input that the caller gives: it reads the state of this name, which the runtime keeps from
    one run to the next.

    Shapes:
        output: as declared

    Source:
        Arm NN InputLayer.
    """

    output = result()

    binding_id: int = attribute(default=0, doc="Number by which the caller identifies this input.")
    state: str = attribute(default="", doc="Name of the state that it reads; empty for an input of the caller.")
    initial: Array | None = attribute(
        default=None, doc="Value of the state before the first run; None is zero, or the zero point if it is quantized."
    )


@op(executable=False)
class Output(Op):
    """An output of the network, which returns a tensor to the caller.

    With ``state``, the tensor is not returned: it becomes the value of the state of this name at the end of a run.

    Shapes:
        input: any

    Source:
        Arm NN OutputLayer.
    """

    input = operand(dtypes=ANYTHING)

    binding_id: int = attribute(default=0, doc="Number by which the caller identifies this output.")
    state: str = attribute(default="", doc="Name of the state that it sets; empty for an output to the caller.")


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
    quantization: Quantization | None = attribute(
        default=None, doc="Scale and zero point, if the integers are quantized values."
    )

    @classmethod
    def of(cls, array: Array, quantization: Quantization | None = None) -> Constant:
        """Return the constant with this array and quantization, faster than the constructor.

        The constructor converts other values to arrays. An array that it would have to convert is passed to it.
        """
        if type(array) is not np.ndarray or array.dtype.kind not in "biuf" or not array.dtype.isnative:
            return cls(array, quantization)
        view = array.view()
        view.flags.writeable = False
        constant = object.__new__(cls)
        constant.__dict__.update(value=view, quantization=quantization)
        return constant

    def infer(self) -> TensorInfo:
        return self.info

    @cached_property
    def info(self) -> TensorInfo:
        """The info of the output, with the value."""
        return TensorInfo.of(self.value, self.quantization)


@op(executable=False, traits=Trait.MOVES)
class MemCopy(Op):
    """Copy a tensor from the memory of one backend to that of another; inserted by the optimizer.

    Shapes:
        input, output: any, the same

    Source:
        Arm NN MemCopyLayer.
    """

    input = operand(dtypes=ANYTHING)
    output = result(like="input")


@op(executable=False, traits=Trait.MOVES)
class MemImport(Op):
    """Give a backend access to the memory of another backend without a copy; inserted by the optimizer.

    Shapes:
        input, output: any, the same

    Source:
        Arm NN MemImportLayer.
    """

    input = operand(dtypes=ANYTHING)
    output = result(like="input")


@op(executable=False, pure=False, traits=Trait.MOVES)
class Debug(Op):
    """Pass a tensor through and report it to the registered callback, or as a line of JSON on standard output.

    Shapes:
        input, output: any, the same

    Source:
        Arm NN DebugLayer.
    """

    input = operand(dtypes=ANYTHING)
    output = result(like="input")

    watched: str = attribute(default="", doc="Name of the layer whose output is reported.")
    slot: int = attribute(default=0, ge=0, doc="Index of the reported output of that layer.")


@op(traits=Trait.MOVES)
class Merge(Op):
    """Pass on the input that is available; if both are, they must have the same shape, and the first one is used.

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


@op(traits=Trait.MOVES)
class Switch(Op):
    """Pass the data to both outputs; the condition is meant to select one of them, but both are computed.

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
    condition = operand(role=Role.CONDITION)
    output_false = result(like="data")
    output_true = result(like="data")


@op(executable=False)
class StandIn(Op):
    """Placeholder for an operator of a model file that a front end does not know.

    A network with such a layer can be inspected, but not executed.

    Shapes:
        inputs, outputs: any; outputs as declared where the layer is added

    Source:
        Arm NN StandInLayer.
    """

    inputs = operand(dtypes=ANYTHING, variadic=True, optional=True)
    outputs = result(variadic=True)

    num_outputs: int = attribute(default=1, ge=0, doc="Number of output tensors of the operator.")
    description: str = attribute(default="", doc="Description of the unknown operator.")

    def num_results(self) -> int:
        return self.num_outputs


@op(executable=False)
class PreCompiled(Op):
    """A subgraph that a backend has compiled, as one layer that holds the backend's opaque object.

    The optimizer replaces the subgraph with this layer.

    Shapes:
        inputs, outputs: those of the subgraph that it replaces

    Source:
        Arm NN PreCompiledLayer.
    """

    inputs = operand(dtypes=ANYTHING, variadic=True, optional=True)
    outputs = result(variadic=True, dynamic=True)

    num_outputs: int = attribute(default=1, ge=0, doc="Number of output tensors of the subgraph.")
    object: Any = attribute(default=None, doc="The backend's compiled object; it is never serialized.")

    def num_results(self) -> int:
        return self.num_outputs
