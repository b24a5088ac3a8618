"""What came of checking a backend: for people, as JSON, and as JUnit's XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree

from interposer.testing.outcome import Result, Status

__all__ = ["WHOLE", "Report"]

WHOLE: Final = "the whole backend"
"""What stands in place of a family for checks that are not made of samples."""
_TITLES: Final = ("family", "operators", "samples", "cases", *(status.value for status in Status))


@dataclass(frozen=True)
class Report:
    """The results of all cases, in their order."""

    backend: str
    version: str
    results: Sequence[Result]

    @property
    def ok(self) -> bool:
        """True where nothing failed, and nothing that was expected to fail did not."""
        return not self.failures

    @property
    def failures(self) -> list[Result]:
        """What is wrong."""
        return [one for one in self.results if not one.status.good]

    @property
    def counts(self) -> dict[str, int]:
        """How many cases ended in which way."""
        found = Counter(one.status for one in self.results)
        return {status.value: found[status] for status in Status}

    def table(self) -> list[tuple[str, ...]]:
        """Titles, and a row of counts for every family, with a sum at the end; columns of nothing are left out."""
        families = sorted({one.family for one in self.results}, key=lambda name: (name == WHOLE, name))
        rows = [self._row(name, [one for one in self.results if one.family == name]) for name in families]
        rows.append(self._row("all", self.results))
        kept = [column for column, title in enumerate(_TITLES) if title in ("family", "cases") or _any(rows, column)]
        return [tuple(row[column] for column in kept) for row in (_TITLES, *rows)]

    def _row(self, title: str, results: Sequence[Result]) -> tuple[str, ...]:
        sampled = [one for one in results if one.family != WHOLE]
        operators = {one.operator for one in sampled}
        samples = {one.id.partition("/")[2] for one in sampled}
        found = Counter(one.status for one in results)
        numbers = (len(operators), len(samples), len(results), *(found[status] for status in Status))
        return title, *(f"{number:,}" if number else "" for number in numbers)

    def refusals(self) -> Iterator[tuple[str, str, int]]:
        """Operators that were refused, with a reason and how many samples it was given for, the commonest first."""
        refused = [one for one in self.results if one.status is Status.REFUSED and one.check == "support"]
        for (operator, text), count in Counter((one.operator, one.text) for one in refused).most_common():
            yield operator, text, count

    def __str__(self) -> str:
        lines = [f"backend {self.backend} {self.version}".rstrip(), "", *_aligned(self.table())]
        for one in self.failures:
            lines += ["", f"{one.status.value}: {one.id}", *(f"  {line}" for line in one.text.splitlines())]
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        """One line that says whether the backend conforms."""
        total = f"{len(self.results):,} cases"
        if self.ok:
            return f"{self.backend} conforms: {total}, none of which failed"
        return f"{self.backend} does not conform: {len(self.failures):,} of {total} failed"

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-compatible data."""
        return {
            "backend": self.backend,
            "version": self.version,
            "ok": self.ok,
            "counts": self.counts,
            "results": [one.to_dict() for one in self.results],
        }

    def to_junit(self) -> str:
        """The report as XML in the form that JUnit made usual."""
        bad, skipped = len(self.failures), sum(one.status in _NOT_RUN for one in self.results)
        counts = {"tests": str(len(self.results)), "failures": str(bad), "skipped": str(skipped), "errors": "0"}
        suite = ElementTree.Element("testsuite", name=f"conformance of {self.backend}", attrib=counts)
        for one in self.results:
            case = ElementTree.SubElement(suite, "testcase", classname=f"{self.backend}.{one.family}", name=one.id)
            if not one.status.good:
                failure = ElementTree.SubElement(case, "failure", message=_printable(one.text.partition("\n")[0]))
                failure.text = _printable(one.text)
            elif one.status in _NOT_RUN:
                message = _printable(f"{one.status.value}: {one.text}")
                ElementTree.SubElement(case, "skipped", message=message)
        ElementTree.indent(suite)
        return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


_NOT_RUN: Final = frozenset({Status.SKIP, Status.REFUSED, Status.XFAIL})


def _any(rows: Iterable[Sequence[str]], column: int) -> bool:
    return any(row[column] for row in rows)


def _printable(text: str) -> str:
    """XML allows no control characters but these."""
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        numbers = (text.rjust(width) for text, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *numbers]).rstrip()
