"""``interposer trace``: run a network, and write what happened as a timeline."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.inputs import add_input_arguments, inputs_text, read_inputs, seed_of, sized_inputs
from interposer.cli.network import add_network_arguments, add_plan_argument, open_model, report_absent, sources_of
from interposer.cli.numbers import positive
from interposer.cli.outputs import check_writable, file_path
from interposer.cli.tables import Table, say, show, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.profiling import LayerTimes, Profile
from interposer.profiling.profile import SUFFIXES
from interposer.session.images import Preprocessing

__all__ = ["configure", "execute"]

_HELP: Final = """\
The trace has the steps of the optimizer, the loading of the network, and its runs
with every layer and every copy, on tracks for threads, backends, devices and
counters. Arrows follow tensors from one backend to another. The suffix of the file
chooses the format: .pftrace or .perfetto-trace is Perfetto's, which
https://ui.perfetto.dev shows, and .json is Chrome's (chrome://tracing).

Inputs are files (--input) or random numbers (--random), the same in each run.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer trace`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _HELP
    add_network_arguments(parser)
    add_plan_argument(parser)
    parser.add_argument(
        "-o", "--output", type=file_path, required=True, metavar="FILE", help="the file to write: .pftrace or .json"
    )
    parser.add_argument("--runs", type=positive, default=10, metavar="N", help="how many runs to record (default: 10)")
    add_input_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the times of the layers as JSON")


def execute(args: argparse.Namespace) -> None:
    """Load and run the network while a profile records, write the trace, and print the times of the layers."""
    if args.output.suffix.lower() not in SUFFIXES:
        raise InvalidArgumentError(f"--output takes a file with the suffix {', '.join(SUFFIXES)}, not {args.output}")
    check_writable("--output", args.output, sources_of(args))
    profile = Profile(args.output)
    with profile, open_model(args) as model:
        plain = Preprocessing(quantize=args.quantize_inputs)
        inputs = read_inputs(args.input, model.inputs, plain, seed_of(args), sized_inputs(model))
        for _ in range(args.runs):
            model.run(inputs)
        report_absent(model)
    if args.json:
        layers = [item.to_dict() for item in profile.layers()]
        write_json({"layers": layers, "runs": args.runs, "lost": profile.lost, "inputs": inputs_text(args)})
        return
    _print(profile.layers())
    say(f"written: {args.output}, with {args.runs} runs on: {inputs_text(args)}")
    if profile.lost:
        say(f"{profile.lost} events were lost, because the buffer was full; give fewer --runs")


def _print(layers: list[LayerTimes]) -> None:
    total = sum(item.total for item in layers) or 1
    rows = [[*_named(item), f"{item.median / 1000:.2f}", f"{item.total / total:.1%}"] for item in layers]
    show(Table(("layer", "operator", "backend", "count", "median us", "share"), rows, ("count", "median us", "share")))


def _named(item: LayerTimes) -> tuple[str, ...]:
    return item.name, item.site.kind, item.site.backend, str(item.count)
