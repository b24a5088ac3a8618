"""Streams of answers: runs whose outputs are the next inputs, over HTTP and gRPC."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer.serving.repository import Repository
from tests.serving.running import TOKEN, Running, infer_body, model, running, serving, wait_until
from tests.serving.test_sequences import counter

for package in ("starlette", "uvicorn", "prometheus_client", "grpc", "google.protobuf"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref


def adder() -> Network:
    """A network with y = x + step."""
    network = Network("adder")
    x, step = (
        network.add_input_layer(number, TensorInfo((1, 2)), name=name) for number, name in enumerate(("x", "step"))
    )
    network.add_output_layer(0, network.add_addition_layer(x, step, name="sum"), name="y")
    return network


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    def repository() -> Repository:
        made: Repository = serving({"adder": model(adder()), "counter": model(counter())})()
        made.find("adder").feedback = {"x": "y"}
        return made

    with running(repository, grpc=True) as running_server:
        yield running_server


def body(**parameters: Any) -> dict[str, Any]:
    tensors = [{"name": name, "datatype": "FP32", "shape": [1, 2], "data": [1, 1]} for name in ("x", "step")]
    return {"inputs": tensors, "parameters": parameters}


def events(server: Running, name: str, sent: dict[str, Any]) -> list[dict[str, Any]]:
    answer = server.client.post(f"/v2/models/{name}/infer_stream", sent)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    return [json.loads(event.rpartition(b"data: ")[2]) for event in answer.body.split(b"\n\n") if event]


def values(answers: list[dict[str, Any]]) -> list[float]:
    return [answer["outputs"][0]["data"][0] for answer in answers]


def test_each_run_has_an_answer_and_its_outputs_are_the_next_inputs(server):
    answers = events(server, "adder", body(steps=4))
    assert values(answers) == [2, 3, 4, 5]
    assert [answer["parameters"]["triton_final_response"] for answer in answers] == [False, False, False, True]
    assert values(events(server, "adder", body())) == [2]


def test_a_stream_ends_with_the_value_that_stops_it(server):
    assert values(events(server, "adder", body(steps=100, stop_value=4))) == [2, 3, 4]


def test_other_requests_are_answered_between_the_runs_of_a_stream(server):
    for _ in range(40):  # so that the model is known to be quick, and runs in the event loop
        server.client.post("/v2/models/adder/infer", body())
    data = json.dumps(body(steps=1 << 16)).encode()
    head = f"POST /v2/models/adder/infer_stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.client.port), 60) as connection:
        connection.sendall(head.encode() + data)
        received = connection.recv(1 << 16)
        assert server.client.get("/v2/health/live").status == 200
        assert server.core.in_flight == 1
    assert received.startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: server.core.in_flight == 0)


def test_the_runs_of_a_model_with_states_are_one_sequence(server):
    def sent(**parameters: Any) -> dict[str, Any]:
        return infer_body(rows=((1, 1),), parameters=parameters)

    assert values(events(server, "counter", sent(steps=3))) == [11, 12, 13]
    assert values(events(server, "counter", sent(steps=2))) == [11, 12]
    assert values(events(server, "counter", sent(steps=2, sequence_id=5, sequence_start=True))) == [11, 12]
    assert values(events(server, "counter", sent(steps=2, sequence_id=5, sequence_end=True))) == [13, 14]
    runner: Any = server.core.repository.find("counter").runner
    assert runner._sequences == {}


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"steps": 0}, "the parameter steps is not a whole number from 1 to 65536"),
        ({"steps": "many"}, "the parameter steps is not a whole number from 1 to 65536"),
        ({"stop_value": "x"}, "the parameter stop_value is not a number"),
    ],
)
def test_wrong_parameters_are_refused(server, parameters, text):
    answer = server.client.post("/v2/models/adder/infer_stream", body(**parameters))
    assert (answer.status, answer.json) == (400, {"error": text})


def test_an_error_after_the_first_answer_is_an_event(server):
    sent = body(steps=3)
    sent["outputs"] = [{"name": "y"}]
    served = server.core.repository.find("adder")
    run, calls = served.runner.run, []

    def failing(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise RuntimeError("a secret of the server")
        return run(*arguments)

    served.runner.run = failing
    try:
        first, error = events(server, "adder", sent)
    finally:
        served.runner.run = run
    assert first["outputs"][0]["data"] == [2, 2]
    assert error == {"error": "the run failed with RuntimeError; the log of the server has the details"}


def test_binary_tensors_are_refused_in_a_stream_of_events(server):
    sent = body(steps=2)
    sent["outputs"] = [{"name": "y", "parameters": {"binary_data": True}}]
    answer = server.client.post("/v2/models/adder/infer_stream", sent)
    assert (answer.status, "no binary tensors" in answer.json["error"]) == (400, True)


def test_grpc_streams_an_answer_for_each_run(server):
    import grpc

    from interposer.serving.protocol.grpc_messages import message

    request = message("ModelInferRequest")(model_name="adder", id="q")
    for name in ("x", "step"):
        request.inputs.add(name=name, datatype="FP32", shape=[1, 2])
        request.raw_input_contents.append(np.ones((1, 2), np.float32).tobytes())
    plain = message("ModelInferRequest").FromString(request.SerializeToString())
    request.parameters["steps"].int64_param = 3
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            lambda value: value.SerializeToString(),
            message("ModelStreamInferResponse").FromString,
        )
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        answers = [answer.infer_response for answer in call(iter([request, plain]), timeout=300, metadata=metadata)]
    numbers = [np.frombuffer(answer.raw_output_contents[0], np.float32)[0] for answer in answers]
    assert numbers == [2, 3, 4, 2]
    assert [answer.parameters["triton_final_response"].bool_param for answer in answers[:3]] == [False, False, True]
    assert {answer.id for answer in answers} == {"q"}
