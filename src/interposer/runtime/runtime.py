"""`Runtime`: loads optimized networks and runs them."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from interposer.backend import BackendContext, MemorySource
from interposer.backend.contracts import checked
from interposer.backend.devices import split_address
from interposer.core.config import disabled_backends, thread_budget
from interposer.core.errors import (
    BackendUnavailableError,
    BindingError,
    InvalidArgumentError,
    LoadError,
    OptionError,
    UnknownBackendError,
    UnknownNetworkError,
    did_you_mean,
    error_text,
    expect,
    memory_to,
)
from interposer.core.room import Room
from interposer.core.types import Array, TensorInfo
from interposer.isolation import BackendEvent, requested_isolations
from interposer.plugins import BackendRegistry, DeviceSpec, process_registry
from interposer.plugins.capi.loading.paths import own_files
from interposer.plugins.capi.loading.records import DynamicBackendRecord
from interposer.plugins.discovery import load_dynamic_backends
from interposer.profiling import Category
from interposer.profiling.profiler import Profiler
from interposer.profiling.recorder import interval
from interposer.profiling.service import ProfilingService
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime.allocators import use_allocators
from interposer.runtime.bindings import Bindings
from interposer.runtime.creation_options import CreationOptions
from interposer.runtime.direct import OnlyPart
from interposer.runtime.enqueue import run, run_imported, run_watched
from interposer.runtime.imports import ImportedInputId, ImportedOutputId
from interposer.runtime.loaded import DirectRun, LoadedNetwork
from interposer.runtime.memory import MemoryReport
from interposer.runtime.reporting import Reporting
from interposer.runtime.runs import PendingRun, RunControl, Workers
from interposer.runtime.states import StateMemory
from interposer.runtime.working import WorkingMemHandle
from interposer.runtime.workloads import DebugCallback, TransferReport

__all__ = ["NetworkId", "Runtime"]

NetworkId = int
_log = logging.getLogger("interposer.runtime")


class Runtime:
    """The backends that a program may use, and the networks that are loaded.

    Backends that are registered in `registry`, and dynamic backends, belong to this runtime alone. The methods are
    thread-safe, and runs may be concurrent, even of one network. `close`, or the end of a ``with`` block, unloads
    everything. `profiling` has the counters and the profiling contexts of its backends.
    """

    def __init__(self, options: CreationOptions | None = None) -> None:
        self.options = CreationOptions() if options is None else options
        expect(self.options, CreationOptions, "the options must be CreationOptions(...)")
        disabled = disabled_backends() | frozenset(self.options.disabled_backends)
        isolations = requested_isolations(self.options.isolate)
        self.registry = BackendRegistry(process_registry(), disabled, isolations)
        self._dynamic = load_dynamic_backends(
            self.registry,
            path=self.options.dynamic_backends_path,
            allow_list=self.options.backend_allow_list,
            probe_seconds=self.options.probe_seconds,
            unload=self.options.unload_libraries,
            disabled=disabled,
            backend_options=self.options.backend_options,
        )
        self._warn_of_unknown_ids(disabled, "disabled")
        self._warn_of_unknown_ids(() if self.options.isolate is not None else isolations, "isolated")
        self._check_backend_options()
        use_allocators(self.registry, self.options.custom_allocators, self.options.protected_mode)
        for backend_id, strategy in self.options.memory_strategies.items():
            self.registry.register_memory_strategy(backend_id, strategy)
        self._contexts: dict[str, BackendContext | None] = {}
        self.profiling = ProfilingService()
        self._networks: dict[NetworkId, LoadedNetwork] = {}
        self._notified_contexts: dict[NetworkId, dict[str, BackendContext]] = {}
        self._to_unload: deque[NetworkId] = deque()
        self._ids = itertools.count()
        self._lock = threading.RLock()
        self._reporting = Reporting.of(self.options.profiling, self.registry, self.profiling)
        self.workers = Workers(thread_budget(self.options.num_threads))
        weakref.finalize(self, self.workers.close).atexit = False
        if self.options.all_contexts:
            self._create_all_contexts()

    def _warn_of_unknown_ids(self, backend_ids: Collection[str], participle: str) -> None:
        """Log a warning for ids that no backend has, such as ids to disable; one may be registered later.

        `participle` says what is done with the backends, such as ``"disabled"``.
        """
        known_ids = {*self.registry.ids, *own_files()} if backend_ids else set()
        for backend_id in sorted(backend_ids):
            base = (split_address(backend_id) or (backend_id,))[0]
            if base not in known_ids:
                hint, ids_text = did_you_mean(backend_id, known_ids), ", ".join(sorted(known_ids))
                message = "%r is to be %s, but no backend has this id%s (known: %s)"
                _log.warning(message, backend_id, participle, hint, ids_text)

    def _check_backend_options(self) -> None:
        """Check the options for backends early, and start isolated backends, which check their options when they start.

        Raises:
            UnknownBackendError: an id resembles that of a known backend. Another unknown id may be that of a backend
                which is registered later: see `_check_expected_backends`.
        """
        for backend_id in self._named_backends():
            if backend_id not in self.registry and did_you_mean(backend_id, self.registry.ids):
                raise UnknownBackendError(backend_id, self.registry.ids)
        for backend_id in self.options.backend_options:
            is_created_later = self.registry.isolation(backend_id) is not None or self.registry.is_by_name_only(
                backend_id
            )
            if backend_id in self.registry and is_created_later:
                self.registry.reason_absent(backend_id)

    def _check_expected_backends(self) -> None:
        """Raise `UnknownBackendError` if options name a backend that was not registered before a network is loaded."""
        for backend_id in self._named_backends():
            if backend_id not in self.registry:
                raise UnknownBackendError(backend_id, self.registry.ids)

    def _named_backends(self) -> Iterator[str]:
        """Yield the ids that the options of this runtime name; those of the environment are for all programs."""
        yield from self.options.backend_options
        yield from requested_isolations(self.options.isolate) if self.options.isolate is not None else ()

    @property
    def device_spec(self) -> DeviceSpec:
        """The backends for which networks can be optimized on this runtime."""
        return DeviceSpec(self.registry)

    def dynamic_backends(self) -> tuple[DynamicBackendRecord, ...]:
        """Return the result for every file that was considered as a shared object with backends, loaded or rejected."""
        return () if self._dynamic is None else self._dynamic.records

    @property
    def events(self) -> tuple[BackendEvent, ...]:
        """The last thousand events of backends: failures of child processes, and models that run without a backend."""
        return tuple(self.registry.events)

    @property
    def loaded_networks(self) -> tuple[NetworkId, ...]:
        """The ids of the networks that are loaded."""
        return tuple(self._networks)

    @memory_to("load the network")
    def load_network(
        self, optimized: OptimizedNetwork, states: StateMemory | None = None, room: Room | None = None
    ) -> NetworkId:
        """Load a network and return its id; the contexts of its backends are notified before and after.

        The context of a backend is created when the first network that may use this backend is loaded, unless
        `CreationOptions.all_contexts` created it with the runtime.

        Args:
            optimized: what `optimize` returned.
            states: the values of the network's states, which several networks can share; None starts with the initial
                values.
            room: limits of the memory and arithmetic that follow from values of inputs, which each run checks; None
                stands for no limits.

        Raises:
            LoadError: a context refused, or a backend could not create a required object. Everything created until then
                is released; contexts that had agreed are notified that the network is unloaded.
            UnknownBackendError: the options of the runtime are for a backend that is not registered.
        """
        expect(optimized, OptimizedNetwork, "load_network needs what optimize() gave")
        with self._lock:
            self._check_expected_backends()
            self._unload_forgotten()
            network_id = next(self._ids)
            agreed_contexts = self._ask_before_loading(network_id, self._contexts_of(optimized))
            try:
                with interval(Category.LOAD, f"load {optimized.name}"):
                    allocators, strategies = self.options.custom_allocators, self.registry.memory_strategies
                    loaded_network = LoadedNetwork(
                        optimized, self.workers, allocators, states, network_id, strategies, room
                    )
            except BaseException:
                self._notify("after_unload_network", network_id, agreed_contexts)
                raise
            self._networks[network_id], self._notified_contexts[network_id] = loaded_network, agreed_contexts
            self._reporting.network_loaded(loaded_network)
            self._notify("after_load_network", network_id, agreed_contexts)
            return network_id

    def _create_all_contexts(self) -> None:
        """Create the missing contexts of all available backends; one that turns out to be unavailable is skipped.

        Raises:
            LoadError: a backend could not create its context.
        """
        for backend_id in self.registry.available():
            if backend_id in self._contexts:
                continue
            try:
                self._add_contexts(backend_id, self.registry.get(backend_id))
            except LoadError as error:
                if not isinstance(error.__cause__, BackendUnavailableError):
                    raise
                _log.info("backend %s has no context: %s", backend_id, error.__cause__.reason)
                self._contexts[backend_id] = None

    def _contexts_of(self, optimized: OptimizedNetwork) -> dict[str, BackendContext]:
        if self.options.all_contexts:
            self._create_all_contexts()
        for backend_id, backend in optimized.backends.items():
            if backend_id not in self._contexts:
                self._add_contexts(backend_id, backend)
        notified_ids = self._contexts if self.options.all_contexts else optimized.backends
        contexts = {backend_id: self._contexts[backend_id] for backend_id in notified_ids}
        return {backend_id: context for backend_id, context in contexts.items() if context is not None}

    def _add_contexts(self, backend_id: str, backend: Any) -> None:
        self._contexts[backend_id] = self._new_context(backend_id, backend)
        options = self.options.backend_options.get(backend_id, {})
        self.profiling.add(backend_id, partial(backend.create_backend_profiling_context, options))

    def _new_context(self, backend_id: str, backend: Any) -> BackendContext | None:
        options = self.options.backend_options.get(backend_id, {})
        try:
            context = backend.create_backend_context(options)
            return None if context is None else checked(context, BackendContext, "create_backend_context", backend_id)
        except OptionError:  # the caller's mistake: no other backend takes over for it
            raise
        except Exception as error:
            message = f"backend {backend_id} could not make its context: {error_text(error)}"
            raise LoadError(message, backend=backend_id) from error

    def _ask_before_loading(
        self, network_id: NetworkId, contexts: Mapping[str, BackendContext]
    ) -> dict[str, BackendContext]:
        agreed_contexts: dict[str, BackendContext] = {}
        for backend, context in contexts.items():
            refusal = _refusal(context.before_load_network, network_id)
            if refusal is not None:
                self._notify("after_unload_network", network_id, agreed_contexts)
                message = f"network {network_id} is not loaded: the context of backend {backend} {refusal}"
                raise LoadError(message, backend=backend)
            agreed_contexts[backend] = context
        return agreed_contexts

    def _notify(self, method_name: str, network_id: NetworkId, contexts: Mapping[str, BackendContext]) -> None:
        for backend, context in contexts.items():
            refusal = _refusal(getattr(context, method_name), network_id)
            if refusal is not None:
                _log.warning(
                    "network %d: the context of backend %s %s in %s", network_id, backend, refusal, method_name
                )

    def unload_network(self, network_id: NetworkId) -> None:
        """Unload a network and release its memory; the contexts of its backends are notified before and after.

        The call waits for runs that have begun. Runs that begin during the call are refused.

        Raises:
            UnknownNetworkError: the network is not loaded.
            LoadError: a context refused; the network stays loaded.
            ExecutionError: the call comes from within a run of the network; it stays loaded.
        """
        with self._lock:
            loaded_network = self._loaded(network_id)
            loaded_network.refuse_in_own_run("unloaded")
            for backend, context in self._notified_contexts[network_id].items():
                refusal = _refusal(context.before_unload_network, network_id)
                if refusal is not None:
                    raise LoadError(f"network {network_id} stays loaded: the context of backend {backend} {refusal}")
            contexts = self._remove(network_id)
        self._drop(network_id, loaded_network, contexts)

    def unload_later(self, network_id: NetworkId) -> None:
        """Schedule the network to be unloaded when the next one is loaded; it must not be run any more.

        Unlike `unload_network` this never waits, so it is safe to call from the garbage collector.
        """
        self._to_unload.append(network_id)

    def _unload_forgotten(self) -> None:
        while self._to_unload:
            try:
                self.unload_network(self._to_unload.popleft())
            except UnknownNetworkError:
                pass  # another thread has unloaded it already
            except LoadError as error:
                _log.warning("%s, though nobody runs it any more", error)

    def _remove(self, network_id: NetworkId) -> dict[str, BackendContext]:
        del self._networks[network_id]
        return self._notified_contexts.pop(network_id)

    def _drop(
        self, network_id: NetworkId, loaded_network: LoadedNetwork, contexts: Mapping[str, BackendContext]
    ) -> None:
        with interval(Category.LOAD, f"unload {loaded_network.optimized.name}"):
            loaded_network.release()
        loaded_network.profiler.enable_profiling(False)
        self._reporting.network_unloaded(loaded_network)
        self._notify("after_unload_network", network_id, contexts)

    def enqueue_workload(
        self,
        network_id: NetworkId,
        inputs: Mapping[int, Any] | None = None,
        outputs: Mapping[int, Any] | None = None,
        *,
        imported_inputs: Sequence[int] = (),
        imported_outputs: Sequence[int] = (),
        deadline: float | None = None,
        control: RunControl | None = None,
    ) -> dict[int, Any]:
        """Run a network once: read `inputs` and fill `outputs`, both by binding id; return the outputs by binding id.

        Without `outputs`, new arrays are allocated. An output whose shape depends on data may be left out of `outputs`:
        its array is allocated when the shape is known. A sequence is a list of arrays, an optional is its element or
        None; both must be left out of `outputs`.

        Contiguous arrays that the backends can access are used directly, without a copy. All others are copied;
        `copy_reasons` says why. The arrays must not be changed while the network runs. Several threads may run one
        network concurrently.

        Imported tensors are given by their ids and must not be in the mappings. A run with only imports is the fastest.

        Args:
            deadline: seconds after which the call fails. A layer that hangs then continues, on private memory and on
                the inputs; the network can be run again and unloaded in the meantime. With a deadline, `outputs` are
                written only after the run.
            control: an object with which another thread can cancel the run. It may have a deadline, in place of
                `deadline`.
            imported_inputs: ids that `import_inputs` returned.
            imported_outputs: ids that `import_outputs` returned.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: a wrong count, binding id, shape or type, or a read-only output. Nothing has run, unless an
                output whose shape depends on data turned out not to fit its array.
            ExecutionError: a workload failed; the runtime and the network stay usable.
            RunCancelledError, DeadlineExceededError: the run was cancelled, or took too long.
        """
        loaded_network = self._loaded(network_id)
        if deadline is not None or control is not None:
            control = _control(deadline, control)
        if _has_imports(imported_inputs) or _has_imports(imported_outputs):
            return run_imported(loaded_network, (imported_inputs, imported_outputs), inputs, outputs, None, control)
        return run_watched(loaded_network, {} if inputs is None else inputs, outputs, control)

    def submit(
        self,
        network_id: NetworkId,
        inputs: Mapping[int, Any] | None = None,
        outputs: Mapping[int, Any] | None = None,
        *,
        imported_inputs: Sequence[int] = (),
        imported_outputs: Sequence[int] = (),
        deadline: float | None = None,
    ) -> PendingRun:
        """Schedule a run in a worker thread; like `enqueue_workload`, but return a future of the outputs.

        At most `CreationOptions.num_threads` submitted runs execute concurrently; others wait. `deadline` is a number
        of seconds from now, which includes the wait.

        Raises:
            UnknownNetworkError: the network is not loaded. All other errors are raised by the future.
            InvalidArgumentError: the runtime is closed, or the deadline is not a number of seconds above 0.
        """
        loaded_network = self._loaded(network_id)
        import_ids = imported_inputs, imported_outputs
        if _has_imports(imported_inputs) or _has_imports(imported_outputs):
            return self.workers.submit(
                lambda controls: run_imported(loaded_network, import_ids, inputs, outputs, None, controls()), deadline
            )
        return self.workers.submit(
            lambda controls: run_watched(loaded_network, {} if inputs is None else inputs, outputs, controls()),
            deadline,
        )

    def create_working_mem_handle(self, network_id: NetworkId) -> WorkingMemHandle:
        """Return working memory for one run at a time, such as one per thread: see `execute`.

        Raises:
            UnknownNetworkError: the network is not loaded.
            LoadError: a backend could not create a handle or its memory plan.
        """
        return self._loaded(network_id).new_working_memory()

    def execute(
        self,
        network_id: NetworkId,
        working_mem_handle: WorkingMemHandle,
        inputs: Mapping[int, Any] | None = None,
        outputs: Mapping[int, Any] | None = None,
        *,
        imported_inputs: Sequence[int] = (),
        imported_outputs: Sequence[int] = (),
    ) -> dict[int, Any]:
        """Run a network once, as `enqueue_workload` does, in working memory of `create_working_mem_handle`.

        Raises:
            InvalidArgumentError: the working memory belongs to another network.
            InterposerError: any error that `enqueue_workload` raises; `ExecutionError` also if the memory is in use.
        """
        loaded_network = self._loaded(network_id)
        loaded_network.check_own(working_mem_handle)
        if _has_imports(imported_inputs) or _has_imports(imported_outputs):
            return run_imported(
                loaded_network, (imported_inputs, imported_outputs), inputs, outputs, working_mem_handle
            )
        return run(loaded_network, {} if inputs is None else inputs, outputs, working_mem_handle)

    def import_inputs(
        self,
        network_id: NetworkId,
        inputs: Mapping[int, Any],
        memory_source: MemorySource = MemorySource.UNDEFINED,
    ) -> list[ImportedInputId]:
        """Import memory that a network reads directly as inputs, in any number of runs, and never copies.

        Each input is a NumPy array, an object with ``__dlpack__`` or the buffer protocol, or a `MemoryDescriptor`. It
        is checked here and not again. The memory stays in use until `clear_imported_inputs` or until the network is
        unloaded; its content may change between runs.

        Args:
            inputs: tensors by binding id; some inputs may be left out.
            memory_source: the kind of memory that all of them must have; UNDEFINED accepts any kind.

        Returns:
            The import ids, in the order of `inputs`.

        Raises:
            UnknownNetworkError: the network is not loaded.
            MemoryImportError: some tensors cannot be used directly; lists each with the reason. Nothing is imported
                then.
            BindingError: the network has no such binding id.
        """
        return [
            ImportedInputId(import_id)
            for import_id in self._loaded(network_id).imports.add("input", inputs, memory_source)
        ]

    def import_outputs(
        self,
        network_id: NetworkId,
        outputs: Mapping[int, Any],
        memory_source: MemorySource = MemorySource.UNDEFINED,
    ) -> list[ImportedOutputId]:
        """Import memory that a network writes outputs to directly, in any number of runs; see `import_inputs`.

        Raises:
            InterposerError: any error that `import_inputs` raises; read-only memory is refused too.
        """
        return [
            ImportedOutputId(import_id)
            for import_id in self._loaded(network_id).imports.add("output", outputs, memory_source)
        ]

    def imported_arrays(self, network_id: NetworkId, kind: str, ids: Iterable[int]) -> dict[int, tuple[str, Array]]:
        """Return the imported tensors of a kind ("input" or "output") by binding id, as pairs of layer name and array.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: no tensor of this kind was imported with such an id.
        """
        return self._loaded(network_id).imports.arrays(kind, ids)

    def clear_imported_inputs(self, network_id: NetworkId, ids: Iterable[int]) -> None:
        """Clear the inputs that were imported under these ids; runs in progress keep using them until they end.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: an import id is unknown; nothing is cleared then.
        """
        self._loaded(network_id).clear_imported("input", ids)

    def clear_imported_outputs(self, network_id: NetworkId, ids: Iterable[int]) -> None:
        """Clear the outputs that were imported under these ids; see `clear_imported_inputs`."""
        self._loaded(network_id).clear_imported("output", ids)

    def copy_reasons(
        self,
        network_id: NetworkId,
        inputs: Mapping[int, Any] | None = None,
        outputs: Mapping[int, Any] | None = None,
    ) -> dict[tuple[str, int], str]:
        """Return why a run would copy tensors, by kind ("input" or "output") and binding id.

        Tensors that would be used without a copy are left out.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: the network has no such binding id.
        """
        imports = self._loaded(network_id).imports
        reasons = imports.refusals("input", {} if inputs is None else inputs)
        return reasons | imports.refusals("output", {} if outputs is None else outputs)

    def prepare_run(
        self, network_id: NetworkId, imported_inputs: Sequence[int], imported_outputs: Sequence[int]
    ) -> Callable[[], bool]:
        """Return a function that runs a network repeatedly on imports for all of its tensors, with minimal overhead.

        The function returns False without running if `enqueue_workload` must be used instead. It raises
        `ExecutionError` if a workload failed, the network was unloaded, or an import was cleared. It is thread-safe.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: an import id is unknown, or some tensors have no import.
        """
        loaded_network = self._loaded(network_id)
        imported_run = loaded_network.imports.run_of(imported_inputs, imported_outputs)
        if not imported_run.complete:
            raise BindingError("a run is prepared on imports for all inputs and outputs; some are missing")
        return partial(loaded_network.run_imported, imported_run)

    def direct_call(self, network_id: NetworkId, inputs: Sequence[int]) -> DirectRun | None:
        """Return a function that runs a network on arrays with minimal overhead; None if the network does not allow it.

        The function takes the input arrays, as a list or tuple in the order of the binding ids `inputs` or as a dict by
        name. The outputs are arrays in the same forms, None for new arrays, or the names of those to return. It returns
        the outputs in the order of their binding ids or names. It returns None without running if `enqueue_workload`
        must be used instead, such as for an array that needs a conversion or a copy. It raises `ExecutionError` if the
        workload failed. It is thread-safe.

        Only a network that is one compiled part of a plug-in, or whose outputs are inputs, has such a function. It does
        not record its runs for profiles: see `recorded`.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: `inputs` does not have the binding id of each input once.
        """
        return self._loaded(network_id).direct_call(inputs)

    def only_part(self, network_id: NetworkId) -> OnlyPart | None:
        """Return the compiled part of a plug-in that a network consists of; None for any other network.

        Its facts list the inputs and outputs in the order of their binding ids. A program that runs the part itself
        must keep the workload alive, and does not count as a run of the network.

        Raises:
            UnknownNetworkError: the network is not loaded.
        """
        return self._loaded(network_id).only_part()

    def recorded(self, network_id: NetworkId, call: DirectRun) -> DirectRun:
        """Return a function that does the same as a result of `direct_call` for a network, and records its runs.

        Raises:
            UnknownNetworkError: the network is not loaded.
        """
        return self._loaded(network_id).recorded(call)

    def _loaded(self, network_id: NetworkId) -> LoadedNetwork:
        try:
            return self._networks[network_id]
        except (KeyError, TypeError):
            raise UnknownNetworkError(network_id, self.loaded_networks) from None

    def transfers(self, network_id: NetworkId) -> TransferReport:
        """Return how many tensors were copied and imported between kinds of memory in all runs of a network."""
        return self._loaded(network_id).transfers

    def memory(self, network_id: NetworkId) -> MemoryReport:
        """Return the memory of a loaded network; raise `UnknownNetworkError` if it is not loaded."""
        return self._loaded(network_id).memory()

    def get_profiler(self, network_id: NetworkId) -> Profiler:
        """Return the profiler of a loaded network, which is disabled at first and records every run when enabled.

        It is the same object in every call, and keeps its events when the network is unloaded.

        Raises:
            UnknownNetworkError: the network is not loaded.
        """
        return self._loaded(network_id).profiler

    def state(self, network_id: NetworkId) -> dict[str, Array]:
        """Return copies of the values of a network's states by name.

        These are the states of runs without a working memory of their own; see `WorkingMemHandle.state` for the others.

        Raises:
            UnknownNetworkError: the network is not loaded.
        """
        loaded_network = self._loaded(network_id)
        return loaded_network.state_memory.snapshot(loaded_network.states)

    def set_state(self, network_id: NetworkId, values: Mapping[str, Any]) -> None:
        """Give some of a network's states values by name, which are copied; see `state`.

        Raises:
            UnknownNetworkError: the network is not loaded.
            BindingError: there is no such state, or a value has another shape or type; no state is changed then.
        """
        loaded_network = self._loaded(network_id)
        loaded_network.state_memory.assign(loaded_network.states, values)

    def reset_state(self, network_id: NetworkId) -> None:
        """Give a network's states their initial values; raise `UnknownNetworkError` if it is not loaded."""
        self._loaded(network_id).state_memory.reset()

    def bindings(self, network_id: NetworkId) -> Bindings:
        """Return the inputs and outputs of a loaded network; raise `UnknownNetworkError` if it is not loaded."""
        return self._loaded(network_id).bindings

    def get_input_tensor_info(self, network_id: NetworkId, binding_id: int) -> TensorInfo:
        """Return the info of an input; raise `UnknownNetworkError` or `BindingError` for an unknown id."""
        return self.bindings(network_id).info("input", binding_id)

    def get_output_tensor_info(self, network_id: NetworkId, binding_id: int) -> TensorInfo:
        """Return the info of an output; raise `UnknownNetworkError` or `BindingError` for an unknown id."""
        return self.bindings(network_id).info("output", binding_id)

    def register_debug_callback(self, network_id: NetworkId, callback: DebugCallback | None) -> None:
        """Let the Debug layers of a network call ``callback(layer name, output number, array)`` instead of printing.

        The array is valid only during the call. The callback must not run or unload the same network. None restores
        printing.
        """
        debug_callback: object = callback
        if not (debug_callback is None or callable(debug_callback)):
            raise InvalidArgumentError(f"a debug callback must be a function or None, not {debug_callback!r}")
        self._loaded(network_id).set_debug_callback(callback)

    def close(self) -> None:
        """Unload all networks, contexts and dynamic backends; the latter are then removed from the registry.

        If a context refuses, this is logged and the network is unloaded anyway.
        """
        with self._lock:
            for network_id in self.loaded_networks:
                try:
                    self.unload_network(network_id)
                except LoadError as error:
                    _log.warning("%s; closing the runtime anyway", error)
                    loaded_network = self._networks[network_id]
                    self._drop(network_id, loaded_network, self._remove(network_id))
            self.profiling.close()
            self._contexts.clear()
            self.workers.close()
            self.registry.close()
            self._reporting.close()
            if self._dynamic is not None:
                self._dynamic.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _has_imports(import_ids: object) -> bool:
    """Return True unless the argument, a sequence of import ids, is None or empty.

    An argument of the wrong type counts as given: it is checked later.
    """
    return import_ids is not None and not (isinstance(import_ids, Sequence) and not import_ids)


def _control(deadline: float | None, control: RunControl | None) -> RunControl:
    if deadline is not None and control is not None:
        raise InvalidArgumentError("a run takes a deadline or a control, which may have one, not both")
    expect(control, RunControl | None, "a run is controlled by a RunControl")
    return RunControl(deadline) if control is None else control


def _refusal(notice: Callable[[int], bool], network_id: NetworkId) -> str | None:
    try:
        agrees = notice(network_id) in (True, None)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    return None if agrees else "said no"
