"""Packets of Arm NN's profiling protocol: they are read and written as Arm NN 20.08 does, byte for byte."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from interposer.core.errors import ParseError
from interposer.profiling.external.guids import static_guid
from interposer.profiling.external.messages import (
    Capture,
    Category,
    Counter,
    Directory,
    Selection,
    StreamMetadata,
    decode_capture,
    decode_directory,
    decode_metadata,
    decode_selection,
    encode_capture,
    encode_directory,
    encode_metadata,
    encode_selection,
)
from interposer.profiling.external.packets import Kind, Packet, PacketReader
from interposer.profiling.external.timeline import (
    decode_messages,
    encode_messages,
    timeline_directory,
    well_known_labels,
)

RECORDINGS = Path(__file__).resolve().parents[4] / "shared/armnn/profiling"
recorded = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings of Arm NN are not here")
FILES = sorted(item.name for item in RECORDINGS.glob("*.bin")) if RECORDINGS.is_dir() else []


def again(packet: Packet) -> bytes:
    """Return the body of a packet that is decoded and encoded again."""
    body = packet.body
    match packet.kind:
        case Kind.STREAM_METADATA:
            return encode_metadata(decode_metadata(body))
        case Kind.COUNTER_DIRECTORY:
            return encode_directory(decode_directory(body))
        case Kind.COUNTER_SELECTION:
            return encode_selection(decode_selection(body)) if body else b""
        case Kind.COUNTER_CAPTURE:
            return encode_capture(decode_capture(body))
        case Kind.TIMELINE_DIRECTORY:
            return timeline_directory()
        case Kind.TIMELINE_MESSAGE:
            return b"".join(encode_messages(list(decode_messages(body))))
    return body


@recorded
@pytest.mark.parametrize("name", FILES)
def test_every_packet_that_arm_nn_sent_is_written_again_byte_for_byte(name):
    reader = PacketReader("<" if "from_collector" in name else None)
    packets = list(reader.feed((RECORDINGS / name).read_bytes()))
    assert packets
    assert reader.rest == 0
    assert [again(packet) for packet in packets] == [packet.body for packet in packets]


@recorded
def test_the_labels_of_a_timeline_are_those_of_arm_nn():
    data = (RECORDINGS / "file_only_timeline.bin").read_bytes()
    first = next(packet for packet in PacketReader().feed(data) if packet.kind is Kind.TIMELINE_MESSAGE)
    assert first.body == b"".join(encode_messages(well_known_labels()))


@pytest.mark.parametrize(("label", "guid"), [
    ("name", 0x909D3EEBF6BFCD62), ("CpuRef", 0x867C36F997E2B29C), ("execution_of", 0x8192F722EC25ECA4),
    ("ARMNN_PROFILING_SOL", 0xEE499457A86532EF),
])  # fmt: skip
def test_the_identifier_of_a_label_is_its_hash(label, guid):
    assert static_guid(label) == guid


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_directory_has_devices_counter_sets_and_categories(order):
    counters = (
        Counter(5, "Cycles", "Cycles of the device", "cycles", last=8, device=1, counter_set=1),
        Counter(9, "Temperature", "Of the device", "", 9, kind=1, interpolation=1, multiplier=0.5),
    )
    directory = Directory(
        (Category("Npu", counters), Category("Empty", ())), devices=((1, "npu", 4), (2, "dsp", 1)),
        counter_sets=((1, "all", 2),),
    )  # fmt: skip
    assert decode_directory(encode_directory(directory, order), order) == directory


@pytest.mark.parametrize("order", ["<", ">"])
def test_metadata_selections_and_captures_are_read_as_they_were_written(order):
    metadata = StreamMetadata(77, "python3", hardware="board")
    assert decode_metadata(encode_metadata(metadata, order), order) == metadata
    selection, capture = Selection(20_000, (4, 0, 4)), Capture(123456789, ((4, 2**32 - 1), (0, 7)))
    assert decode_selection(encode_selection(selection, order), order) == selection
    assert decode_capture(encode_capture(capture, order), order) == capture


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_packets_are_found_however_the_bytes_arrive(order, size):
    packets = [
        Packet(Kind.STREAM_METADATA, encode_metadata(StreamMetadata(1, "p"), order)),
        Packet(0x00090000, b""),
        Packet(Kind.COUNTER_CAPTURE, encode_capture(Capture(1, ((4, 1),)), order)),
    ]
    data = b"".join(packet.encode(order) for packet in packets)
    reader = PacketReader()
    found = [packet for start in range(0, len(data), size) for packet in reader.feed(data[start : start + size])]
    assert (found, reader.order, reader.rest, reader.offset) == (packets, order, 0, len(data))
    assert [packet.kind for packet in found] == [Kind.STREAM_METADATA, None, Kind.COUNTER_CAPTURE]


def test_a_stream_that_does_not_begin_with_the_magic_number_is_refused():
    with pytest.raises(ParseError, match="this is no profiling stream: its first packet has 01020304 instead of"):
        list(PacketReader().feed(bytes(8) + b"\1\2\3\4"))


def test_a_packet_above_the_limit_is_refused():
    with pytest.raises(ParseError, match="a packet has 101 bytes; at most 100 are accepted"):
        list(PacketReader("<", limit=100).feed(struct.pack("<II", 0, 101)))


def test_counters_of_many_cores_that_overlap_have_each_number_once():
    """A damaged directory may claim that every counter has all numbers."""
    counters = tuple(Counter(number, f"c{number}", "", last=0xFFFF) for number in range(5, 2005))
    named = Directory((Category("all", counters),)).by_number()
    assert list(named) == list(range(5, 0x10000))
    assert (named[5].name, named[2004].name, named[2005].name) == ("c5", "c2004 of core 0", "c2004 of core 1")
