"""A backend that wraps another one and fails on command: while it compiles, in one run, or in all later runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from interposer.backend import (
    Backend,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Support,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.schema import Op
from interposer.ir.graph import Layer
from interposer.testing.watched import Observer, Watched
from tests.faulty import PROBLEMS

NEVER = 1 << 62


class Nobody(Observer):
    """Looks at nothing."""


class Failing(Watched):
    """`inner` under the id `name`, that takes only layers of the types `only`, and computes as it does.

    It misbehaves as `how` (one of `Errors`, or a function) says: in `optimize_subgraph` where `at` is "compile", when
    a workload is made where it is "workload", and in every run of its workloads from that number on (from 1) where
    it is a number.
    """

    def __init__(
        self,
        inner: Callable[[], Backend],
        name: str,
        at: int | str = NEVER,
        how: str | Callable[[], None] = "raise_error",
        only: Sequence[type[Op]] = (),
    ) -> None:
        super().__init__(inner(), Nobody())
        self.at, self.how, self.only = at, how, tuple(only)
        vars(self).update(id=name)
        self.runs = 0
        self._lock = threading.Lock()

    def fail(self, place: str = "") -> None:
        """Misbehave, if this is the place or the time."""
        if not place:
            with self._lock:
                self.runs += 1
        if self.at == place or (isinstance(self.at, int) and not place and self.runs >= self.at):
            (PROBLEMS[self.how] if isinstance(self.how, str) else self.how)()

    def layer_support(self, options: Options) -> LayerSupport:
        return _Picky(self.inner.layer_support(options), self.only)

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        self.fail("compile")
        return super().optimize_subgraph(view, options)

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        workload_factory = super().create_workload_factory(memory_manager, options)
        create = workload_factory.create_workload

        def create_workload(layer: Layer, info: WorkloadInfo) -> Workload:
            self.fail("workload")
            return self._counting(create(layer, info))

        workload_factory.create_workload = create_workload  # type: ignore[method-assign]
        return workload_factory

    def _counting(self, workload: Workload) -> Workload:
        execute = workload.execute

        def counted(*handles: Any) -> None:
            self.fail()
            execute(*handles)

        workload.execute = counted  # type: ignore[method-assign]
        workload.prepare = lambda inputs, outputs: lambda: counted(inputs, outputs)  # type: ignore[method-assign]
        return workload


class _Picky(LayerSupport):
    def __init__(self, inner: LayerSupport, only: Sequence[type[Op]]) -> None:
        self.inner, self.only = inner, tuple(only)

    def query(self, view: SubgraphView) -> list[Support]:
        pairs = zip(view, self.inner.query(view), strict=True)
        return [
            verdict if not self.only or isinstance(layer.op, self.only) else Support.no("not its kind")
            for layer, verdict in pairs
        ]
