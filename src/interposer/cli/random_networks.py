"""``interposer check-backend ID --random N``: compare a backend with the reference on random networks."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, Final

from interposer.cli.arguments.random_networks import add_arguments
from interposer.cli.progress import Progress, progress_line
from interposer.cli.running import options_of
from interposer.cli.tables import Table, say, show, write_json
from interposer.core.config import NUM_THREADS
from interposer.core.errors import InvalidArgumentError
from interposer.testing.judge import Campaign, campaign
from interposer.testing.judge.tasks import Judged
from interposer.testing.replay import backend_of, is_library
from interposer.testing.tolerances import Tolerances

__all__ = ["add_arguments", "check_absent", "execute"]

_OF_NETWORKS: Final = (
    "--seed", "--start", "--kind", "--steps", "--jobs", "--threads", "--shrink", "--folder", "--seconds",
)  # fmt: skip
"""Options of random networks."""
_OF_CHECKS: Final = (
    "--only", "--family", "--junit", "--refusals", "--expected-failures", "--examples", "--timeout",
)  # fmt: skip
"""Options of all other checks."""
_ID: Final = re.compile(r"(float|quantized)-(\d+)-(\d+)\Z")


def check_absent(args: argparse.Namespace) -> None:
    """Report wrong usage if an option is given that selects or limits random networks, but --random is not."""
    for option in _OF_NETWORKS:
        if _is_given(args, option):
            args.wrong_usage(f"{option} is for random networks; give --random, too")


def _is_given(args: argparse.Namespace, option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in args.words)


def execute(args: argparse.Namespace) -> int:
    """Run random networks on the backends and compare with the reference kernels; return 1 if a result is wrong.

    Wrong results, exceptions and crashes count as findings.
    """
    for option in _OF_CHECKS:
        if _is_given(args, option):
            args.wrong_usage(f"--random judges nothing but random networks; {option} cannot be given with it")
    backends = [args.backend] if is_library(args.backend) else args.backend.split(",")
    arguments = _arguments(args)
    options = options_of(args.option, [backend_of(backend) for backend in backends]) if args.option else {}
    with progress_line() as progress:
        report = campaign(backends, options=options, progress=_steps(progress, arguments["count"]), **arguments)
    if args.json:
        write_json(report.to_dict())
    else:
        _print(report)
    return 0 if report.ok else 1


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    arguments = {name: getattr(args, name) for name in ("jobs", "seconds", "shrink", "folder")}
    arguments["tolerances"] = Tolerances(steps=args.steps)
    arguments["environment"] = {NUM_THREADS: str(args.threads)} if args.threads else {}
    network_id = _ID.match(args.random)
    if network_id:
        kind, seed, number = network_id.groups()
        return {"count": 1, "kind": kind, "seed": int(seed), "start": int(number), **arguments}
    if not args.random.isdecimal() or not int(args.random):
        raise InvalidArgumentError(
            f"--random takes a number of networks, or an id such as float-7-123, not {args.random!r}"
        )
    return {"count": int(args.random), "kind": args.kind, "seed": args.seed, "start": args.start, **arguments}


def _steps(progress: Progress, total: int) -> Callable[[Judged], None]:
    """Return a function that notes one more network that was compared with the reference, and whether it differs."""
    counts = {"finished": 0, "findings": 0}

    def step(judged: Judged) -> None:
        counts["finished"] += 1
        counts["findings"] += any(verdict.is_finding for verdict in judged.verdicts)
        progress("judging random networks", counts["finished"], total, f", {counts['findings']:,} findings")

    return step


def _print(report: Campaign) -> None:
    titles, *rows = report.table()
    show(Table(titles, rows, right=titles[2:]))
    for finding in report.findings:
        print()
        for line in str(finding).splitlines():
            say(line)
    print()
    say(report.summary())
