"""Attack a server in many ways, and measure what that costs it and its other clients.

    python tools/attack_server.py [--only NAME,NAME] [--seconds 4] [--cores 0,1] [--python PYTHON]

Each attack has a fresh `interposer serve` in a process of its own, with a small budget of memory. While it runs, one
client asks for liveness ten times a second and another one sends small valid requests. The table has, for each attack,
the most memory that the server needed beyond what it had before, the longest answer about liveness on the port for HTTP
and on that of `--health-port`, the 99th percentile of the valid requests and how many of them were refused, and what
the attacker got. The status is 1 if a server has ended, needed more memory than its budget and 200 MiB, or was not live
within the limit.

`--cores 0,1` keeps the attacker on processor 0 and the server on processor 1, as if they were two machines. The process
that measures has a priority of real time if it may, so that the times are those of the server.

`--python` runs the server with another interpreter, for example one that has an older version.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interposer import Network, TensorInfo
from interposer.writers import tflite
from tools import attack_forms, attack_models, attack_shares
from tools.attacking import (
    ATTACKS,
    BOOLS,
    INFER,
    INPUTS,
    INTEGERS,
    MIB,
    NAME,
    TEXTS,
    TOKEN,
    Target,
    answered,
    ask,
    attack,
    audited,
    half_message,
    head,
    in_field,
    of_rows,
    repeated,
    rpc,
    tensor,
    valid_body,
)


def json_bomb(unit: bytes, size: int = 63 * MIB, prefix: bytes = b'{"inputs":[', suffix: bytes = b"0]}") -> bytes:
    """Return compressed JSON text with very many values."""
    return gzip.compress(repeated(prefix, unit, suffix, size), 9)


@attack
def nothing(target: Target) -> None:
    """Leave the server alone, for comparison."""
    time.sleep(target.seconds)


# --- JSON -------------------------------------------------------------------------------------------------------------


@audited
def json_lists(target: Target) -> None:
    """65 KB of gzip with 20 million empty lists."""
    target.post(json_bomb(b"[],"), Content_Encoding="gzip")


@audited
def json_lists_8(target: Target) -> None:
    """The same eight times at once."""
    body = json_bomb(b"[],")
    target.together(8, lambda _: target.post(body, Content_Encoding="gzip"))


@attack
def json_objects(target: Target) -> None:
    """7 million objects with a list each."""
    target.post(json_bomb(b'{"":[]},'), Content_Encoding="gzip")


@attack
def json_texts(target: Target) -> None:
    """Millions of short texts that are not ASCII."""
    target.post(json_bomb(b'"\xc3\xa9\xc3\xa9",'), Content_Encoding="gzip")


@attack
def json_numbers(target: Target) -> None:
    """16 million numbers as the data of a tensor of another shape."""
    prefix = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":['
    target.post(json_bomb(b"1.5,", prefix=prefix, suffix=b"0]}]}"), Content_Encoding="gzip")


@attack
def json_numbers_of_the_shape(target: Target) -> None:
    """16 million numbers for a model that accepts any number of rows, sent plainly."""
    rows = 3_900_000
    text = f'{{"inputs":[{{"name":"x","datatype":"FP32","shape":[{rows},4],"data":['
    target.post(text.encode() + b"1.5," * (4 * rows - 1) + b"1.5]}]}")


@attack
def json_texts_as_a_tensor(target: Target) -> None:
    """Send 10 million texts as the data of a tensor."""
    prefix = b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":['
    target.post(json_bomb(b'"ab",', prefix=prefix, suffix=b'""]}]}'), Content_Encoding="gzip")


@attack
def json_nested(target: Target) -> None:
    """A million nested lists, with closing brackets."""
    target.post(b'{"inputs":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")


@attack
def json_nested_in_small_texts(target: Target) -> None:
    """Many small requests with a thousand nested lists each."""
    body = b'{"inputs":' + b"[" * 1000 + b"]" * 1000 + b"}"
    for _ in target.until_end():
        target.post(body)


@attack
def json_parameters(target: Target) -> None:
    """Send three million parameters."""
    body = b'{"inputs":[],"parameters":{' + b",".join(b'"%d":1' % n for n in range(3_000_000)) + b"}}"
    target.post(body)


@attack
def json_long_name(target: Target) -> None:
    """A tensor whose name has 30 MB, which is compared with the known names."""
    target.post(b'{"inputs":[{"name":"' + b"ab" * (15 * MIB) + b'","datatype":"FP32","shape":[1],"data":[1]}]}')


@attack
def json_long_number(target: Target) -> None:
    """Send an integer with 20 million digits."""
    target.post(b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[' + b"9" * 20_000_000 + b"]}]}")


@attack
def json_backslashes(target: Target) -> None:
    """Send a text of 60 million backslashes."""
    target.post(b'{"id":"' + b"\\" * (60 * MIB) + b'"}')


@attack
def json_nested_like_the_shape(target: Target) -> None:
    """Four million rows of one number each, in lists of their own."""
    prefix = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[4000000,1],"data":['
    target.post(json_bomb(b"[1],", 16_000_000, prefix, b"[1]]}]}"), Content_Encoding="gzip")


# --- bodies -----------------------------------------------------------------------------------------------------------


@audited
def unfinished_bodies(target: Target) -> None:
    """20 bodies of 60 MiB of which the last MiB never comes."""
    connections = [target.connect() for _ in range(20)]
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(head(Content_Length=60 * MIB))
            for _ in range(59):
                connection.sendall(bytes(MIB))
    target.hold(connections, b"")


@attack
def unfinished_chunks(target: Target) -> None:
    """20 bodies of unknown length that grow to 60 MiB and never end."""
    connections = [target.connect() for _ in range(20)]
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(head(Transfer_Encoding="chunked"))
            for _ in range(59):
                connection.sendall(b"100000\r\n" + bytes(MIB) + b"\r\n")
    target.hold(connections, b"1\r\n \r\n")


@audited
def idle_bodies(target: Target) -> None:
    """200 requests that announce a body and send none."""
    connections = [target.connect() for _ in range(200)]
    for connection in connections:
        connection.sendall(head(Content_Length=60_000_000))
    target.hold(connections, b"")


@attack
def dripping_bodies(target: Target) -> None:
    """Send 200 bodies, byte by byte."""
    connections = [target.connect() for _ in range(200)]
    for connection in connections:
        connection.sendall(head(Content_Length=60_000_000))
    target.hold(connections, b" ")


@attack
def whole_bodies(target: Target) -> None:
    """40 bodies of 60 MiB at once, which do not fit the model."""
    body = bytes(60 * MIB)
    target.together(40, lambda _: target.post(body, Inference_Header_Content_Length="2"))


@attack
def zeros(target: Target) -> None:
    """60 MiB of zeros in 60 KB of gzip, 32 times at once."""
    body = gzip.compress(bytes(60 * MIB), 9)
    target.together(32, lambda _: target.post(body, Content_Encoding="gzip"))


@attack
def deflated_endlessly(target: Target) -> None:
    """A stream of deflate that never ends."""
    stream, connection = zlib.compressobj(9), target.connect()
    connection.sendall(head(Transfer_Encoding="chunked", Content_Encoding="deflate"))
    for _ in target.until_end():
        piece = stream.compress(bytes(8 * MIB)) + stream.flush(zlib.Z_SYNC_FLUSH)
        connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    target.note(answered(connection))


@attack
def empty_texts(target: Target) -> None:
    """16 million empty texts in a binary tensor of 64 MB, whose type has an escaped letter."""
    count = 15_500_000
    text = '{"inputs":[{"name":"x","datatype":"B\\u0059TES","shape":[%d],"parameters":{"binary_data_size":%d}}]}'
    header = (text % (count, 4 * count)).encode()
    target.post(header + bytes(4 * count), Inference_Header_Content_Length=str(len(header)))


@attack
def endless_control(target: Target) -> None:
    """Bodies of a megabyte for requests that need none."""
    for _ in target.until_end():
        target.post(b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}", "/v2/repository/index")


# --- heads and connections --------------------------------------------------------------------------------------------


@audited
def endless_head(target: Target) -> None:
    """Headers without end, on one connection."""
    connection = target.connect()
    connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n")
    lines = b"".join(b"A%07d: \r\n" % number for number in range(20_000))
    _flood(target, [connection], lines)


@attack
def endless_header(target: Target) -> None:
    """One header without end, on each of 20 connections."""
    connections = [target.connect() for _ in range(20)]
    for connection in connections:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: ")
    _flood(target, connections, b"a" * MIB)


@attack
def endless_line(target: Target) -> None:
    """A path without end, on each of 20 connections."""
    connections = [target.connect() for _ in range(20)]
    for connection in connections:
        connection.sendall(b"GET /")
    _flood(target, connections, b"a" * MIB)


def _flood(target: Target, connections: list[socket.socket], data: bytes) -> None:
    """Send data on all connections until they are closed, or the time is over."""
    still_open = list(connections)
    for _ in target.until_end():
        for connection in tuple(still_open):
            try:
                connection.sendall(data)
            except OSError:
                still_open.remove(connection)
        if not still_open:
            break
    target.got["open"] += len(still_open)
    target.got["closed"] += len(connections) - len(still_open)


@attack
def many_headers(target: Target) -> None:
    """300 connections with 60 KB of headers that do not end."""
    connections = [target.connect() for _ in range(300)]
    lines = b"".join(b"A%05d:\r\n" % number for number in range(6_000))
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + lines)
    target.hold(connections, b"")


@audited
def slow_heads(target: Target) -> None:
    """900 connections whose headers arrive line by line."""
    connections = []
    for _ in range(900):
        with contextlib.suppress(OSError):
            connections.append(target.connect())
            connections[-1].sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")
    target.hold(connections, b"X: b\r\n")


@attack
def all_descriptors(target: Target) -> None:
    """4,000 connections that send nothing."""
    connections = []
    for _ in range(4000):
        with contextlib.suppress(OSError):
            connections.append(target.connect())
    target.hold(connections, b"")


@attack
def pipelined(target: Target) -> None:
    """Requests one after another on 20 connections, whose answers are not read."""
    data = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000
    _flood(target, [target.connect() for _ in range(20)], data)


@attack
def unread_answers(target: Target) -> None:
    """60 requests with answers of 48 MB, which are not read."""
    rows = 3_000_000
    header = of_rows(rows, ',"parameters":{"binary_data_output":true}')
    length = len(header) + 16 * rows
    request = head(Content_Length=length, Inference_Header_Content_Length=len(header)) + header + bytes(16 * rows)
    connections = []
    for _ in range(60):
        with contextlib.suppress(OSError):
            connection = target.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connections.append(connection)
            connection.sendall(request)
    target.hold(connections, b"")


@attack
def upgrades(target: Target) -> None:
    """Requests to change to another protocol."""
    for _ in target.until_end():
        target.post(b"{}", Connection="Upgrade", Upgrade="websocket")


@attack
def garbage(target: Target) -> None:
    """Bytes that are not HTTP."""
    for _ in target.until_end():
        connection = target.connect()
        connection.sendall(os.urandom(4096))
        target.note(answered(connection))
        connection.close()


@attack
def new_connections(target: Target) -> None:
    """Open as many new connections as possible, from four threads."""

    def open_and_close(_: int) -> None:
        for _ in target.until_end():
            target.connect().close()
            target.got["opened"] += 1

    target.together(4, open_and_close)


@attack
def flood_of_requests(target: Target) -> None:
    """As many valid requests as possible, from 24 connections."""
    body = valid_body()

    def send(_: int) -> None:
        client = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)
        for _ in target.until_end():
            client.request("POST", INFER, body)
            response = client.getresponse()
            response.read()
            target.note(response.status)

    target.together(24, send)


@attack
def classes(target: Target) -> None:
    """Request all elements of an output of a million as texts, from four threads."""
    rows = 250_000
    header = of_rows(rows, ',"outputs":[{"name":"y","parameters":{"classification":1000000}}]')
    body = header + bytes(16 * rows)
    target.together(4, lambda _: target.post(body, Inference_Header_Content_Length=str(len(header))))


@attack
def json_answers(target: Target) -> None:
    """Request outputs of 12 million numbers as JSON text, from four threads."""
    rows = 3_000_000
    header = of_rows(rows)
    body = header + np.random.default_rng(0).random(4 * rows, np.float32).tobytes()
    target.together(4, lambda _: target.post(body, Inference_Header_Content_Length=str(len(header))))


# --- gRPC -------------------------------------------------------------------------------------------------------------


@audited
def grpc_inputs(target: Target) -> None:
    """Send 20 million empty inputs in a message of 40 MB."""
    rpc(target, NAME + in_field(INPUTS, b"") * 20_000_000)


@audited
def grpc_texts(target: Target) -> None:
    """Send 30 million empty texts in typed contents."""
    rpc(target, tensor(in_field(TEXTS, b"") * 30_000_000))


@attack
def grpc_numbers(target: Target) -> None:
    """Send 60 million integers of a byte each in typed contents."""
    rpc(target, tensor(in_field(INTEGERS, bytes(60_000_000))))


@attack
def grpc_truth_values(target: Target) -> None:
    """60 million truth values in typed contents, four times at once."""
    data = tensor(in_field(BOOLS, bytes(60_000_000)))
    target.together(4, lambda _: rpc(target, data))


@attack
def grpc_parameters(target: Target) -> None:
    """8 million parameters without names."""
    rpc(target, NAME + in_field(4, b"") * 8_000_000)


@attack
def grpc_unfinished(target: Target) -> None:
    """20 messages of 60 MiB over gRPC of which the last MiB never comes."""
    connections = [half_message(target, 59 * MIB) for _ in range(20)]
    target.hold([connection for connection in connections if connection is not None], b"")


@attack
def grpc_unfinished_streams(target: Target) -> None:
    """The same in 20 streams, which may be idle for long."""
    connections = [half_message(target, 59 * MIB, "ModelStreamInfer") for _ in range(20)]
    target.hold([connection for connection in connections if connection is not None], b"")


@attack
def grpc_flood(target: Target) -> None:
    """Compressed messages of 60 MiB of zeros, from eight threads."""
    data = NAME + in_field(7, bytes(60 * MIB))
    target.together(8, lambda _: rpc(target, data))


# --- trust ------------------------------------------------------------------------------------------------------------


@audited
def unload_without_token(target: Target) -> None:
    """A model is unloaded without a token."""
    target.note(ask(target, "POST", "/v2/repository/models/small/unload", {}))


@audited
def unload_from_a_page(target: Target) -> None:
    """A page of another site unloads a model, as text/plain."""
    headers = {"Host": "evil.example", "Origin": "http://evil.example", "Content_Type": "text/plain"}
    target.note(ask(target, "POST", "/v2/repository/models/small/unload", {}, **headers))


@attack
def inference_from_a_page(target: Target) -> None:
    """A page of another site sends a request to a model."""
    headers = {"Origin": "http://evil.example", "Content_Type": "text/plain"}
    target.note(ask(target, "POST", INFER, json.loads(valid_body()), **headers))


@attack
def rebound_name(target: Target) -> None:
    """A page whose name was bound to this address sends a request to a model."""
    headers = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"}
    target.note(ask(target, "POST", INFER, json.loads(valid_body()), **headers))


@attack
def statistics_without_token(target: Target) -> None:
    """Somebody reads how often which model is used."""
    for path in ("/v2/models/stats", "/v2/models/double/stats", "/", "/metrics"):
        target.note(ask(target, "GET", path))


@audited
def shared_memory_of_another_user(target: Target) -> None:
    """A region that belongs to the server's user is registered by another user, as whom this runs if it may."""
    path = Path("/dev/shm", f"attack-{os.getpid()}")
    path.write_bytes(b"secret of another user" * 10)
    path.chmod(0o600)
    body = {"key": f"/{path.name}", "offset": 0, "byte_size": 16}
    code = (
        "import encodings.idna, http.client, json, os, sys\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
        "h = {'Authorization': 'Bearer ' + sys.argv[3]} if sys.argv[3] else {}\n"
        "c.request('POST', '/v2/systemsharedmemory/region/r/register', sys.argv[2], h)\n"
        "print(c.getresponse().status)"
    )
    try:
        for token in ("", TOKEN):
            command = [sys.executable, "-I", "-c", code, str(target.port), json.dumps(body), token]
            target.note(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    finally:
        path.unlink()


@attack
def guessed_token(target: Target) -> None:
    """Tokens are tried as quickly as possible."""
    for index in target.until_end():
        headers = {"Authorization": f"Bearer guess-{index}"}
        target.note(ask(target, "POST", "/v2/repository/models/small/unload", {}, **headers))


@audited
def replaced_file(target: Target) -> None:
    """The file of a model is written to and truncated while the model is served."""
    path = target.folder / "large.tflite"
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : len(content) // 2] = b"\x11" * (len(content) // 2 - len(content) // 4)
    with path.open("r+b") as file:
        file.write(content)
    target.post(large_body(), "/v2/models/large/infer")
    os.truncate(path, 1000)
    target.post(large_body(), "/v2/models/large/infer")


# --- measuring --------------------------------------------------------------------------------------------------------


def network(dtype: str, shape: tuple[Any, ...]) -> Network:
    """Return a network that computes y = x + x."""
    doubler = Network("double")
    x = doubler.add_input_layer(0, TensorInfo(shape, dtype), name="x")
    doubler.add_output_layer(0, doubler.add_addition_layer(x, x, name="sum"), name="y")
    return doubler


LARGE = 1 << 20
"""Elements of the constant of the model `large`, whose file is mapped."""


def large_network() -> Network:
    """Return a network whose file is so large that it would be mapped; it adds a constant of ones to its input."""
    adder = Network("large")
    x = adder.add_input_layer(0, TensorInfo((1, LARGE)), name="x")
    ones = adder.add_constant_layer(np.ones((1, LARGE), np.float32), name="ones")
    adder.add_output_layer(0, adder.add_addition_layer(x, ones, name="sum"), name="y")
    return adder


def large_body() -> bytes:
    """Return a request for the model `large`, for one class of its output."""
    data = ",".join(["0"] * LARGE)
    tensor_text = f'{{"name":"x","datatype":"FP32","shape":[1,{LARGE}],"data":[{data}]}}'
    return f'{{"inputs":[{tensor_text}],"outputs":[{{"name":"y","parameters":{{"classification":1}}}}]}}'.encode()


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    match = re.search(r"VmRSS:\s+(\d+)", text)
    return int(match[1]) << 10 if match else 0


class Witness:
    """Measures a server from outside while it is attacked, in a process that the attacks do not slow down."""

    def __init__(self, port: int, pid: int, health_port: int) -> None:
        self._port, self._pid, self._health_port = port, pid, health_port
        self._stop = threading.Event()
        self.peak = self.before = resident(pid)
        self.live: list[float] = []
        self.health: list[float] = []
        self.served: list[float] = []
        self.statuses: Counter[str] = Counter()

    def watch(self) -> dict[str, Any]:
        """Measure until standard input ends, and return what was measured."""
        watches = (self._memory, self._liveness, self._health, self._client)
        threads = [threading.Thread(target=each, daemon=True) for each in watches]
        for thread in threads:
            thread.start()
        print("watching", flush=True)
        sys.stdin.read()
        time.sleep(0.3)
        self._stop.set()
        for thread in threads:
            thread.join(40)
        return {
            "growth": max(0, self.peak - self.before), "live": max(self.live, default=float("inf")),
            "health": max(self.health, default=float("inf")),
            "p99": percentile(self.served), "statuses": self.statuses,
        }  # fmt: skip

    def _memory(self) -> None:
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, resident(self._pid))

    def _liveness(self) -> None:
        while not self._stop.wait(0.1):
            self.live.append(self._timed("GET", "/v2/health/live", None)[1])

    def _health(self) -> None:
        while self._health_port and not self._stop.wait(0.1):
            self.health.append(self._timed("GET", "/v2/health/live", None, self._health_port)[1])

    def _client(self) -> None:
        body = valid_body()
        while not self._stop.wait(0.02):
            status, seconds = self._timed("POST", INFER, body)
            self.statuses[status] += 1
            if status == "200":
                self.served.append(seconds)

    def _timed(self, method: str, path: str, body: bytes | None, port: int = 0) -> tuple[str, float]:
        began = time.monotonic()
        client = http.client.HTTPConnection("127.0.0.1", port or self._port, timeout=30)
        try:
            client.request(method, path, body)
            response = client.getresponse()
            response.read()
            status = str(response.status)
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
        finally:
            client.close()
        return status, time.monotonic() - began


