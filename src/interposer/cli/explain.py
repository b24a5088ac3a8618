"""``interposer explain``: which backend gets which layer, and why the others do not."""

from __future__ import annotations

import argparse

from interposer.cli.network import add_network_arguments, open_model
from interposer.cli.tables import Table, say, show, write_json
from interposer.errors import InvalidArgumentError
from interposer.ir.explain import Explanation
from interposer.session import Model

__all__ = ["configure", "execute"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_network_arguments(parser)


def execute(args: argparse.Namespace) -> None:
    """Divide the network among the backends without running it, and print the explanation."""
    with open_model(args) as model:
        _require_shapes(model)
        _require_values(model)
        explanation = model.explain()
    if args.json:
        write_json(explanation.to_dict())
    else:
        _print(explanation, _left_out(model) if args.backends is None else [])


def _left_out(model: Model) -> list[str]:
    """The backends that are not available, and so not among those taken by default."""
    registry = model.runtime.registry
    return [backend for backend in registry if registry.reason_absent(backend) is not None]


def _require_shapes(model: Model) -> None:
    unknown = {name: info for name, info in model.inputs.items() if not info.is_concrete}
    if unknown:
        inputs = ", ".join(f"{name!r} {info}" for name, info in unknown.items())
        example = f"--shape {next(iter(unknown))}={'x'.join(['1'] * next(iter(unknown.values())).rank)}"
        raise InvalidArgumentError(
            f"the shapes of these inputs are not all known: {inputs}; give them, as in {example}"
        )


def _require_values(model: Model) -> None:
    if model.needed_values:
        inputs = ", ".join(f"{name!r} {model.inputs[name]}" for name in model.needed_values)
        raise InvalidArgumentError(
            f"the layers depend on the values of these inputs: {inputs}; "
            f"give them, as in --value {model.needed_values[0]}=0,1"
        )


def _print(explanation: Explanation, left_out: list[str]) -> None:
    for line in explanation.summary():
        say(line)
    if left_out:
        say(f"  not available here: {', '.join(left_out)} (interposer backends says why)")
    print()
    titles, *rows = explanation.table()
    show(Table(titles, rows))
