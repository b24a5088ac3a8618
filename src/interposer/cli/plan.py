"""``interposer plan``: measure which backend should run which layer, and write the result to a plan file."""

from __future__ import annotations

import argparse
from dataclasses import replace

from interposer.cli.arguments.plan import configure
from interposer.cli.inputs import require_shapes
from interposer.cli.network import limits_of, reading_of
from interposer.cli.outputs import check_writable
from interposer.cli.progress import progress_line
from interposer.cli.running import running
from interposer.cli.sources import sources_of
from interposer.cli.streams import unlogged
from interposer.cli.tables import Table, counted, say, show
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.ir.graph import Graph
from interposer.optimizer import OptimizerOptions, simplified
from interposer.session import read_network
from interposer.session.fallback import AUTO
from interposer.session.placement import Plan, Search, place
from interposer.session.placement.plan import TYPE

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Measure, write the plan and print it."""
    if args.output is not None:
        check_writable("--output", args.output, sources_of(args))
    network = read_network(args.network, **reading_of(args))
    require_shapes({layer.name: layer.output.known for layer in network.graph.inputs})
    limits_of(args).check(network.graph)
    exclude: dict[str, tuple[str, ...]] = {}
    for kind, backend in args.exclude:
        exclude[kind] = (*exclude.get(kind, ()), backend)
    options = OptimizerOptions(exclude=exclude)
    seconds = None if args.limit_time is None else args.limit_time / 1e3
    search = Search(args.budget, args.objective, args.limit_memory, seconds)
    with running(args, measures_all=True) as setup, progress_line() as progress:
        runtime = setup.runtime
        options = setup.options(options) or options
        backends = None if args.backends in (None, [AUTO]) else args.backends
        ids = list(runtime.registry.available()) if backends is None else backends
        pins = Plan(network.name, tuple(ids), dict(args.pin))
        if args.pin:
            graph = simplified(network, ids, runtime.device_spec, options).graph
            _check_pins(pins, graph)
            options = replace(options, hints=pins.hints(graph))
        progress.wait("looking for the fastest placement", args.budget)
        with unlogged("chosen without measuring"):
            plan = place(network, runtime, backends, options, search)
    plan = replace(plan, layers={**pins.layers, **plan.layers})
    if args.output is not None:
        plan.save(args.output)
    if args.json:
        print(plan.to_json(), end="")
    else:
        _print(plan, args)


def _check_pins(pins: Plan, graph: Graph) -> None:
    """Raise `InvalidArgumentError` if a pattern of --pin matches no layer of the graph.

    `pins.layers` maps patterns of layer names, and ``type:NAME`` for layer types, to backend ids.
    """
    names, kinds = {layer.name for layer in graph}, {layer.kind for layer in graph}
    for pattern in pins.layers:
        if not replace(pins, layers={pattern: "?"}).hints(graph):
            layer_or_type = pattern.removeprefix(TYPE)
            suggestion = did_you_mean(layer_or_type, kinds if pattern.startswith(TYPE) else names)
            raise InvalidArgumentError(f"no layer of the network is {pattern!r}, which was pinned{suggestion}")


def _print(plan: Plan, args: argparse.Namespace) -> None:
    rows = sorted(plan.measured.items(), key=lambda row: row[1])
    cells = [(name, _time_text(name, plan), "chosen" if name == plan.chosen else "") for name, _ in rows]
    cells += [(name, "-", "not timed") for name in plan.unmeasured]
    show(Table(("plan", "ms", ""), cells, ("ms",)))
    for note in plan.notes():
        say(note)
    for backend, reason in plan.failed.items():
        if backend not in plan.unmeasured:
            say(f"{backend} failed while it was measured: {reason}")
    if plan.cost:
        say(_cost_text(plan))
    if args.output is not None:
        say(f"written: {args.output}, with {_entries_text(plan)}")


def _time_text(name: str, plan: Plan) -> str:
    spread = f" ±{plan.spread[name]:.0%}" if name in plan.spread else ""
    return f"{plan.measured[name]:.4g}{spread}"


def _cost_text(plan: Plan) -> str:
    cost, bound = plan.cost["milliseconds"], plan.cost["bound"]
    sum_text = f"the times of the parts add up to {cost:.4g} ms for the best plan"
    if plan.cost["gap"] <= 0:
        return f"{sum_text}, and to more for all other plans"
    return f"{sum_text}; as some parts were not timed, another plan might take {bound:.4g} ms"


def _entries_text(plan: Plan) -> str:
    rest_text = f"on the first of {', '.join(plan.backends)} that supports them"
    if not plan.layers:
        return f"no entries for layers: all run {rest_text}"
    return f"{counted(len(plan.layers), 'entry', 'entries')} for layers; the others run {rest_text}"
