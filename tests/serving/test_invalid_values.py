"""Values that a layer cannot use, over HTTP and gRPC: a client error for the one who sent them, and for nobody else."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest

from interposer import Network, TensorInfo
from tests.serving.running import Client, infer_body, model, running, serving

pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")
pytest.importorskip("prometheus_client", reason="the package prometheus-client is not installed")
pytestmark = pytest.mark.needs_cpuref
PATH = "/v2/models/table/infer"
MESSAGE = "layer 'pick' (Gather) cannot use its inputs: indices has 3 at [0, 1]; expected -3 to 2 (tensor 'x')"


def table_network(shape: Any = (1, 2)) -> Network:
    """Return a network that looks up rows of a table of three."""
    network = Network("table")
    x = network.add_input_layer(0, TensorInfo(shape, "int64"), name="x")
    table = network.add_constant_layer(np.float32([0, 10, 20]))
    network.add_output_layer(0, network.add_gather_layer(table, x, axis=0, name="pick"), name="y")
    return network


def body(*indices: int) -> dict[str, Any]:
    return infer_body(rows=[list(indices)], datatype="INT64")


def test_a_wrong_index_is_a_client_error_and_the_log_stays_empty(caplog: pytest.LogCaptureFixture) -> None:
    table = model(table_network())
    with caplog.at_level(logging.INFO, "interposer"), running(serving({"table": table})) as server:
        for _ in range(3):
            assert server.client.post(PATH, body(0, 2)).json["outputs"][0]["data"] == [0, 20]
            answer = server.client.post(PATH, body(0, 3))
            assert (answer.status, answer.json) == (400, {"error": MESSAGE})
        assert server.client.get("/v2/models/table/ready").status == 200
    assert table.events == ()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_over_grpc_it_is_an_invalid_argument() -> None:
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    pytest.importorskip("google.protobuf", reason="the package protobuf is not installed")
    from tests.serving.test_grpc import Stub

    with running(serving({"table": model(table_network())}), grpc=True) as server:
        stub = Stub(server.grpc)
        tensor = {"name": "x", "datatype": "INT64", "shape": (1, 2)}

        def ask(*indices: int) -> Any:
            raw = [np.array(indices).tobytes()]
            return stub.ask("ModelInfer", model_name="table", inputs=[tensor], raw_input_contents=raw)

        for _ in range(2):
            assert np.frombuffer(ask(0, 2).raw_output_contents[0], np.float32).tolist() == [0, 20]
            with pytest.raises(grpc.RpcError) as caught:
                ask(0, 3)
            assert (caught.value.code().name, caught.value.details()) == ("INVALID_ARGUMENT", MESSAGE)


def good_requests(client: Client, offset: int, errors: list[str]) -> None:
    """Send requests of eleven shapes, all of which must be answered rightly."""
    for number in range(40):
        size = 1 + (number + offset) % 11
        answer = client.post(PATH, body(*[2] * size))
        if answer.status != 200 or answer.json["outputs"][0]["data"] != [20] * size:
            errors.append(f"{answer.status}: {answer.body[:200]!r}")


def bad_requests(client: Client, size: int, errors: list[str]) -> None:
    """Send requests with a wrong index, which must be client errors."""
    for _ in range(40):
        answer = client.post(PATH, body(*[7] * size))
        if answer.status != 400 or "cannot use its inputs" not in answer.json["error"]:
            errors.append(f"{answer.status}: {answer.body[:200]!r}")


def readers(client: Client, _: int, errors: list[str]) -> None:
    """Read the metadata, which must always have the layers, and the status page."""
    for _ in range(40):
        metadata, page = client.get("/v2/models/table"), client.get("/")
        if (metadata.status, page.status) != (200, 200) or metadata.json.get("parameters") != {"layers_CpuRef": 1}:
            errors.append(f"{metadata.status}, {page.status}: {metadata.body[:200]!r}")


def test_good_requests_of_many_shapes_and_readers_of_the_state_never_fail() -> None:
    """Requests of more shapes than are cached make and unload networks, while metadata and the status page are read."""
    table = model(table_network((1, None)))
    errors: list[str] = []
    with running(serving({"table": table})) as server:
        server.client.post(PATH, body(0))
        roles = (good_requests, good_requests, good_requests, bad_requests, bad_requests, readers)
        arguments = [(Client(server.client.port), 1 + number, errors) for number in range(len(roles))]
        threads = [threading.Thread(target=role, args=given) for role, given in zip(roles, arguments, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert table.events == ()
