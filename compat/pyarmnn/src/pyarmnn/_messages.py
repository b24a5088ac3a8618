"""What `Optimize` reports, in the wording of Arm NN."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from interposer import Network, OptimizedNetwork
from interposer.core.errors import UnsupportedLayerError
from interposer.ir.graph import Layer
from interposer.report.records import Refusal
from pyarmnn._infos import info_from_core
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._shapes import TensorInfo
from pyarmnn._types import GetDataTypeName

__all__ = ["fallbacks", "refusals", "unsupported"]


def fallbacks(optimized: OptimizedNetwork, network: Network) -> tuple[str, ...]:
    """Return a warning for each layer that runs on another backend than the first."""
    layers = {layer.name: layer for layer in network}
    return tuple(_warning(refusal, layers.get(refusal.layer)) for refusal in optimized.refusals)


def refusals(error: UnsupportedLayerError, network: Network, backends: Sequence[str]) -> str:
    """Return the warnings of all backends about all layers, and an error for each layer."""
    return "".join(_lines(error.refusals, {layer.name: layer for layer in network}, backends))


def unsupported(layer: IConnectableLayer, backends: Sequence[str], reason: str) -> str:
    """Return what is reported about a layer that no backend supports, for a reason that does not depend on them."""
    inputs = [slot._source._info for slot in layer._inputs if slot._source is not None]
    input_texts, output_texts = (_named(infos) for infos in (inputs, [slot._info for slot in layer._outputs]))
    warnings = [_warned(layer._type, backend, input_texts, output_texts, reason) for backend in backends]
    return "".join([*warnings, _failed(layer._type, backends)])


def _named(infos: Sequence[TensorInfo]) -> str:
    return GetDataTypeName(infos[0].GetDataType()) if infos else "Float32"


def _warned(kind: str, backend: str, input_types: str, output_types: str, reason: str) -> str:
    return (
        f"WARNING: Layer of type {kind} is not supported on requested backend {backend} for input data type "
        f"{input_types} and output data type {output_types} (reason: {reason}), falling back to the next backend."
    )


def _failed(kind: str, backends: Sequence[str]) -> str:
    names = "".join(f"{backend} " for backend in backends)
    return f"ERROR: Layer of type {kind} is not supported on any preferred backend [{names}]"


def _lines(refusals: Iterable[Refusal], layers: dict[str, Layer], backends: Sequence[str]) -> Iterator[str]:
    by_layer: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        by_layer.setdefault(refusal.layer, []).append(refusal)
    for name, reasons in by_layer.items():
        yield from (_warning(refusal, layers.get(name)) for refusal in reasons)
        yield _failed(reasons[0].kind, backends)


def _warning(refusal: Refusal, layer: Layer | None) -> str:
    input_types, output_types = _types(layer)
    return _warned(refusal.kind, refusal.backend, input_types, output_types, "; ".join(refusal.reasons))


def _types(layer: Layer | None) -> tuple[str, str]:
    """Return the names of the types of the first input and the first output; Float32 if there is none."""
    values = ([], []) if layer is None else (layer.values, layer.outputs)
    first, second = (_type_name(list(each)[:1]) for each in values)
    return first, second


def _type_name(values: Sequence[object]) -> str:
    for value in values:
        try:
            return GetDataTypeName(info_from_core(value.known).GetDataType())  # type: ignore[attr-defined]
        except RuntimeError:
            return "Unknown"
    return "Float32"
