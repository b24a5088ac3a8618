"""The strategies of sequences: direct binds a sequence to a row of the batches, oldest makes batches of any rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer import Model, Network, TensorInfo
from interposer.core.errors import ConfigError, DeadlineExceededError
from interposer.serving.batching import Batcher, SlotBatcher
from interposer.serving.folder import found_in
from interposer.serving.loading import Loader
from interposer.serving.protocol.errors import ServingError
from interposer.serving.runs import Plain
from interposer.serving.sequence_batches import SequenceSettings, SlotRows, StateRows, sequences_of_table
from interposer.serving.sequences import Sequences
from interposer.serving.served import ServedModel
from interposer.serving.statistics import Timing
from interposer.serving.triton_config import read_config
from interposer.serving.turns import InTurns
from interposer.writers import tflite
from tests.serving.running import model
from tests.serving.test_sequence_batches import adder
from tests.serving.test_sequences import counter

pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
pytestmark = pytest.mark.needs_cpuref

SETTINGS = """
backends = ["CpuRef"]
batch = 2

[sequences]
states = { past = "next" }
controls = { first = "start", number = "id" }
"""


def ask(runner: Any, number: Any, value: float = 1, *, timing: Timing | None = None, **flags: bool) -> Any:
    parameters = {"sequence_id": number, **{f"sequence_{name}": flag for name, flag in flags.items()}}
    x = {"x": np.full((1, 2), value, np.float32)}
    return runner.run(x, ["y"], flags.pop("seconds", 30), parameters, timing or Timing())


def loaded(folder: Path, more: str) -> ServedModel:
    tflite.save(adder(), folder / "adder.tflite")
    (folder / "adder.toml").write_text(SETTINGS + more)
    (source,) = found_in(str(folder))
    return Loader(2)(source)


@pytest.fixture
def direct(tmp_path: Path) -> ServedModel:
    return loaded(tmp_path, 'strategy = "direct"')


@pytest.fixture
def oldest(tmp_path: Path) -> ServedModel:
    return loaded(tmp_path, 'strategy = "oldest"\nmax_sequences = 3')


async def settled() -> None:
    """Let all tasks go on until they wait for something."""
    for _ in range(20):
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(("strategy", "places"), [("direct", 2), ("oldest", 3)])
def test_further_sequences_wait_in_their_order_until_one_ends(request, strategy, places):
    runner = request.getfixturevalue(strategy).runner

    async def main() -> None:
        for number in range(1, places + 1):
            await ask(runner, number, start=True)
        first, second = (asyncio.ensure_future(ask(runner, number, 5, start=True)) for number in (8, 9))
        follower = asyncio.ensure_future(ask(runner, 9, 5))
        await settled()
        assert not any(task.done() for task in (first, second, follower))
        await ask(runner, 1, end=True)
        assert (await first)[0].tolist() == [[5, 5]]
        await settled()
        assert not second.done()
        await ask(runner, 8, end=True)
        assert ((await second)[0].tolist(), (await follower)[0].tolist()) == ([[5, 5]], [[10, 10]])

    asyncio.run(main())


def test_a_sequence_that_is_idle_for_too_long_makes_place_for_one_that_waits(tmp_path):
    runner = loaded(tmp_path, 'strategy = "direct"\nidle_seconds = 0.2').runner

    async def main() -> str:
        for number in (1, 2):
            await ask(runner, number, start=True)
        assert (await ask(runner, 3, 7, start=True))[0].tolist() == [[7, 7]]
        with pytest.raises(ServingError) as caught:
            await ask(runner, 1)
        return str(caught.value)

    assert asyncio.run(main()).startswith("sequence 1 has not begun, or had no request for 0.2 seconds")


def test_a_sequence_waits_for_a_place_until_its_deadline_and_can_then_begin_again(direct):
    async def main() -> None:
        for number in (1, 2):
            await ask(direct.runner, number, start=True)
        with pytest.raises(DeadlineExceededError, match="the sequence waited longer than .* all 2 places are taken"):
            await direct.runner.run(
                {"x": np.ones((1, 2), np.float32)},
                ["y"],
                0.05,
                {"sequence_id": 3, "sequence_start": True},
                Timing(),
            )
        await ask(direct.runner, 2, end=True)
        assert (await ask(direct.runner, 3, 4, start=True))[0].tolist() == [[4, 4]]

    asyncio.run(main())


def test_a_client_that_leaves_while_its_sequence_waits_takes_no_place(direct):
    async def main() -> None:
        for number in (1, 2):
            await ask(direct.runner, number, start=True)
        leaving, waiting = (asyncio.ensure_future(ask(direct.runner, number, start=True)) for number in (3, 4))
        await settled()
        leaving.cancel()
        await ask(direct.runner, 1, end=True)
        assert (await waiting)[0].tolist() == [[1, 1]]

    asyncio.run(main())


def test_a_sequence_that_begins_again_keeps_its_place(direct):
    async def main() -> list[Any]:
        return [(await ask(direct.runner, number, 3, start=True))[0].tolist() for number in (1, 2, 1, 2, 1)]

    assert asyncio.run(main()) == [[[3, 3]]] * 5


def test_a_first_request_that_fails_gives_its_place_back(direct):
    async def main() -> None:
        for number in range(5):
            with pytest.raises(ServingError, match="sequence_id is 'name.', which the input 'number'"):
                await ask(direct.runner, f"name{number}", start=True)
        for number in (1, 2):
            await ask(direct.runner, number, start=True)

    asyncio.run(main())


def test_direct_runs_the_rows_up_to_that_of_the_sequence_and_oldest_only_those_with_requests(direct, oldest):
    async def batches(runner: Any) -> list[int]:
        for number in (1, 2):
            await ask(runner, number, start=True)
        timings = [Timing(), Timing()]
        for number, timing in zip((1, 2), timings, strict=True):
            await ask(runner, number, timing=timing)
        return [timing.batch for timing in timings]

    assert isinstance(direct.runner, SlotRows) and isinstance(direct.runner.inner, SlotBatcher)
    assert type(oldest.runner) is StateRows and type(oldest.runner.inner) is Batcher
    assert asyncio.run(batches(direct.runner)) == [1, 2]
    assert asyncio.run(batches(oldest.runner)) == [1, 1]


def test_direct_keeps_the_states_of_many_sequences_apart(direct):
    draw = np.random.default_rng(5)

    async def one(number: int) -> None:
        total = 0
        for step in range(6):
            value = int(draw.integers(100))
            total += value
            (y,) = await ask(direct.runner, number, value, start=step == 0, end=step == 5)
            assert y.tolist() == [[total, total]]

    async def main() -> None:
        await asyncio.gather(*map(one, range(1, 12)))

    asyncio.run(main())


def weighted(rows: int) -> Network:
    """Return a network whose rows are all the sum of `ready` over the rows, each with a power of two."""
    network = Network("weighted")
    x = network.add_input_layer(0, TensorInfo((rows, 1)), name="x")
    ready = network.add_input_layer(1, TensorInfo((rows, 1)), name="ready")
    weights = network.add_constant_layer(2.0 ** np.arange(rows, dtype=np.float32).reshape(rows, 1))
    weighted = network.add_multiplication_layer(ready, weights)
    total = network.add_reduce_layer(weighted, axis=(0,), keep_dims=True)
    network.add_output_layer(0, network.add_addition_layer(x, total), name="y")
    return network


@pytest.fixture
def slots() -> Iterator[SlotRows]:
    """Four slots of a model whose output says which rows are ready; a batch waits for half of them."""
    single: Model = model(weighted(1))
    variants = {size: model(weighted(size)) for size in (2, 4)}
    settings = SequenceSettings(controls=sequences_of_table({"controls": {"ready": "ready"}}).controls)
    batcher = SlotBatcher(single, variants, 60.0, InTurns(Plain(single)), utilization=0.5)
    runner = SlotRows([batcher], settings, single.inputs)
    yield runner
    runner.close()


def test_the_rows_of_a_batch_are_the_slots_of_the_sequences_and_only_those_with_requests_are_ready(slots):
    def step(number: int, **flags: bool) -> Any:
        parameters = {"sequence_id": number, **{f"sequence_{name}": flag for name, flag in flags.items()}}
        return slots.run({"x": np.zeros((1, 1), np.float32)}, ["y"], 30, parameters, Timing())

    async def main() -> list[list[float]]:
        await asyncio.gather(*(step(number, start=True) for number in (11, 12)))
        await asyncio.gather(*(step(number, start=True) for number in (13, 14)))
        pairs = [(11, 12), (11, 14), (12, 13), (13, 14)]
        results = [await asyncio.gather(*map(step, pair)) for pair in pairs]
        await asyncio.gather(step(12, end=True), step(14))
        results.append(await asyncio.gather(step(15, start=True), step(11)))  # in the slot of 12
        return [[array.item() for (array,) in pair] for pair in results]

    assert asyncio.run(main()) == [[3, 3], [9, 9], [6, 6], [12, 12], [3, 3]]


def test_a_batch_waits_for_the_part_of_the_slots_that_the_settings_say(slots):
    async def main() -> None:
        parameters = {"sequence_id": 1, "sequence_start": True}
        x = {"x": np.zeros((1, 1), np.float32)}
        alone = asyncio.ensure_future(slots.run(x, ["y"], 30, parameters, Timing()))
        await settled()
        assert not alone.done()
        await slots.run(x, ["y"], 30, parameters | {"sequence_id": 2}, Timing())
        await alone

    asyncio.run(main())


def test_a_sequence_of_the_strategy_direct_has_one_row(direct):
    with pytest.raises(ServingError, match="the request has 2 rows; a sequence has one row of each batch"):
        asyncio.run(
            direct.runner.run(
                {"x": np.ones((2, 2), np.float32)},
                ["y"],
                30,
                {"sequence_id": 1, "sequence_start": True},
                Timing(),
            )
        )


def loaded_counter(folder: Path, more: str) -> Any:
    with model(counter()) as stateful:
        stateful.save(folder / "counter.ipn")
    (folder / "counter.toml").write_text(f'backends = ["CpuRef"]\n{more}\n[sequences]\nstrategy = "direct"\n')
    (source,) = found_in(str(folder))
    return Loader(2)(source).runner


@pytest.mark.parametrize("more", ["priority = 1", "priority_levels = 3"])
def test_sequences_that_wait_for_a_place_let_the_others_run_if_there_are_priorities(tmp_path, more):
    runner = loaded_counter(tmp_path, more)

    async def main() -> None:
        await ask(runner, 1, start=True)
        waiting = [asyncio.ensure_future(ask(runner, number, start=True)) for number in (2, 3, 4)]
        await settled()
        await ask(runner, 1, end=True)
        assert (await waiting[0])[0].tolist() == [[11, 11]]
        for task in waiting:
            task.cancel()

    asyncio.run(main())


def test_without_batches_direct_has_a_place_for_each_instance_of_a_network_with_states(tmp_path):
    runner = loaded_counter(tmp_path, "instances = 2")
    assert isinstance(runner, Sequences)

    async def main() -> None:
        for number in (1, 2):
            await ask(runner, number, start=True)
        third = asyncio.ensure_future(ask(runner, 3, start=True))
        await settled()
        assert not third.done()
        await ask(runner, 2, end=True)
        assert (await third)[0].tolist() == [[11, 11]]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"strategy": "first"}, "sequences.strategy must be one of direct, oldest, not 'first'"),
        ({"utilization": 2}, "sequences.utilization must be a number from 0 to 1, not 2"),
        ({"utilization": True}, "sequences.utilization must be a number from 0 to 1, not True"),
    ],
)
def test_wrong_settings_of_strategies_are_errors(table, problem):
    with pytest.raises(ConfigError, match=problem):
        sequences_of_table(table)


def sequences_of(folder: Path, text: str) -> Any:
    (folder / "config.pbtxt").write_text(f"max_batch_size: 4 sequence_batching {{ {text} }}")
    return read_config(folder / "config.pbtxt")


def test_the_fields_of_triton_for_strategies_are_read(tmp_path):
    config = sequences_of(tmp_path, "direct { minimum_slot_utilization: 0.5 max_queue_delay_microseconds: 100 }")
    assert (config.sequences.strategy, config.sequences.utilization, config.ignored) == ("direct", 0.5, ())
    assert (config.sequences.idle, config.delay_seconds) == (1, 100e-6)
    assert sequences_of(tmp_path, "max_sequence_idle_microseconds: 2000000").sequences.strategy == "direct"
    config = sequences_of(tmp_path, "oldest { max_candidate_sequences: 7 }")
    assert (config.sequences.strategy, config.sequences.most) == ("oldest", 7)
    states = sequences_of(tmp_path, 'state { input_name: "a" output_name: "b" dims: [ 2, -1 ] }').sequences.states
    assert states["a"].shape == (1, 2, 1)
    with pytest.raises(
        ConfigError, match=r"sequence_batching\.direct\.minimum_slot_utilization is not a number from 0 to 1"
    ):
        sequences_of(tmp_path, "direct { minimum_slot_utilization: 1.5 }")
