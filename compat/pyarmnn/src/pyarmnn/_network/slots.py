"""Layers of a network with their slots, and the connections between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np

from pyarmnn._arguments import UINT, instance
from pyarmnn._proxy import Abstract, borrowed
from pyarmnn._shapes import INFO, TensorInfo

__all__ = ["Constant", "IConnectableLayer", "IInputSlot", "IOutputSlot"]

_GUIDS: Final = itertools.count()


class Constant:
    """A constant tensor of a layer: its info, and an array of the info's shape that nobody changes.

    The array is copied unless its memory is read-only. That of an empty tensor is flat.
    """

    def __init__(self, info: TensorInfo, data: np.ndarray[Any, Any]) -> None:
        self.info = TensorInfo(info)
        frozen = data if _is_frozen(data) else data.copy()
        frozen.setflags(write=False)
        self.array = frozen.reshape(list(info.GetShape()) or [-1])


def _is_frozen(data: np.ndarray[Any, Any]) -> bool:
    """Return whether neither the array nor an array that it is a view of can be written to."""
    current: Any = data
    while isinstance(current, np.ndarray):
        if current.flags.writeable:
            return False
        current = current.base
    return current is None


class IInputSlot(Abstract, destructor=False):
    """An input of a layer."""

    _layer: IConnectableLayer
    _index: int
    _source: IOutputSlot | None

    @classmethod
    def _of(cls, layer: IConnectableLayer, index: int) -> Self:
        slot = borrowed(cls._create())
        slot._layer, slot._index, slot._source = layer, index, None
        return slot

    def GetConnection(self) -> IOutputSlot | None:
        """Return the output that is connected to this input, or None."""
        return self._source


INPUT_SLOT = instance(IInputSlot, "armnn::IInputSlot &")


class IOutputSlot(Abstract, destructor=False):
    """An output of a layer. It has an info, and any number of inputs that are connected to it."""

    _layer: IConnectableLayer
    _index: int
    _info: TensorInfo
    _is_set: bool
    _targets: list[IInputSlot]

    @classmethod
    def _of(cls, layer: IConnectableLayer, index: int) -> Self:
        slot = borrowed(cls._create())
        slot._layer, slot._index, slot._targets = layer, index, []
        slot._info, slot._is_set = borrowed(TensorInfo()), False
        return slot

    def Connect(self, destination: IInputSlot) -> int:
        """Connect an input to this output, and return the number of the connection.

        Raises:
            RuntimeError: the input has a connection already.
        """
        slot: IInputSlot = INPUT_SLOT(destination, "IOutputSlot_Connect", 2)
        if slot._source is not None:
            raise RuntimeError(
                "Tried to connect an output slot to an input slot, but the latter already has a connection"
            )
        slot._source = self
        self._targets.append(slot)
        return len(self._targets) - 1

    def Disconnect(self, slot: IInputSlot) -> None:
        """Remove the connection to an input; do nothing if there is none."""
        target: IInputSlot = INPUT_SLOT(slot, "IOutputSlot_Disconnect", 2)
        if target._source is self:
            target._source = None
            self._targets.remove(target)

    def GetNumConnections(self) -> int:
        """Return the number of inputs that are connected to this output."""
        return len(self._targets)

    def GetConnection(self, index: int) -> IInputSlot:
        """Return a connected input.

        Raises:
            RuntimeError: there is no connection of this number.
        """
        number: int = UINT(index, "IOutputSlot_GetConnection", 2)
        if number >= len(self._targets):
            raise RuntimeError(f"GetConnection: Invalid index {number} provided")
        return self._targets[number]

    def GetTensorInfo(self) -> TensorInfo:
        """Return the info of the tensor; a change of it changes the output."""
        return self._info

    def SetTensorInfo(self, tensorInfo: TensorInfo) -> None:
        """Set the info of the tensor to a copy of the argument."""
        self._info._assign(INFO(tensorInfo, "IOutputSlot_SetTensorInfo", 2))
        self._is_set = True

    def IsTensorInfoSet(self) -> bool:
        """Return whether `SetTensorInfo` was called."""
        return self._is_set

    def CalculateIndexOnOwner(self) -> int:
        """Return the number of this output among those of its layer."""
        return self._index

    def GetOwningLayerGuid(self) -> int:
        """Return the id of the layer."""
        return self._layer.GetGuid()

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> IInputSlot:
        number: int = UINT(index, "IOutputSlot___getitem__", 2)
        if number >= len(self._targets):
            raise ValueError(f"GetConnection: Invalid index {number} provided")
        return self._targets[number]


class IConnectableLayer(Abstract, destructor=False):
    """A layer of a network, created by a method of `INetwork`."""

    _type: str
    """The type as messages spell it, such as ``"Activation"``."""
    _name: str
    _guid: int
    _descriptor: Any
    """A copy of the descriptor, the binding id of an Input or Output, or None."""
    _constants: Mapping[str, Constant]
    """The constant tensors by their names, such as ``"weights"``."""
    _inputs: list[IInputSlot]
    _outputs: list[IOutputSlot]

    @classmethod
    def _of(
        cls,
        kind: str,
        name: str,
        slots: tuple[int, int],
        descriptor: Any = None,
        constants: Mapping[str, Constant] | None = None,
    ) -> Self:
        """Return a layer that is not connected; `slots` are the numbers of inputs and outputs."""
        connectable = borrowed(cls._create())
        connectable._type, connectable._name, connectable._guid = kind, name, next(_GUIDS)
        connectable._descriptor, connectable._constants = descriptor, constants or {}
        connectable._inputs = [IInputSlot._of(connectable, index) for index in range(slots[0])]
        connectable._outputs = [IOutputSlot._of(connectable, index) for index in range(slots[1])]
        return connectable

    def GetName(self) -> str:
        """Return the name; an empty text if the layer was added without one."""
        return self._name

    def GetGuid(self) -> int:
        """Return the id of the layer, which no other layer of the process has."""
        return self._guid

    def GetNumInputSlots(self) -> int:
        """Return the number of inputs that can be connected."""
        return len(self._inputs)

    def GetNumOutputSlots(self) -> int:
        """Return the number of outputs."""
        return len(self._outputs)

    def GetInputSlot(self, index: int) -> IInputSlot:
        """Return an input.

        Raises:
            RuntimeError: the layer has no input of this number.
        """
        number: int = UINT(index, "IConnectableLayer_GetInputSlot", 2)
        self._check(number, len(self._inputs), "input")
        return self._inputs[number]

    def GetOutputSlot(self, index: int) -> IOutputSlot:
        """Return an output.

        Raises:
            RuntimeError: the layer has no output of this number.
        """
        number: int = UINT(index, "IConnectableLayer_GetOutputSlot", 2)
        self._check(number, len(self._outputs), "output")
        return self._outputs[number]

    def _check(self, number: int, count: int, kind: str) -> None:
        if number >= count:
            raise RuntimeError(
                f'{self._type} layer "{self._name}" has no {kind} slot {number}; the number of its slots is {count}'
            )
