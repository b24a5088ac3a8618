"""Clients of others against the server: tritonclient over HTTP and gRPC, plain and with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from interposer.serving.options import ServeOptions
from tests.serving.running import Running, doubler, model, running, serving, two_by_two

for package in ("starlette", "uvicorn", "prometheus_client", "grpc", "google.protobuf", "tritonclient"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {kind: model(doubler(kind)) for kind in ("float32", "float16", "int8", "uint8", "int32", "int64")}
    with running(serving(models | {"two": model(two_by_two())}), ServeOptions(), grpc=True) as result:
        yield result


KINDS = {"float32": "FP32", "float16": "FP16", "int8": "INT8", "uint8": "UINT8", "int32": "INT32", "int64": "INT64"}


def address(server: Running, kind: str) -> str:
    return server.grpc if kind == "grpc" else f"127.0.0.1:{server.client.port}"


def library(kind: str) -> Any:
    return pytest.importorskip(f"tritonclient.{kind}", reason=f"tritonclient has no {kind}")


def tensors(client: Any, dtype: str, **options: Any) -> list[Any]:
    x = np.arange(8).reshape(2, 4).astype(dtype)
    item = client.InferInput("x", [2, 4], KINDS[dtype])
    item.set_data_from_numpy(x, **options)
    return [item]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tensors_of_each_type_go_in_and_out(server, kind, dtype):
    lib = library(kind)
    with lib.InferenceServerClient(address(server, kind)) as client:
        result = client.infer(dtype, tensors(lib, dtype), request_id="5")
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * np.arange(8).reshape(2, 4).astype(dtype))
        assert result.as_numpy("y").dtype == dtype


@pytest.mark.parametrize("dtype", sorted(KINDS.keys() - {"float16"}))
def test_json_tensors_go_in_and_out(server, dtype):
    lib = library("http")
    with lib.InferenceServerClient(address(server, "http")) as client:
        outputs = [lib.InferRequestedOutput("y", binary_data=False)]
        result = client.infer(dtype, tensors(lib, dtype, binary_data=False), outputs=outputs)
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * np.arange(8).reshape(2, 4).astype(dtype))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_are_read(server, algorithm):
    lib = library("http")
    with lib.InferenceServerClient(address(server, "http")) as client:
        result = client.infer(
            "int32", tensors(lib, "int32"), request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )  # fmt: skip
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * np.arange(8).reshape(2, 4))


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_what_is_not_inference_is_answered(server, kind):
    lib = library(kind)
    as_dict = {} if kind == "http" else {"as_json": True}
    with lib.InferenceServerClient(address(server, kind)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("two")
        assert client.is_model_ready("two", "1")
        assert not client.is_model_ready("none") if kind == "http" else True
        assert client.get_server_metadata(**as_dict)["name"] == "interposer"
        assert client.get_model_metadata("two", **as_dict)["platform"] == "interposer_network"
        assert client.get_model_config("two", **as_dict)
        assert client.get_inference_statistics("two", **as_dict)["model_stats"]
        assert client.get_model_repository_index(**as_dict)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_errors_have_messages(server, kind):
    lib = library(kind)
    utils = pytest.importorskip("tritonclient.utils")
    with lib.InferenceServerClient(address(server, kind)) as client:
        with pytest.raises(utils.InferenceServerException, match="unknown model 'none'"):
            client.infer("none", tensors(lib, "int8"))
        with pytest.raises(utils.InferenceServerException, match="input 'x' is INT32; model 'int8' expects INT8"):
            client.infer("int8", tensors(lib, "int32"))


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_clients_with_asyncio_send_many_requests(server, kind):
    lib = pytest.importorskip(f"tritonclient.{kind}.aio", reason=f"tritonclient has no {kind}.aio")

    async def main() -> list[Any]:
        async with lib.InferenceServerClient(address(server, kind)) as client:
            return await asyncio.gather(*(client.infer("float32", tensors(lib, "float32")) for _ in range(32)))

    for result in asyncio.run(main()):
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * np.arange(8).reshape(2, 4))


def test_a_stream_is_answered(server):
    lib = library("grpc")
    answers: list[Any] = []
    with lib.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.append((result, error)))
        for number in range(3):
            client.async_stream_infer("int8", tensors(lib, "int8"), request_id=str(number))
        client.stop_stream()
    assert [result.get_response().id for result, error in answers if error is None] == ["0", "1", "2"]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_client_of_kserve_sends_requests(server, kind):
    kserve = pytest.importorskip("kserve", reason="the package kserve is not installed")

    async def main(binary: bool) -> Any:
        item = kserve.InferInput("x", [2, 4], "FP32")
        item.set_data_from_numpy(np.arange(8, dtype=np.float32).reshape(2, 4), binary_data=binary)
        request = kserve.InferRequest("float32", [item], request_id="a")
        if kind == "grpc":
            return await kserve.InferenceGRPCClient(server.grpc).infer(request)
        client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
        return await client.infer(f"http://{address(server, kind)}", request, model_name="float32")

    for binary in (False, True):
        result = asyncio.run(main(binary))
        np.testing.assert_array_equal(result.outputs[0].as_numpy(), 2 * np.arange(8).reshape(2, 4))
