"""`python benchmarks/run.py bridges`: ONNX Runtime and LiteRT alone, and with a backend of Interposer in them.

Each file is opened twice in one process: by the host alone, and by the host with the execution provider or the
delegate. Both run in turns, with equal inputs. `.onnx` files run in ONNX Runtime, and `.tflite` files in LiteRT. The
times are the shortest of all calls in milliseconds, since other programs of the machine only make calls longer.

The overhead is the microseconds of a call of one Addition of four numbers: in `Model.run`, in the hosts alone, and in
the hosts with the example of a backend in C.

The last table has one session that one thread and two threads of Python run. Rounds with one thread and with two take
turns. It has the runs per second with two threads relative to one (the best rounds), the microseconds of processor time
of a run (the least), and how often a thread slept in 1,000 runs (the least).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import interposer as ip
from benchmarks.designs import adding
from benchmarks.machine import machine
from interposer import include
from interposer.bridges import library, reports
from interposer.plugins import backend_of_file

HERE: Final = Path(__file__).resolve().parent
CUSTOM: Final = HERE.parent / "examples/custom_native/c/custom.c"
DIGITS: Final = HERE.parent / "examples/digits/digits.onnx"
HOSTS: Final = {".onnx": "onnxruntime", ".tflite": "ai_edge_litert"}
_NAME: Final = "Interposer"
Call = Callable[[], Any]
Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Measure the files, the overhead and two threads, and print a table of each."""
    args = _parser().parse_args(words)
    files = [path for path in args.files or [DIGITS] if _has_host(path)]
    rows = [_compared(path, args.backend, count, args.seconds) for path in files for count in args.threads]
    _print_rows(rows)
    costs = _overheads(args.seconds)
    print("\none Addition of four numbers, microseconds")
    for name, value in costs.items():
        print(f"  {name:54} {value:8.2f}")
    threads = [row for path in files if path.suffix == ".onnx" for row in _threads(path, args.backend, args.seconds)]
    _print_threads(threads)
    figures = {"machine": machine(), "rows": rows, "overhead": costs, "threads": threads}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py bridges", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="files of ONNX and TFLite (default: the example digits)")
    parser.add_argument("--backend", default="CpuAcc", help="the backend in the hosts (default: CpuAcc)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads (default: 1 2)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each pair of calls is repeated")
    parser.add_argument("--json", type=Path, default=HERE / "results/bridges.json", help="the file to write")
    return parser


def _has_host(path: Path) -> bool:
    host = HOSTS[path.suffix]
    if importlib.util.find_spec(host) is None:
        print(f"{path.name} is left out, as {host} is not installed")
        return False
    return True


# --- files ------------------------------------------------------------------------------------------------------------


def _compared(path: Path, backend: str, threads: int, seconds: float) -> Row:
    """Return the shortest milliseconds of a file in its host, alone and with the backend."""
    opened = _session if path.suffix == ".onnx" else _interpreter
    calls = {"alone": opened(path, threads), "with": opened(path, threads, backend)}
    taken, nodes = len(reports()[-1].taken), len(reports()[-1].nodes)
    times = _shortest(calls, seconds)
    return {"file": path.name, "threads": threads, "taken": taken, "nodes": nodes, **times}


def _shortest(calls: Mapping[str, Call], seconds: float) -> dict[str, float]:
    """Return the shortest milliseconds of each call; calls take turns for about `seconds` each."""
    shortest = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            for _ in range(10):
                begin = time.perf_counter()
                call()
                shortest[name] = min(shortest[name], time.perf_counter() - begin)
    return {name: value * 1e3 for name, value in shortest.items()}


def _session(source: Path | bytes, threads: int = 1, backend: str = "") -> Call:
    """Return a run of a new session of ONNX Runtime, with a provider for a backend if one is named."""
    session, feeds = _opened_session(source, threads, backend)
    return lambda: session.run(None, feeds)


def _opened_session(source: Path | bytes, threads: int, backend: str) -> tuple[Any, dict[str, Any]]:
    import onnxruntime  # noqa: PLC0415 - optional

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if backend:
        devices = _devices(onnxruntime)
        options.add_provider_for_devices(devices, {"backends": backend, "threads": str(threads), "min-nodes": "1"})
    session = onnxruntime.InferenceSession(source if isinstance(source, bytes) else str(source), options)
    generator = np.random.default_rng(0)
    return session, {value.name: _feed(generator, value.shape, value.type) for value in session.get_inputs()}


def _devices(onnxruntime: Any) -> list[Any]:
    name = f"{_NAME}ExecutionProvider"
    if not any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(_NAME, library())
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]


def _feed(generator: np.random.Generator, shape: Sequence[Any], kind: str) -> Any:
    dtype = {"float": "float32", "double": "float64"}.get(kind[7:-1], kind[7:-1])  # such as tensor(float)
    sizes = [size if isinstance(size, int) else 1 for size in shape]
    return (generator.random(sizes) if dtype.startswith("float") else generator.integers(0, 100, sizes)).astype(dtype)


