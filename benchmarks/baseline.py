"""Compares the figures of a benchmark with recorded ones.

    python benchmarks/run.py compare NEW.json [--baseline OLD.json] [--limit 1.1]

NEW.json is what a suite wrote (with `--json`, or `engines.json` in the folder of results), or what the native
benchmarks wrote with `--benchmark_out`. The baseline is the file of the same name in benchmarks/baselines unless
another is named. Every figure is divided by the recorded one. Figures that became worse by more than the limit are
listed first. The exit status is 1 if there are any, and 2 if the files cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "baselines"
"""Where the recorded figures are."""
MORE_IS_BETTER: Final = ("a second", "per_second", "per_cycle", "speedup")
"""Figures whose names contain one of these are better if they are greater."""
DESCRIPTIONS: Final = ("machine", "recorded", "context", "peaks")
"""Entries that describe a run, and hold no figures to compare."""

FIGURES: Final = ("median_ms", "plain_ms", "load_cold_ms", "memory_bytes", "seconds", "resident", "peak")
"""The figures of an engine in the rows of `engines` and `loading`."""

Figures = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    """Print how the figures of a run differ from recorded ones, and return the exit status."""
    args = _parser().parse_args(arguments)
    baseline = args.baseline or FOLDER / args.new.name
    try:
        old, new = _read(baseline), _read(args.new)
        changes = compare(_figures(baseline, old), _figures(args.new, new))
    except (OSError, ValueError) as error:
        print(f"cannot compare: {error}", file=sys.stderr)
        return 2
    if old.get("machine") != new.get("machine"):
        print(f"the machines differ: {old.get('machine')} before, {new.get('machine')} now\n")
    if not changes:
        print(f"cannot compare: {baseline} and {args.new} have no figure in common", file=sys.stderr)
        return 2
    print(report(changes, args.limit))
    return int(any(change > args.limit for change in changes.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("new", type=Path, help="JSON file of the new run")
    parser.add_argument("--baseline", type=Path, default=None, help="JSON file to compare with")
    parser.add_argument("--limit", type=float, default=1.1, help="list figures that are worse by this factor")
    return parser


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds a {type(record).__name__}; expected an object with figures")
    return record


def _figures(path: Path, record: Mapping[str, Any]) -> Figures:
    try:
        return figures(record)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def figures(record: Mapping[str, Any]) -> Figures:
    """Return all figures of a record by their names; a name is the path to the figure in the file."""
    if "benchmarks" in record:
        benchmarks = _objects(record, "benchmarks")
        return {
            str(benchmark.get("name")): benchmark["real_time"]
            for benchmark in benchmarks
            if _is_figure(benchmark.get("real_time"))
        }
    if "rows" in record:
        return {name: value for row in _objects(record, "rows") for name, value in _row(row)}
    return dict(_leaves({key: value for key, value in record.items() if key not in DESCRIPTIONS}, ()))


def _objects(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the list of objects under a key.

    Raises:
        ValueError: the entry is no such list.
    """
    objects = record[key]
    if not isinstance(objects, list):
        raise ValueError(f"{key!r} holds a {type(objects).__name__}; expected a list of objects")
    for number, entry in enumerate(objects):
        if not isinstance(entry, dict):
            raise ValueError(f"entry {number} of {key!r} is a {type(entry).__name__}; expected an object")
    return objects


def _row(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the figures of a row, which are in objects by engine; the other entries name the row."""
    batch, threads = row.get("batch", 1), row.get("threads", 1)
    title = f"{row.get('network', row.get('kind'))} x{row.get('size', batch)}, {threads} threads"
    for name, value in _leaves(row, ()):
        engine, _, figure = name.removeprefix("engines: ").rpartition(": ")
        if figure in FIGURES:
            yield f"{title}: {engine} {figure}", value
        elif engine == "milliseconds":
            yield f"{title}: {figure} median_ms", value


def _leaves(tree: object, path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    if isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _leaves(child, (*path, str(key)))
    elif _is_figure(tree):
        yield ": ".join(path), float(tree)  # type: ignore[arg-type]


def _is_figure(figure: object) -> bool:
    return isinstance(figure, int | float) and not isinstance(figure, bool)


def compare(old: Mapping[str, float], new: Mapping[str, float]) -> Figures:
    """Return, for every figure of both runs, the factor by which it became worse; below 1 it became better."""
    return {name: _worse(name, old[name], new[name]) for name in new if name in old and old[name] > 0 < new[name]}


def _worse(name: str, old: float, new: float) -> float:
    return old / new if any(words in name for words in MORE_IS_BETTER) else new / old


def report(changes: Mapping[str, float], limit: float) -> str:
    """Return the figures that changed by more than the limit, the worst first, and the geometric mean of all."""
    listed = {name: change for name, change in changes.items() if change > limit or change < 1 / limit}
    lines = [
        f"{change:7.3f}  {name}"
        for name, change in sorted(listed.items(), key=lambda name_and_change: -name_and_change[1])
    ]
    mean = math.exp(statistics.fmean(math.log(change) for change in changes.values()))
    worse = sum(change > limit for change in changes.values())
    lines.append(f"{len(changes)} figures: {mean:.3f} times the recorded ones in the geometric mean (less is better)")
    lines.append(f"{worse} worse by more than {limit:g}, {len(listed) - worse} better by more than {limit:g}")
    return "\n".join(lines)
