"""Direct calls of a loaded network that is one compiled part of a plug-in, or that has no layers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from interposer.backend import Workload
from interposer.core.room import Room
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import binding_id
from interposer.ir.states import State, direct_sinks
from interposer.kernels.table import empty
from interposer.ops.control import Output
from interposer.profiling.recorder import Together, recorded_runs
from interposer.runtime.bindings import Bindings
from interposer.runtime.states import StateMemory
from interposer.runtime.steps import Steps, failure

if TYPE_CHECKING:
    from interposer.plugins.capi.running._direct import DirectCall
    from interposer.plugins.capi.running.direct import NetworkFacts

__all__ = [
    "CopyingCall",
    "DirectRun",
    "OnlyPart",
    "RepeatingCall",
    "StatefulCall",
    "copying_call",
    "direct_call",
    "only_part",
    "recorded",
    "repeating_call",
]

DirectRun: TypeAlias = Callable[[Any, Any], "list[Array] | None"]


class OnlyPart(NamedTuple):
    """The workload that runs a whole network as one compiled part of a plug-in, and facts about the network."""

    workload: Any
    facts: NetworkFacts


def direct_call(
    steps: Steps, bindings: Bindings, inputs: Sequence[int], runs: dict[int, Any], left: Callable[[], object]
) -> DirectCall | None:
    """Return a call that runs a network without the tensors of `steps`, or None if its runs need them.

    Args:
        steps: the steps of the network.
        bindings: the inputs and outputs of the network.
        inputs: the binding ids of the inputs in the order of the calls; the outputs are in the order of their ids.
        runs: gets an item for each run in progress, by thread.
        left: is called at the end of a run if the call was closed during it.
    """
    part = only_part(steps, bindings, inputs, runs, left)
    if part is None:
        return None
    from interposer.plugins.capi.running import direct  # noqa: PLC0415 - only where there are plug-ins

    return direct.direct_call(part.workload, part.facts)


def repeating_call(
    steps: Steps, bindings: Bindings, inputs: Sequence[int], runs: dict[int, Any], left: Callable[[], object]
) -> RepeatingCall | None:
    """Return a call that runs a network of which several outputs are the same tensor; None as for `direct_call`.

    The arguments are those of `direct_call`. None is returned for other networks, too.
    """
    value_of_output = {binding_id(sink): sink.values[0] for sink in direct_sinks(steps.program.graph)}
    values = [value_of_output[binding] for binding in sorted(bindings.outputs)]
    first_output = {value: binding for binding, value in reversed(sorted(value_of_output.items(), key=itemgetter(0)))}
    part = None
    if len(first_output) < len(values):
        part = only_part(steps, bindings, inputs, runs, left, sorted(first_output.values()))
    if part is None:
        return None
    from interposer.plugins.capi.running import direct  # noqa: PLC0415 - only where there are plug-ins

    call = direct.direct_call(part.workload, part.facts)
    distinct_values = list(dict.fromkeys(values))
    return None if call is None else RepeatingCall(call, [distinct_values.index(value) for value in values])


def copying_call(steps: Steps, bindings: Bindings, inputs: Sequence[int]) -> CopyingCall | None:
    """Return a call for a network without layers, whose outputs are inputs or constants; None for other networks.

    `inputs` are the binding ids of the inputs in the order of the calls. None is also returned if an input or an output
    is a text or a sequence.
    """
    outputs = sorted(bindings.outputs)
    bound = [bindings.inputs[binding] for binding in inputs] + [bindings.outputs[binding] for binding in outputs]
    dtypes = [tensor.dtype for tensor in bound]
    if steps.program.running or any(dtype is None or dtype.hasobject for dtype in dtypes):
        return None
    position_of_input = {layer.output: inputs.index(binding_id(layer)) for layer in steps.inputs}
    value_of_output = {binding_id(sink): sink.values[0] for sink in direct_sinks(steps.program.graph)}
    values = [value_of_output[binding] for binding in outputs]
    sources = [position_of_input.get(value, value.known.constant) for value in values]
    present_sources = [source for source in sources if source is not None]
    return CopyingCall(bindings, inputs, present_sources) if len(present_sources) == len(values) else None


def only_part(
    steps: Steps,
    bindings: Bindings,
    inputs: Sequence[int],
    runs: dict[int, Any],
    left: Callable[[], object],
    outputs: Sequence[int] | None = None,
) -> OnlyPart | None:
    """Return the only part of a network; None if the network has other layers, or its part is no plug-in's.

    The arguments are those of `direct_call`, and the binding ids of the outputs that a run gives, by default all of
    them in order. None is also returned if two of these outputs are the same tensor.
    """
    step = steps.only_step
    if step is None or not _runs_a_part(step.workload):
        return None
    from interposer.plugins.capi.running import direct  # noqa: PLC0415 - only where there are plug-ins

    outputs = sorted(bindings.outputs) if outputs is None else outputs
    input_positions, output_positions = (
        {binding: position for position, binding in enumerate(ids)} for ids in (inputs, outputs)
    )
    position_of_input = {layer.output: input_positions[binding_id(layer)] for layer in steps.inputs}
    position_of_output = {
        layer.values[0]: output_positions[binding_id(layer)]
        for layer in direct_sinks(steps.program.graph)
        if binding_id(layer) in output_positions
    }
    if len(position_of_output) < len(outputs):
        return None
    workload: Any = step.workload
    operands = [step.layer.inputs[index] for index in workload.operands]
    facts = direct.NetworkFacts(
        inputs=[(bindings.inputs[binding].name, bindings.inputs[binding].info) for binding in inputs],
        outputs=[(bindings.outputs[binding].name, bindings.outputs[binding].info) for binding in outputs],
        operands=tuple(position_of_input[operand] for operand in operands if operand is not None),
        results=tuple(position_of_output[output] for output in step.layer.outputs),
        constants=bindings.constants.ranges,
        room=(steps.program.room or Room()).left,
        runs=runs,
        failed=partial(failure, step.layer, "failed"),
        left=left,
    )
    return OnlyPart(workload, facts)


def recorded(call: DirectRun, steps: Steps) -> DirectRun:
    """Return a function that makes the direct calls of `direct_call`, and records them."""
    sites = steps.program.sites
    sites_of_runs = partial(_sites_of_runs, steps)
    return recorded_runs(call, sites_of_runs, sites.network, sites.inferences)


def _sites_of_runs(steps: Steps) -> Together:
    sites = steps.program.sites
    return Together([sites.run, sites.execute, *steps.sites])


class RepeatingCall:
    """A direct call of a network of which several outputs are the same tensor: each gets an array of its own.

    `places` has, for each output of the network, the number of its tensor among the results of `call`.
    """

    def __init__(self, call: DirectCall, places: Sequence[int]) -> None:
        self._call = call
        self._places = [(place, place in places[:number]) for number, place in enumerate(places)]

    def run(self, inputs: Any, outputs: Any) -> list[Array] | None:
        """Run the network once; return None without running as `Runtime.direct_call` does, and for given outputs."""
        results = self._call.run(inputs, None) if outputs is None else None
        if results is None:
            return None
        return [results[place].copy() if is_repeated else results[place] for place, is_repeated in self._places]

    def close(self) -> None:
        """Prevent further calls; see the extension's `DirectCall`."""
        self._call.close()


