"""The arguments of ``interposer compile``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import (
    add_network_arguments,
    add_plan_argument,
    add_precision_argument,
    add_running_arguments,
    backend_ids,
    file_path,
    shape_argument,
)
from interposer.cli.numbers import listed

__all__ = ["configure"]

_HELP: Final = """\
The file has the network, its constants, the placement with all refusals, and the
compiled parts of the backends that offer them. interposer.load and all commands
read it in place of the model. What does not fit another machine is compiled
again when the file is loaded, with a warning.

Several targets can be in one file: --also adds a list of backends, --isa compiles
CpuAcc's parts for several instruction sets, and --variant adds shapes of inputs.
"""


_ISA: Final = "INTERPOSER_CPUACC_ISA"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer compile`."""
    parser.epilog = _HELP
    add_network_arguments(parser)
    add_plan_argument(parser)
    add_precision_argument(parser)
    add_running_arguments(parser)
    parser.add_argument(
        "-o", "--output", type=file_path, metavar="FILE.ipn", required=True, help="where to write the saved network"
    )
    parser.add_argument(
        "--also", type=backend_ids, action="append", default=[], metavar="A,B",
        help="other backends in order of preference, for machines that do not have the first; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--isa", type=_levels, metavar="LEVEL,LEVEL",
        help=f"compile CpuAcc's parts for these instruction sets of {_ISA}, which this processor must have",
    )  # fmt: skip
    parser.add_argument(
        "--variant", type=_shapes, action="append", default=[], metavar="'NAME=1x3 NAME=2'",
        help="shapes of inputs, with blanks between them, for one variant; may be repeated",
    )  # fmt: skip
    parser.add_argument("--sign-key", metavar="FILE", help="sign the file with this private Ed25519 key (PEM)")
    parser.add_argument("--sign-as", metavar="NAME[:V]", help="sign for this name of a model, and its version V")


def _levels(text: str) -> list[str]:
    levels = listed(text)
    if not levels:
        expected = "expected instruction sets with commas between them, such as avx2,avx512"
        raise argparse.ArgumentTypeError(f"{expected}, not {text!r}")
    return list(dict.fromkeys(levels))


def _shapes(text: str) -> dict[str, int | list[int]]:
    named_shapes = [shape_argument(part) for part in text.split()]
    if not named_shapes:
        raise argparse.ArgumentTypeError("expected shapes such as 'x=1x3x8 mask=1x8'")
    return dict(named_shapes)
