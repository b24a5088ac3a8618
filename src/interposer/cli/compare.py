"""``interposer compare``: compare two backends layer by layer, and write the subgraph that differs to a file."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, cast

from interposer.analysis.compare import Comparison, Cut, LayerComparison, compare
from interposer.analysis.divergence import Divergence, Tolerance
from interposer.cli.arguments.compare import configure
from interposer.cli.inputs import inputs_text, named_inputs, read_inputs
from interposer.cli.network import limits_of, reading_of
from interposer.cli.outputs import check_writable, flat, save_npz
from interposer.cli.progress import progress_line
from interposer.cli.running import Running, running
from interposer.cli.sources import sources_of
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.cli.writing import writer_of
from interposer.core.errors import InterposerError, InvalidArgumentError, UnwritableError
from interposer.core.files import replacing, synchronize
from interposer.quantization.statistics import decibels
from interposer.session import read_network
from interposer.session.images import Preprocessing

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> int:
    """Compare the results of every layer between backends, and print what differs; return 1 if something does.

    With --cut, the smallest subgraph that differs is written to a file.
    """
    named_backends = _backends(args.backends)
    if args.cut is not None:
        _check_cut(args)
    network = read_network(args.network, **reading_of(args))
    tolerance = Tolerance(args.tolerance, args.steps)
    with running(args) as setup:
        with progress_line() as progress:
            comparison = compare(
                network,
                _backends(args.backends),
                named_inputs(args, network),
                tolerance=tolerance,
                runtime=setup.runtime,
                model_options=setup.model_options,
                limits=limits_of(args),
                progress=progress,
            )
        if not args.json:
            _print(comparison, args.all)  # before writing files, which may fail
        written_files = None
        if args.cut is not None and comparison.cut is not None:
            written_files = _write_cut(args, setup, comparison)
            written_files["command"] = _command(args, named_backends)
    if args.json:
        write_json(comparison.to_dict() | {"cut": written_files, "inputs": inputs_text(args)})
    else:
        say(f"inputs: {inputs_text(args)}")
        _print_cut(args, written_files)
    return 0 if comparison.agrees else 1


def _backends(names: list[str] | None) -> list[str]:
    backends = ["CpuRef", *names] if names is not None and len(names) == 1 else names or []
    if len(backends) == 2 and backends[0] == backends[1]:
        raise InvalidArgumentError(f"--backends compares {backends[0]!r} with itself; name another backend")
    if len(backends) != 2:
        raise InvalidArgumentError("give the two backends that are to be compared: --backends A,B")
    return backends


# --- the failing subgraph ---------------------------------------------------------------------------------------------


def _check_cut(args: argparse.Namespace) -> None:
    path: Path = args.cut
    writer_of("the part", path)
    for target in (path, path.with_suffix(".npz")):
        check_writable("--cut", target, sources_of(args))


def _write_cut(args: argparse.Namespace, setup: Running, comparison: Comparison) -> dict[str, Any]:
    """Write the failing subgraph to the file of --cut and its inputs beside it, and compare these files again.

    The result is the JSON entry about them: the two paths, the failing layers, whether the difference was reproduced
    (``reproduces``), and its description (``found``).
    """
    path, cut = args.cut, cast(Cut, comparison.cut)
    inputs = path.with_suffix(".npz")
    with replacing(inputs) as file:  # complete before the network replaces an old file, so that both fit together
        save_npz(file, flat(cut.inputs))
        synchronize(file)
        try:
            writer_of("the part", path).write(cut.network, str(path), {})
        except UnwritableError as error:
            raise InterposerError(f"{error}\nthe text form can hold it: --cut {path.with_suffix('.txt')}") from error
    network = read_network(path)
    infos = {layer.name: layer.output.known for layer in network.graph.inputs}
    arrays = read_inputs([str(inputs)], infos, Preprocessing(None, (), ()))
    second_comparison = compare(
        network,
        _backends(args.backends),
        arrays,
        tolerance=comparison.tolerance,
        limits=limits_of(args),
        runtime=setup.runtime,
        model_options=setup.model_options,
    )
    culprit = second_comparison.culprit
    return {
        "file": str(path),
        "inputs": str(inputs),
        "layers": list(comparison.culprit.layers) if comparison.culprit is not None else [],
        "reproduces": not second_comparison.agrees,
        "found": None if culprit is None else str(culprit),
    }


def _command(args: argparse.Namespace, named_backends: list[str]) -> str:
    """Return the command that compares the files of --cut again, with the options that change the results."""
    inputs = args.cut.with_suffix(".npz")
    command = ["interposer", "compare", str(args.cut), "--backends", ",".join(named_backends), "--input", str(inputs)]
    command += [word for text in args.option for word in ("--option", text)]
    command += [word for folder in args.backend_path for word in ("--backend-path", str(folder))]
    command += ["--tolerance", f"{args.tolerance:g}"] if args.tolerance is not None else []
    command += ["--steps", f"{args.steps:g}"] if args.steps != 1 else []
    return shlex.join(command)


def _print_cut(args: argparse.Namespace, written_files: dict[str, Any] | None) -> None:
    if written_files is None:
        return
    say(
        f"written: {written_files['file']} ({counted(len(written_files['layers']), 'layer')}), "
        f"with inputs in {written_files['inputs']}"
    )
    if written_files["reproduces"]:
        say(f"  it was compared again, and differs in the same way: {written_files['found']}")
    else:
        say("  compared again by itself, it does not differ; another format may keep more of it, such as .txt")
    say(f"  {written_files['command']}")


# --- the result -------------------------------------------------------------------------------------------------------


def _print(comparison: Comparison, shows_all: bool) -> None:
    first_backend, second_backend = comparison.backends
    shown_layers = [layer for layer in comparison.layers if shows_all or _is_wrong(comparison, layer)]
    if shown_layers:
        titles = ["layer", "operator", "info", "range", f"{second_backend} on the same inputs", "on its own", "snr", ""]
        show(without_empty_columns(Table(titles, [_row(comparison, layer) for layer in shown_layers])))
        print()
    for layer in comparison.layers:
        for backend, reason in layer.refused.items():
            say(f"{backend} does not run {layer.name!r} ({layer.kind}): {reason}; it is taken from {layer.taken_from}")
    for name, divergence in comparison.outputs.items():
        say(f"output {name!r} of the whole network: {divergence}")
    if comparison.largest is not None:
        largest = comparison.largest
        say(f"largest difference in one layer: {largest.name!r} ({largest.kind}): {largest.local}")
    if comparison.culprit is None:
        say(f"{second_backend} agrees with {first_backend} on {_compared(comparison)}")
        return
    if comparison.first is not None:
        say(f"first layer that differs too much: {comparison.first.name!r} ({comparison.first.kind})")
    say(f"{comparison.culprit.backend} differs, {comparison.culprit}")


def _compared(comparison: Comparison) -> str:
    """Return how many layers both backends ran, such as "3 layers", or "2 of 3 layers" if one refused a layer."""
    total, num_compared = len(comparison.layers), sum(not layer.refused for layer in comparison.layers)
    return counted(total, "layer") if num_compared == total else f"{num_compared} of {counted(total, 'layer')}"


def _is_wrong(comparison: Comparison, layer_comparison: LayerComparison) -> bool:
    return comparison.tolerance.exceeded(layer_comparison.local) or comparison.tolerance.exceeded(
        layer_comparison.accumulated, layer_comparison.depth
    )


def _row(comparison: Comparison, layer_comparison: LayerComparison) -> list[str]:
    remark = (
        "differs"
        if comparison.tolerance.exceeded(layer_comparison.local)
        else "adds up"
        if _is_wrong(comparison, layer_comparison)
        else ""
    )
    refused_text = f"refused by {', '.join(layer_comparison.refused)}" if layer_comparison.refused else ""
    return [
        layer_comparison.name,
        layer_comparison.kind,
        layer_comparison.info,
        _range(layer_comparison),
        _cell(layer_comparison.local),
        _cell(layer_comparison.accumulated),
        "" if layer_comparison.snr is None else decibels(layer_comparison.snr),
        refused_text or remark,
    ]


def _range(layer: LayerComparison) -> str:
    return "" if layer.low is None else f"{layer.low:.4g} to {layer.high:.4g}"


def _cell(divergence: Divergence | None) -> str:
    return "" if divergence is None else str(divergence)
