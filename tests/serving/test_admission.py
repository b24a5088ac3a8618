"""What a server accepts: bytes, heads, values and elements are counted before memory is used for them."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import time
from collections import Counter

import numpy as np
import pytest

from interposer.errors import InvalidArgumentError
from interposer.serving.admission import Admission
from interposer.serving.health import HealthPort
from interposer.serving.options import ServeOptions
from interposer.serving.protocol import grpc_messages
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.http_messages import read_infer_request
from interposer.serving.protocol.outline import DEEPEST, outline
from interposer.serving.protocol.reading import UNLIMITED, Reading
from tests.serving.running import Running, doubler, infer_body, model, running, serving, wait_until

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")
MIB = 1 << 20
INFER = "/v2/models/double/infer"


def served(**options: object) -> object:
    return running(serving({"double": model(doubler())}), ServeOptions(**options))


def connected(server: Running, data: bytes) -> socket.socket:
    """Return a connection to a server on which some bytes were sent."""
    connection = socket.create_connection(("127.0.0.1", server.client.port), 60)
    connection.sendall(data)
    return connection


def status_of(connection: socket.socket) -> int:
    """Return the status that arrives on a connection."""
    return int(connection.recv(4096).split()[1])


class Clock:
    """Stands for the module `time` where bodies are measured: seconds pass when a test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def head(**headers: object) -> bytes:
    lines = [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    return "\r\n".join([f"POST {INFER} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


# --- bodies -----------------------------------------------------------------------------------------------------------


def test_a_body_that_never_arrives_takes_no_slot_of_its_model():
    with served(queue=1) as server:
        connections = [connected(server, head(Content_Length=100)) for _ in range(20)]
        assert server.client.post(INFER, infer_body()).status == 200
        assert server.core.in_flight == 0
        for connection in connections:
            connection.close()


def test_a_body_that_arrives_too_slowly_is_refused(monkeypatch):
    monkeypatch.setattr("interposer.serving.admission._GRACE", 0.2)
    monkeypatch.setattr("interposer.serving.admission._WINDOW", 0.1)
    with served() as server, connected(server, head(Content_Length=100) + b"{") as connection:
        answer = b""
        while data := connection.recv(4096):
            answer += data
        assert b" 408 " in answer
        assert b"less than 1024 bytes per second" in answer
        assert b"connection: close" in answer


def test_unfinished_bodies_leave_room_for_others(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("interposer.serving.admission.time", clock)
    monkeypatch.setattr("interposer.serving.admission._GRACE", 600)
    with served(max_body=MIB, max_memory=8 * MIB, client_share=1.0) as server:
        connections = []
        for count in (1, 2, 3):
            connections.append(connected(server, head(Content_Length=MIB) + bytes(MIB - 1)))
            wait_until(lambda count=count: server.core.admission.held == count * (MIB - 1))
            clock.now += 10  # the first sender is the slowest, and the second one is slower than the third
        connections += [connected(server, head(Content_Length=MIB) + bytes(MIB - 1)) for _ in range(3)]
        wait_until(lambda: server.core.admission.held > 3 * (MIB - 1))
        assert server.client.post(INFER, infer_body()).status == 200
        statuses = [status_of(connection) for connection in connections[:2]]
        assert statuses == [503, 503]
        for connection in connections:
            connection.close()
        wait_until(lambda: server.core.admission.held == 0)


def test_a_client_that_does_not_read_its_answer_makes_room_for_others(monkeypatch):
    monkeypatch.setattr("interposer.serving.admission._SLOW", 1 << 30)  # before the buffers of the system are forgotten
    monkeypatch.setattr("interposer.serving.admission._WINDOW", 0.1)
    rows = 1 << 19
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 4], "parameters": {"binary_data_size": 16 * rows}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lengths = {"Content_Length": len(text) + 16 * rows, "Inference_Header_Content_Length": len(text)}
    request = head(**lengths) + text + bytes(16 * rows)
    with served(max_body=16 * MIB, max_memory=40 * MIB, client_share=1.0) as server:
        admission = server.core.admission
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(60)
        slow.bind(("127.0.0.2", 0))  # another client
        slow.connect(("127.0.0.1", server.client.port))
        slow.sendall(request)
        wait_until(lambda: admission.held > 31 * MIB)  # the body, and three times as much for the answer
        time.sleep(0.3)  # until it is known how slowly the answer is read
        other = connected(server, request)
        assert status_of(other) == 200
        assert len(received_by(slow)) < 16 * rows
        slow.close()
        other.close()
        wait_until(lambda: admission.held == 0)


def received_by(connection: socket.socket) -> bytes:
    """Return all bytes that a connection has until it is closed."""
    data = b""
    with contextlib.suppress(ConnectionError):
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return data


def test_a_client_that_holds_its_share_gets_429_and_when_to_try_again():
    with served(max_body=MIB, max_memory=4 * MIB, client_share=0.25) as server:
        with connected(server, head(Content_Length=MIB) + bytes(MIB - 1)) as first:
            wait_until(lambda: server.core.admission.held == MIB - 1)
            refused = server.client.post(INFER, infer_body())
            assert refused.status == 429
            assert refused.headers["retry-after"] == "1"
            assert "hold 1,048,576 bytes already" in refused.json["error"]
            first.close()
            wait_until(lambda: server.core.admission.held == 0)
        assert server.client.post(INFER, infer_body()).status == 200


def test_of_many_bodies_of_a_client_those_arrive_for_which_there_is_room(monkeypatch):
    monkeypatch.setattr("interposer.serving.admission._GRACE", 600)  # no body is too slow, however busy the machine is
    with served(max_body=MIB, max_memory=9 * MIB) as server:  # 4.5 MiB for each client: four bodies, and reading them
        connections = [connected(server, head(Content_Length=MIB)) for _ in range(12)]
        for _ in range(4):
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(bytes(MIB // 4))
        statuses = Counter(status_of(connection) for connection in connections)
        assert statuses[400] >= 3  # zeros are no JSON
        assert statuses[400] + statuses[429] == 12
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("size", [50_000, 150_000])  # read in the event loop, and in another thread
def test_a_complete_body_goes_before_one_of_its_client_that_is_arriving(size):
    values = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0] * size}]}).encode()
    with served(max_body=2 * MIB, max_memory=16 * MIB, client_share=0.25) as server:
        free = len(values) + 10  # room for the body, but not for reading it
        with connected(server, head(Content_Length=2 * MIB) + bytes(2 * MIB - 1)) as arriving:
            wait_until(lambda: server.core.admission.held == 2 * MIB - 1)
            other = server.core.admission.holding("127.0.0.1")
            other.finish()
            other.take(2 * MIB - free)
            refused = server.client.post(INFER, values)
            assert refused.status == 400
            assert "[1, 4]" in refused.json["error"]
            assert status_of(arriving) == 429
            server.core.admission.release(other)


