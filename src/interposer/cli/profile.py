"""``interposer profile``: collect the profiles that programs send in Arm NN's protocol, and read collected ones."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from interposer.cli.arguments.profile import configure
from interposer.cli.outputs import check_writable
from interposer.cli.tables import Table, counted, say, show, write_json
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.files import write_file
from interposer.file_formats import process_formats
from interposer.profiling.comparison import CounterChange, LayerChange, compare_counters, compare_profiles
from interposer.profiling.external.collector import Collector, Orders, Session, read_stream
from interposer.profiling.external.messages import Capture
from interposer.profiling.external.packets import Kind, Packet
from interposer.profiling.external.streams import Execution
from interposer.profiling.profiles import SUFFIXES, writer_of

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Collect, read or compare profiles, show them, and write them as files."""
    if args.compare is not None:
        _compare(args)
        return
    if args.listen == (args.file is not None):
        raise InvalidArgumentError("give either a file to read, or --listen to wait for programs")
    if args.file is not None:
        _check_not_listening(args)
    _check_targets(args)
    sessions = _collected(args) if args.listen else [_session_of(args)]
    for session in sessions:
        _write(args, session)
    if args.json:
        write_json([_facts(session) for session in sessions])
        return
    for session in sessions:
        _print(session)
    if not sessions:
        say("no program has connected")


_LISTENING: Final = ("--socket", "--clients", "--seconds", "--period", "--counters", "--timeline", "--store")
"""The options of collecting, which have no effect on a file."""


def _check_not_listening(args: argparse.Namespace) -> None:
    for option in _LISTENING:
        if any(str(word).partition("=")[0] == option for word in args.words):
            raise InvalidArgumentError(f"{option} is for --listen, and a file is read")


def _compare(args: argparse.Namespace) -> None:
    if args.listen or args.file is not None or args.output is not None or args.store is not None:
        raise InvalidArgumentError("--compare takes two files and no further ones, and does not go with --listen")
    changes, counters = compare_profiles(*args.compare), compare_counters(*args.compare)
    if args.json:
        write_json(
            {"layers": [change.to_dict() for change in changes], "counters": [change.to_dict() for change in counters]}
        )
        return
    rows = [_compared(change) for change in changes]
    right_aligned = "before us", "after us", "difference us", "ratio"
    show(Table(("layer", "operator", "backend", *right_aligned), rows, right_aligned))
    if counters:
        numeric = "before", "after", "difference"
        show(Table(("counter", *numeric, "units"), [_compared_counter(change) for change in counters], numeric))


def _compared_counter(change: CounterChange) -> list[str]:
    values = ["-" if value is None else f"{value:,.6g}" for value in (change.before, change.after)]
    return [change.counter, *values, f"{change.difference:+,.6g}", change.units]


def _compared(change: LayerChange) -> list[str]:
    backends = [backend or "-" for backend in dict.fromkeys(change.backends)]
    times = ["-" if value is None else f"{value:.2f}" for value in (change.before_us, change.after_us)]
    ratio = "-" if change.ratio is None else f"{change.ratio:.2f}"
    return [change.layer, change.kind, " -> ".join(backends), *times, f"{change.difference_us:+.2f}", ratio]


def _check_targets(args: argparse.Namespace) -> None:
    sources = [] if args.file is None else [args.file]
    if args.output is not None and args.output.suffix.lower() not in SUFFIXES:
        raise InvalidArgumentError(f"--output takes a file with the suffix {', '.join(SUFFIXES)}, not {args.output}")
    for option, path in (("--output", args.output), ("--store", args.store)):
        if path is not None:
            check_writable(option, path, sources)


def _collected(args: argparse.Namespace) -> list[Session]:
    orders = Orders(args.period, args.counters, args.timeline)
    with Collector(args.socket, orders, _printer(args), keep=args.store is not None) as collector:
        if not args.json:
            say(f"listening on {args.socket}")
        with suppress(KeyboardInterrupt):  # what has been collected until then is shown
            collector.wait(args.seconds, args.clients)
    return list(collector.sessions)


def _session_of(args: argparse.Namespace) -> Session:
    """Return the session in a file; the error for a model names the commands that measure models."""
    try:
        return read_stream(args.file, _printer(args))
    except ParseError:
        format = _format_of(args.file)
        if format is None:
            raise
        raise InvalidArgumentError(
            f"{args.file}: this is a model of the format {format}, and profile reads what a program has sent; "
            "interposer trace records a run of a model, and interposer bench measures it"
        ) from None


def _format_of(path: str) -> str | None:
    """Return the format of the model in a file, or None if the file has no model."""
    try:
        return process_formats().of(path)
    except ParseError:
        return None


def _printer(args: argparse.Namespace) -> Any:
    return _show_packet if args.packets and not args.json else None


