"""``interposer convert``: a network of any known format as an ONNX model."""

from __future__ import annotations

import argparse
from pathlib import Path

from interposer.cli.network import add_source_arguments
from interposer.cli.tables import say
from interposer.errors import InterposerError, InvalidArgumentError, UnwritableError
from interposer.session.source import read_network

__all__ = ["configure", "execute"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("network", help="the file: .tflite, .onnx, or .json for NNAPI")
    parser.add_argument("output", help="the ONNX file to write")
    add_source_arguments(parser)
    parser.add_argument(
        "--opset", type=int, metavar="N",
        help="the version of the operator set (default: 20, which engines know, or a newer one where it is needed)",
    )  # fmt: skip
    parser.add_argument(
        "--inexact", action="store_true",
        help="write quantized layers with real numbers between DequantizeLinear and QuantizeLinear",
    )  # fmt: skip
    parser.add_argument("--external-data", action="store_true", help="put the weights into a file of their own")


def execute(args: argparse.Namespace) -> None:
    """Read the network, write it, and say what was written."""
    if Path(args.output).suffix.lower() != ".onnx":
        raise InvalidArgumentError(f"the output is {args.output!r}; expected a file with the suffix .onnx")
    network = read_network(args.network, args.format, dict(args.shape) or None)
    from interposer.writers import onnx  # noqa: PLC0415 - needs the package onnx, which not everybody has

    try:
        opset = onnx.save(
            network, args.output, opset=args.opset, exact=not args.inexact, external_data=args.external_data or None
        )
    except UnwritableError as error:
        raise InterposerError(str(error).replace("exact=False", "--inexact")) from error
    say(f"{args.output}: {len(network)} layers as ONNX, opset {opset}")
