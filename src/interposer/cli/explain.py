"""``interposer explain``: show which backend runs which layer, and why the other backends do not."""

from __future__ import annotations

import argparse
from typing import Final

from interposer.cli.arguments.explain import configure
from interposer.cli.inputs import (
    inputs_text,
    one_set,
    read_inputs,
    require_shapes,
    require_values,
    seed_of,
    sized_inputs,
)
from interposer.cli.network import open_model
from interposer.cli.outputs import check_writable
from interposer.cli.running import running
from interposer.cli.sources import sources_of
from interposer.cli.tables import Table, say, show, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import is_same_file, write_file
from interposer.report.explanation import Explanation
from interposer.session import Model
from interposer.session.images import Preprocessing

__all__ = ["configure", "execute"]

_RIGHT: Final = ("part", "time", "work")


def execute(args: argparse.Namespace) -> None:
    """Divide the network among the backends, run it if requested, and print the explanation."""
    if not args.measure and (args.input or seed_of(args) is not None):
        option = "--input" if args.input else "--seed" if args.seed is not None else "--random"
        raise InvalidArgumentError(f"{option} is what the network runs on to be measured; give --measure too")
    if not args.measure and (args.budget is not None or args.quantize_inputs):
        option = "--quantize-inputs" if args.budget is None else "--budget"
        raise InvalidArgumentError(f"{option} is for measuring; give --measure too")
    _check_files(args)
    with running(args) as setup, open_model(args, setup) as model:
        if not model.is_prepared and not (args.measure and args.input):
            require_shapes(model.inputs)
            require_values(model)
        preprocessing = Preprocessing(quantize=args.quantize_inputs)
        inputs = None
        if args.measure:
            texts = one_set(args.input, model.inputs, "explain")
            inputs = read_inputs(texts, model.inputs, preprocessing, seed_of(args), sized_inputs(model))
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
