"""Segmentation of images of 256 x 256 with U-Net and DeepLab V3, and the denoising U-Net of a diffusion model."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import onnx

from .graph import Graph
from .mobile import inverted
from .residual import DESIGNS, features
from .transformer import attention

__all__ = ["deeplab", "deeplab_mobilenet", "unet", "unet_diffusion"]

SIZE: Final = 256
CLASSES: Final = 21
DILATED: Final = replace(DESIGNS["resnet50"], depths=(2, 2, 3, 2), strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4))
"""The backbone of DeepLab: the image is reduced to an eighth, and the later stages are dilated."""


def unet(batch: int = 1) -> onnx.ModelProto:
    """Return a U-Net of five levels, 32 to 512 channels, with two classes."""
    g = Graph("unet", batch)
    x = g.image(SIZE)
    levels: list[str] = []
    for channels in (32, 64, 128, 256):
        levels.append(_twice(g, x, channels))
        x = g.max_pool(levels[-1], 2, 2, pad=0)
    x = _twice(g, x, 512)
    for level in reversed(levels):
        x = _twice(g, g.concat(_up(g, x), level), g.channels[level])
    return g.finish(g.conv(x, 2, act=None))


def _twice(g: Graph, x: str, channels: int) -> str:
    return g.conv(g.conv(x, channels, 3), channels, 3)


def _up(g: Graph, x: str) -> str:
    """Halve the channels and double the height and width; every result element depends on one input pixel."""
    depth = g.channels[x]
    weights = g.weights((depth, depth // 2, 2, 2), depth)
    y = g.node("ConvTranspose", x, weights, g.bias(depth // 2), kernel_shape=[2, 2], strides=[2, 2])
    g.channels[y] = depth // 2
    return y


def deeplab(batch: int = 1) -> onnx.ModelProto:
    g = Graph("deeplab", batch)
    return _deeplab(g, features(g, g.image(SIZE), DILATED)[-1], SIZE // 8, (12, 24, 36))


def deeplab_mobilenet(batch: int = 1) -> onnx.ModelProto:
    """Return DeepLab on MobileNet V2, whose last stages are dilated depthwise convolutions."""
    g = Graph("deeplab_mobilenet", batch)
    return _deeplab(g, inverted(g, g.image(SIZE), largest=16)[-1], SIZE // 16, (6, 12, 18))


def _deeplab(g: Graph, x: str, size: int, rates: tuple[int, ...]) -> onnx.ModelProto:
    """Add spatial pyramid pooling with dilated convolutions, and enlarge the classes to the size of the image."""
    branches = [g.conv(x, 256), *(g.conv(x, 256, 3, dilation=rate) for rate in rates)]
    pooled = g.conv(g.node("GlobalAveragePool", x), 256)
    branches.append(_enlarged(g, pooled, size))
    x = g.conv(g.conv(g.concat(*branches), 256), 256, 3)
    return g.finish(_enlarged(g, g.conv(x, CLASSES, act=None), SIZE))


def _enlarged(g: Graph, x: str, size: int) -> str:
    sizes = g.constant([g.batch, g.channels[x], size, size], int)
    return str(g.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel"))


def unet_diffusion(batch: int = 1) -> onnx.ModelProto:
    """Return a network of group normalizations, SiLU and attention over 16 x 16 pixels; a latent image of 32 x 32."""
    g = Graph("unet_diffusion", batch)
    x, time = g.image(32, 4), g.input("time", (320,))
    time = g.act(g.gemm(time, 512), "Swish")
    x = g.conv(x, 128, 3, act=None)
    first = _denoised(g, x, time, 128, 32)
    x = g.conv(first, 128, 3, 2, act=None)
    second = _seen(g, _denoised(g, x, time, 256, 16), 16)
    x = _denoised(g, g.conv(second, 256, 3, 2, act=None), time, 256, 8)
    x = _seen(g, _denoised(g, g.concat(g.upsample(x), second), time, 256, 16), 16)
    x = _denoised(g, g.concat(g.upsample(x), first), time, 128, 32)
    return g.finish(g.conv(g.act(g.group_norm(x, 32, 32, 32), "Swish"), 4, 3, act=None))


def _denoised(g: Graph, x: str, time: str, channels: int, size: int) -> str:
    y = g.conv(g.act(g.group_norm(x, 32, size, size), "Swish"), channels, 3, act=None)
    time_offset = g.reshape(g.gemm(time, channels), g.batch, channels, 1, 1)
    y = g.add(y, time_offset)
    y = g.conv(g.act(g.group_norm(y, 32, size, size), "Swish"), channels, 3, act=None)
    return g.add(x if g.channels[x] == channels else g.conv(x, channels, act=None), y)


def _seen(g: Graph, x: str, size: int) -> str:
    """Add attention of every pixel to all pixels."""
    channels = g.channels[x]
    y = g.node("Reshape", g.group_norm(x, 32, size, size), g.constant([g.batch, channels, size * size], int))
    y = g.transpose(y, 0, 2, 1)
    g.channels[y] = channels
    y = g.transpose(attention(g, y, (g.batch, size * size), channels // 64), 0, 2, 1)
    y = g.node("Reshape", y, g.constant([g.batch, channels, size, size], int))
    g.channels[y] = channels
    return g.add(x, y)
