"""Damaged variants of an ONNX model that are still well-formed messages: what they say is wrong, not how."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 7, 11, 1 << 16, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
Place = tuple[Message, FieldDescriptor, int]


def damaged_protos(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` variants with a name each; one to three fields of each are wrong, whatever the count is."""
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        model = onnx.ModelProto.FromString(data)
        done = [_damage(model, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        yield f"{seed}-{number:04d}-{'-'.join(done)}", model.SerializeToString()


def _damage(model: onnx.ModelProto, rng: random.Random) -> str:
    places = list(_places(model))
    message, field, index = rng.choice(places)
    change = rng.choice(_CHANGES_OF_LISTS if index >= 0 else _CHANGES)
    change(message, field, index, rng, places)
    return f"{change.__name__.strip('_')}-{message.DESCRIPTOR.name}.{field.name}"


def _places(message: Message) -> Iterator[Place]:
    for field, value in message.ListFields():
        items = list(value) if field.is_repeated else [value]
        for index, item in enumerate(items[:40]):
            yield message, field, index if field.is_repeated else -1
            if isinstance(item, Message):
                yield from _places(item)


def _clear(message: Message, field: FieldDescriptor, index: int, rng: random.Random, places: list[Place]) -> None:
    message.ClearField(field.name)


def _replace(message: Message, field: FieldDescriptor, index: int, rng: random.Random, places: list[Place]) -> None:
    old = getattr(message, field.name)
    if field.message_type is not None:
        other = [place for place in places if place[1].message_type is field.message_type]
        source, source_field, at = rng.choice(other)
        result = getattr(source, source_field.name)
        copy = type(result[at] if at >= 0 else result).FromString(
            (result[at] if at >= 0 else result).SerializeToString()
        )
        (old[index] if index >= 0 else old).CopyFrom(copy)
        return
    value = _other(old[index] if index >= 0 else old, rng, places)
    try:
        if index >= 0:
            old[index] = value
        else:
            setattr(message, field.name, value)
    except ValueError:
        message.ClearField(field.name)


def _other(value: Any, rng: random.Random, places: list[Place]) -> Any:
    if isinstance(value, bool | int):
        return rng.choice((*NUMBERS, int(value) + 1, int(value) - 1))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e38, 1e-40))
    texts = [getattr(m, f.name) for m, f, i in places if i < 0 and type(getattr(m, f.name)) is type(value)]
    if isinstance(value, bytes):
        cut = rng.randrange(len(value) + 1)
        return rng.choice((b"", value[:cut], value + b"\xff\x00", rng.randbytes(len(value) % 64)))
    return rng.choice(("", value + "x", "\u00e9\u0000", *texts[:50]))


def _drop(message: Message, field: FieldDescriptor, index: int, rng: random.Random, places: list[Place]) -> None:
    del getattr(message, field.name)[index]


def _double(message: Message, field: FieldDescriptor, index: int, rng: random.Random, places: list[Place]) -> None:
    values = getattr(message, field.name)
    if field.message_type is not None:
        values.add().CopyFrom(values[index])
    else:
        values.append(values[index])


def _swap(message: Message, field: FieldDescriptor, index: int, rng: random.Random, places: list[Place]) -> None:
    values = list(getattr(message, field.name))
    rng.shuffle(values)
    message.ClearField(field.name)
    getattr(message, field.name).extend(values)


Change = Callable[[Message, FieldDescriptor, int, random.Random, list[Place]], None]
_CHANGES: tuple[Change, ...] = (_replace, _replace, _replace, _clear)
_CHANGES_OF_LISTS: tuple[Change, ...] = (_replace, _replace, _replace, _drop, _double, _swap, _clear)
