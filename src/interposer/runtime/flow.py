"""Parallel execution of branches of a network that are on different backends.

The layers of one backend run in their order. In addition, a layer waits for its producers, and for all layers that
used the arena memory it writes to before. Any free thread takes the next ready layer. The calling thread is one of
them, so a run makes progress even if all other threads are busy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from threading import get_ident

from interposer.backend import DEFAULT_FACTORY
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Input, MemCopy, MemImport

__all__ = ["Flow", "dependencies_of", "flow_of"]

Work = Callable[[int], None]
Helpers = Callable[[Callable[[], None]], object]


class Flow:
    """The order in which layers may run when several backends run concurrently.

    `predecessors` has for each layer, by its position in execution order, the positions of the layers that must be
    finished first. At most `width` layers run at the same time.
    """

    def __init__(self, predecessors: Sequence[set[int]], width: int) -> None:
        self.predecessors, self.width = tuple(predecessors), width
        self.successors: list[list[int]] = [[] for _ in predecessors]
        for index, earlier_indices in enumerate(predecessors):
            for predecessor in earlier_indices:
                self.successors[predecessor].append(index)

    def run(self, work: Work, help_with: Helpers) -> None:
        """Run every layer once, as soon as the layers before it are finished, on this thread and on others.

        Returns when all layers are done, or after an error as soon as no layer is running any more.

        Args:
            work: runs the layer at this position in execution order; called by several threads.
            help_with: schedules a function on another thread.

        Raises:
            BaseException: the first exception that `work` raised.
        """
        flow_run = _FlowRun(self, work)
        for _ in range(self.width - 1):
            help_with(flow_run.help)
        flow_run.lead()


class _FlowRun:
    """The state of one run through a flow, which several threads share: which layers are ready, running and left."""

    def __init__(self, flow: Flow, work: Work) -> None:
        self._flow, self._work = flow, work
        self._unmet_counts = [len(predecessors) for predecessors in flow.predecessors]
        self._ready_indices = deque(index for index, unmet_count in enumerate(self._unmet_counts) if not unmet_count)
        self._num_unfinished = len(flow.predecessors)
        self._active: set[int] = set()  # ids of threads that run a layer
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def help(self) -> None:
        """Run layers that are ready, until there are none or one has failed."""
        while (index := self._next()) is not None:
            self._do(index)

    def lead(self) -> None:
        """Run layers that are ready, wait until all threads have finished, and raise the first error."""
        try:
            self.help()
        except (
            BaseException
        ) as error:  # such as KeyboardInterrupt: the other threads must stop before memory is released
            self._fail(error)
            self._active.discard(get_ident())
        with self._changed:
            self._changed.wait_for(lambda: not self._active)
        if self._error is not None:
            raise self._error

    def _next(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready_indices or not self._num_unfinished or self._error is not None)
            if self._error is not None or not self._ready_indices:
                return None
            self._active.add(get_ident())
            return self._ready_indices.popleft()

    def _do(self, index: int) -> None:
        try:
            self._work(index)
        except BaseException as error:
            self._finish(error=error)
        else:
            self._finish(index)

    def _finish(self, index: int = -1, error: BaseException | None = None) -> None:
        with self._changed:
            self._active.discard(get_ident())
            self._num_unfinished -= 1
            self._error = self._error or error
            for successor in self._flow.successors[index] if error is None else ():
                self._unmet_counts[successor] -= 1
                if not self._unmet_counts[successor]:
                    self._ready_indices.append(successor)
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()


def flow_of(running: Sequence[Layer], root: Callable[[Value], Value] = lambda value: value) -> Flow | None:
    """Return the dependencies for parallel execution, or None if no two backends could ever run concurrently.

    Args:
        running: the layers with work to do, in execution order. Layers between them without work (concatenations and
            splits that cost nothing) are skipped over.
        root: returns the tensor in whose memory a tensor is stored.
    """
    backends = dict.fromkeys(layer.backend for layer in running)
    if len(backends) < 2:
        return None
    predecessors = dependencies_of(running, root, lambda layer: layer.backend)
    is_wide = _is_parallel(running, predecessors)
    return Flow(predecessors, len(backends)) if is_wide else None


def dependencies_of(
    running: Sequence[Layer], root: Callable[[Value], Value], lane: Callable[[Layer], Hashable]
) -> list[set[int]]:
    """Return for each layer the positions of the layers that must be finished before it begins.

    These are its producers, those that used the arena memory it writes to before, and the one before it in its lane.

    Args:
        running: the layers with work to do, in execution order.
        root: returns the tensor in whose memory a tensor is stored.
        lane: returns what runs the layer, one layer after the other, such as its backend.
    """
    position = {layer: index for index, layer in enumerate(running)}
    predecessors: list[set[int]] = [set() for _ in running]
    latest_of_lane: dict[Hashable, int] = {}
    touched_by_arena: dict[Hashable, set[int]] = {}
    for index, layer in enumerate(running):
        predecessors[index] |= {position[producer] for producer in _producers(layer, position)}
        if lane(layer) in latest_of_lane:
            predecessors[index].add(latest_of_lane[lane(layer)])
        latest_of_lane[lane(layer)] = index
        for arena in {_arena(root(value)) for value in layer.outputs}:
            predecessors[index] |= touched_by_arena.pop(arena, set())
            touched_by_arena[arena] = {index}
        for arena in {_arena(root(value)) for value in layer.values if not value.is_constant}:
            touched_by_arena.setdefault(arena, set()).add(index)
        predecessors[index].discard(index)
    return predecessors


def _arena(value: Value) -> Hashable:
    """Return what identifies the arena that a tensor is in, so that its uses can be ordered.

    This is its factory id; for plain arrays, together with the backend.
    """
    return (value.factory, value.producer.backend) if value.factory in (None, DEFAULT_FACTORY) else value.factory


def _producers(layer: Layer, position: dict[Layer, int]) -> set[Layer]:
    producers, stack = set[Layer](), [value.producer for value in layer.values]
    while stack:
        producer = stack.pop()
        if producer in position:
            producers.add(producer)
        elif not isinstance(producer.op, Input):
            stack += [value.producer for value in producer.values]
    return producers


def _is_parallel(running_layers: Sequence[Layer], predecessors: Sequence[set[int]]) -> bool:
    """Return True if two layers on different backends could run at the same time; copies and imports do not count.

    `predecessors` has for each layer the positions of the layers that must be finished first.
    """
    ancestors_of: list[int] = []
    mask_of_backend: dict[str | None, int] = {}
    for index, layer in enumerate(running_layers):
        ancestors = 0
        for predecessor in predecessors[index]:
            ancestors |= ancestors_of[predecessor] | (1 << predecessor)
        ancestors_of.append(ancestors)
        if isinstance(layer.op, MemCopy | MemImport):
            continue
        computed_elsewhere = sum(mask for backend, mask in mask_of_backend.items() if backend != layer.backend)
        if computed_elsewhere & ~ancestors:
            return True
        mask_of_backend[layer.backend] = mask_of_backend.get(layer.backend, 0) | (1 << index)
    return False
