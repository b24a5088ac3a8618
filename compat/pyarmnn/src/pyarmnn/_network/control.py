"""Inputs and outputs of networks, recurrent layers, and layers that no backend runs."""

from __future__ import annotations

from pyarmnn._descriptors import LstmDescriptor, StandInDescriptor
from pyarmnn._network.adding import Adding
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._parameters import LstmInputParams, QuantizedLstmInputParams

__all__ = ["StructuralLayers"]


class StructuralLayers(Adding, module=None, destructor=False):
    """Methods of `INetwork` for inputs, outputs and layers without a family."""

    def AddInputLayer(self, id: int, name: str | None = None) -> IConnectableLayer:
        """Add an input of the network. Runs pass its tensor by the binding id, which no other input may have."""
        return self._add_binding("Input", id, name)

    def AddOutputLayer(self, id: int, name: str | None = None) -> IConnectableLayer:
        """Add an output of the network. Runs pass its tensor by the binding id, which no other output may have."""
        return self._add_binding("Output", id, name)

    def AddLstmLayer(
        self, descriptor: LstmDescriptor, params: LstmInputParams, name: str | None = None
    ) -> IConnectableLayer:
        """Add a step of an LSTM: results are scratch buffer, output state, cell state and output."""
        return self._add("Lstm", descriptor, params, name=name)

    def AddMergeLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that passes on one of two inputs. No backend runs it."""
        return self._add("Merge", name=name)

    def AddQuantizedLstmLayer(self, params: QuantizedLstmInputParams, name: str | None = None) -> IConnectableLayer:
        """Add a step of an LSTM of quantized values: results are cell state and output."""
        return self._add("QuantizedLstm", params, name=name)

    def AddStandInLayer(self, descriptor: StandInDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that stands for an operation that is not supported. No backend runs it."""
        return self._add("StandIn", descriptor, name=name)

    def AddSwitchLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that passes its first input to one of two outputs. No backend runs it."""
        return self._add("Switch", name=name)
