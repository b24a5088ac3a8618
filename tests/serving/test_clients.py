"""Clients of others against the server: tritonclient over HTTP and gRPC, plain and with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from interposer.core.types import Array
from interposer.serving.options import ServeOptions
from tests.runtime.test_concurrency import OpenGates
from tests.serving.running import TOKEN, Running, doubler, model, running, serving, slow, two_by_two, wait_until
from tests.serving.typed import NO_JSON, ROWS, TYPES, transposing, values

for package in ("starlette", "uvicorn", "prometheus_client", "grpc", "google.protobuf", "tritonclient"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {datatype: model(transposing(datatype)) for datatype in TYPES}
    models |= {"two": model(two_by_two()), "scalar": model(doubler(shape=())), "doubler": model(doubler())}
    options = ServeOptions(control=True, shared_memory=True)
    with running(serving(models), options, grpc=True) as running_server:
        yield running_server


@pytest.fixture(params=["http", "grpc", "http.aio", "grpc.aio"])
def kind(request) -> str:
    return request.param


def address(server: Running, kind: str) -> str:
    return server.grpc if kind.startswith("grpc") else f"127.0.0.1:{server.client.port}"


def library(kind: str) -> Any:
    return pytest.importorskip(f"tritonclient.{kind}", reason=f"tritonclient has no {kind}")


def tensor(lib: Any, datatype: str, array: Array, name: str = "x", **options: Any) -> Any:
    infer_input = lib.InferInput(name, list(array.shape), datatype)
    try:
        infer_input.set_data_from_numpy(array, **options)
    except failure():
        if datatype != "BF16":
            raise
        infer_input.set_data_from_numpy(array.astype(np.float32), **options)  # the form of versions before 26.06
    return infer_input


def call(server: Running, kind: str, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of a client, which is closed afterwards; it sends the token of the server."""
    options.setdefault("headers", {"authorization": f"Bearer {TOKEN}"})

    async def alone() -> Any:
        async with library(kind).InferenceServerClient(address(server, kind)) as client:
            return await getattr(client, method)(*arguments, **options)

    if kind.endswith("aio"):
        return asyncio.run(alone())
    with library(kind).InferenceServerClient(address(server, kind)) as client:
        return getattr(client, method)(*arguments, **options)


def infer(server: Running, kind: str, *arguments: Any, **options: Any) -> Any:
    return call(server, kind, "infer", *arguments, **options)


def check(result: Any, expected: Array, datatype: str) -> None:
    y = result.as_numpy("y")
    np.testing.assert_array_equal(y.astype(expected.dtype), expected)
    assert y.dtype == expected.dtype or datatype == "BF16" or not y.size  # the HTTP client makes float64 of nothing


@pytest.mark.parametrize("datatype", TYPES)
@pytest.mark.parametrize("rows", [0, 1, ROWS])
def test_tensors_of_each_type_go_in_and_out(server, kind, datatype, rows):
    x = values(datatype, rows)
    result = infer(server, kind, datatype, [tensor(library(kind), datatype, x)], request_id="5")
    check(result, x.T, datatype)


@pytest.mark.parametrize("datatype", [name for name in TYPES if name not in NO_JSON])
@pytest.mark.parametrize(("binary_in", "binary_out"), [(False, False), (False, True), (True, False)])
def test_json_and_binary_tensors_are_mixed(server, datatype, binary_in, binary_out):
    lib = library("http")
    x = values(datatype)
    outputs = [lib.InferRequestedOutput("y", binary_data=binary_out)]
    result = infer(server, "http", datatype, [tensor(lib, datatype, x, binary_data=binary_in)], outputs=outputs)
    text = np.array([item.decode() for item in x.T.flat], object).reshape(x.T.shape) if datatype == "BYTES" else x.T
    np.testing.assert_array_equal(result.as_numpy("y"), x.T if binary_out else text)


def test_a_tensor_without_dimensions_goes_in_and_out(server, kind):
    x = np.array(1.5, np.float32)
    y = infer(server, kind, "scalar", [tensor(library(kind), "FP32", x)]).as_numpy("y")
    assert (y.shape, y.item()) == ((), 3.0)


def test_several_inputs_and_some_outputs(server, kind):
    lib = library(kind)
    a, b = np.array([[1, 2, 3]], np.float32), np.array([[10, 20, 30]], np.float32)
    inputs = [tensor(lib, "FP32", b, "b"), tensor(lib, "FP32", a, "a")]
    both = infer(server, kind, "two", inputs)
    np.testing.assert_array_equal(both.as_numpy("total"), a + b)
    np.testing.assert_array_equal(both.as_numpy("difference"), a - b)
    one = infer(server, kind, "two", inputs, outputs=[lib.InferRequestedOutput("difference")])
    np.testing.assert_array_equal(one.as_numpy("difference"), a - b)
    assert one.as_numpy("total") is None


