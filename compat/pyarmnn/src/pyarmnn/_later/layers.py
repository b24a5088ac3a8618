"""Methods of `INetwork` for layers that later releases added."""

from __future__ import annotations

from typing import Final

from pyarmnn._later import descriptors
from pyarmnn._later.descriptors import (
    BatchMatMulDescriptor,
    ChannelShuffleDescriptor,
    Convolution3dDescriptor,
    ElementwiseBinaryDescriptor,
    LogicalBinaryDescriptor,
    Pooling3dDescriptor,
    QLstmDescriptor,
    ReduceDescriptor,
    ScatterNdDescriptor,
    TileDescriptor,
    TransposeDescriptor,
    UnidirectionalSequenceLstmDescriptor,
)
from pyarmnn._network.adding import Adding
from pyarmnn._network.kinds import LayerKind, reference, sized, usual
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._parameters import LstmInputParams

__all__ = ["LATER_KINDS", "LaterLayers"]


def _recurrent(descriptor: type) -> LayerKind:
    return LayerKind((reference(descriptor), reference(LstmInputParams)), ("params",), lambda _: (3, 3))


LATER_KINDS: Final[dict[str, LayerKind]] = {
    "BatchMatMul": usual(descriptors.BatchMatMulDescriptor, 2, 1),
    "Cast": usual(None, 1, 1),
    "ChannelShuffle": usual(descriptors.ChannelShuffleDescriptor, 1, 1),
    "Convolution3d": sized(descriptors.Convolution3dDescriptor, lambda each: (3 if each.m_BiasEnabled else 2, 1)),
    "ElementwiseBinary": usual(descriptors.ElementwiseBinaryDescriptor, 2, 1),
    "GatherNd": usual(None, 2, 1),
    "LogicalBinary": usual(descriptors.LogicalBinaryDescriptor, 2, 1),
    "Pooling3d": usual(descriptors.Pooling3dDescriptor, 1, 1),
    "QLstm": _recurrent(descriptors.QLstmDescriptor),
    "Reduce": usual(descriptors.ReduceDescriptor, 1, 1),
    "ReverseV2": usual(None, 2, 1),
    "ScatterNd": usual(descriptors.ScatterNdDescriptor, 3, 1),
    "Shape": usual(None, 1, 1),
    "Tile": usual(descriptors.TileDescriptor, 1, 1),
    "Transpose": usual(descriptors.TransposeDescriptor, 1, 1),
    "UnidirectionalSequenceLstm": _recurrent(descriptors.UnidirectionalSequenceLstmDescriptor),
}
"""The kinds of layers that later releases added."""


class LaterLayers(Adding):
    """Methods of `INetwork` for layers that later releases added."""

    def AddBatchMatMulLayer(self, descriptor: BatchMatMulDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that multiplies the matrices of two tensors. Release 22.11."""
        return self._add("BatchMatMul", descriptor, name=name, kinds=LATER_KINDS)

    def AddCastLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that converts elements to the data type of its output. Release 21.05."""
        return self._add("Cast", name=name, kinds=LATER_KINDS)

    def AddChannelShuffleLayer(
        self, descriptor: ChannelShuffleDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that interleaves groups of channels. Release 21.11."""
        return self._add("ChannelShuffle", descriptor, name=name, kinds=LATER_KINDS)

    def AddConvolution3dLayer(self, descriptor: Convolution3dDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a convolution of volumes. Release 21.11.

        Inputs are the volume, the weights and, if enabled, the biases.
        """
        return self._add("Convolution3d", descriptor, name=name, kinds=LATER_KINDS)

    def AddElementwiseBinaryLayer(
        self, elementwiseBinaryDescriptor: ElementwiseBinaryDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that computes a function of two elements; shapes are broadcast. Release 23.05."""
        return self._add("ElementwiseBinary", elementwiseBinaryDescriptor, name=name, kinds=LATER_KINDS)

    def AddGatherNdLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that reads slices at the indices of its second input. Release 22.05."""
        return self._add("GatherNd", name=name, kinds=LATER_KINDS)

    def AddLogicalBinaryLayer(self, descriptor: LogicalBinaryDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that computes a logical function of two Boolean elements. Release 20.11."""
        return self._add("LogicalBinary", descriptor, name=name, kinds=LATER_KINDS)

    def AddPooling3dLayer(self, pooling3dDescriptor: Pooling3dDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that reduces windows of volumes. Release 22.02."""
        return self._add("Pooling3d", pooling3dDescriptor, name=name, kinds=LATER_KINDS)

    def AddQLstmLayer(
        self, descriptor: QLstmDescriptor, params: LstmInputParams, name: str | None = None
    ) -> IConnectableLayer:
        """Add a step of a quantized LSTM network; inputs are the data, the output state and the cell state."""
        return self._add("QLstm", descriptor, params, name=name, kinds=LATER_KINDS)

    def AddReduceLayer(self, reduceDescriptor: ReduceDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that reduces axes to one element. Release 21.02."""
        return self._add("Reduce", reduceDescriptor, name=name, kinds=LATER_KINDS)

    def AddReverseV2Layer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that reverses the axes that its second input lists, a constant. Release 23.08."""
        return self._add("ReverseV2", name=name, kinds=LATER_KINDS)

    def AddScatterNdLayer(self, descriptor: ScatterNdDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that changes elements at indices. Release 24.05.

        Inputs are the data or their shape, the indices, and the updates.
        """
        return self._add("ScatterNd", descriptor, name=name, kinds=LATER_KINDS)

    def AddShapeLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the sizes of the dimensions of its input. Release 21.08."""
        return self._add("Shape", name=name, kinds=LATER_KINDS)

    def AddTileLayer(self, tileDescriptor: TileDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that repeats its input along each dimension. Release 23.08."""
        return self._add("Tile", tileDescriptor, name=name, kinds=LATER_KINDS)

    def AddTransposeLayer(self, transposeDescriptor: TransposeDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that changes the order of the dimensions."""
        return self._add("Transpose", transposeDescriptor, name=name, kinds=LATER_KINDS)

    def AddUnidirectionalSequenceLstmLayer(
        self, descriptor: UnidirectionalSequenceLstmDescriptor, params: LstmInputParams, name: str | None = None
    ) -> IConnectableLayer:
        """Add an LSTM network over a sequence. Release 21.08.

        Inputs are the sequence, the output state and the cell state. Outputs are both states and the sequence.
        """
        return self._add("UnidirectionalSequenceLstm", descriptor, params, name=name, kinds=LATER_KINDS)
