"""`python benchmarks/run.py placement`: compare "auto" with every single engine, all through Interposer.

Each network and number of threads is measured in a separate process. The network is placed by measuring with an empty
cache (the search), and loaded again (which finds the plan). Then "auto", the same plan loaded a second time, and every
engine that supports all layers are timed in turns, in the same rounds. The noise is the difference between the two
loads of the plan of "auto". "auto" should be slower than the best single engine by no more than 2% or the noise,
whichever is larger. If the plan of "auto" is the best single engine (the same layers on the same backend), the table
says "same plan": a difference is then one between two loads of the same plan.

Results are written after every network. `--resume` skips results that are in the file already, and `--budget` ends the
run after this many seconds, when the current network is finished.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

import interposer as ip
from benchmarks.engines.cases import known, prepare
from benchmarks.folders import add_models
from benchmarks.machine import machine
from interposer.core.errors import InterposerError
from interposer.session.timing import Timing, take_turns

__all__ = ["main"]

HERE: Final = Path(__file__).resolve().parent
ENGINES: Final = ("CpuAcc", "OnnxRuntime", "OpenVino", "LiteRt")
MODULES: Final = {"OnnxRuntime": "onnxruntime", "OpenVino": "openvino", "LiteRt": "litert"}
ALLOWED: Final = 0.02
SECONDS: Final = 600
"""How long one network may take."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure the requested networks."""
    args = _parser().parse_args(words)
    if args.one:
        print(json.dumps(_measured(args)))
        return 0
    names = [name for name in known(args.models) if _fits(name, args.networks)]
    if not names:
        print(f"no such network: {','.join(args.networks)}; there are {', '.join(known(args.models))}", file=sys.stderr)
        return 2
    rows = json.loads(args.json.read_text(encoding="utf-8"))["rows"] if args.resume and args.json.exists() else []
    measured_rows = {(row["network"], row["threads"]) for row in rows if "error" not in row}
    end = time.monotonic() + args.budget
    for name, threads in [(name, threads) for name in names for threads in args.threads]:
        if (name, threads) in measured_rows:
            continue
        if time.monotonic() > end:
            print(f"the budget is over; --resume goes on with {name} in {threads} threads")
            break
        rows = [row for row in rows if (row["network"], row["threads"]) != (name, threads)]
        rows.append(_apart(args, name, threads))
        print(_line(rows[-1]), flush=True)
        _write(args.json, rows)
    for line in _summary(rows):
        print(line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py placement", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = {"type": lambda said: [word for word in said.split(",") if word]}
    parser.add_argument("--networks", **listed, default=["*"], help="names or patterns, as mobilenet*; all by default")
    parser.add_argument("--threads", type=lambda said: [int(word) for word in said.split(",")], default=[1, 2])
    parser.add_argument("--engines", **listed, default=[*ENGINES], help=f"by default {','.join(ENGINES)}")
    parser.add_argument("--search", type=float, default=10.0, help="seconds for the search in each network (10)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (7)")
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a turn (0.25)")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which nothing more is begun")
    parser.add_argument("--resume", action="store_true", help="go on with what is not in the file yet")
    add_models(parser)
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="folder where built networks are cached")
    parser.add_argument("--json", type=Path, default=HERE / "results/placement.json", help="the file to write")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(Path(name).stem, pattern) for pattern in patterns)


