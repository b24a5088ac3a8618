"""The arguments of ``interposer trace``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import (
    add_input_arguments,
    add_network_arguments,
    add_plan_argument,
    add_running_arguments,
    file_path,
)
from interposer.cli.numbers import positive

__all__ = ["configure"]

_HELP: Final = """\
The trace has the steps of the optimizer, the loading of the network, and its runs
with every layer and every copy, on tracks for threads, backends, devices and
counters. The network runs once before, which is not recorded. Arrows follow tensors
from one backend to another. The suffix of the file chooses the format: .pftrace or
.perfetto-trace is Perfetto's, which https://ui.perfetto.dev shows, .json is Chrome's
(chrome://tracing), and .html is a page for any browser, with a timeline, a flame
graph, tables and the network.

Inputs are files (--input) or random numbers (--random), the same in each run.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer trace`."""
    parser.epilog = _HELP
    add_network_arguments(parser)
    add_plan_argument(parser)
    parser.add_argument(
        "-o", "--output", type=file_path, required=True, metavar="FILE", help="the file: .pftrace, .json or .html"
    )
    parser.add_argument(
        "--runs", type=positive, default=10, metavar="N",
        help="how many runs to record, at least one for each set of inputs (default: 10)",
    )  # fmt: skip
    add_input_arguments(parser)
    add_running_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the times of the layers as JSON")
