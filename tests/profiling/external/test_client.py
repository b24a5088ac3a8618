"""A runtime that sends its profile: to a collector, to files, and to collectors that misbehave."""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.backend import BackendProfiling, CounterTimestamp
from interposer.core.errors import InvalidArgumentError
from interposer.profiling import Recorder, events
from interposer.profiling.backends import CounterRegistration
from interposer.profiling.external.client import ProfilingClient
from interposer.profiling.external.collector import read_stream
from interposer.profiling.external.connections import open_connection, socket_address
from interposer.profiling.external.counting import Counting
from interposer.profiling.external.messages import (
    Capture,
    Selection,
    decode_capture,
    decode_directory,
    decode_selection,
    encode_directory,
    encode_selection,
)
from interposer.profiling.external.options import ExternalProfilingOptions
from interposer.profiling.external.packets import Kind, Packet, PacketReader
from interposer.profiling.external.structure import LayerOutline, NetworkOutline
from interposer.profiling.external.timeline import Entity, Event, Label, decode_messages
from interposer.profiling.recorder import active
from tests.profiling.test_backends import Counting as CountingBackend
from tests.profiling.test_backends import Counts

pytestmark = pytest.mark.needs_cpuref
RECORDINGS = Path(__file__).resolve().parents[4] / "shared/armnn/profiling"
FEEDS = {0: np.ones((1, 4), np.float32), 1: np.ones((1, 4), np.float32)}
ACK, REQUEST = Packet(Kind.CONNECTION_ACKNOWLEDGED, b""), Packet(Kind.REQUEST_COUNTER_DIRECTORY, b"")
ENABLE, DISABLE = Packet(Kind.ACTIVATE_TIMELINE, b""), Packet(Kind.DEACTIVATE_TIMELINE, b"")


def network() -> ip.Network:
    """Return the network of the recordings: in0 + in1, and a ReLU."""
    small_network = ip.Network("net")
    inputs = [small_network.add_input_layer(n, ip.TensorInfo((1, 4)), name=f"in{n}") for n in range(2)]
    total = small_network.add_addition_layer(*inputs, name="add")
    relu = small_network.add_activation_layer(total, function=ip.ops.ActivationFunction.RELU, name="relu")
    small_network.add_output_layer(0, relu, name="out")
    return small_network


