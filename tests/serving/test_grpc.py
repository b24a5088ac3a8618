"""The server over gRPC: metadata, inference in both forms, streams, status codes, deadlines and cancellation."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.serving.options import ServeOptions
from tests.runtime.test_concurrency import OpenGates
from tests.serving.running import TOKEN, Running, doubler, model, running, serving, slow, two_by_two, wait_until

grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
pytest.importorskip("google.protobuf", reason="the package protobuf is not installed")
pytest.importorskip("starlette", reason="the package starlette is not installed")
pytest.importorskip("uvicorn", reason="the package uvicorn is not installed")
pytest.importorskip("prometheus_client", reason="the package prometheus-client is not installed")
pytestmark = pytest.mark.needs_cpuref


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {
        "doubler": model(doubler()),
        "bytes": model(doubler("int8", (1, 4))),
        "half": model(doubler("float16", (1, 4))),
        "two": model(two_by_two()),
    }
    with running(serving(models), ServeOptions(max_body=100_000), grpc=True) as running_server:
        yield running_server


def parameter(**field: Any) -> Any:
    """Return a parameter of a request; protobuf before 6.30 does not make one from a mapping."""
    from interposer.serving.protocol.grpc_messages import message

    return message("InferParameter")(**field)


class Stub:
    """Calls the methods of the service with the messages of the package."""

    def __init__(self, address: str) -> None:
        from interposer.serving.protocol.grpc_messages import message, methods

        self.message = message
        self._channel = grpc.insecure_channel(address)
        self._methods = methods()

    def call(self, name: str, request: Any, **options: Any) -> Any:
        _, response = self._methods[name]
        path = f"/inference.GRPCInferenceService/{name}"
        function = self._channel.unary_unary(path, lambda item: item.SerializeToString(), response.FromString)
        return function(request, metadata=[("authorization", f"Bearer {TOKEN}")], **options)

    def ask(self, name: str, /, **fields: Any) -> Any:
        return self.call(name, self._methods[name][0](**fields))

    def stream(self, requests: list[Any]) -> list[Any]:
        _, response = self._methods["ModelStreamInfer"]
        path = "/inference.GRPCInferenceService/ModelStreamInfer"
        function = self._channel.stream_stream(path, lambda item: item.SerializeToString(), response.FromString)
        return list(function(iter(requests)))

    def request(self, name: str = "doubler", array: Any = None, datatype: str = "FP32", **fields: Any) -> Any:
        array = np.array([[1, 2, 3, 4]], np.float32) if array is None else array
        tensor = {"name": "x", "datatype": datatype, "shape": array.shape}
        raw = {"raw_input_contents": [array.tobytes()]}
        return self.message("ModelInferRequest")(model_name=name, inputs=[tensor], **{**raw, **fields})


@pytest.fixture
def stub(server: Running) -> Iterator[Stub]:
    grpc_stub = Stub(server.grpc)
    yield grpc_stub
    grpc_stub._channel.close()


def test_health_and_metadata(stub):
    assert stub.ask("ServerLive").live
    assert stub.ask("ServerReady").ready
    assert stub.ask("ModelReady", name="two").ready
    assert stub.ask("ServerMetadata").name == "interposer"
    said = stub.ask("ModelMetadata", name="doubler")
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in said.inputs] == [("x", "FP32", [-1, 4])]
    assert stub.ask("ModelConfig", name="bytes").config.input[0].data_type == 6
    assert stub.ask("RepositoryIndex").models[0].state == "READY"


@pytest.mark.parametrize(
    ("name", "dtype", "datatype"),
    [("doubler", np.float32, "FP32"), ("bytes", np.int8, "INT8"), ("half", np.float16, "FP16")],
)
def test_raw_contents_go_in_and_out(stub, name, dtype, datatype):
    x = np.array([[1, 2, 3, 4]], dtype)
    answer = stub.call("ModelInfer", stub.request(name, x, datatype, id="7"))
    assert (answer.id, answer.model_name, answer.model_version) == ("7", name, "1")
    assert (answer.outputs[0].datatype, list(answer.outputs[0].shape)) == (datatype, [1, 4])
    assert answer.raw_output_contents[0] == (x + x).tobytes()


@pytest.mark.parametrize(("name", "datatype", "field"), [("doubler", "FP32", "fp32"), ("bytes", "INT8", "int")])
def test_typed_contents_go_in_and_out(stub, name, datatype, field):
    tensor = {"name": "x", "datatype": datatype, "shape": [1, 4], "contents": {f"{field}_contents": [1, 2, 3, 4]}}
    answer = stub.ask("ModelInfer", model_name=name, inputs=[tensor])
    assert list(getattr(answer.outputs[0].contents, f"{field}_contents")) == [2, 4, 6, 8]
    assert not answer.raw_output_contents


def test_classes_and_explanations(stub):
    outputs = [{"name": "y", "parameters": {"classification": parameter(int64_param=1)}}]
    request = stub.request(outputs=outputs, parameters={"explain": parameter(bool_param=True)})
    answer = stub.call("ModelInfer", request)
    assert answer.raw_output_contents[0] == struct.pack("<I", 5) + b"8.0:3"
    assert answer.parameters["backends"].string_param == "CpuRef: 1"


def test_the_requests_of_a_stream_are_answered_in_order(stub):
    wrong = stub.request("none", id="2")
    answers = stub.stream([stub.request(id="1"), wrong, stub.request(id="3")])
    assert [answer.error_message for answer in answers] == ["", "unknown model 'none'", ""]
    assert [answer.infer_response.id for answer in answers] == ["1", "2", "3"]


X = {"name": "x", "datatype": "FP32", "shape": [1, 4]}


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"model_name": "none"}, "NOT_FOUND", "unknown model 'none'"),
        ({"inputs": [X]}, "INVALID_ARGUMENT", "input 'x' has 0 elements; the shape [1, 4] needs 4"),
        ({"inputs": [X, X]}, "INVALID_ARGUMENT", "'inputs' has 'x' more than once"),
        ({"inputs": [X], "raw_input_contents": [b"", b""]}, "INVALID_ARGUMENT",
         "raw_input_contents has 2 elements for 1 inputs"),
        ({"inputs": [X | {"contents": {}}], "raw_input_contents": [bytes(16)]}, "INVALID_ARGUMENT",
         "input 'x' has contents, but the request has raw_input_contents"),
        ({"inputs": [X | {"contents": {"fp32_contents": [1, 2, 3, 4], "int_contents": [1]}}]}, "INVALID_ARGUMENT",
         "input 'x' has contents of several types"),
        ({"inputs": [X | {"datatype": "FP16"}]}, "INVALID_ARGUMENT",
         "input 'x' is FP16, which has no typed contents; send it in raw_input_contents"),
        ({"inputs": [X | {"shape": [-1, 4]}]}, "INVALID_ARGUMENT",
         "input 'x' has the shape [-1, 4]; sizes must not be negative"),
        ({"inputs": [X | {"shape": [1 << 40] * 3}]}, "INVALID_ARGUMENT",
         "input 'x' has a shape with too many elements"),
        ({"model_name": "bytes", "inputs": [{"name": "x", "datatype": "INT8", "shape": [1],
          "contents": {"int_contents": [200]}}]}, "INVALID_ARGUMENT",
         "input 'x' has the element 200; INT8 has -128 to 127"),
        ({"inputs": [X], "raw_input_contents": [bytes(16)], "parameters": {"timeout": parameter(int64_param=1)}},
         "DEADLINE_EXCEEDED", "the request took longer than 1e-06 seconds"),
        ({"inputs": [X | {"parameters": {"shared_memory_region": parameter(string_param="r")}}]}, "PERMISSION_DENIED",
         "this server does not offer shared memory"),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_a_status_code_and_a_sentence(stub, fields, code, text):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ask("ModelInfer", **{"model_name": "doubler", **fields})
    assert (caught.value.code().name, caught.value.details()) == (code, text)


@pytest.mark.parametrize("letter", ["x", "\N{GRINNING FACE}"])
def test_a_message_with_a_long_name_of_the_client_fits_into_its_status(stub, letter):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ask("ModelInfer", model_name="doubler", inputs=[X | {"name": letter * 9_000, "shape": [-1]}])
    assert caught.value.code().name == "INVALID_ARGUMENT"
    assert caught.value.details().endswith("has the shape [-1]; sizes must not be negative")


def test_other_methods_have_status_codes_too(stub):
    for name in ("ModelMetadata", "ModelConfig", "ModelStatistics"):
        with pytest.raises(grpc.RpcError) as caught:
            stub.ask(name, name="none")
        assert caught.value.code().name == "NOT_FOUND"
    with pytest.raises(grpc.RpcError) as caught:
        stub.ask("RepositoryModelLoad", model_name="two")
    assert caught.value.code().name == "PERMISSION_DENIED"


def test_an_answer_has_raw_contents_if_the_input_is_in_shared_memory():
    path = Path("/dev/shm", f"interposer-grpc-{os.getpid()}")
    options = ServeOptions(shared_memory=True)
    try:
        path.write_bytes(bytes([1, 2, 3, 4]))
        with running(serving({"bytes": model(doubler("int8", (1, 4)))}), options, grpc=True) as server:
            stub = Stub(server.grpc)
            stub.ask("SystemSharedMemoryRegister", name="r", key=path.name, byte_size=4)
            shared = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 4}}
            tensor = X | {"datatype": "INT8", "parameters": shared}
            answer = stub.ask("ModelInfer", model_name="bytes", inputs=[tensor])
            assert list(answer.raw_output_contents) == [bytes([2, 4, 6, 8])]
    finally:
        path.unlink()


def test_the_limit_of_bodies_may_be_more_than_grpc_can_have():
    with running(serving({"doubler": model(doubler())}), ServeOptions(max_body=1 << 60), grpc=True) as server:
        assert Stub(server.grpc).ask("ServerReady").ready


def test_an_unknown_model_is_not_ready(stub):
    assert not stub.ask("ModelReady", name="none").ready
    assert not stub.ask("ModelReady", name="two", version="9").ready


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x02\xff\xff"])
def test_a_damaged_message_is_an_invalid_argument(stub, data):
    for name in ("ModelInfer", "ModelMetadata"):
        with pytest.raises(grpc.RpcError) as caught:
            stub._channel.unary_unary(f"/inference.GRPCInferenceService/{name}")(data)
        assert caught.value.code().name == "INVALID_ARGUMENT"


def test_a_damaged_message_in_a_stream_is_answered_with_an_error(stub):
    right = stub.request().SerializeToString()
    stream = stub._channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    first, second, third = map(
        stub.message("ModelStreamInferResponse").FromString, stream(iter([right, b"\xff\xff", right]))
    )
    assert first.infer_response.outputs and third.infer_response.outputs
    assert second.error_message.startswith("the request is not a message of the protocol")


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("TraceSetting", "this server has no trace settings; "),
        ("LogSettings", "this server has no log settings that clients can read or change; "),
        ("CudaSharedMemoryRegister", "this server has no shared memory of CUDA; "),
    ],
)
def test_an_extension_that_is_not_offered_is_named(stub, method, text):
    with pytest.raises(grpc.RpcError) as caught:
        stub._channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(b"")
    assert caught.value.code().name == "UNIMPLEMENTED"
    assert caught.value.details().startswith(text)


def test_a_message_that_is_too_large_is_refused(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.call("ModelInfer", stub.request(array=np.zeros((100_000, 4), np.float32)))
    assert caught.value.code().name == "RESOURCE_EXHAUSTED"


def test_requests_are_counted(stub):
    before = stub.ask("ModelStatistics", name="two").model_stats[0].inference_stats.success.count
    inputs = [{"name": name, "datatype": "FP32", "shape": [1, 3]} for name in "ab"]
    stub.ask("ModelInfer", model_name="two", inputs=inputs, raw_input_contents=[bytes(12), bytes(12)])
    after = stub.ask("ModelStatistics", name="two").model_stats[0]
    assert after.inference_stats.success.count == before + 1
    assert after.name == "two"


def test_the_deadline_of_the_client_cancels_the_run(gates: OpenGates):
    with running(serving({"slow": slow(gates)}), grpc=True) as server:
        stub = Stub(server.grpc)
        with pytest.raises(grpc.RpcError) as caught:
            stub.call("ModelInfer", stub.request("slow", np.ones((8, 16), np.float32)), timeout=1)
        assert caught.value.code().name == "DEADLINE_EXCEEDED"
        wait_until(lambda: server.core.in_flight == 0)
        gates.open.set()
        stub.call("ModelInfer", stub.request("slow", np.ones((8, 16), np.float32)))
        stub._channel.close()


def test_a_server_that_stops_is_not_ready_and_ends_what_runs(gates: OpenGates):
    with running(serving({"slow": slow(gates)}), grpc=True) as server:
        stub = Stub(server.grpc)
        request = stub.request("slow", np.ones((8, 16), np.float32))
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(stub.call, "ModelInfer", request)
            wait_until(lambda: gates.inside)
            server.call(server.server.stop)
            wait_until(lambda: server.core.is_draining)
            assert stub.ask("ServerLive").live
            assert not stub.ask("ServerReady").ready
            assert not stub.ask("ModelReady", name="slow").ready
            with pytest.raises(grpc.RpcError) as caught:
                stub.call("ModelInfer", request)
            assert (caught.value.code().name, caught.value.details()) == ("UNAVAILABLE", "the server is stopping")
            gates.open.set()
            assert pending.result(300).model_name == "slow"
        stub._channel.close()


def test_the_descriptor_is_that_of_the_proto_file():
    pytest.importorskip("grpc_tools.protoc", reason="the package grpcio-tools is not installed")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from interposer.serving.protocol.descriptor import FILES
    from tools.grpc_messages import base64, compiled

    stored, compiled_now = (FileDescriptorSet.FromString(data) for data in (base64.b64decode(FILES), compiled()))
    assert stored == compiled_now


class Health:
    """Calls the methods of gRPC's health service."""

    def __init__(self, channel: Any) -> None:
        from interposer.serving.protocol.grpc_messages import HEALTH, message, methods

        self._channel, self._methods = channel, methods(HEALTH)
        self.status = message("HealthCheckResponse", HEALTH).ServingStatus.Name

    def call(self, name: str, **fields: Any) -> Any:
        request, response = self._methods[name]
        kind = self._channel.unary_stream if name == "Watch" else self._channel.unary_unary
        function = kind(f"/grpc.health.v1.Health/{name}", request.SerializeToString, response.FromString)
        return function(request(**fields))


