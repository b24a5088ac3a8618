"""``interposer check-backend``: check that a backend conforms to the plug-in interface and computes correct results."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from interposer.cli import random_networks
from interposer.cli.numbers import number, whole
from interposer.cli.outputs import check_writable, file_path
from interposer.cli.tables import Table, counted, say, show, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular, write_file
from interposer.testing import Conformance, Report, Result, Settings
from interposer.testing.checks import SAMPLE_CHECKS
from interposer.testing.conformance import all_cases
from interposer.testing.contracts import BACKEND_CHECKS

__all__ = ["configure", "execute"]

_seconds: Final = number("a positive number of seconds", zero=False)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer check-backend`."""
    parser.add_argument("backend", nargs="?", help="the id of a backend, MODULE:CLASS, or the path of a shared object")
    parser.add_argument(
        "--family", action="append", default=[], metavar="NAME", help="try only operators of this family"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERNS",
        help="carry out only cases such as 'results/Softmax-*'; several are separated by commas or given one by one",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the checks, or with --only the cases, and run none")
    parser.add_argument(
        "--expected-failures", type=Path, metavar="FILE", help="JSON: an object of patterns and reasons"
    )
    parser.add_argument("--examples", type=whole, default=100, metavar="N", help="how many random networks to try")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds without progress after which a case has failed",
    )
    parser.add_argument("--refusals", action="store_true", help="list what the backend refuses, and why")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--junit", type=file_path, metavar="FILE", help="write the report to a file as JUnit's XML")
    random_networks.add_arguments(parser)
    parser.set_defaults(wrong_usage=parser.error)


def execute(args: argparse.Namespace) -> int:
    """Check a backend; return 1 if it does not conform."""
    if args.random is None:
        random_networks.check_absent(args)
    if args.list:
        _print_list(args)
        return 0
    if args.backend is None:
        args.wrong_usage("name a backend; 'interposer backends' lists those that are installed")
    if args.random is not None:
        return random_networks.execute(args)
    if args.junit is not None:
        check_writable("--junit", args.junit, filter(None, [args.backend, args.expected_failures]))
    with nullcontext() if args.debug else _quiet():
        report = _checked(args)
    if args.junit is not None:
        write_file(args.junit, report.to_junit())
    if args.json:
        write_json(report.to_dict())
    else:
        _print(report, refusals=args.refusals)
    return 0 if report.ok else 1


def _checked(args: argparse.Namespace) -> Report:
    conformance = Conformance(
        args.backend,
        expected_failures=_expected(args.expected_failures),
        families=args.family,
        only=args.only or "*",
        settings=Settings(examples=args.examples, patience=args.timeout),
    )
    conformance.start()
    if not conformance.cases:
        raise InvalidArgumentError(
            f"no case matches {', '.join(args.only)!r}; --list --only PATTERN shows what there is"
        )
    progress = _Progress(len(conformance.cases))
    try:
        return conformance.report(progress.step)
    finally:
        progress.clear()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings of the optimizer and the runtime within this context, as the report covers their content."""
    logger = logging.getLogger("interposer")
    previous_level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(previous_level)


def _expected(path: Path | None) -> Mapping[str, str]:
    if path is None:
        return {}
    check_regular(path)
    try:
        reasons: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is no JSON: {error}") from error
    if not isinstance(reasons, dict) or not all(isinstance(reason, str) for reason in reasons.values()):
        raise InvalidArgumentError(f"{path} must hold an object that gives a reason for every pattern of cases")
    return reasons


class _Progress:
    """Shows on standard error how many test cases are finished and failed, if it is a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.failed = total, 0, 0
        self.shown = sys.stderr.isatty()

    def step(self, result: Result) -> None:
        """Count one more finished case, and whether it failed; update the line after every 100 cases."""
        self.done += 1
        self.failed += not result.status.good
        if self.shown and self.done % 100 == 0:
            print(f"\r{self.done:,} of {self.total:,} cases, {self.failed:,} failed", end="", file=sys.stderr)

    def clear(self) -> None:
        """Remove the progress line."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr)


# --- output -----------------------------------------------------------------------------------------------------------


def _print(report: Report, *, refusals: bool) -> None:
    titles, *rows = report.table()
    show(Table(titles, rows, right=titles[1:]))
    if refusals:
        print()
        refusal_rows = [(operator, f"{count:,}", text) for operator, text, count in report.refusals()]
        show(Table(("refused", "samples", "because"), refusal_rows, right=["samples"]))
    elif report.refused_operators():
        print()
        say(report.refusal_line())
    if report.newer_operators():
        print()
        for line in report.newer_line().splitlines():
            say(line)
    for cause in report.causes():
        print()
        say(cause.title)
        for line in cause.worst.text.splitlines():
            say(f"  {line}")
    print()
    for line in report.summary().splitlines():
        say(line)


def _print_list(args: argparse.Namespace) -> None:
    if not args.only and not args.family:
        _print_checks(args.json)
        return
    cases = all_cases(args.family, args.only or "*")
    if args.json:
        write_json([case.id for case in cases])
        return
    for case in cases:
        say(case.id)
    say(counted(len(cases), "case"))


def _print_checks(as_json: bool) -> None:
    checks = [*SAMPLE_CHECKS, *BACKEND_CHECKS]
    if as_json:
        write_json([{"check": check.name, "about": check.doc, "variants": list(check.variants)} for check in checks])
    else:
        subjects = [f"{len(check.variants)} variants" if check.variants else "every sample" for check in checks]
        rows = [(check.name, subject, check.doc) for check, subject in zip(checks, subjects, strict=True)]
        show(Table(("check", "made of", "about"), rows))
