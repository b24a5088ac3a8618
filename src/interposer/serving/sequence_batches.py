"""States as inputs and outputs of a model, so that steps of several sequences run as rows of one batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.errors import ConfigError, did_you_mean
from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.ir.network import Network
from interposer.ops.control import Input, Output
from interposer.serving.batching import SlotBatcher
from interposer.serving.cache import alone
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import Parameters
from interposer.serving.runs import Runner
from interposer.serving.sequences import Names, Places, SequenceRunner, Step
from interposer.serving.sequences import Sequence as OneSequence
from interposer.serving.statistics import Timing

__all__ = [
    "CONTROLS",
    "Control",
    "SequenceSettings",
    "SlotRows",
    "StateRows",
    "StateTensor",
    "sequences_of_table",
    "with_states_as_inputs",
]

CONTROLS: Final = ("start", "end", "ready", "id")
"""What an input of a model can say about a sequence."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A state of each sequence: an output of the model, which is an input of the next request of the sequence.

    Args:
        output: the name of the output.
        shape: the shape of the first value; None takes that of the input, with 0 for open sizes except the first one.
        initial: the first value, of one row; None is zeros.
    """

    output: str
    shape: tuple[int, ...] | None = None
    initial: Array | None = None


class Control(NamedTuple):
    """An input that says of a request whether it is the first or last one, or to which sequence it belongs."""

    kind: str
    """One of `CONTROLS`."""
    off: float = 0
    on: float = 1


@dataclass(frozen=True, slots=True)
class SequenceSettings:
    """How the requests of sequences are run.

    Args:
        idle: seconds without requests after which the states of a sequence are dropped; None for the server's default.
        most: the number of sequences that may exist at the same time; None for the server's default.
        states: the states by the names of the inputs that they are for.
        controls: the inputs that the server sets, by name.
        strategy: ``direct`` binds each sequence to a row of a batch, ``oldest`` makes batches of the oldest requests.
            With both, sequences wait if there are too many; None refuses them.
        utilization: the part of the rows, from 0 to 1, for whose requests a batch waits with the strategy ``direct``.
    """

    idle: float | None = None
    most: int | None = None
    states: Mapping[str, StateTensor] = field(default_factory=dict)
    controls: Mapping[str, Control] = field(default_factory=dict)
    strategy: str | None = None
    utilization: float = 0.0

    def places(self, slots: int, most: int) -> Places | None:
        """Return the places of sequences; None without a strategy.

        Args:
            slots: the requests that run at the same time.
            most: the number of sequences from which the strategy ``oldest`` chooses.
        """
        return None if self.strategy is None else Places(slots if self.strategy == "direct" else most)

    def check(self, name: str, inputs: Mapping[str, TensorInfo], outputs: Mapping[str, TensorInfo | None]) -> None:
        """Raise `ConfigError` if a model with the name `name` has not these inputs and outputs."""
        for key in (*self.states, *self.controls):
            if key not in inputs:
                raise ConfigError(f"sequences of model {name!r}: it has no input {key!r}{did_you_mean(key, inputs)}")
        for key, state in self.states.items():
            if state.output not in outputs:
                hint = did_you_mean(state.output, outputs)
                raise ConfigError(f"sequences of model {name!r}: it has no output {state.output!r}{hint}")
            info = outputs[state.output]
            if info is not None and info.dtype != inputs[key].dtype:
                raise ConfigError(
                    f"sequences of model {name!r}: input {key!r} is {inputs[key].dtype}, but output {state.output!r} "
                    f"is {info.dtype}"
                )

    @property
    def hidden_outputs(self) -> set[str]:
        """The outputs that are states, and not for clients."""
        return {state.output for state in self.states.values()}


def with_states_as_inputs(network: Network) -> tuple[Network, dict[str, StateTensor]]:
    """Return a copy of a network whose states are inputs and outputs, and these states by the names of the inputs."""
    graph = network.graph.clone()
    copy, states = Network(network.name, graph), {}
    used_ids = [layer.op.binding_id for layer in (*graph.sources, *graph.sinks)]  # type: ignore[attr-defined]
    for number, state in enumerate(Network(network.name, graph).states, max(used_ids, default=0) + 1):
        initial_array = state.initial
        state.source.op = Input(number)
        if state.target is None:  # it is never set, and keeps its value
            graph.add(Output(number), [state.source.output], name=f"{state.source.name}:next")
            output = f"{state.source.name}:next"
        else:
            state.target.op = Output(number)
            output = state.target.name
        states[state.source.name] = StateTensor(output, initial_array.shape, initial_array)
    return copy, states


class StateRows(SequenceRunner):
    """Runs requests of sequences with a model whose states are inputs and outputs. Used in the event loop only.

    Requests of different sequences run at the same time, or as rows of one batch, as `inner` does with any request. A
    request that fails leaves the states of its sequence as they were.

    Args:
        inner: runs the model with all of its inputs.
        settings: the states, and the inputs that the server sets.
        infos: the inputs of the model, states included.
        idle: seconds without requests after which the states of a sequence are dropped.
        most: the number of sequences that may exist at the same time.
        places: see `SequenceRunner`.
    """

    def __init__(
        self,
        inner: Runner,
        settings: SequenceSettings,
        infos: Mapping[str, TensorInfo],
        idle: float = 60.0,
        most: int = 256,
        places: Places | None = None,
    ) -> None:
        super().__init__(idle, most, places)
        self.inner, self._states, self._controls, self._infos = inner, settings.states, settings.controls, infos

    @property
    def concurrency(self) -> int:
        return self.inner.concurrency

    def accepts(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> bool:
        return self.inner.accepts(name, info, shape)

    def warm_up(self, inputs: Mapping[str, Array]) -> None:
        self.inner.warm_up(self._all_inputs(Step(1, True, False), {}, inputs))

    async def try_out(self, inputs: Mapping[str, Array], outputs: Names, seconds: float) -> None:
        await self.inner.try_out(self._all_inputs(Step(1, True, False), {}, inputs), outputs, seconds)

    def describe(self) -> str:
        description = f"{len(self._sequences)} sequences with states of their own"
        return ", ".join(filter(None, (description, self.inner.describe())))

    def close(self) -> None:
        super().close()
        self.inner.close()

    async def run_step(
        self,
        step: Step,
        sequence: OneSequence,
        inputs: Mapping[str, Array],
        outputs: Names,
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        all_inputs = self._all_inputs(step, sequence.states, inputs)
        names = [*outputs, *(state.output for state in self._states.values() if state.output not in outputs)]
        arrays = await self.run_row(sequence.place, all_inputs, names, seconds, parameters, timing)
        by_name = dict(zip(names, arrays, strict=True))
        sequence.states = {key: alone(by_name[state.output]) for key, state in self._states.items()}
        return arrays[: len(outputs)]

    async def run_row(
        self,
        place: int,
        inputs: Mapping[str, Array],
        outputs: Names,
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        """Run a request with all inputs of the model; `place` is that of its sequence. See `Runner.run`."""
        return await self.inner.run(inputs, outputs, seconds, parameters, timing)

    def _all_inputs(self, step: Step, states: Mapping[str, Array], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs of the model in its order: those of the request, of its sequence, and those about it."""
        rows = next((array.shape[0] for array in inputs.values() if array.ndim), 1)
        set_here = dict(self._set_here(step, states, rows))
        all_inputs = dict(inputs) | set_here
        return {name: all_inputs[name] for name in self._infos if name in all_inputs}

    def _set_here(self, step: Step, states: Mapping[str, Array], rows: int) -> Iterator[tuple[str, Array]]:
        for name, state in self._states.items():
            array = states.get(name)
            if array is None:
                array = _first_value(self._infos[name], state, rows)
            elif array.ndim and isinstance(list(self._infos[name].shape)[0], Dim) and array.shape[0] != rows:
                raise ServingError(
                    Status.INVALID, f"the request has {rows} rows; earlier ones of its sequence had {array.shape[0]}"
                )
            yield name, array
        for name, control in self._controls.items():
            shape = _shape(self._infos[name], rows, 1)
            yield name, _filled(name, self._infos[name].dtype, shape, _value_of(control, step))


