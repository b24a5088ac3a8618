"""The container format: its header and index, refusals of damaged and foreign files, and what a description says."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import DamagedFileError, FileWriteError, ParseError
from interposer.saved.container import HEADER_BYTES, MAGIC, Container, SectionWriter
from tests.saved.rewriting import mixed, rewritten

pytestmark = pytest.mark.needs_cpuref


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("saved") / "net.ipn"
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(result)
    return result


def changed(path: Path, offset: int, content: bytes) -> bytes:
    data = path.read_bytes()
    return data[:offset] + content + data[offset + len(content) :]


def refusal(data: bytes) -> str:
    with pytest.raises(ParseError) as caught:
        ip.load(data)
    return str(caught.value)


def test_the_layout_is_the_documented_one(path: Path) -> None:
    data = path.read_bytes()
    magic, version, header, offset, size, total = struct.unpack_from("<8sIIQQQ", data)
    assert (magic, version, header, total) == (MAGIC, 2, 256, len(data))
    index = json.loads(data[offset : offset + size])
    assert [name for name, _ in index["inputs"]] == ["x"]
    assert all(kind in ("data", "graph", "variant") for kind, *_ in index["sections"])
    large = [row for row in index["sections"] if row[0] == "data" and row[2] >= 4096]
    assert large and all(row[1] % 4096 == 0 for row in large)


def test_equal_networks_give_equal_files(path: Path, tmp_path: Path) -> None:
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(tmp_path / "again.ipn")
    assert (tmp_path / "again.ipn").read_bytes() == path.read_bytes()


def test_a_file_of_another_version_is_refused_with_a_word(path: Path) -> None:
    assert refusal(changed(path, 8, struct.pack("<I", 7))) == (
        "this saved network has version 7 of the format, and this interposer reads version 2; "
        "save the network again with this version of interposer"
    )


@pytest.mark.parametrize(
    ("offset", "content", "message"),
    [
        (16, struct.pack("<Q", 1 << 60), "the file is truncated or damaged: header: the index is outside of the file"),
        (24, struct.pack("<Q", 1 << 63), "the file is truncated or damaged: header: the index is outside of the file"),
        (40, b"\0", "the file is truncated or damaged: index: its checksum is wrong"),
        (200, b"\1", "the file is truncated or damaged: header: reserved bytes are not zero"),
        (80, b"\1", "the file is truncated or damaged: header: it has a signature of an unknown kind"),
    ],
    ids=["offset", "size", "digest", "reserved", "signature"],
)
def test_a_damaged_header_is_refused(path: Path, offset: int, content: bytes, message: str) -> None:
    assert refusal(changed(path, offset, content)) == message


def test_a_file_that_was_cut_is_refused(path: Path) -> None:
    data = path.read_bytes()
    assert refusal(data[:-5]) == (
        f"the file is truncated or damaged: header: the file has {len(data) - 5:,} bytes; expected {len(data):,}"
    )
    assert refusal(data[:100]) == ("the file is truncated or damaged: header: it has 100 bytes; expected at least 256")


def test_a_file_with_the_suffix_and_another_content_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.ipn"
    file.write_bytes(bytes(300))
    with pytest.raises(ParseError, match=r"this is no saved network: its content starts with b'.x00"):
        ip.load(file)


def sections_of(index: dict[str, Any]) -> bytes:
    """Return a file whose index has these facts."""
    raw = json.dumps(index).encode()
    from hashlib import sha256

    from interposer.saved.container import Header

    header = Header(HEADER_BYTES, len(raw), HEADER_BYTES + len(raw), sha256(raw).digest())
    return header.to_bytes() + raw


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "it has no table of sections"),
        ([["data", 0, 64, "", ""]], "sections overlap at byte 0"),
        ([["data", 256, 1 << 62, "", ""]], "a section overlaps the index, or is outside of the file"),
        ([["data", 256, -1, "", ""]], "entry 0 of the table of sections is damaged"),
        ([["data", 257, 1, "", ""]], "entry 0 of the table of sections is damaged"),
        ([["data", 256, True, "", ""]], "entry 0 of the table of sections is damaged"),
    ],
    ids=["missing", "header", "huge", "negative", "unaligned", "boolean"],
)
def test_hostile_tables_of_sections_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(DamagedFileError) as caught:
        Container(sections_of({"sections": rows} if rows is not None else {}))
    assert str(caught.value) == f"the file is truncated or damaged: index: {message}"


def test_a_hostile_size_of_a_constant_is_refused(path: Path, tmp_path: Path) -> None:
    def grow(index: dict[str, Any], facts: dict[str, Any]) -> None:
        for layer in facts[str(index["variants"][0]["divided"])]["layers"]:
            if layer["name"] == "w":
                layer["op"]["value"]["array"][1] = [1 << 40, 1 << 40]

    with pytest.raises(ParseError, match=r"an array of 2048 elements cannot have the shape"):
        ip.load(rewritten(path, tmp_path / "hostile.ipn", grow))


def test_the_limits_are_checked_against_the_layers_and_not_against_what_the_file_says(path: Path) -> None:
    with pytest.raises(ip.errors.LimitExceededError):
        ip.load(path, limits=ip.Limits(max_bytes=4096))


def test_the_index_is_read_without_the_rest(path: Path) -> None:
    data = bytearray(path.read_bytes())
    section = next(item for item in Container(path).sections if item.kind == "variant")
    data[section.offset : section.offset + section.size] = bytes(section.size)
    description = ip.saved.describe(bytes(data))
    [variant] = description.variants
    assert (description.name, list(description.inputs), variant.layers) == ("mixed", ["x"], {"CpuRef": 6})
    with pytest.raises(DamagedFileError, match="its checksum is wrong"):
        ip.saved.check(bytes(data))


def test_a_check_reads_every_byte(path: Path) -> None:
    assert ip.saved.check(path) == ip.saved.describe(path)
    container = Container(path)
    ends = sorted(item.offset + item.size for item in container.sections)
    gap = next(end for end in ends if end % 64)
    with pytest.raises(DamagedFileError, match="the bytes between sections are not zero"):
        ip.saved.check(changed(path, gap, b"\1"))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_large_section_is_verified_by_the_allowed_number_of_threads(
    threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERPOSER_NUM_THREADS", threads)
    path = tmp_path / "large.ipn"
    content = np.random.default_rng(0).integers(0, 256, (12 << 20) + 12345, np.uint8)
    with open(path, "w+b") as file:
        writer = SectionWriter(file)
        ref = writer.data(content.data)
        writer.finish({})
    assert np.array_equal(Container(path).data(ref), content)
    begin = Container(path).sections[ref[0]].offset
    for offset in (0, 4 << 20, (8 << 20) + 77, content.size - 1):
        with open(path, "r+b") as file:
            file.seek(begin + offset)
            file.write(bytes([content[offset] ^ 1]))
        with pytest.raises(DamagedFileError, match=r"section 1 \(data\): its checksum is wrong"):
            Container(path).data(ref)
        with open(path, "r+b") as file:
            file.seek(begin + offset)
            file.write(bytes([content[offset]]))


def test_a_full_disk_leaves_the_old_file(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "net.ipn"
    target.write_bytes(b"old")

    def fail(self: SectionWriter, *arguments: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(SectionWriter, "_pad", fail)
    with ip.load(mixed(), ["CpuRef"]) as model, pytest.raises(FileWriteError, match="No space left on device"):
        model.save(target)
    assert (target.read_bytes(), os.listdir(tmp_path)) == (b"old", ["net.ipn"])