def test_the_health_service_says_whether_the_server_and_the_inference_service_are_ready(server):
    with grpc.insecure_channel(server.grpc) as channel:
        health = Health(channel)
        for service in ("", "inference.GRPCInferenceService"):
            assert health.status(health.call("Check", service=service).status) == "SERVING"
        with pytest.raises(grpc.RpcError) as caught:
            health.call("Check", service="grpc.Other")
        assert (caught.value.code().name, caught.value.details()) == ("NOT_FOUND", "unknown service 'grpc.Other'")
        statuses = health.call("List").statuses
        assert {name: health.status(response.status) for name, response in statuses.items()} == {
            "": "SERVING",
            "inference.GRPCInferenceService": "SERVING",
        }
        assert health.status(next(health.call("Watch", service="grpc.Other")).status) == "SERVICE_UNKNOWN"


def test_who_watches_the_health_learns_that_the_server_stops(gates: OpenGates):
    with running(serving({"slow": slow(gates)}), grpc=True) as server, ThreadPoolExecutor(1) as pool:
        stub, channel = Stub(server.grpc), grpc.insecure_channel(server.grpc)
        health = Health(channel)
        watched = health.call("Watch")
        assert health.status(next(watched).status) == "SERVING"
        pending = pool.submit(stub.call, "ModelInfer", stub.request("slow", np.ones((8, 16), np.float32)))
        wait_until(lambda: gates.inside)
        server.call(server.server.stop)
        assert health.status(next(watched).status) == "NOT_SERVING"
        assert health.status(health.call("Check").status) == "NOT_SERVING"
        gates.open.set()
        assert pending.result(300).model_name == "slow"
        watched.cancel()
        channel.close()
