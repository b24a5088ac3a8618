"""`python benchmarks/run.py torch`: programs of PyTorch through Interposer, through ONNX, and in other engines.

A program runs in seven ways: `load` of the exported program, `compile` (`torch.compile(backend="interposer")`), `onnx`
(`torch.onnx.export` and `load`), `eager`, `inductor`, `openvino` (`convert_model` of the exported program) and
`openvino-compile` (`torch.compile(backend="openvino")`). All compute in float32 under `torch.inference_mode()`. The
ways take turns in one process, and the shortest call of each counts. The time to the first answer is measured in new
processes in turns: from the module to the first result, with the export. With one thread, times are those of the
processor, which other programs on the machine change less; with more threads, they are elapsed times.

Programs of full size need the package transformers, `inductor` a C++ compiler, and the way through ONNX the package
onnxscript. Arguments select programs by name or pattern; `large` and `small` stand for all of a size.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import machine
from benchmarks.pytorch.programs import LARGE, SMALL
from benchmarks.pytorch.ways import FIRST, WAYS

__all__ = ["main"]

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 1200


def main(words: Sequence[str] | None = None) -> int:
    """Measure the programs whose names match a pattern."""
    args = _arguments(words)
    figures: dict[str, Any] = {}
    for name in _names(args.programs):
        figures[name] = {"first": _first(name, args), "calls": _calls(name, args)}
        print(_lines(name, figures[name]), flush=True)
        if args.json:
            document = {"machine": machine(), "threads": args.threads, "programs": figures}
            args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(_summary(figures))
    return 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py torch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", default=["large"], help="names or patterns; `large` by default")
    parser.add_argument("--ways", default=",".join(WAYS), help="the ways whose calls are timed")
    parser.add_argument("--first", default=",".join(FIRST[:2]), help="the ways whose first answers are timed")
    parser.add_argument("--threads", type=int, default=1, help="threads of every engine")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way in timing calls")
    parser.add_argument("--seconds", type=float, default=0.5, help="the length of a turn")
    parser.add_argument(
        "--repeat", type=int, default=3, help="processes for each first answer, of which the best counts"
    )
    parser.add_argument("--json", type=Path, default=None, help="also write the figures there")
    return parser.parse_args(words)


def _names(patterns: Sequence[str]) -> list[str]:
    groups = {"large": tuple(LARGE), "small": SMALL}
    chosen = [name for pattern in patterns for name in groups.get(pattern, (pattern,))]
    return [name for name in (*LARGE, *SMALL) if any(fnmatch(name, pattern) for pattern in chosen)]


def _worker(*words: str) -> dict[str, Any]:
    """Return what a measuring process prints; the reason if it fails."""
    command = [sys.executable, "-m", "benchmarks.pytorch.worker", *words]
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"it took more than {PATIENCE} s"}
    if run.returncode:
        return {"failed": (run.stderr.strip().splitlines() or [f"status {run.returncode}"])[-1]}
    figures: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return figures


def _first(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the least seconds to the first answer by way."""
    times: dict[str, list[dict[str, Any]]] = {way: [] for way in args.first.split(",") if way}
    for _ in range(args.repeat):
        for way, results in times.items():
            results.append(_worker("first", name, way, str(args.threads)))
    return {way: min(results, key=lambda figures: figures.get("seconds", math.inf)) for way, results in times.items()}


def _calls(name: str, args: argparse.Namespace) -> dict[str, Any]:
    return (
        _worker("calls", name, args.ways, str(args.threads), str(args.rounds), str(args.seconds)) if args.ways else {}
    )


def _lines(name: str, figures: Mapping[str, Any]) -> str:
    firsts = [_told(way, way_figures, "seconds", "s") for way, way_figures in figures["first"].items()]
    return "\n".join([name, *_part("first answer", firsts), *_part("calls", _call_texts(figures["calls"]))])


def _part(title: str, texts: Sequence[str]) -> list[str]:
    return [f"  {title}: {', '.join(texts)}"] if texts else []


def _call_texts(calls: Mapping[str, Any]) -> list[str]:
    if isinstance(calls.get("failed"), str):
        return [calls["failed"]]
    return [
        f"{_told(way, way_figures, 'best', 'ms')}{_ratio(calls, way)}{_warned(way_figures.get('deviation', 0))}"
        for way, way_figures in calls.items()
    ]


def _told(way: str, way_figures: Mapping[str, Any], key: str, unit: str) -> str:
    return (
        f"{way} failed ({way_figures['failed'][:160]})"
        if "failed" in way_figures
        else f"{way} {way_figures[key]:.3f} {unit}"
    )


def _ratio(calls: Mapping[str, Any], way: str) -> str:
    known = "best" in calls.get("load", {}) and "best" in calls[way] and way != "load"
    return f" ({calls[way]['best'] / calls['load']['best']:.2f})" if known else ""


def _warned(deviation: float | None) -> str:
    return "" if deviation is not None and deviation < 1e-3 else f" (deviates by {deviation})"


def _summary(figures: Mapping[str, Any]) -> str:
    """Return the geometric means of the times of each way divided by those of `load`."""
    lines = []
    for title, part, key in (("first answer", "first", "seconds"), ("calls", "calls", "best")):
        for way in WAYS:
            ratios = list(_ratios((program_figures[part] for program_figures in figures.values()), way, key))
            if ratios and way != "load":
                low, mean, high = min(ratios), statistics.geometric_mean(ratios), max(ratios)
                lines.append(
                    f"{title}: {way} / load {mean:.2f} ({low:.2f} to {high:.2f}; {len(ratios)} programs, "
                    f"load is faster in {sum(ratio > 1 for ratio in ratios)})"
                )
    return "\n".join(lines)


def _ratios(parts: Iterable[Mapping[str, Any]], way: str, key: str) -> Iterable[float]:
    for part in parts:
        ours, other = part.get("load", {}), part.get(way, {})
        if isinstance(ours, dict) and key in ours and isinstance(other, dict) and key in other:
            yield other[key] / ours[key]
