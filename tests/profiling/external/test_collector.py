"""The collector of profiles: programs that connect, what is shown and written, and damaged streams."""

from __future__ import annotations

import json
import math
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.cli.main import main
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.profiling.chrome import chrome_trace
from interposer.profiling.external.collector import Collector, Orders, read_stream
from interposer.profiling.external.connections import socket_address
from interposer.profiling.external.messages import (
    Capture,
    Category,
    Counter,
    Directory,
    decode_directory,
    encode_capture,
    encode_directory,
    swtrace,
)
from interposer.profiling.external.options import ExternalProfilingOptions
from interposer.profiling.external.packets import Kind, Packet, PacketReader
from interposer.profiling.external.streams import Room, Stream
from interposer.profiling.external.timeline import Label, encode_messages
from tests.profiling.external.test_client import run

pytestmark = pytest.mark.needs_cpuref
RECORDINGS = Path(__file__).resolve().parents[4] / "shared/armnn/profiling"


@pytest.fixture(scope="module")
def stream(tmp_path_factory) -> bytes:
    """What a runtime has sent: two inferences with their timeline."""
    path = tmp_path_factory.mktemp("stream") / "profile.bin"
    options = ExternalProfilingOptions(True, True, outgoing_capture_file=path, file_only=True)
    with ip.Runtime(ip.CreationOptions(profiling=options)) as runtime:
        run(runtime, 2)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "socket")


def connected(path: str, **options: object) -> ip.CreationOptions:
    return ip.CreationOptions(profiling=ExternalProfilingOptions(True, socket=path, **options))


def test_a_collector_gets_counters_and_the_timeline_that_it_asks_for(path):
    with Collector(path, Orders(10_000, timeline=True)) as collector:
        with ip.Runtime(connected(path)) as runtime:
            run(runtime, 3)
        assert collector.wait(300, clients=1)
    [session] = collector.sessions
    assert (session.error, session.stream.metadata.info) == ("", "ArmNN")
    executions = list(session.stream.executions())
    assert sum(not execution.backend for execution in executions) <= 3
    assert sum(value for each in session.stream.captures for key, value in each.values if key == 4) == 3


def test_several_programs_are_collected_at_the_same_time(path):
    with Collector(path) as collector:
        runtimes = [ip.Runtime(connected(path)) for _ in range(3)]
        for number, runtime in enumerate(runtimes):
            run(runtime, number)
        for runtime in runtimes:
            runtime.close()
        assert collector.wait(300, clients=3)
    totals = [sum(value for each in session.stream.captures for key, value in each.values if key == 4)
              for session in collector.sessions]  # fmt: skip
    assert sorted(totals) == [0, 1, 2]


def test_a_program_that_sends_nonsense_does_not_disturb_the_others(path):
    with Collector(path) as collector:
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\xff" * 100, b"x"):
            with socket.socket(socket.AF_UNIX) as nonsense:
                nonsense.connect(socket_address(path))
                nonsense.sendall(data)
        with ip.Runtime(connected(path)) as runtime:
            run(runtime, 2)
        assert collector.wait(300, clients=5)
    assert [bool(session.error) for session in collector.sessions] == [True] * 4 + [False]
    assert collector.sessions[0].error.startswith("this is no profiling stream: its first packet has ")
    assert collector.sessions[3].error == "1 bytes of a packet are missing at the end"


def test_a_socket_that_exists_is_refused(path):
    with Collector(path), pytest.raises(InvalidArgumentError, match="cannot be created: .*Address already in use"):
        Collector(path)
    assert not Path(path).exists()
    with pytest.raises(InvalidArgumentError, match="cannot be created"):
        Collector("x" * 200)


