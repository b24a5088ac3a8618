"""Layers that compute each element by itself, or from two elements of the same place."""

from __future__ import annotations

from pyarmnn._descriptors import ActivationDescriptor, ComparisonDescriptor, ElementwiseUnaryDescriptor
from pyarmnn._network.adding import Adding
from pyarmnn._network.slots import IConnectableLayer

__all__ = ["ElementwiseLayers"]


class ElementwiseLayers(Adding, module=None, destructor=False):
    """Methods of `INetwork` for layers that compute each element by itself, or from two elements of the same place."""

    def AddActivationLayer(
        self, activationDescriptor: ActivationDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that applies an activation function to each element."""
        return self._add("Activation", activationDescriptor, name=name)

    def AddAdditionLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that adds two tensors."""
        return self._add("Addition", name=name)

    def AddComparisonLayer(
        self, comparisonDescriptor: ComparisonDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that compares two tensors; the result is Boolean."""
        return self._add("Comparison", comparisonDescriptor, name=name)

    def AddDequantizeLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that converts quantized values to float values."""
        return self._add("Dequantize", name=name)

    def AddDivisionLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that divides a tensor by another."""
        return self._add("Division", name=name)

    def AddElementwiseUnaryLayer(
        self, elementwiseUnaryDescriptor: ElementwiseUnaryDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that applies a function without parameters to each element."""
        return self._add("ElementwiseUnary", elementwiseUnaryDescriptor, name=name)

    def AddFloorLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that rounds each element down."""
        return self._add("Floor", name=name)

    def AddMaximumLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the larger of two elements."""
        return self._add("Maximum", name=name)

    def AddMinimumLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the smaller of two elements."""
        return self._add("Minimum", name=name)

    def AddMultiplicationLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that multiplies two tensors."""
        return self._add("Multiplication", name=name)

    def AddPreluLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that multiplies negative elements by a slope, its second input."""
        return self._add("Prelu", name=name)

    def AddQuantizeLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that converts elements to the quantized type of its output."""
        return self._add("Quantize", name=name)

    def AddSubtractionLayer(self, name: str | None = None) -> IConnectableLayer:
        """Add a layer that subtracts a tensor from another."""
        return self._add("Subtraction", name=name)