def test_classes_are_texts(server, kind):
    lib = library(kind)
    x = tensor(lib, "FP32", np.array([[1, 9, 3, 4], [7, 0, 0, 8]], np.float32))
    result = infer(server, kind, "doubler", [x], outputs=[lib.InferRequestedOutput("y", class_count=2)])
    assert result.as_numpy("y").tolist() == [[b"18.0:1", b"8.0:3"], [b"16.0:3", b"14.0:0"]]


@pytest.mark.parametrize("datatype", ["BF16", "FP16", "UINT8", "INT64"])
def test_numbers_of_each_type_have_classes(server, kind, datatype):
    lib = library(kind)
    x = tensor(lib, datatype, np.array([[2, 1, 3]]).astype(TYPES[datatype]))
    result = infer(server, kind, datatype, [x], outputs=[lib.InferRequestedOutput("y", class_count=1)])
    zero = ":0" if datatype in ("UINT8", "INT64") else ".0:0"
    assert result.as_numpy("y").tolist() == [[f"{number}{zero}".encode()] for number in (2, 1, 3)]


def test_texts_have_no_classes(server, kind):
    lib = library(kind)
    outputs = [lib.InferRequestedOutput("y", class_count=2)]
    with pytest.raises(failure(), match="output 'y' has no numbers, so it has no classes"):
        infer(server, kind, "BYTES", [tensor(lib, "BYTES", values("BYTES"))], outputs=outputs)


def failure() -> Any:
    return pytest.importorskip("tritonclient.utils").InferenceServerException


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("rows", [1, 400])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_requests_and_answers_are_compressed(server, algorithm, rows, binary, is_async):
    kind = "http.aio" if is_async else "http"
    lib = library(kind)
    x = values("INT32", rows)
    result = infer(
        server, kind, "INT32", [tensor(lib, "INT32", x, binary_data=binary)],
        outputs=[lib.InferRequestedOutput("y", binary_data=binary)], response_compression_algorithm=algorithm,
        request_compression_algorithm=None if is_async else algorithm,  # some versions of the asyncio client cannot
    )  # fmt: skip
    check(result, x.T, "INT32")


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_messages_of_grpc_are_compressed(server, algorithm):
    x = values("FP64", 400)
    result = infer(
        server, "grpc", "FP64", [tensor(library("grpc"), "FP64", x)], compression_algorithm=algorithm
    )  # fmt: skip
    check(result, x.T, "FP64")


def answered(server: Running, kind: str, method: str, *arguments: Any) -> Any:
    """Return what a method returns, as the object of its JSON form."""
    options = {"as_json": True} if kind.startswith("grpc") and not method.startswith("is_") else {}
    return call(server, kind, method, *arguments, **options)


def test_what_is_not_inference_is_answered(server, kind):
    assert answered(server, kind, "is_server_live")
    assert answered(server, kind, "is_server_ready")
    assert answered(server, kind, "is_model_ready", "two")
    assert answered(server, kind, "is_model_ready", "two", "1")
    assert answered(server, kind, "get_server_metadata")["name"] == "interposer"
    assert answered(server, kind, "get_model_metadata", "two")["platform"] == "interposer_network"
    config = answered(server, kind, "get_model_config", "INT8")
    assert config.get("config", config)["input"][0]["data_type"] == "TYPE_INT8"
    index = answered(server, kind, "get_model_repository_index")
    rows = index["models"] if isinstance(index, dict) else index
    assert {row["name"] for row in rows} == {*TYPES, "two", "scalar", "doubler"}
    assert {row["state"] for row in rows} == {"READY"}


def test_inferences_are_counted(server, kind):
    def count() -> int:
        stats = answered(server, kind, "get_inference_statistics", "doubler")["model_stats"][0]
        return int(stats.get("inference_count", 0))

    before = count()
    infer(server, kind, "doubler", [tensor(library(kind), "FP32", np.ones((1, 4), np.float32))])
    assert count() == before + 1


def test_models_that_have_no_file_cannot_be_loaded_but_unloaded(server, kind):
    with pytest.raises(failure(), match="the server has no file for a model 'two'"):
        call(server, kind, "load_model", "two")
    with pytest.raises(failure(), match="unknown model 'none'"):
        call(server, kind, "unload_model", "none")


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("get_trace_settings", "this server has no trace settings"),
        ("update_trace_settings", "this server has no trace settings"),
        ("get_log_settings", "this server has no log settings"),
        ("update_log_settings", "this server has no log settings"),
    ],
)
def test_an_extension_that_is_not_offered_is_named(server, kind, method, text):
    settings = [{}] if method == "update_log_settings" else []
    with pytest.raises(failure(), match=text):
        call(server, kind, method, *settings)


