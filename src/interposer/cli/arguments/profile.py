"""The arguments of ``interposer profile``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import file_path
from interposer.cli.numbers import number, positive, whole

__all__ = ["configure"]

_HELP: Final = """\
With --listen, it waits on a socket for programs that send their profiles in Arm NN's
external profiling protocol: those that use Interposer with CreationOptions(
profiling=...), and those that use Arm NN itself. With FILE, it reads what one
program has sent, as --store or a capture file of Arm NN has it.

It shows the counters, and the inferences with their layers if the program sends its
timeline. -o writes the same as a trace for Perfetto or Chrome.

With --compare, it shows the layers of two traces of the command trace, those that
became slower by the largest amount first, with the medians of their times.

A socket whose name begins with "@" is an abstract one. Arm NN connects to
@gatord_namespace, which is the default.
"""


_SOCKET: Final = "@gatord_namespace"
"""`DEFAULT_SOCKET` of `profiling.external.options`, whose import takes longer than reading all arguments."""
_seconds: Final = number("seconds")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer profile`."""
    parser.epilog = _HELP
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file with what a program has sent")
    parser.add_argument(
        "--compare", nargs=2, metavar=("BEFORE.json", "AFTER.json"),
        help="show which layers became slower, in two files that `interposer trace -o FILE.json` has written",
    )  # fmt: skip
    parser.add_argument("--listen", action="store_true", help="wait for programs that send profiles")
    parser.add_argument("--socket", default=_SOCKET, metavar="PATH", help=f"the socket (default: {_SOCKET})")
    parser.add_argument("--clients", type=positive, metavar="N", help="end after N programs have come and gone")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="end after this time (default: until Ctrl-C)")
    parser.add_argument(
        "--period", type=positive, default=100_000, metavar="US", help="microseconds between captures (default: 100000)"
    )
    parser.add_argument(
        "--counters", type=_numbers, metavar="0,4", help="the numbers of the counters to capture (default: all)"
    )
    parser.add_argument("--timeline", action="store_true", help="ask for the timeline of inferences and layers")
    parser.add_argument("--packets", action="store_true", help="print a line for each packet")
    parser.add_argument("--store", type=file_path, metavar="FILE", help="write what a program has sent to a file")
    parser.add_argument(
        "-o", "--output", type=file_path, metavar="FILE",
        help="write a trace: .pftrace, .json or .html; that of a second program has its number in front of the suffix",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(whole(part.strip()) for part in text.split(","))