class CopyingCall:
    """A direct call of a network without layers: each output is a copy of an input or of a constant.

    `inputs` are the binding ids of the inputs in the order of the calls. `sources` has, for each output of the network,
    the position of its input in this order, or its constant.
    """

    def __init__(self, bindings: Bindings, inputs: Sequence[int], sources: Sequence[int | Array]) -> None:
        self._sources: Sequence[int | Array] | None = sources  # None after `close`
        self._names = [bindings.inputs[binding].name for binding in inputs]
        self._expected = [(bindings.inputs[binding].shape, bindings.inputs[binding].dtype) for binding in inputs]

    def run(self, inputs: Any, outputs: Any) -> list[Array] | None:
        """Copy inputs and constants; return None without a copy as `Runtime.direct_call` does, or for given outputs."""
        inputs = _in_order(inputs, self._names)
        if outputs is not None or type(inputs) not in (list, tuple) or len(inputs) != len(self._names):
            return None
        for array, (shape, dtype) in zip(inputs, self._expected, strict=True):
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return None
        sources = self._sources
        if sources is None:
            return None
        return [(inputs[source] if isinstance(source, int) else source).copy() for source in sources]

    def close(self) -> None:
        """Prevent further calls, and release the constants."""
        self._sources = None


class StatefulCall:
    """A direct call of a network with states: it passes their arrays with those of the caller.

    `call` takes the inputs in the order of `inputs`, which are binding ids, and the outputs in the order of their ids.
    States have negative ids.
    """

    def __init__(self, call: DirectCall, bindings: Bindings, inputs: Sequence[int], states: Sequence[State]) -> None:
        self._call, self._states = call, states
        self._names = [bindings.inputs[binding].name for binding in inputs if binding >= 0]
        self._state_inputs = [binding for binding in inputs if binding < 0]
        self._state_outputs = sorted(binding for binding in bindings.outputs if binding < 0)
        self._output_names = [bindings.outputs[binding].name for binding in sorted(bindings.outputs) if binding >= 0]
        self._copies = _copies(states, bindings)
        self._infos = [bindings.outputs[binding].info for binding in sorted(bindings.outputs) if binding >= 0]

    def run(self, memory: StateMemory, inputs: Any, outputs: Any) -> list[Array] | None:
        """Run the network once with the states in `memory`; return None without running as `Runtime.direct_call` does.

        Outputs are arrays, in a list or by name, or None for new ones.
        """
        names = self._names
        inputs, outputs = _in_order(inputs, names), _in_order(outputs, self._output_names)
        if type(inputs) not in (list, tuple) or len(inputs) != len(names) or not _are_arrays(outputs, self._infos):
            return None
        with memory.turn(self._states) as turn:
            state_arrays, targets = turn
            output_arrays = [empty(info) for info in self._infos] if outputs is None else outputs
            all_outputs = self._call.run(
                [*inputs, *[state_arrays[state_id] for state_id in self._state_inputs]],
                [*[targets[state_id] for state_id in self._state_outputs], *output_arrays],
            )
            if all_outputs is None:
                targets.update(state_arrays)
                return None
            caller_outputs = all_outputs[len(self._state_outputs) :]
            for state_id, position in self._copies:
                np.copyto(targets[state_id], caller_outputs[position])
            return caller_outputs


