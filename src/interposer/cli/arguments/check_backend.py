"""The arguments of ``interposer check-backend``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from interposer.cli.arguments import random_networks
from interposer.cli.arguments.shared import add_running_arguments, file_path
from interposer.cli.numbers import number, whole

__all__ = ["configure"]

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
    parser.add_argument(
        "--through", choices=("litert", "onnxruntime"), metavar="HOST",
        help="run the samples inside another runtime, which calls the backend through a bridge: litert, onnxruntime",
    )  # fmt: skip
    parser.add_argument("--refusals", action="store_true", help="list what the backend refuses, and why")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--junit", type=file_path, metavar="FILE", help="write the report to a file as JUnit's XML")
    random_networks.add_arguments(parser)
    add_running_arguments(parser, profiles=False)
    parser.set_defaults(wrong_usage=parser.error)
