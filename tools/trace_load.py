"""Count the Python calls of a load, and of a call in which a backend fails and the next one takes its layer.

    python tools/trace_load.py [--most 20]

The network is one layer in an ONNX file. Nothing is read from the cache folder. The modules are imported before.
With ``--most``, the functions that are called most often in the load are listed too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

import interposer as ip
from interposer.backend import Backend, BackendId
from interposer.kernels import KernelTable
from interposer.ops import Activation, ActivationFunction
from interposer.writers import onnx

ROOT: Final = str(Path(ip.__file__).parent) + os.sep
X: Final = np.ones((2, 4), np.float32)


class Trace:
    """The calls of functions of Interposer in this thread between `begin` and `end`.

    `functions` counts them by path and name. `moves` is the number of calls from one package to another.
    """

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.moves = 0

    def begin(self) -> None:
        """Begin to count."""
        sys.setprofile(self._record)

    def end(self) -> None:
        """Stop counting."""
        sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        path = _path(frame)
        if event != "call" or path is None:
            return
        self.functions[path, frame.f_code.co_qualname] += 1
        caller = frame.f_back and _path(frame.f_back)
        self.moves += caller is not None and _package(caller) != _package(path)

    def __str__(self) -> str:
        files = len({path for path, _ in self.functions})
        orders = self.functions["ir/graph.py", "Graph.schedule"]
        sorts = self.functions["ir/graph.py", "Graph._schedule"]
        sweeps = self.functions["rewriting/driver.py", "_sweep"]
        return (
            f"{self.functions.total():,} calls in {files} files, {self.moves:,} between packages; "
            f"the order of a graph taken {orders} times and sorted {sorts} times; {sweeps} sweeps of rewrites"
        )


def _path(frame: FrameType) -> str | None:
    """Return the path of a function's module inside the package; None if it is not part of it."""
    path = frame.f_code.co_filename
    return path.removeprefix(ROOT) if path.startswith(ROOT) else None


def _package(path: str) -> str:
    return path.partition(os.sep)[0]


_FALLBACK: Final = Trace()
_KERNELS: Final = KernelTable()


@_KERNELS(Activation)
def _fail(op: Activation, x: Any) -> NoReturn:
    _FALLBACK.begin()
    raise OSError("the device is gone")


class FailingBackend(Backend):
    """A backend whose only kernel fails."""

    id: ClassVar = BackendId("Failing")
    kernels: ClassVar = _KERNELS


def _one_layer() -> bytes:
    """Return an ONNX file with one layer."""
    network = ip.Network("one-layer")
    x = network.add_input_layer(0, ip.TensorInfo(X.shape), name="x")
    network.add_output_layer(0, network.add_activation_layer(x, function=ActivationFunction.RELU), name="y")
    return onnx.write(network)


def traced_load(content: bytes) -> Trace:
    """Return the calls of a load on the default backends."""
    trace = Trace()
    trace.begin()
    model = ip.load(content)
    trace.end()
    model.close()
    return trace


def traced_fallback(content: bytes) -> Trace:
    """Return the calls of a run from the error of its first backend to its result on the second one."""
    with ip.load(content, [FailingBackend.id, "CpuRef"]) as model:
        _FALLBACK.functions.clear()
        _FALLBACK.moves = 0
        model.run([X])
        _FALLBACK.end()
    return _FALLBACK


def main() -> None:
    """Print the counts of a load and of a fallback."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=0, help="how many of the functions of the load to list")
    most = parser.parse_args().most
    os.environ["INTERPOSER_CACHE_DIR"] = ""
    content = _one_layer()
    ip.default_runtime().registry.register(FailingBackend.id, FailingBackend)
    for trace in (traced_load, traced_fallback):
        trace(content)  # imports the modules
    load = traced_load(content)
    print(f"load:     {load}")
    for (path, function), count in load.functions.most_common(most):
        print(f"    {count:5} {path}: {function}")
    print(f"fallback: {traced_fallback(content)}")


if __name__ == "__main__":
    main()
