"""The proxies of the contexts of a backend in a child process."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from interposer.backend.base import BackendContext
from interposer.backend.capabilities import Options
from interposer.core.errors import BackendCrashedError
from interposer.isolation.life import Life
from interposer.isolation.profiling import CounterSamples, counter_of
from interposer.isolation.supervisor import Supervisor
from interposer.isolation.wire import reading
from interposer.profiling.backends import BackendProfiling, BackendProfilingContext, CounterTimestamp

__all__ = ["RemoteContext", "RemoteProfilingContext"]

_numbers: Final = itertools.count(1)


class RemoteContext(BackendContext):
    """The host's proxy of the backend context in the child process: it forwards notices about loading and unloading.

    A restarted child is notified again of the loaded networks.
    """

    def __init__(self, supervisor: Supervisor, options: Options) -> None:
        self.supervisor = supervisor
        self.number = next(_numbers)
        self.is_made = False
        self._request = {"do": "context", "context": self.number, "options": dict(options)}
        self._loaded_networks: dict[int, None] = {}
        self._life: Life | None = None
        supervisor.call(self.ensure)
        if self.is_made:
            supervisor.first.add(self)
            supervisor.forget(self, "context", self.number)

    def ensure(self, life: Life) -> None:
        """Create the context in the child process `life` and notify it of loaded networks, unless it exists there."""
        if self._life is life:
            return
        seconds = self.supervisor.how.deadline_seconds
        self.is_made = life.ask(self._request, "create_backend_context", seconds).get("made") is True
        self._life = life
        for network in self._loaded_networks:
            self._notice("before_load_network", network, life)
            self._notice("after_load_network", network, life)

    def _notice(self, notice: str, network: int, life: Life) -> bool:
        self.ensure(life)
        request = {"do": "notice", "context": self.number, "notice": notice, "network": network}
        return life.ask(request, notice, self.supervisor.how.deadline_seconds).get("agrees") is True

    def before_load_network(self, network_id: int) -> bool:
        """Notify the context in the child; return False if it refuses the network."""
        return self.supervisor.call(lambda life: self._notice("before_load_network", network_id, life))

    def after_load_network(self, network_id: int) -> bool:
        """Notify the context in the child; return False if it refuses the network.

        Restarted children are notified of the network too.
        """
        agrees = self.supervisor.call(lambda life: self._notice("after_load_network", network_id, life))
        self._loaded_networks[network_id] = None
        return agrees

    def before_unload_network(self, network_id: int) -> bool:
        """Notify the context in the child, if the process is running; return False if the context reports a failure."""
        return self._if_running("before_unload_network", network_id)

    def after_unload_network(self, network_id: int) -> bool:
        """Notify the context in the child, if the process is running; return False if the context reports a failure."""
        self._loaded_networks.pop(network_id, None)
        return self._if_running("after_unload_network", network_id)

    def _if_running(self, notice: str, network: int) -> bool:
        if not self.supervisor.running:
            return True
        try:
            return self.supervisor.once(lambda life: self._notice(notice, network, life))
        except BackendCrashedError:  # recorded as an event
            return True


class RemoteProfilingContext(BackendProfilingContext):
    """The host's proxy of a profiling context in the child process, which records with the others of the child.

    A restarted child gets a new context with the same counters.
    """

    def __init__(self, supervisor: Supervisor, options: Options, profiling: BackendProfiling) -> None:
        self.supervisor, self._profiling = supervisor, profiling
        self._events = CounterSamples(next(_numbers))
        self.is_made = False
        self._request = {"do": "profiling_context", "context": self._events.number, "options": dict(options)}
        self._greatest_counter_id: int | None = None
        self._described: list[Any] = []
        self._life: Life | None = None
        self._enabled = False, False
        self._selection: tuple[int, tuple[int, ...]] = 0, ()
        supervisor.call(self.ensure)
        if self.is_made:
            supervisor.stream.add_context(self._events)
            supervisor.first.add(self)
            supervisor.forget(self, "profiling context", self._events.number)

    def ensure(self, life: Life) -> None:
        """Create the context in the child process `life` with its counters, unless it exists there already."""
        if self._life is life:
            return
        seconds = self.supervisor.how.deadline_seconds
        self.supervisor.stream.connect(life, seconds)
        self.is_made = life.ask(self._request, "create_backend_profiling_context", seconds).get("made") is True
        if self.is_made and self._greatest_counter_id is not None:
            descriptions = self._registered(life, self._greatest_counter_id)
            if descriptions != self._described:
                raise life.garbage("it registers other counters than before", "register_counters")
            if self._enabled[0]:
                self._enable(*self._enabled)
                self.supervisor.stream.select(self._events.number, *self._selection)
        self._life = life

    def _registered(self, life: Life, greatest: int) -> list[Any]:
        request = {"do": "counters", "context": self._events.number, "greatest": greatest}
        answer = life.ask(request, "register_counters", self.supervisor.how.deadline_seconds)
        return list(answer.get("counters", ()))

    def register_counters(self, current_max_counter_id: int) -> int:
        """Register the counters of the context in the child; they have the same numbers here."""

        def action(life: Life) -> list[Any]:
            self.ensure(life)
            return self._registered(life, current_max_counter_id)

        self._described = self.supervisor.call(action)
        self._greatest_counter_id = current_max_counter_id
        with reading("the answer of register_counters"):
            counters = [counter_of(description) for description in self._described]
        self._events.counters = self._profiling.adopt(current_max_counter_id, counters)
        return max([current_max_counter_id, *self._events.counters])

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        """Choose the counters that the context in the child captures, and take the last values of those before."""
        if self._selection[1]:
            self.supervisor.stream.flush()
            self._profiling.report_counters(self.report_counter_values())
        self._selection = capture_period, tuple(counter_ids)
        return self.supervisor.stream.select(self._events.number, *self._selection)

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        """Return the values that the child has sent since the previous call."""
        samples = self._events.samples
        return [samples.popleft() for _ in range(len(samples))]

    def enable_profiling(self, enable: bool) -> bool:
        """Let the context in the child begin or end to measure, and take its last values of counters at the end."""
        self._enable(enable, self._enabled[1])
        if not enable:
            self._profiling.report_counters(self.report_counter_values())
        return True

    def enable_timeline_reporting(self, enable: bool) -> bool:
        """Let the context in the child begin or end to report intervals."""
        self._enable(self._enabled[0], enable)
        return True

    def _enable(self, profiling: bool, timeline: bool) -> None:
        self._enabled = profiling, timeline
        self.supervisor.stream.enable(self._events.number, profiling, timeline)
