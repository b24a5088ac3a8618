"""Damaged variants of a .pt2 file that are still archives with right checksums: what their members say is wrong."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 7, 11, 1 << 16, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, 10**40)
TEXTS = ("", "x", "p_0_weight", "torch.ops.aten.relu.default", "torch.load", "a;b", "s0", "9**9**9", "\x00", "ä" * 50)
PARTS = (None, True, [], {}, [{}], {"as_int": 1}, {"as_none": True}, {"as_tensor": {"name": "x"}}, 1.5, float("nan"))
Place = tuple[Any, Any]


def damaged_programs(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` variants with a name each; one to three values of each are wrong, whatever the count is."""
    members = _members(data)
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        changed = dict(members)
        done = [_damage(changed, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        yield f"{seed}-{number:04d}-{'-'.join(done)}", archive_of(changed)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: dict[str, bytes]) -> bytes:
    """Return an archive of members that are stored as they are, like one of PyTorch."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, item in members.items():
            archive.writestr(zipfile.ZipInfo(name), item)
    return content.getvalue()


def _damage(members: dict[str, bytes], rng: random.Random) -> str:
    texts = sorted(name for name in members if name.endswith(".json"))
    if not texts or rng.random() < 0.1:
        return _damage_member(members, rng)
    name = rng.choice(texts)
    try:
        document = json.loads(members[name])
    except ValueError:  # an earlier damage has replaced the member
        return "nothing"
    places = list(_places(document)) if isinstance(document, dict | list) else []
    if not places:
        return "empty"
    container, key = rng.choice(places)
    title = key if isinstance(key, str) else "item"
    if rng.random() < 0.2:
        del container[key]
    else:
        container[key] = _other(container[key], rng, places)
    members[name] = json.dumps(document).encode()
    return "".join(filter(str.isalnum, title))[:30]


def _damage_member(members: dict[str, bytes], rng: random.Random) -> str:
    name = rng.choice(sorted(members))
    content = members[name]
    other = rng.choice(sorted(members.values()))
    members[name] = rng.choice((b"", content[: len(content) // 2], content * 2, other))
    if rng.random() < 0.3:
        del members[name]
    return "member"


def _places(item: Any) -> Iterator[Place]:
    for key in item if isinstance(item, dict) else range(len(item)):
        yield item, key
        if isinstance(item[key], dict | list):
            yield from _places(item[key])


def _other(value: Any, rng: random.Random, places: Sequence[Place]) -> Any:
    if rng.random() < 0.3:
        container, key = rng.choice(places)
        return json.loads(json.dumps(container[key]))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, str):
        return rng.choice((*TEXTS, value[:-1], value + "_"))
    return rng.choice(PARTS)
