"""The rules of order, over recordings that are made by hand."""

from __future__ import annotations

import pytest

from interposer.testing.order import context_problems, order_problems
from interposer.testing.recording import Event, Recording

MANAGER, HANDLE, WORKLOAD = 0, 1, 2
RIGHT = [
    "manage 1", "allocate 1", "post_allocation_configure 2", "loaded",
    "run", "acquire 0", "execute 2", "map 1", "unmap 1", "executed 2", "copy_out 1", "ran",
    "run", "execute 2", "map 1", "unmap 1", "executed 2", "copy_out 1", "ran",
    "unload", "release 0", "unloaded",
]  # fmt: skip


def recorded(lines: list[str]) -> Recording:
    recording = Recording()
    recording.titles += ["the memory manager", "the handle", "the workload"]
    recording.manager_of[HANDLE] = MANAGER
    for line in lines:
        what, _, thing = line.partition(" ")
        outputs = (HANDLE,) if what in ("execute", "executed") else ()
        recording.events.append(Event(what, int(thing or -1), outputs=outputs))
    return recording


def changed(old: str, *new: str, count: int = 1) -> list[str]:
    """The right order with the first `count` lines of one kind replaced."""
    lines = []
    for line in RIGHT:
        lines += new if line == old and count > 0 else [line]
        count -= line == old
    return lines


def test_the_right_order_has_no_faults() -> None:
    assert list(order_problems(recorded(RIGHT))) == []


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (changed("acquire 0"), "the memory was acquired 0 times in 2 runs; expected once, before the first"),
        (changed("acquire 0", "acquire 0", "acquire 0"), "the memory was acquired 2 times in 2 runs; expected once"),
        (changed("ran", "release 0", "ran"), "the memory was released 1 times before the network was unloaded"),
        (changed("release 0"), "the memory was released 0 times when the network was unloaded; expected once"),
        (changed("manage 1"), "the handle was managed 0 and allocated 1 times; expected once each in turn"),
        (changed("manage 1", "manage 1", "manage 1"), "the handle was managed 2 and allocated 1 times"),
        (changed("loaded", "map 1", "unmap 1", "loaded"), "the handle was mapped before its memory was acquired"),
        (changed("unloaded", "map 1", "unmap 1"), "the handle was mapped after its memory was released"),
        (changed("unmap 1"), "the handle was mapped but not unmapped; every map needs one unmap"),
        (changed("unmap 1", "unmap 1", "unmap 1"), "the handle was unmapped more often than mapped"),
        (changed("ran", "post_allocation_configure 2", "ran"), "the workload was configured 2 times; expected once"),
        (changed("loaded", "execute 2", "executed 2", "loaded"), "the workload was executed while the network did not"),
        (changed("execute 2", "copy_out 1", "execute 2"), "the handle was read before the workload that gives it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_order_is_named(lines: list[str], fault: str) -> None:
    assert any(order_problem.startswith(fault) for order_problem in order_problems(recorded(lines)))


def test_a_context_is_told_of_everything_in_turn() -> None:
    notices = ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network")
    recording = Recording()
    recording.events += [Event(name, 0, inputs=(7,)) for name in notices]
    assert list(context_problems(recording)) == []
    del recording.events[1]
    assert list(context_problems(recording)) == [
        "of network 7 the context was notified of before_load_network, before_unload_network, after_unload_network; "
        "expected before_load_network, after_load_network, before_unload_network, after_unload_network"
    ]