def _show_packet(session: Session, packet: Packet, content: Any) -> None:
    kind = packet.kind
    name = f"packet {packet.word:#010x}" if kind is None else kind.name.lower().replace("_", " ")
    details = f": {_values(content)}" if isinstance(content, Capture) else ""
    if kind is Kind.TIMELINE_MESSAGE:
        details = f": {counted(len(content), 'message')}"
    say(f"{session.number}: {name}, {counted(len(packet.body), 'byte')}{details}")


def _values(capture: Capture) -> str:
    return ", ".join(f"{number} = {value}" for number, value in capture.values)


# --- the result -------------------------------------------------------------------------------------------------------


def _write(args: argparse.Namespace, session: Session) -> None:
    if args.output is not None:
        trace = writer_of(args.output.suffix.lower())(session.stream.recording())
        write_file(_target(args.output, session), trace)
    if args.store is not None:
        stream_bytes = Path(args.file).read_bytes() if session.data is None else bytes(session.data)
        write_file(_target(args.store, session), stream_bytes)


def _target(path: Path, session: Session) -> Path:
    """Return the path for the file of a session: the second one gets its number, as in ``trace.2.json``."""
    return path if session.number == 1 else path.with_suffix(f".{session.number}{path.suffix}")


def _facts(session: Session) -> dict[str, Any]:
    metadata = session.stream.metadata
    return {
        "process": None if metadata is None else metadata.process,
        "pid": None if metadata is None else metadata.pid,
        "software": None if metadata is None else metadata.software,
        "bytes": session.size,
        "error": session.error or None,
        "packets": session.stream.packets,
        "counters": _counters(session),
        "layers": _layers(session),
        "steps": _steps(session),
        "inferences": len(_inferences(session)),
        "dropped": session.stream.dropped,
    }


def _counters(session: Session) -> list[dict[str, Any]]:
    directory = session.stream.directory
    totals: dict[int, list[int]] = {}
    for capture in session.stream.captures:
        for index, value in capture.values:
            totals.setdefault(index, []).append(value)
    counters = {} if directory is None else directory.by_number()
    rows = []
    for index in sorted({*counters, *totals}):
        counter, values = counters.get(index), totals.get(index, [])
        total = sum(values) if counter is None or not counter.kind else values[-1] if values else 0
        name, units = ("", "") if counter is None else (counter.name, counter.units)
        rows.append({"number": index, "name": name, "units": units, "captures": len(values), "value": total})
    return rows


def _inferences(session: Session) -> list[Execution]:
    return [execution for execution in session.stream.executions() if not execution.backend]


def _layers(session: Session) -> list[dict[str, Any]]:
    times: dict[tuple[str, str, str], list[int]] = {}
    for execution in session.stream.executions():
        times.setdefault((execution.network, execution.name, execution.backend), []).append(
            execution.end - execution.begin
        )
    return [
        {
            "network": network,
            "layer": name if backend else "",
            "backend": backend,
            "count": len(values),
            **_microseconds(values),
        }
        for (network, name, backend), values in times.items()
    ]


def _steps(session: Session) -> list[dict[str, Any]]:
    times: dict[tuple[str, str, str], list[int]] = {}
    for step in session.stream.steps():
        times.setdefault((step.name, step.device, step.backend), []).append(step.end - step.begin)
    return [
        {"step": name, "device": device, "backend": backend, "count": len(values), **_microseconds(values)}
        for (name, device, backend), values in times.items()
    ]


def _microseconds(values: Sequence[int]) -> dict[str, float]:
    return {"median_us": round(statistics.median(values) / 1000, 3), "total_us": round(sum(values) / 1000, 3)}


def _print(session: Session) -> None:
    metadata = session.stream.metadata
    sender = (
        "a program that did not say who it is" if metadata is None else f"{metadata.process}, process {metadata.pid}"
    )
    remark = f"; it ended with: {session.error}" if session.error else ""
    if session.stream.dropped:
        remark += f"; {session.stream.dropped:,} later objects and packets were dropped"
    packets = counted(sum(session.stream.packets.values()), "packet")
    say(f"{session.number}: {sender}: {packets} of {session.size:,} bytes{remark}")
    _show(("counter", "name", "value", "units", "captures"), ("counter", "value", "captures"), [
        (str(row["number"]), row["name"], str(row["value"]), row["units"], str(row["captures"]))
        for row in _counters(session)
    ])  # fmt: skip
    _show(("network", "layer", "backend", "count", "median us", "total us"), ("count", "median us", "total us"), [
        (row["network"], row["layer"] or "(inference)", row["backend"], str(row["count"]),
         f"{row['median_us']:.2f}", f"{row['total_us']:.2f}")
        for row in _layers(session)
    ])  # fmt: skip
    _show(("step", "device", "backend", "count", "median us", "total us"), ("count", "median us", "total us"), [
        (row["step"], row["device"], row["backend"], str(row["count"]), f"{row['median_us']:.2f}",
         f"{row['total_us']:.2f}")
        for row in _steps(session)
    ])  # fmt: skip


def _show(titles: Sequence[str], numeric: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        show(Table(titles, rows, numeric))