def test_a_refused_body_holds_nothing_while_its_rest_is_read(monkeypatch):
    monkeypatch.setattr("interposer.serving.bodies._LINGER", 600)
    with served(max_body=MIB, max_memory=4 * MIB, client_share=0.25) as server:
        part = MIB // 2 + 1
        first = connected(server, head(Content_Length=MIB) + bytes(part))
        wait_until(lambda: server.core.admission.held == part)
        second = connected(server, head(Content_Length=MIB) + bytes(part))
        assert status_of(second) == 429  # its rest may still arrive
        assert server.core.admission.held == part
        first.close()
        second.close()
        wait_until(lambda: server.core.admission.held == 0)


@pytest.mark.parametrize("size", [2 * MIB, 40 * MIB])
def test_a_body_that_is_compressed_too_much_is_refused(size):
    with served() as server:
        refused = server.client.post(INFER, gzip.compress(bytes(size), 9), Content_Encoding="gzip")
        assert refused.status == 413
        assert "more than 250 times as large as its compressed form" in refused.json["error"]


def test_a_client_that_still_sends_its_refused_body_reads_why():
    with served(max_body=MIB) as server:
        refused = server.client.post(INFER, bytes(30 * MIB))
        assert refused.status == 413
        assert refused.headers["connection"] == "close"


def test_all_that_requests_hold_is_released():
    with served() as server:
        server.client.post(INFER, infer_body())
        server.client.post(INFER, b"{" * 1000)
        server.client.post(INFER, gzip.compress(b"[],", 9) * 1000, Content_Encoding="gzip")
        wait_until(lambda: server.core.admission.held == 0)


def test_a_budget_needs_room_for_two_bodies():
    with pytest.raises(InvalidArgumentError, match="max_memory must have room for two bodies of max_body"):
        ServeOptions(max_memory=100 * MIB)
    assert ServeOptions(max_body=MIB).memory == 8 * MIB


def test_a_process_that_is_full_refuses_with_503():
    admission = Admission(ServeOptions(max_body=MIB, max_memory=2 * MIB, client_share=1.0))
    with admission.holding("a") as first, admission.holding("b") as second:
        first.finish()
        first.take(2 * MIB)
        second.finish()
        with pytest.raises(ServingError) as caught:
            second.take(1)
        assert (caught.value.status, caught.value.retry_after) == (Status.FULL, 1)
    assert admission.held == 0


