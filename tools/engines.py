"""Write docs/reference/engines.md: the results of the conformance kit for each engine adapter.

::

    python tools/engines.py                        # all installed engines; sections of others remain unchanged
    python tools/engines.py --check                # change nothing, and fail if a section is outdated
    python tools/engines.py OpenVino               # only this engine
    python tools/engines.py OpenVino networks      # the checks of the engine as a whole, which take long
    python tools/engines.py OpenVino Compress Pad  # only these operators, with every failure; nothing is written

Every operator is tried in a separate process, as engines may crash; a crash is a failure of all its cases.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import interposer.ops  # noqa: E402, F401 - declares the operators
from interposer.backend import Backend  # noqa: E402
from interposer.core.schema import registered_ops  # noqa: E402
from interposer.plugins.registry import process_registry  # noqa: E402
from interposer.testing import Sample, samples_of  # noqa: E402
from interposer.testing.conformance import Conformance, all_cases, all_samples  # noqa: E402
from tests.backends.engines.adapters import add_engines  # noqa: E402

PAGE: Final = "docs/reference/engines.md"
EXPECTED: Final = ROOT / "tests" / "backends" / "engines" / "expected"
"""What is known to fail, for each engine a file of patterns of cases with their reasons."""
HEAD: Final = """# What engines run

<!-- Written by tools/engines.py; do not edit. -->

What the [conformance kit](../conformance.md) finds of each engine that is a [backend](../engines.md). A sample is
claimed where the backend says that it runs it; all its checks pass then, but for those that are listed as expected
failures. Operators that an engine takes no sample of are named at the end of its section.
"""
WHOLE: Final = "networks"
"""Stands for the checks of an engine as a whole, on networks of several layers."""
MOST: Final = {"OpenVino": 12}
"""How many samples of an operator the page is made with, evenly chosen, where an engine takes long to compile one."""
EVERY: Final = 40
"""Networks are made of the layers of one in so many samples."""
SECONDS: Final = 900
"""How long the samples of one operator may take."""


class Row(NamedTuple):
    """The results of an operator's samples on an engine, as a row of the page.

    `claimed` counts the samples that the engine supports, `expected` those of them that are known to fail. `failures`
    are unexpected ones, as pairs of case and message; `reasons` are the most frequent reasons of refusals.
    """

    name: str
    samples: int
    claimed: int
    expected: int
    failures: list[tuple[str, str]]
    reasons: list[str]

    def __str__(self) -> str:
        passed = self.claimed - self.expected
        return f"| {self.name} | {self.samples} | {self.claimed} | {passed} | {self.expected or ''} |"


def expected_failures(engine: str) -> dict[str, str]:
    """Return the cases of an engine that are known to fail: patterns of case names, each with the reason."""
    path = EXPECTED / f"{engine}.json"
    reasons: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reasons


def tried(engine: str, operator: str, *, all_of_them: bool = False) -> Row:
    """Run the conformance checks of an operator on an engine in a separate process, as engines may crash.

    With `all_of_them`, all samples of the operator are run, even if the engine is usually tried on few of them. A
    process that crashes, or runs too long, is one failure.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_try, args=(engine, operator, sender, all_of_them))
    child.start()
    sender.close()
    try:
        row = receiver.recv() if receiver.poll(SECONDS * (4 if operator == WHOLE else 1)) else None
    except EOFError:
        row = None
    child.kill()
    child.join()
    if row is not None:
        return Row(*row)
    return Row(operator, 0, 0, 0, [(f"results/{operator}-*", f"the process ended with {child.exitcode}")], [])


