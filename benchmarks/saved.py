"""`python benchmarks/run.py saved`: loads of saved networks beside model files and the cache, and their memory.

Every load takes place in a process of its own, which has loaded a tiny network before, so that imports do not count.
With a cache folder, this also computes the fingerprint of CpuAcc, once for each process.
Time is measured from the file to the first result. The three ways take turns, and the fastest load of each counts:

- `file`: the model file, without a cache,
- `cache`: the model file, with a cache that is filled before,
- `saved`: the saved network.

Memory is measured in one process, and then in two at the same time that have run the network once: the resident and the
proportional memory (RSS and PSS in smaps_rollup) minus those before the load. A page that two processes share counts
half in the PSS of each. `large` is a network with 100 MB of weights, which is created.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.folders import add_models
from benchmarks.machine import machine

HERE: Final = Path(__file__).resolve().parent
WAYS: Final = ("file", "cache", "saved")
WIDTH: Final = 2560
LAYERS: Final = 4
Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Measure what was requested."""
    if words and words[0] == "--one":
        _one(words[1], words[2] == "wait")
        return 0
    args = _parser().parse_args(words)
    with tempfile.TemporaryDirectory(prefix="interposer-saved-") as folder:
        rows = [_measured(path, args, Path(folder)) for path in _models(args.models, Path(folder))]
    _print(rows)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py saved", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_models(parser)
    parser.add_argument("--repeat", type=int, default=5, help="loads of each way, of which the fastest counts")
    parser.add_argument("--json", type=Path, default=HERE / "results/saved.json", help="the file to write")
    return parser


def _models(folder: Path | None, work: Path) -> Iterator[Path]:
    """Yield the models of a folder (or the digits), and at last the large network, which is written to `work`."""
    folder = folder or HERE.parent / "examples/digits"
    yield from sorted(path for path in folder.iterdir() if path.suffix in (".tflite", ".onnx"))
    from interposer.writers import tflite  # noqa: PLC0415 - slow to import

    path = work / "large.tflite"
    tflite.save(large_network(), path)
    yield path


def large_network() -> Any:
    """Return a network with four layers and 105 MB of weights."""
    import interposer as ip  # noqa: PLC0415

    draw = np.random.default_rng(0)
    network = ip.Network("large")
    value = network.add_input_layer(0, ip.TensorInfo((1, WIDTH)), name="x")
    for number in range(LAYERS):
        weights = draw.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
        constant = network.add_constant_layer(weights, name=f"w{number}")
        value = network.add_fully_connected_layer(value, constant, transpose_weight_matrix=True, name=f"layer{number}")
    network.add_output_layer(0, value, name="y")
    return network


def _measured(path: Path, args: argparse.Namespace, work: Path) -> Row:
    saved, cache = work / f"{path.name}.ipn", work / "cache"
    command = [
        sys.executable,
        "-m",
        "interposer",
        "compile",
        str(path),
        "--backends",
        "CpuAcc,CpuRef",
        "-o",
        str(saved),
    ]
    subprocess.run(command, check=True, capture_output=True, env=_environment(""))
    sources = {"file": (path, ""), "cache": (path, str(cache)), "saved": (saved, str(cache))}
    _loaded(path, str(cache))
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(args.repeat):
        for way, source in sources.items():
            times[way].append(_loaded(*source)["seconds"])
    memory = {way: {count: _memory(*sources[way], count) for count in (1, 2)} for way in WAYS}
    sizes = {"file": path.stat().st_size, "saved": saved.stat().st_size}
    print(path.name, {way: f"{1e3 * min(seconds):.1f} ms" for way, seconds in times.items()}, flush=True)
    return {"name": path.stem, "bytes": sizes, "seconds": times, "memory": memory}


def _environment(cache: str) -> dict[str, str]:
    return {**os.environ, "INTERPOSER_CACHE_DIR": cache}


def _started(path: Path, cache: str, way: str) -> subprocess.Popen[str]:
    code = (
        f"import sys; sys.path.insert(0, {str(HERE.parent)!r}); from benchmarks.saved import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "--one", str(path), way]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(cache))


def _loaded(path: Path, cache: str) -> Row:
    """Load a network in a new process, and return what the process reports."""
    with _started(path, cache, "end") as process:
        return _said(process)


def _said(process: subprocess.Popen[str]) -> Row:
    assert process.stdout is not None
    row: Row = json.loads(process.stdout.readline())
    return row


def _memory(path: Path, cache: str, count: int) -> Row:
    """Return the memory in bytes of the first of `count` processes that have the network loaded at the same time."""
    processes = [_started(path, cache, "wait") for _ in range(count)]
    try:
        before = [_said(process) for process in processes]
        now = resident(processes[0].pid)
        return {name: size - before[0]["memory"][name] for name, size in now.items()}
    finally:
        for process in processes:
            process.communicate("end\n")


def resident(process: int | str) -> dict[str, int]:
    """Return the resident, the proportional and the private memory of a process in bytes (`"self"`: of this one)."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return {"rss": sizes["Rss"], "pss": sizes["Pss"], "private": sizes["Private_Clean"] + sizes["Private_Dirty"]}


def _one(path: str, waits: bool) -> None:
    """Load and run a network in this process, and print the time and the memory before as JSON."""
    import interposer as ip  # noqa: PLC0415
    from interposer.core.cache import settle  # noqa: PLC0415
    from interposer.session.stopwatch import example_inputs  # noqa: PLC0415

    tiny = ip.Network("tiny")
    x = tiny.add_input_layer(0, ip.TensorInfo((4,)), name="x")
    tiny.add_output_layer(0, tiny.add_addition_layer(x, x), name="y")
    backends = None if path.endswith(".ipn") else ["CpuAcc", "CpuRef"]
    with ip.load(tiny, ["CpuAcc", "CpuRef"]) as first:
        first.run([np.ones(4, np.float32)])
    memory = resident("self")
    begin = time.perf_counter()
    model = ip.load(path, backends)
    loaded = time.perf_counter()
    inputs = example_inputs(model.optimized)  # not counted
    again = time.perf_counter()
    model.run(inputs)
    seconds = time.perf_counter() - again + loaded - begin
    settle()
    print(json.dumps({"seconds": seconds, "memory": memory}), flush=True)
    if waits:
        sys.stdin.readline()


def _print(rows: Sequence[Row]) -> None:
    print("\n| network | model file | saved network | from the file | from the cache | from the saved network |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in rows:
        sizes = " | ".join(f"{row['bytes'][name] / 1e6:.2f} MB" for name in ("file", "saved"))
        times = " | ".join(f"{1e3 * min(row['seconds'][way]):.1f} ms" for way in WAYS)
        print(f"| {row['name']} | {sizes} | {times} |")
    large = rows[-1]["memory"]
    print("\n| processes with `large` | way | RSS of one | PSS of one | private memory of one |")
    print("|---:|---|---:|---:|---:|")
    for count in (1, 2):
        for way in WAYS:
            figures = " | ".join(f"{large[way][count][name] / 1e6:.0f} MB" for name in ("rss", "pss", "private"))
            print(f"| {count} | {way} | {figures} |")