@contextlib.contextmanager
def watched(target: Target) -> Iterator[dict[str, Any]]:
    """Yield a dictionary that has what a `Witness` in a process of its own has measured, after the ``with`` block."""
    command = [sys.executable, __file__, "--witness", *map(str, (target.port, target.pid, target.health_port))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        measured: dict[str, Any] = {}
        yield measured
        process.stdin.close()
        measured.update(json.loads(process.stdout.readline()))


@contextlib.contextmanager
def server(
    python: str, seconds: float, options: list[str], cores: list[int]
) -> Iterator[tuple[Target, subprocess.Popen[str]]]:
    """Run a server within a ``with`` block, on the second one of two `cores`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tflite.save(network("float32", (None, 4)), folder / "double.tflite")
        tflite.save(network("int8", (1, 4)), folder / "small.tflite")
        tflite.save(large_network(), folder / "large.tflite")
        command = [python, "-P", "-m", "interposer", "serve", name, "--backends", "CpuRef", "--port", "0"]
        command += ["--grpc-port", "0", "--control", "explicit", "--shared-memory", *options]
        environment = dict(os.environ)
        environment.pop("INTERPOSER_SERVE_TOKEN", None)
        if "--no-token" in options:
            command.remove("--no-token")
        else:
            environment["INTERPOSER_SERVE_TOKEN"] = TOKEN
        with open(folder / "log", "w+", encoding="utf-8") as log:
            if cores:
                command = ["taskset", "-c", str(cores[1]), *command]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            line = process.stdout.readline() if process.stdout else ""
            ports = {name: int(port) for name, port in re.findall(r"(http|gRPC|health)\b[^,]*:(\d+)", line)}
            if len(ports) < 2:
                raise SystemExit(f"the server did not start: {line}{(folder / 'log').read_text(encoding='utf-8')}")
            target = Target(ports["http"], ports["gRPC"], process.pid, folder, seconds, 8 * 64 * MIB)
            target.health_port = ports.get("health", 0)
            yield target, process
        finally:
            process.kill()
            process.wait()


def milliseconds(seconds: float) -> str:
    """Return a time as text; a dash if it was not measured."""
    return "–" if seconds == float("inf") else f"{seconds * 1e3:,.0f}"


def percentile(seconds: list[float]) -> float:
    """Return the 99th percentile; infinity of no values."""
    return sorted(seconds)[int(len(seconds) * 0.99)] if seconds else float("inf")


def measure(name: str, args: argparse.Namespace) -> tuple[list[str], bool]:
    """Run one attack, and return its row of the table and whether the server withstood it."""
    options = ["--no-token"] if args.old else ["--health-port", "0"]
    with server(args.python, args.seconds, options, args.cores) as (target, process):
        with watched(target) as measured:
            try:
                ATTACKS[name](target)
            except OSError:  # the server has closed a connection
                target.note("closed")
        has_ended = process.poll() is not None
    statuses = Counter(measured["statuses"])
    num_refused = statuses.total() - statuses["200"]
    got = ", ".join(f"{count} × {status}" for status, count in sorted(target.got.items()) if count)
    row = [
        name, f"{measured['growth'] / MIB:,.0f}", milliseconds(measured["live"]), milliseconds(measured["health"]),
        milliseconds(measured["p99"]), f"{num_refused} of {statuses.total()}",
        got + ("; the server has ended" if has_ended else ""),
    ]  # fmt: skip
    live = min(measured["live"], measured["health"])
    is_well = not has_ended and measured["growth"] <= target.budget + 200 * MIB and live <= args.live
    return row, is_well


def _is_odd_form(name: str) -> bool:
    """Return True for an attack of the other file, which are listed last."""
    return ATTACKS[name].__module__ in {attack_forms.__name__, attack_models.__name__, attack_shares.__name__}


def main() -> int:
    """Run the attacks, and print the table."""
    if sys.argv[1:2] == ["--witness"]:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
        print(json.dumps(Witness(*map(int, sys.argv[2:5])).watch()), flush=True)
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of attacks, separated by commas")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long attacks last that have no end")
    parser.add_argument("--live", type=float, default=0.1, help="seconds within which the server must be live")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the server")
    parser.add_argument("--old", action="store_true", help="use no options that a version before them lacks")
    parser.add_argument("--cores", default="", help="the processors of the attacker and of the server, such as 0,1")
    args = parser.parse_args()
    args.cores = [int(text) for text in args.cores.split(",") if text]
    if len(args.cores) not in (0, 2):
        parser.error("--cores takes two processors, such as 0,1")
    if args.cores:
        os.sched_setaffinity(0, args.cores[:1])
    names = [name for name in args.only.split(",") if name] or sorted(ATTACKS, key=_is_odd_form)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        parser.error(f"unknown attacks: {', '.join(unknown)} (known: {', '.join(ATTACKS)})")
    titles = ("attack", "MiB", "live, ms", "health port, ms", "p99, ms", "others refused", "the attacker got")
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    failed = []
    for name in names:
        row, is_well = measure(name, args)
        print(f"| {' | '.join(row)} |", flush=True)
        if not is_well:
            failed.append(name)
    print(f"{len(failed)} of {len(names)} attacks had more effect than they may: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
