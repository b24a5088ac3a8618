"""`python benchmarks/run.py sharing`: the memory of several processes with a predictor of the same file.

The network has four layers and 105 MB of weights. It is a TensorFlow Lite file, and a saved network for each backend.
Each process is a new Python interpreter with an `interposer.batch.Predictor` on one thread, which has predicted eight
rows. When all processes have done so, their proportional set sizes (PSS in smaps_rollup) are added. A page that several
processes share counts once in this sum. The sums include the interpreter, NumPy and the libraries. No time is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.machine import machine
from benchmarks.saved import WIDTH, large_network, resident

HERE: Final = Path(__file__).resolve().parent
ROWS: Final = 8
Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Measure the memory for each backend and kind of file, and print a table."""
    if words and words[0] == "--one":
        _predict(words[1], words[2])
        return 0
    args = _parser().parse_args(words)
    with tempfile.TemporaryDirectory(prefix="interposer-sharing-") as folder:
        rows = [_measured(*way, args.processes) for way in _ways(Path(folder), args.backends)]
    _print(rows, args.processes)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py sharing", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="numbers of processes")
    parser.add_argument("--backends", nargs="+", default=["CpuRef", "CpuAcc"], help="backends, each by itself")
    parser.add_argument("--json", type=Path, default=HERE / "results/sharing.json", help="the file to write")
    return parser


def _ways(folder: Path, backends: Sequence[str]) -> list[tuple[str, str, Path]]:
    """Write the files, and return the backend, the kind and the path of each combination."""
    from interposer.writers import tflite  # noqa: PLC0415 - slow to import

    model_file = folder / "large.tflite"
    tflite.save(large_network(), model_file)
    ways = []
    for backend in backends:
        saved = folder / f"{backend}.ipn"
        command = [
            sys.executable,
            "-m",
            "interposer",
            "compile",
            str(model_file),
            "--backends",
            backend,
            "-o",
            str(saved),
        ]
        subprocess.run(command, check=True, capture_output=True, env=_environment())
        ways += [(backend, "model file", model_file), (backend, "saved network", saved)]
    return ways


def _measured(backend: str, kind: str, path: Path, counts: Sequence[int]) -> Row:
    return {"backend": backend, "file": kind, "pss": {count: _sum(backend, path, count) for count in counts}}


def _sum(backend: str, path: Path, count: int) -> int:
    """Return the sum of the proportional set sizes of `count` processes that hold the network simultaneously."""
    processes = [_started(backend, path) for _ in range(count)]
    try:
        for process in processes:
            _wait_until_ready(process)
        return sum(resident(process.pid)["pss"] for process in processes)
    finally:
        for process in processes:
            process.communicate("end\n")


def _started(backend: str, path: Path) -> subprocess.Popen[str]:
    root = str(HERE.parent)
    code = f"import sys; sys.path.insert(0, {root!r}); from benchmarks.sharing import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "--one", backend, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment())


def _environment() -> dict[str, str]:
    """Return the environment of all processes; compiled parts of a saved network are for a number of threads."""
    return {**os.environ, "INTERPOSER_NUM_THREADS": "1", "INTERPOSER_CACHE_DIR": ""}


def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError("a process ended before it had predicted its rows; its message is above")


def _predict(backend: str, path: str) -> None:
    """Predict some rows in this process, report it, and keep the network until a line is read."""
    from interposer.batch import Predictor  # noqa: PLC0415

    predict = Predictor(path, backends=[backend])
    predict({"x": np.ones((ROWS, WIDTH), np.float32)})
    print("ready", flush=True)
    sys.stdin.readline()


def _print(rows: Sequence[Row], counts: Sequence[int]) -> None:
    heads = [f"{count} process" if count == 1 else f"{count} processes, sum" for count in counts]
    print(f"| backend | file | {' | '.join(heads)} |\n| --- | --- |{' ---: |' * len(counts)}")
    for row in rows:
        figures = " | ".join(f"{row['pss'][count] / 1e6:.0f}" for count in counts)
        print(f"| {row['backend']} | {row['file']} | {figures} |")
