"""The position of the first backend that supports a layer, from queries about the layer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from interposer.backend import Backend, Options, SubgraphView
from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.optimizer.assign import query

__all__ = ["Preference"]


@dataclass(frozen=True)
class Preference:
    """Queries backends in order of preference, and caches the answers."""

    backends: Sequence[Backend]
    options: Mapping[str, Options]
    _ranks: dict[object, int] = field(default_factory=dict)

    def rank(self, op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo | None]) -> int:
        """Return the position in the order of preference of the first backend that supports a layer.

        The layer has this operator and tensors with these infos. The number of backends is returned if none supports
        it.
        """
        key = (op, tuple(inputs), tuple(outputs))
        if key not in self._ranks:
            view = _view_of_one_layer(op, inputs, outputs)
            verdicts = (query(backend, view, self.options.get(backend.id, {}))[0] for backend in self.backends)
            self._ranks[key] = next((i for i, verdict in enumerate(verdicts) if verdict), len(self.backends))
        return self._ranks[key]


def _view_of_one_layer(
    op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo | None]
) -> SubgraphView:
    """Return a view of a new graph with only one layer, to ask backends whether they support it.

    The layer has this operator, and inputs and outputs with these infos; None is an absent input or an info to infer.
    """
    network = Network("alone")
    operands: list[Layer | Value | None] = []
    for index, info in enumerate(inputs):
        if info is None or info.constant is None:
            operands.append(None if info is None else network.add_input_layer(index, info))
        else:
            operands.append(network.add_constant_layer(info.constant, info.quantization))
    layer = network.add_layer(op, *operands, outputs=list(outputs))
    return SubgraphView(network.graph, [layer])
