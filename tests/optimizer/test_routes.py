"""The way of a tensor between kinds of memory: never more copies than the least of all ways there are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.backend import MemorySource
from interposer.optimizer.routes import COPY, DEVICE_COPY, IMPORT, Hop, Kind, Route, Side, find_route

MALLOC, DMA_BUF = MemorySource.MALLOC, MemorySource.DMA_BUF
ARRAY = Kind("Array", imports=MALLOC, exports=MALLOC)
HEAP = Kind("Heap")
DEVICE = Kind("Device", maps=False, copies_itself=True)
HIDDEN = Kind("Hidden", maps=False)
CAMERA = Kind("Camera", maps=False, exports=DMA_BUF)
NPU = Kind("Npu", maps=False, copies_itself=True, imports=DMA_BUF)
ALL = {item.id: item for item in (ARRAY, HEAP, DEVICE, HIDDEN, CAMERA, NPU)}


def side(*kinds: str) -> Side:
    return Side("/".join(kinds), {kind: rank for rank, kind in enumerate(kinds)})


def route(giver: Side, *takers: Side) -> Route | None:
    return find_route(ALL, giver, takers)


def test_both_sides_take_the_same_memory() -> None:
    assert route(side("Array"), side("Array")) == Route("Array", (), ("Array",), 0, 0)


def test_the_giver_writes_into_memory_of_the_taker_where_it_can() -> None:
    assert route(side("Heap", "Array"), side("Array")) == Route("Array", (), ("Array",), 0, 1)


def test_memory_is_imported_where_one_exports_what_the_other_imports() -> None:
    hops = (Hop("Camera", "Npu", IMPORT),)
    assert route(side("Camera"), side("Npu")) == Route("Camera", hops, ("Npu",), 0, 0)


def test_the_device_copies_where_the_host_cannot_look() -> None:
    assert route(side("Device"), side("Heap")) == Route(
        "Device", (Hop("Device", "Heap", DEVICE_COPY),), ("Heap",), 1, 0
    )


def test_two_devices_meet_in_memory_that_both_can_reach() -> None:
    result = route(side("Device"), side("Npu"))
    assert result is not None
    assert [hop.how for hop in result.hops] == [DEVICE_COPY, DEVICE_COPY]
    assert result.copies == 2


def test_one_copy_serves_all_that_take_that_memory() -> None:
    result = route(side("Heap"), side("Array"), side("Array", "Heap"), side("Array"))
    assert result == Route("Heap", (Hop("Heap", "Array", COPY),), ("Array",) * 3, 1, 0)


def test_there_may_be_no_way() -> None:
    assert route(side("Hidden"), side("Array")) is None


def test_what_needs_padding_is_not_imported() -> None:
    result = find_route(ALL, side("Camera"), [side("Npu")], frozenset(["Camera"]))
    assert result is None
    two = {"Array": ARRAY, "Mine": Kind("Mine", imports=MALLOC)}
    copied = Route("Array", (Hop("Array", "Mine", COPY),), ("Mine",), 1, 0)
    assert find_route(two, side("Array"), [side("Mine")], frozenset(["Mine"])) == copied


def test_a_kind_says_what_it_can() -> None:
    assert str(NPU) == "Npu (cannot be mapped, copies by itself, imports DMA_BUF)"


def test_what_must_be_copied_out_of_an_import_is_copied_at_once() -> None:
    device = Kind("Device", maps=False, copies_itself=True, exports=MALLOC)
    guest = Kind("Guest", copies_itself=True, imports=MALLOC)
    heap = Kind("Heap")
    reader = Side("reader", {"Guest": 0}, guest_cost=1)
    result = find_route(
        {item.id: item for item in (device, guest, heap)}, side("Device"), [reader, reader, reader, side("Heap")]
    )
    assert result is not None
    assert result.copies == 2
    assert [hop.how for hop in result.hops] == [DEVICE_COPY, DEVICE_COPY]


sources = st.sampled_from([MemorySource.UNDEFINED, MALLOC, DMA_BUF, MALLOC | DMA_BUF])
kinds = st.lists(st.builds(Kind, st.just(""), st.booleans(), st.booleans(), sources, sources), min_size=1, max_size=4)


@st.composite
def questions(draw: st.DrawFn) -> tuple[dict[str, Kind], Side, list[Side]]:
    """Some kinds of memory, who gives, and who takes."""
    created = {str(i): Kind(str(i), k.maps, k.copies_itself, k.imports, k.exports) for i, k in enumerate(draw(kinds))}
    ranked = st.lists(st.sampled_from(sorted(created)), min_size=1, max_size=3, unique=True)
    costs = st.dictionaries(st.sampled_from(sorted(created)), st.integers(0, 1), max_size=2)
    ranks = ranked.map(lambda ids: {item: rank for rank, item in enumerate(ids)})
    sides = st.builds(Side, st.just(""), ranks, costs, st.integers(0, 1))
    return created, draw(sides), draw(st.lists(sides, max_size=3))


@settings(max_examples=300, deadline=None)
@given(questions())
def test_no_way_is_better_than_the_one_that_is_found(question: tuple[dict[str, Kind], Side, list[Side]]) -> None:
    created, giver, takers = question
    result = find_route(created, giver, takers)
    least = min(all_ways(created, giver, takers), default=None)
    assert (result and (result.copies, result.ranks)) == least


def all_ways(made: Mapping[str, Kind], giver: Side, takers: Sequence[Side]) -> list[tuple[int, int]]:
    """Copies and ranks of every way: every home, every order of further kinds, each reached from any before it."""
    result = []
    for home in giver.ranks:
        others = [item for item in made if item != home]
        for count in range(len(others) + 1):
            for order in itertools.permutations(others, count):
                result += ways_in_order(made, giver, takers, (home, *order))
    return result


def ways_in_order(
    made: Mapping[str, Kind], giver: Side, takers: Sequence[Side], order: Sequence[str]
) -> list[tuple[int, int]]:
    choices = [[giver.costs.get(order[0], 0)]]
    for place, target in enumerate(order[1:], 1):
        ways = [made[source].way_to(made[target]) for source in order[:place]]
        choices.append([int(how != IMPORT) for how in ways if how is not None])
    reads = [[kind for kind in order if kind in taker.ranks] for taker in takers]
    result = []
    for copies in itertools.product(*choices):
        guests = {kind for kind, cost in zip(order[1:], copies[1:], strict=True) if not cost}
        for read in itertools.product(*reads):
            pairs = list(zip(takers, read, strict=True))
            more = sum(max(item.costs.get(kind, 0), item.guest_cost * (kind in guests)) for item, kind in pairs)
            ranks = giver.ranks[order[0]] + sum(item.ranks[kind] for item, kind in pairs)
            result.append((sum(copies) + more, ranks))
    return result
