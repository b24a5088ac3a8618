"""The results as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .ours import FAST_MATH
from .peak import Peak

__all__ = ["KINDS", "Least", "Versus", "least", "markdown", "speed_of_peak", "text", "versus"]

Row = Mapping[str, Any]

KINDS: Final = {
    "float": "float32",
    "qdq": "quantized, with QuantizeLinear and DequantizeLinear",
    "dynamic": "dynamically quantized",
    "decoders": "decoders",
    "tiny": "tiny, by plain calls",
}
"""The groups of networks, and their titles. A geometric mean is reported for each."""
PLAIN: Final = """milliseconds of one plain call, which takes arrays and returns new ones: median (least)
x: how many times as fast as the best of the others, by the medians of rounds"""
TIMES: Final = """milliseconds of one run: median (least)
x: how many times as fast as the best of the others, by the medians of rounds; least: by the least times
of peak: what part of the machine's peak that is, direct sums of products counted
others: what part of all processors other programs used at the same time"""


class Versus:
    """The first engine of a row compared with the fastest of the others, or with a named one.

    `ratio` says how many times as fast the first engine is: the median, over rounds, of the other's time divided by its
    own. With `plain`, plain calls are compared, else the fastest ways to call the engines.
    """

    def __init__(self, ours: Mapping[str, Any], peer: str, theirs: Mapping[str, Any], plain: bool = False) -> None:
        self.peer = peer
        prefix = "plain_" if plain else ""
        pairs = zip(ours[f"{prefix}rounds_ms"], theirs[f"{prefix}rounds_ms"], strict=True)
        self.ratio = statistics.median(their / our for our, their in pairs)
        self.ratio_of_minima = theirs[f"{prefix}min_ms"] / ours[f"{prefix}min_ms"]
        self.milliseconds = _median(ours, plain), _median(theirs, plain)


def _median(figures: Mapping[str, Any], plain: bool) -> float:
    return float(figures["plain_ms" if plain else "median_ms"])


def versus(row: Row, subject: str, peer: str | None = None, plain: bool = False) -> Versus | None:
    """Return the comparison if both engines have run, else None; engines with fast math only if they are named."""
    timed = {name: figures for name, figures in row["engines"].items() if "median_ms" in figures}
    ours = timed.pop(subject, None)
    timed = {
        name: figures
        for name, figures in timed.items()
        if name == peer or (peer is None and not name.endswith(FAST_MATH))
    }
    if ours is None or not timed:
        return None
    best = min(timed, key=lambda name: _median(timed[name], plain))
    return Versus(ours, best, timed[best], plain)


def _counted(row: Row, subject: str, peer: str | None = None) -> Versus | None:
    """Return the comparison that counts in the mean of the row's kind: plain calls of tiny networks."""
    return versus(row, subject, peer, plain=row["kind"] == "tiny")


def speed_of_peak(row: Row, name: str, peaks: Mapping[int, Peak]) -> float | None:
    """Return the fraction of the machine's peak that an engine reached, counting direct operations."""
    figures = row["engines"].get(name, {})
    peak = peaks[row["threads"]].of(row["quantized"])
    if "median_ms" not in figures or not peak:
        return None
    return float(row["operations"]) / (figures["median_ms"] / 1000) / peak


