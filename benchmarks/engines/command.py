"""`python benchmarks/run.py engines`: whole networks on CpuAcc and other engines, interleaved in one run.

Every engine runs in a separate process, through its own Python API; during the turn of one engine, the others sleep.
Before anything is timed, all engines must return the same results. Times exclude the first runs. Loading is measured
from the file to the first result, in a process that has loaded another network before, without and with a cache.
"""

from __future__ import annotations

import argparse
import compileall
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import interposer
from benchmarks.folders import add_models
from benchmarks.machine import machine
from benchmarks.networks import BATCHED, NETWORKS, QUICK
from benchmarks.option_types import positive

from . import DEFAULT, engine
from .cases import Case, known, prepare, tiny
from .measure import Plan, measure
from .ours import FAST_MATH, FAST_OPTION, Interposer
from .peak import Peak, measure_peaks
from .plot import svg
from .report import KINDS, markdown, text, versus

__all__ = ["main"]

HERE: Final = Path(__file__).resolve().parents[1]
BATCH: Final = 8


def main(words: Sequence[str] | None = None) -> int:
    """Measure the requested networks."""
    parser = _parser()
    args = parser.parse_args(words)
    if args.quick:
        args.rounds, args.seconds = min(args.rounds, 3), min(args.seconds, 0.1)
    if args.fast_math:
        try:
            args.engines += [
                fast for fast in [_fast(args.engines[0].removesuffix(FAST_MATH))] if fast not in args.engines
            ]
        except argparse.ArgumentTypeError as error:
            parser.error(f"--fast-math: {error}")
    names = _selected(known(args.models), args.networks or (QUICK if args.quick and not args.kinds else ["*"]))
    names = [name for name in names if _is_of(name, args.kinds)]
    if not names:
        print(f"no such network: {' '.join(args.networks)}; there are {', '.join(known(args.models))}", file=sys.stderr)
        return 2
    args.output.mkdir(parents=True, exist_ok=True)
    compileall.compile_dir(Path(interposer.__file__).parent, quiet=2)  # as installing a package does, for loading
    plan = Plan(args.engines, args.rounds, args.seconds, args.loads, tiny(args.cache))
    peaks = measure_peaks(args.threads)
    formats = {suffix for name in args.engines for suffix in engine(name).formats}
    rows: list[dict[str, Any]] = []
    for name, batch in _pairs(names, args.batches):
        case = prepare(name, batch, args.models, args.cache, formats)
        if not _is_of(case, args.kinds):
            continue
        for threads in args.threads:
            rows.append(measure(case, threads, plan))
            print(_progress(rows[-1], args.engines), flush=True)
            _write(args.output, rows, args.engines, peaks)
    print("\n" + text(rows, args.engines, peaks))
    print(f"written to {args.output}: engines.json, engines.txt, engines.md, engines.svg")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = {"type": lambda said: [word for word in said.split(",") if word]}
    parser.add_argument("--networks", **listed, help="names or patterns, such as mobilenet*,*.tflite; all by default")
    parser.add_argument("--kinds", **listed, help=f"kinds of networks: {','.join(KINDS)}; all by default")
    parser.add_argument("--engines", type=_engines, default=[*DEFAULT],
                        help="as CpuAcc,OpenVINO or 'Interposer[A,B],CpuRef'; the first is compared with the others "
                             f"(by default {','.join(DEFAULT)})")  # fmt: skip
    parser.add_argument("--fast-math", action="store_true",
                        help="the first of them once more, less exact, with the option FastMathEnabled")  # fmt: skip
    parser.add_argument("--threads", type=_numbers, default=[1, 2], help="as 1,2, the default")
    parser.add_argument("--batches", type=_numbers, default=[1, BATCH],
                        help=f"as 1,{BATCH}, the default; batches of more than 1: {', '.join(BATCHED)}")  # fmt: skip
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each engine (5)")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn (0.2)")
    parser.add_argument("--loads", type=int, default=0,
                        help="processes to take the least time of loading from, without and with a cache; by default "
                             "one load without a cache is timed")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few networks unless some are named, short turns")
    add_models(parser)
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="folder where built networks are cached")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder for JSON, text and plot")
    return parser


def _numbers(said: str) -> list[int]:
    return [positive(word) for word in said.split(",")]


def _engines(said: str) -> list[str]:
    """Return the names in a comma-separated list, where commas in brackets do not separate; each as tables show it."""
    names, depth = [""], 0
    for letter in said:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            names.append("")
        else:
            names[-1] += letter
    engine_names = [engine(name.strip()).name for name in names if name.strip()]
    return [_fast(name.removesuffix(FAST_MATH)) if name.endswith(FAST_MATH) else name for name in engine_names]


def _fast(name: str) -> str:
    """Return the name of an engine with fast math, or the name itself if the engine has no such option."""
    fast_engine = engine(name)
    if not isinstance(fast_engine, Interposer) or not fast_engine.has_fast_math():
        raise argparse.ArgumentTypeError(f"{name} has no option {FAST_OPTION}")
    return name + FAST_MATH


def _selected(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that match any of the patterns, with or without the suffix of a file."""
    return [name for name in names if any(fnmatchcase(name, pattern) or fnmatchcase(Path(name).stem, pattern)
                                          for pattern in patterns)]  # fmt: skip


def _is_of(case: str | Case, kinds: Sequence[str] | None) -> bool:
    """Return False if the kind of a network is known, and is none of these; None stands for all kinds."""
    recipe = NETWORKS.get(case) if isinstance(case, str) else case
    return not kinds or recipe is None or recipe.kind in kinds


def _pairs(names: Sequence[str], batches: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Return networks and batch sizes; batches of more than one only for networks that scale with the batch."""
    for name in names:
        for batch in batches:
            if batch == 1 or name in BATCHED:
                yield name, batch


def _progress(row: dict[str, Any], engines: Sequence[str]) -> str:
    cells = [
        f"{name} {figures['median_ms']:.3f}" if "median_ms" in figures else f"{name} -"
        for name, figures in row["engines"].items()
    ]
    against = versus(row, engines[0], plain=row["kind"] == "tiny")
    end = f"   {against.ratio:.2f} x {against.peer}" if against else ""
    return f"{row['network']:34} x{row['batch']}  {row['threads']} threads   {'  '.join(cells)}{end}"


def _write(folder: Path, rows: list[dict[str, Any]], engines: Sequence[str], peaks: dict[int, Peak]) -> None:
    """Write all results so far, so that an interrupted run leaves them."""
    facts = {
        "machine": machine(),
        "recorded": {"date": date.today().isoformat()},
        "engines": engines,
        "peaks": {str(threads): asdict(peak) for threads, peak in peaks.items()},
        "rows": rows,
    }
    (folder / "engines.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (folder / "engines.txt").write_text(text(rows, engines, peaks), encoding="utf-8")
    (folder / "engines.md").write_text(markdown(rows, engines), encoding="utf-8")
    (folder / "engines.svg").write_text(svg(rows, engines), encoding="utf-8")
