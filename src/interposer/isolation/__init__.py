"""Isolation of backends in child processes with shared memory; a crash of the child is an error in the host."""

from __future__ import annotations

import sys
from collections.abc import Callable

from interposer.backend.base import Backend
from interposer.backend.events import CRASHED, ENABLED_AGAIN, QUARANTINED, REPLACED, RESTARTED, BackendEvent
from interposer.core.errors import BackendUnavailableError
from interposer.isolation.settings import Isolation, requested_isolations

__all__ = [
    "CRASHED",
    "ENABLED_AGAIN",
    "QUARANTINED",
    "REPLACED",
    "RESTARTED",
    "BackendEvent",
    "Isolation",
    "end_process",
    "isolated_backend",
    "requested_isolations",
]


def isolated_backend(
    backend_id: str,
    factory: Callable[[], object],
    how: Isolation | None = None,
    record: Callable[[BackendEvent], None] = lambda event: None,
) -> Backend:
    """Return a backend that runs in a child process, which is started here.

    Args:
        backend_id: the id of the backend.
        factory: a class or function of a module, or any object that can be pickled. It creates the backend in the
            child and is never called in the host.
        how: deadlines, restarts and limits; None means the defaults of `Isolation`.
        record: called with an event for every crash and restart.

    Raises:
        BackendUnavailableError: the platform is not Linux, the factory cannot be pickled, or the backend cannot be
            created in the child or reports that it is not available there.
    """
    if sys.platform != "linux":
        raise BackendUnavailableError(backend_id, f"isolation works on Linux only, and this is {sys.platform}")
    from interposer.isolation.backend import IsolatedBackend  # noqa: PLC0415 - only where it can work

    return IsolatedBackend(backend_id, factory, how, record)


def end_process(backend: Backend) -> None:
    """End the child process of an isolated backend; the process is started again if the backend is used later."""
    if sys.platform == "linux":
        from interposer.isolation.backend import IsolatedBackend  # noqa: PLC0415

        if isinstance(backend, IsolatedBackend):
            backend.close()