def text(rows: Sequence[Row], engines: Sequence[str], peaks: Mapping[int, Peak]) -> str:
    """Return tables of times, of loading and of memory, and a summary."""
    parts = [
        _peaks(peaks),
        TIMES,
        _table(_titles(engines), [_times(row, engines, peaks) for row in rows]),
        PLAIN,
        _table(["network", "threads", *engines, "x"], [_plain_times(row, engines) for row in rows]),
        "milliseconds from the file to the first answer, without a cache / with one; MB of memory that came with it",
        _table(["network", "threads", *engines], [_loads(row, engines) for row in rows]),
        "\n".join(_summary(rows, engines)),
        "\n".join(_remarks(rows)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _peaks(peaks: Mapping[int, Peak]) -> str:
    lines = []
    for threads, peak in peaks.items():
        integers = f", {peak.int8 / 1e9:.0f} GOP/s of int8" if peak.int8 else ""
        lines.append(f"peak, {_threads(threads)}: {peak.float32 / 1e9:.0f} GFLOP/s of float32{integers} ({peak.how})")
    return "\n".join(lines)


def _titles(engines: Sequence[str]) -> list[str]:
    return ["network", "kind", "threads", *engines, "x", "least", "of peak", "others"]


def _times(row: Row, engines: Sequence[str], peaks: Mapping[int, Peak]) -> list[str]:
    against, share = versus(row, engines[0]), speed_of_peak(row, engines[0], peaks)
    return [
        _title(row),
        row["kind"],
        str(row["threads"]),
        *(_cell(row["engines"].get(name, {})) for name in engines),
        f"{against.ratio:.2f}" if against else "",
        f"{against.ratio_of_minima:.2f}" if against else "",
        f"{share:.0%}" if share else "",
        "" if row["others"] is None else f"{row['others']:.0%}",
    ]


def _plain_times(row: Row, engines: Sequence[str]) -> list[str]:
    against = versus(row, engines[0], plain=True)
    cells = (_cell(row["engines"].get(name, {}), "plain_ms", "plain_min_ms") for name in engines)
    return [_title(row), str(row["threads"]), *cells, f"{against.ratio:.2f}" if against else ""]


def _cell(figures: Mapping[str, Any], median: str = "median_ms", least: str = "min_ms") -> str:
    if median not in figures:
        return "-"
    return f"{_number(figures[median])} ({_number(figures[least])})"


def _number(number: float) -> str:
    """Return a number with three significant digits."""
    return f"{number:.{max(0, 2 - math.floor(math.log10(number)))}f}" if number > 0 else "0"


def _loads(row: Row, engines: Sequence[str]) -> list[str]:
    return [_title(row), str(row["threads"]), *(_load(row["engines"].get(name, {})) for name in engines)]


def _load(figures: Mapping[str, Any]) -> str:
    if "load_cold_ms" not in figures or "memory_bytes" not in figures:
        return "-"
    warm = f" / {_number(figures['load_warm_ms'])}" if "load_warm_ms" in figures else ""
    return f"{_number(figures['load_cold_ms'])}{warm}; {figures['memory_bytes'] / 1e6:.0f}"


def _title(row: Row) -> str:
    return str(row["network"]) if row["batch"] == 1 else f"{row['network']} x{row['batch']}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[k]) for row in [titles, *rows]) for k in range(len(titles))]
    lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in [titles, *rows]]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _summary(rows: Sequence[Row], engines: Sequence[str]) -> Iterator[str]:
    """Yield the geometric means of the first engine's relative speed, and the networks on which it is slower."""
    subject = engines[0]
    for threads in sorted({row["threads"] for row in rows}):
        mine = [row for row in rows if row["threads"] == threads]
        counted_rows = [(row, figures) for row in mine if (figures := _counted(row, subject)) is not None]
        if not counted_rows:
            continue
        mean = _mean([ratio for _, ratio in counted_rows])
        yield f"{subject}, {_threads(threads)}: {mean} as fast as the best of the others"
        for kind, title in KINDS.items():
            if of_kind := [figures for row, figures in counted_rows if row["kind"] == kind]:
                yield f"  {title}: {_mean(of_kind)}, least {min(figures.ratio for figures in of_kind):.2f}"
        for peer in engines[1:]:
            if beside := [figures for row in mine if (figures := _counted(row, subject, peer))]:
                yield f"  as {peer}: {_mean(beside)}"
        losses = [
            f"{_title(row)} ({element.ratio:.2f} of {element.peer})"
            for row, element in counted_rows
            if element.ratio < 1
        ]
        yield f"  slower: {', '.join(losses) or 'nowhere'}"


def _mean(versuses: Sequence[Versus]) -> str:
    mean = statistics.geometric_mean(versus_of_row.ratio for versus_of_row in versuses)
    return f"{mean:.2f} times ({len(versuses)} network{'s' * (len(versuses) != 1)})"


def _remarks(rows: Sequence[Row]) -> Iterator[str]:
    """Yield which engines did not run, and which run differently from what their column says; each once."""
    said: dict[str, None] = {}
    for row in rows:
        for name, figures in row["engines"].items():
            remark = figures.get("failed") or figures.get("note")
            if remark:
                said[f"{_title(row)}, {name}: {remark}"] = None
    yield from said


# --- Markdown ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Least:
    """The least time of the first engine of a row, and that of the fastest of the others, in milliseconds.

    Other programs can only make a run longer. So the least time of many turns says most about an engine.
    """

    network: str
    ours: float
    peer: str
    theirs: float

    @property
    def ratio(self) -> float:
        """How many times as fast the first engine is."""
        return self.theirs / self.ours


def least(row: Row, subject: str) -> Least | None:
    """Return the least times of a row if both engines have run, else None; those of plain calls for tiny networks."""
    name = "plain_min_ms" if row["kind"] == "tiny" else "min_ms"
    times = {
        engine: float(figures[name])
        for engine, figures in row["engines"].items()
        if name in figures and not engine.endswith(FAST_MATH)
    }
    ours = times.pop(subject, None)
    if ours is None or not times:
        return None
    peer = min(times, key=times.__getitem__)
    return Least(_title(row), ours, peer, times[peer])


def markdown(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """Return the tables for the documentation, of least times: the means of each kind, and the rows of each kind."""
    threads = sorted({row["threads"] for row in rows})
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    lines = [
        f"| networks | {' | '.join(f'{_threads(count)}, mean | least' for count in threads)} |",
        "|---|" + "---|---|" * len(threads),
        *(f"| {KINDS[kind]} | {' | '.join(_kind_means(rows, engines[0], kind, threads))} |" for kind in kinds),
    ]
    for kind in kinds:
        mine = [row for row in rows if row["kind"] == kind]
        columns = [f"{engines[0]}, {_threads(count)} | best other | times as fast" for count in threads]
        lines += ["", f"| {KINDS[kind]} | {' | '.join(columns)} |", "|---|" + "---|---|---|" * len(threads)]
        for title in dict.fromkeys(map(_title, mine)):
            cells = [_compared([row for row in mine if _title(row) == title], engines[0], count) for count in threads]
            lines.append(f"| `{title.replace(' x', '` x ') if ' x' in title else title + '`'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _kind_means(rows: Sequence[Row], subject: str, kind: str, threads: Sequence[int]) -> Iterator[str]:
    for count in threads:
        mine = [row for row in rows if row["kind"] == kind and row["threads"] == count]
        ratios = [times.ratio for row in mine if (times := least(row, subject))]
        yield f"{statistics.geometric_mean(ratios):.2f} | {min(ratios):.2f}" if ratios else "- | -"


def _compared(rows: Sequence[Row], subject: str, threads: int) -> str:
    times = next((least(row, subject) for row in rows if row["threads"] == threads), None)
    if times is None:
        return "- | - | -"
    return f"{_number(times.ours)} | {_number(times.theirs)} {times.peer} | {times.ratio:.2f}"