def test_the_command_listens_shows_and_writes(path, tmp_path, capsys):
    def client() -> None:
        with ip.Runtime(connected(path, timeline_enabled=True)) as runtime:
            run(runtime, 2)

    thread = threading.Timer(0.5, client)
    thread.start()
    trace, store = tmp_path / "trace.json", tmp_path / "raw.bin"
    words = ["profile", "--listen", "--socket", path, "--clients", "1", "--seconds", "30", "--packets"]
    assert main([*words, "-o", str(trace), "--store", str(store)]) == 0
    thread.join()
    out = capsys.readouterr().out
    assert out.startswith(f"listening on {path}\n1: stream metadata, ")
    assert "Inferences run" in out
    assert [line.split()[2:5] for line in out.splitlines() if line.split()[2:3] == ["add"]] == [["add", "CpuRef", "2"]]
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert names.count("add") == 4  # on the tracks of the thread and of the backend
    assert main(["profile", str(store), "--json"]) == 0
    [facts] = json.loads(capsys.readouterr().out)
    assert (facts["inferences"], facts["error"], facts["bytes"]) == (2, None, store.stat().st_size)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give either a file to read, or --listen to wait for programs"),
        (["x.bin", "--listen"], "give either a file to read, or --listen to wait for programs"),
        (["no.bin"], "no.bin: the file cannot be read: No such file or directory"),
        (
            ["no.bin", "-o", "x.txt"],
            "--output takes a file with the suffix .json, .pftrace, .perfetto-trace, .html, not x.txt",
        ),
        (["--listen", "--counters", "a"], "argument --counters: expected a whole number of 0 or more, not 'a'"),
        (["--listen", "--period", "0"], "argument --period: expected a whole number of 1 or more, not '0'"),
    ],
)
def test_wrong_arguments_end_with_a_message(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings of Arm NN are not here")
@pytest.mark.parametrize(
    ("name", "inferences"),
    [("file_only_timeline", 3), ("file_only_timeline_ad01", 3), ("session_timeline_to_collector", 6)],
)
def test_recordings_of_arm_nn_are_shown(name, inferences, capsys):
    assert main(["profile", str(RECORDINGS / f"{name}.bin"), "--json"]) == 0
    [facts] = json.loads(capsys.readouterr().out)
    assert (facts["software"], facts["inferences"]) == ("Armnn 22.0", inferences)
    assert all(layer["count"] % inferences == 0 for layer in facts["layers"])


def damaged(data: bytes, generator: random.Random) -> bytes:
    """Return a stream with some bytes changed, removed or repeated, or truncated."""
    copy = bytearray(data)
    for _ in range(generator.randint(1, 8)):
        at = generator.randrange(len(copy))
        match generator.randrange(4):
            case 0:
                copy[at] = generator.randrange(256)
            case 1:
                copy[at : at + 4] = generator.choice([b"\xff" * 4, bytes(4), b"\0\0\0\x80", b"\1\0\0\0"])
            case 2:
                del copy[at : at + generator.randint(1, 64)]
            case _:
                copy[at:at] = copy[at : at + generator.randint(1, 64)]
        if not copy:
            return b""
    return bytes(copy[: generator.randint(1, len(copy))] if generator.random() < 0.2 else copy)


def check(data: bytes) -> None:
    """Read a stream; nothing but a `ParseError` may be raised, and all that is decoded can be shown."""
    reader, stream = PacketReader(limit=1 << 22), Stream()
    try:
        for packet in reader.feed(data):
            if not stream.packets:
                stream = Stream(reader.order or "<")
            stream.add(packet)
    except ParseError:
        pass
    stream.recording()


@pytest.mark.parametrize("seed", range(5))
def test_damaged_streams_are_refused_or_read(seed, stream):
    generator = random.Random(seed)
    for _ in range(100):
        check(damaged(stream, generator))


@pytest.mark.slow
def test_twenty_thousand_damaged_streams_are_refused_or_read(stream):
    generator = random.Random(20_000)
    sources = [stream, *(path.read_bytes() for path in RECORDINGS.glob("*.bin"))] if RECORDINGS.is_dir() else [stream]
    for number in range(20_000):
        check(damaged(sources[number % len(sources)][:20_000], generator))


@pytest.fixture
def commands() -> Iterator[bytes]:
    kinds = (Kind.CONNECTION_ACKNOWLEDGED, Kind.REQUEST_COUNTER_DIRECTORY, Kind.ACTIVATE_TIMELINE)
    yield (
        b"".join(Packet(kind, b"").encode() for kind in kinds)
        + Packet(Kind.COUNTER_SELECTION, np.arange(20, dtype="<u2").tobytes()).encode() * 3
    )


def test_damaged_commands_do_not_stop_a_client(commands, tmp_path, monkeypatch):
    monkeypatch.setattr("interposer.runtime.reporting._PATIENCE", 0.0)
    monkeypatch.setattr("interposer.profiling.external.client._RETRY", 0.0)
    monkeypatch.setattr("interposer.profiling.external.client._IDLE", 0.002)
    generator = random.Random(3)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with ip.Runtime(connected(str(tmp_path / "socket"))) as runtime:
            for _ in range(100):
                connection, _ = listener.accept()
                connection.sendall(damaged(commands, generator))
                connection.close()
            run(runtime, 3)


def overlapping(categories: int, counters: int, letters: int) -> bytes:
    """Return a directory whose pointers all lead to the same category, and its pointers to the same counter."""
    name = swtrace("name")
    head = struct.pack("<6I", 0, 24, 0, 24, categories << 16, 24) + struct.pack("<I", 4 * categories) * categories
    pointers = struct.pack("<I", 4 * counters + len(name)) * counters
    category = struct.pack("<III", counters << 16, 12, 12 + 4 * counters) + pointers + name
    return head + category + struct.pack("<IIIdIII", 0, 0, 0, 1.0, 32, 32, 32) + swtrace("x" * letters)


@pytest.mark.parametrize(("categories", "counters", "letters"), [(2, 2, 5), (65535, 1, 5), (60000, 60000, 1_000_000)])
def test_a_directory_whose_records_overlap_is_refused(categories, counters, letters):
    with pytest.raises(ParseError, match="^the records of a directory of counters overlap$"):
        decode_directory(overlapping(categories, counters, letters))


def test_a_stream_keeps_no_more_than_there_is_room_for():
    stream = Stream(room=Room(objects=10, bytes=1000))
    capture = Packet(Kind.COUNTER_CAPTURE, encode_capture(Capture(1, ((0, 1), (1, 2)))))
    for number in range(20):
        stream.add(Packet(Kind.TIMELINE_MESSAGE, b"".join(encode_messages([Label(number, "x" * 100)]))))
    for _ in range(5):
        stream.add(capture)
    assert (len(stream.captures), stream.dropped) == (0, 17)
    assert stream.packets == {"TIMELINE_MESSAGE": 20, "COUNTER_CAPTURE": 5}


def test_packets_of_unknown_kinds_are_counted_together_if_there_are_many():
    stream = Stream()
    for number in range(1000):
        stream.add(Packet(0x40000000 + number, b""))
    assert len(stream.packets) == 65
    assert stream.packets["others"] == 936


def test_a_collector_turns_away_programs_that_are_too_many(path, monkeypatch):
    monkeypatch.setattr("interposer.profiling.external.collector._MOST_CLIENTS", 3)
    with Collector(path) as collector, ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(5)]
        for client in clients:
            client.settimeout(300)
            client.connect(socket_address(path))
        assert clients[-1].recv(1) == b""
        assert len(collector.sessions) == 3


