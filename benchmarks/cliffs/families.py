"""Random networks of 5 to 20 operators or blocks, composed as published families compose them.

A network is drawn from a seed: a family (convolutions, depthwise blocks, token mixers, a text encoder, a vision
transformer, a recurrent network), then its sizes and the way in which exporters write its parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.networks.graph import Graph, squeeze_excite

__all__ = ["random_model"]

ACTIVATIONS: Final = ("Relu", "Relu6", "Swish", "Gelu", "GeluTanh", "LeakyRelu", "HardSwish", "Elu", "Sigmoid")
KERNELS: Final = (1, 3, 3, 3, 5, 7)
NORMALIZATIONS: Final = ("batch", "group", "none")


def random_model(seed: int) -> tuple[str, Any]:
    """Return the family and the ONNX model of a seed; the same seed gives the same model."""
    draw = random.Random(seed)
    family = draw.choice(sorted(FAMILIES))
    return family, FAMILIES[family](Graph(f"{family}_{seed}"), draw)


def _convolutions(g: Graph, draw: random.Random) -> Any:
    """Draw a stem of few channels, then convolutions of mixed kernel sizes, poolings and residual sums."""
    x = g.conv(g.image(draw.choice((32, 48, 64, 96))), draw.choice((8, 12, 16, 24, 32)), draw.choice((3, 5, 7)), 2)
    for _ in range(draw.randint(3, 10)):
        x = draw.choice((_plain, _residual, _pooled, _branches))(g, x, draw)
    return g.finish(g.classify(x, draw.choice((10, 100, 1000))))


def _plain(g: Graph, x: str, draw: random.Random) -> str:
    return g.conv(x, draw.choice((16, 24, 32, 48, 64)), draw.choice(KERNELS), act=draw.choice(ACTIVATIONS))


def _residual(g: Graph, x: str, draw: random.Random) -> str:
    act = draw.choice(ACTIVATIONS)
    y = g.conv(g.conv(x, g.channels[x], 3, act=act), g.channels[x], 3, act=None)
    return g.act(g.add(x, y), act)


def _pooled(g: Graph, x: str, draw: random.Random) -> str:
    y = g.max_pool(x, 3, 1) if draw.random() < 0.5 else g.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4)
    return g.conv(y, g.channels[x], 2, pad=0) if draw.random() < 0.3 else y


def _branches(g: Graph, x: str, draw: random.Random) -> str:
    each = draw.choice((8, 16, 24))
    return g.concat(*(g.conv(x, each, kernel) for kernel in draw.sample((1, 3, 5, 7), draw.randint(2, 4))))


def _mobile(g: Graph, draw: random.Random) -> Any:
    """Draw inverted bottlenecks with and without squeeze and excitation."""
    x = g.conv(g.image(draw.choice((48, 64, 96))), 16, 3, 2, act="HardSwish")
    for _ in range(draw.randint(2, 5)):
        act = draw.choice(("Relu6", "HardSwish", "Swish", "Relu"))
        y = g.conv(x, g.channels[x] * draw.choice((2, 3, 4)), act=act)
        y = g.depthwise(y, draw.choice((3, 5, 7)), act=act)
        y = squeeze_excite(g, y, max(4, g.channels[y] // 4), gate="HardSigmoid") if draw.random() < 0.5 else y
        x = g.add(x, g.conv(y, g.channels[x], act=None))
    return g.finish(g.classify(x, 100))


def _mixer(g: Graph, draw: random.Random) -> Any:
    """Draw a network that is mostly pooling, normalization and elementwise: token mixers and ConvNeXt's kin."""
    size = draw.choice((14, 16, 28))
    x = g.conv(g.image(size * 4), draw.choice((32, 48, 64, 96)), 4, 4, act=None, pad=0)
    for _ in range(draw.randint(2, 5)):
        y = g.group_norm(x, 1, size, size)
        pooled = g.node("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4)
        mixed = g.depthwise(y, 7, act=None) if draw.random() < 0.5 else g.node("Sub", pooled, y)
        g.channels[mixed] = g.channels[x]
        x = g.add(x, mixed)
        y = g.conv(g.group_norm(x, 1, size, size), 4 * g.channels[x], act=draw.choice(ACTIVATIONS))
        x = g.add(x, g.conv(y, g.channels[x], act=None))
    return g.finish(g.classify(x, 100))


def _attention(g: Graph, x: str, length: int, heads: int, draw: random.Random) -> str:
    width = g.channels[x]
    query, key, value = (
        g.transpose(g.reshape(g.linear(x, width), 1, length, heads, width // heads), 0, 2, 1, 3) for _ in range(3)
    )
    scaled = g.node("Mul", query, g.constant((width // heads) ** -0.5))
    scores = g.node("MatMul", scaled, g.transpose(key, 0, 1, 3, 2))
    if draw.random() < 0.5:  # relative positions
        scores = g.add(scores, g.weights((heads, length, length), 1))
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    return g.linear(g.reshape(g.transpose(mixed, 0, 2, 1, 3), 1, length, width), width)


def _gated(g: Graph, x: str, draw: random.Random) -> str:
    """Add an MLP, plain or gated; the halves come from two products or from one that is split."""
    width, hidden = g.channels[x], g.channels[x] * draw.choice((2, 3, 4))
    form, act = draw.choice(("plain", "two", "split")), draw.choice(("Gelu", "Swish", "GeluTanh", "Relu"))
    if form == "plain":
        return g.linear(g.act(g.linear(x, hidden), act), width)
    if form == "two":
        y = g.node("Mul", g.act(g.linear(x, hidden, bias=False), act), g.linear(x, hidden, bias=False))
    else:
        a, b = g.node("Split", g.linear(x, 2 * hidden), outputs=2, axis=-1)
        y = g.node("Mul", g.act(a, act), b)
    g.channels[y] = hidden
    return g.linear(y, width)


def _transformer(g: Graph, draw: random.Random) -> Any:
    """Draw layers of attention with odd head sizes, relative positions and gated MLPs."""
    heads, size, length = (
        draw.choice((2, 3, 4, 6)),
        draw.choice((24, 32, 40, 48, 64, 80)),
        draw.choice((16, 50, 64, 128)),
    )
    x = g.input("tokens", (length, heads * size))
    g.channels[x] = heads * size
    norm = draw.choice(("layer", "decomposed", "rms"))
    for _ in range(draw.randint(1, 3)):
        x = g.add(x, _attention(g, _normal(g, x, norm), length, heads, draw))
        x = g.add(x, _gated(g, _normal(g, x, norm), draw))
    return g.finish(_normal(g, x, norm))


def _normal(g: Graph, x: str, kind: str) -> str:
    return g.rms_norm(x) if kind == "rms" else g.layer_norm(x, decomposed=kind == "decomposed")


def _recurrent(g: Graph, draw: random.Random) -> Any:
    """Draw recurrent layers with short steps, after a convolution of one dimension or a product."""
    kind, gates = draw.choice((("LSTM", 4), ("GRU", 3)))
    length, features = draw.choice((4, 10, 25, 50)), draw.choice((16, 40, 64))
    x = g.transpose(g.input("frames", (length, features)), 1, 0, 2)
    for _ in range(draw.randint(1, 3)):
        hidden, directions = draw.choice((16, 32, 48, 64)), draw.choice((1, 2))
        weights = g.weights((directions, gates * hidden, features), features)
        again = g.weights((directions, gates * hidden, hidden), hidden)
        bias = g.constant(np.zeros((directions, 2 * gates * hidden)))
        direction = "forward" if directions == 1 else "bidirectional"
        y = g.node(kind, x, weights, again, bias, hidden_size=hidden, direction=direction)
        features = directions * hidden
        x = g.reshape(g.transpose(y, 0, 2, 1, 3), length, 1, features)
    return g.finish(g.linear(x, 12))


FAMILIES: Final[dict[str, Callable[[Graph, random.Random], Any]]] = {
    "convolutions": _convolutions,
    "mixer": _mixer,
    "mobile": _mobile,
    "recurrent": _recurrent,
    "transformer": _transformer,
}
