"""Attacks of `attack_server.py` on what clients share: places, connections, answers, caches, sequences and threads.

The attacker has another address of this host than the clients who are watched.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator

from tools.attack_forms import METHOD, end_of, fields_of, post
from tools.attacking import (
    INFER,
    MIB,
    NAME,
    TOKEN,
    Target,
    answered,
    attack,
    frame,
    head,
    in_field,
    number,
    read_windows,
    valid_body,
)
from tools.attacking import of_rows as rows_of_bytes

ELSEWHERE = ("127.0.0.2", 0)
"""The address of the attacker."""
STREAM_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
NO_WINDOW = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"\0\4\0\0\0\0")
"""The first bytes of a client of HTTP/2 that lets the server send no data."""


def connect(port: int, receives: int = 0) -> socket.socket:
    """Return a new connection from another address; `receives` is the size of its buffer for answers."""
    connection = socket.socket()
    if receives:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    connection.settimeout(20)
    connection.bind(ELSEWHERE)
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def connections_of(target: Target, count: int) -> Iterator[socket.socket]:
    """Yield up to `count` new connections for HTTP from another address, as many as can be opened."""
    for _ in range(count):
        with contextlib.suppress(OSError):
            yield connect(target.port, 4096)


def send(target: Target, body: bytes, path: str = INFER, **headers: str) -> None:
    """Send a request from another address, and count the status of its answer."""
    client = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60, source_address=ELSEWHERE)
    try:
        client.request("POST", path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        response = client.getresponse()
        response.read()
        target.note(response.status)
    except (OSError, http.client.HTTPException) as error:
        target.note(type(error).__name__)
    finally:
        client.close()


def of_rows(rows: int, contents: bytes = b"") -> bytes:
    """Return a gRPC request for the model `double` with these contents of its input, but without raw contents."""
    shape = in_field(3, number(rows) + b"\x04")
    return NAME + in_field(5, in_field(1, b"x") + in_field(2, b"FP32") + shape + contents)


def in_steps(count: int) -> bytes:
    """Return a gRPC request for a stream of so many answers."""
    steps = in_field(4, in_field(1, b"steps") + in_field(2, b"\x10" + number(count)))
    return of_rows(1) + steps + in_field(7, bytes(16))


def unread_calls(target: Target, message: bytes, method: str, count: int) -> socket.socket:
    """Return a connection with calls, each with one message, whose answers the client does not let the server send."""
    connection = connect(target.grpc_port)
    connection.sendall(NO_WINDOW)
    windows, is_closed = [65_535, 65_535], threading.Event()
    threading.Thread(target=read_windows, args=(connection, windows, is_closed), daemon=True).start()
    data = b"\0" + struct.pack(">I", len(message)) + message
    for stream in range(1, 2 * count, 2):
        connection.sendall(frame(1, 4, stream, fields_of(method)))
        windows[1] = max(windows[1], 65_535)
        for begin in range(0, len(data), 16_000):
            piece = data[begin : begin + 16_000]
            while min(windows) < len(piece) and not is_closed.wait(0.001):
                continue
            connection.sendall(frame(0, int(begin + 16_000 >= len(data)), stream, piece))
            windows[:] = [window - len(piece) for window in windows]
    return connection


def hang_up(connection: socket.socket) -> None:
    """Close a connection that another thread reads; `close` alone would wait for that thread."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


# --- answers that nobody reads ----------------------------------------------------------------------------------------


@attack
def grpc_unread_answers(target: Target) -> None:
    """40 calls over gRPC with answers of 48 MB, which are not read."""
    message = of_rows(3_000_000) + in_field(7, bytes(48_000_000))
    held: list[socket.socket] = []

    def call(_: int) -> None:
        held.append(unread_calls(target, message, METHOD, 1))

    for _ in range(10):
        target.together(4, call)
    time.sleep(target.seconds)
    for connection in held:
        target.note(end_of(connection))


@attack
def grpc_typed_answers(target: Target) -> None:
    """Answers with 3 million numbers in typed contents, from four threads."""
    contents = in_field(5, in_field(6, bytes(12_000_000)))
    import grpc  # noqa: PLC0415 - --help needs no package

    def call(_: int) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options) as channel:
            try:
                channel.unary_unary(METHOD, None, None)(of_rows(750_000, contents), timeout=40)
                target.note("OK")
            except grpc.RpcError as error:
                target.note(error.code().name)

    target.together(4, call)


@attack
def all_places_by_unread_streams(target: Target) -> None:
    """Streams of 60,000 events on 200 connections whose clients read nothing."""
    body = json.dumps(json.loads(valid_body()) | {"parameters": {"steps": 60_000}}).encode()
    connections = list(connections_of(target, 200))
    for connection in connections:
        connection.sendall(head(f"{INFER}_stream", Content_Length=len(body)) + body)
    target.hold(connections, b"")


