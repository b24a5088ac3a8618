"""Recognition of the layers that compute Arm NN's scratch tensor of an LSTM from its gates, as the reader adds them."""

from __future__ import annotations

from typing import NamedTuple

from interposer.ir.graph import Layer, Value
from interposer.ops.activation import Activation
from interposer.ops.elementwise import Multiplication
from interposer.ops.rearrange import Splitter, Stack
from interposer.ops.reshape import Reshape

__all__ = ["Scratch", "scratch_of"]


class Scratch(NamedTuple):
    """The scratch tensor of an LSTM as a value of the network, and the layers that compute it."""

    value: Value
    layers: frozenset[Layer]


def scratch_of(lstm: Layer) -> Scratch | None:
    """Return the scratch tensor that is computed from the gates of an Lstm layer; None if they are used otherwise."""
    splitter = _only_consumer(lstm.outputs[0], Splitter)
    if splitter is None or len(splitter.outputs) not in (3, 4):
        return None
    *other_gates, _, forget, output = splitter.outputs
    product, stack = _only_consumer(output, Multiplication), _only_consumer(forget, Stack)
    if product is None or stack is None or product.values[0] is not output:
        return None
    cell = product.values[1]
    reshape = _only_consumer(stack.output, Reshape)
    if reshape is None or list(stack.values) != [*other_gates, cell, forget, product.output]:
        return None
    layers = [splitter, product, stack, reshape, *_activation(cell, lstm)]
    return Scratch(reshape.output, frozenset(layers)) if _are_closed(layers, lstm, cell) else None


def _only_consumer(value: Value, kind: type) -> Layer | None:
    consumers = value.consumers
    return consumers[0] if len(consumers) == 1 and isinstance(consumers[0].op, kind) else None


def _activation(cell: Value, lstm: Layer) -> list[Layer]:
    """Return the layer that activates the cell state, if there is one."""
    is_activated = isinstance(cell.producer.op, Activation) and cell.producer.values[0] is lstm.outputs[2]
    return [cell.producer] if is_activated else []


def _are_closed(layers: list[Layer], lstm: Layer, cell: Value) -> bool:
    """Return True if only these layers use what they compute, except for the scratch tensor itself."""
    if cell is not lstm.outputs[2] and cell.producer not in layers:
        return False
    inner_layers = [layer for layer in layers if not isinstance(layer.op, Reshape)]
    return all(consumer in layers for layer in inner_layers for value in layer.outputs for consumer in value.consumers)
