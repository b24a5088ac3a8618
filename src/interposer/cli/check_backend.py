"""``interposer check-backend``: check that a backend conforms to the plug-in interface and computes correct results."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interposer.backend import Backend, OptionValue
from interposer.cli import random_networks
from interposer.cli.arguments.check_backend import configure
from interposer.cli.outputs import check_writable
from interposer.cli.progress import Progress, progress_line
from interposer.cli.running import allow_working_directory, backend_path, options_of
from interposer.cli.tables import Table, counted, say, show, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular, write_file
from interposer.plugins import process_registry
from interposer.testing import Conformance, Report, Result, Settings
from interposer.testing.checks import SAMPLE_CHECKS
from interposer.testing.conformance import all_cases, all_samples
from interposer.testing.contracts import BACKEND_CHECKS
from interposer.testing.replay import backend_of
from interposer.testing.through import HostUnableError, check_through

if TYPE_CHECKING:
    from interposer.bridges.litert.hosted import LiteRtHost
    from interposer.bridges.onnxruntime.hosted import OnnxRuntimeHost

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> int:
    """Check a backend; return 1 if it does not conform."""
    if args.random is None:
        random_networks.check_absent(args)
    if args.list:
        _print_list(args)
        return 0
    if args.backend is None:
        args.wrong_usage("name a backend; 'interposer backends' lists those that are installed")
    allow_working_directory(args.backend)
    with backend_path(args):
        return _execute(args)


def _execute(args: argparse.Namespace) -> int:
    if args.random is not None:
        return random_networks.execute(args)
    if args.junit is not None:
        check_writable("--junit", args.junit, filter(None, [args.backend, args.expected_failures]))
    with nullcontext() if args.debug or args.log_level else _quiet():
        report = _checked(args)
    if args.junit is not None:
        write_file(args.junit, report.to_junit())
    if args.json:
        write_json(report.to_dict())
    else:
        _print(report, refusals=args.refusals)
    return 0 if report.ok else 1


def _checked(args: argparse.Namespace) -> Report:
    return _checked_here(args) if args.through is None else _checked_through(args)


def _checked_through(args: argparse.Namespace) -> Report:
    """Run the samples inside the host that --through names."""
    backend = backend_of(args.backend)
    texts = {name: str(value) for name, value in _options(args).items()}
    with _registered(backend), progress_line() as progress:
        return check_through(
            backend,
            _host(args.through)(backend.id, texts, HostUnableError),
            families=args.family,
            only=args.only or "*",
            expected_failures=_expected(args.expected_failures),
            progress=_steps(progress, len(all_samples())),
        )


def _host(name: str) -> type[OnnxRuntimeHost] | type[LiteRtHost]:
    if name == "onnxruntime":
        from interposer.bridges.onnxruntime.hosted import OnnxRuntimeHost  # noqa: PLC0415 - hosts are optional

        return OnnxRuntimeHost
    from interposer.bridges.litert.hosted import LiteRtHost  # noqa: PLC0415

    return LiteRtHost


@contextmanager
def _registered(backend: Backend) -> Iterator[None]:
    """Let bridges find a backend by its id within this context, also one that only a file or a class names."""
    registry = process_registry()
    is_new = backend.id not in registry
    if is_new:
        registry.register(backend.id, lambda: backend)
    try:
        yield
    finally:
        if is_new:
            registry.deregister(backend.id)


def _checked_here(args: argparse.Namespace) -> Report:
    conformance = Conformance(
        args.backend,
        expected_failures=_expected(args.expected_failures),
        families=args.family,
        only=args.only or "*",
        settings=Settings(options=_options(args), examples=args.examples, patience=args.timeout),
    )
    conformance.start()
    if not conformance.cases:
        raise InvalidArgumentError(
            f"no case matches {', '.join(args.only)!r}; --list --only PATTERN shows what there is"
        )
    with progress_line() as progress:
        return conformance.report(_steps(progress, len(conformance.cases)))


def _steps(progress: Progress, total: int) -> Callable[[Result], None]:
    """Return a function that notes one more finished case, and whether it has failed."""
    counts = {"finished": 0, "failed": 0}

    def step(result: Result) -> None:
        counts["finished"] += 1
        counts["failed"] += not result.status.good
        progress("checking", counts["finished"], total, f", {counts['failed']:,} failed")

    return step


def _options(args: argparse.Namespace) -> Mapping[str, OptionValue]:
    """Return the options of the backend; raise `InvalidArgumentError` for those of another one."""
    backend = backend_of(args.backend) if args.option else None
    return {} if backend is None else options_of(args.option, [backend]).get(backend.id, {})


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
