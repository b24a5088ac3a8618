"""Networks with states: each sequence has its own, and keeps them from request to request."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.serving import ServeOptions, app, sequences
from interposer.serving.folder import ModelSettings, found_in
from interposer.serving.loading import Loader, served_model
from interposer.serving.protocol.errors import ServingError
from interposer.serving.repository import Repository
from interposer.serving.sequences import Sequences
from interposer.serving.statistics import Timing
from tests import warm
from tests.serving.running import Running, infer_body, model, running, serving

pytestmark = pytest.mark.needs_cpuref


def counter() -> Network:
    """Return a network that adds its input to a state, and returns the sum."""
    network = Network("counter")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    total = network.add_state("total", TensorInfo((1, 2)), np.full((1, 2), 10, np.float32))
    next_total = network.add_addition_layer(total, x, name="add")
    network.set_state("total", next_total)
    network.add_output_layer(0, next_total, name="y")
    return network


class Clock:
    """The clock of `interposer.serving.sequences`, which stands still unless a test sets it forward."""

    def __init__(self) -> None:
        self.now = 1.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sequences, "time", clock)
    return clock


def ask(runner: Sequences, number: Any, value: float, **flags: bool) -> Any:
    parameters = {"sequence_id": number, **{f"sequence_{name}": flag for name, flag in flags.items()}}
    return runner.run({"x": np.full((1, 2), value, np.float32)}, ["y"], 30, parameters, Timing())


def test_sequences_do_not_see_each_other():
    runner = Sequences(model(counter()))
    draw = np.random.default_rng(3)
    expected: dict[int, float] = {}

    async def main() -> None:
        for _ in range(200):
            number = int(draw.integers(1, 9))
            value = float(draw.integers(0, 100))
            start = number not in expected or draw.integers(10) == 0
            expected[number] = (10 if start else expected[number]) + value
            [result] = await ask(runner, number, value, start=bool(start))
            assert result.tolist() == [[expected[number]] * 2]

    asyncio.run(main())


def test_concurrent_requests_of_many_sequences_are_right():
    runner = Sequences(model(counter()))

    async def one(number: int) -> list[float]:
        return [(await ask(runner, f"s{number}", number, start=step == 0))[0][0, 0] for step in range(10)]

    async def main() -> list[list[float]]:
        return await asyncio.gather(*(one(number) for number in range(1, 20)))

    for number, values in enumerate(asyncio.run(main()), 1):
        assert values == [10 + number * (step + 1) for step in range(10)]


def test_several_instances_run_several_sequences_at_the_same_time():
    runner = Sequences(model(counter()), copies=[model(counter()), model(counter())])
    assert runner.concurrency == 3

    async def one(number: int) -> list[float]:
        return [(await ask(runner, f"s{number}", number, start=step == 0))[0][0, 0] for step in range(10)]

    async def together() -> list[float]:  # requests of one sequence run in the order of their arrival
        await ask(runner, "same", 0, start=True)
        results = await asyncio.gather(*(ask(runner, "same", 1) for _ in range(20)))
        return [arrays[0][0, 0] for arrays in results]

    async def main() -> tuple[list[list[float]], list[float]]:
        await runner.try_out({"x": np.full((1, 2), 99, np.float32)}, ["y"], 30)
        return await asyncio.gather(*(one(number) for number in range(1, 20))), await together()

    separate, same = asyncio.run(main())
    for number, values in enumerate(separate, 1):
        assert values == [10 + number * (step + 1) for step in range(10)]
    assert same == [11 + step for step in range(20)]
    runner.close()


def test_a_sequence_begins_and_ends(clock):
    runner = Sequences(model(counter()), idle=0.2, most=2)

    async def refused(*arguments: Any, **flags: bool) -> str:
        with pytest.raises(ServingError) as caught:
            await ask(runner, *arguments, **flags)
        return str(caught.value)

    async def main() -> None:
        text = "has not begun, or had no request for 0.2 seconds; its first request needs sequence_start"
        assert await refused(7, 1.0) == f"sequence 7 {text}"
        await ask(runner, 7, 1.0, start=True)
        await ask(runner, 8, 1.0, start=True)
        assert await refused(9, 1.0, start=True) == "2 sequences of the model exist already"
        [result] = await ask(runner, 7, 1.0, end=True)
        assert result.tolist() == [[12, 12]]
        assert await refused(7, 1.0) == f"sequence 7 {text}"
        with pytest.raises(ServingError):
            while True:  # until the loop has looked for idle sequences
                clock.now += 1
                await asyncio.sleep(0.05)
                await ask(runner, 8, 1.0)
        assert await refused(8, 1.0) == f"sequence 8 {text}"
        for wrong in (0, "", 1.5, True, 1 << 64, -(1 << 63) - 1, "s" * 129):
            assert "sequence_id must be a whole number of 64 bits other than 0, or a text" in await refused(wrong, 1.0)

    asyncio.run(main())


def test_states_can_be_exchanged_without_copies():
    network = model(counter())
    one = np.ones((1, 2), np.float32)
    network.run([one])
    first = network.exchange_state({})
    assert network.run([one])[0].tolist() == [[11, 11]]
    second = network.exchange_state(first)
    assert network.run([one])[0].tolist() == [[12, 12]]
    network.exchange_state(second)
    assert network.run([one])[0].tolist() == [[12, 12]]
    assert copy.copy(network).run([one])[0].tolist() == [[11, 11]]


def cache() -> Network:
    """Return a network with a cache of four rows: it drops the oldest row, appends the input, and returns the cache."""
    network = Network("cache")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    rows = network.add_state("rows", TensorInfo((4, 2)), np.zeros((4, 2), np.float32))
    newest = network.add_strided_slice_layer(rows, begin=(1, 0), end=(4, 2), stride=(1, 1), name="newest")
    result = network.add_concat_layer(newest, x, axis=0, name="append")
    network.set_state("rows", result)
    network.add_output_layer(0, result, name="y")
    return network


class Expected:
    """What a sequence of the network `cache` has after its requests."""

    def __init__(self) -> None:
        self.rows = np.zeros((4, 2), np.float32)

    def after(self, value: float) -> list[list[float]]:
        self.rows = np.concatenate([self.rows[1:], np.full((1, 2), value, np.float32)])
        return self.rows.tolist()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    models = {"counter": ip.load(counter(), ["CpuRef"]), "cache": ip.load(cache(), ["CpuRef"])}
    with running(serving(models), grpc=find_spec("grpc") is not None) as running_server:
        yield running_server


def send(server: Running, number: Any, rows: Any = ((1, 2),), model: str = "counter", **flags: Any) -> Any:
    """Send a request of a sequence, and return its answer."""
    parameters = {"sequence_id": number, **{f"sequence_{name}": flag for name, flag in flags.items()}}
    body = infer_body(rows=rows, parameters=parameters)
    return server.client.post(f"/v2/models/{model}/infer", body)


def data(answer: Any) -> Any:
    return answer.json["outputs"][0]["data"]


def test_a_client_sends_sequences_over_http(server):
    for number in (5, "five"):
        assert data(send(server, number, start=True)) == [11, 12]
        assert data(send(server, number)) == [12, 14]
        assert data(send(server, number, end=True)) == [13, 16]
        assert send(server, number).status == 400


def test_a_number_and_its_text_are_two_sequences(server):
    assert data(send(server, 6, start=True)) == [11, 12]
    assert send(server, "6").status == 400
    assert data(send(server, 6, end=True)) == [12, 14]


def test_a_sequence_of_one_request_leaves_nothing(server):
    assert data(send(server, 7, start=True, end=True)) == [11, 12]
    assert send(server, 7).status == 400


def test_a_sequence_that_starts_again_has_initial_values(server):
    send(server, 8, start=True)
    send(server, 8)
    assert data(send(server, 8, start=True)) == [11, 12]
    assert data(send(server, 8, end=True)) == [12, 14]


@pytest.mark.parametrize(
    ("number", "flags", "text"),
    [
        (99, {"end": True}, "sequence 99 has not begun, or had no request for 60 seconds; its first request needs "
         "sequence_start"),
        (0, {"start": True}, "the model has states, so the parameter sequence_id must be a whole number of 64 bits "
         "other than 0, or a text of at most 128 characters"),
        (1, {"start": 1}, "the parameter sequence_start is neither true nor false"),
        (1, {"start": True, "end": "yes"}, "the parameter sequence_end is neither true nor false"),
    ],
)  # fmt: skip
def test_a_wrong_sequence_is_refused_with_a_sentence(server, number, flags, text):
    answer = send(server, number, **flags)
    assert (answer.status, answer.json) == (400, {"error": text})


def test_a_request_that_is_refused_does_not_change_its_sequence(server):
    send(server, 10, start=True)
    assert send(server, 10, rows=[[1, 2, 3]]).status == 400
    assert send(server, 10, rows=[[1, 2, 3]], start=True).status == 400
    assert send(server, 10, rows=[[1, 2, 3]], end=True).status == 400
    assert data(send(server, 10, end=True)) == [12, 14]


def test_caches_of_interleaved_sequences_are_right(server):
    draw = np.random.default_rng(5)
    sequences: dict[int, Expected] = {}
    for _ in range(150):
        number, value = int(draw.integers(1, 6)), float(draw.integers(100))
        start = number not in sequences
        end = not start and bool(draw.integers(10) == 0)
        expected = sequences.setdefault(number, Expected())
        answer = send(server, number, [[value] * 2], "cache", start=start, end=end)
        assert np.reshape(data(answer), (4, 2)).tolist() == expected.after(value)
        if end:
            del sequences[number]


def test_caches_of_concurrent_clients_are_right(server):
    failures: list[Any] = []

    def client(number: int) -> None:
        expected = Expected()
        for step in range(12):
            answer = send(server, f"client {number}", [[step + number] * 2], "cache", start=step == 0, end=step == 11)
            if np.reshape(data(answer), (4, 2)).tolist() != expected.after(step + number):
                failures.append((number, step, answer.json))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritonclient_sends_sequences(server, kind):
    lib = pytest.importorskip(f"tritonclient.{kind}", reason=f"tritonclient has no {kind}")
    x = lib.InferInput("x", [1, 2], "FP32")
    x.set_data_from_numpy(np.ones((1, 2), np.float32))
    address = server.grpc if kind == "grpc" else f"127.0.0.1:{server.client.port}"
    with lib.InferenceServerClient(address) as client:
        for step in range(3):
            for number in (21, "twenty-two"):
                flags = {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step == 2}
                assert client.infer("counter", [x], **flags).as_numpy("y").tolist() == [[11 + step] * 2]


def test_tritonclient_streams_sequences(server):
    lib = pytest.importorskip("tritonclient.grpc", reason="tritonclient has no grpc")
    x = lib.InferInput("x", [1, 2], "FP32")
    x.set_data_from_numpy(np.ones((1, 2), np.float32))
    answers: list[Any] = []
    with lib.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.append(error or result.as_numpy("y")[0, 0]))
        for step in range(4):
            for number in (31, 32):
                flags = {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step == 2}
                client.async_stream_infer("counter", [x], **flags)
        client.stop_stream()
    assert answers[:6] == [11, 11, 12, 12, 13, 13]
    assert all("has not begun" in str(error) for error in answers[6:])


def test_an_idle_sequence_is_dropped(server, clock):
    with running(lambda: app_repository(idle=0.3)) as short_lived:
        send(short_lived, 1, start=True)
        assert data(send(short_lived, 1)) == [12, 14]
        while "error" not in send(short_lived, 1).json:  # until the loop has looked for idle sequences
            clock.now += 1
            time.sleep(0.05)
        assert "has not begun, or had no request for 0.3 seconds" in send(short_lived, 1).json["error"]


def app_repository(idle: float) -> Repository:
    return Repository(served=[served_model("counter", "1", model(counter()), sequences=(idle, 256))])


def test_an_application_has_the_limits_of_its_options():
    for package in ("starlette", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    httpx = pytest.importorskip("httpx", reason="the package httpx is not installed")
    application = app({"counter": model(counter())}, ServeOptions(max_sequences=1))

    async def main() -> list[int]:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            parameters = {"sequence_start": True}
            bodies = [infer_body(rows=[[1, 2]], parameters=parameters | {"sequence_id": number}) for number in (1, 2)]
            return [(await client.post("/v2/models/counter/infer", json=body)).status_code for body in bodies]

    assert asyncio.run(main()) == [200, 503]


class TestFolders:
    """Networks with states in a folder: with batches, loaded again, and with several workers."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for package in ("starlette", "uvicorn", "prometheus_client"):
            pytest.importorskip(package, reason=f"the package {package} is not installed")
        with ip.load(counter(), ["CpuRef"]) as stateful:
            stateful.save(tmp_path / "counter.ipn")
        (tmp_path / "counter.toml").write_text("batch = 4\n")
        return tmp_path

    def repository(self, folder: Path) -> Any:
        return lambda: Repository(lambda: list(found_in(str(folder), ModelSettings())), Loader())

    def test_the_model_runs_in_batches(self, folder):
        with running(self.repository(folder)) as server:
            for step in range(3):
                for number in (1, 2):
                    answer = send(server, number, start=step == 0)
                    assert data(answer) == [11 + step, 12 + 2 * step]
            assert "4 rows" in server.core.repository.find("counter").runner.describe()

    def test_sequences_end_when_the_model_is_loaded_again(self, folder):
        with running(self.repository(folder), ServeOptions(control=True)) as server:
            send(server, 1, start=True)
            assert data(send(server, 1)) == [12, 14]
            assert server.client.post("/v2/repository/models/counter/load").status == 200
            assert "sequence 1 has not begun" in send(server, 1).json["error"]
            assert data(send(server, 1, start=True)) == [11, 12]
            assert server.client.post("/v2/repository/models/counter/unload").status == 200
            assert send(server, 1).status == 503

    def test_several_workers_are_refused(self, folder):
        command = ["serve", str(folder), "--workers", "2", "--port", "0", "--no-grpc"]
        done = subprocess.run(
            [*warm.python(), "-m", "interposer", *command], check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 2
        assert "model 'counter' has states, which several workers do not share; use --workers 1" in done.stderr
