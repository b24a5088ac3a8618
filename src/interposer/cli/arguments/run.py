"""The arguments of ``interposer run``."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.shared import (
    add_input_arguments,
    add_network_arguments,
    add_plan_argument,
    add_precision_argument,
    add_running_arguments,
)
from interposer.cli.numbers import number, numbers, positive, spreads, threads

__all__ = ["configure"]

_INPUTS: Final = """\
inputs:
  An input is an image (bmp, png, jpg, ...), a .npy file, a .npz file with
  arrays by the names of the inputs, a .txt or .csv file with numbers as text, or
  a .bin or .raw file of bare numbers. With --quantize-inputs, these files have
  float values for quantized inputs (.bin and .raw: of 32 bits).
  Several inputs are given as NAME=FILE, or in order. A sequence takes all arrays
  of a .npz file, in its order; an optional that is not given holds nothing.

  An image is resized (bilinear) to the height and width of the input, as grey,
  RGB or RGBA for 1, 3 or 4 channels. An input of uint8 takes the pixel values 0 to
  255 unchanged, an int8 input takes pixel - 128, a float input pixel / 255. With
  --mean or --std it takes (pixel - mean) / std, quantized for a quantized input;
  each option is one number, or one for each channel:

    --mean 127.5 --std 127.5          for networks that take -1 to 1
    --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375
                                      for many that were trained in PyTorch
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer run`."""
    parser.epilog = _INPUTS
    add_input_arguments(parser, "see below")
    parser.add_argument(
        "--layout", choices=("NHWC", "NCHW"), help="the layout of an image input, if its shape is ambiguous"
    )
    parser.add_argument("--mean", type=numbers, default=(), metavar="M", help="subtracted from an image's pixel values")
    parser.add_argument("--std", type=spreads, default=(), metavar="S", help="divisor of an image's pixel values")
    parser.add_argument("--labels", metavar="FILE", help="a file with a class name on each line")
    parser.add_argument("--top", type=positive, metavar="N", help="how many classes to show (default: 5)")
    parser.add_argument("--output", metavar="NAME", help="which output to show, where there are several")
    parser.add_argument(
        "--outputs", action="append", default=[], metavar="NAME,NAME",
        help="compute these values instead of the outputs: any value of the network by name; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--save-intermediates", metavar="FILE",
        help="write the results of every layer to a .npz or .json file, under the names of the values; outputs too",
    )  # fmt: skip
    _add_timing_arguments(parser)
    parser.add_argument(
        "--dequantize-outputs", action="store_true", help="show and save quantized outputs as the floats they stand for"
    )
    parser.add_argument(
        "--save", metavar="FILE",
        help="write all outputs to a file; its suffix is the format: .npz, .json, or for one output .npy, .txt, .raw",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_network_arguments(parser)
    add_plan_argument(parser)
    add_precision_argument(parser)
    add_running_arguments(parser)


def _add_timing_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repeat", type=positive, default=1, metavar="N",
        help="time N runs after one to warm up; by default, only the first run is made and timed",
    )  # fmt: skip
    parser.add_argument(
        "--concurrent", type=threads, default=1, metavar="N",
        help="run in N threads at the same time, each --repeat times (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=number("milliseconds", zero=False), metavar="MS",
        help="end with status 1 if the median time of a run is longer than this",
    )  # fmt: skip
