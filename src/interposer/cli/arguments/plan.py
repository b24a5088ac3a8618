"""The arguments of ``interposer plan``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import add_network_arguments, add_running_arguments, file_path
from interposer.cli.numbers import number, threads

__all__ = ["configure"]

_HELP: Final = """\
Every backend is timed alone, the default backends first. Then parts of the network
are timed, and the best mixes on the whole network, in turns. On the networks of our
benchmarks, no mix was faster than the best backend alone. What was not timed is
listed with the reason; a larger --budget times more. Earlier results come from the
cache.

The file is JSON, and can be edited: "layers" maps names, patterns (conv*) and
types (type:Softmax) to backends, and the first match counts. The commands
interposer run, explain and bench use the file with --plan.
"""


_positive: Final = number("a number above 0", zero=False)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer plan`."""
    parser.epilog = _HELP
    add_network_arguments(parser, "backends to choose from (default: all, engines too)")
    parser.add_argument("-o", "--output", type=file_path, metavar="FILE", help="where to write the plan")
    parser.add_argument("--budget", type=_positive, default=30.0, metavar="S", help="seconds to measure (default: 30)")
    parser.add_argument("--objective", choices=("latency", "throughput", "memory"), default="latency")
    parser.add_argument(
        "--limit-time", type=_positive, metavar="MS", help="leave out plans whose runs take more milliseconds"
    )
    parser.add_argument("--limit-memory", type=_bytes, metavar="N", help="leave out plans of more bytes; as 64M")
    parser.add_argument(
        "--pin", type=_pair, action="append", default=[], metavar="LAYER=BACKEND",
        help="run a layer, a pattern (conv*) or a type (type:Softmax) on this backend; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--exclude", type=_pair, action="append", default=[], metavar="TYPE=BACKEND",
        help="never run layers of a type on a backend; may be repeated",
    )  # fmt: skip
    parser.add_argument("--threads", type=threads, metavar="N", help="how many threads backends may use")
    add_running_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def _bytes(text: str) -> int:
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in tuple("KMG") else (text, "")
    if not digits.isdecimal() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of bytes, perhaps with K, M or G, not {text!r}")
    return int(digits) << 10 * " KMG".index(unit or " ")


def _pair(text: str) -> tuple[str, str]:
    name, _, backend = text.rpartition("=")
    if not name or not backend:
        raise argparse.ArgumentTypeError(f"expected NAME=BACKEND, not {text!r}")
    return name, backend
