"""Which backends exist: registration by code, and discovery by entry points."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Final, TypeVar

from interposer.backend.base import API_VERSION, Backend, BackendId
from interposer.config import disabled_backends
from interposer.errors import (
    BackendContractError,
    BackendUnavailableError,
    DuplicateBackendError,
    InterposerError,
    UnknownBackendError,
)

__all__ = ["ENTRY_POINTS", "BackendRecord", "BackendRegistry", "DeviceSpec", "checked", "process_registry"]

ENTRY_POINTS: Final = "interposer.backends"
"""The entry-point group under which packages name their backends: ``Id = "package.module:BackendClass"``."""

_T = TypeVar("_T")
Factory = Callable[[], Backend]
_log = logging.getLogger("interposer.backend")


@dataclass(frozen=True, slots=True)
class BackendRecord:
    """What is known of one backend: whether it is available, why not, and where it comes from."""

    id: str
    available: bool
    source: str
    reason: str = ""
    version: str = ""
    capabilities: tuple[tuple[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-compatible data."""
        return {
            "id": self.id,
            "available": self.available,
            "source": self.source,
            "reason": self.reason,
            "version": self.version,
            "capabilities": dict(self.capabilities),
        }


@dataclass(frozen=True, slots=True)
class _Entry:
    load: Callable[[], Factory]
    source: str


