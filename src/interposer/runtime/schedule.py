"""The order in which the layers of a program are submitted to queues, or executed by the host."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from interposer.core.records import dataclass
from interposer.ir.graph import Layer, Value
from interposer.ops.control import MemCopy, MemImport
from interposer.runtime.flow import dependencies_of

__all__ = ["QueueKey", "Schedule"]

QueueKey: TypeAlias = tuple[str, bool]
"""A queue of a working memory: the id of its backend, and whether it is only for copies."""


@dataclass(frozen=True)
class Schedule:
    """What a program with asynchronous workloads needs for its runs; layers are numbered in running order.

    `queues` has the queue of each layer that is submitted. `before` has for each layer the numbers of those that must
    be over first. In `order`, all layers are issued: submitted ones as early as possible, so that the host waits late.
    `overlaps_on_host` is True if several backends execute layers on the host.
    """

    queues: Mapping[Layer, QueueKey]
    before: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    overlaps_on_host: bool

    @classmethod
    def of(cls, running: Sequence[Layer], queues: Mapping[Layer, QueueKey], root: Callable[[Value], Value]) -> Schedule:
        """Return the schedule of layers in running order; `root` is that of `dependencies_of`."""
        earlier_numbers = dependencies_of(running, root, lambda layer: queues.get(layer, layer.backend))
        on_host = {layer.backend for layer in running if layer not in queues and _computes(layer)}
        is_submitted = [layer in queues for layer in running]
        needed_numbers = tuple(tuple(sorted(numbers)) for numbers in earlier_numbers)
        return cls(queues, needed_numbers, tuple(_order(needed_numbers, is_submitted)), len(on_host) > 1)


def _computes(layer: Layer) -> bool:
    return not isinstance(layer.op, MemCopy | MemImport)


def _order(before: Sequence[Sequence[int]], is_submitted: Sequence[bool]) -> list[int]:
    """Return all numbers in an order in which each one comes after those in its element of `before`.

    Submitted layers come first; then those that wait for none; then those that wait for submitted ones.
    """
    unmet = [len(numbers) for numbers in before]
    later_numbers: list[list[int]] = [[] for _ in before]
    for number, numbers in enumerate(before):
        for earlier in numbers:
            later_numbers[earlier].append(number)
    ready = [(_rank(number, before, is_submitted), number) for number, count in enumerate(unmet) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for later in later_numbers[number]:
            unmet[later] -= 1
            if not unmet[later]:
                heapq.heappush(ready, (_rank(later, before, is_submitted), later))
    return order


def _rank(number: int, before: Sequence[Sequence[int]], is_submitted: Sequence[bool]) -> int:
    if is_submitted[number]:
        return 0
    return 2 if any(is_submitted[earlier] for earlier in before[number]) else 1
