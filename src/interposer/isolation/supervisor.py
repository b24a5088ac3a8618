"""`Supervisor`: starts the child process of a backend, restarts it after failures, and finally disables the backend."""

from __future__ import annotations

import base64
import logging
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from interposer.backend.events import CRASHED, QUARANTINED, RESTARTED, BackendEvent
from interposer.core.errors import BackendCrashedError, BackendError, BackendUnavailableError
from interposer.core.types import Array
from interposer.isolation.life import Life
from interposer.isolation.profiling import Stream
from interposer.isolation.regions import Place, Region, aligned, array_bytes
from interposer.isolation.settings import Isolation

__all__ = ["Lasting", "Supervisor"]

_T = TypeVar("_T")
_log = logging.getLogger("interposer.backend.isolated")
ATTEMPTS: Final = 4
"""The number of attempts for one call, regardless of the number of restarts allowed."""


class Lasting(Protocol):
    """The interface of the host's proxies of objects in the child, which are created again after a restart."""

    def ensure(self, life: Life) -> None:
        """Create the object in the child process `life`, unless it exists there already."""


class Supervisor:
    """The child process of one backend, including its restarts. Thread-safe.

    The process is started on first use, also after `close`. Objects in `first` are created in each new process before
    anything else; all others are created on use.
    """

    def __init__(
        self, backend: str, factory: Callable[[], object], how: Isolation, record: Callable[[BackendEvent], None]
    ) -> None:
        self.backend, self.how = backend, how
        self.restarts = 0
        self.quarantine_reason: str | None = None
        self.first: weakref.WeakSet[Any] = weakref.WeakSet()
        self.constants = Constants(self)
        self.stream = Stream(backend)
        """The events of the child process for recorders."""
        self._pickled_backend = _pickled(backend, factory)
        self._record = record
        self._life: Life | None = None
        self._has_crashed = False
        self._lock = threading.RLock()
        self._dropped_objects: list[tuple[str, int]] = []
        _supervisors.add(self)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, action: Callable[[Life], _T]) -> _T:
        """Perform an action with the process; after a crash, repeat it in a new process.

        It is tried `ATTEMPTS` times at most, and only while restarts are left.

        Raises:
            BackendCrashedError: the process failed too often.
            BackendError: the backend raised another exception.
        """
        with self._lock:
            for _ in range(ATTEMPTS - 1):
                try:
                    return self._perform(action)
                except BackendCrashedError:
                    if self.quarantine_reason is not None:
                        raise
            return self._perform(action)

    def _perform(self, action: Callable[[Life], _T]) -> _T:
        life = self._running_life()
        try:
            self._drop(life)
            if self.stream.is_wanted:
                self.stream.connect(life, self.how.deadline_seconds)
            return action(life)
        except BackendCrashedError as error:
            self._note_crash(error)
            raise

    def ask(
        self, request: Mapping[str, Any], request_title: str, *needed: Lasting, arrays: Iterable[Array] = ()
    ) -> dict[str, Any]:
        """Send a request to the process, and return the answer.

        After a crash, repeat it in a new process as `call` does.

        Args:
            request: the request as JSON-compatible data.
            request_title: a description of the request, for error messages.
            needed: proxies whose objects must exist in the process, and are created there before if they do not.
            arrays: arrays that the request refers to, which are copied to shared memory.
        """
        arrays = tuple(arrays)

        def action(life: Life) -> dict[str, Any]:
            for proxy in needed:
                proxy.ensure(life)
            places = {"arrays": self.constants.placed(arrays, life)} if arrays else {}
            return life.ask({**request, **places}, request_title, self.how.deadline_seconds)

        return self.call(action)

    def once(self, action: Callable[[Life], _T]) -> _T:
        """Perform an action with the process and return its result; unlike `call`, do not repeat it after a crash."""
        with self._lock:
            return self._perform(action)

    def _may_not_restart(self) -> bool:
        return self.how.max_restarts is not None and self.restarts >= self.how.max_restarts

    def _running_life(self) -> Life:
        if self._life is not None and not self._life.ended:
            return self._life
        if self.quarantine_reason is not None:
            raise BackendCrashedError(
                f"backend {self.backend!r} is disabled: {self.quarantine_reason}",
                backend=self.backend,
                reason=self.quarantine_reason,
            )
        if self._has_crashed:
            self.restarts += 1
        self._life, self._dropped_objects = None, []
        try:
            self._life = self._restarted_life()
        except BackendCrashedError as error:
            self._note_crash(error)
            raise
        if self._has_crashed:
            self._has_crashed = False
            self._record_event(RESTARTED, f"its child process runs again (restart {self.restarts})")
        return self._life

    def _restarted_life(self) -> Life:
        try:
            life, _ = self.started()
            for proxy in tuple(self.first):
                proxy.ensure(life)
        except BackendCrashedError:
            raise
        except (BackendError, OSError) as error:
            reason = f"could not start again ({error})"
            message = f"the child process of backend {self.backend!r} {reason}"
            raise BackendCrashedError(message, backend=self.backend, reason=reason) from error
        return life

    def started(self) -> tuple[Life, dict[str, Any]]:
        """Start a new child process and create the backend in it; return the process and the backend's description."""
        life = Life(self.backend, self.how.memory_bytes, self.how.start_seconds)
        request = {"do": "make", "backend": self.backend, "factory": self._pickled_backend}
        try:
            return life, life.ask(request, "the start", self.how.start_seconds)
        except BaseException:
            life.kill()
            raise

    def begin(self) -> dict[str, Any]:
        """Start the first process and return the backend's description; a failure is not retried."""
        with self._lock:
            self._life, description = self.started()
            return description

    def _note_crash(self, error: BackendCrashedError) -> None:
        self._has_crashed = True
        self._record_event(CRASHED, str(error), error.layer)
        if self._may_not_restart():
            count_text = f"failed {self.restarts + 1} times; the last time it " if self.restarts else ""
            self.quarantine_reason = f"its child process {count_text}{error.reason}"
            self.constants.clear()
            self._record_event(QUARANTINED, self.quarantine_reason)

    def _record_event(self, kind: str, text: str, layer: str = "") -> None:
        event = BackendEvent(self.backend, kind, text, layer)
        self._record(event)
        _log.warning("%s", event)

    # --- what goes ----------------------------------------------------------------------------------------------------

    def forget(self, owner: object, kind: str, number: int) -> None:
        """Let the process delete its object of this kind and number once `owner` is deleted.

        The kind is "workload", "constant" and so on. `owner` is the host's proxy of the object; it is watched by a weak
        reference.
        """
        weakref.finalize(owner, _drop_later, weakref.ref(self), kind, number).atexit = False

    def drop_later(self, kind: str, number: int) -> None:
        """Schedule the deletion of the process's object of this kind and number for the next call."""
        self._dropped_objects.append((kind, number))

    def _drop(self, life: Life) -> None:
        regions = [("region", number) for number in life.unused_regions()]
        if self._dropped_objects or regions:
            dropped_objects, self._dropped_objects = [*self._dropped_objects, *regions], []
            life.ask(
                {"do": "drop", "gone": dropped_objects}, "the dropping of what is not used", self.how.deadline_seconds
            )

    @property
    def life(self) -> Life | None:
        """The running process, or None."""
        return self._life

    @property
    def running(self) -> bool:
        """True while the process is running."""
        return self._life is not None and not self._life.ended

    def close(self) -> None:
        """End the process; it is started again if the backend is used later."""
        with self._lock:
            life, self._life = self._life, None
            if life is not None:
                life.close()
            self.constants.clear()

    def _forked(self) -> None:
        self._lock = threading.RLock()
        life, self._life = self._life, None
        if life is not None:
            life.abandon()
        self.stream.forked()