@attack
def all_places_by_unread_calls(target: Target) -> None:
    """200 streams of 60,000 answers over gRPC whose client reads nothing."""
    connection = unread_calls(target, in_steps(60_000), STREAM_METHOD, 200)
    time.sleep(target.seconds)
    target.note(end_of(connection))


@attack
def large_events(target: Target) -> None:
    """Streams of events with a million numbers each, from four threads."""
    data = ",".join(["0"] * (1 << 20))
    tensor = f'{{"name":"x","datatype":"FP32","shape":[1,{1 << 20}],"data":[{data}]}}'
    body = f'{{"inputs":[{tensor}],"parameters":{{"steps":1000}}}}'.encode()

    def read(_: int) -> None:
        connection = connect(target.port)
        connection.sendall(head("/v2/models/large/infer_stream", Content_Length=len(body)) + body)
        target.note(connection.recv(4096).split()[1].decode())
        for _ in target.until_end():
            connection.recv(1 << 20)
        connection.close()

    target.together(4, read)


@attack
def half_closed(target: Target) -> None:
    """Requests whose clients close their side of the connection at once, and wait for the answer."""
    request = post(f"Content-Length: {len(valid_body())}", body=valid_body())
    for _ in target.until_end():
        with connect(target.port) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            target.note(answered(connection))


# --- places and connections -------------------------------------------------------------------------------------------


@attack
def all_connections_by_slow_bodies(target: Target) -> None:
    """1,100 connections whose bodies arrive at 2 KB per second, which is allowed."""
    connections = list(connections_of(target, 1_100))
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(head(Content_Length=60_000_000) + bytes(2_000))
    target.hold(connections, bytes(700))


@attack
def all_places_by_requests(target: Target) -> None:
    """Valid requests for 50,000 rows one after another, from 200 connections."""
    rows = 50_000
    text = rows_of_bytes(rows, ',"outputs":[{"name":"y","parameters":{"classification":1}}]')
    body = text + bytes(16 * rows)

    def flood(_: int) -> None:
        for _ in target.until_end():
            send(target, body, Inference_Header_Content_Length=str(len(text)))

    target.together(100, flood)


@attack
def grpc_connections_of_all_descriptors(target: Target) -> None:
    """So many connections to the port for gRPC that the server can open no more files."""
    connections = []
    for _ in range(3_000):
        with contextlib.suppress(OSError):
            connections.append(connect(target.grpc_port))
            connections[-1].sendall(NO_WINDOW)
    time.sleep(target.seconds)
    for connection in connections:
        target.note(end_of(connection))
        connection.close()


@attack
def grpc_slow_messages(target: Target) -> None:
    """Messages that never end on 600 connections; another client sends small messages."""
    import grpc  # noqa: PLC0415 - --help needs no package

    opened = []
    start = b"\0" + struct.pack(">I", 60 * MIB) + bytes(100)
    for _ in range(600):
        with contextlib.suppress(OSError):
            opened.append(connect(target.grpc_port))
            opened[-1].sendall(NO_WINDOW + frame(1, 4, 1, fields_of()) + frame(0, 0, 1, start))
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}") as channel:
        call = channel.unary_unary(METHOD, None, None)
        longest = 0.0
        for _ in target.until_end():
            began = time.monotonic()
            try:
                call(of_rows(1) + in_field(7, bytes(16)), timeout=20)
                target.note("another client: OK")
            except grpc.RpcError as error:
                target.note(f"another client: {error.code().name}")
            longest = max(longest, time.monotonic() - began)
    target.note(f"another client waited {longest * 1e3:.0f} ms")
    for connection in opened:
        target.note(end_of(connection))
        connection.close()


# --- caches and shapes ------------------------------------------------------------------------------------------------


@attack
def many_shapes(target: Target) -> None:
    """Requests for other numbers of rows each time, from four threads."""
    rows = itertools.count(1)

    def flood(_: int) -> None:
        for _ in target.until_end():
            count = next(rows)
            data = [[0] * 4] * count
            tensor = {"name": "x", "datatype": "FP32", "shape": [count, 4], "data": data}
            send(target, json.dumps({"inputs": [tensor]}).encode())

    target.together(4, flood)


@attack
def index_flood(target: Target) -> None:
    """The list of models is asked for as often as possible, while the folder has 500 files with settings."""
    for index in range(500):
        (target.folder / f"m{index}.toml").write_text(f"[ensemble]\nprocesses = {index % 8 + 1}\n" + "#" * 2_000)

    def flood(_: int) -> None:
        for _ in target.until_end():
            send(target, b"{}", "/v2/repository/index")

    target.together(8, flood)


