"""``interposer bench``: measure one network on all backends and compare the times."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from interposer.analysis.bench import BenchReport, Candidate, bench, candidates
from interposer.analysis.charts import bars
from interposer.cli.inputs import add_input_arguments, inputs_text, named_inputs
from interposer.cli.network import (
    add_network_arguments,
    add_plan_argument,
    backend_ids,
    reading_of,
    report_skipped,
    runtime_with_threads,
    sources_of,
)
from interposer.cli.numbers import number, positive, threads
from interposer.cli.outputs import check_writable, file_path
from interposer.cli.progress import progress_line
from interposer.cli.tables import Table, counted, say, show, without_empty_columns, write_json
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import write_file
from interposer.runtime import Runtime
from interposer.session import Limits, read_network
from interposer.session.fallback import AUTO
from interposer.session.placement import Plan

__all__ = ["configure", "execute"]

_HELP: Final = """\
CpuRef runs the layers that a backend does not support. "auto" is the placement that
`interposer plan` finds: the fastest backend, or a mix of several if that is faster.
It is searched for if it is not known yet; backends that the search did not time are
listed. The network is loaded on all choices, which are then measured in turns,
repeatedly, so that a slow moment of the machine affects all of them.

Times are medians of the turns, and the spread is half the distance between the
slowest and the fastest turn. Choices whose times differ by less than the noise are
marked "too noisy to compare". Choices with the same placement of every layer are
measured once. "load ms" is the time to load the network, without the search for
"auto", and "first ms" that of the first run, which allocates memory. If shapes are
open, the first run also divides and compiles the network.

Inputs are files (--input) or random numbers (--random), the same in each run.
"""
_BUDGET: Final = 10.0
_seconds: Final = number("seconds")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer bench`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _HELP
    add_network_arguments(parser, "backends to measure, each by itself (default: all)")
    parser.add_argument(
        "--mix", type=backend_ids, action="append", default=[], metavar="A,B",
        help="measure these backends together too, in this order of preference; may be repeated",
    )  # fmt: skip
    add_plan_argument(parser, "measure what this file says too")
    parser.add_argument("--no-auto", action="store_true", help="do not look for the fastest mix")
    parser.add_argument(
        "--budget", type=_seconds, metavar="S", help="seconds to look for the fastest mix (default: 10)"
    )
    add_input_arguments(parser)
    parser.add_argument("--threads", type=threads, metavar="N", help="how many threads backends may use")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="turns of each backend (default: 7)")
    parser.add_argument("--seconds", type=_seconds, default=0.2, metavar="S", help="length of a turn (default: 0.2)")
    parser.add_argument(
        "--concurrent", type=threads, default=1, metavar="N",
        help="run each choice in N threads at the same time; a time is that of N runs (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--threshold", type=number("milliseconds", zero=False), metavar="MS",
        help="end with status 1 if the fastest choice takes longer than this",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plot", type=file_path, metavar="FILE.svg", help="draw the times into a file")


def execute(args: argparse.Namespace) -> int:
    """Measure the network on several choices of backends, and print a table or JSON.

    Returns 1 if no choice could run it, or none within --threshold.
    """
    if args.no_auto and args.budget is not None:
        raise InvalidArgumentError("--budget is the time to look for the fastest mix, which --no-auto leaves out")
    if args.plot is not None:
        check_writable("--plot", args.plot, sources_of(args))
    network = read_network(args.network, **reading_of(args))
    with runtime_with_threads(args.threads) as runtime:
        choices = _choices(args, runtime)
        _report_absent(choices, runtime)
        report = bench(
            network,
            choices,
            named_inputs(args, network),
            runtime=runtime,
            limits=Limits(args.limit_bytes, args.limit_operations),
            rounds=args.rounds,
            seconds=args.seconds,
            progress=progress_line("taking turns"),
            budget_seconds=_BUDGET if args.budget is None else args.budget,
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
    single = [tuple(candidate) for candidate in candidates(runtime)] + ([] if args.no_auto else [(AUTO,)])
    if args.backends is not None:
        single = [_completed([backend], runtime) for backend in args.backends]
    return [*single, *(_completed(mix, runtime) for mix in args.mix)]


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
    return "" if measured is None else f"{measured:.4g}"


def _plot(report: BenchReport) -> str:
    timed_candidates = [
        (candidate.name, candidate.timing.median, candidate.timing.least)
        for candidate in report.candidates
        if candidate.timing is not None
    ]
    title = f"{report.network}: {counted(len(timed_candidates), 'choice')} of backends, one run"
    return bars(title, "ms", timed_candidates, ("backends", "median time of a run; white line: least time"))
