"""What a client has sent: its metadata, counters, captures and timeline, and the recording that they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

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

    def _relate(self, item: Relationship) -> None:
        if not self._is_stored(item):
            return
        if item.kind == Relation.LABEL:
            self._object(item.head).labels[item.attribute] = item.tail
        elif item.kind == Relation.EXECUTION and item.attribute == START_OF_LIFE:
            self._object(item.head).begin = self._events.pop(item.tail, None)
        elif item.kind == Relation.EXECUTION and item.attribute == END_OF_LIFE:
            self._object(item.head).end = self._events.pop(item.tail, None)
        elif item.kind == Relation.RETENTION and item.attribute == _EXECUTION_OF:
            self._object(item.tail).executed = item.head
        elif item.kind == Relation.RETENTION and item.attribute == _CHILD:
            self._object(item.tail).parents[item.head] = None

    def _is_stored(self, item: Relationship) -> bool:
        """Return True if the object that the relationship describes is stored, or there is room for it."""
        guid = item.tail if item.kind == Relation.RETENTION else item.head
        return guid in self._objects or self._has_room(1)

    def _object(self, guid: int) -> _Object:
        return self._objects.setdefault(guid, _Object())

    def steps(self) -> Iterator[Execution]:
        """Yield the steps that backends have measured; streams of Arm NN have none."""
        for guid in self._of_type(STEP):
            item = self._objects[guid]
            if item.begin is not None and item.end is not None:
                name, device = self._label(item, _NAME) or STEP, self._label(item, static_guid(DEVICE))
                begin, end, backend = item.begin.at, item.end.at, self._label(item, _BACKEND)
                yield Execution(name, "", -1, begin, end, item.begin.thread, backend, device)

    # --- the recording ------------------------------------------------------------------------------------------------

    def executions(self) -> Iterator[Execution]:
        """Yield the inferences that have ended, each before the executions of its workloads."""
        inferences = {guid: number for number, guid in enumerate(self._of_type("inference"))}
        layers = self._layers()
        for guid, number in inferences.items():
            item = self._objects[guid]
            if item.begin is not None and item.end is not None:
                name = self._network(item.executed)
                yield Execution(name, name, number, item.begin.at, item.end.at, item.begin.thread)
        for guid in self._of_type("workload_execution"):
            item = self._objects[guid]
            inference = next((parent for parent in list(item.parents) if parent in inferences), None)
            if item.begin is None or item.end is None or inference is None:
                continue
            workload = None if item.executed is None else self._objects.get(item.executed)
            layer = None if item.executed is None else layers.get(item.executed)
            yield Execution(
                self._label(layer, _NAME) or "workload", self._network(self._objects[inference].executed),
                inferences[inference], item.begin.at, item.end.at, item.begin.thread, self._label(workload, _BACKEND),
            )  # fmt: skip

    def _of_type(self, name: str) -> list[int]:
        kind = static_guid(name)
        return [guid for guid, item in list(self._objects.items()) if item.labels.get(_TYPE) == kind]

    def _label(self, item: _Object | None, meaning: int) -> str:
        guid = None if item is None else item.labels.get(meaning)
        return "" if guid is None else self._labels.get(guid, "")

    def _layers(self) -> dict[int, _Object | None]:
        """Return the layer of each workload.

        Arm NN 20.08 lists each workload of a network below every layer if the timeline is asked for later. Both are
        in the order of execution, so the first workload is that of the first layer.
        """
        siblings: dict[tuple[int, ...], list[int]] = {}
        for guid in self._of_type("workload"):
            siblings.setdefault(tuple(self._objects[guid].parents), []).append(guid)
        result: dict[int, _Object | None] = {}
        for parents, guids in siblings.items():
            several = len(parents) == len(guids) > 1
            for place, guid in enumerate(guids):
                result[guid] = self._objects.get(parents[place if several else 0]) if parents else None
        return result

    def _network(self, guid: int | None) -> str:
        return "network" if guid is None else f"network {guid}"

    def recording(self) -> Recording:
        """Return the executions and captures as a recording, which can be written as a trace."""
        networks: dict[str, TracedNetwork] = {}
        intervals = []
        for item in self.executions():
            network = networks.setdefault(item.network, TracedNetwork(item.network, len(networks), len(networks)))
            category = Category.LAYER if item.backend else Category.RUN
            site = Site(category, item.name, network=network, layer=item.name, backend=item.backend)
            intervals.append(Interval(site, item.begin, item.end, item.thread, item.inference, item.inference))
        for item in self.steps():
            site = Site(Category.KERNEL, item.name, backend=item.backend, device=item.device)
            intervals.append(Interval(site, item.begin, item.end, item.thread))
        ordered = sorted(intervals, key=lambda item: (item.begin, -item.end))
        threads = {item.thread: f"thread {item.thread}" for item in ordered if item.thread}
        return Recording(tuple(ordered), (), tuple(self._samples()), self.dropped, threads)

    def _samples(self) -> Iterator[Sample]:
        known = {} if self.directory is None else self.directory.by_number()
        counters: dict[int, Counter] = {}
        for capture in list(self.captures):
            for number, value in capture.values:
                item = known.get(number)
                if number not in counters:
                    counters[number] = Counter(
                        item.name if item is not None else f"counter {number}",
                        item.units if item is not None and item.units else "events",
                        CounterClass.EVENT if item is None or not item.kind else CounterClass.VALUE,
                        number=number,
                    )
                yield Sample(counters[number], capture.at, value * (1.0 if item is None else item.multiplier))