@attack
def long_digits(target: Target) -> None:
    """Floats with up to 16 million digits, and exponents that no number has."""
    prefix, suffix = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[', b"]}]}"
    for digits in (b"0." + b"1" * 4_000, b"0." + b"1" * 16_000_000, b"1" * 16_000_000 + b".5", b"1e999999999"):
        send(target, prefix + digits + suffix)
        send(target, b'{"inputs":[],"parameters":{"timeout":' + digits + b"}}")


@attack
def long_headers(target: Target) -> None:
    """Headers of 60 KB that the server looks at, on each request."""
    names = (
        "Authorization",
        "Accept-Encoding",
        "Host",
        "Origin",
        "traceparent",
        "Content-Encoding",
        "Transfer-Encoding",
    )
    texts = ("Bearer " + "t" * 60_000, "gzip;q=0.1," * 5_000, "a." * 30_000, "[" * 60_000, "1" * 18 + "-" * 60_000)
    for name, text in itertools.product(names, texts):
        send(target, valid_body(), **{name: text})
    for _ in target.until_end():
        send(target, valid_body(), Accept_Encoding="gzip;q=0.1," * 5_000)


@attack
def odd_names(target: Target) -> None:
    """Names of inputs, outputs and models of other scripts and controls, which are compared with the known ones."""
    for name in (
        "\u202exelbuod",
        "x\u0300" * 2_000,
        "\ud800",
        "x\0",
        "ｘ",
        "x\n\rHTTP/1.1 200",
        "🙂" * 4_000,
        "\u2028x",
    ):
        tensor = {"name": name, "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        body = json.dumps({"id": name, "inputs": [tensor], "outputs": [{"name": name}]}).encode()
        send(target, body)
        send(
            target,
            valid_body(),
            INFER.replace("double", "".join(f"%{byte:02x}" for byte in name.encode("utf-8", "surrogatepass"))),
        )


@attack
def grpc_reflection(target: Target) -> None:
    """Calls of methods that the server does not have, such as those of reflection, without end."""
    import grpc  # noqa: PLC0415 - --help needs no package

    services = (
        "grpc.reflection.v1.ServerReflection",
        "grpc.channelz.v1.Channelz",
        "inference.GRPCInferenceService",
        "",
    )
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}") as channel:
        for index in target.until_end():
            call = channel.unary_unary(f"/{services[index % 4]}/ServerReflectionInfo{index}", None, None)
            try:
                call(b"\x0a\x00", timeout=5)
                target.note("OK")
            except grpc.RpcError as error:
                target.note(error.code().name)


@attack
def odd_deadlines(target: Target) -> None:
    """Calls and requests with deadlines in the past, of a nanosecond, and without end."""
    for text in ("0n", "1n", "99999999H", "-1S", "1x", "", "999999999S"):
        with connect(target.grpc_port) as connection:
            block = fields_of(**{"grpc-timeout": text})
            message = of_rows(1) + in_field(7, bytes(16))
            data = b"\0" + struct.pack(">I", len(message)) + message
            connection.sendall(NO_WINDOW + frame(1, 4, 1, block) + frame(0, 1, 1, data))
            target.note(end_of(connection))
    for timeout in (1, 0, -1, 1 << 64, 1 << 63, 1e300, 0.5, True, "1", "9" * 19, "9" * 40, "", "１"):
        send(target, json.dumps(json.loads(valid_body()) | {"parameters": {"timeout": timeout}}).encode())


@attack
def guessed_sequences(target: Target) -> None:
    """Sequences that other clients may have, and numbers and texts that are none, for a model without states."""
    for sequence in (1, -1, 0, "1", "a" * 129, True, 1.5, 1 << 64, "\0", "stream-"):
        parameters = {"sequence_id": sequence, "sequence_start": True, "sequence_end": False}
        send(target, json.dumps(json.loads(valid_body()) | {"parameters": parameters}).encode())


@attack
def urgent_requests(target: Target) -> None:
    """Requests with the highest priority, from 32 threads."""
    body = json.dumps(json.loads(valid_body()) | {"parameters": {"priority": 1}}).encode()

    def flood(_: int) -> None:
        for _ in target.until_end():
            send(target, body)

    target.together(32, flood)


@attack
def regions_of_others(target: Target) -> None:
    """Regions of shared memory are asked for and forgotten without the token, over HTTP and gRPC."""
    for action in ("status", "unregister"):
        send(target, b"", f"/v2/systemsharedmemory/{action}")
        send(target, b"{}", f"/v2/systemsharedmemory/region/r/{action}", Authorization="Bearer " + TOKEN[:-1])


@attack
def unload_during_streams(target: Target) -> None:
    """A model is unloaded and loaded while eight clients read streams of it, with the token."""
    body = json.dumps(json.loads(valid_body()) | {"parameters": {"steps": 60_000}}).encode()

    def read(index: int) -> None:
        for _ in target.until_end():
            if index == 0:
                for action in ("unload", "load"):
                    path = f"/v2/repository/models/double/{action}"
                    send(target, b"{}", path, Authorization=f"Bearer {TOKEN}")
                continue
            with connect(target.port) as connection:
                connection.sendall(head(f"{INFER}_stream", Content_Length=len(body)) + body)
                end = time.monotonic() + 0.5
                while time.monotonic() < end and connection.recv(1 << 16):
                    continue

    target.together(9, read)
