"""The worker's side: a process that runs tasks in sequence until it receives a stop message or crashes."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Protocol

from interposer.backend import Backend, Options
from interposer.core.errors import InterposerError, InvalidArgumentError, as_int, did_you_mean, expect
from interposer.core.records import dataclass
from interposer.optimizer.optimizer_options import check_seconds
from interposer.testing.judge.channel import Channel
from interposer.testing.judge.seat import Seat
from interposer.testing.replay import Factory, backend_of
from interposer.testing.tolerances import Tolerances

__all__ = ["DONE", "Broken", "Setup", "Task", "Workplace", "check_limits", "named_backends", "restrict", "serve"]

DONE: Final = "done"
"""The message that a worker sends after the last result of a task."""
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_ROOM: Final = 4
"""The limit of reserved address space, as a multiple of the memory limit of a worker."""


@dataclass(frozen=True)
class Setup:
    """The data from which a worker creates the backends under test.

    Args:
        backends: in order of preference: ids, ``module:Class``, paths of shared objects, or factory functions.
        options: model options by backend id.
        tolerances: the allowed differences for one layer.
        memory: the bytes of memory that a worker may use beyond its use at the start.
        formats: whether networks are also written as model files, which needs packages that are slow to import.
    """

    backends: tuple[str | Factory, ...]
    options: Mapping[str, Options] = field(default_factory=dict)
    tolerances: Tolerances = field(default_factory=lambda: Tolerances(steps=0))
    memory: int = 2 << 30
    formats: bool = True


def named_backends(backends: str | Factory | Sequence[str | Factory]) -> tuple[str | Factory, ...]:
    """Return one backend, or several in order of preference, as a tuple.

    Raises:
        InvalidArgumentError: there is no backend, or one of them is neither a string nor a callable.
    """
    in_order = (backends,) if isinstance(backends, str) or callable(backends) else backends
    expect(in_order, Sequence, "backends must be an id or a function, or a list of these")
    if not in_order:
        raise InvalidArgumentError("no backend was given; name one, or several in order of preference")
    for backend in in_order:
        if not isinstance(backend, str) and not callable(backend):
            raise InvalidArgumentError(f"a backend must be given by an id or a function, not {backend!r}")
    return tuple(in_order)


def check_limits(seconds: float, memory: int) -> None:
    """Raise `InvalidArgumentError` unless both limits are numbers above 0."""
    check_seconds("seconds", seconds)
    as_int(memory, "memory must be an integer, in bytes")
    if memory < 1:
        raise InvalidArgumentError(f"memory is {memory} bytes; expected at least 1")


@dataclass(frozen=True)
class Broken:
    """The message that a worker sends to its parent if it cannot create the backends under test."""

    error: InterposerError


class Workplace:
    """What a worker process provides to its tasks: the `Setup`, and the `Seat` on which they run networks.

    The seat is created by the first task that needs it.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @cached_property
    def seat(self) -> Seat:
        """The `Seat` of this worker, with the backends under test; created on first use.

        Raises:
            InterposerError: a backend cannot be created, or refuses its options.
        """
        backends = _by_id([backend_of(backend) for backend in self.setup.backends])
        for name, options in self.setup.options.items():
            if name not in backends:
                suggestion = did_you_mean(name, backends)
                raise InvalidArgumentError(
                    f"options are given for backend {name!r}, which is not under test{suggestion}"
                )
            backends[name].layer_support(options)
        return Seat(list(backends.values()), self.setup.options, self.setup.tolerances)


def _by_id(backends: Sequence[Backend]) -> dict[str, Backend]:
    backend_of_id = {backend.id: backend for backend in backends}
    if len(backend_of_id) < len(backends):
        ids = ", ".join(backend.id for backend in backends)
        raise InvalidArgumentError(f"every backend can be given only once, but these are given: {ids}")
    return backend_of_id


class Task(Protocol):
    """The interface of work that a worker process receives, for example to judge one network."""

    def results(self, workplace: Workplace) -> Iterator[Any]:
        """Do the work, and yield each result as soon as it is known; the worker sends it to the parent process."""


def serve(channel: Channel, setup: Setup) -> None:
    """Receive tasks and send their results, in a worker process, until None is received or the other end is closed."""
    workplace = Workplace(setup)
    with suppress(EOFError, OSError):
        while (task := channel.receive()) is not None:
            _carry_out(task, channel, workplace)


def _carry_out(task: Task, channel: Channel, workplace: Workplace) -> None:
    try:
        workplace.seat  # noqa: B018 - makes it
    except InterposerError as error:
        channel.send(Broken(error))
        return
    for result in task.results(workplace):
        channel.send(result)
    channel.send(DONE)


def restrict(memory: int) -> None:
    """Let this process end with its parent, write no core file, and reserve at most this much more memory.

    `memory` is in bytes, beyond what the process has reserved already.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves terabytes of addresses
            limit = _reserved() + _ROOM * memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _reserved() -> int:
    """Return the size of this process's address space, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
