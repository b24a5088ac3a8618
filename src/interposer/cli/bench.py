"""``interposer bench``: measure one network on all backends and compare the times."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Final

from interposer.analysis.bench import BenchReport, Candidate, bench, candidates
from interposer.analysis.charts import bars
from interposer.analysis.machine_report import MachineReport, machine_report
from interposer.cli.arguments.bench import configure
from interposer.cli.inputs import inputs_text, named_inputs
from interposer.cli.network import limits_of, reading_of, report_skipped
from interposer.cli.outputs import check_writable
from interposer.cli.progress import progress_line
from interposer.cli.running import running
from interposer.cli.sources import sources_of
from interposer.cli.streams import unlogged
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import write_file
from interposer.runtime import Runtime
from interposer.session import read_network
from interposer.session.fallback import AUTO
from interposer.session.placement import Plan

__all__ = ["configure", "execute"]

_BUDGET: Final = 10.0
"""The seconds to look for the fastest mix if the turns of a choice last `_TURNS` seconds or more."""
_LEAST_BUDGET: Final = 1.0
_TURNS: Final = 1.4
"""The seconds of the turns of a choice, by default."""
_OF_REPORT: Final = ("report", "seconds", "json", "help")
"""The options that --report obeys, as names of arguments."""


def execute(args: argparse.Namespace) -> int:
    """Measure the network on several choices of backends, and print a table or JSON.

    Returns 1 if no choice could run it, or none within --threshold.
    """
    if args.report is not None:
        return _report(args)
    if args.network is None:
        raise InvalidArgumentError("bench needs the file of a network, or --report, which measures a fixed set")
    if args.no_auto and args.budget is not None:
        raise InvalidArgumentError("--budget is the time to look for the fastest mix, which --no-auto leaves out")
    if args.plot is not None:
        check_writable("--plot", args.plot, sources_of(args))
    network = read_network(args.network, **reading_of(args))
    with (
        running(args, measures_all=True) as setup,
        progress_line() as progress,
        unlogged("chosen without measuring"),
    ):
        choices = _choices(args, setup.runtime)
        _report_absent(choices, setup.runtime)
        report = bench(
            network,
            choices,
            named_inputs(args, network),
            runtime=setup.runtime,
            model_options=setup.model_options,
            limits=limits_of(args),
            rounds=args.rounds,
            seconds=args.seconds,
            progress=progress,
            budget_seconds=_default_budget(args.rounds * args.seconds) if args.budget is None else args.budget,
            plan=None if args.plan is None else Plan.load(args.plan),
            concurrent=args.concurrent,
        )
    if args.plot is not None:
        write_file(args.plot, _plot(report))
    if args.json:
        write_json({**report.to_dict(), "inputs": inputs_text(args)})
    else:
        _print(report)
        say(f"inputs: {inputs_text(args)}")
    return 0 if _is_quick(report, args.threshold) else 1


def _default_budget(seconds: float) -> float:
    """Return the seconds to look for the fastest mix: fewer if the turns of a choice last only a few `seconds`."""
    return min(_BUDGET, max(_LEAST_BUDGET, _BUDGET * seconds / _TURNS))


def _report(args: argparse.Namespace) -> int:
    """Measure the fixed set on CpuAcc, print a table or JSON, and write a file; return 1 if a result is wrong."""
    if args.network is not None:
        raise InvalidArgumentError(f"--report measures a fixed set, so {str(args.network)!r} cannot be measured too")
    if args.report.suffix != ".json":
        raise InvalidArgumentError(
            f"--report writes JSON, and measures no network of yours; {str(args.report)!r} does not end with .json"
        )
    _refuse_other_options(args)
    check_writable("--report", args.report, {})
    with progress_line() as progress:
        report = machine_report(args.seconds, progress)
    write_file(args.report, json.dumps(report.to_dict(), indent=1) + "\n")
    if args.json:
        write_json(report.to_dict())
    else:
        _print_machine(report)
        say(f"written to {args.report}")
    return 0 if report.is_right else 1


def _refuse_other_options(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` for options of the command line that have no effect on the fixed set.

    Defaults of a settings file are meant for networks, so they are ignored.
    """
    parser = argparse.ArgumentParser(add_help=False)
    configure(parser)
    ignored_names = {*_OF_REPORT, *(default.action.dest for default in args.defaults)}
    flags = [
        action.option_strings[-1]
        for action in parser._actions
        if action.option_strings
        and action.dest not in ignored_names
        and getattr(args, action.dest, action.default) != action.default
    ]
    if flags:
        raise InvalidArgumentError(
            f"--report measures a fixed set, so {' and '.join(flags)} would have no effect; it takes only --seconds "
            "and --json"
        )


