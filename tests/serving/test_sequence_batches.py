"""Steps of several sequences as rows of one batch: states of networks, and states that are inputs and outputs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.core.errors import ConfigError
from interposer.serving import ServeOptions, sequences
from interposer.serving.batching import Batcher
from interposer.serving.folder import ModelSettings, ModelSource, found_in
from interposer.serving.loading import Loader
from interposer.serving.protocol.errors import ServingError
from interposer.serving.repository import Repository
from interposer.serving.runs import Plain
from interposer.serving.sequence_batches import SequenceSettings, StateRows, StateTensor, with_states_as_inputs
from interposer.serving.served import ServedModel
from interposer.serving.statistics import Timing
from interposer.serving.triton_config import read_config
from interposer.writers import tflite
from tests.serving.running import infer_body, model, running
from tests.serving.test_sequences import Clock, counter

pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
pytestmark = pytest.mark.needs_cpuref


def adder() -> Network:
    """Return a network y = next = past + x, with inputs that say which request of which sequence this is."""
    network = Network("adder")
    rows = (1, 2)
    x = network.add_input_layer(0, TensorInfo(rows), name="x")
    past = network.add_input_layer(1, TensorInfo(rows), name="past")
    first = network.add_input_layer(2, TensorInfo((1, 1), "int32"), name="first")
    number = network.add_input_layer(3, TensorInfo((1, 1), "int32"), name="number")
    total = network.add_addition_layer(past, x, name="sum")
    network.add_output_layer(0, total, name="y")
    network.add_output_layer(
        1, network.add_addition_layer(total, network.add_constant_layer(np.float32(0))), name="next"
    )
    network.add_output_layer(2, network.add_addition_layer(first, first), name="twice_first")
    network.add_output_layer(3, network.add_addition_layer(number, number), name="twice_number")
    return network


SETTINGS = """
backends = ["CpuRef"]
batch = 4

