"""Options for creating a runtime."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import field
from os import PathLike
from typing import Any

from interposer.backend import CustomAllocator, MemoryOptimizerStrategy, Options
from interposer.backend.ids import listed_ids
from interposer.backend.strategies import chosen_strategy
from interposer.core.errors import InvalidArgumentError, as_float, as_int, expect
from interposer.core.records import dataclass
from interposer.isolation import Isolation, requested_isolations
from interposer.profiling.external.options import ExternalProfilingOptions

__all__ = ["CreationOptions"]

_PATH: Any = str | PathLike | None  # for isinstance


@dataclass(frozen=True)
class CreationOptions:
    """Options of `Runtime`.

    Args:
        backend_options: by backend id, the options with which the context of the backend is created. An id that no
            backend has is refused: when the runtime is created if it resembles one, else when a network is loaded.
        disabled_backends: ids of backends to disable (or one id), in addition to those in the environment variable
            ``INTERPOSER_DISABLED_BACKENDS``.
        dynamic_backends_path: the absolute path of a single folder that is searched for shared objects with backends,
            instead of the list in ``INTERPOSER_BACKEND_PATH`` or the user's ``interposer.toml``; an empty path disables
            the search.
        backend_allow_list: the SHA-256 of each shared object that may be loaded, or the path of a file with these, in
            the format of ``sha256sum``. None allows all, unless ``INTERPOSER_BACKEND_ALLOW_LIST`` names a file.
        probe_seconds: the time limit, 30 by default, for trying out a new shared object in a separate process; 0 loads
            it without a trial.
        unload_libraries: whether shared objects are unloaded from the process with the last runtime that uses them;
            they are shut down then in any case.
        isolate: ids of backends to run in child processes (or one id), or a mapping from ids to `Isolation` with
            deadlines and limits. None uses the ids in ``INTERPOSER_ISOLATE`` or ``interposer.toml``. Unknown ids are
            refused as those in `backend_options` are.
        num_threads: the number of submitted runs that may run concurrently. None uses ``INTERPOSER_NUM_THREADS`` or
            ``interposer.toml``, otherwise the number of processors. The number of threads in one run is an option of
            backends, such as CpuAcc's ``NumberOfThreads``, whose default ``INTERPOSER_NUM_THREADS`` sets too.
        custom_allocators: by backend id, the allocator of memory for tensors.
        memory_strategies: by backend id, the strategy that packs its tensors into memory, or the name of one in
            `interposer.backend.MEMORY_STRATEGIES`.
        all_contexts: whether the contexts of all available backends are created with the runtime, and notified of every
            network. That of a backend which is registered later is created when the next network is loaded. By default,
            the context of a backend is created when a network is loaded that may use this backend, and it is only
            notified of such networks.
        protected_mode: whether only backends are used that keep tensors in protected memory, which the processor cannot
            read. These have the capability ``ProtectedContentAllocation`` and a custom allocator of such memory.
        profiling: how counters and timelines are sent to a collector in Arm NN's external profiling protocol; None
            sends nothing. The runtime waits for a collector for up to three seconds.
    """

    backend_options: Mapping[str, Options] = field(default_factory=dict)
    disabled_backends: Collection[str] = ()
    dynamic_backends_path: str | PathLike[str] | None = None
    backend_allow_list: str | PathLike[str] | Collection[str] | None = None
    probe_seconds: float | None = None
    unload_libraries: bool | None = None
    isolate: Collection[str] | Mapping[str, Isolation] | None = None
    num_threads: int | None = None
    custom_allocators: Mapping[str, CustomAllocator] = field(default_factory=dict)
    protected_mode: bool = False
    memory_strategies: Mapping[str, MemoryOptimizerStrategy | str] = field(default_factory=dict)
    all_contexts: bool = False
    profiling: ExternalProfilingOptions | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "disabled_backends", listed_ids(self.disabled_backends, "disabled_backends: backends", ordered=False)
        )
        expect(self.backend_options, Mapping, "backend_options must be a mapping from backend's id to its options")
        for backend, options in self.backend_options.items():
            expect(options, Mapping, f"the options of backend {backend!r} must be a mapping")
        if self.isolate is not None:
            requested_isolations(self.isolate)
        if self.num_threads is not None:
            object.__setattr__(self, "num_threads", as_int(self.num_threads, "num_threads must be a whole number"))
            if self.num_threads < 1:
                raise InvalidArgumentError(f"num_threads must be 1 or more, not {self.num_threads}")
        expect(self.custom_allocators, Mapping, "custom_allocators must be a mapping from backend's id to an allocator")
        for backend, allocator in self.custom_allocators.items():
            expect(allocator, CustomAllocator, f"the custom allocator of backend {backend!r} must be a CustomAllocator")
        strategies = self.memory_strategies
        expect(strategies, Mapping, "memory_strategies must be a mapping from backend's id to a strategy")
        strategy_of_backend = {backend: chosen_strategy(backend, strategy) for backend, strategy in strategies.items()}
        object.__setattr__(self, "memory_strategies", strategy_of_backend)
        expect(self.protected_mode, bool, "protected_mode must be True or False")
        expect(self.all_contexts, bool, "all_contexts must be True or False")
        expect(self.profiling, ExternalProfilingOptions | None, "profiling must be ExternalProfilingOptions(...)")
        self._check_dynamic_backends()

    def _check_dynamic_backends(self) -> None:
        expect(self.dynamic_backends_path, _PATH, "dynamic_backends_path must be one path")
        expect(self.backend_allow_list, _PATH | Collection, "backend_allow_list must be a path, or a list of SHA-256")
        expect(self.unload_libraries, bool | None, "unload_libraries must be True, False or None")
        seconds = self.probe_seconds
        if seconds is not None and not 0 <= as_float(seconds, "probe_seconds must be a number") < math.inf:
            raise InvalidArgumentError(f"probe_seconds must not be negative or infinite, as {seconds} is")
