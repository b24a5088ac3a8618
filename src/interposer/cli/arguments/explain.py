"""The arguments of ``interposer explain``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import (
    add_input_arguments,
    add_network_arguments,
    add_plan_argument,
    add_precision_argument,
    add_running_arguments,
    file_path,
)
from interposer.cli.numbers import number

__all__ = ["configure"]

_HELP: Final = """\
For every layer: the backend that runs it, and why every other backend does not.
For every part (connected layers on one backend): its time, and the tensors that
cross its border, copied or not.

With --measure, the network is run on --input or with --random, and every layer
and every copy is timed. Times marked with ~ are estimated from work (bytes and
operations): those of layers within a compiled part, and all times if nothing is
measured. --html writes a self-contained page that draws the network, and --dot
the layers as they run, with their backends, in the language of Graphviz.
"""


_seconds: Final = number("seconds, more than 0", zero=False)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer explain`."""
    parser.epilog = _HELP
    add_network_arguments(parser)
    add_plan_argument(parser)
    add_precision_argument(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--html", type=file_path, metavar="FILE.html", help="write a page that draws the network")
    parser.add_argument("--dot", type=file_path, metavar="FILE.dot", help="write the layers as they run for Graphviz")
    parser.add_argument("--measure", action="store_true", help="run the network, and time its layers and copies")
    parser.add_argument("--budget", type=_seconds, metavar="S", help="seconds to measure (default: 1)")
    add_input_arguments(parser)
    add_running_arguments(parser)
