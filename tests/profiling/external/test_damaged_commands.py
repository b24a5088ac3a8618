"""Collectors that send damaged commands to a client, while inferences go on and stay right."""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.profiling.external.messages import Selection, encode_selection
from interposer.profiling.external.options import ExternalProfilingOptions
from interposer.profiling.external.packets import Kind, Packet, PacketReader
from tests.profiling.external.test_client import ACK, DISABLE, ENABLE, REQUEST, network, select

pytestmark = pytest.mark.needs_cpuref
PER_JOB = Packet(Kind.PER_JOB_COUNTER_SELECTION, bytes(20))
GOOD = [REQUEST, ENABLE, DISABLE, PER_JOB, select(10_000, 0, 4), select(0), select(1, 99), Packet(0x00090000, b"abc")]


def bytes_of(packets: list[Packet], order: str = "<") -> bytes:
    return b"".join(packet.encode(order) for packet in packets)


def good(generator: random.Random) -> bytes:
    return bytes_of(generator.choices(GOOD, k=generator.randint(1, 12)))


def selection(generator: random.Random) -> bytes:
    """Return a selection of any length, with any numbers."""
    body = encode_selection(Selection(generator.getrandbits(32), ()))
    return Packet(
        Kind.COUNTER_SELECTION, (body + generator.randbytes(generator.randint(0, 60)))[generator.randint(0, 5) :]
    ).encode()


def long_selection(generator: random.Random) -> bytes:
    count = generator.randint(1000, 60_000)
    return select(10_000, *(generator.randint(0, 65_535) for _ in range(count))).encode()


def with_bodies(generator: random.Random) -> bytes:
    """Return commands that have a body, which they must not have."""
    kinds = (Kind.CONNECTION_ACKNOWLEDGED, Kind.REQUEST_COUNTER_DIRECTORY, Kind.ACTIVATE_TIMELINE)
    return bytes_of([Packet(generator.choice(kinds), generator.randbytes(generator.randint(1, 40))) for _ in range(5)])


def truncated(generator: random.Random) -> bytes:
    data = good(generator)
    return data[: generator.randint(0, len(data))]


def other_order(generator: random.Random) -> bytes:
    return bytes_of(generator.choices(GOOD, k=4), ">")


def endless_packet(generator: random.Random) -> bytes:
    """Return a packet that announces more bytes than it has, up to 16 MiB."""
    word = generator.choice(GOOD).word
    return struct.pack("<II", word, generator.randint(1 << 10, (1 << 24) - 1)) + bytes(generator.randint(0, 40_000))


def endless_packets(generator: random.Random) -> bytes:
    return generator.choice(GOOD).encode() * generator.randint(100, 400)


def flipped(generator: random.Random) -> bytes:
    data = bytearray(good(generator))
    for _ in range(generator.randint(1, 8)):
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    return bytes(data)


def noise(generator: random.Random) -> bytes:
    return generator.randbytes(generator.randint(0, 400))


DAMAGE: tuple[Callable[[random.Random], bytes], ...] = (
    good, selection, long_selection, with_bodies, truncated, other_order, endless_packet, endless_packets, flipped,
    noise,
)  # fmt: skip


class Collectors:
    """A collector for each connection of a client, which all misbehave in another way, one after the other."""

    def __init__(self, path: str, count: int, seed: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._listener.settimeout(300)
        self._generator = random.Random(seed)
        self.count, self.served = count, 0
        self.answered = 0
        self.problem = ""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            for number in range(self.count):
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(0.02)
                    self._misbehave(connection, DAMAGE[number % len(DAMAGE)])
                self.served += 1
        except OSError as error:
            self.problem = str(error)

    def _misbehave(self, connection: socket.socket, damage: Callable[[random.Random], bytes]) -> None:
        generator = self._generator
        start = ACK.encode() if generator.random() < 0.9 else b""
        data = start + damage(generator)
        while data:
            size = generator.choice((len(data), len(data), 1 + generator.randrange(len(data))))
            connection.sendall(data[:size])
            data = data[size:]
        if generator.random() < 0.5:
            return  # gone, with what the client has sent unread
        connection.shutdown(socket.SHUT_WR)
        while received := connection.recv(1 << 16):
            self.answered += len(received)

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def close(self) -> None:
        self._thread.join(300)
        self._listener.close()

    def last(self) -> Iterator[Packet]:
        """Accept the client once more, as a collector that behaves, and yield what it sends."""
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(300)
            connection.sendall(bytes_of([ACK, select(10_000, 0, 4)]))
            reader = PacketReader()
            while data := connection.recv(1 << 16):
                yield from reader.feed(data)


def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, seed: int) -> None:
    """Let a runtime meet so many collectors that misbehave, while it runs a network whose results are compared."""
    monkeypatch.setattr(logging.getLogger("interposer.profiling"), "disabled", True)  # pytest would keep all records
    monkeypatch.setattr("interposer.runtime.reporting._PATIENCE", 0.0)
    monkeypatch.setattr("interposer.profiling.external.client._RETRY", 0.0)
    monkeypatch.setattr("interposer.profiling.external.client._IDLE", 0.0005)
    collectors = Collectors(str(tmp_path / "socket"), count, seed)
    options = ExternalProfilingOptions(True, timeline_enabled=bool(seed % 2), socket=str(tmp_path / "socket"))
    with ip.Runtime(ip.CreationOptions(profiling=options)) as runtime:
        number = runtime.load_network(ip.optimize(network(), ["CpuRef"], runtime.device_spec))
        runs = 0
        while not collectors.is_over:
            runs += 1
            value = np.full((1, 4), runs, np.float32)
            assert runtime.enqueue_workload(number, {0: value, 1: value})[0].tolist() == [[2 * runs] * 4]
        assert (collectors.served, collectors.problem) == (count, "")
        assert collectors.answered > 0
        kinds = set()
        for packet in collectors.last():
            kinds.add(packet.kind)
            if packet.kind is Kind.COUNTER_CAPTURE:
                break
    assert {Kind.STREAM_METADATA, Kind.COUNTER_DIRECTORY, Kind.COUNTER_SELECTION, Kind.COUNTER_CAPTURE} <= kinds
    collectors.close()


@pytest.mark.parametrize("seed", range(2))
def test_collectors_that_misbehave_do_not_disturb_inferences(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, monkeypatch, 200, seed)


@pytest.mark.slow
def test_twenty_thousand_collectors_that_misbehave_do_not_disturb_inferences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, monkeypatch, 20_000, 20_000)