def test_regions_of_shared_memory_are_used_instead_of_tensors(server, kind):
    shm = pytest.importorskip("tritonclient.utils.shared_memory", reason="tritonclient has no shared memory here")
    lib = library(kind)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    name = f"interposer_test_{kind.replace('.', '_')}"
    handle = shm.create_shared_memory_region(name, f"/{name}", 2 * x.nbytes)
    try:
        for method in ("unregister_system_shared_memory", "unregister_cuda_shared_memory"):
            call(server, kind, method)
        assert not answered(server, kind, "get_cuda_shared_memory_status")
        shm.set_shared_memory_region(handle, [x])
        call(server, kind, "register_system_shared_memory", name, f"/{name}", 2 * x.nbytes)
        assert name in str(answered(server, kind, "get_system_shared_memory_status"))
        item, output = lib.InferInput("x", [3, 4], "FP32"), lib.InferRequestedOutput("y")
        item.set_shared_memory(name, x.nbytes)
        output.set_shared_memory(name, x.nbytes, offset=x.nbytes)
        infer(server, kind, "doubler", [item], outputs=[output])
        y = shm.get_contents_as_numpy(handle, np.float32, [6, 4])[3:]
        np.testing.assert_array_equal(y, 2 * x)
        call(server, kind, "unregister_system_shared_memory", name)
        with pytest.raises(failure(), match=name):
            infer(server, kind, "doubler", [item], outputs=[output])
    finally:
        shm.destroy_shared_memory_region(handle)


def test_errors_have_messages(server, kind):
    lib = library(kind)
    with pytest.raises(failure(), match="unknown model 'none'"):
        infer(server, kind, "none", [tensor(lib, "INT8", values("INT8"))])
    with pytest.raises(failure(), match="input 'x' is INT32; model 'INT8' expects INT8"):
        infer(server, kind, "INT8", [tensor(lib, "INT32", values("INT32"))])


def test_a_request_that_is_late_is_refused(gates: OpenGates, kind):
    lib = library(kind)
    with running(serving({"slow": slow(gates)}), grpc=True) as server:
        x = [tensor(lib, "FP32", np.ones((8, 16), np.float32))]
        with pytest.raises(failure(), match="(took longer|Deadline Exceeded)"):
            infer(server, kind, "slow", x, timeout=200_000)
        if kind.startswith("grpc"):
            with pytest.raises(failure(), match="(?i)deadline.exceeded"):
                infer(server, kind, "slow", x, client_timeout=0.2)
        gates.open.set()
        wait_until(lambda: server.core.in_flight == 0)
        np.testing.assert_array_equal(infer(server, kind, "slow", x).as_numpy("y"), np.ones((8, 16)))


def test_a_request_that_its_client_cancels_leaves_the_server(gates: OpenGates):
    lib = library("grpc")
    with running(serving({"slow": slow(gates)}), grpc=True) as server:
        ended: list[Any] = []
        with lib.InferenceServerClient(server.grpc) as client:
            x = [tensor(lib, "FP32", np.ones((8, 16), np.float32))]
            context = client.async_infer("slow", x, lambda result, error: ended.append(error))
            wait_until(lambda: server.core.in_flight == 1)
            context.cancel()
            wait_until(lambda: ended)
            wait_until(lambda: server.core.in_flight == 0)
        assert "Locally cancelled" in str(ended[0])
        gates.open.set()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_clients_with_asyncio_send_many_requests(server, kind):
    lib = library(f"{kind}.aio")

    async def main() -> list[Any]:
        async with lib.InferenceServerClient(address(server, kind)) as client:
            x = [tensor(lib, "FP32", values("FP32"))]
            return await asyncio.gather(*(client.infer("FP32", x) for _ in range(32)))

    for result in asyncio.run(main()):
        np.testing.assert_array_equal(result.as_numpy("y"), values("FP32").T)


def test_requests_in_the_background_are_answered(server):
    lib = library("http")
    with lib.InferenceServerClient(address(server, "http"), concurrency=4) as client:
        x = [tensor(lib, "INT16", values("INT16"))]
        for pending in [client.async_infer("INT16", x) for _ in range(16)]:
            np.testing.assert_array_equal(pending.get_result().as_numpy("y"), values("INT16").T)


def test_a_stream_is_answered(server):
    lib = library("grpc")
    answers: list[Any] = []
    with lib.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.append((result, error)))
        for number in range(3):
            client.async_stream_infer("INT8", [tensor(lib, "INT8", values("INT8"))], request_id=str(number))
        client.stop_stream()
    assert [result.get_response().id for result, error in answers if error is None] == ["0", "1", "2"]
