"""The server over HTTP: health, metadata, inference, limits, errors, deadlines, disconnects and the end."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from interposer import Network, TensorInfo, __version__
from interposer.ops import UnaryOperation
from interposer.serving import connections
from interposer.serving.connections import Connections, protocol_class
from interposer.serving.options import ServeOptions
from tests.runtime.test_concurrency import OpenGates
from tests.serving.running import (
    Client,
    Running,
    doubler,
    infer_body,
    model,
    running,
    serving,
    slow,
    two_by_two,
    wait_until,
)

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")
pytest.importorskip("prometheus_client", reason="the package prometheus-client is not installed")
pytestmark = pytest.mark.needs_cpuref
INFER = "/v2/models/doubler/infer"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {
        "doubler": model(doubler()),
        "bytes": model(doubler("int8", (1, 4))),
        "half": model(doubler("float16", (1, 4))),
        "two": model(two_by_two()),
    }
    with running(serving(models), ServeOptions(max_body=10_000)) as running_server:
        yield running_server


@pytest.fixture
def client(server: Running) -> Client:
    return server.client


def test_a_server_says_that_it_lives_and_is_ready(client):
    assert client.get("/v2/health/live").json == {"live": True}
    assert client.get("/v2/health/ready").json == {"ready": True}
    assert client.get("/v2/models/two/ready").json == {"name": "two", "ready": True}
    assert client.get("/v2/models/two/versions/1/ready").status == 200


def test_a_server_describes_itself_and_its_models(client):
    said = client.get("/v2").json
    assert (said["name"], said["version"]) == ("interposer", __version__)
    assert "binary_tensor_data" in said["extensions"]
    assert client.get("/v2/models/doubler").json == {
        "name": "doubler",
        "versions": ["1"],
        "platform": "interposer_network",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
    }
    assert client.get("/v2/models/two").json["parameters"] == {"layers_CpuRef": 2}
    assert client.get("/v2/models/bytes/config").json["input"] == [
        {"name": "x", "data_type": "TYPE_INT8", "dims": [1, 4]}
    ]


def test_json_goes_in_and_out(client):
    answer = client.post(INFER, infer_body(rows=[[1, 2, 3, 4], [5, 6, 7, 8.5]], id="a1"))
    assert answer.status == 200
    assert answer.json == {
        "model_name": "doubler",
        "model_version": "1",
        "id": "a1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 4], "data": [2, 4, 6, 8, 10, 12, 14, 17]}],
    }


@pytest.mark.parametrize(("name", "dtype", "datatype"), [("doubler", np.float32, "FP32"), ("half", np.float16, "FP16")])
def test_binary_tensors_go_in_and_out(client, name, dtype, datatype):
    x = np.array([[1, 2, 3, 4]], dtype)
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 4], "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    answer = client.post(f"/v2/models/{name}/infer", head + x.tobytes(), Inference_Header_Content_Length=str(len(head)))
    length = int(answer.headers["inference-header-content-length"])
    assert json.loads(answer.body[:length])["outputs"] == [
        {"name": "y", "datatype": datatype, "shape": [1, 4], "parameters": {"binary_data_size": x.nbytes}}
    ]
    assert answer.body[length:] == (x + x).tobytes()


def test_outputs_can_be_requested_in_any_order_and_form(client):
    inputs = [{"name": name, "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]} for name in "ab"]
    outputs = [{"name": "difference"}, {"name": "total", "parameters": {"binary_data": True}}]
    answer = client.post("/v2/models/two/infer", {"inputs": inputs, "outputs": outputs})
    length = int(answer.headers["inference-header-content-length"])
    head = json.loads(answer.body[:length])
    assert head["outputs"][0] == {"name": "difference", "datatype": "FP32", "shape": [1, 3], "data": [0, 0, 0]}
    assert answer.body[length:] == np.array([2, 4, 6], np.float32).tobytes()
    only = client.post("/v2/models/two/infer", {"inputs": inputs, "outputs": outputs[:1]})
    assert [output["name"] for output in only.json["outputs"]] == ["difference"]


def test_classes_are_texts_of_the_largest_elements(client):
    outputs = [{"name": "y", "parameters": {"classification": 2}}]
    answer = client.post(INFER, infer_body(rows=[[1, 9, 3, 4], [7, 0, 0, 8]], outputs=outputs))
    assert answer.json["outputs"] == [
        {"name": "y", "datatype": "BYTES", "shape": [2, 2], "data": ["18.0:1", "8.0:3", "16.0:3", "14.0:0"]}
    ]


def classes(client: Client, rows: Any, count: int = 4) -> Any:
    outputs = [{"name": "y", "parameters": {"classification": count}}]
    return client.post(INFER, infer_body(rows=rows, outputs=outputs)).json["outputs"][0]


def test_equal_classes_are_in_the_order_of_their_indices(client):
    assert classes(client, [[1, 3, 1, 3]])["data"] == ["6.0:1", "6.0:3", "2.0:0", "2.0:2"]


def test_an_output_without_rows_has_no_classes(client):
    assert classes(client, np.zeros((0, 4)))["shape"] == [0, 4]


def test_classes_that_are_not_numbers_come_last():
    root = Network("root")
    x = root.add_input_layer(0, TensorInfo((1, 4)), name="x")
    root.add_output_layer(0, root.add_elementwise_unary_layer(x, operation=UnaryOperation.LOG, name="log"), name="y")
    with running(serving({"doubler": model(root)})) as server:
        assert classes(server.client, [[-1, 0, -1, 1]])["data"] == ["0.0:3", "-inf:1", "nan:0", "nan:2"]


def test_an_explained_answer_names_the_backends(client):
    said = client.post(INFER, infer_body(parameters={"explain": True})).json["parameters"]
    assert said["backends"] == "CpuRef: 1"
    assert said["compute_us"] >= 0


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_bodies_are_read(client, encoding):
    data = json.dumps(infer_body()).encode()
    packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
    assert client.post(INFER, packed, Content_Encoding=encoding).json["outputs"][0]["data"] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("deflate;q=0.9, gzip;q=0.5", "deflate"),
        ("br, *;q=0.1", "gzip"),
        ("GZIP ; q=1.0", "gzip"),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity, gzip;q=0.5", None),
        ("gzip;q=0, deflate;q=0.000", None),
        ("gzip;q=-1", None),
        ("gzip;level=3", None),
        ("br", None),
        (",;,", None),
    ],
)
@pytest.mark.parametrize("is_binary", [True, False])
def test_an_answer_is_compressed_if_the_client_accepts_that(client, accepted, encoding, is_binary):
    rows = np.arange(400).reshape(100, 4)
    parameters = {"binary_data_output": is_binary}
    answer = client.post(INFER, infer_body(rows=rows, parameters=parameters), Accept_Encoding=accepted)
    assert answer.headers.get("content-encoding") == encoding
    assert int(answer.headers["content-length"]) == len(answer.body)
    unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}[encoding]
    body = unpack(answer.body)
    if not is_binary:
        assert json.loads(body)["outputs"][0]["data"] == list(range(0, 800, 2))
        return
    length = int(answer.headers["inference-header-content-length"])
    assert json.loads(body[:length])["outputs"][0]["parameters"] == {"binary_data_size": 1600}
    assert body[length:] == (2 * rows).astype(np.float32).tobytes()


def test_a_small_answer_is_not_compressed(client):
    answer = client.post(INFER, infer_body(), Accept_Encoding="gzip")
    assert "content-encoding" not in answer.headers
    assert answer.json["outputs"][0]["data"] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/v2/trace/setting", "this server has no trace settings; "),
        ("POST", "/v2/trace/setting", "this server has no trace settings; "),
        ("GET", "/v2/models/two/trace/setting", "this server has no trace settings; "),
        ("GET", "/v2/logging", "this server has no log settings that clients can read or change; "),
        ("POST", "/v2/logging", "this server has no log settings that clients can read or change; "),
        ("POST", "/v2/cudasharedmemory/region/r/register", "this server has no shared memory of CUDA; "),
    ],
)
def test_an_extension_that_is_not_offered_is_named(client, method, path, text):
    answer = client.send(method, path, {} if method == "POST" else None)
    assert answer.status == 501
    assert answer.json["error"].startswith(text)


def test_there_are_no_cuda_regions_to_show_or_to_forget(client):
    for path in ("/v2/cudasharedmemory/status", "/v2/cudasharedmemory/region/r/status"):
        assert client.get(path).json == []
    for path in ("/v2/cudasharedmemory/unregister", "/v2/cudasharedmemory/region/r/unregister"):
        assert client.post(path).json == {}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "text"),
    [
        ("POST", "/v2/models/none/infer", {}, {}, 404, "unknown model 'none'"),
        ("POST", "/v2/models/doublar/infer", {}, {}, 404, "unknown model 'doublar'; did you mean 'doubler'?"),
        ("POST", "/v2/models/two/versions/7/infer", {}, {}, 404,
         "model 'two' has no version '7' that is ready (ready: 1)"),
        ("GET", "/v2/models/none", None, {}, 404, "unknown model 'none'"),
        ("GET", "/v3", None, {}, 404, "the server has no such path: GET /v3"),
        ("GET", INFER, None, {}, 405, f"the server does not offer this method for the path: GET {INFER}"),
        ("POST", INFER, b"[", {}, 400, "the request is not JSON: Expecting value: line 1 column 2 (char 1)"),
        ("POST", INFER, {"inputs": []}, {}, 400, "the request lacks the input 'x' of model 'doubler'"),
        ("POST", INFER, infer_body("z"), {}, 400, "model 'doubler' has no input 'z'"),
        ("POST", INFER, infer_body(datatype="FP64"), {}, 400, "input 'x' is FP64; model 'doubler' expects FP32"),
        ("POST", INFER, infer_body(rows=[1, 2, 3, 4]), {}, 400,
         "input 'x' has the shape [4]; model 'doubler' expects [-1, 4]"),
        ("POST", INFER, infer_body(outputs=[{"name": "z"}]), {}, 400, "model 'doubler' has no output 'z'"),
        ("POST", INFER, infer_body(parameters={"binary_data_output": 1}), {}, 400,
         "the parameter binary_data_output is neither true nor false"),
        ("POST", INFER, infer_body(parameters={"timeout": -1}), {}, 400,
         "the parameter timeout is not a number of microseconds"),
        ("POST", INFER, infer_body(parameters={"timeout": 1}), {}, 504, "the request took longer than 1e-06 seconds"),
        ("POST", INFER, {}, {"Inference-Header-Content-Length": "9" * 30}, 400,
         "the header Inference-Header-Content-Length is not a whole number"),
        ("POST", INFER, b"0" * 10_001, {}, 413, "the body of the request is larger than 10,000 bytes"),
        ("POST", INFER, gzip.compress(b"0" * 10_001, mtime=0), {"Content-Encoding": "gzip"}, 413,
         "the body of the request is larger than 10,000 bytes"),
        ("POST", INFER, gzip.compress(b"{}", mtime=0)[:-3], {"Content-Encoding": "gzip"}, 400,
         "the body of the request is not one complete gzip stream"),
        ("POST", INFER, b"ab", {"Content-Encoding": "deflate"}, 400, "the body of the request is not deflate data"),
        ("POST", INFER, b"ab", {"Content-Encoding": "br"}, 415,
         "the content encoding 'br' is neither gzip nor deflate"),
        ("POST", "/v2/repository/models/doubler/load", {}, {}, 403,
         "this server does not load and unload models on request; start it with --control explicit"),
        ("GET", "/v2/systemsharedmemory/status", None, {}, 403, "this server does not offer shared memory"),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_a_status_and_a_sentence(client, method, path, body, headers, status, text):
    answer = client.send(method, path, body, headers)
    assert (answer.status, answer.json) == (status, {"error": text})


def test_a_body_in_chunks_is_counted_while_it_arrives(client):
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 1000

    answer = client.send("POST", INFER, chunks(), {"Transfer-Encoding": "chunked"})
    assert (answer.status, answer.json["error"]) == (413, "the body of the request is larger than 10,000 bytes")


def test_bodies_in_very_small_chunks_are_whole_and_in_their_order(client):
    pytest.importorskip("httptools", reason="the package httptools is not installed")
    bodies = [json.dumps(infer_body("x", [[number] * 4] * 300)).encode() for number in (1, 2)]
    head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = [b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n" for body in bodies]
    end = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), 60) as connection:
        connection.sendall(b"".join(head + body for body in chunks) + end)
        answers = b"".join(iter(lambda: connection.recv(1 << 16), b"")).split(b"HTTP/1.1 200 OK")
    assert [answer.count(b"2.0") for answer in answers] == [0, 1200, 0, 0]
    assert [answer.count(b"4.0") for answer in answers] == [0, 0, 1200, 0]


def test_no_more_of_a_body_in_chunks_arrives_before_what_has_arrived_is_parsed():
    uvicorn = pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")
    implementation = pytest.importorskip("uvicorn.protocols.http.httptools_impl", reason="httptools is not installed")
    waiting = []

    class Connection(protocol_class(implementation.HttpToolsProtocol, Connections(1))):
        def data_received(self, data):
            super().data_received(data)
            waiting.append(len(self._unparsed))

    async def read_slowly(scope, receive, send):
        while (await receive())["more_body"]:
            for _ in range(6):
                await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def main():
        config = uvicorn.Config(read_slowly, http=Connection, lifespan="off")
        config.load()
        state = uvicorn.server.ServerState()
        create = functools.partial(Connection, config=config, server_state=state, app_state={})
        server = await asyncio.get_running_loop().create_server(create, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(16):
            writer.write((b"400\r\n" + b"x" * 1024 + b"\r\n") * 1024)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        server.close()

    asyncio.run(main())
    assert 0 < max(waiting) <= 1 << 18  # what a loop reads at once


def test_requests_are_counted(client, server):
    before = client.get("/v2/models/bytes/stats").json["model_stats"][0]
    assert client.post("/v2/models/bytes/infer", infer_body(datatype="INT8")).status == 200
    assert client.post("/v2/models/bytes/infer", infer_body(datatype="INT16")).status == 400
    after = client.get("/v2/models/bytes/versions/1/stats").json["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 1
    for kind in ("success", "fail"):
        assert after["inference_stats"][kind]["count"] == before["inference_stats"][kind]["count"] + 1
    assert len(client.get("/v2/models/stats").json["model_stats"]) == 4
    text = client.get("/metrics").body.decode()
    assert 'interposer_requests_total{code="OK",model="bytes",protocol="http",version="1"} 1.0' in text
    assert 'interposer_requests_total{code="INVALID_ARGUMENT",model="bytes",protocol="http",version="1"} 1.0' in text
    assert 'interposer_model_ready{model="two",version="1"} 1.0' in text
    [statistics] = client.get("/v2/models/two/stats").json["model_stats"]
    for name, count in (
        ("nv_inference_request_success", statistics["inference_stats"]["success"]["count"]),
        ("nv_inference_exec_count", statistics["execution_count"]),
        ("nv_inference_count", statistics["inference_count"]),
        ("nv_inference_pending_request_count", 0),
    ):
        assert f'{name}{{model="two",version="1"}} {count:.1f}' in text
    assert 'model="none"' not in text
    assert server.core.in_flight == 0


def test_the_index_lists_the_models(client):
    assert {"name": "two", "version": "1", "state": "READY", "reason": ""} in client.post("/v2/repository/index").json


def test_the_page_shows_the_models(client):
    page = client.get("/").body.decode()
    assert 'is <span class="ready">ready</span>' in page
    assert "CpuRef 2" in page


SLOW = infer_body(rows=np.ones((8, 16)))


def begun(client: Client, gates: OpenGates, answers: list, body: dict = SLOW) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(client.post("/v2/models/slow/infer", body)))
    thread.start()
    wait_until(lambda: gates.inside)
    return thread


def test_a_full_queue_refuses_at_once(gates):
    answers: list = []
    with running(serving({"slow": slow(gates)}), ServeOptions(queue=1)) as server:
        threads = [begun(server.client, gates, answers)]
        threads.append(
            threading.Thread(target=lambda: answers.append(server.client.post("/v2/models/slow/infer", SLOW)))
        )
        threads[1].start()
        wait_until(lambda: server.core.in_flight == 2)
        refused = server.client.post("/v2/models/slow/infer", SLOW)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.json == {"error": "2 requests for model 'slow' run or wait already"}
        gates.open.set()
        for thread in threads:
            thread.join()
    assert [answer.status for answer in answers] == [200, 200]


def test_a_late_request_is_answered_at_its_deadline(gates):
    with running(serving({"slow": slow(gates)}), ServeOptions(timeout=0.5)) as server:
        late = []
        wait_until(lambda: late.append(server.client.post("/v2/models/slow/infer", SLOW)) or gates.inside)
        assert {answer.status for answer in late} == {504}
        assert "it was at layer 'sum' (Addition) on backend OpenGates" in late[-1].json["error"]
        gates.open.set()
        wait_until(lambda: server.client.post("/v2/models/slow/infer", SLOW).status == 200)


def test_a_request_whose_client_leaves_is_cancelled(gates):
    with running(serving({"slow": slow(gates)})) as server:
        data = json.dumps(SLOW).encode()
        waiting = begun(server.client, gates, [])
        with socket.create_connection(("127.0.0.1", server.client.port)) as connection:
            head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n\r\n"
            connection.sendall(head.encode() + data)
            wait_until(lambda: server.core.in_flight == 2)
        wait_until(lambda: server.core.in_flight == 1)
        stats = server.client.get("/v2/models/slow/stats").json["model_stats"][0]["inference_stats"]
        assert stats["cancel"]["count"] == 1
        gates.open.set()
        waiting.join()


HEAD = b"POST /v2/models/doubler/infer HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD, b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n" + HEAD])
def test_a_connection_whose_request_does_not_begin_is_closed(monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with (
        running(serving({"doubler": model(doubler())})) as server,
        socket.create_connection(("127.0.0.1", server.client.port), 30) as connection,
    ):
        connection.sendall(sent)
        assert b"".join(iter(lambda: connection.recv(4096), b"")).startswith(b"HTTP/1.1 200" if b"GET" in sent else b"")


def test_a_connection_is_open_while_its_request_runs(monkeypatch, gates):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    with running(serving({"slow": slow(gates)})) as server, ThreadPoolExecutor(1) as pool:
        body = infer_body(rows=np.ones((8, 16)))
        answer = pool.submit(server.client.post, "/v2/models/slow/infer", body)
        wait_until(lambda: server.core.in_flight)
        time.sleep(0.3)
        gates.open.set()
        assert answer.result(300).status == 200


def test_a_server_that_stops_answers_what_runs_and_refuses_the_rest(gates):
    answers: list = []
    with running(serving({"slow": slow(gates)})) as server:
        thread = begun(server.client, gates, answers)
        server.call(server.server.stop)
        wait_until(lambda: server.core.is_draining)
        assert server.client.get("/v2/health/ready").status == 503
        assert server.client.get("/v2/health/live").status == 200
        refused = server.client.post("/v2/models/slow/infer", SLOW)
        assert (refused.status, refused.json) == (503, {"error": "the server is stopping"})
        gates.open.set()
        thread.join()
    assert [answer.status for answer in answers] == [200]


def test_what_still_runs_after_draining_is_cancelled(gates):
    answers: list = []
    with running(serving({"slow": slow(gates)}), ServeOptions(drain=0.2)) as server:
        thread = begun(server.client, gates, answers)
        server.call(server.server.stop)
        thread.join()
        gates.open.set()
    assert [(answer.status, answer.json["error"]) for answer in answers] == [
        (503, "the server has stopped before the request ended")
    ]
