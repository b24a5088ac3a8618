"""The arguments of ``interposer check-backend --random``, which compares a backend on random networks."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.numbers import number, positive, threads, whole

__all__ = ["add_arguments"]

_seconds: Final = number("a positive number of seconds", zero=False)


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
