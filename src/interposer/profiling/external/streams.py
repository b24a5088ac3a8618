"""What a client has sent: its metadata, counters, captures and timeline, and the recording that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.profiling.events import Category, Counter, CounterClass, Interval, Sample, Site, TracedNetwork
from interposer.profiling.external.guids import static_guid
from interposer.profiling.external.messages import (
    Capture,
    Directory,
    Selection,
    StreamMetadata,
    decode_capture,
    decode_directory,
    decode_metadata,
    decode_selection,
)
from interposer.profiling.external.packets import Kind, Packet
from interposer.profiling.external.structure import DEVICE, STEP
from interposer.profiling.external.timeline import (
    END_OF_LIFE,
    START_OF_LIFE,
    Event,
    Label,
    Relation,
    Relationship,
    decode_messages,
)
from interposer.profiling.recorder import Recording

__all__ = ["Execution", "Room", "Stream"]

_NAME, _TYPE, _BACKEND, _CHILD, _EXECUTION_OF = (
    static_guid(text) for text in ("name", "type", "backendId", "child", "execution_of")
)
MOST_OBJECTS: Final = 1 << 21
"""The most objects and captured values that are stored; later ones are counted and dropped."""
MOST_BYTES: Final = 1 << 28
"""The most bytes of packets whose content is stored."""
_MOST_KINDS: Final = 64
_OTHERS: Final = "others"


@dataclass(slots=True)
class Room:
    """How much the streams of a collector may keep together: objects, and bytes of packets. Not exact with threads."""

    objects: int = MOST_OBJECTS
    bytes: int = MOST_BYTES

    def take(self, objects: int, size: int = 0) -> bool:
        """Take so many objects and bytes; return False without taking any if there is no room for them."""
        if objects > self.objects or size > self.bytes:
            return False
        self.objects -= objects
        self.bytes -= size
        return True


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a network, a workload, or a step that a backend has measured.

    It has what was executed, its begin and end in nanoseconds, and its thread. `backend` is empty for a whole
    inference. `inference` numbers the inferences of the stream from 0. It is -1 for a step, which has no network, but
    may have a device.
    """

    name: str
    network: str
    inference: int
    begin: int
    end: int
    thread: int
    backend: str = ""
    device: str = ""


@dataclass(slots=True)
class _Object:
    """An object of the timeline: its labels by their meaning, what it is part of, and the events of its life."""

    labels: dict[int, int] = field(default_factory=dict)
    parents: dict[int, None] = field(default_factory=dict)
    executed: int | None = None
    begin: Event | None = None
    end: Event | None = None


