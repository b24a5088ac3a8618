"""Reports of what bridges took of the networks of their hosts, in the host's names."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final

from interposer.bridges.claims import Claims, Group, nodes_of
from interposer.core.records import dataclass

__all__ = ["NodeReport", "PartReport", "Report", "add_report", "reports"]

MOST: Final = 100
"""The number of reports that a process keeps; the oldest are dropped first."""
_log: Final = logging.getLogger("interposer.bridges")
_reports: Final[deque[Report]] = deque(maxlen=MOST)
_lock: Final = threading.Lock()


@dataclass(frozen=True)
class NodeReport:
    """A node of the host: its name and operator, the part that runs it, and the reasons if it is left to the host.

    `part` counts from 1; it is 0 for a node of the host, and `backends` is empty then. A taken node without backends
    was computed from constants when it was compiled.
    """

    name: str
    kind: str
    part: int
    backends: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(eq=False)
class PartReport:
    """A part that the host runs as one node.

    `count` is the number of its nodes, and `backends` are those that run its layers. `seconds` is how long it took to
    compile, and `copies` describes the tensors that each run copies between backends. `is_dynamic` is True if shapes
    are only known in a run. `counters` returns the number of runs, how many of them needed no Python, and the seconds
    of all runs.
    """

    count: int
    backends: tuple[str, ...]
    seconds: float
    copies: tuple[str, ...]
    is_dynamic: bool
    counters: Callable[[], tuple[int, int, float]] = field(default=lambda: (0, 0, 0.0), repr=False)
    events: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Report:
    """What a bridge took of one network of a host: `nodes` in the order of the host, and `parts`.

    `host` is the name and version of the host, `network` the name of the network, which may be empty. `seconds` is how
    long the backends were asked and compiled. Print `explain`, or use `to_dict`.
    """

    host: str
    network: str
    backends: tuple[str, ...]
    nodes: tuple[NodeReport, ...]
    parts: tuple[PartReport, ...]
    seconds: float

    @classmethod
    def of(cls, host: str, claimed: Claims) -> Report:
        """Return the report of claims."""
        numbers = {n: number for number, group in enumerate(claimed.groups, 1) for n in group.members}
        backends = _backends_of_nodes(claimed.groups)
        nodes = tuple(
            NodeReport(node.name, node.kind, numbers.get(n, 0), backends.get(n, ()), claimed.reasons.get(n, ()))
            for n, node in enumerate(claimed.graph.nodes)
        )
        parts = tuple(map(_part, claimed.groups))
        return cls(host, claimed.graph.name, claimed.backends, nodes, parts, claimed.seconds)

    @property
    def taken(self) -> tuple[NodeReport, ...]:
        """The nodes that the bridge runs."""
        return tuple(node for node in self.nodes if node.part)

    @property
    def refused(self) -> tuple[NodeReport, ...]:
        """The nodes that are left to the host, each with reasons."""
        return tuple(node for node in self.nodes if not node.part)

    def explain(self) -> str:
        """Return the report as text: a summary, the parts with their runs, and a row for each node."""
        head = f"network {self.network!r} in {self.host}" if self.network else f"a network in {self.host}"
        lines = [
            f"{head}: {len(self.taken)} of {len(self.nodes)} nodes taken, in {_counted(len(self.parts), 'part')}",
            f"  backends: {', '.join(self.backends)}; asked and compiled in {self.seconds:.3f} s",
        ]
        for number, part in enumerate(self.parts, 1):
            lines += _part_lines(number, part)
        return "\n".join([*lines, "", *_table(self.nodes)])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "host": self.host,
            "network": self.network,
            "backends": list(self.backends),
            "seconds": self.seconds,
            "nodes": [
                {
                    "name": node.name,
                    "operator": node.kind,
                    "part": node.part or None,
                    "backends": list(node.backends),
                    "reasons": list(node.reasons),
                }
                for node in self.nodes
            ],
            "parts": [_part_dict(part) for part in self.parts],
        }

    def __str__(self) -> str:
        return self.explain()


def reports() -> tuple[Report, ...]:
    """Return the reports of the networks that hosts have loaded in this process, the latest last; at most 100."""
    with _lock:
        return tuple(_reports)


def add_report(report: Report, path: str = "") -> None:
    """Add a report to `reports`, log its summary, and append it to the file `path` unless that is empty."""
    with _lock:
        _reports.append(report)
    _log.info("%s", report.explain().splitlines()[0])
    if path:
        _append(path, report)


def _append(path: str, report: Report) -> None:
    """Append a report to a file; a file that cannot be written is logged, as the network runs without it."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{report.explain()}\n\n")
    except OSError as error:
        _log.warning("the report cannot be written to %s: %s", path, error)


def _backends_of_nodes(groups: Sequence[Group]) -> dict[int, tuple[str, ...]]:
    backends: dict[int, dict[str, None]] = {}
    for group in groups:
        for placement in group.optimized.placements:
            own_nodes = group.members if group.is_stored else nodes_of(placement.layer, placement.replaced)
            for n in own_nodes:
                backends.setdefault(n, {})[placement.backend] = None
    return {n: tuple(ids) for n, ids in backends.items()}


def _part(group: Group) -> PartReport:
    used_backends = dict.fromkeys(placement.backend for placement in group.optimized.placements)
    copies = tuple(
        f"{copy.value} ({copy.info}) from {copy.source or 'the host'} to {copy.target or 'the host'}"
        for copy in group.optimized.copies
    )
    return PartReport(len(group.members), tuple(used_backends), group.seconds, copies, group.is_dynamic)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _part_lines(number: int, part: PartReport) -> list[str]:
    runs, direct, seconds = part.counters()
    shapes = ", compiled for each set of shapes" if part.is_dynamic else ""
    where = f"{_counted(part.count, 'node')} on {', '.join(part.backends)}"
    lines = [f"  part {number}: {where}, compiled in {part.seconds:.3f} s{shapes}"]
    if runs:
        lines.append(
            f"    {_counted(runs, 'run')}, {direct} of them without Python, {seconds / runs * 1e6:,.1f} us each"
        )
    return lines + [f"    copied in each run: {copy}" for copy in part.copies] + [f"    {text}" for text in part.events]


def _part_dict(part: PartReport) -> dict[str, Any]:
    runs, direct, seconds = part.counters()
    return {
        "nodes": part.count,
        "backends": list(part.backends),
        "compile_seconds": part.seconds,
        "dynamic": part.is_dynamic,
        "copies": list(part.copies),
        "events": list(part.events),
        "runs": runs,
        "direct_runs": direct,
        "run_seconds": seconds,
    }


def _table(nodes: Sequence[NodeReport]) -> list[str]:
    rows = [("node", "operator", "runs in", "reason")]
    rows += [(node.name, node.kind, _where(node), "; ".join(node.reasons)) for node in nodes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]).rstrip()
            for row in rows]  # fmt: skip


def _where(node: NodeReport) -> str:
    if not node.part:
        return "the host"
    return f"part {node.part}, {' and '.join(node.backends) or 'as a constant'}"
