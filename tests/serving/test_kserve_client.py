"""The client of kserve against the server, over HTTP and gRPC.

Its classes of messages have the same names as those of tritonclient, so one process can import only one of both. These
tests run if this file is run alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.serving.running import Running, model, running, serving, two_by_two
from tests.serving.typed import NO_JSON, ROWS, TYPES, transposing, values

for package in ("starlette", "uvicorn", "prometheus_client", "grpc", "google.protobuf"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]


def imported() -> Any:
    try:
        import kserve
    except ImportError:
        pytest.skip("the package kserve is not installed")
    except TypeError:
        pytest.skip("kserve cannot be imported after tritonclient.grpc")
    return kserve


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    imported()
    models = {datatype: model(transposing(datatype)) for datatype in TYPES}
    with running(serving(models | {"two": model(two_by_two())}), grpc=True) as running_server:
        yield running_server


def address(server: Running, protocol: str) -> str:
    return server.grpc if protocol == "grpc" else f"127.0.0.1:{server.client.port}"


KSERVE_TYPES = [name for name in TYPES if name != "BF16"]  # its client does not know it


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", KSERVE_TYPES)
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_client_of_kserve_sends_tensors_of_each_type(server, protocol, datatype, binary):
    kserve = imported()
    if datatype in NO_JSON and not binary:
        pytest.skip(f"{datatype} is sent as bytes only")
    x = values(datatype)

    async def main() -> Any:
        item = kserve.InferInput("x", list(x.shape), datatype)
        item.set_data_from_numpy(x, binary_data=binary)
        request = kserve.InferRequest(datatype, [item], request_id="a", parameters={"binary_data_output": binary})
        if protocol == "grpc":
            return await kserve.InferenceGRPCClient(server.grpc).infer(request)
        client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
        return await client.infer(f"http://{address(server, protocol)}", request, model_name=datatype)

    got = asyncio.run(main()).outputs[0].as_numpy()
    if datatype == "BYTES":
        got = np.array([str(item, "utf-8") if isinstance(item, bytes) else item for item in got.flat], object)
        np.testing.assert_array_equal(got.reshape(3, ROWS), [[item.decode() for item in row] for row in x.T])
    else:
        np.testing.assert_array_equal(got, x.T)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_client_of_kserve_asks_for_states(server, protocol):
    kserve = imported()

    async def ask(method: str, *arguments: Any) -> Any:
        if protocol == "grpc":
            function = getattr(kserve.InferenceGRPCClient(server.grpc), method)
            return await function(*arguments)
        function = getattr(kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2")), method)
        return await function(f"http://{address(server, protocol)}", *arguments)

    assert asyncio.run(ask("is_server_live"))
    assert asyncio.run(ask("is_server_ready"))
    assert asyncio.run(ask("is_model_ready", "two"))
