"""The events of a profile: intervals, instants and samples of counters, on the host's monotonic clock."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any

from interposer.core.records import dataclass

__all__ = [
    "Category",
    "Counter",
    "CounterClass",
    "ForeignThread",
    "HeldTensor",
    "Holding",
    "Instant",
    "Interval",
    "Sample",
    "Site",
    "TracedNetwork",
]


class Category(StrEnum):
    """What an interval or instant is about."""

    OPTIMIZE = "optimize"
    """A step of the optimizer, such as a rewrite, or the compilation of a partition by its backend."""
    LOAD = "load"
    """A step of loading a network into a runtime, or of unloading it."""
    RUN = "run"
    """One run of a network, from its checked inputs to its outputs."""
    EXECUTE = "execute"
    """The layers of a run, without the inputs and outputs of the caller."""
    LAYER = "layer"
    """A layer that runs: one operator, or a fused or compiled partition."""
    COPY = "copy"
    """A copy of a tensor between backends, or between the caller and a backend."""
    MEMORY = "memory"
    """The allocation or release of memory."""
    KERNEL = "kernel"
    """A step inside a layer that a backend or an engine measured itself."""
    BACKEND = "backend"
    """Anything else that a backend reports."""
    USER = "user"
    """An interval of the program that uses Interposer."""


@dataclass(frozen=True, slots=True)
class TracedNetwork:
    """A loaded network in a profile: its name, its id in its runtime, and a number that is unique in the process."""

    name: str
    id: int
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The place in a network or program that an event is about; many events share one site.

    `kind` is the operator of a layer. `layer` is its full name, with the names of regions around it, and `layers` has
    the names of the original layers that run in it. `partition` names the partition of the network that the layer is
    in. `sources` are the layers that computed its inputs. `bytes` are read and written, and `flops` computed, in one
    run; both are None if they are unknown.
    """

    category: Category
    name: str
    kind: str = ""
    network: TracedNetwork | None = None
    layer: str = ""
    partition: str = ""
    backend: str = ""
    device: str = ""
    layers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    bytes: int | None = None
    flops: int | None = None
    details: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the known facts about the site as JSON-compatible data."""
        network = self.network
        facts: dict[str, Any] = {
            "network": None if network is None else network.name,
            "network_id": None if network is None else network.id,
            "kind": self.kind,
            "layer": self.layer,
            "layers": list(self.layers),
            "partition": self.partition,
            "backend": self.backend,
            "device": self.device,
            "bytes": self.bytes,
            "flops": self.flops,
            **dict(self.details),
        }
        return {name: value for name, value in facts.items() if value not in (None, "", [])}


@dataclass(frozen=True, slots=True)
class ForeignThread:
    """A thread of another process, such as the child process of an isolated backend.

    `process` is the id of that process, and `process_name` describes it. `native_id` is the number by which the
    operating system knows the thread.
    """

    process: int
    process_name: str
    name: str
    native_id: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Something that took time: from `begin` to `end`, in nanoseconds of `time.perf_counter_ns` on the host.

    `thread` is the id of the thread (`threading.get_ident`), or the key in `Recording.foreign` of a thread of another
    process. `run` is unique in the process, and `inference` counts
    the recorded runs of the network from 0; both are -1 if the interval belongs to no run. The times of a device are
    converted to the host's clock.
    """

    site: Site
    begin: int
    end: int
    thread: int
    run: int = -1
    inference: int = -1

    @property
    def duration(self) -> int:
        """The length in nanoseconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Instant:
    """Something that happened at a moment `at`; the other attributes are those of an `Interval`."""

    site: Site
    at: int
    thread: int
    run: int = -1
    inference: int = -1


class CounterClass(StrEnum):
    """How the samples of a counter are to be read."""

    VALUE = "value"
    """Each sample is the value at that moment, such as the bytes in use."""
    RATE = "rate"
    """Each sample is an amount per second."""
    EVENT = "event"
    """Each sample is the number of events since the previous one."""


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """A number that is sampled over time, with the unit in which it is counted, such as "bytes".

    `number` is unique in its runtime among the counters of backends, and 0 for other counters. If each of several
    `cores` is counted separately, there is a counter of each `core`, with numbers that follow each other.
    """

    name: str
    units: str
    kind: CounterClass = CounterClass.VALUE
    description: str = ""
    backend: str = ""
    device: str = ""
    category: str = ""
    number: int = 0
    multiplier: float = 1.0
    details: tuple[tuple[str, str], ...] = field(default=())
    core: int = 0
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a counter at a moment, in nanoseconds of the host's clock."""

    counter: Counter
    at: int
    value: float
    thread: int = 0


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor, constant or workspace in memory that a network holds.

    `layer` is the layer that computes it, has it as a constant, or works in it. `offset` is its place in an arena in
    bytes. It is live from the moment `begins` to `ends` of a run; the moments of an arena count the begins and ends of
    all lifetimes.
    """

    name: str
    layer: str
    bytes: int
    offset: int = 0
    begins: int = 0
    ends: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What a network holds in the memory that a counter counts: the tensors of an arena, its constants or workspaces.

    `kind` is "arena", "constants" or "workspaces", and `bytes` the size of all together. `backend` is empty if several
    backends share them.
    """

    counter: Counter
    network: TracedNetwork
    kind: str
    backend: str
    bytes: int
    tensors: tuple[HeldTensor, ...]