class Peer:
    """The other end of a client's connection, whose packets a thread collects."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(socket_address(path))
        self.listener.listen()
        self.packets: list[Packet] = []
        self.connected = threading.Event()
        self.connections: list[socket.socket] = []
        self.open = True
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self) -> None:
        with suppress(OSError):
            while self.open:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                self.connected.set()
                reader = PacketReader()
                with suppress(OSError):
                    while data := connection.recv(1 << 16):
                        self.packets += reader.feed(data)
        for connection in self.connections:  # `close` may not have seen the last one
            connection.close()

    def send(self, *packets: Packet) -> None:
        assert self.connected.wait(300)
        self.connections[-1].sendall(b"".join(packet.encode() for packet in packets))

    def kinds(self) -> list[Kind | None]:
        return [packet.kind for packet in self.packets]

    def until(self, kind: Kind, count: int = 1) -> list[Packet]:
        """Wait until so many packets of a kind have come, and return all of that kind."""
        end = time.monotonic() + 300
        while sum(packet.kind is kind for packet in self.packets) < count and time.monotonic() < end:
            time.sleep(0.005)
        packets_of_kind = [packet for packet in self.packets if packet.kind is kind]
        assert len(packets_of_kind) >= count
        return packets_of_kind

    def close(self) -> None:
        self.open = False
        for item in (*self.connections, self.listener):
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()


@pytest.fixture
def peer(tmp_path) -> Iterator[Peer]:
    socket_peer = Peer(str(tmp_path / "socket"))
    yield socket_peer
    socket_peer.close()


@pytest.fixture
def runtime(peer, tmp_path, monkeypatch):
    """Return a function that creates a runtime whose client is connected to the peer."""
    monkeypatch.setattr("interposer.runtime.reporting._PATIENCE", 0.0)

    @contextmanager
    def created(**options: object) -> Iterator[ip.Runtime]:
        profiling = ExternalProfilingOptions(True, socket=str(tmp_path / "socket"), **options)
        with ip.Runtime(ip.CreationOptions(profiling=profiling)) as new_runtime:
            yield new_runtime

    return created


def run(runtime: ip.Runtime, times: int = 1) -> int:
    number = runtime.load_network(ip.optimize(network(), ["CpuRef"], runtime.device_spec))
    for _ in range(times):
        assert runtime.enqueue_workload(number, FEEDS)[0].tolist() == [[2, 2, 2, 2]]
    return number


def select(period: int, *counters: int) -> Packet:
    return Packet(Kind.COUNTER_SELECTION, encode_selection(Selection(period, counters)))


def test_a_session_is_answered_as_arm_nn_answers_it(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK, REQUEST)
        peer.until(Kind.TIMELINE_DIRECTORY)
        assert peer.kinds() == [
            Kind.STREAM_METADATA, Kind.COUNTER_DIRECTORY, Kind.COUNTER_DIRECTORY, Kind.TIMELINE_DIRECTORY,
        ]  # fmt: skip
        peer.send(select(100_000, 0, 1, 2, 3, 4))
        first, *_ = peer.until(Kind.COUNTER_CAPTURE)
        assert [pair[0] for pair in decode_capture(first.body).values] == [0, 1, 2, 3, 4]
        assert decode_capture(first.body).values[2][1] > 0  # the backends that are registered
        run(profiled, 3)
        peer.send(select(10_000, 4))
        peer.until(Kind.COUNTER_SELECTION, 2)
        captures = peer.until(Kind.COUNTER_CAPTURE, len(peer.until(Kind.COUNTER_CAPTURE)) + 3)
        assert sum(value for each in captures for key, value in decode_capture(each.body).values if key == 4) == 3


@pytest.mark.parametrize(
    ("sent", "echoed"),
    [
        (b"", Selection(0)),
        (encode_selection(Selection(500_000)), Selection(500_000)),
        (encode_selection(Selection(0, (4, 3, 4))), Selection(0, (3, 4, 4))),
        (encode_selection(Selection(120_000, (4, 0, 4, 9))), Selection(120_000, (0, 4, 4))),
        (encode_selection(Selection(5000, (4, 99))), Selection(10_000, (4,))),
    ],
)
def test_a_selection_is_echoed_without_unknown_counters_and_with_a_period_that_is_not_too_short(
    sent, echoed, peer, runtime
):
    with runtime():
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK, Packet(Kind.COUNTER_SELECTION, sent))
        [answer] = peer.until(Kind.COUNTER_SELECTION)
        assert decode_selection(answer.body) == echoed


def test_a_counter_that_is_selected_twice_counts_once(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY)
        run(profiled, 2)
        peer.send(select(1_000_000, 0, 4, 4))
        first, *_ = peer.until(Kind.COUNTER_CAPTURE)
        assert decode_capture(first.body).values == ((0, 1), (4, 2), (4, 0))


def test_commands_before_the_acknowledgement_are_dropped_and_repeated_ones_unanswered(peer, runtime):
    with runtime():
        peer.until(Kind.STREAM_METADATA)
        peer.send(REQUEST, ENABLE)
        peer.until(Kind.STREAM_METADATA, 2)  # sent again each second
        peer.send(ACK, ACK, ENABLE, ENABLE, DISABLE, DISABLE)
        peer.send(Packet(Kind.PER_JOB_COUNTER_SELECTION, bytes(14)), Packet(0x00090000, b""), REQUEST)
        peer.until(Kind.COUNTER_DIRECTORY, 2)
        peer.until(Kind.TIMELINE_DIRECTORY, 2)
        assert [kind for kind in peer.kinds() if kind is not Kind.STREAM_METADATA] == [
            Kind.COUNTER_DIRECTORY, Kind.TIMELINE_DIRECTORY, Kind.TIMELINE_MESSAGE, Kind.COUNTER_DIRECTORY,
            Kind.TIMELINE_DIRECTORY,
        ]  # fmt: skip


def masked(packet: Packet) -> list[object]:
    """Return the messages of a packet without times, threads, process ids and the numbers of objects."""
    messages = list(decode_messages(packet.body))
    pids = {message.guid for message in messages if isinstance(message, Label) and message.text.isdigit()}
    return [_masked(message, pids) for message in messages]


def _masked(message: object, pids: set[int]) -> object:
    if isinstance(message, Entity | Event):
        return type(message).__name__
    if isinstance(message, Label):
        return "pid" if message.guid in pids else message
    assert isinstance(message, tuple)
    return tuple("pid" if field in pids else field if field > 1 << 62 or field < 4 else "object" for field in message)


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings of Arm NN are not here")
def test_the_timeline_of_a_file_is_that_of_arm_nn_message_for_message(tmp_path):
    path = tmp_path / "profile.bin"
    options = ExternalProfilingOptions(True, True, outgoing_capture_file=path, file_only=True)
    with ip.Runtime(ip.CreationOptions(profiling=options)) as profiled:
        run(profiled, 3)
        time.sleep(0.2)
    expected = list(PacketReader().feed((RECORDINGS / "file_only_timeline.bin").read_bytes()))
    packets = list(PacketReader().feed(path.read_bytes()))
    assert [packet.kind for packet in packets] == [packet.kind for packet in expected]
    pairs = zip(packets, expected, strict=True)
    timeline = [(mine, theirs) for mine, theirs in pairs if mine.kind is Kind.TIMELINE_MESSAGE]
    for mine, theirs in timeline:
        assert masked(mine) == masked(theirs)


def test_a_file_has_the_stream_of_a_runtime_without_a_collector(tmp_path):
    path, incoming = tmp_path / "out.bin", tmp_path / "in.bin"
    options = ExternalProfilingOptions(
        True, True, outgoing_capture_file=path, incoming_capture_file=incoming, file_only=True
    )
    with ip.Runtime(ip.CreationOptions(profiling=options)) as profiled:
        run(profiled, 2)
    stream = read_stream(path).stream
    names = [(each.name, each.backend, each.inference) for each in stream.executions() if each.backend]
    assert [name for name, _, number in names if number == 0] == ["in0", "in1", "add", "relu", "out"]
    assert {backend for _, backend, _ in names} == {"CpuRef"}
    assert sum(not each.backend for each in stream.executions()) == 2
    assert incoming.read_bytes() == ACK.encode()


def test_a_timeline_that_is_asked_for_later_has_the_networks_that_are_loaded(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY)
        number = run(profiled)
        time.sleep(0.2)
        peer.send(ENABLE)
        _, structure, *_ = peer.until(Kind.TIMELINE_MESSAGE, 2)
        labels = [message.text for message in decode_messages(structure.body) if isinstance(message, Label)]
        assert labels == ["in0", "in1", "add", "CpuRef", "relu", "CpuRef", "out"]
        profiled.enqueue_workload(number, FEEDS)
        peer.until(Kind.TIMELINE_MESSAGE, 6)


def test_a_client_connects_again_after_a_collector_has_gone(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY)
        peer.connections[-1].shutdown(socket.SHUT_RDWR)
        run(profiled, 2)
        peer.until(Kind.STREAM_METADATA, 2)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY, 2)
        assert len(peer.connections) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,  # packets of 16 MiB that never come
        b"\0\1\0\0" * 1000,
        ACK.encode(">"),  # the wrong order of bytes
        Packet(Kind.COUNTER_SELECTION, b"\1\2\3").encode() * 100,
        ACK.encode()[:5],
        ACK.encode() + Packet(Kind.COUNTER_SELECTION, bytes(7)).encode() + Packet(0xFFFF0000, bytes(1000)).encode(),
    ],
    ids=["garbage", "words", "order", "selections", "cut", "unknown"],
)
def test_a_collector_that_misbehaves_does_not_stop_inferences(data, peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.connections[-1].sendall(data)
        run(profiled, 3)
        time.sleep(0.1)
        peer.connections[-1].close()
        run(profiled, 3)


def test_a_collector_that_does_not_read_does_not_stop_inferences(tmp_path, monkeypatch):
    monkeypatch.setattr("interposer.runtime.reporting._PATIENCE", 0.0)
    monkeypatch.setattr("interposer.profiling.external.connections._MOST_PENDING", 10_000)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        options = ExternalProfilingOptions(True, True, socket=str(tmp_path / "socket"))
        with ip.Runtime(ip.CreationOptions(profiling=options)) as profiled:
            connection, _ = listener.accept()
            connection.sendall(ACK.encode() + select(10_000, 4).encode())
            run(profiled, 500)
            connection.close()


def test_runs_that_come_faster_than_they_can_be_sent_are_counted_in_the_log(peer, runtime, caplog, monkeypatch):
    monkeypatch.setattr("interposer.profiling.external.client._MOST_RUNS", -1)
    with runtime() as profiled:
        peer.send(ACK, ENABLE)
        peer.until(Kind.TIMELINE_DIRECTORY)
        client = next(recorder for recorder in active if isinstance(recorder, ProfilingClient))
        end = time.monotonic() + 300
        while not client._timeline and time.monotonic() < end:  # begins after its directory
            time.sleep(0.005)
        run(profiled, 3)
    said = [record.getMessage() for record in caplog.records if record.name == "interposer.profiling"]
    assert said == ["the timeline lacks 3 runs, which came faster than they could be sent"]


def test_without_a_collector_a_runtime_works_and_says_so_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("interposer.runtime.reporting._PATIENCE", 0.05)
    monkeypatch.setattr("interposer.profiling.external.client._RETRY", 0.01)
    options = ExternalProfilingOptions(True, socket=str(tmp_path / "none"))
    with ip.Runtime(ip.CreationOptions(profiling=options)) as profiled:
        run(profiled, 2)
        time.sleep(0.1)
    said = [record.getMessage() for record in caplog.records if record.name == "interposer.profiling"]
    assert said == ["there is no collector of profiles: No such file or directory; trying again"]


def test_networks_of_other_runtimes_are_not_reported(peer, runtime):
    with runtime() as profiled, ip.Runtime() as other:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY)
        run(other, 5)
        run(profiled)
        peer.send(select(1_000_000, 0, 4))
        first, *_ = peer.until(Kind.COUNTER_CAPTURE)
        assert decode_capture(first.body).values == ((0, 1), (4, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeline_enabled": True}, "It is not possible to enable timeline reporting without profiling being enabled"),
        ({"capture_period": -1}, "capture_period must not be negative, as -1 is"),
        ({"capture_period": "x"}, "capture_period must be a number of microseconds, not 'x'"),
        ({"file_only": 1}, "file_only must be True or False, not 1"),
        ({"socket": 3}, "socket must be a path, not 3"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    with pytest.raises(InvalidArgumentError) as error:
        ExternalProfilingOptions(**arguments)
    assert str(error.value) == message


def test_a_file_format_that_does_not_exist_is_only_a_warning(tmp_path, caplog):
    options = ExternalProfilingOptions(
        True, file_format="JSON", outgoing_capture_file=tmp_path / "a.bin", file_only=True
    )
    ip.Runtime(ip.CreationOptions(profiling=options)).close()
    assert "the file format 'JSON' of profiling files is not implemented; it is binary" in caplog.text


def test_counters_of_backends_are_listed_and_captured(peer, runtime):
    with runtime() as profiled:
        profiled.registry.register("Counting", CountingBackend)
        net = ip.Network("sum")
        x = net.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
        net.add_output_layer(0, net.add_addition_layer(x, x, name="twice"), name="y")
        number = profiled.load_network(ip.optimize(net, ["Counting", "CpuRef"], profiled.device_spec))
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        [packet] = peer.until(Kind.COUNTER_DIRECTORY)
        directory = decode_directory(packet.body)
        added = [counter for category in directory.categories[1:] for counter in category.counters]
        assert [category.name for category in directory.categories] == ["ArmNN_Runtime", "Counting_work"]
        assert [(profiled.name, profiled.number, profiled.last, profiled.kind) for profiled in added] == [
            ("additions", 5, 5, 0), ("heat", 6, 7, 1),
        ]  # fmt: skip
        assert directory.devices == ((1, "unit 0", 1),)
        for _ in range(4):
            profiled.enqueue_workload(number, {0: np.ones((2, 3), np.float32)})
        peer.send(select(10_000, added[0].number))
        total, end = 0, time.monotonic() + 300
        while total < 4 and time.monotonic() < end:
            captures = peer.until(Kind.COUNTER_CAPTURE)
            total = sum(value for each in captures for _, value in decode_capture(each.body).values)
            time.sleep(0.01)
        assert total == 4


class Told(Counts):
    """Follows its selection; `stamps` are what it reports next."""

    def __init__(self, profiling: BackendProfiling) -> None:
        super().__init__(profiling)
        self.stamps: list[CounterTimestamp] = []
        self.error: str | None = None

    def activate_counters(self, capture_period: int, counter_ids: Sequence[int]) -> str | None:
        super().activate_counters(capture_period, counter_ids)
        return self.error

    def report_counter_values(self) -> Iterable[CounterTimestamp]:
        stamps, self.stamps = self.stamps, []
        return stamps


made: dict[str, Told] = {}


def told(profiling: BackendProfiling) -> Told:
    made[profiling.backend] = Told(profiling)
    return made[profiling.backend]


@contextmanager
def two_backends(peer: Peer, runtime: Any, **options: object) -> Iterator[ip.Runtime]:
    """Give a runtime whose collector has accepted it, with the counters 5 to 7 of Driven and 8 to 10 of Other."""
    with runtime(**options) as profiled:
        for name in ("Driven", "Other"):
            profiled.profiling.add(name, told)
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY)
        yield profiled


def captured(peer: Peer, count: int) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """Return the first captures, as their times and values."""
    captures = [decode_capture(packet.body) for packet in peer.until(Kind.COUNTER_CAPTURE, count)]
    return [(capture.at, capture.values) for capture in captures[:count]]


def wait_for(log: list[str], *entries: str) -> None:
    """Wait until a context was called in this way and no other since its last call."""
    end = time.monotonic() + 300
    while log[-len(entries) :] != list(entries) and time.monotonic() < end:
        time.sleep(0.005)
    assert log[-len(entries) :] == list(entries)


def test_a_selection_activates_the_counters_of_each_backend_and_a_later_one_ends_it(peer, runtime):
    with two_backends(peer, runtime):
        driven, other = made["Driven"], made["Other"]
        assert driven.log == other.log == ["enable True"]
        peer.send(select(20_000, 9, 5, 4, 7, 5))
        wait_for(other.log, "enable True", "activate 20000 [9]")
        wait_for(driven.log, "enable True", "activate 20000 [5, 7]")
        peer.send(select(5000, 6))
        wait_for(driven.log, "activate 20000 [5, 7]", "activate 10000 [6]")
        wait_for(other.log, "activate 20000 [9]", "activate 0 []")
        peer.send(select(0, 6))
        wait_for(driven.log, "activate 10000 [6]", "activate 0 []")
        echoed = [decode_selection(packet.body) for packet in peer.until(Kind.COUNTER_SELECTION, 3)]
        assert echoed == [Selection(20_000, (4, 5, 5, 7, 9)), Selection(10_000, (6,)), Selection(0, (6,))]
        peer.connections[-1].shutdown(socket.SHUT_RDWR)
        wait_for(driven.log, "activate 0 []", "enable False")


def test_each_moment_of_a_backend_is_a_capture_of_its_own_byte_for_byte(peer, runtime):
    with two_backends(peer, runtime):
        made["Other"].stamps = [CounterTimestamp(300, {8: 5}), CounterTimestamp(400, {8: 6, 9: 14.5})]
        made["Driven"].stamps = [CounterTimestamp(100, {5: 7, 6: 9}), CounterTimestamp(200, {5: 8, 9: 1, 11: 1})]
        peer.send(select(60_000_000, 4, 5, 8, 9))
        packets = peer.until(Kind.COUNTER_CAPTURE, 5)
    assert [packet.body[8:] for packet in packets[:1]] == [struct.pack("<HI", 4, 0)]
    assert [packet.encode() for packet in packets[1:5]] == [
        struct.pack("<IIQHI", 0x0C000000, 14, 100, 5, 7),
        struct.pack("<IIQHI", 0x0C000000, 14, 200, 5, 8),
        struct.pack("<IIQHI", 0x0C000000, 14, 300, 8, 5),
        struct.pack("<IIQHIHI", 0x0C000000, 20, 400, 8, 6, 9, 14),
    ]


def test_a_selection_of_backend_counters_alone_has_no_capture_of_the_runtime(peer, runtime):
    with two_backends(peer, runtime):
        made["Driven"].stamps = [CounterTimestamp(100, {6: 3})]
        peer.send(select(10_000, 6))
        time.sleep(0.1)
        made["Driven"].stamps = [CounterTimestamp(200, {6: 4})]
        assert captured(peer, 2) == [(100, ((6, 3),)), (200, ((6, 4),))]
        time.sleep(0.05)
        assert len(peer.until(Kind.COUNTER_CAPTURE)) == 2


def test_values_that_are_recorded_between_two_captures_are_in_the_next_one(peer, runtime):
    with two_backends(peer, runtime), Recorder():
        driven = made["Driven"]
        wait_for(driven.log, "activate 10000 [5, 6, 7]")
        peer.send(select(400_000, 5, 6))
        peer.until(Kind.COUNTER_SELECTION)
        for number in range(3):
            driven.stamps = [CounterTimestamp(100 + number, {5: 2, 6: 10 + number, 7: 1})]
            while driven.stamps:
                time.sleep(0.005)
        captures = captured(peer, 1)
        while sum(dict(values).get(5, 0) for _, values in captures) < 6:
            captures = captured(peer, len(captures) + 1)
        assert dict(captures[-1][1])[6] == 12
        assert "activate 400000 [5, 6]" not in driven.log
    assert driven.log[-2:] == ["activate 0 []", "enable False"]


def test_a_selection_holds_on_when_a_recorder_has_come_and_gone(peer, runtime):
    with two_backends(peer, runtime):
        log = made["Driven"].log
        peer.send(select(30_000, 5))
        wait_for(log, "enable True", "activate 30000 [5]")
        with Recorder():
            assert log[-2:] == ["timeline True", "activate 10000 [5, 6, 7]"]
        assert log[-2:] == ["activate 30000 [5]", "timeline False"]


def test_the_timeline_of_backends_begins_and_ends_with_that_of_the_collector(peer, runtime):
    with two_backends(peer, runtime):
        log = made["Driven"].log
        peer.send(ENABLE)
        wait_for(log, "enable True", "timeline True")
        peer.send(DISABLE)
        wait_for(log, "timeline True", "timeline False")
        peer.send(ENABLE)
        wait_for(log, "timeline False", "timeline True")
    wait_for(log, "timeline False", "enable False")


def test_backends_of_a_collector_that_gets_the_timeline_at_once_report_it(peer, runtime):
    with two_backends(peer, runtime, timeline_enabled=True):
        wait_for(made["Driven"].log, "enable True", "timeline True")


def test_unknown_counters_and_backends_that_refuse_are_logged(peer, runtime, caplog):
    with two_backends(peer, runtime):
        made["Driven"].error = "no more registers"
        peer.send(select(10_000, 99, 5, 4, *range(2000, 60_000)))
        wait_for(made["Driven"].log, "activate 10000 [5]")
        peer.until(Kind.COUNTER_SELECTION)
    assert [record.getMessage() for record in caplog.records if record.name == "interposer.profiling"] == [
        "the collector of profiles selected counters that do not exist: 99, 2000, 2001, 2002, 2003, 2004, "
        "2005, 2006, 2007, 2008, ...",
        "backend Driven does not capture the counters that the collector selected: no more registers",
    ]


def test_a_counter_of_several_cores_and_a_set_are_described_as_arm_nn_does():
    counters: dict[int, events.Counter] = {}
    registration = CounterRegistration("Gpu", 4, counters)
    registration.register_category("shader")
    device, group = registration.register_device("Mali"), registration.register_counter_set("set A")
    registration.register_counter("cycles", "shader", units="cycles", cores=4, device=device, counter_set=group)
    registration.register_counter("jobs", "shader", units="jobs", device=device)
    directory = decode_directory(encode_directory(Counting(counters).directory))
    assert directory.devices == ((1, "Mali", 4),)
    assert directory.counter_sets == ((1, "set A", 1),)
    [cycles, jobs] = directory.categories[1].counters
    assert (cycles.number, cycles.last, cycles.device, cycles.counter_set) == (5, 8, 1, 1)
    assert (jobs.number, jobs.last, jobs.device, jobs.counter_set) == (9, 9, 1, 0)
    names = {number: counter.name for number, counter in directory.by_number().items() if number > 4}
    assert names == {**{5 + core: f"cycles of core {core}" for core in range(4)}, 9: "jobs"}


def messages(packets: list[Packet]) -> list[object]:
    return [message for packet in packets for message in decode_messages(packet.body)]


def texts(packets: list[Packet]) -> list[str]:
    return [message.text for message in messages(packets) if isinstance(message, Label)]


def test_a_network_that_was_loaded_before_the_connection_has_executions_of_all_its_workloads(peer, runtime):
    with runtime(timeline_enabled=True) as profiled:
        peer.until(Kind.STREAM_METADATA)
        run(profiled)
        time.sleep(0.2)
        peer.send(ACK)
        peer.until(Kind.TIMELINE_MESSAGE)
        profiled.enqueue_workload(profiled.loaded_networks[0], FEEDS)
        packets = peer.until(Kind.TIMELINE_MESSAGE, 5)
    assert "add" not in texts(packets)  # its structure is not sent, as in Arm NN
    assert len(packets[-1].body) == 1520


def test_a_timeline_that_is_switched_on_again_has_the_same_identifiers(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY)
        run(profiled)
        time.sleep(0.2)
        peer.send(ENABLE, DISABLE, ENABLE)
        packets = peer.until(Kind.TIMELINE_MESSAGE, 4)
    first, second = ([each for each in messages([packets[at]]) if isinstance(each, Entity)] for at in (1, 3))
    assert len(first) == 8
    assert first == second


def test_a_runtime_that_nobody_closes_ends_its_connection(peer, runtime):
    before = len(active)
    options = ExternalProfilingOptions(True, socket=peer.listener.getsockname())
    profiled = ip.Runtime(ip.CreationOptions(profiling=options))
    run(profiled)
    assert len(active) == before + 1
    del profiled
    gc.collect()
    assert len(active) == before


def test_backends_that_are_registered_later_are_counted(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK, select(10_000, 2))
        peer.until(Kind.COUNTER_CAPTURE)
        profiled.registry.register("Counting", CountingBackend)
        total, end = 0, time.monotonic() + 300
        while total < len(profiled.registry.ids) and time.monotonic() < end:
            captures = [decode_capture(packet.body).values for packet in peer.until(Kind.COUNTER_CAPTURE)]
            total = sum(dict(values)[2] for values in captures)
        assert total == len(profiled.registry.ids)


def test_the_last_capture_counts_the_unregistered_backends_and_unloaded_networks(peer, runtime):
    with runtime() as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK, select(100_000, 1, 2, 3))
        peer.until(Kind.COUNTER_CAPTURE)
        run(profiled)
    captures = [decode_capture(packet.body).values for packet in peer.until(Kind.COUNTER_CAPTURE, 2)]
    totals = [sum(dict(values)[number] for values in captures) for number in (1, 2, 3)]
    assert totals[0] == 1
    assert totals[1] == totals[2] > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_runs_without_the_client_and_leaves_the_connection_to_its_parent(peer, runtime):
    with runtime(timeline_enabled=True) as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.TIMELINE_MESSAGE)
        number = run(profiled)
        peer.until(Kind.TIMELINE_MESSAGE, 6)
        child = os.fork()
        if not child:
            status = 1
            with suppress(BaseException):
                profiled.enqueue_workload(number, FEEDS)
                status = 2 if active else 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        profiled.enqueue_workload(number, FEEDS)
        peer.until(Kind.TIMELINE_MESSAGE, 10)
    assert len(peer.connections) == 1


def test_a_capture_file_that_cannot_be_written_is_reported_once(peer, runtime, tmp_path, caplog):
    path = tmp_path / "none" / "out.bin"
    with runtime(outgoing_capture_file=path) as profiled:
        run(profiled, 2)
        time.sleep(0.1)
    said = [record.getMessage() for record in caplog.records if record.name == "interposer.profiling"]
    assert said == [f"the file {path} for profiles cannot be written: No such file or directory; trying again"]


def test_networks_that_come_and_go_without_a_collector_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("interposer.profiling.external.client._RETRY", 0.01)
    client = ProfilingClient(ExternalProfilingOptions(True, socket=tmp_path / "none"))
    for number in range(1000):
        client.network_loaded(NetworkOutline(number, (LayerOutline("layer"),)))
        client.network_unloaded(number)
    end = time.monotonic() + 300
    while client._events and time.monotonic() < end:
        time.sleep(0.01)
    assert not client._events
    assert not client._structure.networks
    client.close()


def test_a_client_works_in_a_process_with_more_than_a_thousand_open_files(peer, runtime):
    resource = pytest.importorskip("resource")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("a process may not have so many files")
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        with runtime():
            peer.until(Kind.STREAM_METADATA)
            peer.send(ACK)
            peer.until(Kind.COUNTER_DIRECTORY)
    finally:
        for file in files:
            os.close(file)


def test_units_and_categories_of_backends_are_sent_with_the_letters_that_collectors_accept():
    counter = events.Counter("speed", "bytes/s", backend="Npu-1", category="memory", number=5)
    [_, category] = Counting({5: counter}).directory.categories
    assert (category.name, category.counters[0].units) == ("Npu_1_memory", "bytes_s")


def test_values_that_no_capture_can_have_are_left_out():
    counter = events.Counter("heat", "K", events.CounterClass.VALUE, number=5)
    counting = Counting({5: counter})
    counting.select([5])
    for at, value in enumerate((3, float("nan"), float("inf"))):
        counting.sampled(counter, at, value)
    assert counting.captures_of_backends() == [Capture(0, ((5, 3),))]


def test_a_connection_to_files_alone_waits_for_commands_as_long_as_it_is_told_to(tmp_path):
    connection = open_connection(
        ExternalProfilingOptions(True, outgoing_capture_file=tmp_path / "out.bin", file_only=True)
    )
    begin = time.monotonic()
    assert connection.receive(0.2) is None
    assert time.monotonic() - begin > 0.19
    connection.close()


def test_the_events_of_a_run_are_in_the_order_of_their_times(tmp_path):
    path = tmp_path / "out.bin"
    options = ExternalProfilingOptions(True, True, outgoing_capture_file=path, file_only=True)
    with ip.Runtime(ip.CreationOptions(profiling=options)) as profiled:
        run(profiled, 3)
    packets = [each for each in PacketReader().feed(path.read_bytes()) if each.kind is Kind.TIMELINE_MESSAGE]
    for packet in packets:
        times = [each.at for each in decode_messages(packet.body) if isinstance(each, Event)]
        assert times[:-1] == sorted(times[:-1])
    assert len([each for each in messages(packets) if isinstance(each, Event)]) == 1 + 3 * 12


def test_a_runtime_that_nobody_closes_counts_its_networks_as_unloaded(peer, runtime):
    profiled = ip.Runtime(
        ip.CreationOptions(profiling=ExternalProfilingOptions(True, socket=peer.listener.getsockname()))
    )
    peer.until(Kind.STREAM_METADATA)
    peer.send(ACK, select(100_000, 1))
    peer.until(Kind.COUNTER_CAPTURE)
    run(profiled)
    del profiled
    gc.collect()
    captures = [decode_capture(packet.body).values for packet in peer.until(Kind.COUNTER_CAPTURE, 2)]
    assert sum(dict(values)[1] for values in captures) == 1


def test_connecting_again_adds_to_the_capture_files(peer, runtime, tmp_path, monkeypatch):
    monkeypatch.setattr("interposer.profiling.external.client._RETRY", 0.0)
    files = {"outgoing_capture_file": tmp_path / "out.bin", "incoming_capture_file": tmp_path / "in.bin"}
    (tmp_path / "out.bin").write_bytes(b"of an earlier program")
    with runtime(timeline_enabled=True, **files) as profiled:
        peer.until(Kind.STREAM_METADATA)
        peer.send(ACK)
        peer.until(Kind.TIMELINE_MESSAGE)
        run(profiled)
        peer.until(Kind.TIMELINE_MESSAGE, 5)
        peer.connections[-1].shutdown(socket.SHUT_RDWR)
        peer.until(Kind.STREAM_METADATA, 2)
        peer.send(ACK)
        peer.until(Kind.COUNTER_DIRECTORY, 2)
        run(profiled)
    stream = read_stream(tmp_path / "out.bin").stream
    assert stream.packets["STREAM_METADATA"] >= 2
    assert sum(not execution.backend for execution in stream.executions()) == 2
    assert (tmp_path / "in.bin").read_bytes() == ACK.encode() * 2
