"""Layers that move, choose, count or create elements."""

from __future__ import annotations

from pyarmnn._descriptors import (
    ArgMinMaxDescriptor,
    BatchToSpaceNdDescriptor,
    DepthToSpaceDescriptor,
    FillDescriptor,
    GatherDescriptor,
    MeanDescriptor,
    PadDescriptor,
    PermuteDescriptor,
    ReshapeDescriptor,
    SliceDescriptor,
    SpaceToBatchNdDescriptor,
    SpaceToDepthDescriptor,
    StackDescriptor,
    StridedSliceDescriptor,
)
from pyarmnn._network.adding import Adding
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._tensors import ConstTensor
from pyarmnn._views import ConcatDescriptor, SplitterDescriptor

__all__ = ["MovingLayers"]


class MovingLayers(Adding, module=None, destructor=False):
    """Methods of `INetwork` for layers that move, choose, count or create elements."""

    def AddArgMinMaxLayer(self, desc: ArgMinMaxDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the index of the smallest or largest element along an axis."""
        return self._add("ArgMinMax", desc, name=name)

    def AddBatchToSpaceNdLayer(
        self, batchToSpaceNdDescriptor: BatchToSpaceNdDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that moves the batch to blocks of height and width."""
        return self._add("BatchToSpaceNd", batchToSpaceNdDescriptor, name=name)

    def AddConcatLayer(self, concatDescriptor: ConcatDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that concatenates as many inputs as the descriptor has views."""
        return self._add("Concat", concatDescriptor, name=name)

    def AddConstantLayer(self, input: ConstTensor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns a constant tensor."""
        return self._add("Constant", input, name=name)

    def AddDepthToSpaceLayer(
        self, depthToSpaceDescriptor: DepthToSpaceDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that moves channels to blocks of height and width."""
        return self._add("DepthToSpace", depthToSpaceDescriptor, name=name)

    def AddFillLayer(self, fillDescriptor: FillDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns a tensor of one value; its input is the shape."""
        return self._add("Fill", fillDescriptor, name=name)

    def AddGatherLayer(self, descriptor: GatherDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that chooses slices of its first input by the indices in its second."""
        return self._add("Gather", descriptor, name=name)

    def AddMeanLayer(self, meanDescriptor: MeanDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the mean over axes."""
        return self._add("Mean", meanDescriptor, name=name)

    def AddPadLayer(self, padDescriptor: PadDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that adds elements before and after each dimension."""
        return self._add("Pad", padDescriptor, name=name)

    def AddPermuteLayer(self, permuteDescriptor: PermuteDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that changes the order of dimensions."""
        return self._add("Permute", permuteDescriptor, name=name)

    def AddRankLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the number of dimensions as a scalar."""
        return self._add("Rank", name=name)

    def AddReshapeLayer(self, reshapeDescriptor: ReshapeDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that changes the shape."""
        return self._add("Reshape", reshapeDescriptor, name=name)

    def AddSliceLayer(self, sliceDescriptor: SliceDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns a part of a tensor."""
        return self._add("Slice", sliceDescriptor, name=name)

    def AddSpaceToBatchNdLayer(
        self, spaceToBatchNdDescriptor: SpaceToBatchNdDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that moves blocks of height and width to the batch."""
        return self._add("SpaceToBatchNd", spaceToBatchNdDescriptor, name=name)

    def AddSpaceToDepthLayer(
        self, spaceToDepthDescriptor: SpaceToDepthDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that moves blocks of height and width to the channels."""
        return self._add("SpaceToDepth", spaceToDepthDescriptor, name=name)

    def AddSplitterLayer(self, splitterDescriptor: SplitterDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer with an output for each part of a tensor that the descriptor has."""
        return self._add("Splitter", splitterDescriptor, name=name)

    def AddStackLayer(self, descriptor: StackDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that puts as many inputs as the descriptor says along a new axis."""
        return self._add("Stack", descriptor, name=name)

    def AddStridedSliceLayer(
        self, stridedSliceDescriptor: StridedSliceDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that returns a part of a tensor in steps."""
        return self._add("StridedSlice", stridedSliceDescriptor, name=name)
