"""``interposer quantize``: quantize a float network with calibration data, and write it to a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from interposer.cli.network import (
    add_source_arguments,
    backend_ids,
    names_of,
    network_path,
    reading_of,
    sources_of,
)
from interposer.cli.numbers import number, numbers, positive, spreads
from interposer.cli.outputs import check_writable
from interposer.cli.progress import progress_line
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.cli.writing import named_writer_of, suffixes_of_writers
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import write_file
from interposer.core.types import DataLayout
from interposer.file_formats import Format
from interposer.ir.network import Network
from interposer.quantization import OBSERVERS, STORAGE, LayerReport, QuantizationReport, quantize
from interposer.quantization.files import read_samples
from interposer.session.images import Preprocessing
from interposer.session.source import read_network

__all__ = ["configure", "execute"]

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


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer quantize`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _HELP
    parser.add_argument("network", type=network_path, help="the file with the float network")
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True,
        help=f"the file to write; its suffix, {suffixes_of_writers()}, is the format",
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
        "--observer", choices=tuple(OBSERVERS), default="minmax", help="how ranges follow from values (default: minmax)"
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


def execute(args: argparse.Namespace) -> None:
    """Quantize the network, write it and its report, and print a summary."""
    name, writer = _checked(args)
    network = read_network(args.network, **reading_of(args))
    quantized = quantize(
        network,
        _data(args, network),
        scheme=args.scheme,
        algorithm=args.algorithm,
        observer=args.observer,
        percentile=args.percentile,
        per_channel=args.per_channel,
        equalize=args.equalize,
        correct_bias=args.correct_bias,
        block_size=args.block_size,
        float_layers=names_of("--float", args.float_layers, _names(network)) or (),
        target=args.target,
        output_format=name,
        keep_types=not args.quantize_types,
        backends=args.backends,
        progress=progress_line("comparing"),
    )
    writer.write_quantized(quantized, args.output)
    if args.report is not None:
        _write_report(quantized.report, Path(args.report))
    if args.json:
        write_json(quantized.report.to_dict() | {"written": args.output})
    else:
        _print(args, quantized.report)


def _checked(args: argparse.Namespace) -> tuple[str, Format]:
    """Check the paths that are written to, and return the name of the output's format, and the format."""
    name, format = named_writer_of("the output", args.output)
    targets = {"--output": args.output, "--report": args.report}
    for option, path in targets.items():
        if path is not None:
            check_writable(option, Path(path), sources_of(args))
    if args.report is not None and Path(args.report).suffix.lower() not in _REPORTS:
        suffixes = ", ".join(_REPORTS)
        raise InvalidArgumentError(f"the report is {args.report!r}; expected a file with the suffix {suffixes}")
    if args.data is None and args.algorithm != "armnn" and args.scheme not in STORAGE:
        raise InvalidArgumentError(
            "give calibration data with --data PATH; only --algorithm armnn and schemes that store weights in fewer "
            "bits do without"
        )
    return name, format


def _data(args: argparse.Namespace, network: Network) -> Any:
    if args.data is None:
        return None
    preprocessing = Preprocessing(DataLayout[args.layout] if args.layout else None, args.mean, args.std)
    return read_samples(network, args.data, preprocessing, args.samples)


def _names(network: Network) -> set[str]:
    return {text for layer in network for text in (layer.name, layer.kind)}


# --- writing ----------------------------------------------------------------------------------------------------------


_REPORTS: Final[dict[str, Callable[[QuantizationReport], str]]] = {
    ".html": QuantizationReport.to_html,
    ".json": lambda report: json.dumps(report.to_dict(), indent=2) + "\n",
    ".txt": lambda report: f"{report}\n",
}


def _write_report(report: QuantizationReport, path: Path) -> None:
    write_file(path, _REPORTS[path.suffix.lower()](report))


# --- the summary ------------------------------------------------------------------------------------------------------


def _print(args: argparse.Namespace, report: QuantizationReport) -> None:
    shown_layers = report.layers if args.all else report.left
    if shown_layers:
        titles = ["layer", "operator", "range", "scale", "zero point", "snr", "in float, because"]
        show(
            without_empty_columns(
                Table(titles, [_row(layer) for layer in shown_layers], ("scale", "zero point", "snr"))
            )
        )
        print()
    say(f"{len(report.quantized)} of {counted(len(report.layers), 'layer')} quantized ({report.scheme})")
    for output in report.outputs:
        say(f"output {output.name!r}: signal-to-noise ratio {output.snr:.1f} dB, cosine {output.cosine:.6f}")
    for note in report.notes:
        say(f"note: {note}")
    if report.samples:
        say(f"calibrated with {counted(report.samples, 'sample')} from {args.data}")
    say(f"written: {args.output}")


def _row(layer: LayerReport) -> list[str]:
    q = layer.quantization
    return [
        layer.name,
        layer.kind,
        f"{layer.low:.4g} to {layer.high:.4g}",
        "" if q is None else f"{q.scale:.6g}",
        "" if q is None else str(q.zero_point),
        "" if layer.snr is None else f"{layer.snr:.1f} dB",
        layer.reason,
    ]
