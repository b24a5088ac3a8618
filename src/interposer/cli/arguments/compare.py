"""The arguments of ``interposer compare``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import add_input_arguments, add_network_arguments, add_running_arguments, file_path
from interposer.cli.numbers import number

__all__ = ["configure"]

_HELP: Final = """\
The first backend is the reference (CpuRef if only one is named). Each layer is
run as a separate network: by both backends on the same inputs, which gives the
local error of the layer, and by the second backend on its own earlier results,
which gives the accumulated error. Then the whole network is compiled and run. If
its results are wrong although every layer is right, the shortest sequence of
layers that is wrong when compiled together is searched for. CpuRef runs layers
that one of the backends refuses, or the other backend if CpuRef refuses them.

Differences of floats are reported as absolute values, relative to the largest
element, and in units in the last place; differences of integers in steps. After
n layers, n times the tolerance is allowed. The columns range and snr have the
range of values, and the signal-to-noise ratio of the accumulated result.

--cut writes the subgraph that differs, in the format that the file's suffix
names, and its inputs next to it as .npz; the written file is compared again at
once.
"""


_nonnegative: Final = number("a number of 0 or more")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer compare`."""
    parser.epilog = _HELP
    add_network_arguments(parser, "the reference backend, and the backend to compare with it")
    add_input_arguments(parser)
    add_running_arguments(parser)
    parser.add_argument(
        "--tolerance", type=_nonnegative, metavar="T",
        help="allowed error of floats in a layer, relative to the largest element (default: by type, 1e-4 for float32)",
    )  # fmt: skip
    parser.add_argument(
        "--steps",
        type=_nonnegative,
        default=1,
        metavar="N",
        help="steps that quantized results may be off (default: 1)",
    )
    parser.add_argument("--all", action="store_true", help="list every layer, not only those that differ too much")
    parser.add_argument(
        "--cut", type=file_path, metavar="FILE",
        help="write the failing subgraph to a file with the suffix {writers}",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