def _print_machine(report: MachineReport) -> None:
    machine = report.machine
    say(f"{machine['processor']}, {counted(machine['cores'], 'core')}; CpuAcc's level: {machine['level']}")
    rows = [
        [
            measurement.network,
            *(f"{time:.3f}" for time in measurement.milliseconds),
            "right" if measurement.is_right else "WRONG",
            f"{measurement.difference:.1e}",
        ]
        for measurement in report.measurements
    ]
    titles = ["network", "ms, 1 thread", "ms, all", "results", "difference"]
    show(Table(titles, rows, right=("ms, 1 thread", "ms, all", "difference")))


def _is_quick(report: BenchReport, threshold: float | None) -> bool:
    """Return True if a choice could run the network, in at most `threshold` milliseconds unless it is None."""
    quickest = report.quickest
    return (
        quickest is not None
        and quickest.timing is not None
        and (threshold is None or quickest.timing.median <= threshold)
    )


def _choices(args: argparse.Namespace, runtime: Runtime) -> list[tuple[str, ...]]:
    """Return the choices to measure, each as backend ids in order of preference.

    These are the backends of --backends, or by default all available backends and ``("auto",)``, which stands for the
    fastest mix that a search finds. The combinations of --mix follow. CpuRef ends each choice but ``("auto",)``, as the
    backend that runs what the others do not support.
    """
    single_choices = [tuple(candidate) for candidate in candidates(runtime)] + ([] if args.no_auto else [(AUTO,)])
    if args.backends is not None:
        single_choices = [_completed([backend], runtime) for backend in args.backends]
    return [*single_choices, *(_completed(mix, runtime) for mix in args.mix)]


def _report_absent(choices: Iterable[Sequence[str]], runtime: Runtime) -> None:
    """Report on standard error which backends in `choices` are not available in the runtime, and why.

    `UnknownBackendError` is raised for an id that the runtime does not know.
    """
    for backend in dict.fromkeys(backend_id for choice in choices for backend_id in choice if backend_id != AUTO):
        reason = runtime.registry.reason_absent(backend)
        if reason is not None:
            report_skipped(backend, reason)


def _completed(ids: list[str], runtime: Runtime) -> tuple[str, ...]:
    """Return the ids with CpuRef appended, if it is available and not named already; ``auto`` stays alone."""
    if ids == [AUTO]:
        return (AUTO,)
    reference = [backend for backend in ("CpuRef",) if backend not in ids and backend in runtime.registry.available()]
    return (*ids, *reference)


# --- the result -------------------------------------------------------------------------------------------------------


def _print(report: BenchReport) -> None:
    titles = ["backends", "layers", "copies", "load ms", "first ms", "median ms", "spread", "least ms"]
    titles += ["times the quickest", "runs/s", "differs", "note"]
    rows = [_row(candidate, report) for candidate in report.candidates]
    show(without_empty_columns(Table(titles, rows, titles[2:-1])))
    if len(report.undecided) > 1:
        say(f"too noisy to say which is fastest: {', '.join(undecided.name for undecided in report.undecided)}")
    for candidate in report.candidates:
        if candidate.reason:
            say(f"{candidate.name}: {candidate.reason}")
        for remark in candidate.remarks:
            say(f"{candidate.name}: {remark}")


def _row(candidate: Candidate, report: BenchReport) -> list[str]:
    quickest = report.quickest
    layers = ", ".join(f"{count} on {backend}" for backend, count in candidate.layers.items())
    ratio = (
        ""
        if candidate.timing is None or quickest is None or quickest.timing is None
        else quickest.timing.faster_than(candidate.timing)
    )
    return [
        candidate.name,
        layers,
        str(candidate.copies) if candidate.copies else "",
        _number(candidate.load_ms),
        _number(candidate.first_ms),
        _number(None if candidate.timing is None else candidate.timing.median),
        "" if candidate.timing is None else f"\u00b1{candidate.timing.spread:.0%}",
        _number(None if candidate.timing is None else candidate.timing.least),
        f"{ratio:.2f}" if ratio else "",
        _number(_per_second(candidate, report)) if report.concurrent > 1 else "",
        "" if candidate.deviation is None else f"{candidate.deviation:.2g}",
        _note(candidate, report),
    ]


def _per_second(candidate: Candidate, report: BenchReport) -> float | None:
    return None if candidate.timing is None else report.concurrent / candidate.timing.median * 1e3


def _note(candidate: Candidate, report: BenchReport) -> str:
    if candidate.same_as:
        return f"same placement as {candidate.same_as}"
    undecided = report.undecided
    return (
        "too noisy to compare"
        if len(undecided) > 1 and candidate in undecided and candidate is not report.quickest
        else ""
    )


def _number(measured: float | None) -> str:
    if measured is None:
        return ""
    return f"{measured:.0f}" if measured >= 1000 else f"{measured:.4g}"


def _plot(report: BenchReport) -> str:
    timed_candidates = [
        (candidate.name, candidate.timing.median, candidate.timing.least)
        for candidate in report.candidates
        if candidate.timing is not None
    ]
    title = f"{report.network}: {counted(len(timed_candidates), 'choice')} of backends, one run"
    return bars(title, "ms", timed_candidates, ("backends", "median time of a run; white line: least time"))
