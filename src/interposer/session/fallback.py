"""Doing without a backend that failed: which ones a model still uses, and which one an error is the fault of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from interposer.backend import BackendEvent
from interposer.backend.isolated import PLACED_ANEW
from interposer.errors import InterposerError
from interposer.ir.network import Network
from interposer.ir.optimized import OptimizedNetwork
from interposer.optimizer import OptimizerOptions, optimize
from interposer.runtime import Runtime
from interposer.session.placement.plan import Plan

__all__ = ["AUTO", "Choice", "asks_to_measure", "culprit"]

AUTO: Final = "auto"
"""What stands for the fastest mix of all backends."""
_log = logging.getLogger("interposer.session")


def culprit(error: BaseException) -> str:
    """The id of the backend whose fault an error is, as far as it tells; of several, the one that failed first."""
    named = [str(one.backend) for one in _causes(error) if getattr(one, "backend", "")]  # type: ignore[attr-defined]
    return named[-1] if named else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_auto(backends: Iterable[str] | None) -> bool:
    return backends == AUTO or (isinstance(backends, list | tuple) and list(backends) == [AUTO])


def asks_to_measure(backends: Iterable[str] | None, options: OptimizerOptions | None) -> bool:
    """Whether the placement is to be found by measuring."""
    return _is_auto(backends) or (options is not None and options.placement == "measured")


class Choice:
    """The backends of a model in order of preference, without those that failed it; None prefers all, CpuRef last.

    "auto" measures which mix is the fastest, and `plan` is such a mix. Where `fallback` is not allowed, none is ever
    put aside. Not safe to change from several threads.
    """

    def __init__(
        self,
        runtime: Runtime,
        backends: Iterable[str] | None,
        options: OptimizerOptions | None,
        fallback: bool,
        plan: Plan | None = None,
    ) -> None:
        self.runtime, self.fallback, self.plan = runtime, fallback, plan
        self.used_plan = plan
        if asks_to_measure(backends, options):
            options = replace(options or OptimizerOptions(), placement="measured")
            backends = None if _is_auto(backends) else backends
        self.events: list[BackendEvent] = []
        self._backends = tuple(backends) if isinstance(backends, Iterator) else backends
        self._options = options
        self._aside: set[str] = set()

    def optimized(self, network: Network) -> OptimizedNetwork:
        """The network, divided among the backends that are left."""
        options = OptimizerOptions() if self._options is None else self._options
        if not self._aside and self._is_measured(options):
            return self._measured(network, options)
        if not self._aside:
            return optimize(network, self._backends, self.runtime.device_spec, self._options)
        hints = {layer: backend for layer, backend in options.hints.items() if backend not in self._aside}
        return optimize(network, self._left(), self.runtime.device_spec, replace(options, hints=hints))

    def _is_measured(self, options: OptimizerOptions) -> bool:
        return self.plan is not None or options.placement == "measured"

    def _measured(self, network: Network, options: OptimizerOptions) -> OptimizedNetwork:
        from interposer.session.placement.measured import Search, place, planned  # noqa: PLC0415 - seldom needed

        plan = self.plan
        if plan is None:
            plan = place(network, self.runtime, self._backends, options, Search(options.budget_seconds))
        self.used_plan = plan
        return planned(network, plan, self.runtime, options)

    def _left(self) -> list[str]:
        if self._backends is None and self.used_plan is not None:
            return [backend for backend in self.used_plan.backends if backend not in self._aside]
        preferred = self.runtime.device_spec.default_backends if self._backends is None else self._backends
        ids = [preferred] if isinstance(preferred, str) else list(preferred)
        return [backend for backend in ids if backend not in self._aside]

    def put_aside(self, error: InterposerError) -> str:
        """Do without the backend whose fault an error is; gives its id, or nothing where that cannot be done."""
        failed = culprit(error)
        if not self.fallback or failed in self._aside or failed not in self._left():
            return ""
        self._aside.add(failed)
        if not self._left():
            self._aside.remove(failed)
            return ""
        return failed

    def note(self, failed: str, error: InterposerError, name: str) -> None:
        """Write down that a network runs without a backend from here on."""
        text = f"the model {name!r} runs without it from here on, as it failed: {str(error).splitlines()[0]}"
        event = BackendEvent(failed, PLACED_ANEW, text)
        self.events.append(event)
        self.runtime.registry.record(event)
        _log.warning("%s", event)
