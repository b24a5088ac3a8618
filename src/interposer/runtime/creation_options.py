"""How a runtime is created."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from interposer.backend import CustomAllocator, Options
from interposer.backend.ids import listed_ids
from interposer.core.errors import InvalidArgumentError, expect
from interposer.isolation import Isolation, requested_isolations

__all__ = ["CreationOptions"]

_PATH: Any = str | PathLike | None  # for isinstance


@dataclass(frozen=True)
class CreationOptions:
    """Options of `Runtime`.

    Args:
        backend_options: for backends by id, options that their contexts are created with.
        disabled_backends: ids of backends to leave out (or one id), beside those that the environment variable
            ``INTERPOSER_DISABLED_BACKENDS`` names.
        dynamic_backends_path: the absolute path of the one folder in which backends in shared objects are looked for,
            in place of the list in ``INTERPOSER_BACKEND_PATH``; an empty path looks nowhere.
        backend_allow_list: the SHA-256 of each shared object that may be loaded, or the path of a file with them, as
            ``sha256sum`` writes it; None allows all, unless ``INTERPOSER_BACKEND_ALLOW_LIST`` names a file.
        probe_seconds: how long a shared object that was not seen before may take when it is tried out in a process of
            its own, 30 as a rule; 0 loads it without a trial.
        unload_libraries: whether shared objects leave the process with the last runtime that uses them; they are shut
            down then in any case.
        isolate: ids of backends to run in child processes (or one id), or for each id an `Isolation` with its deadline
            and limits; None means those that ``INTERPOSER_ISOLATE`` or ``interposer.toml`` name.
        num_threads: how many runs that were submitted go on at a time; None means what ``INTERPOSER_NUM_THREADS`` or
            ``interposer.toml`` say, else the processors there are. Backends take these, too, or options of their own.
        custom_allocators: for backends by id, where the memory of their tensors comes from.
        protected_mode: whether only backends are used that keep tensors in protected memory, which the processor cannot
            read: those with the capability ``ProtectedContentAllocation`` and a custom allocator of such memory.
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

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "disabled_backends", listed_ids(self.disabled_backends, "disabled_backends: backends", ordered=False)
        )
        expect(self.backend_options, Mapping, "backend_options must be a mapping from backend's id to its options")
        for backend, value in self.backend_options.items():
            expect(value, Mapping, f"the options of backend {backend!r} must be a mapping")
        if self.isolate is not None:
            requested_isolations(self.isolate)
        expect(self.num_threads, int | None, "num_threads must be a whole number")
        if self.num_threads is not None and self.num_threads < 1:
            raise InvalidArgumentError(f"num_threads must be 1 or more, not {self.num_threads}")
        expect(self.custom_allocators, Mapping, "custom_allocators must be a mapping from backend's id to an allocator")
        for backend, allocator in self.custom_allocators.items():
            expect(allocator, CustomAllocator, f"the custom allocator of backend {backend!r} must be a CustomAllocator")
        expect(self.protected_mode, bool, "protected_mode must be True or False")
        self._check_dynamic_backends()

    def _check_dynamic_backends(self) -> None:
        expect(self.dynamic_backends_path, _PATH, "dynamic_backends_path must be one path")
        expect(self.backend_allow_list, _PATH | Collection, "backend_allow_list must be a path, or a list of SHA-256")
        expect(self.unload_libraries, bool | None, "unload_libraries must be True, False or None")
        seconds = self.probe_seconds
        expect(seconds, int | float | None, "probe_seconds must be a number")
        if seconds is not None and not 0 <= seconds < math.inf:
            raise InvalidArgumentError(f"probe_seconds must not be negative or infinite, as {seconds} is")
