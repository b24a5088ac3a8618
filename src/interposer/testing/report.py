"""The report of a conformance run, as text, as JSON, and as JUnit XML."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree

from interposer.core.records import dataclass
from interposer.testing.outcome import Result, Status

__all__ = ["WHOLE", "Report"]

WHOLE: Final = "the whole backend"
"""The row title for checks of the backend as a whole, which have no operator family."""
_WIDTH: Final = 99
_MAX_REASON_LENGTH: Final = 64
"""The maximum length, in characters, of the most common reason for skipped checks in the summary."""
_TITLES: Final = (
    *("family", "operators", "samples", "refused", "cases"),
    *(status.value for status in Status if status is not Status.REFUSED),
)


@dataclass(frozen=True)
class Report:
    """The results of a conformance run: one for each case, in order."""

    backend: str
    version: str
    results: Sequence[Result]

    @property
    def ok(self) -> bool:
        """True if no case failed, and no case that was expected to fail passed."""
        return not self.failures

    @property
    def failures(self) -> list[Result]:
        """The results of failed cases, including those that passed unexpectedly."""
        return [result for result in self.results if not result.status.good]

    @property
    def counts(self) -> dict[str, int]:
        """The number of cases with each status."""
        counter = Counter(result.status for result in self.results)
        return {status.value: counter[status] for status in Status}

    def table(self) -> list[tuple[str, ...]]:
        """Return the column titles, a row per family with supported operators, and a row of totals; no empty columns.

        The columns "samples" and "refused" count samples of operators that the backend supports. The other columns
        count cases.
        """
        supported_operators = self._taken_operators()
        shown_results = [
            result for result in self.results if result.family == WHOLE or result.operator in supported_operators
        ]
        families = sorted({result.family for result in shown_results}, key=lambda name: (name == WHOLE, name))
        rows = [_row(family, [result for result in shown_results if result.family == family]) for family in families]
        rows.append(_row("all", shown_results))
        columns = [
            column for column, title in enumerate(_TITLES) if title in ("family", "cases") or _has_number(rows, column)
        ]
        return [tuple(row[column] for column in columns) for row in (_TITLES, *rows)]

    def _taken_operators(self) -> set[str]:
        return {result.operator for result in self.results if result.status not in (Status.REFUSED, Status.SKIP)} - {""}

    def refused_operators(self) -> list[str]:
        """Return the operators of which every sample was refused or skipped."""
        return sorted({result.operator for result in self.results if result.operator} - self._taken_operators())

    def refusal_line(self) -> str:
        """Return one line about the operators that the backend does not support at all."""
        operators = set(self.refused_operators())
        count = len({result.id.partition("/")[2] for result in self.results if result.operator in operators})
        amount = f"{len(operators):,} operators with {count:,} samples" if len(operators) > 1 else f"{count:,} samples"
        names = f" of {next(iter(operators))}" if len(operators) == 1 else ""
        return f"it does not take {amount}{names}; --refusals lists what it refuses, and why"

    def newer_operators(self) -> list[str]:
        """Return the operators that the vocabulary got after the revision for which a native backend was built."""
        return sorted({result.operator for result in self.results if _NEWER_LAYER.fullmatch(result.text)})

    def newer_line(self) -> str:
        """Return a sentence about operators that are newer than the backend, in lines as long as the summary's.

        Empty if there are none: the backend is not a shared object, or knows every operator that was tried.
        """
        operators = self.newer_operators()
        if not operators:
            return ""
        [match, *_] = filter(None, (_NEWER_LAYER.fullmatch(result.text) for result in self.results))
        line_text = (
            f"it was built for revision {match[1]} of the vocabulary, so layers of newer operators were not shown "
            f"to it: {', '.join(operators)}"
        )
        return _wrapped(line_text)

    def refusals(self) -> Iterator[tuple[str, str, int]]:
        """Yield each refused operator with a reason and the number of samples it applies to, most frequent first."""
        refused_results = [
            result
            for result in self.results
            if result.status is Status.REFUSED and result.check.startswith(("support", "through-"))
        ]
        for (operator, text), count in Counter(
            (refusal.operator, refusal.text) for refusal in refused_results
        ).most_common():
            yield operator, text, count

    def causes(self) -> list[Cause]:
        """Group failures that probably have the same cause; the groups are in the order of their first case.

        Failures of the same check and operator form a group if they have the same hint, the text after "hint:" in an
        error that guesses its cause. Without a hint, the errors must be equal apart from numbers and names.
        """
        groups: dict[tuple[str, str, str], list[Result]] = {}
        for failure in self.failures:
            groups.setdefault((failure.check, failure.operator, _cause(failure.text)), []).append(failure)
        return [Cause(max(group, key=_severity), tuple(failed.id for failed in group)) for group in groups.values()]

    def __str__(self) -> str:
        lines = [f"backend {self.backend} {self.version}".rstrip(), "", *_aligned(self.table())]
        if self.refused_operators():
            lines += ["", self.refusal_line()]
        if self.newer_operators():
            lines += ["", self.newer_line()]
        for cause in self.causes():
            lines += ["", cause.title, *(f"  {line}" for line in cause.worst.text.splitlines())]
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        """Say whether the backend conforms, in one or two lines of less than 100 characters."""
        num_tried = sum(result.status not in (Status.REFUSED, Status.SKIP) for result in self.results)
        total = f"{num_tried:,} cases"
        if self.ok:
            summary_text = f"{self.backend} conforms{self._skips()}: {total}, none of which failed"
            return _wrapped(summary_text)
        return f"{self.backend} does not conform: {len(self.failures):,} of {total} failed"

    def _skips(self) -> str:
        """Return the end of a sentence that says how many checks were skipped and why most of them were.

        Empty if none were.
        """
        counter = Counter(result.text for result in self.results if result.status is Status.SKIP)
        if not counter:
            return ""
        [(text, count)] = counter.most_common(1)
        reason = textwrap.shorten(f"{count:,} because {text}", _MAX_REASON_LENGTH, placeholder=" ...")
        other_reasons = f"; {counter.total() - count:,} for other reasons" if len(counter) > 1 else ""
        checks = "check was" if counter.total() == 1 else "checks were"
        return f", but {counter.total():,} {checks} skipped ({reason}{other_reasons})"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "backend": self.backend,
            "version": self.version,
            "ok": self.ok,
            "counts": self.counts,
            "results": [result.to_dict() for result in self.results],
        }

    def to_junit(self) -> str:
        """Return the report as JUnit XML."""
        failures, num_skipped = len(self.failures), sum(result.status in _NOT_RUN for result in self.results)
        counts = {
            "tests": str(len(self.results)),
            "failures": str(failures),
            "skipped": str(num_skipped),
            "errors": "0",
        }
        suite = ElementTree.Element("testsuite", name=f"conformance of {self.backend}", attrib=counts)
        for result in self.results:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{self.backend}.{result.family}", name=result.id
            )
            if not result.status.good:
                failure = ElementTree.SubElement(case, "failure", message=_printable(result.text.partition("\n")[0]))
                failure.text = _printable(result.text)
            elif result.status in _NOT_RUN:
                message = _printable(f"{result.status.value}: {result.text}")
                ElementTree.SubElement(case, "skipped", message=message)
        ElementTree.indent(suite)
        return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


@dataclass(frozen=True)
class Cause:
    """A group of failures that probably have the same cause: the worst failure, and the ids of all cases."""

    worst: Result
    ids: tuple[str, ...]

    @property
    def title(self) -> str:
        """The status and the id of the worst failure, and the number of others."""
        other_count = len(self.ids) - 1
        others_text = f" and {other_count:,} more like it" if other_count else ""
        return f"{self.worst.status.value}: {self.worst.id}{others_text}"


_NEWER_LAYER: Final = re.compile(r"layer type newer than revision (\d+) of the vocabulary")
_WRONG_COUNT: Final = re.compile(r"(\d+) of (\d+) elements")
_DETAIL: Final = re.compile(r"-?\d[\d.e+-]*|'[^']*'|\[[^]]*\]")


def _cause(text: str) -> str:
    """Return a key that is equal for failures with the same cause.

    It is the hint in the first line of the error, or the line itself, with numbers and names replaced by "#".
    """
    first_line = text.partition("\n")[0]
    hint = first_line.partition("; hint: ")[2]
    return _DETAIL.sub("#", hint or first_line)


def _severity(result: Result) -> tuple[int, float, int]:
    """Return a sort key for failures: exceptions are greatest, others ordered by the share of wrong elements."""
    match = _WRONG_COUNT.search(result.text)
    if match is None:
        return 1, 0.0, 0
    num_wrong, size = map(int, match.groups())
    return 0, num_wrong / max(size, 1), num_wrong


def _row(title: str, results: Sequence[Result]) -> tuple[str, ...]:
    sample_results = [result for result in results if result.family != WHOLE]
    operators = {sampled_result.operator for sampled_result in sample_results}
    samples = {sampled_result.id.partition("/")[2] for sampled_result in sample_results}
    refused_samples = {
        sampled_result.id.partition("/")[2]
        for sampled_result in sample_results
        if sampled_result.status is Status.REFUSED
    }
    counter = Counter(result.status for result in results)
    counts = [counter[status] for status in Status if status is not Status.REFUSED]
    numbers = (len(operators), len(samples), len(refused_samples), len(results) - counter[Status.REFUSED], *counts)
    return title, *(f"{number:,}" if number else "" for number in numbers)


_NOT_RUN: Final = frozenset({Status.SKIP, Status.REFUSED, Status.XFAIL})


def _has_number(rows: Iterable[Sequence[str]], column: int) -> bool:
    return any(row[column] for row in rows)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _printable(text: str) -> str:
    """Remove the control characters that XML does not allow."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for title, *cells in rows:
        numbers = (text.rjust(width) for text, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([title.ljust(widths[0]), *numbers]).rstrip()
