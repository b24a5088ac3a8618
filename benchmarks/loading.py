"""`python benchmarks/run.py loading`: time and memory of loading, beside ONNX Runtime, and how both grow with networks.

Every load takes place in a process of its own, which has loaded a tiny network before, so that imports do not count.
Time is measured from the file to the first result, with one thread. Memory is the resident memory after the first
result minus the resident memory before the load. The peak is the largest resident memory of the process at any time,
minus the same.

`networks` are loaded without a cache, with a cache that is filled before, and in ONNX Runtime. `growth` are
networks of one kind and increasing size:

- `layers`: a chain of unary functions,
- `constants`: a chain of matrix products, each with its own weights,
- `inputs`: a sum of many inputs,
- `outputs`: many functions of one input,
- `parts`: a chain of functions that CpuAcc and CpuRef run alternately; ONNX Runtime runs it alone.

The order of growth is the logarithm of the ratio of the last two times, divided by that of their sizes: 1 is linear.
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

from benchmarks.machine import machine

HERE: Final = Path(__file__).resolve().parent
WIDTH: Final = 8
ENGINES: Final = ("CpuAcc", "cached", "ONNX Runtime")
FUNCTIONS: Final = ("Relu", "Neg")
Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> int:
    """Measure what was requested."""
    if words and words[0] == "--one":
        print(json.dumps(_measured(*words[1:])))
        return 0
    args = _parser().parse_args(words)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as work:
        if "growth" in args.suites:
            rows += _growth(args, Path(work))
        if "networks" in args.suites:
            rows += _networks(args, Path(work))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py loading", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = {"type": lambda text: [word for word in text.split(",") if word]}
    parser.add_argument("suites", nargs="*", default=["growth", "networks"], help="growth, networks; both by default")
    parser.add_argument("--kinds", **listed, default=list(KINDS), help=f"kinds of growth: {','.join(KINDS)}")
    parser.add_argument(
        "--sizes", type=lambda text: [int(word) for word in text.split(",")], default=[2500, 5000, 10000, 20000]
    )
    parser.add_argument("--networks", **listed, default=["*"], help="names of networks, or patterns such as mobilenet*")
    parser.add_argument("--files", **listed, default=[], help="other ONNX files with float32 inputs")
    parser.add_argument("--repeat", type=int, default=3, help="loads of each, of which the fastest counts")
    parser.add_argument("--cache", type=Path, default=HERE / ".cache", help="folder where built networks are cached")
    parser.add_argument("--json", type=Path, default=HERE / "results/loading.json", help="the file to write")
    return parser


# --- growth -----------------------------------------------------------------------------------------------------------


def _growth(args: argparse.Namespace, work: Path) -> Iterator[Row]:
    print("growth of the time to the first result, in seconds")
    for kind in args.kinds:
        times: dict[str, list[float]] = {}
        for size in args.sizes:
            path = work / f"{kind}.onnx"
            _save(path, kind, size)
            row = _row(args, path, ("parts" if kind == "parts" else "CpuAcc", "ONNX Runtime"), work)
            yield {"kind": kind, "size": size, **row}
            for engine, figures in row.items():
                times.setdefault(engine, []).append(figures.get("seconds", math.nan))
        for engine, engine_seconds in times.items():
            shown = "  ".join(
                f"{size:,}: {seconds:.2f}" for size, seconds in zip(args.sizes, engine_seconds, strict=True)
            )
            print(f"  {kind:10} {engine:13} {shown}  order {_order(args.sizes, engine_seconds):.2f}", flush=True)


def _order(sizes: Sequence[int], times: Sequence[float]) -> float:
    if len(sizes) < 2:
        return math.nan
    return math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])


def _save(path: Path, kind: str, size: int) -> None:
    import onnx  # noqa: PLC0415 - only where networks are built
    from onnx import helper, numpy_helper  # noqa: PLC0415

    nodes, inputs, outputs, constants = KINDS[kind](size, helper.make_node)
    graph = helper.make_graph(
        nodes,
        kind,
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, WIDTH]) for name in inputs],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, WIDTH]) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _chain(size: int, node: Any) -> tuple[Any, ...]:
    nodes = [node(FUNCTIONS[n % 2], [f"t{n}"], [f"t{n + 1}"]) for n in range(size)]
    return nodes, ["t0"], [f"t{size}"], {}


def _products(size: int, node: Any) -> tuple[Any, ...]:
    draw = np.random.default_rng(0)
    weights = {f"w{n}": draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 3 for n in range(size)}
    nodes = [node("MatMul", [f"t{n}", f"w{n}"], [f"t{n + 1}"]) for n in range(size)]
    return nodes, ["t0"], [f"t{size}"], weights


def _sum(size: int, node: Any) -> tuple[Any, ...]:
    names = [f"x{n}" for n in range(size)]
    return [node("Sum", names, ["y"])], names, ["y"], {}


def _functions(size: int, node: Any) -> tuple[Any, ...]:
    scales = {f"c{n}": np.array([n], np.float32) for n in range(size)}
    return [node("Mul", ["x", f"c{n}"], [f"y{n}"]) for n in range(size)], ["x"], [f"y{n}" for n in range(size)], scales


KINDS: Final = {"layers": _chain, "constants": _products, "inputs": _sum, "outputs": _functions, "parts": _chain}


# --- networks ---------------------------------------------------------------------------------------------------------


def _networks(args: argparse.Namespace, work: Path) -> Iterator[Row]:
    from benchmarks import networks  # noqa: PLC0415 - it needs the package onnx

    names = [name for name in networks.NETWORKS if any(fnmatchcase(name, pattern) for pattern in args.networks)]
    paths = {name: networks.saved(name, args.cache, 1) for name in names}
    paths |= {path.stem: path for path in map(Path, args.files)}
    rows = []
    print("from the file to the first result: milliseconds, resident MiB, peak MiB")
    for title, path in paths.items():
        row = _row(args, path, ENGINES, work)
        rows.append(row)
        print(f"  {title:24} {'   '.join(_shown(engine, row[engine]) for engine in ENGINES)}", flush=True)
        yield {"network": title, **row}
    for engine in ENGINES[:2]:
        for figure, title in (("seconds", "time"), ("resident", "resident memory")):
            ratios = [row[engine][figure] / row[ENGINES[2]][figure] for row in rows if _is_complete(row)]
            if ratios and min(ratios) > 0:
                print(f"  {engine}: {title} is {statistics.geometric_mean(ratios):.2f} of ONNX Runtime's in the mean")


def _is_complete(row: Row) -> bool:
    return all("error" not in figures for figures in row.values())


def _shown(engine: str, figures: Row) -> str:
    if "error" in figures:
        return f"{engine}: {figures['error']}"
    return f"{engine} {figures['seconds'] * 1e3:7.0f} {figures['resident']:6.0f} {figures['peak']:6.0f}"


# --- one load ---------------------------------------------------------------------------------------------------------


def _row(args: argparse.Namespace, path: Path, engines: Sequence[str], work: Path) -> Row:
    """Return the figures of each engine; the engines take turns."""
    runs: dict[str, list[Row]] = {engine: [] for engine in engines}
    for _ in range(args.repeat):
        for engine in engines:
            runs[engine].append(_apart(path, engine, work))
    return {engine: min(figures, key=lambda row: row.get("seconds", math.inf)) for engine, figures in runs.items()}


def _apart(path: Path, engine: str, work: Path) -> Row:
    """Load a network in a process of its own; "cached" is CpuAcc with a cache that an earlier process has filled."""
    cache = work / "cache" / path.stem
    words = [sys.executable, str(HERE / "run.py"), "loading", "--one", str(path)]
    folder = str(cache) if engine == "cached" else ""
    settings = {**os.environ, "INTERPOSER_CACHE_DIR": folder, "INTERPOSER_NUM_THREADS": "1"}
    if engine == "cached" and not cache.exists():
        cache.mkdir(parents=True)
        subprocess.run([*words, engine], env=settings, capture_output=True, check=False)
    run = subprocess.run([*words, engine], env=settings, capture_output=True, text=True, check=False)
    if run.returncode:
        return {"error": (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]}
    return dict(json.loads(run.stdout.splitlines()[-1]))


def _measured(path: str, engine: str) -> Row:
    """Return the seconds and the memory of one load in this process."""
    with tempfile.TemporaryDirectory() as work:
        tiny = Path(work, "tiny.onnx")
        _save(tiny, "layers", 2)
        load = _onnxruntime if engine == "ONNX Runtime" else _ours(engine)
        load(str(tiny))
    before, began = _resident("VmRSS"), time.perf_counter()
    loaded = load(path)
    seconds = time.perf_counter() - began
    figures = {"seconds": seconds, "resident": _resident("VmRSS") - before, "peak": _resident("VmHWM") - before}
    del loaded
    return figures


def _ours(engine: str) -> Any:
    import interposer as ip  # noqa: PLC0415 - not where ONNX Runtime is measured

    backends = ["CpuAcc", "CpuRef"] if engine == "parts" else ["CpuAcc"]
    options = ip.OptimizerOptions(exclude={"ElementwiseUnary": ["CpuAcc"]}) if engine == "parts" else None

    def load(path: str) -> Any:
        model = ip.load(path, backends, options=options)
        model.run([np.ones(tuple(info.shape), info.dtype.numpy) for info in model.inputs.values()])
        return model

    return load


def _onnxruntime(path: str) -> Any:
    import onnxruntime  # noqa: PLC0415 - only where it is installed

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    session.run(
        None,
        {model_input.name: np.ones(model_input.shape, types[model_input.type]) for model_input in session.get_inputs()},
    )
    return session


def _resident(kind: str) -> float:
    """Return a figure of the memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{kind}:"))
