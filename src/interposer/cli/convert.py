"""``interposer convert``: convert a network of any supported format to an ONNX, TensorFlow Lite or Arm NN model."""

from __future__ import annotations

import argparse
from pathlib import Path

from interposer.cli.network import add_source_arguments, names_of, network_path, reading_of, sources_of
from interposer.cli.numbers import positive
from interposer.cli.outputs import check_writable
from interposer.cli.tables import say
from interposer.core.errors import InterposerError, InvalidArgumentError, UnboundInputError, UnwritableError
from interposer.core.files import write_file
from interposer.frontends.template import Template
from interposer.ir.network import Network
from interposer.session.source import Reading, read_network, read_source

__all__ = ["configure", "execute"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer convert`."""
    parser.add_argument(
        "network", type=network_path, help="the file: .tflite, .onnx, .armnn, .json (NNAPI), or the text form"
    )
    parser.add_argument("output", help="the file to write; its suffix, .onnx, .tflite or .armnn, is the format")
    add_source_arguments(parser)
    parser.add_argument(
        "-i", "--inputs", action="append", default=[], metavar="NAME,NAME",
        help="begin the network at these values; layers before them are dropped; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--outputs", action="append", default=[], metavar="NAME,NAME",
        help="end the network at these values; layers that they do not need are dropped; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--opset", type=positive, metavar="N",
        help="for ONNX, the version of the operator set (default: 20, which engines support, or a newer one if it is "
        "needed)",
    )  # fmt: skip
    parser.add_argument(
        "--inexact", action="store_true",
        help="for ONNX, write quantized layers as float layers between DequantizeLinear and QuantizeLinear; "
        "for Arm NN, let Quantize layers round ties away from zero",
    )  # fmt: skip
    parser.add_argument("--external-data", action="store_true", help="for ONNX, write the weights to a separate file")
    parser.add_argument(
        "--release", metavar="VERSION",
        help="for Arm NN, the release that has to read the file, such as 20.08 (default: the oldest possible one)",
    )  # fmt: skip


def execute(args: argparse.Namespace) -> None:
    """Read the network, write it, and print a summary."""
    suffix = Path(args.output).suffix.lower()
    if suffix not in _WRITERS:
        raise InvalidArgumentError(
            f"the output is {args.output!r}; expected a file with the suffix .onnx, .tflite or .armnn"
        )
    _refuse_options_of_others(args, suffix)
    for path in (args.output, f"{args.output}.data"):
        check_writable("the output", Path(path), sources_of(args))
    inputs, outputs = names_of("--inputs", args.inputs), names_of("--outputs", args.outputs)
    source = read_source(args.network, Reading(**reading_of(args), inputs=inputs, outputs=outputs))
    network, fixed_network = _with_open_dimensions(source), None
    try:
        summary = _WRITERS[suffix](network, args)
    except InterposerError:
        fixed_network = _with_fixed_dimensions(source, network)
        if fixed_network is None:
            raise
        network, summary = fixed_network, _WRITERS[suffix](fixed_network, args)
    say(f"{args.output}: {len(network)} layers as {summary}")
    if fixed_network is not None:
        shapes = ", ".join(f"{layer.name} {layer.output.known.shape}" for layer in fixed_network.graph.inputs)
        say(f"open dimensions cannot be written; they have the sizes in {args.network}: {shapes}")


def _with_open_dimensions(source: Network | Template) -> Network:
    """Return the network that a file describes, with its open dimensions left open if possible.

    If a layer cannot be built without known sizes, the dimensions get the sizes that the file records as usual ones.
    """
    try:
        return source.network() if isinstance(source, Template) else source
    except UnboundInputError:
        return read_network(source)


def _with_fixed_dimensions(source: Network | Template, network: Network) -> Network | None:
    """Return the network with its open dimensions fixed to the usual sizes that the file records.

    The result is None if the file records none, or if `network` has no open dimensions.
    """
    if not isinstance(source, Template) or not source.usual:
        return None
    is_open = any(not layer.output.known.is_concrete for layer in network.graph.inputs)
    return source.network(source.usual) if is_open else None


_FORMATS = {
    "--opset": ("ONNX", {".onnx"}),
    "--inexact": ("ONNX and Arm NN", {".onnx", ".armnn"}),
    "--external-data": ("ONNX", {".onnx"}),
    "--release": ("Arm NN", {".armnn"}),
}
"""The formats that each option is for, and their suffixes."""


def _refuse_options_of_others(args: argparse.Namespace, suffix: str) -> None:
    given_options = {
        "--opset": args.opset is not None,
        "--inexact": args.inexact,
        "--external-data": args.external_data,
        "--release": args.release is not None,
    }
    for name in (name for name, is_present in given_options.items() if is_present):
        formats, suffixes = _FORMATS[name]
        if suffix not in suffixes:
            raise InvalidArgumentError(f"{name} is for {formats}, but the output is {args.output!r}")


def _write_onnx(network: Network, args: argparse.Namespace) -> str:
    from interposer.writers import onnx  # noqa: PLC0415 - needs the package onnx, which not everybody has

    try:
        opset = onnx.save(
            network, args.output, opset=args.opset, exact=not args.inexact, external_data=args.external_data or None
        )
    except UnwritableError as error:
        raise InterposerError(str(error).replace("exact=False", "--inexact")) from error
    return f"ONNX, opset {opset}"


def _write_tflite(network: Network, args: argparse.Namespace) -> str:
    from interposer.writers import tflite  # noqa: PLC0415 - likewise

    return f"TFLite, {tflite.save(network, args.output):,} bytes"


def _write_armnn(network: Network, args: argparse.Namespace) -> str:
    from interposer.writers import armnn  # noqa: PLC0415 - likewise

    try:
        content, release = armnn.written(network, release=args.release, exact=not args.inexact)
    except UnwritableError as error:
        raise InterposerError(str(error).replace("exact=False", "--inexact")) from error
    write_file(args.output, content)
    return f"Arm NN, {len(content):,} bytes, for release {release} and later ones"


_WRITERS = {".onnx": _write_onnx, ".tflite": _write_tflite, ".armnn": _write_armnn}
