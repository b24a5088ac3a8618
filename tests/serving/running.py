"""Servers for tests: real ones, in a thread of the test's process, on ports that the system chooses."""

from __future__ import annotations

import asyncio
import http.client
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from interposer import CreationOptions, Model, Network, Runtime, TensorInfo
from interposer.serving.core import Core
from interposer.serving.listen import Listen
from interposer.serving.loading import served_model
from interposer.serving.options import ServeOptions
from interposer.serving.repository import Repository
from interposer.serving.server import Server
from interposer.session import load
from tests.runtime.test_concurrency import OpenGates

TOKEN = "a token of the tests"


class Answer(NamedTuple):
    """The answer to an HTTP request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends HTTP requests to a server of this test."""

    def __init__(self, port: int, token: str | None = TOKEN) -> None:
        self.port, self.token = port, token

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            headers = dict(headers or {})
            if self.token is not None:
                headers.setdefault("Authorization", f"Bearer {self.token}")
            connection.request(method, path, data, headers, encode_chunked="Transfer-Encoding" in headers)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send("POST", path, body, {name.replace("_", "-"): text for name, text in headers.items()})


class Running(NamedTuple):
    """A server that runs: a client, its core, its gRPC address, the server, its loop, and all addresses."""

    client: Client
    core: Core
    grpc: str
    server: Server
    loop: asyncio.AbstractEventLoop
    addresses: dict[str, str]

    def call(self, function: Any) -> None:
        """Call a function in the thread of the server's event loop."""
        self.loop.call_soon_threadsafe(function)


@contextmanager
def running(
    repository: Any, options: ServeOptions | None = None, *, grpc: bool = False, **listen: Any
) -> Iterator[Running]:
    """Run a server in another thread within a ``with`` block; `repository` is called there for its models."""
    started: queue.Queue[Any] = queue.Queue()

    async def main() -> None:
        core = Core(repository(), with_token(options or ServeOptions()))
        server = Server(core, Listen(port=0, grpc_port=0 if grpc else None, **listen), started.put)
        started.put((core, server, asyncio.get_running_loop()))
        await server.run()

    def thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            started.put(error)

    runner = threading.Thread(target=thread)
    runner.start()
    core, server, loop = _next(started)
    try:
        addresses = _next(started)
        port = int(addresses["http"].rpartition(":")[2])
        yield Running(Client(port), core, addresses.get("grpc", ""), server, loop, addresses)
    finally:
        with suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(server.stop)
        runner.join(300)
        assert not runner.is_alive()


def with_token(options: ServeOptions) -> ServeOptions:
    """Return options with the token that clients of these tests send, unless they have another one."""
    return replace(options, token=TOKEN) if options.token is None else options


def _next(started: queue.Queue[Any]) -> Any:
    result = started.get(timeout=300)
    if isinstance(result, BaseException):
        raise result
    return result


def serving(models: dict[str, Model]) -> Any:
    """Return a function that makes a repository of models."""
    return lambda: Repository(served=[served_model(name, "1", model) for name, model in models.items()])


def doubler(dtype: str = "float32", shape: tuple[Any, ...] = (None, 4)) -> Network:
    """A network that computes y = x + x."""
    network = Network("doubler")
    x = network.add_input_layer(0, TensorInfo(shape, dtype), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    return network


def two_by_two() -> Network:
    """Return a network with two inputs, whose outputs are the sum and the difference."""
    network = Network("two")
    a, b = (network.add_input_layer(number, TensorInfo((1, 3)), name=name) for number, name in enumerate("ab"))
    network.add_output_layer(0, network.add_addition_layer(a, b, name="add"), name="total")
    network.add_output_layer(1, network.add_subtraction_layer(a, b, name="sub"), name="difference")
    return network


def model(network: Network, runtime: Runtime | None = None, *backends: str) -> Model:
    """Load a network on CpuRef, or on other backends."""
    return load(network, list(backends) or ["CpuRef"], runtime=runtime)


def infer_body(name: str = "x", rows: Any = ((1, 2, 3, 4),), datatype: str = "FP32", **fields: Any) -> dict[str, Any]:
    """Return the JSON object of a request with one input."""
    array = np.asarray(rows)
    tensor = {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.reshape(-1).tolist()}
    return {"inputs": [tensor], **fields}


def slow(gates: OpenGates) -> Model:
    """A model that waits in each run until the gates are open; one run at a time."""
    runtime = Runtime(CreationOptions(num_threads=1))
    runtime.registry.register("OpenGates", lambda: gates)
    return model(doubler(shape=(8, 16)), runtime, "OpenGates")


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds; fail after five minutes."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
