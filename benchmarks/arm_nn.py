"""Time models through PyArmNN's interface: Arm NN 20.08 beside `compat/pyarmnn`.

    python benchmarks/run.py arm-nn [--models FOLDER] [--python /usr/bin/python3] [--rounds 15] [--json FILE]

Arm NN's package is that of another interpreter (Debian's ``python3-pyarmnn``), and runs on its reference backend, the
only one for processors that are not from Arm. Each package runs in processes of its own, which take turns. A time is
the least of all rounds, in milliseconds. The ratio is Arm NN's time divided by Interposer's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from benchmarks.folders import add_models

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "compat" / "pyarmnn" / "src"
CANDIDATES = {"Arm NN CpuRef": ["CpuRef"], "Interposer CpuRef": ["CpuRef"], "Interposer CpuAcc": ["CpuAcc", "CpuRef"]}


class Worker:
    """A process that has loaded a model, and runs it once for each call."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self) -> str:
        """Return the next line that the process prints; empty if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self) -> float:
        """Return the milliseconds of a run."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return float(self.answer())


@contextmanager
def _worker(
    python: str, is_interposer: bool, model: Path, inputs: Path, backends: Sequence[str]
) -> Iterator[Worker | None]:
    """Start a process with a model; yield None if it cannot load the model."""
    command = [python, str(HERE / "arm_nn_worker.py"), str(model), str(inputs), *backends]
    environment = {**os.environ, **({"PYTHONPATH": str(PACKAGE)} if is_interposer else {})}
    options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environment, cwd=HERE.parent, **options) as process:
        worker = Worker(process)
        lines = iter(worker.answer, "")
        yield worker if any(line == "ready" for line in lines) else None
        assert process.stdin is not None
        process.stdin.close()


def measure(model: Path, python: str, rounds: int) -> dict[str, float]:
    """Return the milliseconds of a model by candidate; candidates that cannot run it are left out."""
    network = ip.frontends.tflite.load(str(model))
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        inputs = Path(folder) / "inputs.npz"
        infos = [layer.output.known for layer in network.inputs.values()]
        np.savez(inputs, **{f"input{place}": _random(random, info) for place, info in enumerate(infos)})
        workers = {}
        for name, backends in CANDIDATES.items():
            is_interposer = name.startswith("Interposer")
            interpreter = sys.executable if is_interposer else python
            worker = stack.enter_context(_worker(interpreter, is_interposer, model, inputs, backends))
            if worker is not None:
                workers[name] = worker
        times: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(rounds):
            for name, worker in workers.items():
                times[name].append(worker.run())
    return {name: min(values) for name, values in times.items()}


def _random(random: np.random.Generator, info: ip.TensorInfo) -> np.ndarray[Any, Any]:
    shape, dtype = tuple(info.shape), np.dtype(str(info.dtype))
    if dtype.kind == "f":
        return random.uniform(-1, 1, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def main(words: Sequence[str] | None = None) -> int:
    """Print a table of times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that has Arm NN's package")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the times to this file")
    arguments = parser.parse_args(words)
    print(f"{'model':32}" + "".join(f"{name:>22}" for name in CANDIDATES) + f"{'ratio CpuRef':>14}{'ratio CpuAcc':>14}")
    results = {}
    for model in sorted((arguments.models or HERE.parent / "examples/digits").glob("*.tflite")):
        times = results[model.stem] = measure(model, arguments.python, arguments.rounds)
        print(_row(model.stem, times), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    return 0


def _row(name: str, times: dict[str, float]) -> str:
    theirs, *ours = (times.get(candidate) for candidate in CANDIDATES)
    cells = "".join(f"{'-' if time is None else f'{time:.3f} ms':>22}" for time in (theirs, *ours))
    ratios = "".join(f"{'-' if time is None or theirs is None else f'{theirs / time:.1f}':>14}" for time in ours)
    return f"{name:32}{cells}{ratios}"