class Stream:
    """Decodes the packets of one client. Not thread-safe.

    Args:
        order: the order of bytes of the client.
        room: how much is stored; None for a stream that shares it with no other one.

    Attributes:
        metadata: who the client is; None before its first packet.
        directory: its counters; None before it has sent them.
        captures: the captured values, in the order in which they came.
        packets: the number of packets of each kind, by name.
        dropped: the number of packets and objects that were dropped, because there were too many.
    """

    def __init__(self, order: str = "<", room: Room | None = None) -> None:
        self._order = order
        self._room = Room() if room is None else room
        self.metadata: StreamMetadata | None = None
        self.directory: Directory | None = None
        self.selection: Selection | None = None
        self.captures: list[Capture] = []
        self.packets: dict[str, int] = {}
        self.dropped = 0
        self._labels: dict[int, str] = {}
        self._objects: dict[int, _Object] = {}
        self._events: dict[int, Event] = {}

    def add(self, packet: Packet) -> Any:
        """Decode a packet, and return what it contains: an object of `messages`, a list of messages, or None.

        Raises:
            ParseError: the packet is damaged; what came before stays.
        """
        kind, order = packet.kind, self._order
        name = kind.name if kind is not None else f"{packet.word:#010x}"
        if name not in self.packets and len(self.packets) >= _MOST_KINDS:
            name = _OTHERS
        self.packets[name] = self.packets.get(name, 0) + 1
        match kind:
            case Kind.STREAM_METADATA:
                self.metadata = decode_metadata(packet.body, order)
                return self.metadata
            case Kind.COUNTER_DIRECTORY:
                self.directory = decode_directory(packet.body, order)
                return self.directory
            case Kind.COUNTER_SELECTION:
                self.selection = decode_selection(packet.body, order)
                return self.selection
            case Kind.COUNTER_CAPTURE:
                capture = decode_capture(packet.body, order)
                if self._has_room(len(capture.values) + 1, len(packet.body)):
                    self.captures.append(capture)
                return capture
            case Kind.TIMELINE_MESSAGE:
                messages = list(decode_messages(packet.body, order))
                if self._has_room(0, len(packet.body)):
                    for message in messages:
                        self._take(message)
                return messages
        return None

    def _has_room(self, objects: int, size: int = 0) -> bool:
        fits = self._room.take(objects, size)
        self.dropped += not fits
        return fits

    def _take(self, message: object) -> None:
        if isinstance(message, Label):
            if message.guid in self._labels or self._has_room(1):
                self._labels[message.guid] = message.text
        elif isinstance(message, Event):
            if message.guid in self._events or self._has_room(1):
                self._events[message.guid] = message
        elif isinstance(message, Relationship):
            self._relate(message)

    def _relate(self, relationship: Relationship) -> None:
        if not self._is_stored(relationship):
            return
        if relationship.kind == Relation.LABEL:
            self._object(relationship.head).labels[relationship.attribute] = relationship.tail
        elif relationship.kind == Relation.EXECUTION and relationship.attribute == START_OF_LIFE:
            self._object(relationship.head).begin = self._events.pop(relationship.tail, None)
        elif relationship.kind == Relation.EXECUTION and relationship.attribute == END_OF_LIFE:
            self._object(relationship.head).end = self._events.pop(relationship.tail, None)
        elif relationship.kind == Relation.RETENTION and relationship.attribute == _EXECUTION_OF:
            self._object(relationship.tail).executed = relationship.head
        elif relationship.kind == Relation.RETENTION and relationship.attribute == _CHILD:
            self._object(relationship.tail).parents[relationship.head] = None

    def _is_stored(self, relationship: Relationship) -> bool:
        """Return True if the object that the relationship describes is stored, or there is room for it."""
        guid = relationship.tail if relationship.kind == Relation.RETENTION else relationship.head
        return guid in self._objects or self._has_room(1)

    def _object(self, guid: int) -> _Object:
        return self._objects.setdefault(guid, _Object())

    def steps(self) -> Iterator[Execution]:
        """Yield the steps that backends have measured; streams of Arm NN have none."""
        for guid in self._of_type(STEP):
            step = self._objects[guid]
            if step.begin is not None and step.end is not None:
                name, device = self._label(step, _NAME) or STEP, self._label(step, static_guid(DEVICE))
                begin, end, backend = step.begin.at, step.end.at, self._label(step, _BACKEND)
                yield Execution(name, "", -1, begin, end, step.begin.thread, backend, device)

    # --- the recording ------------------------------------------------------------------------------------------------

    def executions(self) -> Iterator[Execution]:
        """Yield the inferences that have ended, each before the executions of its workloads."""
        inferences = {guid: number for number, guid in enumerate(self._of_type("inference"))}
        layers = self._layers()
        for guid, number in inferences.items():
            execution = self._objects[guid]
            if execution.begin is not None and execution.end is not None:
                name = self._network(execution.executed)
                yield Execution(name, name, number, execution.begin.at, execution.end.at, execution.begin.thread)
        for guid in self._of_type("workload_execution"):
            execution = self._objects[guid]
            inference = next((parent for parent in list(execution.parents) if parent in inferences), None)
            if execution.begin is None or execution.end is None or inference is None:
                continue
            workload = None if execution.executed is None else self._objects.get(execution.executed)
            layer = None if execution.executed is None else layers.get(execution.executed)
            yield Execution(
                self._label(layer, _NAME) or "workload", self._network(self._objects[inference].executed),
                inferences[inference], execution.begin.at, execution.end.at, execution.begin.thread,
                self._label(workload, _BACKEND),
            )  # fmt: skip

    def _of_type(self, name: str) -> list[int]:
        kind = static_guid(name)
        return [guid for guid, candidate in list(self._objects.items()) if candidate.labels.get(_TYPE) == kind]

    def _label(self, labelled: _Object | None, meaning: int) -> str:
        guid = None if labelled is None else labelled.labels.get(meaning)
        return "" if guid is None else self._labels.get(guid, "")

    def _layers(self) -> dict[int, _Object | None]:
        """Return the layer of each workload.

        Arm NN 20.08 lists each workload of a network below every layer if the timeline is asked for later. Both are
        in the order of execution, so the first workload is that of the first layer.
        """
        siblings: dict[tuple[int, ...], list[int]] = {}
        for guid in self._of_type("workload"):
            siblings.setdefault(tuple(self._objects[guid].parents), []).append(guid)
        layer_of_workload: dict[int, _Object | None] = {}
        for parents, guids in siblings.items():
            is_by_position = len(parents) == len(guids) > 1
            for position, guid in enumerate(guids):
                layer_of_workload[guid] = (
                    self._objects.get(parents[position if is_by_position else 0]) if parents else None
                )
        return layer_of_workload

    def _network(self, guid: int | None) -> str:
        return "network" if guid is None else f"network {guid}"

    def recording(self) -> Recording:
        """Return the executions and captures as a recording, which can be written as a trace."""
        networks: dict[str, TracedNetwork] = {}
        intervals = []
        for execution in self.executions():
            network = networks.setdefault(
                execution.network, TracedNetwork(execution.network, len(networks), len(networks))
            )
            category = Category.LAYER if execution.backend else Category.RUN
            site = Site(category, execution.name, network=network, layer=execution.name, backend=execution.backend)
            intervals.append(
                Interval(
                    site,
                    execution.begin,
                    execution.end,
                    execution.thread,
                    execution.inference,
                    execution.inference,
                )
            )
        for step in self.steps():
            site = Site(Category.KERNEL, step.name, backend=step.backend, device=step.device)
            intervals.append(Interval(site, step.begin, step.end, step.thread))
        ordered_intervals = sorted(intervals, key=lambda interval: (interval.begin, -interval.end))
        threads = {interval.thread: f"thread {interval.thread}" for interval in ordered_intervals if interval.thread}
        return Recording(tuple(ordered_intervals), (), tuple(self._samples()), self.dropped, threads)

    def _samples(self) -> Iterator[Sample]:
        descriptions = {} if self.directory is None else self.directory.by_number()
        counters: dict[int, Counter] = {}
        for capture in list(self.captures):
            for number, value in capture.values:
                description = descriptions.get(number)
                if number not in counters:
                    counters[number] = Counter(
                        description.name if description is not None else f"counter {number}",
                        description.units if description is not None and description.units else "events",
                        CounterClass.EVENT if description is None or not description.kind else CounterClass.VALUE,
                        number=number,
                    )
                yield Sample(
                    counters[number], capture.at, value * (1.0 if description is None else description.multiplier)
                )
