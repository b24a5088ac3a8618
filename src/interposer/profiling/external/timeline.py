"""Messages of the timeline: labels, entities, classes of events, relationships and events, and their directory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from interposer.core.errors import ParseError
from interposer.profiling.external.guids import static_guid
from interposer.profiling.external.messages import swtrace, swtrace_at

__all__ = [
    "END_OF_LIFE",
    "START_OF_LIFE",
    "Entity",
    "Event",
    "EventClass",
    "Label",
    "Message",
    "Relation",
    "Relationship",
    "decode_messages",
    "encode_messages",
    "timeline_directory",
    "well_known_labels",
]


class Relation(IntEnum):
    """The kinds of relationships: of parts, of executions, of data, and of labels."""

    RETENTION = 0
    EXECUTION = 1
    DATA = 2
    LABEL = 3


class Label(NamedTuple):
    """A text, which has an identifier."""

    guid: int
    text: str


class Entity(NamedTuple):
    """An object, such as a network, a layer or an inference."""

    guid: int


class EventClass(NamedTuple):
    """A class of events, whose name is a label."""

    guid: int
    name: int


class Relationship(NamedTuple):
    """A relationship from `head` to `tail`; `attribute` is the label that says what it means."""

    kind: int
    guid: int
    head: int
    tail: int
    attribute: int


class Event(NamedTuple):
    """Something that happened `at` a moment, in nanoseconds of the client's clock, in a thread."""

    at: int
    thread: int
    guid: int


Message: TypeAlias = "Label | Entity | EventClass | Relationship | Event"

START_OF_LIFE: Final = static_guid("ARMNN_PROFILING_SOL")
END_OF_LIFE: Final = static_guid("ARMNN_PROFILING_EOL")
"""The classes of the events at which an object begins and ends."""

_LABELS: Final = (
    "name", "type", "index", "backendId", "child", "execution_of", "processId", "layer", "workload", "network",
    "connection", "inference", "workload_execution",
)  # fmt: skip
_FORMS: Final[dict[int, tuple[type, str]]] = {
    1: (Entity, "Q"),
    2: (EventClass, "QQ"),
    3: (Relationship, "IQQQQ"),
    4: (Event, "QIQ"),
}
_NUMBERS: Final = {kind: number for number, (kind, _) in _FORMS.items()}
_DECLARATIONS: Final = (
    ("declareLabel", "declare label", "ps", "guid,value"),
    ("declareEntity", "declare entity", "p", "guid"),
    ("declareEventClass", "declare event class", "pp", "guid,nameGuid"),
    (
        "declareRelationship", "declare relationship", "Ipppp",
        "relationshipType,relationshipGuid,headGuid,tailGuid,attributeGuid",
    ),
    ("declareEvent", "declare event", "@tp", "timestamp,threadId,eventGuid"),
)  # fmt: skip


def timeline_directory(order: str = "<") -> bytes:
    """Return the body of the packet that declares the messages, without its last four bytes, as Arm NN sends it.

    Arm NN's length of the body leaves out the number of declarations. The four bytes that are missing are zeros at the
    end of the last text.
    """
    declarations = b"".join(
        struct.pack(f"{order}I", number) + b"".join(swtrace(text, order) for text in texts)
        for number, texts in enumerate(_DECLARATIONS)
    )
    body = struct.pack("BBB", 4, 8, 4) + struct.pack(f"{order}I", len(_DECLARATIONS)) + declarations
    return body[:-4]


def well_known_labels() -> list[Message]:
    """Return the messages that declare the labels that all timelines use, and the classes of events."""
    messages: list[Message] = [Label(static_guid(text), text) for text in _LABELS]
    for text, guid in (("start_of_life", START_OF_LIFE), ("end_of_life", END_OF_LIFE)):
        messages += [Label(static_guid(text), text), EventClass(guid, static_guid(text))]
    return messages


def encode_messages(messages: Sequence[Message], order: str = "<") -> list[bytes]:
    """Return each message as bytes."""
    return [_encoded(message, order) for message in messages]


def _encoded(message: Message, order: str) -> bytes:
    if isinstance(message, Label):
        return struct.pack(f"{order}IQ", 0, message.guid) + swtrace(message.text, order)
    number = _NUMBERS[type(message)]
    return struct.pack(f"{order}I{_FORMS[number][1]}", number, *message)


def decode_messages(body: bytes, order: str = "<") -> Iterator[Message]:
    """Yield the messages in the body of a packet; raise `ParseError` if it is damaged."""
    offset = 0
    while offset < len(body):
        message, offset = _message_at(body, offset, order)
        yield message


def _message_at(body: bytes, offset: int, order: str) -> tuple[Message, int]:
    try:
        (number,) = struct.unpack_from(f"{order}I", body, offset)
        if number == 0:
            (guid,) = struct.unpack_from(f"{order}Q", body, offset + 4)
            text, end = swtrace_at(body, offset + 12, order)
            return Label(guid, text), end
        if number not in _FORMS:
            raise ParseError(f"message {number} of the timeline at byte {offset} is unknown")
        kind, form = _FORMS[number]
        fields = struct.unpack_from(f"{order}{form}", body, offset + 4)
        return kind(*fields), offset + 4 + struct.calcsize(f"{order}{form}")
    except struct.error:
        raise ParseError(f"the timeline ends at byte {len(body)}, within the message at byte {offset}") from None
