"""``interposer quantize``: quantize a float network with calibration data, and write it to a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from interposer.cli.arguments.quantize import configure
from interposer.cli.network import names_of, reading_of
from interposer.cli.outputs import check_writable
from interposer.cli.progress import Progress, progress_line
from interposer.cli.running import Running, running
from interposer.cli.sources import sources_of
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.cli.writing import named_writer_of
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import write_file
from interposer.core.types import DataLayout
from interposer.file_formats import Format
from interposer.ir.network import Network
from interposer.quantization import STORAGE, LayerReport, QuantizationReport, QuantizedNetwork, quantize
from interposer.quantization.files import read_samples
from interposer.session.images import Preprocessing
from interposer.session.source import read_network

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Quantize the network, write it and its report, and print a summary."""
    name, writer = _checked(args)
    network = read_network(args.network, **reading_of(args))
    with running(args) as setup, progress_line() as progress:
        quantized_network = _quantized(args, network, name, setup, progress)
    writer.write_quantized(quantized_network, args.output)
    if args.report is not None:
        _write_report(quantized_network.report, Path(args.report))
    if args.json:
        write_json(quantized_network.report.to_dict() | {"written": args.output})
    else:
        _print(args, quantized_network.report)


def _quantized(
    args: argparse.Namespace, network: Network, name: str, setup: Running, progress: Progress
) -> QuantizedNetwork:
    return quantize(
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
        runtime=setup.runtime,
        model_options=setup.model_options,
        progress=progress,
    )


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
    quantization = layer.quantization
    return [
        layer.name,
        layer.kind,
        f"{layer.low:.4g} to {layer.high:.4g}",
        "" if quantization is None else f"{quantization.scale:.6g}",
        "" if quantization is None else str(quantization.zero_point),
        "" if layer.snr is None else f"{layer.snr:.1f} dB",
        layer.reason,
    ]
