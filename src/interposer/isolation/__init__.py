"""Backends in child processes, over shared memory: what goes wrong there is an error here."""

from __future__ import annotations

import sys
from collections.abc import Callable

from interposer.backend.base import Backend
from interposer.backend.events import CRASHED, PLACED_ANEW, QUARANTINED, RESTARTED, TAKEN_BACK, BackendEvent
from interposer.core.errors import BackendUnavailableError
from interposer.isolation.settings import Isolation, requested_isolations

__all__ = [
    "CRASHED",
    "PLACED_ANEW",
    "QUARANTINED",
    "RESTARTED",
    "TAKEN_BACK",
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
    """Return a backend that runs in a child process, started here; `factory` makes it there, and is never called here.

    Args:
        backend_id: what the backend calls itself.
        factory: a class or function of a module, or anything else that can be pickled.
        how: deadlines, restarts and limits.
        record: is told of every crash and restart.

    Raises:
        BackendUnavailableError: this is not Linux, the factory cannot be handed to another process, or the backend
            cannot be made there or says that it cannot work here.
    """
    if sys.platform != "linux":
        raise BackendUnavailableError(backend_id, f"isolation works on Linux only, and this is {sys.platform}")
    from interposer.isolation.backend import IsolatedBackend  # noqa: PLC0415 - only where it can work

    return IsolatedBackend(backend_id, factory, how, record)


def end_process(backend: Backend) -> None:
    """End the child process of a backend that is isolated; it is started again if the backend is still used."""
    if sys.platform == "linux":
        from interposer.isolation.backend import IsolatedBackend  # noqa: PLC0415

        if isinstance(backend, IsolatedBackend):
            backend.close()
