"""``interposer explain``: show which backend runs which layer, and why the other backends do not."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.inputs import (
    add_input_arguments,
    inputs_text,
    read_inputs,
    require_shapes,
    require_values,
    seed_of,
    sized_inputs,
)
from interposer.cli.network import (
    add_network_arguments,
    add_plan_argument,
    add_precision_argument,
    open_model,
    sources_of,
)
from interposer.cli.numbers import number
from interposer.cli.outputs import check_writable, file_path
from interposer.cli.tables import Table, say, show, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import is_same_file, write_file
from interposer.report.explanation import Explanation
from interposer.session import Model
from interposer.session.images import Preprocessing

__all__ = ["configure", "execute"]

_RIGHT: Final = ("part", "time", "work")

_HELP: Final = """\
For every layer: the backend that runs it, and why every other backend does not.
For every part (connected layers on one backend): its time, and the tensors that
cross its border, copied or not.

With --measure, the network is run on --input or with --random, and every layer
and every copy is timed. Times marked with ~ are estimated from work (bytes and
operations): those of layers within a compiled part, and all times if nothing is
measured. --html writes a self-contained page that draws the network, and --dot
the layers as they run, with their backends, in the language of Graphviz.
"""
_seconds: Final = number("seconds, more than 0", zero=False)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer explain`."""
    parser.epilog = _HELP
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_network_arguments(parser)
    add_plan_argument(parser)
    add_precision_argument(parser)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--html", type=file_path, metavar="FILE.html", help="write a page that draws the network")
    parser.add_argument("--dot", type=file_path, metavar="FILE.dot", help="write the layers as they run for Graphviz")
    parser.add_argument("--measure", action="store_true", help="run the network, and time its layers and copies")
    parser.add_argument("--budget", type=_seconds, metavar="S", help="seconds to measure (default: 1)")
    add_input_arguments(parser)


def execute(args: argparse.Namespace) -> None:
    """Divide the network among the backends, run it if requested, and print the explanation."""
    if not args.measure and (args.input or seed_of(args) is not None):
        option = "--input" if args.input else "--seed" if args.seed is not None else "--random"
        raise InvalidArgumentError(f"{option} is what the network runs on to be measured; give --measure too")
    if not args.measure and (args.budget is not None or args.quantize_inputs):
        option = "--quantize-inputs" if args.budget is None else "--budget"
        raise InvalidArgumentError(f"{option} is for measuring; give --measure too")
    _check_files(args)
    with open_model(args) as model:
        if not model.is_prepared and not (args.measure and args.input):
            require_shapes(model.inputs)
            require_values(model)
        preprocessing = Preprocessing(quantize=args.quantize_inputs)
        inputs = None
        if args.measure:
            inputs = read_inputs(args.input, model.inputs, preprocessing, seed_of(args), sized_inputs(model))
        explanation = model.explain(args.measure, inputs=inputs, budget_seconds=args.budget)
        if args.dot is not None:
            model.optimized.to_dot(args.dot)
    if args.html is not None:
        write_file(args.html, explanation.to_html())
    if args.json:
        write_json({**explanation.to_dict(), **({"ran_on": inputs_text(args)} if args.measure else {})})
    else:
        _print(explanation, _left_out(model) if args.backends is None else [])
        if args.measure:
            say(f"measured on: {inputs_text(args)}")


def _check_files(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` if a requested file cannot be written, before anything is computed."""
    for option, path in (("--html", args.html), ("--dot", args.dot)):
        if path is not None:
            check_writable(option, path, sources_of(args))
    if args.dot is not None and args.html is not None and is_same_file(args.dot, args.html):
        raise InvalidArgumentError(f"--html and --dot name the same file, {str(args.dot)!r}; name two")


def _left_out(model: Model) -> list[str]:
    """Return the ids of the backends that the model's runtime knows, but that are not available here."""
    registry = model.runtime.registry
    return [backend for backend in registry if registry.reason_absent(backend) is not None]


def _print(explanation: Explanation, left_out: list[str]) -> None:
    for line in explanation.summary():
        say(line)
    if left_out:
        say(f"  not available here: {', '.join(left_out)} (interposer backends says why)")
    for titles, *rows in filter(None, (explanation.part_table(), explanation.table())):
        print()
        show(Table(titles, rows, _RIGHT))
