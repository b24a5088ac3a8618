"""`Model`: a network that is optimized, loaded into a runtime and ready to be called."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from interposer.backend import BackendEvent, MemorySource
from interposer.core.errors import (
    BindingError,
    ExecutionError,
    InterposerError,
    InvalidArgumentError,
    InvalidValueError,
    LoadError,
    UnknownNetworkError,
    expect,
)
from interposer.core.lazy_names import lazy_type
from interposer.core.types import Array, TensorInfo
from interposer.frontends.template import Metadata, Template
from interposer.ir.network import Network
from interposer.ir.states import State, states_of
from interposer.optimizer import OptimizerOptions
from interposer.optimizer.declared_shapes import with_expanded_dims
from interposer.optimizer.optimizer_options import check_seconds
from interposer.profiling.marks import active_marks, is_unmarked, marked
from interposer.profiling.profiler import Profiler
from interposer.profiling.recorder import active
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import MemoryReport, OnlyPart, PendingRun, RunControl, Runtime, StateMemory, TransferReport
from interposer.session.arguments import named_inputs
from interposer.session.bound import BoundRun
from interposer.session.execution import Execution
from interposer.session.fallback import Choice
from interposer.session.imports import ImportedTensors
from interposer.session.limits import Limits
from interposer.session.loaded import LoadedVariants
from interposer.session.pickled import Origin, reduced
from interposer.session.placement.plan import Plan
from interposer.session.relatives import Relatives
from interposer.session.requested import requested_names
from interposer.session.saved import SavedBlueprint
from interposer.session.saving import Saver
from interposer.session.shapes import Shapes
from interposer.session.signatures import SignatureInfo
from interposer.session.variants import Blueprint, KnownBlueprint

if TYPE_CHECKING:
    from interposer.profiling.profiles import Profile
    from interposer.report.explanation import Explanation
    from interposer.report.times import Times
else:  # most runs are neither profiled nor explained
    Profile = lazy_type("interposer.profiling.profiles", "Profile")
    Explanation = lazy_type("interposer.report.explanation", "Explanation")
    Times = lazy_type("interposer.report.times", "Times")

__all__ = ["Model"]

Inputs: TypeAlias = Sequence[Any] | Mapping[str, Any] | ImportedTensors
Outputs: TypeAlias = str | Sequence[Any] | Mapping[str, Any] | ImportedTensors
_Controls: TypeAlias = Callable[[], RunControl | None]
_RUN_ARGUMENTS: Final = ("inputs", "outputs", "deadline", "signature", "profile")
"""The arguments of `Model.run`, which inputs given by keyword cannot have as names."""


class Model:
    """A loaded network that can be called with arrays.

    If input shapes are open, or layers depend on the values of inputs (such as the axes of a reduction), the network
    is optimized for each new set of shapes and values. The model caches the last eight of these variants. Several
    threads may call a model at the same time. `close`, or the end of a ``with`` block, unloads the network. If a model
    is garbage-collected without `close`, its runtime unloads the network when the next network is loaded.

    If a backend fails while it prepares or runs its part of the network, the model stops using this backend. The
    network is then divided among the other backends, and the call completes on them. `events` records this. With
    ``fallback=True`` the model also stops using a backend that exceeds a deadline; with ``fallback=False`` every
    failure is raised.

    The states of a network (see `Network.add_state`) last from call to call, whatever the shapes of the inputs and
    the requested outputs are. Calls of a model with states take turns. A call that fails, and measurements, leave the
    states as they were. `state` gives and sets their values; `reset_state` restores the initial values, with which a
    copied or unpickled model also starts.

    `inputs` and `outputs` map names to tensor infos. The info of an output is None if the file does not declare it.
    `signatures` has the other networks of a TFLite file, which `run` calls by their keys, with the names of each
    signature. All of them share the states of the model.

    A model can be pickled with its options, backends, shapes, limits, fallback and plan. If `load` read it from a path,
    the pickle holds the path and the SHA-256 digest of the file. Loading the pickle fails if the file has changed;
    files with external weights are not part of the digest. Otherwise the pickle holds the content. The process that
    loads the pickle uses its own default runtime; a model on any other runtime cannot be pickled. `copy.copy` and
    `copy.deepcopy` create another model on the same runtime, which must be closed separately.

    Example:
        >>> import interposer as ip
        >>> text = b'''graph "twice" {
        ...   %x = Input : float32[n]
        ...   %sum = Addition %x, %x
        ...   Output %sum as "y"
        ... }'''
        >>> with ip.load(text, backends=["CpuRef"]) as model:
        ...     print(model.inputs, model([1.0, 2.0]), model.explain().to_dict()["counts"])
        {'x': TensorInfo((n,), DataType.FLOAT32)} [2. 4.] {'CpuRef': 1}
    """

    needs_origin: bool = False
    """True if a pickle of the model needs the source that it was loaded from, as its network is not enough."""

    def __init__(
        self,
        network: Network | Template | KnownBlueprint | SavedBlueprint,
        runtime: Runtime,
        backends: Iterable[str] | None = None,
        options: OptimizerOptions | None = None,
        limits: Limits | None = None,
        fallback: bool | None = None,
        plan: Plan | None = None,
    ) -> None:
        limits = Limits() if limits is None else limits
        expect(network, Network | Template | KnownBlueprint | SavedBlueprint, "a model is made of a Network")
        expect(runtime, Runtime, "the runtime must be a Runtime")
        expect(limits, Limits, "the limits must be Limits(...)")
        expect(fallback, bool | None, "fallback must be True, False or None")
        expect(plan, Plan | None, "the plan must be a Plan, such as Plan.load(path)")
        if isinstance(network, Network) and isinstance(options, OptimizerOptions) and options.allow_expanded_dims:
            network = with_expanded_dims(network)
        self._set_up(network, Choice(runtime, backends, options, fallback, plan), limits, StateMemory())
        if not self.is_prepared:
            self._choice.check()

    def _set_up(
        self, network: Network | Template | Blueprint, choice: Choice, limits: Limits, states: StateMemory
    ) -> None:
        self._states = states
        self.runtime, self._choice, self._limits = choice.runtime, choice, limits
        self._origin: Origin | None = None
        blueprint = network if isinstance(network, Blueprint) else Blueprint(network)
        self.name = blueprint.name
        self.inputs: dict[str, TensorInfo] = blueprint.inputs
        self.outputs: dict[str, TensorInfo | None] = blueprint.outputs
        self._loaded = LoadedVariants(blueprint, choice, limits, states)
        self._relatives = Relatives(partial(_relative, choice, limits, states), self._loaded)
        self._execution = Execution(self._loaded)
        self._loaded.prepare()

    @property
    def _blueprint(self) -> Blueprint:
        return self._loaded.blueprint

    @property
    def network(self) -> Network:
        """The network as it was read, before it is specialised for the shapes of a call.

        Raises:
            InvalidArgumentError: the layers of the network depend on the values of inputs.
        """
        if self._blueprint.network is None:
            raise InvalidArgumentError(f"the network depends on {self._blueprint.lacking}; see optimized")
        return self._blueprint.network

    @property
    def needed_values(self) -> tuple[str, ...]:
        """The names of inputs whose values decide which layers the network has. A call may add names to this tuple."""
        return self._blueprint.needed

    @property
    def values(self) -> dict[str, TensorInfo]:
        """The values that can be requested as `outputs` of `run`, by name, in execution order with the outputs last.

        These are the inputs, the constants, the results of all layers and the outputs of the network as it was read,
        before backends fuse layers. A value has the names that its model file gives the tensor. If there is no file,
        it has the name of its layer, or ``layer:0``, ``layer:1`` and so on if the layer has several results. Values
        inside regions (loops, branches) are not included.

        Raises:
            InvalidArgumentError: the layers depend on values of inputs, and the model has not been called yet.
        """
        with self._loaded.lock:
            return self._blueprint.values()

    @property
    def signatures(self) -> dict[str, SignatureInfo]:
        """The signatures of the model file by key: named ways to call it, each with inputs and outputs of its own.

        Empty if the file has none, or has another format than TFLite.
        """
        with self._loaded.lock:
            templates = self._blueprint.templates.items()
        return {key: SignatureInfo.of(template()) for key, template in templates}

    @property
    def metadata(self) -> Metadata:
        """The description, the entries and the files, such as lists of labels, that a TFLite file contains.

        Raises:
            ParseError: the archive at the end of the file is damaged.
        """
        with self._loaded.lock:
            read_metadata = self._blueprint.metadata
        return Metadata() if read_metadata is None else read_metadata()

    @property
    def optimized(self) -> OptimizedNetwork:
        """The optimized network of the last call, or that for all calls if the shapes of all inputs are known.

        Raises:
            InvalidArgumentError: shapes or values of inputs are not known, and the model has not been called yet.
        """
        return self._loaded.latest.optimized

    @property
    def is_prepared(self) -> bool:
        """True if a network was loaded for some input shapes, so that `optimized` and `explain` can describe it.

        It stays True until the model is closed.
        """
        return self._loaded.current is not None and not self._loaded.is_closed

    @property
    def events(self) -> tuple[BackendEvent, ...]:
        """The last thousand events of backends that this model stopped using, or uses again, with reasons.

        See also `Runtime.events`.
        """
        return tuple([*self._choice.events, *(event for relative in self._relatives for event in relative.events)])

    @property
    def plan(self) -> Plan | None:
        """The measured or given placement that the model follows, or None if the placement is not (yet) measured."""
        return self._choice.used_plan

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the values that the network's states have between calls, by name; empty if it has no states.

        Assign a mapping of arrays by name to set some of them, such as the result of an earlier `state`. The call waits
        for a run in progress.

        Raises:
            BindingError: (on assignment) the network has no such state, or a value has another shape or type; no state
                is changed then.
            InvalidArgumentError: the model is closed; or the layers of a TensorFlow or TensorFlow Lite file depend on
                values of inputs, and the model has not been called yet.
        """
        return self._states.snapshot(self._known_states())

    @state.setter
    def state(self, values: Mapping[str, Any]) -> None:
        self._states.assign(self._known_states(), values)

    def exchange_state(self, values: dict[str, Array]) -> dict[str, Array]:
        """Replace the values of all states without copies, and return the earlier ones; wait for a run in progress.

        A program with several sequences can so use one model for all of them. `values` must be a result of this method,
        or an empty dict for initial values. The arrays belong to the model until they are exchanged again.
        """
        return self._states.exchange(values)

    def reset_state(self) -> None:
        """Give all states of the network their initial values; wait for a run in progress."""
        self._states.reset()

    def _known_states(self) -> list[State]:
        with self._loaded.lock:
            self._loaded.check_open()
            states = self._blueprint.states() if self._loaded.current is None else None
            return states_of(self.optimized.graph) if states is None else states

    def explain(
        self,
        measure: bool = False,
        *,
        inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        budget_seconds: float | None = None,
    ) -> Explanation:
        """Return which backend runs which layer, and why the other backends do not.

        Print the result, or convert it with `to_json` or `to_html`. With `measure` the times of parts and layers are
        measured. Otherwise they are estimated from the time of a whole run if a plan measured one, or else given as
        shares of the arithmetic. A measurement restores the states of the model at its end; updates that calls in other
        threads make during it are lost.

        Args:
            measure: run the network, and time its layers and copies.
            inputs: inputs for measuring, as of `run`. None uses random numbers, and zeros for integers that may be
                indices.
            budget_seconds: how many seconds to measure, after a warm-up run that is not counted; None means 1 second.

        Raises:
            InvalidArgumentError: shapes or values of inputs are not known, and the model has not been called yet;
                `budget_seconds` is not positive; `inputs` is None and an input is not a numeric tensor; or `inputs` or
                `budget_seconds` are given without `measure`.
            InterposerError: any error that `run` raises.
        """
        expect(measure, bool, "measure must be True or False")
        if not measure:
            if inputs is not None or budget_seconds is not None:
                raise InvalidArgumentError("inputs and budget_seconds are for measuring; give measure=True with them")
            optimized = self.optimized
            return optimized.explain(self._planned_time(optimized))
        budget_seconds = 1.0 if budget_seconds is None else budget_seconds
        check_seconds("budget_seconds", budget_seconds)
        from interposer.session.stopwatch import example_inputs, recorded_times  # noqa: PLC0415 - seldom needed

        inputs = example_inputs(self.optimized) if inputs is None else inputs
        with self._states.preserved():
            while True:  # every retry has one backend less
                disabled = self._choice.disabled
                times = recorded_times(lambda: self.run(inputs), budget_seconds, overlaps=self._has_queues)
                if self._choice.disabled == disabled:
                    return self.optimized.explain(replace(times, **self._search_facts()))

    def _has_queues(self) -> bool:
        return any(backend.asynchronous for backend in self.optimized.backends.values())

    def _search_facts(self) -> dict[str, Any]:
        """Return the fields of `Times` about the search for the plan; empty if no plan is followed exactly."""
        plan = None if self._choice.disabled else self.plan
        if plan is None:
            return {}
        return {"candidates": plan.measured, "unmeasured": plan.unmeasured, "notes": plan.notes()}

    def _planned_time(self, optimized: OptimizedNetwork) -> Times | None:
        """Return the times that the plan recorded for a whole run, or None if `optimized` does not follow a plan."""
        plan = None if self._choice.disabled else self.plan
        whole_seconds = None if plan is None else plan.measured.get(plan.chosen)
        if plan is None or whole_seconds is None:
            return None
        units_run = {placement.runs_in for placement in optimized.placements}
        units = plan.units if units_run <= plan.units.keys() else {}
        source, spread = f"plan {plan.chosen!r}", plan.spread.get(plan.chosen)
        from interposer.report.times import Times  # noqa: PLC0415 - seldom needed

        return Times(whole_seconds, units, source=source, spread=spread, **self._search_facts())

    def transfers(self) -> TransferReport:
        """Return how many tensors were copied and imported between kinds of memory, in all calls like the last one.

        The model has a network for each set of input shapes and values; counted are the runs of the one that was used
        last.

        Raises:
            InvalidArgumentError: shapes or values of inputs are not known, and the model has not been called yet.
        """
        with self._loaded.lock:
            return self.runtime.transfers(self._loaded.latest_loaded().network_id)

    def memory(self) -> MemoryReport:
        """Return the memory of the network that was used last: arenas, constants, and their sum.

        The model has a network for each set of input shapes and values.

        Raises:
            InvalidArgumentError: shapes or values of inputs are not known, and the model has not been called yet.
        """
        with self._loaded.lock:
            return self.runtime.memory(self._loaded.latest_loaded().network_id)

    def import_inputs(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        memory_source: MemorySource = MemorySource.UNDEFINED,
    ) -> ImportedTensors:
        """Import the memory of all inputs, so that calls of `run` read it directly and never copy it.

        The inputs are checked here and not again in each call; their content may change between calls. If input shapes
        are open, the calls use the shapes of these inputs.

        Args:
            inputs: NumPy arrays, objects with ``__dlpack__`` or the buffer protocol, or `MemoryDescriptor`s.
            memory_source: the kind of memory that all inputs must have; UNDEFINED accepts any kind.

        Raises:
            MemoryImportError: some tensors cannot be used without a copy; lists each of them with the reason.
            InvalidArgumentError: layers depend on the values of inputs, which may change; or a descriptor is given
                for an input with an open shape, and the model file has no usual shape for it.
            InterposerError: any error that `run` raises before it runs the network.
        """
        return self._execution.import_inputs(inputs, memory_source)

    def import_outputs(
        self,
        outputs: Sequence[Any] | Mapping[str, Any],
        memory_source: MemorySource = MemorySource.UNDEFINED,
    ) -> ImportedTensors:
        """Import the memory of all outputs, so that calls of `run` write to it directly; see `import_inputs`.

        If shapes are open, the outputs are for the shapes of the last call or the last import.

        Raises:
            MemoryImportError: some tensors cannot be used without a copy; lists each of them with the reason.
            InvalidArgumentError: shapes or values of inputs are not known, and the model has not been called yet.
            BindingError: the number or names of the outputs do not fit.
        """
        return self._execution.import_outputs(outputs, memory_source)

    def bind(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        outputs: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> BoundRun:
        """Bind the model to arrays that it reads and writes; calling the result is the fastest way to run repeatedly.

        Args:
            inputs: NumPy arrays, or objects with ``__dlpack__`` or the buffer protocol.
            outputs: writable objects of the same kinds; None allocates arrays.

        Raises:
            InvalidArgumentError: layers depend on the values of inputs, which may change, or the shape of an output
                depends on data.
            InterposerError: any error that `run` raises before it runs the network.
        """
        by_name, outputs_in_order = self._execution.tensors_to_bind(inputs, outputs)

        def is_replaced(error: ExecutionError | UnknownNetworkError, events_before: int) -> bool:
            self._execution.check_values(error, by_name)
            return self._loaded.is_replaced(error, events_before, set())

        return BoundRun(self, by_name, outputs_in_order, is_replaced, lambda: self._choice.num_events)

    def run(
        self,
        inputs: Inputs | None = None,
        outputs: Outputs | None = None,
        *,
        deadline: float | None = None,
        signature: str | None = None,
        profile: Profile | None = None,
        **named: Any,
    ) -> list[Any]:
        """Run the network once and return its outputs, in the order of `Model.outputs`.

        `inputs` are in the order of `Model.inputs`, or given by name. An input that is not an array is converted to
        one. An array of another type is converted if every value fits: integers to integers of any width and sign, and
        floats to floats, if finite numbers stay finite. Booleans become 0 and 1, and integers become floats. Float
        arrays never become integers; only integral Python floats, as in ``[1.0]``, do. `Runtime.enqueue_workload`
        converts nothing.

        A sequence is a list of arrays, both as input and as output. An optional is its element, or None. Input arrays
        may be read without a copy, so they must not be changed while the model runs.

        If `outputs` names values, the arrays of these values are returned, in the order of the names. Any value of the
        network can be named, not only its outputs: see `values`. For each set of names that includes an inner value,
        the network is optimized once more, with these values as its outputs and without layers that they do not need.
        The last eight such variants are cached. Other calls are not affected. Quantized values are returned as
        integers.

        Args:
            inputs: a sequence, a mapping, or the result of `import_inputs`.
            outputs: names of values, as a list or as one string; or the arrays to write to: arrays, writable objects
                with ``__dlpack__`` or the buffer protocol, or the result of `import_outputs`. None allocates arrays.
            deadline: seconds after which the run is cancelled. With ``fallback=True`` the backend that was running then
                is disabled, and the run is repeated without this backend, with the same deadline.
            signature: the key of a signature to run instead of the main network: inputs and outputs have its names and
                order. Its network is optimized in the first such call.
            profile: records this run, with its layers and copies; see `interposer.profile`.
            named: the inputs by name, ``run(image=x, mask=m)``, instead of `inputs`. An input with the name of an
                argument of this method (`inputs`, `outputs`, `deadline`, `signature`, `profile`) must be given in a
                mapping.

        Raises:
            BindingError: the number, names, shapes, types or values of the inputs do not fit, or the network has no
                such output. If a value does not fit the type of an input, the message has its position and the range.
            InvalidValueError: a layer cannot use a value of the inputs, such as an index out of range. No backend is
                disabled, and the next call runs as if this one had not been made.
            LimitExceededError: the sizes or iterations that follow from values of the inputs exceed the model's limits.
            ExecutionError: a layer failed, and `fallback` is False or no other backend is left; the message has the
                error of each backend.
            DeadlineExceededError: the run exceeded `deadline`.
            InterposerError: the network cannot be built for these shapes or values.

        Example:
            >>> import numpy as np
            >>> import interposer as ip
            >>> text = b'''graph "twice" {
            ...   %x = Input : float32[n]
            ...   %sum = Addition %x, %x
            ...   Output %sum as "y"
            ... }'''
            >>> model, x = ip.load(text, backends=["CpuRef"]), np.float32([1, 2])
            >>> model.run([x]), model.run(x=x)
            ([array([2., 4.], dtype=float32)], [array([2., 4.], dtype=float32)])
            >>> y = np.zeros(2, np.float32)
            >>> model.run([x], [y])[0] is y
            True
        """
        if profile is not None or signature is not None or (active_marks and is_unmarked()):
            return self._run_observed(inputs, outputs, deadline, signature, profile, named)
        failure: InterposerError | None = None
        disabled: set[str] | None = None
        path, events_before = self._loaded.fast_path, self._choice.num_events
        if path is not None and deadline is None and (inputs is None or not named):
            feeds = named if inputs is None else inputs
            direct_call = None if active_marks else path.recorded if active else path.direct
            try:
                results = None if direct_call is None else direct_call(feeds, outputs)
                results = path.run(self._loaded, feeds, outputs) if results is None else results
                if results is not None:
                    return results
            except InvalidValueError:
                raise
            except (ExecutionError, LoadError, UnknownNetworkError) as error:
                self._execution.check_values(error, feeds)
                disabled = self._loaded.check_repeatable(error, path, events_before)
                failure = error if isinstance(error, ExecutionError) else None
        return self._run_checked(inputs, outputs, deadline, named, disabled, failure)

    def run_if_loaded(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Any] | None:
        """Run once, as `run` does, but return None if a network must be built first, or if a backend has failed.

        It does not wait for other threads either: it returns None while one of them builds a network of this model. So
        an event loop can call it for short runs, and call `submit` if it returns None. A backend that fails is not
        disabled by this method, but by that second run, which builds the network again for the other backends.

        Args:
            inputs: arrays by name, for all inputs.
            outputs: names of outputs; None means all of them.

        Raises:
            InvalidValueError: a layer cannot use a value of the inputs.
            ExecutionError: the run failed after it had changed an input or a state, so that it cannot be repeated.
            InterposerError: as for `run`.
        """
        if not self._loaded.lock.acquire(blocking=False):
            return None
        try:
            results = self._run_in_place(inputs) if self._loaded.has(inputs) else None
        except InvalidValueError:
            raise
        except (ExecutionError, LoadError, UnknownNetworkError) as error:
            if isinstance(error, ExecutionError) and error.overwrites:
                raise
            return None
        finally:
            self._loaded.lock.release()
        return results if results is None or outputs is None else self._in_order(tuple(outputs), results)

    def _run_in_place(self, inputs: Mapping[str, Array]) -> list[Any]:
        """Run the loaded network for these inputs once, without another attempt if a backend fails."""
        if active_marks and is_unmarked():
            with marked(f"run {self.name}"):
                return self._run_in_place(inputs)
        path, results = self._loaded.fast_path, None
        if path is not None:
            direct_call = None if active_marks else path.recorded if active else path.direct
            results = None if direct_call is None else direct_call(inputs, None)
            results = path.run(self._loaded, inputs, None) if results is None else results
        return self._execution.run_once(inputs) if results is None else results

    def _run_observed(
        self,
        inputs: Inputs | None,
        outputs: Outputs | None,
        deadline: float | None,
        signature: str | None,
        profile: Profile | None,
        named: Mapping[str, Any],
    ) -> list[Any]:
        """Run a signature or the main network once, marked for profilers of programs and recorded in a profile."""
        _check_profile(profile)
        mark = marked(f"run {self.name}") if active_marks and is_unmarked() else nullcontext()
        with mark, nullcontext() if profile is None else profile.of_this_thread():
            model = self if signature is None else self._relatives.of_signature(signature)
            return model.run(inputs, outputs, deadline=deadline, **named)

    def _run_checked(
        self,
        inputs: Inputs | None,
        outputs: Outputs | None,
        deadline: float | None,
        named: Mapping[str, Any],
        disabled: set[str] | None,
        failure: InterposerError | None,
    ) -> list[Any]:
        """Run once with inputs and outputs of any form, which are checked and converted.

        `disabled` are the backends that this call has disabled, and `failure` is the error of one of them, or None.
        """
        if named or inputs is None:
            inputs = named_inputs(self.inputs, inputs, named, _RUN_ARGUMENTS)
        names = None if outputs is None else requested_names(outputs)
        if names is None:
            control = partial(_control, deadline)
            return self._execution.run(inputs, outputs, control, disabled, failure)
        if set(names) <= self.outputs.keys():
            return self._in_order(names, self.run(inputs, deadline=deadline))
        return self._relatives.with_outputs(names).run(self._execution.as_arrays(inputs), deadline=deadline)

    def _in_order(self, names: tuple[str, ...], outputs: list[Any]) -> list[Any]:
        """Select from the list of all outputs those with these names, in the order of the names."""
        by_name = dict(zip(self.outputs, outputs, strict=True))
        return [by_name[name] for name in names]

    def submit(
        self,
        inputs: Inputs | None = None,
        outputs: Outputs | None = None,
        *,
        deadline: float | None = None,
        signature: str | None = None,
        profile: Profile | None = None,
        **named: Any,
    ) -> PendingRun:
        """Run once in a worker thread of the runtime; return a future of the result of `run`, which can be cancelled.

        Args:
            inputs: inputs, as of `run`.
            outputs: outputs, as of `run`. If a name needs another variant of the network, the calling thread creates
                it.
            deadline: seconds from now after which the future fails with `DeadlineExceededError`. They include the wait
                for a free thread. With ``fallback=True``, a backend that exceeds the deadline is disabled, and the run
                is repeated without this backend, with the same deadline; a run that has not begun is not repeated.
            signature: the key of a signature, as of `run`.
            profile: records this run, as of `run`.
            named: the inputs by name, as of `run`.

        Raises:
            InvalidArgumentError: the deadline is not a number of seconds above 0. Errors of the run are raised by the
                future.
        """
        if signature is not None:
            model = self._relatives.of_signature(signature)
            return model.submit(inputs, outputs, deadline=deadline, profile=profile, **named)
        _check_profile(profile)
        if named or inputs is None:
            inputs = named_inputs(self.inputs, inputs, named, _RUN_ARGUMENTS)
        names = None if outputs is None else requested_names(outputs)
        run: Callable[[_Controls], list[Any]]
        if names is None:
            run = partial(self._execution.run, inputs, outputs)
        elif set(names) <= self.outputs.keys():
            run = partial(self._run_named, names, inputs)
        else:
            relative = self._relatives.with_outputs(names)
            run = partial(relative._execution.run, self._execution.as_arrays(inputs), None)
        run = partial(self._observed, run, profile)
        return self.runtime.workers.submit(run, deadline, repeats=self._choice.fallback is True)

    def _run_named(self, names: tuple[str, ...], inputs: Any, controls: _Controls) -> list[Any]:
        return self._in_order(names, self._execution.run(inputs, None, controls))

    def _observed(
        self, run: Callable[[_Controls], list[Any]], profile: Profile | None, controls: _Controls
    ) -> list[Any]:
        """Run on this worker thread, marked as `run` is, and recorded in a profile."""

        def begun_here() -> RunControl | None:
            control = controls()
            if control is not None:
                control.thread = threading.get_ident()
            return control

        with marked(f"run {self.name}") if active_marks else nullcontext():
            if profile is None:
                return run(controls)
            with profile.of_this_thread():
                return run(begun_here)

    async def run_async(
        self,
        inputs: Inputs | None = None,
        outputs: Outputs | None = None,
        *,
        deadline: float | None = None,
        signature: str | None = None,
        profile: Profile | None = None,
        **named: Any,
    ) -> list[Any]:
        """Run once in a worker thread of the runtime, and await the result of `run` without blocking the event loop.

        If the awaiting task is cancelled, the run stops before its next layer. The arguments are those of `submit`.

        Raises:
            InterposerError: any error that `run` raises.
        """
        import asyncio  # noqa: PLC0415 - who awaits has it already

        values: list[Any] = await asyncio.wrap_future(
            self.submit(inputs, outputs, deadline=deadline, signature=signature, profile=profile, **named)
        )
        return values

    def __call__(
        self,
        inputs: Any = ...,
        outputs: str | Sequence[str] | None = None,
        *,
        signature: str | None = None,
        **named: Any,
    ) -> Any:
        """Run once with inputs by name, and return the outputs by name.

        If the model has a single input, a bare array may be given. If it has a single output, a bare array is returned.
        Inputs may also be given as ``model(image=x, mask=m)``; inputs with the names `inputs`, `outputs` or
        `signature` must be given in a mapping.

        Args:
            inputs: a mapping by name, the result of `import_inputs`, or the value of the single input.
            outputs: names of values to return instead of the outputs, as of `run`. A list returns a mapping by these
                names, one string returns the bare array.
            signature: the key of a signature, as of `run`.
            named: the inputs by name.

        Raises:
            InterposerError: any error that `run` raises.
        """
        if signature is not None:
            return self._relatives.of_signature(signature)(inputs, outputs, **named)
        if named or inputs is ...:
            inputs = named_inputs(
                self.inputs, None if inputs is ... else inputs, named, ("inputs", "outputs", "signature")
            )
        is_array = type(inputs) is np.ndarray
        arrays = inputs if not is_array and isinstance(inputs, Mapping | ImportedTensors) else [inputs]
        if outputs is None:
            results = self.run(arrays)
            return results[0] if len(results) == 1 else dict(zip(self.outputs, results, strict=True))
        names = requested_names(outputs)
        if names is None:
            raise BindingError(f"a call takes names of values as outputs, not {type(outputs).__name__}; see Model.run")
        results = self.run(arrays, names)
        return results[0] if isinstance(outputs, str) else dict(zip(names, results, strict=True))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        shapes: Sequence[Shapes] | None = None,
        sign_key: str | os.PathLike[str] | None = None,
        sign_as: str | None = None,
    ) -> None:
        """Save the model to a file, from which `load` creates it without dividing and compiling the network again.

        The file has the network, its constants, the placement with all refusals, the plan, and the compiled parts of
        the backends that offer them. The present values of states are not saved. See docs/saved-networks.md.

        Args:
            path: the file, usually with the suffix ``.ipn``. An existing file is replaced when the new one is complete.
            shapes: shapes of inputs by name, one mapping for each variant to save. Each variant is optimized if it is
                not loaded. None saves the variants that are loaded: those of the calls so far.
            sign_key: a file with a private Ed25519 key in the format PEM, with which the file is signed. This needs the
                package cryptography (the extra ``sign``).
            sign_as: the name, or the name and the version such as ``"digits:7"``, that the file is signed for; None
                signs for any. See `interposer.saved.SignedAs`.

        Raises:
            InvalidArgumentError: shapes or values of inputs are not known, the key cannot be read, or options of
                backends cannot be saved.
            UnwritableError: a layer has an attribute that cannot be saved.
            FileWriteError: the file cannot be written; an existing file is unchanged.
        """
        with self._loaded.lock:
            self._loaded.check_open()
            if self._loaded.current is not None:
                self._loaded.latest_loaded()
            loaded_networks = {key: variant.optimized for key, variant in self._loaded.by_key.items()}
            Saver(self._blueprint, self._choice, self._limits, loaded_networks).save(path, shapes, sign_key, sign_as)

    @property
    def profiler(self) -> Profiler:
        """The profiler of the network that was used last; it is disabled at first. See `Runtime.get_profiler`.

        Raises:
            InvalidArgumentError: shapes or values of inputs are not known, and the model has not been called yet.
        """
        with self._loaded.lock:
            return self.runtime.get_profiler(self._loaded.latest_loaded().network_id)

    def only_part(self) -> OnlyPart | None:
        """Return the compiled part of a plug-in that the whole model is, for a host that runs it without Python.

        None if the model has other layers, or networks for several shapes or values. See `Runtime.only_part`.
        """
        with self._loaded.lock:
            fast_path = self._loaded.fast_path
            return None if fast_path is None or fast_path.values else self.runtime.only_part(fast_path.network_id)

    def pinned_part(self, inputs: Mapping[str, Array]) -> tuple[OnlyPart, Callable[[], None]] | None:
        """Return the compiled part that runs inputs of these shapes, and a function that unpins it.

        The network for these shapes stays loaded until it is unpinned. None if it has other layers, or depends on the
        values of inputs. See `only_part`.

        Args:
            inputs: arrays by name, with which the model has run before.

        Raises:
            InterposerError: the network cannot be built for these shapes.
        """
        with self._loaded.lock:
            if self._blueprint.needed:
                return None
            key, network_id = self._loaded.begin(inputs)
            part = self.runtime.only_part(network_id)
            if part is None:
                self._loaded.end(key)
                return None
            return part, partial(self._loaded.end, key)

    def close(self) -> None:
        """Unload the network; later calls raise `InvalidArgumentError`.

        What backends hold for the network, such as memory of a device, is freed now, unless the caller still has its
        `optimized` form. Single layers of this form are disconnected from each other unless the caller has it or its
        graph. Closing a closed model does nothing. If a context of a backend refused to unload a network,
        closing again tries to unload it once more.

        Raises:
            LoadError: the context of a backend refuses to unload the network.
        """
        with self._loaded.lock:
            self._loaded.close()
            relatives = self._relatives.clear()
        for relative in relatives:
            relative.close()

    def __copy__(self) -> Model:
        with self._loaded.lock:
            self._loaded.check_open()
            choice, blueprint = self._choice.fork(), self._blueprint.forked()
        copied_model = _relative(choice, self._limits, StateMemory(), blueprint)
        copied_model._origin = self._origin
        return copied_model

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self.__copy__()

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        self._loaded.check_open()
        return reduced(Model, self._blueprint, self._choice, self._limits, self._origin)

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from interposer.report.notebook import explained, model_html  # noqa: PLC0415 - only notebooks need it

        current_variant, is_closed = self._loaded.current, self._loaded.is_closed
        known_network = None if is_closed or current_variant is None else current_variant.optimized
        note = "closed" if is_closed else "optimized in the first run, for its shapes"
        html_below = ""
        if known_network is not None:
            try:
                explanation = known_network.explain(self._planned_time(known_network))
                html_below = explained(list(explanation.summary()), explanation.part_table(), explanation.table())
            except LoadError as error:  # the model is from the cache, and its file is gone
                note = str(error)
        return model_html(self.name, self.inputs.items(), self.outputs.items(), html_below, note)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {info}" for name, info in self.inputs.items())
        outputs = ", ".join(f"{name}: {info or '?'}" for name, info in self.outputs.items())
        return f"<Model {self.name!r}: {inputs} -> {outputs}>"


def _relative(choice: Choice, limits: Limits, states: StateMemory, network: Network | Template | Blueprint) -> Model:
    """Return a model of another network with the backends of `choice`, from which backends that failed are missing."""
    model = Model.__new__(Model)
    model._set_up(network, choice.fork(), limits, states)
    return model


def _control(deadline: float | None) -> RunControl | None:
    """Return the object that cancels a run after `deadline` seconds; None without a deadline."""
    return None if deadline is None else RunControl(deadline)


def _check_profile(profile: object) -> None:
    if profile is not None:
        from interposer.profiling.profiles import Profile  # noqa: PLC0415 - most runs have none

        expect(profile, Profile, "the profile must be a Profile, such as interposer.profile()")
