"""What the attacks of `attack_server.py` share: the server that is attacked, its answers, and messages of HTTP/2."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOKEN = "a-token-of-the-attack-suite"
MIB = 1 << 20
INFER = "/v2/models/double/infer"


@dataclass
class Target:
    """The server that is attacked, and what its attacker gets."""

    port: int
    grpc_port: int
    pid: int
    folder: Path
    seconds: float
    budget: int
    health_port: int = 0
    got: Counter[str] = field(default_factory=Counter)

    def connect(self) -> socket.socket:
        """Return a new connection."""
        connection = socket.create_connection(("127.0.0.1", self.port), 20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def note(self, status: object) -> None:
        """Count something that the attacker got."""
        self.got[str(status)] += 1

    def post(self, body: bytes, path: str = INFER, **headers: str) -> None:
        """Send a request, and count the status of its answer."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            client.request("POST", path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            response = client.getresponse()
            response.read()
            self.note(response.status)
        except (OSError, http.client.HTTPException) as error:
            self.note(type(error).__name__)
        finally:
            client.close()

    def together(self, count: int, attack: Callable[[int], None]) -> None:
        """Call a function in several threads at the same time."""
        threads = [threading.Thread(target=self._guarded, args=(attack, number)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _guarded(self, attack: Callable[[int], None], number: int) -> None:
        try:
            attack(number)
        except (OSError, http.client.HTTPException) as error:
            self.note(type(error).__name__)

    def until_end(self) -> Iterator[int]:
        """Yield numbers until the time of an attack is over."""
        end, number = time.monotonic() + self.seconds, 0
        while time.monotonic() < end:
            yield number
            number += 1

    def hold(self, connections: list[socket.socket], data: bytes) -> None:
        """Send a few bytes on all connections now and then, until the time is over; count those that were closed."""
        for _ in self.until_end():
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(data)
            time.sleep(0.3)
        for connection in connections:
            self.note(answered(connection))
            connection.close()


def answered(connection: socket.socket) -> str:
    """Return the status that a connection has been answered with, ``closed`` or ``open``."""
    connection.settimeout(0.05)
    try:
        data = connection.recv(4096)
    except TimeoutError:
        return "open"
    except OSError:
        return "closed"
    return data.split()[1].decode() if data[:5] == b"HTTP/" else "closed"


def head(path: str = INFER, **headers: object) -> bytes:
    """Return the line and the headers of a request."""
    lines = [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def of_rows(rows: int, fields: str = "") -> bytes:
    """Return the JSON object of a request for the model `double`, whose rows follow it as bytes."""
    tensor_text = f'{{"name":"x","datatype":"FP32","shape":[{rows},4],"parameters":{{"binary_data_size":{16 * rows}}}}}'
    return f'{{"inputs":[{tensor_text}]{fields}}}'.encode()


def repeated(prefix: bytes, unit: bytes, suffix: bytes, size: int) -> bytes:
    """Return a body of about `size` bytes that repeats a unit."""
    return prefix + unit * ((size - len(prefix) - len(suffix)) // len(unit)) + suffix


ATTACKS: dict[str, Callable[[Target], None]] = {}
AUDITED: set[str] = set()


def attack(function: Callable[[Target], None]) -> Callable[[Target], None]:
    """Add an attack to the suite; its name is that of the function, and its docstring says what it does."""
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


def audited(function: Callable[[Target], None]) -> Callable[[Target], None]:
    """Add an attack that a review has found."""
    AUDITED.add(function.__name__.replace("_", "-"))
    return attack(function)


def ask(target: Target, method: str, path: str, body: Any = None, **headers: str) -> str:
    """Return the status of a request with other headers than a client of this project would send."""
    client = http.client.HTTPConnection("127.0.0.1", target.port, timeout=20)
    try:
        header_texts = {name.replace("_", "-"): text for name, text in headers.items()}
        client.request(method, path, None if body is None else json.dumps(body), header_texts)
        return str(client.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        client.close()


def valid_body() -> bytes:
    """Return a small valid request."""
    data = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    return json.dumps({"inputs": [data]}).encode()


def rpc(target: Target, data: bytes, *, compressed: bool = True, method: str = "ModelInfer") -> None:
    """Send the bytes of a message over gRPC, and count the status."""
    import grpc  # noqa: PLC0415 - --help needs no package

    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options) as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}", None, None)
        try:
            call(data, timeout=40, compression=grpc.Compression.Gzip if compressed else None)
            target.note("OK")
        except grpc.RpcError as error:
            target.note(error.code().name)


def number(value: int) -> bytes:
    """Return a number in protobuf's variable length."""
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def in_field(index: int, data: bytes) -> bytes:
    """Return data as a field of a message."""
    return number(index << 3 | 2) + number(len(data)) + data


NAME = in_field(1, b"double")
INPUTS, CONTENTS, BOOLS, INTEGERS, TEXTS = 5, 5, 1, 2, 8


def tensor(contents: bytes) -> bytes:
    """Return a message with one input that has these contents."""
    fields = in_field(1, b"x") + in_field(2, b"BYTES") + in_field(3, b"\x04") + in_field(CONTENTS, contents)
    return NAME + in_field(INPUTS, fields)


def half_message(target: Target, sent: int, method: str = "ModelInfer") -> socket.socket | None:
    """Return a connection that has sent a part of a message of 60 MiB over HTTP/2."""
    connection = socket.create_connection(("127.0.0.1", target.grpc_port), 5)
    fields = {
        ":method": "POST", ":scheme": "http", ":path": f"/inference.GRPCInferenceService/{method}",
        ":authority": "localhost", "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    block = b"".join(
        b"\x00" + number(len(name)) + name.encode() + number(len(text)) + text.encode() for name, text in fields.items()
    )
    try:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block))
        data = b"\0" + struct.pack(">I", 60 * MIB) + bytes(16_000)
        windows, is_closed = [65_535, 65_535], threading.Event()
        threading.Thread(target=read_windows, args=(connection, windows, is_closed), daemon=True).start()
        end = time.monotonic() + 1.0
        while sent > 0 and time.monotonic() < end and not is_closed.is_set():
            if min(windows) < len(data):
                time.sleep(0.001)
                continue
            connection.sendall(frame(0, 0, 1, data))
            windows[0], windows[1] = windows[0] - len(data), windows[1] - len(data)
            sent, data = sent - len(data), bytes(16_000)
    except OSError:
        target.note("closed")
        return None
    return connection


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def read_windows(connection: socket.socket, windows: list[int], is_closed: threading.Event) -> None:
    """Read the frames of a server, and add what it allows to the windows of the connection and of its stream."""
    file = connection.makefile("rb")
    with contextlib.suppress(OSError, ValueError):
        while True:
            start = file.read(9)
            if len(start) < 9:
                break
            payload = file.read(int.from_bytes(start[:3], "big"))
            stream = int.from_bytes(start[5:9], "big")
            if start[3] == 8:
                windows[1 if stream else 0] += int.from_bytes(payload, "big")
            elif start[3] == 4 and not start[4] & 1:
                for offset in range(0, len(payload), 6):
                    if payload[offset : offset + 2] == b"\0\4":
                        windows[1] += int.from_bytes(payload[offset + 2 : offset + 6], "big") - 65_535
                connection.sendall(frame(4, 1, 0, b""))
            elif start[3] in (3, 7):
                break
    is_closed.set()