# --- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 400_000,
        b"GET /" + b"a" * 400_000,
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 300 + b"\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused(data):
    pytest.importorskip("httptools", reason="the package httptools is not installed")
    with served() as server, connected(server, data) as connection:
        assert status_of(connection) == 431
        assert server.client.get("/v2/health/live").status == 200


def test_requests_that_are_sent_without_reading_answers_are_refused_after_a_while():
    pytest.importorskip("httptools", reason="the package httptools is not installed")
    request = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served() as server, connected(server, request * 5000) as connection:
        answers = b""
        while data := connection.recv(1 << 16):
            answers += data
        assert b"429 Too Many Requests" in answers


def test_more_connections_than_allowed_close_those_that_are_idle():
    with served(max_connections=8) as server:
        connections = [connected(server, b"") for _ in range(30)]
        assert server.client.post(INFER, infer_body()).status == 200
        assert connections[0].recv(1) == b""
        for connection in connections:
            connection.close()


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    [b"[],", b'{"":[]},', b"1,", b'"a",', b'"\\n\\n\\n\\n",'],
    ids=["lists", "objects", "numbers", "texts", "escapes"],
)
def test_json_with_too_many_values_is_refused_before_they_are_objects(unit):
    text = b'{"inputs":[' + unit * 200_000 + b"0]}"
    with pytest.raises(ServingError, match="more than 100,000 values, beside long lists of numbers") as caught:
        read_infer_request(text, reading=Reading(max_values=100_000))
    assert caught.value.status is Status.TOO_LARGE


def test_json_that_is_nested_too_deep_is_refused():
    for text in (b"[" * (DEEPEST + 1), b'{"a":' * (DEEPEST + 1), b"[" * 1_000_000):
        with pytest.raises(ServingError, match="nested more than 64 deep"):
            outline(text, UNLIMITED)
    assert outline(b"[" * DEEPEST + b"]" * DEEPEST, UNLIMITED).containers == DEEPEST


def test_brackets_and_commas_in_texts_do_not_count():
    text = json.dumps({"a": '[[{{,,\\"' * 30_000, "b": ['"', "\\", ","]}).encode()
    assert outline(text, UNLIMITED).containers == 2


@pytest.mark.parametrize("dtype", ["FP32", "INT64", "UINT8", "BOOL", "FP64"])
@pytest.mark.parametrize("shape", [(30_000,), (3, 100, 100), (30_000, 1), (1, 30_000)])
@pytest.mark.parametrize("indent", [None, 1])
def test_long_lists_of_numbers_become_the_same_arrays(dtype, shape, indent):
    numpy_type = {"FP32": "f4", "FP64": "f8", "INT64": "i8", "UINT8": "u1", "BOOL": "?"}[dtype]
    expected = (np.random.default_rng(0).random(shape) * 255).astype(numpy_type)
    for data in (expected.tolist(), expected.reshape(-1).tolist()):
        described = {"datatype": dtype, "shape": shape, "data": None}
        text = json.dumps({"inputs": [{"name": name, **described} for name in "xy"]}, indent=indent)
        text = text.replace("null", json.dumps(data, indent=indent))  # writing numbers with an indent is slow
        for tensor in read_infer_request(text.encode()).inputs:
            assert tensor.array.dtype == expected.dtype
            np.testing.assert_array_equal(tensor.array, expected)


@pytest.mark.parametrize(
    "data, text",
    [
        ("1," * 40_000 + "1", "has 40001 elements; the shape [40000] needs 40000"),
        ("1," * 39_998 + "1.5,1", "has elements that are not integers, as INT64 needs"),
        (
            "1," * 39_998 + "1,",
            "the request is not JSON: a list has something that is no value, or a comma without one",
        ),
        ("1," * 39_999 + "1 1", "the request is not JSON: a list has something that is no value"),
        ("1," * 39_999 + "99999999999999999999", "has the element of more than 64 bits; INT64 has"),
        ("1," * 39_999 + "true", "has elements that are not integers, as INT64 needs"),
        ("1," * 39_999 + "[1]", "has lists that do not have the shape [40000]"),
        ("1," * 39_999 + "NaN", "which JSON does not have"),
        ("1," * 39_999 + " " * 70_000 + "1", "a list with an element of more than 4096 characters"),
    ],
)
def test_long_lists_that_are_wrong_are_refused_with_a_sentence(data, text):
    body = f'{{"inputs":[{{"name":"x","datatype":"INT64","shape":[40000],"data":[{data}]}}]}}'
    with pytest.raises(ServingError) as caught:
        read_infer_request(body.encode())
    assert text in str(caught.value)


