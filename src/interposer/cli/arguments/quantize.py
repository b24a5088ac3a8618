"""The arguments of ``interposer quantize``."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Final

from interposer.cli.arguments.shared import (
    LateChoices,
    add_running_arguments,
    add_source_arguments,
    backend_ids,
    network_path,
)
from interposer.cli.numbers import number, numbers, positive, spreads

__all__ = ["configure"]

_HELP: Final = """\
calibration data:
  --data names a folder with images, .npy and .npz files (each is a sample, in the
  order of their names), a .npz file with an array for each input and the samples
  along axis 0, a .npy file for a network with one input, or a .csv file. A table
  has a sample in each row, or, as Arm NN's quantizer takes it, the columns number
  of the run, binding id of the input, and path of a file with its numbers.

  Images are converted as interposer run does it: a float input takes pixel / 255,
  or with --mean and --std (pixel - mean) / std.

An ONNX model gets float layers between DequantizeLinear and QuantizeLinear, the
form in which other programs run it best.
"""


def _observers() -> Collection[str]:
    from interposer.quantization import OBSERVERS  # noqa: PLC0415 - takes longer than the rest of the command

    return tuple(OBSERVERS)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer quantize`."""
    parser.epilog = _HELP
    parser.add_argument("network", type=network_path, help="the file with the float network")
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True,
        help="the file to write; its suffix, {writers}, is the format",
    )  # fmt: skip
    parser.add_argument("--data", metavar="PATH", help="the calibration data (see below)")
    parser.add_argument("--samples", type=positive, metavar="N", help="use at most N samples (default: all)")
    _add_settings(parser)
    parser.add_argument("--layout", choices=("NHWC", "NCHW"), help="the layout of images, if the shape is ambiguous")
    parser.add_argument("--mean", type=numbers, default=(), metavar="M", help="subtracted from an image's pixel values")
    parser.add_argument("--std", type=spreads, default=(), metavar="S", help="divisor of an image's pixel values")
    parser.add_argument("--backends", type=backend_ids, metavar="A,B", help="the backends that run the calibration")
    parser.add_argument("--report", metavar="FILE", help="write the report of all layers as .html, .json or .txt")
    parser.add_argument("--all", action="store_true", help="list every layer, not only those that stay in float")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_source_arguments(parser)
    add_running_arguments(parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheme", default="int8", metavar="NAME",
        help="int8 (default), uint8, int16, int8-symmetric, or Arm NN's names QAsymmS8, QAsymmU8, QSymmS16, QSymmS8; "
        "without data: float16, bfloat16, weights-int8, weights-int4, dynamic",
    )  # fmt: skip
    parser.add_argument(
        "--block-size", type=positive, metavar="N",
        help="weights that share a scale, for --scheme weights-int4 (default: 32)",
    )  # fmt: skip
    parser.add_argument(
        "--algorithm", choices=("calibrated", "armnn"), default="calibrated",
        help="armnn: the rules of Arm NN's quantizer, which needs no data (default: calibrated)",
    )  # fmt: skip
    parser.add_argument(
        "--observer",
        choices=LateChoices(_observers),
        metavar="NAME",
        default="minmax",
        help="how ranges follow from values (default: minmax)",
    )
    parser.add_argument(
        "--percentile", type=number("a percentage"), metavar="P",
        help="the percentage of values in the range, for --observer percentile (default: 99.99)",
    )  # fmt: skip
    parser.add_argument(
        "--per-channel", action=argparse.BooleanOptionalAction,
        help="a scale of the weights for each output channel, or one for all (default: by scheme)",
    )  # fmt: skip
    parser.add_argument(
        "--correct-bias", action=argparse.BooleanOptionalAction, default=True,
        help="subtract the mean error of rounded weights from the bias (default: yes, not for armnn)",
    )  # fmt: skip
    parser.add_argument(
        "--equalize", action="store_true",
        help="scale the channels between convolutions in a row, so that their weights have similar ranges",
    )  # fmt: skip
    _add_exceptions(parser)


def _add_exceptions(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say what stays in float."""
    parser.add_argument(
        "--float", action="append", default=[], metavar="NAME,NAME", dest="float_layers",
        help="layers or operators that stay in float, by name; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--target", type=number("a number of decibels"), metavar="DB",
        help="leave layers in float until every output has this signal-to-noise ratio",
    )  # fmt: skip
    parser.add_argument("--quantize-types", action="store_true", help="quantize inputs and outputs of the network, too")
