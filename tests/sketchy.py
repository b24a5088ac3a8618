"""Backends for tests of isolation, each with one habit."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from interposer.backend import (
    Backend,
    Failure,
    KernelTable,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
)
from interposer.core.schema import Op, op, operand, result
from interposer.core.types import Array, DataType
from interposer.ir.graph import Graph
from interposer.ops import Activation, Addition, Input, Multiplication, Output
from interposer.runtime import Runtime
from tests.devices import Device

table = KernelTable()
"""Additions, and what becomes of them."""


@op(register=False)
class Twice(Op):
    """Twice its input: an operator that no host knows.

    Shapes:
        input, output: any, the same

    Source:
        nobody else
    """

    input = operand()
    output = result(like="input")


@table(Addition, Multiplication, dtypes={DataType.FLOAT32})
def compute(op: Addition | Multiplication, a: Array, b: Array, *, out: Array) -> None:
    (np.add if isinstance(op, Addition) else np.multiply)(a, b, out=out)


@table(Twice, dtypes={DataType.FLOAT32})
def twice(op: Twice, x: Array, *, out: Array) -> None:
    np.multiply(x, 2, out=out)


class Replacing(Backend):
    """Replaces an addition of a tensor to itself: as its option ``by`` says, by an operator, a graph, or not."""

    id: ClassVar = "Replacing"
    kernels: ClassVar = table

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        doubled = [layer for layer in view if isinstance(layer.op, Addition) and len(set(layer.values)) == 1]
        parts = [view.part([layer]) for layer in doubled]
        if options.get("by") == "failure":
            return OptimizationViews(view, failed=[Failure(part, "no doubling today") for part in parts])
        created: dict[Any, Any] = {"operator": lambda part: Twice(), "graph": _by_two}
        replacements = [Substitution(part, created[options["by"]](part)) for part in parts]
        return OptimizationViews(view, substitutions=replacements, remarks=[f"it doubles {len(parts)} times"])


def _by_two(part: SubgraphView) -> Graph:
    graph = Graph()
    [info] = [value.known for value in part.inputs]
    x = graph.add(Input(0), name="x", outputs=[info])
    x.output.info = info
    product = graph.add(Multiplication(), [x.output, graph.constant(np.full(info.shape, 2, np.float32))])
    graph.add(Output(0), [product.output])
    return graph


class Writing(Backend):
    """Writes to its inputs."""

    id: ClassVar = "Writing"
    kernels: ClassVar = KernelTable()


@Writing.kernels(Addition)
def add_in_place(op: Addition, a: Array, b: Array) -> Array:
    a += b
    return a


class Talking(Backend):
    """Says what it does, on both channels."""

    id: ClassVar = "Talking"
    kernels: ClassVar = table

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        print("to standard output")
        print("to standard error", file=sys.stderr)
        return super().optimize_subgraph(view, options)


class Flooding(Backend):
    """Does not stop talking."""

    id: ClassVar = "Flooding"
    kernels: ClassVar = table

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        for _ in range(1 << 10):
            os.write(1, b"ever the same " * (1 << 13) + b"\n")
        return super().optimize_subgraph(view, options)


class Wavering(Replacing):
    """Optimizes in another way each time."""

    id: ClassVar = "Wavering"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        count = len(os.listdir(self.folder))
        Path(self.folder, str(count)).touch()
        return super().optimize_subgraph(view, {"by": "graph" if count else "operator"})


class Corrupting(Backend):
    """Crashes in its run of the number `which`, after it has written wherever it could: to its inputs."""

    id: ClassVar = "Corrupting"

    def __init__(self, folder: str, which: int) -> None:
        self.folder, self.which = folder, which
        own = KernelTable()
        own(Addition, dtypes={DataType.FLOAT32})(self.add)
        vars(self)["kernels"] = own

    def add(self, op: Addition, a: Array, b: Array) -> Array:
        count = len(os.listdir(self.folder))
        Path(self.folder, str(count)).touch()
        if count == self.which:
            for array in (a, b):
                ctypes.memset(array.ctypes.data, 0, array.nbytes)
            ctypes.string_at(0)
        match: Array = a + b
        return match


class Falling(Device):
    """A device with a heap of its own, which crashes in its run of the number `which`."""

    id: ClassVar = "Falling"

    def __init__(self, folder: str, which: int) -> None:
        super().__init__()
        own = KernelTable()
        own(Activation, dtypes={DataType.FLOAT32})(self.relu)
        vars(self)["kernels"] = own
        self.folder, self.which = folder, which

    def relu(self, op: Activation, x: Array) -> Array:
        count = len(os.listdir(self.folder))
        Path(self.folder, str(count)).touch()
        if count == self.which:
            ctypes.string_at(0)
        array: Array = np.maximum(x, 0)
        return array


class Nesting(Backend):
    """Gives, as the reason why it is not available, the number of backends that its own runtime isolates."""

    id: ClassVar = "Nesting"

    def unavailable(self) -> str:
        """The count, in words."""
        with Runtime() as runtime:
            return f"a runtime here isolates {'some' if runtime.registry.isolates_any else 'none'}"
