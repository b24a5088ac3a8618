"""Networks with states: each sequence has its own, and keeps them from request to request."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.serving.protocol.errors import ServingError
from interposer.serving.sequences import Sequences
from interposer.serving.statistics import Timing
from tests.serving.running import Running, infer_body, model, running, serving

pytestmark = pytest.mark.needs_cpuref


def counter() -> Network:
    """Return a network that adds its input to a state, and returns the sum."""
    network = Network("counter")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    total = network.add_state("total", TensorInfo((1, 2)), np.full((1, 2), 10, np.float32))
    result = network.add_addition_layer(total, x, name="add")
    network.set_state("total", result)
    network.add_output_layer(0, result, name="y")
    return network


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


def test_a_sequence_begins_and_ends():
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
        await asyncio.sleep(0.6)
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


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    with running(serving({"counter": ip.load(counter(), ["CpuRef"])})) as result:
        yield result


def test_a_client_sends_sequences_over_http(server):
    def send(number: Any, **flags: Any) -> Any:
        parameters = {"sequence_id": number, **flags}
        return server.client.post("/v2/models/counter/infer", infer_body(rows=[[1, 2]], parameters=parameters))

    for number in (5, "five"):
        assert send(number, sequence_start=True).json["outputs"][0]["data"] == [11, 12]
        assert send(number).json["outputs"][0]["data"] == [12, 14]
        assert send(number, sequence_end=True).json["outputs"][0]["data"] == [13, 16]
        assert send(number).status == 400