def test_a_client_cannot_name_a_long_list_of_its_own():
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": {"0" * 33: 0}}
    with pytest.raises(ServingError, match="has data that is not a list"):
        read_infer_request(json.dumps({"inputs": [tensor]}).encode())


def test_a_request_that_is_late_while_it_is_read_is_refused():
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[400000],"data":[' + b"1," * 399_999 + b"1]}]}"
    with pytest.raises(ServingError) as caught:
        read_infer_request(body, reading=Reading(deadline=0.0))
    assert caught.value.status is Status.LATE


def test_texts_in_bytes_are_counted_before_they_are_objects():
    count = 200_000
    text = '{"inputs":[{"name":"x","datatype":"BYTES","shape":[%d],"parameters":{"binary_data_size":%d}}]}'
    header = (text % (count, 4 * count)).encode()
    with pytest.raises(ServingError, match="more than 100,000 values"):
        read_infer_request(header + bytes(4 * count), len(header), reading=Reading(max_values=100_000))


def test_large_outputs_are_the_same_numbers_in_json():
    with served() as server:
        rows = np.random.default_rng(0).random((50_000, 4), np.float32)
        answer = server.client.post(INFER, infer_body(rows=rows))
        np.testing.assert_array_equal(np.float32(answer.json["outputs"][0]["data"]), (rows + rows).reshape(-1))


# --- gRPC -------------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def in_field(index: int, data: bytes) -> bytes:
    return number(index << 3 | 2) + number(len(data)) + data


@pytest.mark.parametrize(
    "fields, text",
    [
        (in_field(5, b"") * 100_000, "more than 16,384 inputs, outputs and parameters"),
        (in_field(4, b"") * 100_000, "more than 16,384 inputs, outputs and parameters"),
        (in_field(5, in_field(5, in_field(8, b"") * 300_000)), "more than 200,000 values"),
        (in_field(7, b"") * 300_000, "more than 200,000 values"),
        (in_field(5, in_field(5, in_field(2, bytes(17 << 20)))), "bytes of integers or truth values in typed contents"),
        (b"\x03\x04" * 50_000, "has groups"),
    ],
    ids=["inputs", "parameters", "texts", "raw contents", "integers", "groups"],
)
def test_elements_of_grpc_messages_are_counted_before_they_are_objects(fields, text):
    pytest.importorskip("google.protobuf", reason="the package protobuf is not installed")
    with pytest.raises(ServingError, match=text):
        grpc_messages.checked(grpc_messages.message("ModelInferRequest"), fields, Reading(max_values=200_000))


def test_a_message_that_stalls_makes_room_for_others(monkeypatch):
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving import grpc_reading

    monkeypatch.setattr(grpc_reading, "_LEAST", 1)
    options = ServeOptions(max_body=MIB, max_memory=2 * MIB)
    with running(serving({"double": model(doubler())}), options, grpc=True) as server:
        path = "/inference.GRPCInferenceService/ServerLive"
        with grpc.insecure_channel(server.grpc) as channel:
            stalled = channel.stream_unary(path, None, None)
            calls = [stalled.future(_never()) for _ in range(3)]
            live = channel.unary_unary(path, None, None)
            assert live(b"", wait_for_ready=True, timeout=60) == b"\x08\x01"
            for call in calls:
                call.cancel()


def _never():
    """Yield no message for a minute."""
    time.sleep(60)
    yield b""


# --- health -----------------------------------------------------------------------------------------------------------


def test_the_port_for_health_answers_about_nothing_else():
    with running(serving({"double": model(doubler())}), health_port=0) as server:
        client = type(server.client)(int(server.addresses["health"].rpartition(":")[2]))
        assert client.get("/v2/health/live").json == {"live": True}
        wait_until(lambda: client.get("/v2/health/ready").json == {"ready": True})
        assert client.get("/v2/models/double").status == 404
        server.core.is_draining = True
        wait_until(lambda: client.get("/v2/health/ready").status == 503)
        assert client.get("/v2/health/live").status == 200


def test_the_process_for_health_gets_no_signal_of_the_terminal_and_ends_when_it_is_stopped():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = HealthPort(bound)
        number = port._process.pid
        assert os.getsid(number) == os.getsid(0)
        assert os.getpgid(number) not in (os.getpgrp(), os.getsid(0))
        os.kill(number, signal.SIGSTOP)
        port.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_the_port_for_health_closes_with_its_server():
    with running(serving({"double": model(doubler())}), health_port=0) as server:
        port = int(server.addresses["health"].rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), 60).close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 5)
