"""What a graph will take to run: bytes that live at the same time, and operations."""

from __future__ import annotations

from dataclasses import dataclass

from interposer.ir.graph import Graph, Layer
from interposer.ops.control import Constant, Input, Output

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The plan of one run. `peak_bytes` counts the tensors that live at once; `operations` what operators count."""

    peak_bytes: int
    constant_bytes: int
    operations: int


def estimate(graph: Graph) -> Estimate:
    """Compute the plan of a graph whose shapes are all known, without allocating anything."""
    order = graph.topological()
    constants = [layer.output.known for layer in order if isinstance(layer.op, Constant)]
    constant_bytes = sum(int(info.num_bytes) for info in constants)
    return Estimate(constant_bytes + _peak(order), constant_bytes, sum(map(operations, order)))


def operations(layer: Layer) -> int:
    """The operations of one layer."""
    if isinstance(layer.op, Input | Output | Constant):
        return 0
    return int(layer.op.operations(layer.input_infos, layer.output_infos))


def _peak(order: list[Layer]) -> int:
    left = {value: len(value.consumers) for layer in order for value in layer.outputs}
    live = peak = 0
    for layer in order:
        if isinstance(layer.op, Constant):
            continue
        live += sum(int(value.known.num_bytes) for value in layer.outputs)
        peak = max(peak, live)
        for value in dict.fromkeys((*layer.values, *layer.outputs)):
            left[value] -= value in layer.values
            if left[value] == 0 and not value.is_constant:
                live -= int(value.known.num_bytes)
    return peak
