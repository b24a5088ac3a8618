"""Encoders of speech with reduced depth: Whisper-tiny, and wav2vec 2.0 (base)."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Graph
from .transformer import attention, block, mlp

__all__ = ["wav2vec", "whisper_encoder"]


def whisper_encoder(batch: int = 1) -> onnx.ModelProto:
    """Return the encoder for 10 seconds: 1000 frames of 80 features."""
    g = Graph("whisper_encoder", batch)
    x = g.conv(g.input("frames", (80, 1000)), 384, (3,), act="Gelu")
    x = g.transpose(g.conv(x, 384, (3,), 2, act="Gelu"), 0, 2, 1)
    x = g.add(x, g.weights((500, 384), 10))
    for _ in range(4):
        x = block(g, x, (batch, 500), 6)
    return g.finish(g.layer_norm(x))


def wav2vec(batch: int = 1) -> onnx.ModelProto:
    """Return the network for one second at 16 kHz: seven convolutions, three layers, and 32 letters."""
    g = Graph("wav2vec", batch)
    x = g.input("samples", (16000,))
    x = g.node("Unsqueeze", x, g.constant([1], np.int64))
    g.channels[x] = 1
    x, length = g.conv(x, 512, (10,), 5, act=None, pad=0), 3199
    x = g.act(g.group_norm(x, 512, length), "Gelu")
    for kernel in (3, 3, 3, 3, 2, 2):
        x, length = g.conv(x, 512, (kernel,), 2, act="Gelu", pad=0), (length - kernel) // 2 + 1
    x = g.linear(g.layer_norm(g.transpose(x, 0, 2, 1)), 768)
    placed = g.conv(g.transpose(x, 0, 2, 1), 768, (128,), groups=16, act=None)
    placed = g.transpose(g.act(g.slice(placed, 2, 0, length), "Gelu"), 0, 2, 1)
    x = g.layer_norm(g.add(x, placed))
    for _ in range(3):
        x = g.layer_norm(g.add(attention(g, x, (batch, length), 12), x))
        x = g.layer_norm(g.add(mlp(g, x), x))
    return g.finish(g.linear(x, 32))
