"""Layers that compute from windows of images, from channels or from all elements."""

from __future__ import annotations

from pyarmnn._descriptors import (
    BatchNormalizationDescriptor,
    Convolution2dDescriptor,
    DepthwiseConvolution2dDescriptor,
    DetectionPostProcessDescriptor,
    FullyConnectedDescriptor,
    InstanceNormalizationDescriptor,
    L2NormalizationDescriptor,
    NormalizationDescriptor,
    Pooling2dDescriptor,
    ResizeDescriptor,
    SoftmaxDescriptor,
    TransposeConvolution2dDescriptor,
)
from pyarmnn._network.adding import Adding
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._tensors import ConstTensor

__all__ = ["WindowedLayers"]


class WindowedLayers(Adding, module=None, destructor=False):
    """Methods of `INetwork` for layers that compute from windows of images, from channels or from all elements."""

    def AddBatchNormalizationLayer(
        self,
        desc: BatchNormalizationDescriptor,
        mean: ConstTensor,
        variance: ConstTensor,
        beta: ConstTensor,
        gamma: ConstTensor,
        name: str | None = None,
    ) -> IConnectableLayer:
        """Add a layer that normalizes channels with a constant mean and variance."""
        return self._add("BatchNormalization", desc, mean, variance, beta, gamma, name=name)

    def AddConvolution2dLayer(
        self,
        convolution2dDescriptor: Convolution2dDescriptor,
        weights: ConstTensor | str | None = None,
        biases: ConstTensor | None = None,
        name: str | None = None,
    ) -> IConnectableLayer:
        """Add a convolution; weights are (O, H, W, I) in the layout NHWC, and (O, I, H, W) in NCHW.

        With the name in place of weights, as in release 23.08, weights and biases are inputs of the layer.
        """
        return self._add_weighted("Convolution2d", convolution2dDescriptor, weights, biases, name)

    def AddDepthwiseConvolution2dLayer(
        self,
        convolution2dDescriptor: DepthwiseConvolution2dDescriptor,
        weights: ConstTensor | str | None = None,
        biases: ConstTensor | None = None,
        name: str | None = None,
    ) -> IConnectableLayer:
        """Add a depthwise convolution; weights are (M, I, H, W) with the channel multiplier M in both layouts.

        With the name in place of weights, as in release 23.08, weights (1, H, W, I * M) and biases are inputs.
        """
        return self._add_weighted("DepthwiseConvolution2d", convolution2dDescriptor, weights, biases, name)

    def AddDetectionPostProcessLayer(
        self, descriptor: DetectionPostProcessDescriptor, anchors: ConstTensor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that chooses boxes: results are boxes, classes, scores and their number."""
        return self._add("DetectionPostProcess", descriptor, anchors, name=name)

    def AddFullyConnectedLayer(
        self,
        fullyConnectedDescriptor: FullyConnectedDescriptor,
        weights: ConstTensor | str | None = None,
        biases: ConstTensor | None = None,
        name: str | None = None,
    ) -> IConnectableLayer:
        """Add a product with a matrix of weights, (I, O), or (O, I) if `m_TransposeWeightMatrix` is set.

        With the name in place of weights, as in release 23.08, weights and biases are inputs of the layer.
        """
        return self._add_weighted("FullyConnected", fullyConnectedDescriptor, weights, biases, name)

    def AddInstanceNormalizationLayer(
        self, desc: InstanceNormalizationDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a layer that normalizes each channel of each image."""
        return self._add("InstanceNormalization", desc, name=name)

    def AddL2NormalizationLayer(self, desc: L2NormalizationDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that divides by the Euclidean norm over the channels."""
        return self._add("L2Normalization", desc, name=name)

    def AddLogSoftmaxLayer(self, logSoftmaxDescriptor: SoftmaxDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns the logarithms of probabilities."""
        return self._add("LogSoftmax", logSoftmaxDescriptor, name=name)

    def AddNormalizationLayer(
        self, normalizationDescriptor: NormalizationDescriptor, name: str | None = None
    ) -> IConnectableLayer:
        """Add a local response normalization."""
        return self._add("Normalization", normalizationDescriptor, name=name)

    def AddPooling2dLayer(self, pooling2dDescriptor: Pooling2dDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that reduces each window of an image to one element."""
        return self._add("Pooling2d", pooling2dDescriptor, name=name)

    def AddResizeLayer(self, resizeDescriptor: ResizeDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that changes the height and width of images."""
        return self._add("Resize", resizeDescriptor, name=name)

    def AddSoftmaxLayer(self, softmaxDescriptor: SoftmaxDescriptor, name: str | None = None) -> IConnectableLayer:
        """Add a layer that returns probabilities."""
        return self._add("Softmax", softmaxDescriptor, name=name)

    def AddTransposeConvolution2dLayer(
        self,
        descriptor: TransposeConvolution2dDescriptor,
        weights: ConstTensor,
        biases: ConstTensor | None = None,
        name: str | None = None,
    ) -> IConnectableLayer:
        """Add a transposed convolution; weights are laid out as those of a convolution."""
        return self._add("TransposeConvolution2d", descriptor, weights, biases, name=name)