class BackendRegistry:
    """The backends that can be asked for by id. A registry with a parent sees the parent's backends too.

    Backends are made on demand, one instance for each registry that is asked. Thread safe.
    """

    def __init__(self, parent: BackendRegistry | None = None, disabled: Iterable[str] = ()) -> None:
        self._parent = parent
        self._disabled = frozenset(disabled)
        self._entries: dict[str, _Entry] = {}
        self._made: dict[str, Backend] = {}
        self._broken: dict[str, str] = {}
        self._lock = threading.RLock()

    def register(self, backend_id: str, factory: Factory, *, source: str = "registered by code") -> None:
        """Add a backend, made by ``factory()`` when it is first needed.

        Raises:
            DuplicateBackendError: the id is taken; names by whom.
            InvalidArgumentError: the id is no valid one.
        """
        self._add(BackendId(backend_id), _Entry(lambda: factory, source))

    def _add(self, backend_id: BackendId, entry: _Entry) -> None:
        with self._lock:
            taken = self._entry(backend_id)
            if taken is not None:
                raise DuplicateBackendError(
                    f"backend {backend_id!r} from {entry.source} is refused: the id is already {taken.source}",
                    backend=backend_id,
                )
            self._entries[backend_id] = entry

    def deregister(self, backend_id: str) -> None:
        """Remove a backend that was registered here; `UnknownBackendError` where it was not."""
        with self._lock:
            if backend_id not in self._entries:
                raise UnknownBackendError(backend_id, self._entries)
            del self._entries[backend_id]
            self._made.pop(backend_id, None)
            self._broken.pop(backend_id, None)

    def _entry(self, backend_id: str) -> _Entry | None:
        own = self._entries.get(backend_id)
        return own if own is not None or self._parent is None else self._parent._entry(backend_id)

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, available or not: the parent's first, then in order of registration."""
        above = self._parent.ids if self._parent is not None else ()
        return (*above, *self._entries)

    def is_registered(self, backend_id: str) -> bool:
        """True where the id is known, available or not."""
        return self._entry(backend_id) is not None

    def __contains__(self, backend_id: object) -> bool:
        return isinstance(backend_id, str) and self.is_registered(backend_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def reason_absent(self, backend_id: str) -> str | None:
        """Why a known backend cannot be used here, or None where it can.

        Raises:
            UnknownBackendError: nobody knows the id.
        """
        try:
            self.get(backend_id)
        except BackendUnavailableError as error:
            return error.reason
        return None

    def get(self, backend_id: str) -> Backend:
        """The backend of this id.

        Raises:
            UnknownBackendError: nobody knows the id.
            BackendUnavailableError: it is known, but absent: disabled, broken, or something it needs is missing.
        """
        with self._lock:
            if backend_id in self._made:
                return self._made[backend_id]
            entry = self._entry(backend_id)
            if entry is None:
                raise UnknownBackendError(backend_id, self.ids)
            if backend_id in self._disabled:
                raise BackendUnavailableError(backend_id, "it is disabled")
            if backend_id not in self._broken:
                return self._make(backend_id, entry)
            raise BackendUnavailableError(backend_id, self._broken[backend_id])

    def _make(self, backend_id: str, entry: _Entry) -> Backend:
        try:
            backend = entry.load()()
            reason = _unusable(backend_id, backend) or backend.unavailable()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            self._broken[backend_id] = reason
            _log.warning("backend %s (%s) is not available: %s", backend_id, entry.source, reason)
            raise BackendUnavailableError(backend_id, reason)
        self._made[backend_id] = backend
        return backend

    def available(self) -> tuple[str, ...]:
        """The ids of the backends that can be used here; CpuRef last."""
        found = [backend_id for backend_id in self.ids if self.reason_absent(backend_id) is None]
        return tuple(sorted(found, key=lambda backend_id: backend_id == "CpuRef"))

    def records(self) -> list[BackendRecord]:
        """One record for each known backend, available or not."""
        return [self._record(backend_id) for backend_id in self.ids]

    def _record(self, backend_id: str) -> BackendRecord:
        entry = self._entry(backend_id)
        source = entry.source if entry is not None else ""
        try:
            backend = self.get(backend_id)
        except BackendUnavailableError as error:
            return BackendRecord(backend_id, False, source, error.reason)
        return BackendRecord(
            backend_id, True, source, "", backend.version, tuple(backend.capabilities.to_dict().items())
        )

    def discover(self) -> None:
        """Add the backends that installed packages name in their entry points; one that cannot be added is logged."""
        found = sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
        for point in found:
            package = point.dist.name if point.dist is not None else point.value
            try:
                self._add(BackendId(point.name), _Entry(point.load, f"entry point of {package}"))
            except InterposerError as error:
                _log.warning("%s", error)


def _unusable(backend_id: str, backend: object) -> str | None:
    if not isinstance(backend, Backend):
        return f"its factory gave {type(backend).__name__}, which is no Backend"
    if backend.id != backend_id:
        return f"it calls itself {backend.id!r}"
    major, minor = backend.api_version
    if major != API_VERSION[0] or minor > API_VERSION[1]:
        here = ".".join(map(str, API_VERSION))
        return f"it needs version {major}.{minor} of the backend interface; this is {here}"
    return None


@cache
def process_registry() -> BackendRegistry:
    """The registry of the whole process, with the backends that entry points name; made on first use."""
    registry = BackendRegistry()
    registry.discover()
    return registry


class DeviceSpec:
    """The backends that a network may be optimized for: those of one registry."""

    def __init__(self, registry: BackendRegistry) -> None:
        self.registry = registry

    @classmethod
    def default(cls) -> DeviceSpec:
        """The process-wide backends, without those that the environment disables."""
        return cls(BackendRegistry(process_registry(), disabled_backends()))

    @property
    def supported_backends(self) -> tuple[str, ...]:
        """The ids of the backends that are available; CpuRef last."""
        return self.registry.available()

    def __str__(self) -> str:
        return f"DeviceSpec(supported_backends=[{', '.join(self.supported_backends)}])"


def checked(answer: object, kind: Callable[..., _T], what: str, backend: str) -> _T:
    """`answer`, if it is of the kind that the interface asks for; else `BackendContractError`."""
    if not isinstance(answer, kind):  # type: ignore[arg-type] # a class; mypy refuses abstract ones as type[_T]
        raise BackendContractError(
            f"{what} of backend {backend!r} gave {type(answer).__name__}; expected {getattr(kind, '__name__', kind)}", backend=backend
        )
    return answer