def _copies(states: Sequence[State], bindings: Bindings) -> list[tuple[int, int]]:
    """Return the states whose next value is an output to the caller as well: binding ids and numbers of the outputs."""
    outputs = sorted(binding for binding in bindings.outputs if binding >= 0)
    copies = []
    for state in states:
        state_id = binding_id(state.source)
        if state.target is not None and state_id not in bindings.outputs:
            sinks = (use.layer for use in state.target.values[0].uses if isinstance(use.layer.op, Output))
            copies.append(
                (state_id, next(outputs.index(binding_id(sink)) for sink in sinks if binding_id(sink) in outputs))
            )
    return copies


def _in_order(by_name: Any, names: Sequence[str]) -> Any:
    """Return the values of a dict that has exactly these names, in their order; return anything else unchanged."""
    if type(by_name) is not dict or len(by_name) != len(names) or not all(name in by_name for name in names):
        return by_name
    return [by_name[name] for name in names]


def _are_arrays(outputs: Any, infos: Sequence[TensorInfo]) -> bool:
    if outputs is None:
        return True
    return (
        type(outputs) is list and len(outputs) == len(infos) and all(type(output) is np.ndarray for output in outputs)
    )


def _runs_a_part(workload: Workload) -> bool:
    """Return True if the workload runs a compiled part of a plug-in, so that a direct call may run it.

    False if its method `execute` is overridden, such as by a wrapper.
    """
    # only imported where there are plug-ins
    plugin_workloads = sys.modules.get("interposer.plugins.capi.running.workload")
    execute = getattr(workload.execute, "__func__", None)  # an instance may override it
    return plugin_workloads is not None and execute is plugin_workloads.DynamicWorkload.execute
