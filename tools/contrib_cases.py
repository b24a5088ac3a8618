"""Run the cases of ONNX Runtime's own operators here and by ONNX Runtime, and write the results as a reference page.

``python tools/contrib_cases.py`` writes docs/reference/onnx-contrib.md again. It needs onnxruntime.
With ``--check`` it changes nothing, and exits with status 1 if the page is outdated, or if a case has other results.
With a pattern it only runs the cases whose names match, and prints the result of each.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from interposer.core.families import import_families  # noqa: E402
from interposer.frontends.onnx.contrib_refused import REFUSED  # noqa: E402
from interposer.frontends.onnx.onnx_converters import operators, title  # noqa: E402
from interposer.frontends.onnx.operator_names import MICROSOFT  # noqa: E402

import_families("interposer.frontends.onnx")
from tests.frontends.onnx.contrib.all_cases import CASES  # noqa: E402
from tests.frontends.onnx.contrib.case import Case  # noqa: E402
from tests.frontends.onnx.contrib.comparison import compared  # noqa: E402

PAGE: Final = "docs/reference/onnx-contrib.md"
VERSION: Final = "1.31.1"
"""The version of the package onnxruntime whose results the page lists."""


class Result(NamedTuple):
    """The result of the comparison of a case with ONNX Runtime."""

    case: Case
    status: str
    reason: str

    @property
    def operator(self) -> str:
        return title(self.case.domain, self.case.operator)

    @property
    def is_wrong(self) -> bool:
        return not expected(self.case, self.status)


def expected(case: Case, status: str) -> bool:
    """Return True if this status is what the case says."""
    if status == "refused by ONNX Runtime":
        return case.overrides
    return status in ("refused by both", "refused here" if case.refused else "differs" if case.known else "agrees")


def results_of(cases: Sequence[Case]) -> list[Result]:
    """Run cases, and return their results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [Result(case, *compared(case)) for case in cases]


def page(results: Sequence[Result]) -> str:
    """Return the page in Markdown that lists the operators of ONNX Runtime with the results of their cases."""
    counts = Counter(result.status for result in results)
    lines = [
        "# ONNX Runtime's operators, compared",
        "",
        "<!-- Written by tools/contrib_cases.py; do not edit. -->",
        "",
        *textwrap.wrap(_summary(counts, len(results)), 119),
        "",
        "| operator | supported | cases that agree | refused here | refused by ONNX Runtime |",
        "| --- | --- | ---: | ---: | ---: |",
        *_rows(results),
        *_refused(),
        *_differences(results),
    ]
    return "\n".join(lines) + "\n"


def _summary(counts: Counter[str], total: int) -> str:
    return (
        "ONNX Runtime's optimizers and tools write operators of its own domains. Each case is a model with one "
        f"operator. The backends CpuRef and CpuAcc, and ONNX Runtime {VERSION} on the CPU, compute its results from "
        f"the same inputs. Of {total:,} cases, {counts['agrees']:,} agree. ONNX Runtime refuses "
        f"{counts['refused by ONNX Runtime'] + counts['refused by both']:,}, of which "
        f"{counts['refused by both']:,} are refused here too."
    )


def _rows(results: Sequence[Result]) -> Iterator[str]:
    counts = Counter((result.operator, result.status) for result in results)
    own_names = {name.replace(":", ".") for name in operators() if name.startswith("com.microsoft")}
    refused = {title(MICROSOFT, name) for name in REFUSED}
    for name in sorted({*own_names, *(result.operator for result in results)}):
        agreed, differing, here, there, both = (
            counts[name, status]
            for status in ("agrees", "differs", "refused here", "refused by ONNX Runtime", "refused by both")
        )
        cells = (
            f"{agreed} of {agreed + differing + here}" if agreed or differing else "",
            here + both or "",
            there + both or "",
        )
        supported = "yes" if name in own_names - refused or not name.startswith(MICROSOFT) else "no"
        yield f"| {name} | {supported} | {' | '.join(map(str, cells))} |"


def _refused() -> Iterator[str]:
    """Yield the paragraphs that say why operators are refused."""
    reasons = sorted(set(REFUSED.values()))
    yield from ("", "Some operators are refused by name:", "")
    for reason in reasons:
        names = ", ".join(sorted(name for name, reason_of_name in REFUSED.items() if reason_of_name == reason))
        yield from textwrap.wrap(f"- {names}: {reason}.", 119, subsequent_indent="  ")


def _differences(results: Sequence[Result]) -> Iterator[str]:
    """Yield the paragraphs that list cases in which ONNX Runtime does not follow the documentation of its operator."""
    reasons = Counter((result.operator, result.case.known) for result in results if result.status == "differs")
    explained = [(operator, reason, count) for (operator, reason), count in sorted(reasons.items()) if reason]
    if explained:
        yield from ("", "In these cases, ONNX Runtime does not do what the documentation of its operator says:", "")
    for operator, reason, count in explained:
        yield from textwrap.wrap(f"- {operator}: {reason} ({count} cases).", 119, subsequent_indent="  ")


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Run the cases of ONNX Runtime's own operators here and there.")
    parser.add_argument("pattern", nargs="?", help="only run the cases whose names match, and print their results")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the page is outdated")
    args = parser.parse_args(arguments)
    results = results_of([case for case in CASES if re.search(args.pattern or "", case.id)])
    wrong = [result for result in results if result.is_wrong]
    if args.pattern:
        for result in results:
            mark = "!" if result.is_wrong else " "
            print(f"{mark} {result.status:24} {result.case.id} {result.reason}".rstrip())
        return int(bool(wrong))
    target, text = ROOT / PAGE, page(results)
    stale = not target.exists() or target.read_text(encoding="utf-8") != text
    if stale and not args.check:
        target.write_text(text, encoding="utf-8")
    print(f"{'stale' if args.check else 'written'}: {PAGE}" if stale else f"fresh: {PAGE}")
    for result in wrong:
        print(f"{result.status}: {result.case.id}: {result.reason}", file=sys.stderr)
    return int(bool(wrong) or (stale and args.check))


if __name__ == "__main__":
    sys.exit(main())
