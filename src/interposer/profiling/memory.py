"""The memory of a recording: its bytes over time, and the owners of the peak by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.profiling.events import Category, Counter, CounterClass, HeldTensor, Holding, Sample
from interposer.profiling.recorder import Recording
from interposer.profiling.summary import cell

__all__ = ["MemoryOwner", "MemoryProfile", "memory_of", "memory_samples"]

_TOTAL: Final = "memory"
_ROWS: Final = 20
UNUSED: Final = "(no tensor)"
"""The layer of the bytes of an arena that no tensor uses at its peak."""


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """Bytes that a tensor had at the peak of the memory.

    `kind` is "arena", "constants" or "workspaces". `layer` is the layer that computes the tensor, has the constant, or
    uses the workspace.
    """

    network: str
    kind: str
    backend: str
    layer: str
    tensor: str
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True)
class MemoryProfile:
    """The memory of all recorded networks: pairs of time and bytes, the peak in bytes, and its owners, largest first.

    Times are in nanoseconds of `time.perf_counter_ns`. `peak_at` is the moment of the peak.
    """

    over_time: tuple[tuple[int, int], ...] = ()
    peak: int = 0
    peak_at: int = 0
    owners: tuple[MemoryOwner, ...] = ()

    def by_layer(self) -> dict[tuple[str, str], int]:
        """Return the bytes at the peak by network and layer, the largest first."""
        bytes_by_layer: dict[tuple[str, str], int] = {}
        for owner in self.owners:
            key = owner.network, owner.layer
            bytes_by_layer[key] = bytes_by_layer.get(key, 0) + owner.bytes
        return dict(sorted(bytes_by_layer.items(), key=lambda entry: -entry[1]))

    def to_dict(self) -> dict[str, Any]:
        """Return the peak and its owners as JSON-compatible data."""
        return {"peak_bytes": self.peak, "owners": [owner.to_dict() for owner in self.owners]}

    def rows(self, most: int = _ROWS) -> list[list[str]]:
        """Return the cells of a table of the owners: layer, tensor, kind, backend, bytes and share."""
        rows = [[*_named(owner), f"{owner.bytes:,}", f"{owner.bytes / self.peak:.1%}"] for owner in self.owners[:most]]
        rest_bytes = sum(owner.bytes for owner in self.owners[most:])
        if rest_bytes:
            rows.append(
                [f"{len(self.owners) - most} more", "", "", "", f"{rest_bytes:,}", f"{rest_bytes / self.peak:.1%}"]
            )
        return rows

    def __str__(self) -> str:
        lines = [f"peak of the memory: {self.peak:,} bytes"]
        if self.owners:
            lines.append(f"{'layer':32} {'tensor':24} {'kind':10} {'backend':12} {'bytes':>14} {'share':>6}")
        for layer, tensor, kind, backend, size, share in self.rows():
            names = f"{cell(layer, 32)} {cell(tensor, 24)} {kind:10} {cell(backend, 12)}"
            lines.append(f"{names} {size:>14} {share:>6}")
        return "\n".join(lines)


def _named(owner: MemoryOwner) -> tuple[str, ...]:
    return owner.layer, owner.tensor, owner.kind, owner.backend


def memory_of(recording: Recording) -> MemoryProfile:
    """Return the memory of a recording."""
    bytes_of_counter: dict[Counter, float] = {}
    over_time: list[tuple[int, int]] = []
    peak, peak_at, bytes_at_peak = 0, 0, dict[Counter, float]()
    for sample in _samples(recording):
        bytes_of_counter[sample.counter] = sample.value
        total = int(sum(bytes_of_counter.values()))
        over_time.append((sample.at, total))
        if total > peak:
            peak, peak_at, bytes_at_peak = total, sample.at, dict(bytes_of_counter)
    holdings = {holding.counter: holding for holding in recording.holdings}
    owners = [
        owner
        for counter, value in bytes_at_peak.items()
        if value
        for owner in _owners(counter, holdings.get(counter), int(value))
    ]
    return MemoryProfile(tuple(over_time), peak, peak_at, tuple(sorted(owners, key=lambda owner: -owner.bytes)))


def _samples(recording: Recording) -> Iterator[Sample]:
    return (
        sample for sample in recording.samples if sample.counter.category == _TOTAL and sample.counter.units == "bytes"
    )


def _owners(counter: Counter, holding: Holding | None, size: int) -> Iterator[MemoryOwner]:
    """Yield the owners of bytes, of which a holding lists the tensors."""
    if holding is None:
        yield MemoryOwner("", counter.name, "", UNUSED, "", size)
        return
    network, kind, backend = holding.network.name, holding.kind, holding.backend
    tensors = live_at_peak(holding.tensors) if kind == "arena" else holding.tensors
    copies = max(1, round(size / holding.bytes)) if holding.bytes else 1  # one for each concurrent run
    for tensor in tensors:
        if tensor.bytes:
            yield MemoryOwner(network, kind, backend, tensor.layer, tensor.name, tensor.bytes * copies)
    unused_bytes = size - copies * sum(tensor.bytes for tensor in tensors)
    if unused_bytes > 0:
        yield MemoryOwner(network, kind, backend, UNUSED, "", unused_bytes)


def live_at_peak(tensors: Sequence[HeldTensor]) -> list[HeldTensor]:
    """Return the tensors of an arena that are live at the moment at which these have most bytes."""
    live_bytes = _live_bytes(tensors)
    peak_moment = max(live_bytes, key=live_bytes.__getitem__, default=0)
    return [tensor for tensor in tensors if tensor.begins <= peak_moment <= tensor.ends]


def _live_bytes(tensors: Sequence[HeldTensor]) -> dict[int, int]:
    """Return the bytes of the live tensors at each moment at which one begins."""
    changes = [(tensor.begins, tensor.bytes) for tensor in tensors] + [
        (tensor.ends + 1, -tensor.bytes) for tensor in tensors
    ]
    bytes_at_moment, total_bytes = dict[int, int](), 0
    for moment, change in sorted(changes):  # at one moment, tensors end before others begin
        total_bytes += change
        if change >= 0:
            bytes_at_moment[moment] = total_bytes
    return bytes_at_moment


def memory_samples(recording: Recording) -> list[Sample]:
    """Return the samples of counters that a recording implies: all memory, and the live tensors in runs of networks."""
    total = Counter(_TOTAL, "bytes", CounterClass.VALUE, "the memory of all networks")
    return [*(Sample(total, at, size) for at, size in memory_of(recording).over_time), *_live(recording)]


def _live(recording: Recording) -> Iterator[Sample]:
    """Yield the bytes of the tensors that are live in the arenas of a network, for each layer that runs."""
    live_bytes_of_network: dict[object, dict[str, int]] = {}
    for holding in recording.holdings:
        if holding.kind == "arena":
            bytes_of_layer, live_bytes = (
                live_bytes_of_network.setdefault(holding.network, {}),
                _live_bytes(holding.tensors),
            )
            bytes_of_layer |= {
                tensor.layer: max(bytes_of_layer.get(tensor.layer, 0), live_bytes[tensor.begins])
                for tensor in holding.tensors
            }
    counters = {
        network: Counter(f"{getattr(network, 'name', '')}: live tensors", "bytes") for network in live_bytes_of_network
    }
    for interval in recording.intervals:
        network = interval.site.network
        if network not in live_bytes_of_network:
            continue
        if interval.site.category is Category.RUN:
            yield Sample(counters[network], interval.end, 0)
        elif interval.site.layer in live_bytes_of_network[network]:
            yield Sample(counters[network], interval.begin, live_bytes_of_network[network][interval.site.layer])