class Constants:
    """Copies of constant arrays in shared memory, which the child reads.

    Each array is copied once, and the copy stays until the host deletes the array.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = weakref.ref(supervisor)
        self._regions: dict[int, tuple[Region, int]] = {}

    def placed(self, arrays: Collection[Array], life: Life) -> list[Place]:
        """Return the location of each array in shared memory, which is mapped into the child process `life`.

        New arrays are copied to shared memory first.
        """
        self._add([array for array in arrays if id(array) not in self._regions])
        supervisor = self._supervisor()
        seconds = supervisor.how.deadline_seconds if supervisor is not None else None
        places = []
        for array in arrays:
            region, offset = self._regions[id(array)]
            life.map(region, seconds)
            places.append(region.place(offset, array))
        return places

    def _add(self, arrays: Iterable[Array]) -> None:
        new_arrays = {id(array): array for array in arrays}
        size = sum(aligned(array_bytes(array)) for array in new_arrays.values())
        if not new_arrays:
            return
        region, offset = Region(size, writable=False), 0
        for key, array in new_arrays.items():
            num_bytes = array_bytes(array)
            np.copyto(region.bytes[offset : offset + num_bytes].view(array.dtype).reshape(array.shape), array)
            self._regions[key] = (region, offset)
            weakref.finalize(array, _forget, weakref.ref(self), key).atexit = False
            offset += aligned(num_bytes)

    def clear(self) -> None:
        """Release all arrays; they are copied again when they are needed."""
        self._regions.clear()

    def forget(self, key: int) -> None:
        """Release the shared memory of an array that the host has deleted; `key` is the `id` that the array had."""
        self._regions.pop(key, None)


def _drop_later(reference: weakref.ref[Supervisor], kind: str, number: int) -> None:
    supervisor = reference()
    if supervisor is not None:
        supervisor.drop_later(kind, number)


def _forget(reference: weakref.ref[Constants], key: int) -> None:
    constants = reference()
    if constants is not None:
        constants.forget(key)


def _pickled(backend: str, factory: Callable[[], object]) -> str:
    try:
        pickled_factory = pickle.dumps(factory)
    except Exception as error:
        raise BackendUnavailableError(
            backend,
            f"what makes it, {factory!r}, cannot be handed to a child process ({error}); "
            "register a class or a function of a module, or do not isolate the backend",
        ) from error
    if b"__main__" in pickled_factory:
        raise BackendUnavailableError(
            backend,
            f"{getattr(factory, '__qualname__', factory)!r} is defined in the main program, which a child process does "
            "not run; put it into a module, or do not isolate the backend",
        )
    return base64.b64encode(pickled_factory).decode("ascii")


_supervisors: weakref.WeakSet[Supervisor] = weakref.WeakSet()


def _after_fork() -> None:
    for supervisor in _supervisors:
        supervisor._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
