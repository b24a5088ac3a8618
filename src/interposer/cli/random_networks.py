"""``interposer check-backend ID --random N``: compare a backend with the reference on random networks."""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any, Final

from interposer.cli.numbers import number, positive, threads, whole
from interposer.cli.tables import Table, say, show, write_json
from interposer.core.config import NUM_THREADS
from interposer.core.errors import InvalidArgumentError
from interposer.testing.judge import Campaign, campaign
from interposer.testing.judge.tasks import Judged
from interposer.testing.replay import is_library
from interposer.testing.tolerances import Tolerances

__all__ = ["add_arguments", "check_absent", "execute"]

_seconds: Final = number("a positive number of seconds", zero=False)
_ID: Final = re.compile(r"(float|quantized)-(\d+)-(\d+)\Z")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `interposer check-backend` that select and limit random networks."""
    group = parser.add_argument_group("random networks")
    group.add_argument(
        "--random", metavar="N", help="judge only this many random networks, or one by its id, such as float-7-123"
    )
    group.add_argument("--seed", type=whole, default=0, metavar="S", help="which sequence of random networks")
    group.add_argument("--start", type=whole, default=0, metavar="N", help="the number of the first random network")
    group.add_argument("--kind", choices=("float", "quantized"), help="only networks of this kind")
    group.add_argument("--steps", type=whole, default=0, metavar="N", help="steps that quantized results may be off")
    group.add_argument("--jobs", type=positive, metavar="N", help="processes at the same time; one for each processor")
    group.add_argument("--threads", type=threads, metavar="N", help="threads for each process")
    group.add_argument(
        "--shrink", type=whole, default=10, metavar="N", help="how many findings to reduce to the smallest network"
    )
    group.add_argument(
        "--folder", default="conformance-failures", metavar="FOLDER", help="where scripts go that show findings again"
    )
    group.add_argument("--seconds", type=_seconds, default=30.0, metavar="S", help="the time for one random network")


def check_absent(args: argparse.Namespace) -> None:
    """Report wrong usage if an option is given that selects or limits random networks, but --random is not."""
    for option in (
        "--seed",
        "--start",
        "--kind",
        "--steps",
        "--jobs",
        "--threads",
        "--shrink",
        "--folder",
        "--seconds",
    ):
        if _is_given(args, option):
            args.wrong_usage(f"{option} is for random networks; give --random, too")


def _is_given(args: argparse.Namespace, option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in args.words)


def execute(args: argparse.Namespace) -> int:
    """Run random networks on the backends and compare with the reference kernels; return 1 if a result is wrong.

    Wrong results, exceptions and crashes count as findings.
    """
    for option in ("--only", "--family", "--junit", "--refusals", "--expected-failures", "--examples", "--timeout"):
        if _is_given(args, option):
            args.wrong_usage(f"--random judges nothing but random networks; {option} cannot be given with it")
    progress = _Progress()
    backends = [args.backend] if is_library(args.backend) else args.backend.split(",")
    try:
        report = campaign(backends, progress=progress.step, **_arguments(args, progress))
    finally:
        progress.clear()
    if args.json:
        write_json(report.to_dict())
    else:
        _print(report)
    return 0 if report.ok else 1


def _arguments(args: argparse.Namespace, progress: _Progress) -> dict[str, Any]:
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
    progress.total = int(args.random)
    return {"count": progress.total, "kind": args.kind, "seed": args.seed, "start": args.start, **arguments}


class _Progress:
    """Shows on standard error how many random networks are judged and how many have findings, if it is a terminal."""

    def __init__(self) -> None:
        self.total, self.done, self.failed = 1, 0, 0
        self._start = time.monotonic()
        self.shown = sys.stderr.isatty()

    def step(self, judged: Judged) -> None:
        """Count one more network that was compared with the reference, and update the line after every 20 networks."""
        self.done += 1
        self.failed += any(verdict.is_finding for verdict in judged.verdicts)
        if self.shown and self.done % 20 == 0:
            rate = self.done / (time.monotonic() - self._start)
            text = f"{self.done:,} of {self.total:,} networks, {self.failed:,} findings, {rate:.0f} a second"
            print(f"\r{text}\033[K", end="", file=sys.stderr)

    def clear(self) -> None:
        """Remove the progress line."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr)


def _print(report: Campaign) -> None:
    titles, *rows = report.table()
    show(Table(titles, rows, right=titles[2:]))
    for finding in report.findings:
        print()
        for line in str(finding).splitlines():
            say(line)
    print()
    say(report.summary())
