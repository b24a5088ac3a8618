"""Cut points of a network, the blocks between them, and separate networks for ranges of layers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from interposer.core.records import dataclass
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


def blocks_of(graph: Graph, most_blocks: int) -> list[Block]:
    """Divide the running layers of a graph into at most `most_blocks` blocks, cut where the fewest tensors cross.

    The blocks are in execution order, and the union of consecutive blocks is convex. If possible, exactly one tensor
    crosses each cut. While there are too many blocks, the smallest one is merged with its smaller neighbour.
    """
    running_layers = [layer for layer in graph.topological() if not isinstance(layer.op, Input | Output | Constant)]
    counts, sizes = _crossing(graph, running_layers)
    ends = [position for position in range(1, len(running_layers)) if counts[position] == 1]
    starts, stops = [0, *ends], [*ends, len(running_layers)]
    blocks = [
        Block(tuple(running_layers[start:stop]), sizes[stop])
        for start, stop in zip(starts, stops, strict=True)
        if stop > start
    ]
    return _merged(blocks, most_blocks)


def _merged(blocks: Sequence[Block], most_blocks: int) -> list[Block]:
    """Merge the first pair of neighbours with the fewest layers, until at most `most_blocks` blocks are left."""
    next_of_block = dict(enumerate(range(1, len(blocks))))
    previous_of_block = {next_block: first_block for first_block, next_block in next_of_block.items()}
    counts = {first_block: len(block.layers) for first_block, block in enumerate(blocks)}
    count_and_pair = [
        (counts[first_block] + counts[next_block], first_block, next_block)
        for first_block, next_block in next_of_block.items()
    ]
    heapq.heapify(count_and_pair)
    while len(counts) > most_blocks:
        merged_count, first_block, next_block = heapq.heappop(count_and_pair)
        if (
            next_of_block.get(first_block) != next_block
            or counts.get(first_block, 0) + counts.get(next_block, 0) != merged_count
        ):
            continue  # one of the two blocks has changed since
        counts[first_block] = merged_count
        del counts[next_block]
        block_after = next_of_block.pop(next_block, None)
        if block_after is None:
            del next_of_block[first_block]
        else:
            next_of_block[first_block], previous_of_block[block_after] = block_after, first_block
            heapq.heappush(count_and_pair, (merged_count + counts[block_after], first_block, block_after))
        if first_block in previous_of_block:
            heapq.heappush(
                count_and_pair,
                (counts[previous_of_block[first_block]] + merged_count, previous_of_block[first_block], first_block),
            )
    starts = [*counts, len(blocks)]
    return [_union(blocks[start:stop]) for start, stop in pairwise(starts)]


def _union(blocks: Sequence[Block]) -> Block:
    return Block(tuple(layer for block in blocks for layer in block.layers), blocks[-1].leaving)


def _crossing(graph: Graph, running_layers: Sequence[Layer]) -> tuple[list[int], list[int]]:
    """Return the number of tensors that would cross a cut at each place of the running order, and their bytes.

    These tensors are produced before the cut, or are inputs of the network, and read after it. Place i is before layer
    i of `running_layers`. Constants are left out.
    """
    positions = {layer: number for number, layer in enumerate(running_layers)}
    counts, sizes = [0] * (len(running_layers) + 2), [0] * (len(running_layers) + 2)
    for layer in graph:
        first_cut = 0 if isinstance(layer.op, Input) else positions.get(layer, -1) + 1
        for value in layer.outputs if not isinstance(layer.op, Constant) else ():
            last_cut = max((positions.get(use.layer, first_cut - 1) for use in value.uses), default=-1)
            if last_cut >= first_cut:
                size = _bytes(value)
                for differences, amount in ((counts, 1), (sizes, size)):
                    differences[first_cut] += amount
                    differences[last_cut + 1] -= amount
    return list(accumulate(counts)), list(accumulate(sizes))


def _bytes(value: Value) -> int:
    info = value.known
    return int(info.num_bytes) if info.is_tensor and info.is_concrete else 0


def part_network(graph: Graph, layers: Sequence[Layer], name: str) -> Network:
    """Return a copy of some layers of a graph as a network with this name.

    Tensors that enter or leave the layers become its inputs and outputs, numbered from 0; constants are included.
    """
    view = SubgraphView(graph, layers)
    part_graph = Graph(name)
    copies: dict[Value, Value] = {}
    for number, value in enumerate(view.inputs):
        input_layer = part_graph.add(Input(number), name=f"in {number}", outputs=[value.known])
        input_layer.output.info = value.known.with_constant(None)
        copies[value] = input_layer.output
    copies = part_graph.absorb([value.producer for value in view.constants], copies)
    copies = part_graph.absorb(view.layers, copies)
    for number, value in enumerate(view.outputs):
        part_graph.add(Output(number), [copies[value]], name=f"out {number}")
    return Network(name, part_graph)


def example(info: TensorInfo, seed: int) -> Array:
    """Return an example array for an input with this info: random numbers, zeros for integers that may be indices.

    Every operator accepts it. The same `seed` gives the same numbers.
    """
    shape, generator = tuple(map(int, info.shape)), np.random.default_rng(seed)
    if info.dtype is DataType.BOOL or (info.dtype.numpy.kind in "iu" and info.quantization is None):
        return np.zeros(shape, info.dtype.numpy)
    if info.dtype.numpy.kind in "iu":
        limits = np.iinfo(info.dtype.numpy)
        return generator.integers(limits.min, limits.max, shape, info.dtype.numpy, endpoint=True)
    numbers = generator.standard_normal(shape) / math.sqrt(max(1, shape[-1] if shape else 1))
    return numbers.astype(info.dtype.numpy)
