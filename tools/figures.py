"""The tables of README.md and of docs/ that are generated from the recorded figures of the benchmarks."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.engines.report import KINDS, Least, least, markdown

__all__ = ["PAGES", "with_figures"]

FILE: Final = "benchmarks/baselines/engines.json"
BEGIN: Final = f"<!-- Written by tools/generate.py from {FILE} -->"
END: Final = "<!-- End of the generated part -->"
TITLES: Final = KINDS | {
    "qdq": "8 bits, QuantizeLinear and DequantizeLinear (QDQ)",
    "decoders": "decoders, a prompt or one token, float32 and 4-bit weights",
    "tiny": "tiny networks, by plain calls from Python",
}


def with_figures(path: str, page: str) -> str:
    """Return the page with its generated part, between two comments, written again."""
    facts = json.loads((Path(__file__).parent.parent / FILE).read_text(encoding="utf-8"))
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{PAGES[path](facts)}\n{END}{after}"


def _summary(facts: Mapping[str, Any]) -> str:
    """Return a table with a row for each kind of network, and a caption with the conditions."""
    lines = ["| | networks | geometric mean | least |", "| --- | ---: | ---: | --- |"]
    lines += [_row(title, _of_kind(facts, kind)) for kind, title in TITLES.items()]
    return "\n".join([*lines, "", _wrapped(f"*{_caption(facts)}*")]) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _row(title: str, times: list[Least]) -> str:
    mean = statistics.geometric_mean(each.ratio for each in times)
    slowest = min(times, key=lambda each: each.ratio)
    return f"| {title} | {len(times)} | **{mean:.2f}** | {slowest.ratio:.2f} (`{slowest.network}`) |"


def _of_kind(facts: Mapping[str, Any], kind: str) -> list[Least]:
    rows = (row for row in facts["rows"] if row["kind"] == kind)
    return [times for row in rows if (times := least(row, facts["engines"][0]))]


def _caption(facts: Mapping[str, Any]) -> str:
    """Return the conditions of the figures: engines, threads, machine, date, and how busy the machine was."""
    every = _all(facts)
    return (
        f"How many times as fast {facts['engines'][0]} is as the fastest of {_engines(facts)}. {_conditions(facts)} "
        f"It is at least as fast on {sum(map(_is_as_fast, every))} of {len(every)} networks."
    )


def _conditions(facts: Mapping[str, Any]) -> str:
    threads = {row["threads"] for row in facts["rows"]}
    if threads != {1}:
        raise SystemExit(f"{FILE} has figures for {sorted(threads)} threads, and the caption says one")
    recorded, busy = facts["recorded"], max(row["others"] for row in facts["rows"])
    day = date.fromisoformat(recorded["date"])
    return (
        f"One thread, batches of one; {recorded['processor']}, a virtual machine of {facts['machine']['processors']} "
        f"processors of which other programs used up to {busy:.0%}, so the least time of each engine counts; "
        f"{day:%B %Y}."
    )


def _engines(facts: Mapping[str, Any]) -> str:
    figures = [row["engines"] for row in facts["rows"]]
    versions = {name: row[name]["version"] for row in figures for name in row if "version" in row[name]}
    *most, last = (f"{name} {versions[name]}" for name in facts["engines"][1:])
    return f"{', '.join(most)} and {last}"


def _everything(facts: Mapping[str, Any]) -> str:
    """Return the conditions, the means, the rows of every network, and those on which the first engine is slower."""
    tables = markdown(facts["rows"], facts["engines"])
    conditions = _wrapped(f"{_conditions(facts)} The others are {_engines(facts)}.")
    return f"{conditions}\n\n{tables}\n{_wrapped(_slower(facts))}\n"


def _slower(facts: Mapping[str, Any]) -> str:
    slower = [times for times in _all(facts) if not _is_as_fast(times)]
    names = [f"`{times.network}` ({times.ratio:.2f})" for times in sorted(slower, key=lambda each: each.ratio)]
    return f"{facts['engines'][0]} is slower on {len(names)} network{'s' * (len(names) != 1)}: {', '.join(names)}."


def _all(facts: Mapping[str, Any]) -> list[Least]:
    return [times for kind in TITLES for times in _of_kind(facts, kind)]


def _is_as_fast(times: Least) -> bool:
    return round(times.ratio, 2) >= 1


PAGES: Final = {
    "README.md": _summary,
    "docs/README.md": _summary,
    "docs/why.md": _summary,
    "docs/benchmarks.md": _everything,
}
"""The pages with a generated part, and what it is made by."""
