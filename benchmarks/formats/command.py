"""Whole networks as files of TensorFlow and Caffe: agreement and time of CpuAcc and of other readers.

    python benchmarks/run.py formats
    python benchmarks/run.py formats 'mobilenet*' --kinds 'caffe*' --threads 1 --rounds 40

AlexNet, GoogLeNet, ResNet-50, MobileNet and an SSD with MobileNet are written with random weights from a seed, in each
kind of file: a frozen graph and a SavedModel of TensorFlow, a prototxt with a caffemodel, and a single binary file of
Caffe. CpuAcc loads each file, and so do the other readers that are installed: OpenVINO and TensorFlow, or OpenCV. They
run the same image in turns, in one process. A line has the time to load the file with CpuAcc, the median times of a
run, the other times divided by that of CpuAcc, and the largest difference of the results, as a part of the largest
number. Arguments select networks by name or pattern.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.formats.architectures import ARCHITECTURES, Architecture, Array
from benchmarks.formats.caffe_files import caffe_files
from benchmarks.formats.readers import Runner, readers
from benchmarks.formats.tensorflow_files import frozen_graph, write_saved_model
from benchmarks.machine import machine

__all__ = ["KINDS", "main", "write"]

KINDS: Final = ("frozen graph", "SavedModel", "caffe text", "caffe binary")
_SIZES: Final = {"alexnet": 227, "ssd": 300}


def main(words: Sequence[str] | None = None) -> int:
    """Measure the networks whose names match a pattern."""
    arguments = _arguments(words)
    figures_by_title: dict[str, Any] = {}
    print(f"{'network':12}{'file':14}{'load':>9}{'CpuAcc':>11}   other times in ms (ratio to CpuAcc, difference)")
    for name, architecture in ARCHITECTURES.items():
        if not any(fnmatch(name, pattern) for pattern in arguments.networks or ["*"]):
            continue
        for kind in KINDS:
            if fnmatch(kind, arguments.kinds):
                figures = _measured(name, architecture, kind, arguments)
                figures_by_title[f"{name}, {kind}"] = figures
                print(_line(name, kind, figures), flush=True)
    if arguments.json:
        text = json.dumps({"machine": machine(), "threads": arguments.threads, "formats": figures_by_title}, indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py formats", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", help="names or patterns of networks; all by default")
    parser.add_argument("--kinds", default="*", help="pattern of the kinds of files")
    parser.add_argument("--threads", type=int, default=1, help="threads of every reader")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each reader, of which the median counts")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures there")
    return parser.parse_args(words)


def write(name: str, architecture: Architecture, kind: str, folder: Path) -> Path:
    """Write a network as a kind of file, and return the path that is loaded."""
    if kind == "frozen graph":
        path = folder / f"{name}.pb"
        path.write_bytes(frozen_graph(architecture))
    elif kind == "SavedModel":
        path = folder / name
        write_saved_model(architecture, path)
    else:
        text, weights, whole = caffe_files(name, architecture)
        path = folder / (f"{name}.prototxt" if kind == "caffe text" else f"{name}_whole.caffemodel")
        (folder / f"{path.stem}.prototxt").write_text(text, encoding="utf-8")
        (folder / f"{path.stem}.caffemodel").write_bytes(weights if kind == "caffe text" else whole)
    return path


def _measured(name: str, architecture: Architecture, kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    size = _SIZES.get(name, 224)
    image = np.random.default_rng(0).uniform(-1, 1, (1, size, size, 3)).astype(np.float32)
    image = np.ascontiguousarray(image.transpose(0, 3, 1, 2)) if kind.startswith("caffe") else image
    with tempfile.TemporaryDirectory() as folder:
        path = write(name, architecture, kind, Path(folder))
        runners: dict[str, Runner] = {}
        loads: dict[str, float] = {}
        for reader, load in readers(kind):
            start = time.perf_counter()
            runners[reader] = load(path, arguments.threads)
            loads[reader] = time.perf_counter() - start
        expected = _rows(runners["CpuAcc"](image))
        differences = {reader: _difference(expected, _rows(run(image))) for reader, run in runners.items()}
        times = _times(runners, image, arguments.rounds)
    return {
        reader: {"ms": times[reader], "load_s": loads[reader], "difference": differences[reader]} for reader in runners
    }


def _times(runners: Mapping[str, Runner], image: Array, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of a run of each reader; they take turns, and each turn has a run before it."""
    times: dict[str, list[float]] = {reader: [] for reader in runners}
    for _ in range(rounds):
        for reader, run in runners.items():
            run(image)
            start = time.perf_counter()
            run(image)
            times[reader].append((time.perf_counter() - start) * 1000)
    return {reader: statistics.median(values) for reader, values in times.items()}


def _rows(array: Array) -> Array:
    """Return a result as a matrix; detections by score, as readers list them in different orders."""
    if array.ndim == 4 and array.shape[-1] == 7:
        rows = array.reshape(-1, 7)
        return np.asarray(rows[np.argsort(-rows[:, 2], kind="stable")])
    return array.reshape(len(array), -1)


def _difference(expected: Array, actual: Array) -> float | None:
    """Return the largest difference as a part of the largest number; None if the shapes differ."""
    if expected.shape != actual.shape:
        return None
    return float(np.abs(expected - actual).max(initial=0) / max(float(np.abs(expected).max(initial=0)), 1e-30))


def _line(name: str, kind: str, figures: Mapping[str, Mapping[str, Any]]) -> str:
    ours = figures["CpuAcc"]
    return f"{name:12}{kind:14}{ours['load_s']:7.2f} s{ours['ms']:8.2f} ms   " + "   ".join(_others(figures))


def _others(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for reader, measured in figures.items():
        if reader != "CpuAcc":
            difference = "shapes differ" if measured["difference"] is None else f"{measured['difference']:.0e}"
            yield f"{reader} {measured['ms']:.2f} ({measured['ms'] / figures['CpuAcc']['ms']:.2f} x, {difference})"
