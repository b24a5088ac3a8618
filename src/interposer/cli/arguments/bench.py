"""The arguments of ``interposer bench``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import (
    add_input_arguments,
    add_network_arguments,
    add_plan_argument,
    add_running_arguments,
    backend_ids,
    file_path,
)
from interposer.cli.numbers import number, positive, threads

__all__ = ["configure"]

_HELP: Final = """\
CpuRef runs the layers that a backend does not support. "auto" is the placement that
`interposer plan` finds: the fastest backend, or a mix of several if that is faster.
It is searched for if it is not known yet; backends that the search did not time are
listed. The network is loaded on all choices, which are then measured in turns,
repeatedly, so that a slow moment of the machine affects all of them.

Times are medians of the turns, and the spread is half the distance between the
slowest and the fastest turn. Choices whose times differ by less than the noise are
marked "too noisy to compare". Choices with the same placement of every layer are
measured once. "load ms" is the time to load the network, without the search for
"auto", and "first ms" that of the first run, which allocates memory. If shapes are
open, the first run also divides and compiles the network.

With --report, no network is needed: small networks that are the same everywhere run on
CpuAcc, on one thread and on all, and their results are compared with CpuRef. The file
has the processor, the level of the kernels, times and checks, and no other names of
yours. The status is 1 if a result is wrong.

Inputs are files (--input) or random numbers (--random), the same in each run.
"""


_seconds: Final = number("seconds")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer bench`."""
    parser.epilog = _HELP
    add_network_arguments(parser, "backends to measure, each by itself (default: all)", optional=True)
    parser.add_argument(
        "--mix", type=backend_ids, action="append", default=[], metavar="A,B",
        help="measure these backends together too, in this order of preference; may be repeated",
    )  # fmt: skip
    add_plan_argument(parser, "measure what this file says too")
    parser.add_argument("--no-auto", action="store_true", help="do not look for the fastest mix")
    parser.add_argument(
        "--budget", type=_seconds, metavar="S",
        help="seconds to look for the fastest mix (default: 10, and as few as 1 if --rounds or --seconds are small)",
    )  # fmt: skip
    add_input_arguments(parser)
    add_running_arguments(parser)
    parser.add_argument("--threads", type=threads, metavar="N", help="how many threads backends may use")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="turns of each backend (default: 7)")
    parser.add_argument(
        "--seconds", type=_seconds, default=0.2, metavar="S",
        help="least length of a turn; 0 for three runs (default: 0.2)",
    )  # fmt: skip
    parser.add_argument(
        "--concurrent", type=threads, default=1, metavar="N",
        help="run each choice in N threads at the same time; a time is that of N runs (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=number("milliseconds", zero=False), metavar="MS",
        help="end with status 1 if the fastest choice takes longer than this",
    )  # fmt: skip
    parser.add_argument(
        "--report", nargs="?", type=file_path, const="interposer-report.json", metavar="FILE.json",
        help="instead of a network, measure and check CpuAcc's fixed set, and write a file to send back",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plot", type=file_path, metavar="FILE.svg", help="draw the times into a file")
