"""``interposer trace``: run a network, and write what happened as a timeline."""

from __future__ import annotations

import argparse
import statistics
from contextlib import suppress
from typing import Any

from interposer.cli.arguments.trace import configure
from interposer.cli.inputs import input_sets, inputs_text, read_inputs, seed_of, sized_inputs
from interposer.cli.network import open_model, report_absent
from interposer.cli.outputs import check_writable
from interposer.cli.progress import progress_line
from interposer.cli.running import Running, running
from interposer.cli.sources import sources_of
from interposer.cli.tables import Table, counted, say, show, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.profiling import Category, CounterTotal, LayerTimes, Profile
from interposer.profiling.profiles import SUFFIXES
from interposer.report.explanation import Explanation
from interposer.session import Model
from interposer.session.fallback import AUTO
from interposer.session.images import Preprocessing
from interposer.session.placement import Plan
from interposer.session.timing import spread_of

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Load and run the network while a profile records, write the trace, and print the times of the layers."""
    if args.output.suffix.lower() not in SUFFIXES:
        raise InvalidArgumentError(f"--output takes a file with the suffix {', '.join(SUFFIXES)}, not {args.output}")
    check_writable("--output", args.output, sources_of(args))
    profile = Profile()
    with running(args) as setup:
        explanation = _recorded(args, setup, profile)
    profile.save(args.output, explanations=[explanation])
    if args.json:
        _write_json(args, profile)
        return
    _print("layer", profile.layers())
    _print("step", profile.steps())
    _print_counters(profile.counters())
    durations = _durations(profile)
    if durations:
        median = f"{statistics.median(durations) / 1000:.2f} us ±{spread_of(durations):.0%}"
        say(f"one run takes {median} (median of {counted(len(durations), 'recorded run')})")
    say(f"written: {args.output}, with {counted(args.runs, 'run')} on: {inputs_text(args)}")
    if profile.lost:
        say(f"{profile.lost} events were lost, because the buffer was full; give fewer --runs")


def _recorded(args: argparse.Namespace, setup: Running, profile: Profile) -> Explanation:
    """Load and run the network, record this in the profile, and return the model's explanation.

    Each set of inputs has a run, even if --runs is lower; `args.runs` is then the number of sets.
    """
    plan = _searched_plan(args, setup)
    with profile:
        model = open_model(args, setup, plan)
    with model, progress_line() as progress:
        preprocessing = Preprocessing(quantize=args.quantize_inputs)
        sized_infos = sized_inputs(model)
        sets = [
            read_inputs(texts, model.inputs, preprocessing, seed_of(args), sized_infos)
            for texts in input_sets(args.input, model.inputs)
        ]
        args.runs = max(args.runs, len(sets))
        if not model.is_prepared:
            with profile:
                _prepare(model, sets[0])
        model.run(sets[0])
        with profile:
            for number in range(args.runs):
                progress("recording runs", number, args.runs)
                model.run(sets[number % len(sets)])
        report_absent(model)
        return model.explain()


def _searched_plan(args: argparse.Namespace, setup: Running) -> Plan | None:
    """Return the plan of "auto", whose search is not recorded; None for other backends, or if shapes are open."""
    if args.backends != [AUTO] or args.plan is not None:
        return None
    with open_model(args, setup) as model:
        return model.plan


def _prepare(model: Model, inputs: dict[str, Any]) -> None:
    """Let the model load its network for the shapes of these inputs, without a run.

    A network that depends on the values of inputs is not loaded here, but in the first run.
    """
    with suppress(InvalidArgumentError), model.bind(inputs):
        pass


def _write_json(args: argparse.Namespace, profile: Profile) -> None:
    layers, steps, counters = profile.layers(), profile.steps(), profile.counters()
    facts: dict[str, Any] = {
        "layers": [entry.to_dict() for entry in layers],
        "steps": [entry.to_dict() for entry in steps],
        "counters": [entry.to_dict() for entry in counters],
    }
    durations = _durations(profile)
    if durations:
        facts["run"] = {"median_us": statistics.median(durations) / 1000, "spread": spread_of(durations)}
    write_json(facts | {"runs": args.runs, "lost": profile.lost, "inputs": inputs_text(args)})


def _durations(profile: Profile) -> list[int]:
    """Return the nanoseconds of each recorded run."""
    return [interval.duration for interval in profile.recording.intervals if interval.site.category is Category.RUN]


def _print(subject: str, entries: list[LayerTimes]) -> None:
    if not entries and subject != "layer":
        return
    total = sum(entry.total for entry in entries) or 1
    rows = [[*_named(entry), f"{entry.median / 1000:.2f}", f"{entry.total / total:.1%}"] for entry in entries]
    second_title = "operator" if subject == "layer" else "device"
    show(
        Table((subject, second_title, "backend", "count", "median us", "share"), rows, ("count", "median us", "share"))
    )


def _named(times: LayerTimes) -> tuple[str, ...]:
    return times.name, times.site.kind or times.site.device, times.site.backend, str(times.count)


def _print_counters(totals: list[CounterTotal]) -> None:
    of_backends = [entry for entry in totals if entry.counter.backend]
    rows = [
        [_title(entry), entry.counter.kind, str(entry.count), f"{entry.value:,.6g}", entry.counter.units]
        for entry in of_backends
    ]
    if rows:
        show(Table(("counter", "class", "count", "value", "units"), rows, ("count", "value")))


def _title(entry: CounterTotal) -> str:
    return f"{entry.counter.backend} {entry.counter.name}"
