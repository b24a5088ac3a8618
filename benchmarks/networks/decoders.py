"""Decoders like GPT-2 and Llama with reduced depth: the prefill of a text, and one step with a cache.

The cache has the keys and values of earlier tokens. A prefill reads 64 tokens and returns it. A step reads one token
and a cache of 255 tokens, and returns a cache of 256. The name of a network ends in `_int4` if its weights are
integers of 4 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto

from .graph import Graph
from .transformer import attend, heads, merged

__all__ = ["DECODERS", "decoder"]

PREFILL: Final = 64
PAST: Final = 255
VOCABULARY: Final = 8192


@dataclass(frozen=True)
class Decoder:
    """A decoder: the width, the heads of queries and of keys, the width inside a layer, and the number of layers.

    Args:
        across: the length of an encoded sequence that every layer attends to; 0 if there is none.
    """

    width: int
    heads: int
    key_heads: int
    hidden: int
    layers: int
    vocabulary: int = VOCABULARY
    across: int = 0

    @property
    def head(self) -> int:
        return self.width // self.heads


DECODERS: Final = {
    "gpt": Decoder(768, 12, 12, 3072, 4),
    "llama": Decoder(896, 14, 2, 4864, 3),
    "whisper": Decoder(384, 6, 6, 1536, 4, across=500),
}
"""GPT-2, a Llama-like decoder with grouped queries of the size of Qwen2-0.5B, and the decoder of Whisper-tiny."""


def decoder(name: str, batch: int) -> onnx.ModelProto:
    """Return the network with a name such as `llama_step_int4`."""
    kind, stage, *_ = name.split("_")
    g = Graph(name, batch, blocked=name.endswith("_int4"))
    design = DECODERS[kind]
    length, past = (PREFILL, 0) if stage == "prefill" else (1, PAST)
    x = g.embedding(g.input("ids", (length,), TensorProto.INT64), design.vocabulary, design.width)
    layers = _Llama(g, design, length, past) if kind == "llama" else _Gpt(g, design, length, past)
    for _ in range(design.layers):
        x = layers.layer(x)
    logits = g.linear(layers.norm(x), design.vocabulary, bias=False)
    return g.finish(logits, *layers.cache)


class _Layers:
    """The layers of a decoder; `cache` has the keys and the values of each layer."""

    def __init__(self, g: Graph, design: Decoder, length: int, past: int) -> None:
        self.g, self.design, self.length, self.past = g, design, length, past
        self.shape = (g.batch, length)
        self.cache: list[str] = []

    def norm(self, x: str) -> str:
        raise NotImplementedError

    def cached(self, x: str, kind: str) -> str:
        """Return keys or values after those of earlier tokens."""
        g, heads, head = self.g, self.design.key_heads, self.design.head
        if self.past:
            earlier = g.input(f"past_{len(self.cache) // 2}_{kind}", (heads, self.past, head))
            x = g.node("Concat", earlier, x, axis=2)
        self.cache.append(x)
        return x

    def hidden(self) -> str | None:
        """Return a mask that hides later tokens; None if there is a single token."""
        if self.length == 1:
            return None
        later = np.triu(np.full((self.length, self.length), np.finfo(np.float32).min), 1)
        return self.g.constant(later[None, None])

    def seen(self, query: str, key: str, value: str, mask: str | None) -> str:
        """Add attention on heads, and the matrix product of its result."""
        g, width = self.g, self.design.width
        y = attend(g, query, g.transpose(key, 0, 1, 3, 2), value, self.design.head, mask)
        return merged(g, y, self.shape, width)


class _Gpt(_Layers):
    """Layer normalization, one matrix product for queries, keys and values, and GELU by the hyperbolic tangent."""

    def norm(self, x: str) -> str:
        return self.g.layer_norm(x)

    def layer(self, x: str) -> str:
        x = self.g.add(x, self._attention(self.norm(x)))
        if self.design.across:
            x = self.g.add(x, self._across(self.norm(x)))
        return self.g.add(x, self._mlp(self.norm(x)))

    def _attention(self, x: str) -> str:
        g, width = self.g, self.design.width
        sizes = g.constant([width] * 3, np.int64)
        parts = g.node("Split", g.linear(x, 3 * width), sizes, outputs=3, axis=-1)
        g.channels |= dict.fromkeys(parts, width)
        query, key, value = (heads(g, part, self.shape, self.design.heads) for part in parts)
        key, value = self.cached(key, "key"), self.cached(value, "value")
        return g.linear(self.seen(query, key, value, self.hidden()), width)

    def _across(self, x: str) -> str:
        """Add attention to an encoded sequence, whose keys and values are inputs."""
        g, design, number = self.g, self.design, len(self.cache) // 2
        shape = (design.heads, design.across, design.head)
        key, value = (g.input(f"encoded_{number}_{kind}", shape) for kind in ("key", "value"))
        query = heads(g, g.linear(x, design.width), self.shape, design.heads)
        return g.linear(self.seen(query, key, value, None), design.width)

    def _mlp(self, x: str) -> str:
        g, design = self.g, self.design
        return g.linear(g.act(g.linear(x, design.hidden), "GeluTanh"), design.width)


class _Llama(_Layers):
    """Normalization by the root of the mean square, rotary positions, grouped queries, and a gated layer of SiLU."""

    def __init__(self, g: Graph, design: Decoder, length: int, past: int) -> None:
        super().__init__(g, design, length, past)
        self.angles = self._angles(g.input("positions", (length,), TensorProto.INT64))

    def norm(self, x: str) -> str:
        return self.g.rms_norm(x)

    def layer(self, x: str) -> str:
        x = self.g.add(x, self._attention(self.norm(x)))
        return self.g.add(x, self._mlp(self.norm(x)))

    def _angles(self, positions: str) -> tuple[str, str]:
        """Return the cosines and the sines of the angles by which the features of a head are rotated."""
        g, half = self.g, self.design.head // 2
        frequencies = g.constant(1e4 ** (-np.arange(half) / half), np.float32)
        wide = g.node("Unsqueeze", g.node("Cast", positions, to=TensorProto.FLOAT), g.constant([2], np.int64))
        angles = g.node("Mul", wide, frequencies)
        angles = g.node("Unsqueeze", g.node("Concat", angles, angles, axis=-1), g.constant([1], np.int64))
        return g.node("Cos", angles), g.node("Sin", angles)

    def _rotated(self, x: str) -> str:
        g, head = self.g, self.design.head
        cosines, sines = self.angles
        swapped = g.node("Concat", g.node("Neg", g.slice(x, 3, head // 2, head)), g.slice(x, 3, 0, head // 2), axis=-1)
        return g.add(g.node("Mul", x, cosines), g.node("Mul", swapped, sines))

    def _attention(self, x: str) -> str:
        g, design = self.g, self.design
        narrow = design.key_heads * design.head
        query = self._rotated(heads(g, g.linear(x, design.width), self.shape, design.heads))
        key = self._rotated(heads(g, g.linear(x, narrow), self.shape, design.key_heads))
        value = heads(g, g.linear(x, narrow), self.shape, design.key_heads)
        key, value = (self._repeated(self.cached(x, kind)) for x, kind in ((key, "key"), (value, "value")))
        return g.linear(self.seen(query, key, value, self.hidden()), design.width, bias=False)

    def _repeated(self, x: str) -> str:
        """Repeat each head of the keys or values for all of its queries."""
        g, design = self.g, self.design
        length, times = self.past + self.length, design.heads // design.key_heads
        y = g.node("Unsqueeze", x, g.constant([2], np.int64))
        wide = [g.batch, design.key_heads, times, length, design.head]
        y = g.node("Expand", y, g.constant(wide, np.int64))
        return g.reshape(y, g.batch, design.heads, length, design.head)

    def _mlp(self, x: str) -> str:
        g, design = self.g, self.design
        gate = g.act(g.linear(x, design.hidden, bias=False), "Swish")
        y = g.node("Mul", gate, g.linear(x, design.hidden, bias=False))
        g.channels[y] = design.hidden
        return g.linear(y, design.width, gain=1 / math.sqrt(2), bias=False)
