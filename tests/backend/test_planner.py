import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.backend.planner import Lifetime, MemoryPlan, plan, problems
from interposer.core.errors import InvalidArgumentError

LIFETIMES = st.lists(
    st.builds(
        lambda size, begins, length: Lifetime(size, begins, begins + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


@given(LIFETIMES, st.sampled_from([1, 16, 64]))
def test_no_two_tensors_that_live_at_the_same_time_overlap(lifetimes, alignment):
    created = plan(lifetimes, alignment)
    assert list(problems(lifetimes, created)) == []
    assert all(offset % alignment == 0 for offset in created.offsets)
    assert created.lower_bound <= created.size <= sum(lifetime.size + alignment for lifetime in lifetimes)


@given(LIFETIMES)
def test_the_same_lifetimes_give_the_same_plan(lifetimes):
    assert plan(lifetimes) == plan(lifetimes)


def test_a_chain_needs_its_two_largest_neighbours():
    sizes = [64, 640, 128, 1280, 64]
    chain = [Lifetime(size, i, i + 1) for i, size in enumerate(sizes)]
    assert plan(chain).size == 128 + 1280


@given(st.lists(st.builds(lambda size, b, n: Lifetime(64 * size, b, b + n), *[st.integers(1, 6)] * 3), max_size=6))
def test_a_few_tensors_lie_as_closely_as_they_can(lifetimes):
    assert plan(lifetimes).size == least(lifetimes)


def least(lifetimes):
    """The least memory of all orders in which each tensor gets the lowest gap; some order gives the best plan."""
    return min(reached(order) for order in itertools.permutations(lifetimes))


def reached(order):
    placed = []
    for item in order:
        offset = 0
        for start, stop in sorted(
            (s, s + o.size) for o, s in placed if o.begins <= item.ends and item.begins <= o.ends
        ):
            if start - offset >= item.size:
                break
            offset = max(offset, stop)
        placed.append((item, offset))
    return max((start + element.size for element, start in placed), default=0)


def test_no_tensors_need_no_memory():
    assert plan([]) == MemoryPlan((), 0, 0, "largest first, lowest gap")


def test_an_overlap_and_a_place_outside_are_told():
    lifetimes = [Lifetime(64, 0, 1), Lifetime(64, 1, 2), Lifetime(64, 2, 3)]
    assert list(problems(lifetimes, MemoryPlan((0, 32, 64), 100, 0, ""))) == [
        "tensors 0 and 1 live at the same time and overlap",
        "tensor 2 is at 64 to 128, outside of the arena of 100 bytes",
        "tensors 1 and 2 live at the same time and overlap",
    ]


def test_a_tensor_cannot_end_before_it_begins():
    with pytest.raises(InvalidArgumentError, match="a tensor of 4 bytes cannot live from 3 to 2"):
        Lifetime(4, 3, 2)
