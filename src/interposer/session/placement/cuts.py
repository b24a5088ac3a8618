"""Cut points of a network, the blocks between them, and separate networks for ranges of layers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

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
    counts, sizes = _crossing(graph, running)
    ends = [place for place in range(1, len(running)) if counts[place] == 1]
    starts, stops = [0, *ends], [*ends, len(running)]
    result = [
        Block(tuple(running[start:stop]), sizes[stop])
        for start, stop in zip(starts, stops, strict=True)
        if stop > start
    ]
    return _merged(result, most)


def _merged(blocks: Sequence[Block], most: int) -> list[Block]:
    """Merge the first pair of neighbours with the fewest layers, until at most `most` blocks are left."""
    following = dict(enumerate(range(1, len(blocks))))
    before = {later: place for place, later in following.items()}
    counts = {place: len(block.layers) for place, block in enumerate(blocks)}
    pairs = [(counts[place] + counts[later], place, later) for place, later in following.items()]
    heapq.heapify(pairs)
    while len(counts) > most:
        total, place, later = heapq.heappop(pairs)
        if following.get(place) != later or counts.get(place, 0) + counts.get(later, 0) != total:
            continue  # one of the two blocks has changed since
        counts[place] = total
        del counts[later]
        after = following.pop(later, None)
        if after is None:
            del following[place]
        else:
            following[place], before[after] = after, place
            heapq.heappush(pairs, (total + counts[after], place, after))
        if place in before:
            heapq.heappush(pairs, (counts[before[place]] + total, before[place], place))
    starts = [*counts, len(blocks)]
    return [_union(blocks[start:stop]) for start, stop in pairwise(starts)]


def _union(blocks: Sequence[Block]) -> Block:
    return Block(tuple(layer for block in blocks for layer in block.layers), blocks[-1].leaving)


def _crossing(graph: Graph, running: Sequence[Layer]) -> tuple[list[int], list[int]]:
    """Return the number of tensors that would cross a cut at each place of the running order, and their bytes.

    These tensors are produced before the cut, or are inputs of the network, and read after it. Place i is before layer
    i of `running`. Constants are left out.
    """
    place = {layer: number for number, layer in enumerate(running)}
    counts, sizes = [0] * (len(running) + 2), [0] * (len(running) + 2)
    for layer in graph:
        first = 0 if isinstance(layer.op, Input) else place.get(layer, -1) + 1
        for value in layer.outputs if not isinstance(layer.op, Constant) else ():
            last = max((place.get(use.layer, first - 1) for use in value.uses), default=-1)
            if last >= first:
                size = _bytes(value)
                for changes, amount in ((counts, 1), (sizes, size)):
                    changes[first] += amount
                    changes[last + 1] -= amount
    return list(accumulate(counts)), list(accumulate(sizes))


def _bytes(value: Value) -> int:
    info = value.known
    return int(info.num_bytes) if info.is_tensor and info.is_concrete else 0


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
