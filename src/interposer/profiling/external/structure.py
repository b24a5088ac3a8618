"""Timelines of networks and their runs, as messages: what exists, and when it began and ended."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Final

from interposer.core.records import dataclass
from interposer.profiling.events import Category, Interval
from interposer.profiling.external.guids import Guids, static_guid
from interposer.profiling.external.timeline import (
    END_OF_LIFE,
    START_OF_LIFE,
    Entity,
    Event,
    Label,
    Message,
    Relation,
    Relationship,
)
from interposer.profiling.summary import is_step

__all__ = ["DEVICE", "STEP", "LayerOutline", "NetworkOutline", "Structure"]

_CHILD, _EXECUTION_OF, _CONNECTION = (static_guid(text) for text in ("child", "execution_of", "connection"))
_TYPE, _NAME, _BACKEND, _PROCESS = (static_guid(text) for text in ("type", "name", "backendId", "processId"))
STEP: Final = "step"
DEVICE: Final = "device"
"""Labels that Arm NN does not have: the type of a step that a backend has measured, and the device of one."""
_THREAD: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class LayerOutline:
    """A layer of a loaded network: its name, the positions of the layers that it reads, and the backend that runs it.

    `backend` is empty for inputs and outputs of the network, which no backend runs. `kind` is the name of its operator.
    """

    name: str
    sources: tuple[int, ...] = ()
    backend: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class NetworkOutline:
    """The layers of a loaded network in the order of execution. `number` is that of its `TracedNetwork`."""

    number: int
    layers: tuple[LayerOutline, ...]


@dataclass(slots=True)
class _Guids:
    """The identifiers of a network, its layers and their workloads, which are known by the names of the layers."""

    guid: int
    layers: list[int]
    workloads: dict[str, int]


class Structure:
    """Creates the messages about networks and their runs. Not thread-safe.

    The messages have the order in which Arm NN 20.08 sends them.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._guids = Guids()
        self._guids_of_network: dict[int, _Guids] = {}
        self._outlines: dict[int, NetworkOutline] = {}
        self._native_threads: dict[int, int] = {}

    def add(self, outline: NetworkOutline) -> None:
        """Make a network known, without messages; `network` creates them."""
        layers = [self._guids.next() for _ in outline.layers]
        network = self._guids.next()
        workloads = {layer.name: self._guids.next() for layer in outline.layers if layer.backend}
        self._guids_of_network[outline.number] = _Guids(network, layers, workloads)
        self._outlines[outline.number] = outline

    def remove(self, number: int) -> None:
        """Forget a network that is unloaded."""
        self._guids_of_network.pop(number, None)
        self._outlines.pop(number, None)

    @property
    def networks(self) -> list[int]:
        """The numbers of the networks that are known."""
        return list(self._guids_of_network)

    def network(self, number: int, *, begins: bool) -> list[Message]:
        """Return the messages about a network and its layers; with `begins`, also that it begins to exist now."""
        guids, outline = self._guids_of_network[number], self._outlines[number]
        self._native_threads = _native_ids()
        messages = [Entity(guids.guid), self._is_a(guids.guid, "network")]
        if begins:
            messages += self._event(guids.guid, self._clock(), get_ident(), START_OF_LIFE)
            messages += self._labelled(guids.guid, str(os.getpid()), _PROCESS)
        for position, layer in enumerate(outline.layers):
            messages += self._layer(guids, position, layer)
        return messages

    def _layer(self, guids: _Guids, position: int, layer: LayerOutline) -> list[Message]:
        guid = guids.layers[position]
        messages = [Entity(guid), *self._labelled(guid, layer.name, _NAME), self._is_a(guid, "layer")]
        messages.append(self._relation(Relation.RETENTION, guids.guid, guid, _CHILD))
        for source in layer.sources:
            messages.append(self._relation(Relation.RETENTION, guids.layers[source], guid, _CONNECTION))
        if layer.backend:
            messages += self._workload(guids.workloads[layer.name], guid, layer.backend)
        return messages

    def _workload(self, guid: int, layer: int, backend: str) -> list[Message]:
        messages = [Entity(guid), self._is_a(guid, "workload"), *self._labelled(guid, backend, _BACKEND)]
        return [*messages, self._relation(Relation.RETENTION, layer, guid, _CHILD)]

    def run(self, number: int, intervals: Sequence[Interval]) -> list[list[Message]]:
        """Return the messages about a run of a network, one list for each packet or group of packets.

        The inputs and outputs have workloads of their own in each run, which take in and give out tensors of the
        caller; they are attributed to the backend of the first layer, and share the time before and after the layers
        equally. The list is empty if the network is not known.
        """
        run_interval = next((interval for interval in intervals if interval.site.category is Category.RUN), None)
        if number not in self._guids_of_network or run_interval is None:
            return []
        guids, outline = self._guids_of_network[number], self._outlines[number]
        self._native_threads = _native_ids()
        backend = next((layer.backend for layer in outline.layers if layer.backend), "")
        copies: list[list[Message]] = []
        input_parts: list[tuple[int, Interval]] = []
        output_parts: list[tuple[int, Interval]] = []
        border = [position for position, layer in enumerate(outline.layers) if not layer.backend]
        outputs = [position for position in border if outline.layers[position].kind == "Output"]
        inputs = [position for position in border if position not in outputs]
        input_phase, output_phase = _phases(run_interval, intervals)
        for positions, phase, parts in ((inputs, input_phase, input_parts), (outputs, output_phase, output_parts)):
            for position, share in zip(positions, _shares(phase, len(positions)), strict=True):
                workload = self._guids.next()
                copies.append(self._workload(workload, guids.layers[position], backend))
                parts.append((workload, share))
        layer_parts = [
            (guids.workloads[interval.site.layer], interval) for interval in intervals if _is_workload(interval, guids)
        ]
        steps = [self.step(interval) for interval in intervals if is_step(interval)]
        return [*copies, self._inference(guids.guid, run_interval, [*input_parts, *layer_parts, *output_parts]), *steps]

    def step(self, interval: Interval) -> list[Message]:
        """Return the messages about an interval that a backend has measured: its name, backend, device and times."""
        guid, site = self._guids.next(), interval.site
        messages = [Entity(guid), *self._labelled(guid, site.name, _NAME), *self._labelled(guid, STEP, _TYPE)]
        messages += self._labelled(guid, site.backend, _BACKEND)
        if site.device:
            messages += [Label(static_guid(DEVICE), DEVICE), *self._labelled(guid, site.device, static_guid(DEVICE))]
        messages += self._event(guid, interval.begin, interval.thread, START_OF_LIFE)
        return [*messages, *self._event(guid, interval.end, interval.thread, END_OF_LIFE)]

    def _inference(self, network: int, run_interval: Interval, parts: Iterable[tuple[int, Interval]]) -> list[Message]:
        guid = self._guids.next()
        messages = [Entity(guid), self._is_a(guid, "inference")]
        messages.append(self._relation(Relation.RETENTION, network, guid, _EXECUTION_OF))
        messages += self._event(guid, run_interval.begin, run_interval.thread, START_OF_LIFE)
        for workload, interval in parts:
            messages += self._execution(guid, workload, interval)
        return [*messages, *self._event(guid, run_interval.end, run_interval.thread, END_OF_LIFE)]

    def _execution(self, inference: int, workload: int, interval: Interval) -> list[Message]:
        guid = self._guids.next()
        messages: list[Message] = [Entity(guid), self._is_a(guid, "workload_execution")]
        messages.append(self._relation(Relation.RETENTION, inference, guid, _CHILD))
        messages.append(self._relation(Relation.RETENTION, workload, guid, _EXECUTION_OF))
        messages += self._event(guid, interval.begin, interval.thread, START_OF_LIFE)
        return [*messages, *self._event(guid, interval.end, interval.thread, END_OF_LIFE)]

    def _relation(self, kind: Relation, head: int, tail: int, attribute: int) -> Message:
        return Relationship(kind, self._guids.next(), head, tail, attribute)

    def _is_a(self, guid: int, kind: str) -> Message:
        return self._relation(Relation.LABEL, guid, static_guid(kind), _TYPE)

    def _labelled(self, guid: int, text: str, attribute: int) -> list[Message]:
        label = Label(static_guid(text), text)
        return [label, self._relation(Relation.LABEL, guid, label.guid, attribute)]

    def _event(self, guid: int, at: int, thread: int, kind: int) -> list[Message]:
        event = Event(at, self._native_threads.get(thread, thread) & _THREAD, self._guids.next())
        return [event, self._relation(Relation.EXECUTION, guid, event.guid, kind)]


def _is_workload(interval: Interval, guids: _Guids) -> bool:
    return interval.site.layer in guids.workloads and not is_step(interval)


def _phases(run: Interval, intervals: Sequence[Interval]) -> tuple[Interval, Interval]:
    """Return the intervals before and after the layers of a run: of its inputs, and of its outputs."""
    execute = next((interval for interval in intervals if interval.site.category is Category.EXECUTE), run)
    first = Interval(run.site, run.begin, execute.begin, run.thread)
    return first, Interval(run.site, execute.end, run.end, run.thread)


def _shares(phase: Interval, count: int) -> list[Interval]:
    """Return an interval divided into equal ones, as it is not measured how long each input or output took."""
    moments = (
        [phase.begin + (phase.end - phase.begin) * number // count for number in range(count + 1)] if count else []
    )
    return [Interval(phase.site, begin, end, phase.thread) for begin, end in itertools.pairwise(moments)]


def _native_ids() -> dict[int, int]:
    """Return the thread ids of the operating system by Python's; threads that have ended are missing."""
    return {thread.ident: thread.native_id for thread in threading.enumerate() if thread.ident and thread.native_id}
