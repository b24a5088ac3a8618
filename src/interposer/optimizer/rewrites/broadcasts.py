"""The rewrite that removes broadcasts before operators that broadcast by themselves."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.core.traits import Trait
from interposer.ir.graph import Layer, Value
from interposer.ops import BroadcastTo
from interposer.rewriting.pattern import New, Replacement, above, gives, keeps_codes, rewrite

__all__ = ["BROADCASTS"]


@rewrite(having=Trait.POINTWISE)
def drop_broadcast(op: Op, layer: Layer) -> Replacement:
    """Remove a BroadcastTo before an elementwise layer whose own broadcasting gives the same shape."""
    for position, value in enumerate(layer.values):
        narrow_inputs = [*layer.values]
        narrow_inputs[position] = _before_broadcast(value)
        info = gives(op, narrow_inputs) if narrow_inputs[position] is not value else None
        if info is not None and info.shape == layer.output.known.shape:
            return New(op, narrow_inputs)
    return None


def _before_broadcast(value: Value) -> Value:
    broadcast = above(value, BroadcastTo)
    return broadcast.layer.values[0] if broadcast and keeps_codes(broadcast.layer) else value


BROADCASTS: Final = (drop_broadcast,)
