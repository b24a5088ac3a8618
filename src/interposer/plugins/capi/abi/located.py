"""Names of layers and tensors for errors of a plug-in, which refer to them by index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from interposer.ir.graph import Layer
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.flatten import FlatGraph

__all__ = ["faulty_layer", "located"]


@contextmanager
def located(flat: FlatGraph) -> Iterator[None]:
    """A context manager that adds the name of the defective layer or tensor to a `CallError`.

    The plug-in identifies it by its index in the tables `flat`.
    """
    try:
        yield
    except CallError as error:
        error.locate(_name(flat, error))
        raise


def faulty_layer(flat: FlatGraph, error: CallError) -> Layer | None:
    """Return the layer that an error reports as defective, or None if it is not in these tables."""
    if error.item_kind == abi.ITEM_LAYER and 0 <= error.item_index < len(flat.layers):
        return flat.layers[error.item_index]
    return None


def _name(flat_graph: FlatGraph, error: CallError) -> str:
    layer = faulty_layer(flat_graph, error)
    if layer is not None:
        return f"layer {layer}"
    if error.item_kind == abi.ITEM_TENSOR:
        return _named("tensor", error.item_index, [value.name for value in flat_graph.values])
    return ""


def _named(noun: str, index: int, names: Sequence[str]) -> str:
    return f"{noun} {names[index]!r}" if 0 <= index < len(names) else ""