def _interpreter(source: Path | bytes, threads: int = 1, backend: str = "") -> Call:
    """Return a run of a new interpreter of LiteRT, whose inputs are set, with a delegate if a backend is named."""
    from ai_edge_litert.interpreter import Interpreter, load_delegate  # noqa: PLC0415 - optional

    delegates = [load_delegate(library(), {"backends": backend, "min-nodes": "1"})] if backend else []
    file = {"model_content": source} if isinstance(source, bytes) else {"model_path": str(source)}
    interpreter = Interpreter(**file, num_threads=threads, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    generator = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        kind = f"tensor({np.dtype(detail['dtype']).name})"
        interpreter.set_tensor(detail["index"], _feed(generator, detail["shape"].tolist(), kind))
    run: Call = interpreter.invoke
    return run


def _print_rows(rows: Sequence[Row]) -> None:
    print(f"{'file':40} {'threads':>7} {'taken':>9} {'alone ms':>9} {'with ms':>9} {'ratio':>6}")
    for row in rows:
        taken, ratio = f"{row['taken']}/{row['nodes']}", row["alone"] / row["with"]
        print(f"{row['file']:40} {row['threads']:7} {taken:>9} {row['alone']:9.3f} {row['with']:9.3f} {ratio:6.2f}")


# --- overhead ---------------------------------------------------------------------------------------------------------


def _overheads(seconds: float) -> dict[str, float]:
    """Return the microseconds of calls whose kernels take almost no time; empty without a compiler for C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "Example_Custom_backend.so")
        words = [compiler, "-O2", "-fPIC", "-shared", f"-I{include.path()}", str(CUSTOM), "-o", str(path)]
        subprocess.run(words, check=True)
        backend = backend_of_file(path)
    ip.process_registry().register(backend.id, lambda: backend)
    try:
        return _overheads_of(backend.id, seconds)
    finally:
        ip.process_registry().deregister(backend.id)


def _overheads_of(backend: str, seconds: float) -> dict[str, float]:
    from interposer.writers import onnx, tflite  # noqa: PLC0415 - slow to import

    network, x = adding(), np.ones(4, np.float32)
    model, target = ip.load(network, [backend]), np.empty(4, np.float32)
    calls: dict[str, Call] = {"Model.run, in place": lambda: model.run([x, x], [target])}
    for name, module, opened, write in (
        ("ONNX Runtime", "onnxruntime", _session, lambda: onnx.write(network).SerializeToString()),
        ("LiteRT", "ai_edge_litert", _interpreter, lambda: tflite.write(network)),
    ):
        if importlib.util.find_spec(module) is not None:
            calls[f"{name} alone"] = opened(write())
            calls[f"{name} with the example"] = opened(write(), 1, backend)
    return {name: milliseconds * 1e3 for name, milliseconds in _shortest(calls, seconds).items()}


# --- threads ----------------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """Runs of a session for a moment; `sleeps` is the number of voluntary context switches for 1,000 runs."""

    rate: float
    processor_us: float
    sleeps: float


def _threads(path: Path, backend: str, seconds: float) -> list[Row]:
    """Return a row for each number of threads, for the host alone and with the backend."""
    calls = {"alone": _session(path), "with": _session(path, 1, backend)}
    rounds: dict[tuple[str, int], list[Round]] = {(name, count): [] for name in calls for count in (1, 2)}
    end = time.perf_counter() + 4 * seconds
    while time.perf_counter() < end:
        for (name, count), of_name in rounds.items():
            of_name.append(_round(calls[name], count))
    return [_row(path.name, name, rounds[name, 1], rounds[name, 2]) for name in calls]


def _row(file: str, name: str, one: Sequence[Round], two: Sequence[Round]) -> Row:
    rates = [max(each.rate for each in rounds) for rounds in (one, two)]
    return {
        "file": file, "host": name, "gain": rates[1] / rates[0],
        "processor_us": [min(each.processor_us for each in rounds) for rounds in (one, two)],
        "sleeps": [min(each.sleeps for each in rounds) for rounds in (one, two)],
    }  # fmt: skip


def _round(call: Call, count: int, seconds: float = 0.05) -> Round:
    """Run a call in `count` threads for a moment."""
    runs, start = [0] * count, threading.Barrier(count + 1)

    def repeat(index: int) -> None:
        start.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            call()
            runs[index] += 1

    threads = [threading.Thread(target=repeat, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    start.wait()
    for thread in threads:
        thread.join()
    after, total = resource.getrusage(resource.RUSAGE_SELF), sum(runs)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    sleeps = after.ru_nvcsw - before.ru_nvcsw
    return Round(total / (time.perf_counter() - begin), processor / total * 1e6, sleeps / total * 1e3)


def _print_threads(rows: Sequence[Row]) -> None:
    print(f"\n{'file':40} {'host':6} {'two threads':>12} {'processor us':>18} {'sleeps/1000':>14}")
    for row in rows:
        processor, sleeps = (" ".join(f"{value:.1f}" for value in row[name]) for name in ("processor_us", "sleeps"))
        print(f"{row['file']:40} {row['host']:6} {row['gain']:12.2f} {processor:>18} {sleeps:>14}")
