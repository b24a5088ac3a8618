"""Memory strategies: built-in ones, the validator, and plans of arenas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.backend import (
    MEMORY_STRATEGIES,
    ArenaMemoryManager,
    ArrayHandle,
    ConstantMemoryStrategy,
    MemoryBin,
    MemoryBlock,
    MemoryOptimizerStrategy,
    MultiAxisStrategy,
    Packing,
    SingleAxisStrategy,
    StrategyValidator,
)
from interposer.backend.planner import Lifetime, plan, problems
from interposer.backend.strategies import chosen_strategy, planned_by
from interposer.core.errors import BackendContractError, InvalidArgumentError
from interposer.core.types import TensorInfo

LIFETIMES = st.lists(
    st.builds(
        lambda size, begins, length: Lifetime(size, begins, begins + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)
CHAIN = [MemoryBlock(index, size, index, index + 1) for index, size in enumerate((64, 640, 128, 1280))]


@pytest.mark.parametrize("strategy", MEMORY_STRATEGIES.values(), ids=list(MEMORY_STRATEGIES))
@given(lifetimes=LIFETIMES, alignment=st.sampled_from([1, 64]))
def test_every_strategy_of_the_package_gives_valid_plans(strategy, lifetimes, alignment):
    created = planned_by(strategy, lifetimes, 64)
    assert list(problems(lifetimes, created)) == []
    assert all(offset % 64 == 0 for offset in created.offsets)
    assert created.strategy == strategy.name
    assert created.lower_bound == plan(lifetimes).lower_bound


def test_constant_gives_every_block_its_own_memory():
    assert [(item.size, item.blocks) for item in ConstantMemoryStrategy().optimize(CHAIN)] == [
        (block.size, (block,)) for block in CHAIN
    ]


def test_single_axis_puts_blocks_that_are_never_alive_together_into_one_bin():
    bins = SingleAxisStrategy().optimize(CHAIN)
    assert [(item.size, [block.index for block in item.blocks]) for item in bins] == [(1280, [3, 1]), (128, [2, 0])]


def test_multi_axis_has_one_bin_of_the_best_size():
    [bin] = MultiAxisStrategy().optimize(CHAIN)
    assert bin.size == 128 + 1280
    assert MultiAxisStrategy().optimize([]) == []


class Fixed(MemoryOptimizerStrategy):
    """Gives the bins of the test."""

    name = "Fixed"

    def __init__(self, bins: list[MemoryBin], packing: Packing = Packing.MULTI_AXIS) -> None:
        self.bins, self._packing = bins, packing

    @property
    def packing(self) -> Packing:
        return self._packing

    def optimize(self, blocks):
        return self.bins


A, B = MemoryBlock(0, 64, 0, 2), MemoryBlock(1, 128, 1, 3)


@pytest.mark.parametrize(
    ("bins", "packing", "error"),
    [
        ([MemoryBin((A,), 64)], Packing.MULTI_AXIS, "block 1 is in no bin"),
        ([MemoryBin((A, B.at(64)), 192), MemoryBin((A,), 64)], Packing.MULTI_AXIS, "block 0 is in 2 bins"),
        ([MemoryBin((A, B.at(64), replace(A, index=7, begins=9, ends=9)), 192)], Packing.MULTI_AXIS,
         "there is no block 7"),
        ([MemoryBin((A, B.at(64)), 128)], Packing.MULTI_AXIS,
         "block 1 is at 64 to 192, outside of bin 0 of 128 bytes"),
        ([MemoryBin((A.at(-64), B), 192)], Packing.MULTI_AXIS,
         "block 0 is at -64 to 0, outside of bin 0 of 192 bytes"),
        ([MemoryBin((A, B.at(96)), 224)], Packing.MULTI_AXIS, "block 1 is at 96, which is not a multiple of 64"),
        ([MemoryBin((A, B), 128)], Packing.MULTI_AXIS,
         "blocks 0 and 1 of bin 0 are alive at the same time and overlap"),
        ([MemoryBin((A, B.at(64)), 192)], Packing.SINGLE_AXIS, "blocks 0 and 1 of bin 0 are alive at the same time"),
        ([MemoryBin((A, replace(B, size=64).at(64)), 192)], Packing.MULTI_AXIS,
         f"block 1 was changed from {B} to {replace(B, size=64).at(64)}"),
        ([None], Packing.MULTI_AXIS, "None is not a MemoryBin"),
    ],
)  # fmt: skip
def test_the_validator_names_the_first_error(bins, packing, error):
    with pytest.raises(BackendContractError) as raised:
        StrategyValidator(Fixed(bins, packing)).optimize([A, B])
    assert str(raised.value) == f"the memory strategy 'Fixed' gave an invalid result: {error}"


def test_a_strategy_cannot_hide_blocks_from_the_validator():
    class Clearing(Fixed):
        def optimize(self, blocks):
            blocks.clear()
            return []

    with pytest.raises(BackendContractError, match="block 0 is in no bin"):
        planned_by(Clearing([]), [Lifetime(64, 0, 2), Lifetime(64, 1, 3)], 64)


def test_bins_take_any_iterable_of_blocks_once():
    created = MemoryBin((block for block in (A, B.at(64))), 192)
    assert created == MemoryBin((A, B.at(64)), 192)
    assert planned_by(Fixed([created]), [Lifetime(64, 0, 2), Lifetime(128, 1, 3)], 64).offsets == (0, 64)


def test_sizes_and_offsets_become_python_integers():
    created = MemoryBin((A.at(np.int8(64)),), np.int8(64))
    assert (type(created.size), type(created.blocks[0].offset)) == (int, int)


@pytest.mark.parametrize(
    ("create", "error"),
    [
        (lambda: MemoryBin((), -64), "the size of a memory bin must not be negative, but it is -64"),
        (lambda: MemoryBin((A,), float("nan")), "the size of a memory bin must be an integer, not nan"),
        (lambda: MemoryBin("ab", 64), "the blocks of a memory bin must be MemoryBlocks, not 'a'"),
        (lambda: A.at(0.5), "the offset of block 0 must be an integer, not 0.5"),
        (lambda: A.at(None), "the offset of block 0 must be an integer, not None"),
        (lambda: chosen_strategy("CpuRef", Fixed([], "SingleAxisPacking")),
         "the packing of memory strategy 'Fixed' must be a Packing, not 'SingleAxisPacking'"),
    ],
)  # fmt: skip
def test_bins_blocks_and_strategies_of_wrong_types_are_refused(create, error):
    with pytest.raises(InvalidArgumentError) as raised:
        create()
    assert str(raised.value) == error


def test_the_validator_returns_valid_results():
    bins = [MemoryBin((A, B.at(64)), 192)]
    checked = StrategyValidator(Fixed(bins))
    assert (checked.optimize([A, B]), checked.name, checked.packing) == (bins, "Fixed", Packing.MULTI_AXIS)


def test_an_arena_is_laid_out_by_its_strategy():
    arena = ArenaMemoryManager(strategy=ConstantMemoryStrategy())
    handles = [ArrayHandle(TensorInfo((size,)), manager=arena) for size in (4, 20, 0, 1)]
    for handle in handles:
        handle.manage()
        handle.allocate()
    assert (arena.plan.offsets, arena.planned_bytes, arena.plan.strategy) == ((0, 64, 0, 192), 256, "Constant")
    arena.acquire()
    for number, handle in enumerate(handles):
        handle.map()[...] = number
    assert [handle.map().tolist() for handle in handles] == [[0.0] * 4, [1.0] * 20, [], [3.0]]
    arena.release()


def test_strategies_are_chosen_by_name():
    assert isinstance(chosen_strategy("CpuRef", "SingleAxis"), SingleAxisStrategy)
    with pytest.raises(InvalidArgumentError) as error:
        chosen_strategy("CpuRef", "SingelAxis")
    expected = (
        "unknown memory strategy 'SingelAxis'; did you mean 'SingleAxis'? (known: Constant, SingleAxis, MultiAxis)"
    )
    assert str(error.value) == expected
    with pytest.raises(
        InvalidArgumentError, match="^the memory strategy of backend 'CpuRef' must be a strategy, not 3$"
    ):
        chosen_strategy("CpuRef", 3)