def chosen(engine: str, operator: str) -> Sequence[Sample]:
    """Return the samples of an operator that an engine is tried on: all, or evenly chosen ones for slow engines.

    The operator `WHOLE` stands for the engine as a whole, and has samples of all operators.
    """
    if operator == WHOLE:
        return all_samples()[::EVERY]
    samples = samples_of(registered_ops()[operator])
    return samples[:: max(1, len(samples) // MOST[engine])] if engine in MOST else samples


def _kit(engine: str, operator: str, *, all_of_them: bool = False) -> Conformance:
    """Return the conformance checks for samples of an operator, or for `WHOLE` those of the engine as a whole."""
    all_of_them = all_of_them and operator != WHOLE
    samples = samples_of(registered_ops()[operator]) if all_of_them else chosen(engine, operator)
    ids = [case.id for case in all_cases(samples=samples)]
    expected = {key: why for key, why in expected_failures(engine).items() if fnmatch.filter(ids, key)}
    families = [] if operator == WHOLE else [samples[0].op.family]
    kit = Conformance(engine, samples=samples, families=families, expected_failures=expected)
    if operator == WHOLE:
        kit.cases = [case for case in kit.cases if isinstance(case.subject, str)]
    return kit


def _try(engine: str, operator: str, sender: Any, all_of_them: bool) -> None:
    kit = _kit(engine, operator, all_of_them=all_of_them)
    claimed, expected = set[str](), set[str]()
    failures, reasons = [], Counter[str]()
    for case in kit.cases:
        outcome = kit.run(case)
        status, name = outcome.status.value, _subject(case.id, operator)
        if status in ("fail", "xpass"):
            failures.append((case.id, outcome.text))
        if status in ("pass", "fail", "xfail", "xpass"):
            claimed.add(name)
        if status == "xfail":
            expected.add(name)
        if status == "refused" and case.check.name == "support":
            reasons[outcome.text] += 1
    kit.bench.close()
    count = len({_subject(case.id, operator) for case in kit.cases})
    most = [text for text, _ in reasons.most_common(2)]
    sender.send((operator, count, len(claimed), len(expected), failures, most))
    sender.close()


def _subject(case: str, operator: str) -> str:
    """Return the name of the sample that a case is about; for `WHOLE`, the case's own name."""
    return case if operator == WHOLE else case.partition("/")[2]


def section(engine: str, rows: Sequence[Row], backend: Backend) -> str:
    """Return the section of the page about an engine, in Markdown: its version, and a table of operators."""
    claimed = [row for row in rows if row.claimed]
    total = [
        sum(getattr(row, name) for row in rows if row.name != WHOLE) for name in ("samples", "claimed", "expected")
    ]
    passed = total[1] - total[2]
    lines = [
        f"## {engine}",
        "",
        *([f"Tried on about {MOST[engine]} samples of each operator, evenly chosen.", ""] if engine in MOST else []),
        f"Version {backend.version}. Of {total[0]} samples {total[1]} are claimed and {passed} pass.",
        "",
        "| Operator | Samples | Claimed | Pass | Expected failures |",
        "| --- | ---: | ---: | ---: | ---: |",
        *map(str, claimed),
        "",
        *_expected(expected_failures(engine)),
        "Not taken: " + (", ".join(row.name for row in rows if not row.claimed) or "nothing") + ".",
        "",
    ]
    return "\n".join(lines)


def _expected(failures: Mapping[str, str]) -> Iterator[str]:
    if failures:
        yield "Expected failures:"
        yield ""
        yield from (f"- `{pattern}`: {why}" for pattern, why in failures.items())
        yield ""


def sections(text: str) -> dict[str, str]:
    """Return the sections of a page in Markdown, by the engine's name in the heading."""
    pieces = text.split("\n## ")[1:]
    return {piece.partition("\n")[0]: f"## {piece.rstrip()}\n" for piece in pieces}


def operators() -> list[str]:
    """Return the operators that have samples."""
    return [name for name, op in registered_ops().items() if op.executable and samples_of(op)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(description="Try every operator on the engines.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a section is stale")
    parser.add_argument("engine", nargs="?", help="only this one")
    parser.add_argument("operators", nargs="*", help="only these, with every failure")
    args = parser.parse_args(arguments)
    add_engines(process_registry())
    engines = [args.engine] if args.engine else list(_installed())
    if args.operators:
        return _print(engines[0], args.operators)
    path = ROOT / PAGE
    old = sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    new = dict(old)
    wrong = 0
    for engine in engines:
        rows = []
        for name in operators():
            rows.append(tried(engine, name))
            wrong += _reported(engine, rows[-1])
        new[engine] = section(engine, rows, process_registry().get(engine))
    if args.check:
        print(f"{'stale' if new != old else 'up to date'}: {PAGE}")
        return int(new != old or wrong > 0)
    path.write_text(HEAD + "".join(f"\n{text}" for _, text in sorted(new.items())), encoding="utf-8")
    return int(wrong > 0)


def _installed() -> Iterator[str]:
    registry = process_registry()
    for name in sorted(path.stem for path in EXPECTED.glob("*.json")):
        reason = registry.reason_absent(name) if name in registry else "it is not registered"
        if reason is None:
            yield name
        else:
            print(f"{name}: {reason}")


def _reported(engine: str, row: Row) -> int:
    print(f"{engine} {row.name}: {row.claimed} of {row.samples} claimed, {len(row.failures)} failures", flush=True)
    for case, text in row.failures:
        print(f"  {case}: {text}", flush=True)
    return len(row.failures)


def _print(engine: str, names: Iterable[str]) -> int:
    rows = [tried(engine, name, all_of_them=True) for name in names]
    wrong = sum(_reported(engine, row) for row in rows)
    for row in rows:
        print(f"{row.name} is refused, for one, because {'; '.join(row.reasons) or 'of nothing'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
