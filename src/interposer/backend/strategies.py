"""Memory strategies: how the tensors of a backend, with their sizes and lifetimes, are packed into memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from interposer.backend.planner import Lifetime, MemoryPlan, lower_bound, overlapping, plan
from interposer.core.errors import BackendContractError, InvalidArgumentError, as_int, did_you_mean, expect
from interposer.core.records import dataclass

__all__ = [
    "MEMORY_STRATEGIES",
    "ConstantMemoryStrategy",
    "MemoryBin",
    "MemoryBlock",
    "MemoryOptimizerStrategy",
    "MultiAxisStrategy",
    "Packing",
    "SingleAxisStrategy",
    "StrategyValidator",
    "chosen_strategy",
    "planned_by",
]


class Packing(Enum):
    """How a strategy shares a bin among blocks; a backend may declare these names as capabilities."""

    SINGLE_AXIS = "SingleAxisPacking"
    """Blocks of one bin are never alive at the same time, and all begin at offset 0 (a pool)."""
    MULTI_AXIS = "MultiAxisPacking"
    """Blocks of one bin may be alive at the same time, at offsets that do not overlap (a slab)."""


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """The memory of one tensor: `size` bytes, in use from the moment `begins` to the moment `ends`, both inclusive.

    `index` identifies the block. `offset` is its place in a bin in bytes, which a strategy chooses.

    Raises:
        InvalidArgumentError: the offset is not an integer.
    """

    index: int
    size: int
    begins: int
    ends: int
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", as_int(self.offset, f"the offset of block {self.index} must be an integer"))

    def at(self, offset: int) -> MemoryBlock:
        """Return the same block at another offset."""
        return replace(self, offset=offset)


@dataclass(frozen=True, slots=True)
class MemoryBin:
    """Contiguous memory of `size` bytes for some blocks, which may be any iterable.

    Raises:
        InvalidArgumentError: there is something else among the blocks, or the size is no integer, or negative.
    """

    blocks: tuple[MemoryBlock, ...]
    size: int

    def __post_init__(self) -> None:
        blocks = tuple(self.blocks)
        for block in blocks:
            expect(block, MemoryBlock, "the blocks of a memory bin must be MemoryBlocks")
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "size", as_int(self.size, "the size of a memory bin must be an integer"))
        if self.size < 0:
            raise InvalidArgumentError(f"the size of a memory bin must not be negative, but it is {self.size}")


class MemoryOptimizerStrategy(ABC):
    """Packs the tensors of one backend into memory: ``CreationOptions(memory_strategies={"CpuRef": strategy})``.

    The strategy is called for each network when it is loaded, and again when two runs first overlap. Several threads
    may call it concurrently. What it returns is checked: see `StrategyValidator`.
    """

    @property
    def name(self) -> str:
        """The name of the strategy for messages and reports; by default that of the class."""
        return type(self).__name__

    @property
    @abstractmethod
    def packing(self) -> Packing:
        """How blocks, which are the bytes of a tensor, share a bin, which is one allocation."""

    @abstractmethod
    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        """Return bins that contain each of the blocks once, with its offset.

        Sizes of blocks are multiples of 64 bytes, and offsets must be, too. Blocks of size 0 are not passed.
        """


class ConstantMemoryStrategy(MemoryOptimizerStrategy):
    """Gives every block a bin of its own: no tensor shares memory with another one."""

    name = "Constant"
    packing = Packing.SINGLE_AXIS

    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        """Return one bin for each block."""
        return [MemoryBin((block.at(0),), block.size) for block in blocks]


class SingleAxisStrategy(MemoryOptimizerStrategy):
    """Puts blocks that are never alive at the same time into one bin, the largest blocks first."""

    name = "SingleAxis"
    packing = Packing.SINGLE_AXIS

    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        """Return bins that are as large as their largest block."""
        bins: list[list[MemoryBlock]] = []
        for block in sorted(
            blocks, key=lambda memory_block: (-memory_block.size, memory_block.begins, memory_block.index)
        ):
            bins_without_overlap = (
                bin_blocks for bin_blocks in bins if not any(_at_once(block, other_block) for other_block in bin_blocks)
            )
            target = next(bins_without_overlap, None)
            if target is None:
                bins.append(target := [])
            target.append(block.at(0))
        return [MemoryBin(tuple(bin_blocks), bin_blocks[0].size) for bin_blocks in bins]


class MultiAxisStrategy(MemoryOptimizerStrategy):
    """Puts all blocks into one bin, with the planner that is used without a strategy."""

    name = "MultiAxis"
    packing = Packing.MULTI_AXIS

    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        """Return one bin, or none without blocks."""
        memory_plan = plan([Lifetime(block.size, block.begins, block.ends) for block in blocks])
        placed_blocks = tuple(block.at(offset) for block, offset in zip(blocks, memory_plan.offsets, strict=True))
        return [MemoryBin(placed_blocks, memory_plan.size)] if placed_blocks else []


MEMORY_STRATEGIES: Final[Mapping[str, MemoryOptimizerStrategy]] = MappingProxyType(
    {strategy.name: strategy for strategy in (ConstantMemoryStrategy(), SingleAxisStrategy(), MultiAxisStrategy())}
)
"""The strategies of the package by name; options take the names, too."""


class StrategyValidator(MemoryOptimizerStrategy):
    """Runs another strategy and checks what it returns.

    Each block must be in exactly one bin, unchanged but for its offset, and inside the bin. Blocks of one bin that are
    alive at the same time must not overlap; with `Packing.SINGLE_AXIS`, there must be none. Offsets must be multiples
    of `alignment` bytes.
    """

    def __init__(self, strategy: MemoryOptimizerStrategy, alignment: int = 64) -> None:
        self.strategy, self.alignment = strategy, alignment

    @property
    def name(self) -> str:
        """The name of the strategy that is checked."""
        return self.strategy.name

    @property
    def packing(self) -> Packing:
        """The packing of the strategy that is checked."""
        return self.strategy.packing

    def optimize(self, blocks: Sequence[MemoryBlock]) -> Sequence[MemoryBin]:
        """Return what the strategy returns.

        Raises:
            BackendContractError: the result is not valid; the message has the first error.
        """
        bins = list(self.strategy.optimize(list(blocks)))  # a copy, which the strategy may change
        error = next(self.problems(blocks, bins), None)
        if error is not None:
            raise BackendContractError(f"the memory strategy {self.name!r} gave an invalid result: {error}")
        return bins

    def problems(self, blocks: Sequence[MemoryBlock], bins: Sequence[MemoryBin]) -> Iterator[str]:
        """Yield a message for each error in `bins`, the result for `blocks`."""
        for memory_bin in bins:
            if not isinstance(memory_bin, MemoryBin):
                yield f"{memory_bin!r} is not a MemoryBin"
                return
        originals = {block.index: block for block in blocks}
        counts = Counter(block.index for memory_bin in bins for block in memory_bin.blocks)
        yield from (f"block {index} is in no bin" for index in originals if not counts[index])
        yield from (f"block {index} is in {count} bins" for index, count in counts.items() if count > 1)
        yield from (f"there is no block {index}" for index in counts if index not in originals)
        for number, memory_bin in enumerate(bins):
            for block in memory_bin.blocks:
                yield from self._block_problems(originals.get(block.index), block, number, memory_bin)
            yield from self._overlaps(memory_bin.blocks, number)

    def _block_problems(
        self, original_block: MemoryBlock | None, block: MemoryBlock, number: int, memory_bin: MemoryBin
    ) -> Iterator[str]:
        if original_block is not None and block.at(0) != original_block.at(0):
            yield f"block {block.index} was changed from {original_block} to {block}"
        if block.offset < 0 or block.offset + block.size > memory_bin.size:
            place = f"{block.offset} to {block.offset + block.size}"
            yield f"block {block.index} is at {place}, outside of bin {number} of {memory_bin.size} bytes"
        if block.offset % self.alignment:
            yield f"block {block.index} is at {block.offset}, which is not a multiple of {self.alignment}"

    def _overlaps(self, blocks: Sequence[MemoryBlock], number: int) -> Iterator[str]:
        for first, second in overlapping([Lifetime(block.size, block.begins, block.ends) for block in blocks]):
            a, b = blocks[first], blocks[second]
            if self.packing is Packing.SINGLE_AXIS:
                yield f"blocks {a.index} and {b.index} of bin {number} are alive at the same time"
            elif a.offset < b.offset + b.size and b.offset < a.offset + a.size:
                yield f"blocks {a.index} and {b.index} of bin {number} are alive at the same time and overlap"


def chosen_strategy(backend: str, strategy: MemoryOptimizerStrategy | str) -> MemoryOptimizerStrategy:
    """Return the strategy that a user chose for a backend: an object, or a name in `MEMORY_STRATEGIES`.

    Raises:
        InvalidArgumentError: the name is unknown, or the argument is not a strategy, or has no valid packing.
    """
    expect(strategy, MemoryOptimizerStrategy | str, f"the memory strategy of backend {backend!r} must be a strategy")
    if isinstance(strategy, MemoryOptimizerStrategy):
        expect(strategy.packing, Packing, f"the packing of memory strategy {strategy.name!r} must be a Packing")
        return strategy
    if strategy not in MEMORY_STRATEGIES:
        hint = f"{did_you_mean(strategy, MEMORY_STRATEGIES)} (known: {', '.join(MEMORY_STRATEGIES)})"
        raise InvalidArgumentError(f"unknown memory strategy {strategy!r}{hint}")
    return MEMORY_STRATEGIES[strategy]


def planned_by(strategy: MemoryOptimizerStrategy, lifetimes: Sequence[Lifetime], alignment: int) -> MemoryPlan:
    """Return the plan of an arena in which a strategy packs tensors: its bins follow each other.

    `alignment` is that of the tensors in bytes.

    Raises:
        BackendContractError: the strategy returned an invalid result.
    """
    blocks = [
        MemoryBlock(index, _rounded(lifetime.size, alignment), lifetime.begins, lifetime.ends)
        for index, lifetime in enumerate(lifetimes)
        if lifetime.size
    ]
    offsets, start = [0] * len(lifetimes), 0
    for lifetime in StrategyValidator(strategy, alignment).optimize(blocks):
        for block in lifetime.blocks:
            offsets[block.index] = start + block.offset
        start += _rounded(lifetime.size, alignment)
    return MemoryPlan(tuple(offsets), start, lower_bound(lifetimes, alignment), strategy.name)


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _at_once(a: MemoryBlock, b: MemoryBlock) -> bool:
    return a.begins <= b.ends and b.begins <= a.ends
