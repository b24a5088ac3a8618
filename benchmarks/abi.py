"""The cost of the C interface: a call, a run in place, the tables and verdicts of 1,000 layers, and loading."""

from __future__ import annotations

import ctypes
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from interposer import DataLayout, Network, TensorInfo, include
from interposer.backend import ArrayHandle, WorkloadInfo
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ir.subgraph import SubgraphView
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.library.library import Library, open_library
from interposer.plugins.capi.running.backend import DynamicBackend

LAYERS = 1000


def measure(folder: Path, repeat: int) -> dict[str, float]:
    """Return the median microseconds of each operation, and print them; the result is empty without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("\nabi: there is no C compiler")
        return {}
    with tempfile.TemporaryDirectory() as work:
        path = str(Path(work, "Interposer_Nothing_backend.so"))
        source = Path(__file__).with_name("abi_plugin.c")
        words = [compiler, "-O2", "-fPIC", "-shared", f"-I{include.path()}", str(source), "-o", path]
        subprocess.run(words, check=True)
        library = open_library(ctypes.CDLL(path), path)
        try:
            figures = _figures(library, max(repeat, 15)) | {
                "open and close": _time(lambda: _open(path), max(repeat, 15))
            }
        finally:
            library.close()
    print("\nthe C interface, microseconds (median)")
    for name, value in figures.items():
        print(f"  {name:48} {value:10.2f}")
    return figures


def _open(path: str) -> None:
    open_library(ctypes.CDLL(path), path).close()


def _figures(library: Library, repeat: int) -> dict[str, float]:
    backend = DynamicBackend(library)
    view = _thousand()
    layer = view.layers[0]
    workload: Any = backend.create_workload_factory(None, {}).create_workload(layer, WorkloadInfo.of(layer))
    info = layer.outputs[0].known
    source, target = (ArrayHandle(info, np.zeros(tuple(info.shape), np.float32)) for _ in range(2))
    workload.execute([source, source, source], [target])
    run = workload.free[0].address
    plain = library.functions["execute"]
    support = backend.layer_support({})
    tables, tensors = FlatGraph.of(view), sum(1 for _ in FlatGraph.of(view).values)
    return {
        "execute of a table, by ctypes alone": _time(lambda: plain(library.self, None, run, None), repeat, 10_000),
        "execute of a table, with error and log": _time(lambda: workload.executable.run(run), repeat, 10_000),
        "a workload with one input and one output": _time(lambda: workload.execute([source], [target]), repeat, 10_000),
        f"tables of {len(tables.layers):,} layers, {tensors:,} tensors": _time(lambda: FlatGraph.of(view), repeat),
        f"support of {len(tables.layers):,} layers": _time(lambda: support.query(view), repeat),
    }


def _thousand() -> SubgraphView:
    """Return a chain of a thousand convolutions, each with separate weights and biases."""
    network = Network("chain")
    x = network.add_input_layer(0, TensorInfo((1, 8, 8, 8)))
    for index in range(LAYERS):
        weights = network.add_constant_layer(np.zeros((8, 1, 1, 8), np.float32), name=f"weights_{index}")
        bias = network.add_constant_layer(np.zeros(8, np.float32), name=f"bias_{index}")
        x = network.add_convolution2d_layer(
            x, weights, bias, stride_x=1, stride_y=1, data_layout=DataLayout.NHWC, name=f"convolution_{index}"
        )
    network.add_output_layer(0, x)
    graph: Graph = network.graph.clone()
    infer_graph(graph)
    return SubgraphView(graph, [layer for layer in graph if layer.kind == "Convolution2d"])


def _time(call: Callable[[], Any], repeat: int, count: int = 1) -> float:
    """Return the median microseconds of one call, over `repeat` rounds of `count` calls."""
    rounds = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(count):
            call()
        rounds.append((time.perf_counter() - start) / count)
    return statistics.median(rounds) * 1e6
