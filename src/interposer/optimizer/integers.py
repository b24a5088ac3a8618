"""The pass that replaces float layers between Dequantize and Quantize by quantized layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interposer.backend import Backend, Options, SubgraphView
from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ops import Constant
from interposer.optimizer.assign import query
from interposer.optimizer.rewrites.driver import Rewritten, apply_rewrites
from interposer.optimizer.rewrites.pattern import New, Replacement, Rewrite, info_of
from interposer.optimizer.rewrites.quantized import INTEGERS, computing_layer

__all__ = ["ComputeInIntegers"]


@dataclass(frozen=True)
class ComputeInIntegers:
    """Applies the rewrites `INTEGERS` if no layer is moved to a less preferred backend.

    A rewrite is applied only if, for every new layer, a backend supports it that is preferred at least as much as the
    backend that supports the float layer.
    """

    backends: Sequence[Backend]
    options: Mapping[str, Options]
    name: str = "compute in integers"
    _ranks: dict[object, int] = field(default_factory=dict)

    def apply(self, graph: Graph) -> Rewritten:
        """Apply the rewrites to a graph, and return how often each was applied."""
        return apply_rewrites(
            graph, [Rewrite(integer.name, integer.ops, self._careful(integer)) for integer in INTEGERS]
        )

    def _careful(self, item: Rewrite) -> Any:
        def rewrite(op: Op, layer: Layer) -> Replacement:
            result = item(layer)
            return result if isinstance(result, New) and self._is_welcome(result, layer) else None

        return rewrite

    def _is_welcome(self, new: New, layer: Layer) -> bool:
        inner = computing_layer(layer)
        rank = self._rank(inner.op, inner.input_infos, inner.output_infos)
        return all(
            self._rank(element.op, [info_of(item) for item in element.inputs], [info]) <= rank
            for element, info in _made(new, layer.output.known)
        )

    def _rank(self, op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo | None]) -> int:
        """Return the position in the order of preference of the first backend that supports a layer.

        The layer has this operator and tensors with these infos. The number of backends is returned if none supports
        it.
        """
        key = (op, tuple(inputs), tuple(outputs))
        if key not in self._ranks:
            view = _alone(op, inputs, outputs)
            verdicts = (query(backend, view, self.options.get(backend.id, {}))[0] for backend in self.backends)
            self._ranks[key] = next((i for i, verdict in enumerate(verdicts) if verdict), len(self.backends))
        return self._ranks[key]


def _made(new: New, info: TensorInfo | None) -> Iterator[tuple[New, TensorInfo | None]]:
    """Yield the layers that a rewrite would create, each with the info of its output; constants are left out.

    `new` describes the layer that replaces the old one, and `info` its output. The others are the ones that it reads.
    """
    if isinstance(new.op, Constant):
        return
    yield new, info
    for item in new.inputs:
        if isinstance(item, New):
            yield from _made(item, info_of(item))


def _alone(op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo | None]) -> SubgraphView:
    """Return a view of a new graph with only one layer, to ask backends whether they support it.

    The layer has this operator, and inputs and outputs with these infos; None is an absent input or an info to infer.
    """
    network = Network("alone")
    values: list[Layer | Value | None] = []
    for index, info in enumerate(inputs):
        if info is None or info.constant is None:
            values.append(None if info is None else network.add_input_layer(index, info))
        else:
            values.append(network.add_constant_layer(info.constant, info.quantization))
    layer = network.add_layer(op, *values, outputs=list(outputs))
    return SubgraphView(network.graph, [layer])