[sequences]
idle_seconds = 5
max_sequences = 6
states = { past = "next" }
controls = { first = "start", number = "id" }
"""


def ask(runner: Any, number: Any, value: float, names: tuple[str, ...] = ("y",), **flags: bool) -> Any:
    parameters = {"sequence_id": number, **{f"sequence_{name}": flag for name, flag in flags.items()}}
    timing = flags.pop("timing", None) or Timing()
    return runner.run({"x": np.full((1, 2), value, np.float32)}, list(names), 30, parameters, timing)


def loaded(folder: Path, name: str = "adder") -> ServedModel:
    (source,) = (source for source in found_in(str(folder)) if source.name == name)
    return Loader(2)(source)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tflite.save(adder(), tmp_path / "adder.tflite")
    (tmp_path / "adder.toml").write_text(SETTINGS)
    return tmp_path


@pytest.fixture
def counters(tmp_path: Path) -> ServedModel:
    """A network with a state whose requests run in batches."""
    with model(counter()) as stateful:
        stateful.save(tmp_path / "counter.ipn")
    settings = ModelSettings(backends=("CpuRef",), batch=4)
    return Loader(2)(ModelSource("counter", "1", str(tmp_path / "counter.ipn"), settings))


def test_states_of_a_network_become_inputs_and_outputs_with_their_initial_values():
    network, states = with_states_as_inputs(counter())
    (state,) = states.values()
    single = model(network)
    assert list(single.inputs) == ["x", "total"] and single.state == {} and counter().states
    y, total = single.run({"x": np.ones((1, 2), np.float32), "total": state.initial})
    assert list(single.outputs) == ["y", state.output] and y.tolist() == total.tolist() == [[11, 11]]


def test_a_state_that_is_never_set_keeps_its_value():
    network = Network("constant")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    state = network.add_state("offset", TensorInfo((1, 2)), np.full((1, 2), 3, np.float32))
    network.add_output_layer(0, network.add_addition_layer(x, state), name="y")
    lifted, states = with_states_as_inputs(network)
    single = model(lifted)
    assert single.run({"x": np.ones((1, 2), np.float32), "offset": states["offset"].initial})[1].tolist() == [[3, 3]]


def test_steps_of_several_sequences_run_as_rows_of_one_batch(counters):
    assert isinstance(counters.runner, StateRows) and isinstance(counters.runner.inner, Batcher)
    timings = [Timing() for _ in range(4)]

    async def one(number: int) -> list[float]:
        values = []
        for step in range(6):
            parameters = {"sequence_id": number + 1, "sequence_start": step == 0, "sequence_end": step == 5}
            x = {"x": np.full((1, 2), number, np.float32)}
            (y,) = await counters.runner.run(x, ["y"], 30, parameters, timings[number])
            values.append(y[0, 1])
        return values

    async def main() -> list[list[float]]:
        return await asyncio.gather(*map(one, range(4)))

    assert asyncio.run(main()) == [[10 + number * step for step in range(1, 7)] for number in range(4)]
    assert max(timing.batch for timing in timings) > 1


def test_clients_do_not_see_the_states(counters):
    assert list(counters.inputs) == ["x"] and list(counters.outputs) == ["y"]
    assert counters.names == ["y"] and "4 rows" in counters.runner.describe()


def test_a_network_whose_states_have_no_rows_runs_one_by_one_and_a_warning_says_why(tmp_path, caplog):
    network = Network("mean")
    x = network.add_input_layer(0, TensorInfo((1, 2)), name="x")
    total = network.add_state("total", TensorInfo((2,)))
    result = network.add_addition_layer(x, total)
    network.set_state("total", network.add_reshape_layer(result, target_shape=(2,)))
    network.add_output_layer(0, result, name="y")
    with model(network) as stateful:
        stateful.save(tmp_path / "mean.ipn")
    with caplog.at_level(logging.WARNING):
        source = ModelSource("mean", "1", str(tmp_path / "mean.ipn"), ModelSettings(backends=("CpuRef",), batch=4))
        served = Loader(2)(source)
    assert "model 'mean' runs without batches of 4: the first size of input 'total' is 2" in caplog.text
    values = [asyncio.run(ask(served.runner, 1, 1, start=step == 0))[0][0, 0] for step in range(3)]
    assert values == [1, 2, 3]


def test_inputs_and_outputs_are_states_and_controls_if_the_settings_say_so(folder):
    served = loaded(folder)
    assert list(served.inputs) == ["x"] and served.names == ["y", "twice_first", "twice_number"]
    names = tuple(served.names)

    async def main() -> list[Any]:
        results = [
            await ask(served.runner, number, number, names, start=step == 0) for step in (0, 1) for number in (3, 4)
        ]
        return [[array.flat[0] for array in arrays] for arrays in results]

    assert asyncio.run(main()) == [[3, 2, 6], [4, 2, 8], [6, 0, 6], [8, 0, 8]]


def test_too_many_sequences_are_refused_also_while_they_begin(folder):
    served = loaded(folder)

    async def main() -> list[Any]:
        return await asyncio.gather(
            *(ask(served.runner, number + 1, 1, start=True) for number in range(9)), return_exceptions=True
        )

    refusals = [result for result in asyncio.run(main()) if isinstance(result, ServingError)]
    assert len(refusals) == 3
    assert {(str(error), error.status.http) for error in refusals} == {("6 sequences of the model exist already", 503)}


def test_idle_sequences_are_dropped_after_the_seconds_of_the_settings(folder, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(sequences, "time", clock)
    served = loaded(folder)

    async def main() -> str:
        for number in range(6):
            await ask(served.runner, number + 1, 1, start=True)
        clock.now += 6
        await ask(served.runner, 7, 1, start=True)
        with pytest.raises(ServingError) as caught:
            await ask(served.runner, 1, 1)
        return str(caught.value)

    assert asyncio.run(main()).startswith("sequence 1 has not begun, or had no request for 5 seconds")


def test_a_sequence_id_that_the_model_cannot_have_is_refused(folder):
    with pytest.raises(ServingError, match=r"sequence_id is 'seven', which the input 'number' \(int32\) cannot have"):
        asyncio.run(ask(loaded(folder).runner, "seven", 1, start=True))
    with pytest.raises(ServingError, match="sequence_id is 4294967296, which the input 'number'"):
        asyncio.run(ask(loaded(folder).runner, 1 << 32, 1, start=True))


def test_states_of_open_size_begin_empty_and_grow():
    network = Network("history")
    x = network.add_input_layer(0, TensorInfo((1, 1)), name="x")
    past = network.add_input_layer(1, TensorInfo((1, None)), name="past")
    network.add_output_layer(0, network.add_concat_layer(past, x, axis=1), name="y")
    single = model(network)
    settings = SequenceSettings(states={"past": StateTensor("y")})

    async def main() -> Any:
        runner = StateRows(Plain(single), settings, single.inputs)
        for step in range(3):
            parameters = {"sequence_id": "s", "sequence_start": step == 0}
            (y,) = await runner.run({"x": np.full((1, 1), step, np.float32)}, ["y"], 30, parameters, Timing())
        return y.tolist()

    assert asyncio.run(main()) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('states = { pass = "next" }', "it has no input 'pass'; did you mean 'past'?"),
        ('states = { past = "nex" }', "it has no output 'nex'; did you mean 'next'?"),
        ('states = { past = "twice_first" }', "input 'past' is float32, but output 'twice_first' is int32"),
        ('controls = { fist = "start" }', "it has no input 'fist'; did you mean 'first'?"),
        (
            'controls = { first = "begin" }',
            "sequences.controls.first must be one of start, end, ready, id, not 'begin'",
        ),
        ("idle = 5", "sequences has the unknown key 'idle'"),
        ("idle_seconds = 0", "sequences.idle_seconds must be a number of seconds above 0, not 0"),
        ("max_sequences = true", "sequences.max_sequences must be a whole number"),
        ("states = { past = { shape = [1, 2] } }", "sequences.states.past needs the name of an output"),
    ],
)
def test_wrong_settings_are_errors_of_the_model(folder, table, problem):
    (folder / "adder.toml").write_text(f'backends = ["CpuRef"]\n[sequences]\n{table}\n')
    with pytest.raises(ConfigError) as caught:
        loaded(folder)
    assert problem in str(caught.value)


TRITON = """
name: "adder" max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 6 max_queue_delay_microseconds: 100 preferred_batch_size: [ 4 ] }
  control_input [
    { name: "first" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 5 ] } ] },
    { name: "number" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 } ] }
  ]
  state [ { input_name: "past" output_name: "next" data_type: TYPE_FP32 dims: [ 2 ]
            initial_state { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true name: "zeros" } } ]
}
"""


def test_sequence_batching_of_triton_is_read_and_served(folder):
    (folder / "adder.toml").unlink()
    (folder / "adder" / "1").mkdir(parents=True)
    (folder / "adder.tflite").rename(folder / "adder" / "1" / "model.tflite")
    (folder / "adder" / "config.pbtxt").write_text(TRITON)
    config = read_config(folder / "adder" / "config.pbtxt")
    assert config.ignored == ("sequence_batching.oldest.preferred_batch_size",)
    assert (config.sequences.idle, config.sequences.most, config.delay_seconds) == (5, 6, 100e-6)

    def repository() -> Repository:
        return Repository(lambda: found_in(str(folder), ModelSettings(backends=("CpuRef",))), Loader(2))

    for package in ("starlette", "uvicorn"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    with running(repository, ServeOptions()) as server:
        path = "/v2/models/adder"
        assert [tensor["name"] for tensor in server.client.get(path).json["inputs"]] == ["x"]
        assert server.client.get(f"{path}/config").json["sequence_batching"] == {
            "max_sequence_idle_microseconds": 5000000
        }
        parameters = {"sequence_id": 9, "sequence_start": True}
        answer = server.client.post(f"{path}/infer", infer_body(rows=[[1, 2]], parameters=parameters))
        assert [tensor["data"] for tensor in answer.json["outputs"]] == [[1, 2], [10], [18]]
        answer = server.client.post(f"{path}/infer", infer_body(rows=[[1, 2]], parameters={"sequence_id": 9}))
        assert answer.json["outputs"][0]["data"] == [2, 4]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sequence_batching { } dynamic_batching { }", "either dynamic_batching or sequence_batching"),
        ("sequence_batching { idle: 3 }", "there is no field 'sequence_batching.idle'"),
        ('sequence_batching { state { input_name: "a" } }', "needs input_name and output_name"),
        ("sequence_batching { control_input { name: \"a\" } }", "needs a name and one control"),
        ('sequence_batching { control_input { name: "a" control { kind: NEVER } } }', "has the unknown kind 'NEVER'"),
        ('sequence_batching { state { input_name: "a" output_name: "b" initial_state { data_file: "x" } } }',
         "data_file is not offered"),
    ],
)  # fmt: skip
def test_wrong_fields_of_triton_are_errors(tmp_path, text, problem):
    (tmp_path / "config.pbtxt").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_config(tmp_path / "config.pbtxt")


def test_a_step_that_fails_leaves_its_sequence_and_the_others_as_they_were(counters):
    async def main() -> list[Any]:
        runner = counters.runner
        await ask(runner, 1, 1, start=True)
        with pytest.raises(ip.errors.InterposerError):
            await runner.run({"x": np.ones((1, 3), np.float32)}, ["y"], 30, {"sequence_id": 1}, Timing())
        return [array.tolist() for array in await ask(runner, 1, 1, end=True)]

    assert asyncio.run(main()) == [[[12, 12]]]
