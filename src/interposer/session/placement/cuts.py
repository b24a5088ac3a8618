"""Cut points of a network, the blocks between them, and separate networks for ranges of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import Constant, Input, Output

__all__ = ["Block", "blocks_of", "example", "part_network"]


@dataclass(frozen=True)
class Block:
    """Consecutive layers, the smallest unit that a placement assigns to a backend.

    `leaving` is the size in bytes of the tensors that layers after the block read from it or from blocks before it.
    """

    layers: tuple[Layer, ...]
    leaving: int


def blocks_of(graph: Graph, most: int) -> list[Block]:
    """Divide the running layers of a graph into at most `most` blocks, cut where the fewest tensors cross.

    The blocks are in execution order, and the union of consecutive blocks is convex. If possible, exactly one tensor
    crosses each cut. While there are too many blocks, the smallest one is merged with its smaller neighbour.
    """
    running = [layer for layer in graph.topological() if not isinstance(layer.op, Input | Output | Constant)]
    crossing = _crossing(graph, running)
    ends = [place for place in range(1, len(running)) if len(crossing[place]) == 1]
    starts, stops = [0, *ends], [*ends, len(running)]
    result = [
        Block(tuple(running[start:stop]), _bytes(crossing[stop]))
        for start, stop in zip(starts, stops, strict=True)
        if stop > start
    ]
    while len(result) > most:
        _join_smallest(result)
    return result


def _join_smallest(blocks: list[Block]) -> None:
    sizes = [len(block.layers) + len(other.layers) for block, other in zip(blocks, blocks[1:], strict=False)]
    place = sizes.index(min(sizes))
    item, other = blocks[place : place + 2]
    blocks[place : place + 2] = [Block((*item.layers, *other.layers), other.leaving)]


def _crossing(graph: Graph, running: Sequence[Layer]) -> list[list[Value]]:
    """Return, for each place where the running order could be cut, the tensors that would cross the cut.

    These are produced before it, or are inputs of the network, and read after it. Place i is before layer i of
    `running`. Constants are left out.
    """
    place = {layer: number for number, layer in enumerate(running)}
    values: list[list[Value]] = [[] for _ in range(len(running) + 1)]
    for layer in graph:
        first = 0 if isinstance(layer.op, Input) else place.get(layer, -1) + 1
        for value in layer.outputs if not isinstance(layer.op, Constant) else ():
            last = max((place.get(use.layer, first - 1) for use in value.uses), default=-1)
            for between in range(first, last + 1):
                values[between].append(value)
    return values


def _bytes(values: Sequence[Value]) -> int:
    infos = (value.known for value in values)
    return sum(int(info.num_bytes) for info in infos if info.is_tensor and info.is_concrete)


def part_network(graph: Graph, layers: Sequence[Layer], name: str) -> Network:
    """Return a copy of some layers of a graph as a network with this name.

    Tensors that enter or leave the layers become its inputs and outputs, numbered from 0; constants are included.
    """
    view = SubgraphView(graph, layers)
    created = Graph(name)
    known: dict[Value, Value] = {}
    for number, value in enumerate(view.inputs):
        added = created.add(Input(number), name=f"in {number}", outputs=[value.known])
        added.output.info = value.known.with_constant(None)
        known[value] = added.output
    known = created.absorb([value.producer for value in view.constants], known)
    known = created.absorb(view.layers, known)
    for number, value in enumerate(view.outputs):
        created.add(Output(number), [known[value]], name=f"out {number}")
    return Network(name, created)


def example(info: TensorInfo, seed: int) -> Array:
    """Return an example array for an input with this info: random numbers, zeros for integers that may be indices.

    Every operator accepts it. The same `seed` gives the same numbers.
    """
    shape, draw = tuple(map(int, info.shape)), np.random.default_rng(seed)
    if info.dtype is DataType.BOOL or (info.dtype.numpy.kind in "iu" and info.quantization is None):
        return np.zeros(shape, info.dtype.numpy)
    if info.dtype.numpy.kind in "iu":
        limits = np.iinfo(info.dtype.numpy)
        return draw.integers(limits.min, limits.max, shape, info.dtype.numpy, endpoint=True)
    drawn = draw.standard_normal(shape) / math.sqrt(max(1, shape[-1] if shape else 1))
    return drawn.astype(info.dtype.numpy)