def test_a_collector_works_in_a_process_with_more_than_a_thousand_open_files(path):
    resource = pytest.importorskip("resource")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("a process may not have so many files")
    with ExitStack() as stack:
        for _ in range(1050):
            stack.enter_context(open(os.devnull))
        test_a_collector_gets_counters_and_the_timeline_that_it_asks_for(path)


def test_a_program_that_goes_before_it_is_answered_has_sent_a_whole_stream(path, stream):
    with Collector(path, Orders(10_000, timeline=True)) as collector:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(socket_address(path))
            client.sendall(stream)
        assert collector.wait(300, clients=1)
    assert [(session.error, session.size) for session in collector.sessions] == [("", len(stream))]


def test_a_collector_keeps_the_bytes_of_programs_up_to_a_limit(path, stream, monkeypatch):
    monkeypatch.setattr("interposer.profiling.external.collector._MOST_STORED", 1000)
    with Collector(path, keep=True) as collector:
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(socket_address(path))
            client.sendall(stream[:800])
            client.sendall(stream)
        assert collector.wait(300, clients=1)
    assert collector.sessions[0].error == "programs have sent more than the 1,000 bytes that are stored"
    assert len(collector.sessions[0].data or b"") <= 1000


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings of Arm NN are not here")
@pytest.mark.parametrize("name", ["session_to_collector.bin", "session_commands_to_collector.bin"])
def test_workloads_that_arm_nn_lists_below_every_layer_are_shown_at_their_own(name):
    executions = list(read_stream(RECORDINGS / name).stream.executions())
    names = [execution.name for execution in executions if execution.backend and execution.inference == 0]
    assert names == ["in0", "in1", "add", "relu", "out"]


def test_a_trace_for_chrome_leaves_out_numbers_that_json_does_not_have(path):
    counters = [Counter(number, f"c{number}", "text", multiplier=value) for number, value in enumerate((math.nan, 2.0))]
    stream = Stream()
    stream.add(Packet(Kind.COUNTER_DIRECTORY, encode_directory(Directory((Category("c", tuple(counters)),)))))
    stream.add(Packet(Kind.COUNTER_CAPTURE, encode_capture(Capture(1, ((0, 1), (1, 2))))))
    events = json.loads(chrome_trace(stream.recording()), parse_constant=pytest.fail)["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "C"] == ["c1"]


@pytest.mark.parametrize("path", ["", "@"])
def test_a_socket_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        Collector(path)
    assert str(refused.value) == "the socket has no name; give a path, or a name after '@'"