def _apart(namespace: argparse.Namespace, name: str, threads: int) -> dict[str, Any]:
    """Measure one network in a separate process with a separate cache."""
    words = [sys.executable, str(HERE / "run.py"), "placement", "--one", name, "--threads", str(threads)]
    for option in ("search", "rounds", "seconds", "models", "cache"):
        if (value := getattr(namespace, option)) is not None:
            words += [f"--{option}", str(value)]
    words += ["--engines", ",".join(namespace.engines)]
    with tempfile.TemporaryDirectory() as folder:
        settings = {**os.environ, "INTERPOSER_CACHE_DIR": folder, "INTERPOSER_NUM_THREADS": str(threads)}
        try:
            run = subprocess.run(words, env=settings, capture_output=True, text=True, timeout=SECONDS, check=True)
            return dict(json.loads(run.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            return {"network": name, "threads": threads, "error": f"not done in {SECONDS} seconds"}
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or [f"the process ended with {error.returncode}"]
            return {"network": name, "threads": threads, "error": said[-1]}


# --- one network ------------------------------------------------------------------------------------------------------


def _measured(namespace: argparse.Namespace) -> dict[str, Any]:
    [threads] = namespace.threads
    case = prepare(namespace.one, 1, namespace.models, namespace.cache, ())
    inputs = list(np.load(case.inputs).values())
    options = ip.OptimizerOptions(budget_seconds=namespace.search)
    with ip.Runtime(ip.CreationOptions(num_threads=threads)) as runtime:
        _add_engines(runtime)
        ids = [backend for backend in (*namespace.engines, "CpuRef") if backend in runtime.registry.available()]
        measuring = ip.OptimizerOptions(placement="measured", budget_seconds=options.budget_seconds)

        def load() -> ip.Model:
            return ip.load(case.path, ids, options=measuring, runtime=runtime)

        search, first = _timed(load)
        again, second = _timed(load)
        models = {"auto": first, "auto again": second}
        refused = {}
        for engine in ids[:-1]:
            try:
                models[engine] = ip.load(case.path, [engine], runtime=runtime, fallback=False)
                models[engine].run(inputs)
            except InterposerError as error:
                models.pop(engine, None)
                refused[engine] = str(error).partition("\n")[0]
        turns = take_turns(
            {name: _call(backend, inputs) for name, backend in models.items()}, namespace.rounds, namespace.seconds
        )
        return _row(namespace.one, threads, turns, refused, first) | {"search_s": search, "again_s": again}


def _add_engines(runtime: ip.Runtime) -> None:
    """Register the engine adapters of this package, even if the installed metadata does not list them yet."""
    for name, module in MODULES.items():
        if name not in runtime.registry:
            engine_class = getattr(__import__(f"interposer.backends.engines.{module}", fromlist=[name]), name)
            runtime.registry.register(name, engine_class)


def _timed(call: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def _call(model: ip.Model, inputs: list[Any]) -> Any:
    return lambda: model.run(inputs)


def _row(name: str, threads: int, turns: dict[str, Timing], refused: dict[str, str], model: ip.Model) -> dict[str, Any]:
    singles = {turn: turns[turn] for turn in turns if not turn.startswith("auto")}
    best = min(singles, key=lambda backend: singles[backend].median, default="")
    auto = turns["auto"]
    ratio = 1 / auto.faster_than(singles[best]) if best else math.nan
    noise = abs(1 - auto.faster_than(turns["auto again"]))
    same = bool(best) and {backend for backend, count in model.explain().counts().items() if count} == {best}
    plan = model.plan
    return {
        "network": name,
        "threads": threads,
        "milliseconds": {backend: timing.median for backend, timing in turns.items()},
        "refused": refused,
        "best": best,
        "ratio": ratio if best else None,
        "noise": noise,
        "same_plan": same,
        "passes": not best or ratio <= 1 + max(ALLOWED, noise),
        "chosen": plan.chosen if plan else "",
        "mix": bool(plan and plan.chosen.startswith("mix")),
        "layers": model.explain().counts(),
        "searched": dict(plan.measured) if plan else {},
        "cost": dict(plan.cost) if plan else {},
        "failed": dict(plan.failed) if plan else {},
    }


# --- the table --------------------------------------------------------------------------------------------------------


def _line(row: dict[str, Any]) -> str:
    head = f"{row['network'][:34]:34} {row['threads']} threads"
    if "error" in row:
        return f"{head}  {row['error']}"
    times = "  ".join(f"{name} {milliseconds:.3f}" for name, milliseconds in row["milliseconds"].items())
    against = f"{row['ratio']:.3f} of {row['best']}" if row["best"] else "no engine takes all of it"
    reported = f"noise {row['noise']:.1%}, search {row['search_s']:.1f} s, again {row['again_s'] / row['search_s']:.1%}"
    verdict = "" if row["passes"] else "  TOO SLOW"
    chosen = f"{row['chosen']}{' (same plan)' if row.get('same_plan') else ''}"
    return f"{head}  {times}  {chosen}  {against}  {reported}{verdict}"


def _summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield how often "auto" is close enough to the best engine, and its mean speed relative to each engine."""
    for threads in sorted({row["threads"] for row in rows}):
        good = [row for row in rows if row["threads"] == threads and "error" not in row]
        if not good:
            continue
        near, mixes = sum(row["passes"] for row in good), [row["network"] for row in good if row["mix"]]
        same = sum(row.get("same_plan", False) for row in good if not row["passes"])
        yield f"\n{threads} threads: auto is near enough to the best alone in {near} of {len(good)} networks"
        if near < len(good):
            yield f"  in {same} of the other {len(good) - near} it is the very plan of the best engine alone"
        yield f"  mixes: {', '.join(mixes) or 'none was faster than every engine alone'}"
        for engine in dict.fromkeys(name for row in good for name in row["milliseconds"]):
            ratios = [
                row["milliseconds"][engine] / row["milliseconds"]["auto"]
                for row in good
                if engine in row["milliseconds"] and not engine.startswith("auto")
            ]
            if ratios:
                mean = statistics.geometric_mean(ratios)
                yield f"  {engine:12} {mean:.3f} times as long as auto in {len(ratios)} networks (geometric mean)"
        longest = max(row["search_s"] for row in good)
        share = max(row["again_s"] / row["search_s"] for row in good)
        yield f"  the longest search took {longest:.1f} s; a second load no more than {share:.1%} of the first"


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"machine": machine(), "rows": rows, "summary": list(_summary(rows))}
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
