"""Run the cases of TFLite operators here and by LiteRT, and write the results as a reference page.

``python tools/tflite_cases.py`` writes docs/reference/tflite-cases.md again. It needs ai-edge-litert.
With ``--check`` it changes nothing, and exits with status 1 if the page is outdated, or if a case has other results.
With a pattern it only runs the cases whose names match, and prints the result of each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from interposer.frontends.tflite import operators  # noqa: E402
from tests.frontends.tflite.cases.all_cases import CASES  # noqa: E402
from tests.frontends.tflite.cases.case import Case  # noqa: E402
from tests.frontends.tflite.cases.comparison import compared, difference_to_example  # noqa: E402
from tools.tflite_operators import BUILTIN  # noqa: E402

PAGE: Final = "docs/reference/tflite-cases.md"
VERSION: Final = "2.3.0"
"""The version of the package ai-edge-litert whose results the page lists."""
_FORK: Final = multiprocessing.get_context("fork")


class Result(NamedTuple):
    """The result of a case: that of the comparison with LiteRT, and whether a worked example, if any, agrees."""

    case: Case
    status: str
    reason: str
    is_worked: bool

    @property
    def is_wrong(self) -> bool:
        return self.status in {"differs", "refused here", "refused by both"}


def result_of(case: Case) -> Result:
    """Run one case, and return its result."""
    status, reason = compared(case)
    if case.expected is None or status == "refused here":
        return Result(case, status, reason, False)
    wrong = difference_to_example(case)
    return Result(case, "differs" if wrong else status, wrong or reason, True)


def isolated(case: Case) -> Result:
    """Run one case in a child process, as LiteRT's interpreter may crash, at most three times."""
    for _ in range(3):
        queue: Any = _FORK.SimpleQueue()
        child = _FORK.Process(target=_put, args=(queue, case))
        child.start()
        child.join()
        if child.exitcode == 0:
            return Result(case, *queue.get())
    return Result(case, "refused by LiteRT", "its interpreter crashes", False)


def _put(queue: Any, case: Case) -> None:
    queue.put(tuple(result_of(case))[1:])


def page(results: Sequence[Result]) -> str:
    """Return the page in Markdown that lists the builtin operators with the results of their cases."""
    imported = {*operators()} & {*BUILTIN}
    counts = Counter(result.status for result in results)
    lines = [
        "# TFLite: operators compared with LiteRT",
        "",
        "<!-- Written by tools/tflite_cases.py; do not edit. -->",
        "",
        *textwrap.wrap(_summary(counts, len(results), len(imported)), 119),
        "",
        "| operator | supported | cases that agree | refused by LiteRT | worked examples |",
        "| --- | --- | ---: | ---: | ---: |",
        *_rows(results, imported),
    ]
    return "\n".join(lines) + "\n"


def _summary(counts: Counter[str], total: int, operator_count: int) -> str:
    return (
        f"Of the {len(BUILTIN)} builtin operators, {operator_count} are supported. Each case is a model "
        "with one operator. "
        f"The reference kernels of Interposer and LiteRT's interpreter, version {VERSION}, compute its results from "
        f"the same inputs. Of {total:,} cases, {counts['agrees']:,} agree, and LiteRT refuses "
        f"{counts['refused by LiteRT']:,}. Floats agree within a tolerance, integers and quantized values exactly. "
        "Worked examples have results that follow from the specification of the operator. Other tests cover operators "
        "without cases."
    )


def _rows(results: Sequence[Result], imported: set[str]) -> Iterator[str]:
    counts = Counter((result.case.operator, result.status) for result in results)
    worked = Counter(result.case.operator for result in results if result.is_worked)
    totals = Counter(result.case.operator for result in results)
    for name in sorted(BUILTIN):
        agreed, refused = counts[name, "agrees"], counts[name, "refused by LiteRT"]
        compared_cases = totals[name] - refused
        cells = (f"{agreed} of {compared_cases}" if compared_cases else "", refused or "", worked[name] or "")
        yield f"| {name} | {'yes' if name in imported else 'no'} | {' | '.join(map(str, cells))} |"


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Run the cases of TFLite operators here and by LiteRT.")
    parser.add_argument("pattern", nargs="?", help="only run the cases whose names match, and print their results")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the page is outdated")
    args = parser.parse_args(arguments)
    results = [isolated(case) for case in CASES if re.search(args.pattern or "", case.id)]
    if args.pattern:
        for result in results:
            print(f"{result.status:17} {result.case.id} {result.reason}".rstrip())
        return int(any(result.is_wrong for result in results))
    target, text = ROOT / PAGE, page(results)
    stale = not target.exists() or target.read_text(encoding="utf-8") != text
    if stale and not args.check:
        target.write_text(text, encoding="utf-8")
    print(f"{'stale' if args.check else 'written'}: {PAGE}" if stale else f"fresh: {PAGE}")
    wrong = [result for result in results if result.is_wrong]
    for result in wrong:
        print(f"{result.status}: {result.case.id}: {result.reason}", file=sys.stderr)
    return int(bool(wrong) or (stale and args.check))


if __name__ == "__main__":
    sys.exit(main())