class SlotRows(StateRows):
    """Runs requests of sequences with the strategy ``direct``: each sequence has a row in the batches of one batcher.

    Args:
        batchers: what runs batches, all of the same size.
        settings: as for `StateRows`.
        infos: as for `StateRows`.
        idle: as for `StateRows`.
    """

    def __init__(
        self,
        batchers: Sequence[SlotBatcher],
        settings: SequenceSettings,
        infos: Mapping[str, TensorInfo],
        idle: float = 60.0,
    ) -> None:
        self._batchers, self._slots = batchers, batchers[0].size
        super().__init__(batchers[0], settings, infos, idle, places=Places(len(batchers) * self._slots))
        own_names = {*settings.states, *settings.controls}
        inputs = {name: _zeros(info, _shape(info, 1, 1)) for name, info in infos.items() if name not in own_names}
        idle_row = self._all_inputs(Step(0, False, False, False), {}, inputs)
        for batcher in batchers:
            batcher.idle_row = idle_row

    @property
    def concurrency(self) -> int:
        return len(self._batchers) * self._slots

    async def run_row(
        self,
        place: int,
        inputs: Mapping[str, Array],
        outputs: Names,
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        num_rows = max((array.shape[0] for array in inputs.values()), default=1)
        if num_rows != 1:
            raise ServingError(
                Status.INVALID, f"the request has {num_rows} rows; a sequence has one row of each batch of the model"
            )
        batcher = self._batchers[place // self._slots]
        return await batcher.run_in(place % self._slots, inputs, outputs, seconds, timing)


def _zeros(info: TensorInfo, shape: tuple[int, ...]) -> Array:
    return np.full(shape, "", object) if info.dtype is DataType.STRING else np.zeros(shape, info.dtype.numpy)


def _shape(info: TensorInfo, rows: int, other_size: int) -> tuple[int, ...]:
    """Return a shape whose first open size is `rows`, and whose other open sizes are `other_size`."""
    sizes: list[Any] = list(info.shape) if info.is_ranked else [rows]
    open_sizes = [rows, *[other_size] * len(sizes)]
    return tuple(open_sizes[min(index, 1)] if isinstance(size, Dim) else int(size) for index, size in enumerate(sizes))


def _first_value(info: TensorInfo, state: StateTensor, rows: int) -> Array:
    if state.initial is not None:
        return state.initial if state.initial.ndim == 0 or rows == 1 else np.repeat(state.initial, rows, axis=0)
    shape = _shape(info, rows, 0) if state.shape is None else state.shape
    return _zeros(info, shape)


def _value_of(control: Control, step: Step) -> Any:
    """Return the value of an input about a request."""
    if control.kind == "id":
        return step.sequence_id
    is_on = {"start": step.start, "end": step.end, "ready": step.ready}[control.kind]
    return control.on if is_on else control.off


def _filled(name: str, dtype: DataType, shape: tuple[int, ...], value: Any) -> Array:
    """Return an array with one value; raise `ServingError` if the type of the input `name` cannot have this id."""
    if dtype is DataType.STRING:
        return np.full(shape, str(value), object)
    try:
        array = np.full(shape, value, dtype.numpy)
    except (OverflowError, ValueError, TypeError):
        array = None
    if array is None or (isinstance(value, int) and array.size and int(array.flat[0]) != value):
        raise ServingError(
            Status.INVALID, f"the parameter sequence_id is {value!r}, which the input {name!r} ({dtype}) cannot have"
        )
    return array


# --- settings ---------------------------------------------------------------------------------------------------------

_KEYS: Final = ("idle_seconds", "max_sequences", "states", "controls", "strategy", "utilization")
_STRATEGIES: Final = ("direct", "oldest")
_STATE_KEYS: Final = ("output", "shape")


def sequences_of_table(table: Any) -> SequenceSettings:
    """Return the settings of the table ``sequences`` in a file with settings.

    Raises:
        ConfigError: the table has an unknown key, or a value of another form.
    """
    _check_keys("sequences", table, _KEYS)
    idle_seconds, max_sequences = table.get("idle_seconds"), table.get("max_sequences")
    if idle_seconds is not None and not (type(idle_seconds) in (int, float) and 0 < idle_seconds <= 1e6):
        raise ConfigError(f"sequences.idle_seconds must be a number of seconds above 0, not {idle_seconds!r}")
    if max_sequences is not None and not (type(max_sequences) is int and 1 <= max_sequences <= 1_000_000):
        raise ConfigError(f"sequences.max_sequences must be a whole number from 1 to 1000000, not {max_sequences!r}")
    strategy, utilization = table.get("strategy"), table.get("utilization", 0)
    if strategy is not None and strategy not in _STRATEGIES:
        raise ConfigError(f"sequences.strategy must be one of {', '.join(_STRATEGIES)}, not {strategy!r}")
    if not (type(utilization) in (int, float) and 0 <= utilization <= 1):
        raise ConfigError(f"sequences.utilization must be a number from 0 to 1, not {utilization!r}")
    states, controls = (_table(f"sequences.{key}", table.get(key, {})) for key in ("states", "controls"))
    return SequenceSettings(
        None if idle_seconds is None else float(idle_seconds),
        max_sequences,
        {name: _state(f"sequences.states.{name}", state) for name, state in states.items()},
        {name: _control(f"sequences.controls.{name}", kind) for name, kind in controls.items()},
        strategy,
        float(utilization),
    )


def _check_keys(title: str, table: Any, keys: Sequence[str]) -> None:
    for key in _table(title, table):
        if key not in keys:
            raise ConfigError(f"{title} has the unknown key {key!r}{did_you_mean(key, keys)}")


def _table(title: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{title} must be a table, not {table!r}")
    return table


def _state(title: str, value: Any) -> StateTensor:
    if isinstance(value, str):
        return StateTensor(value)
    _check_keys(title, value, _STATE_KEYS)
    output, shape = value.get("output"), value.get("shape")
    if not isinstance(output, str):
        raise ConfigError(f"{title} needs the name of an output")
    is_shape = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if shape is not None and not is_shape:
        raise ConfigError(f"{title}.shape must be a list of sizes, not {shape!r}")
    return StateTensor(output, None if shape is None else tuple(shape))


def _control(title: str, kind: Any) -> Control:
    if kind not in CONTROLS:
        raise ConfigError(f"{title} must be one of {', '.join(CONTROLS)}, not {kind!r}")
    return Control(kind)
