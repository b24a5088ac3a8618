"""What the file of a quantized network can hold: layers that it cannot hold in integers stay in float."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from interposer.core.errors import InvalidArgumentError, UnwritableError
from interposer.file_formats import Format, process_formats
from interposer.ir.graph import Layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output

__all__ = ["check_float_layers", "output_format_named", "unwritable"]


def output_format_named(name: str | None) -> Format | None:
    """Return the format of a name, None for None; `InvalidArgumentError` if it is unknown or only read."""
    if name is None:
        return None
    format = process_formats().named(name)
    if not format.writes:
        names_text = ", ".join(name for name, known_format in process_formats() if known_format.writes)
        raise InvalidArgumentError(f"{format.title} is a format that is only read (written are: {names_text})")
    return format


def check_float_layers(layers: Iterable[Layer], format: Format, network_name: str) -> None:
    """Raise `UnwritableError` if the format cannot hold these layers of a network, which stay in float."""
    refusals = {layer.name: (layer.kind, reason) for layer in layers if (reason := _refusal(layer, format)) is not None}
    if refusals:
        raise UnwritableError(format.title, refusals, network_name)


def unwritable(quantized: Network, names: Collection[str], format: Format) -> dict[str, str]:
    """Return the layers of a quantized network that a format cannot hold, by name, each with the reason.

    `names` has the layers that can stay in float instead. For another layer that is refused, such as a conversion
    between two scales, these are the layers that read its results.
    """
    reasons: dict[str, str] = {}
    for layer in quantized.graph.topological():
        reason = _refusal(layer, format)
        for name in _responsible(layer, names) if reason is not None else ():
            reasons.setdefault(name, f"{format.title} cannot hold it in this form: {reason}")
    return reasons


def _responsible(layer: Layer, names: Collection[str]) -> Iterator[str]:
    if layer.name in names:
        yield layer.name
    else:
        yield from (use.layer.name for value in layer.outputs for use in value.uses if use.layer.name in names)


def _refusal(layer: Layer, format: Format) -> str | None:
    """Return why a format cannot hold a layer, or None; the writer judges layers whose infos are not known yet."""
    if isinstance(layer.op, Constant | Input | Output) or any(
        value.info is None for value in (*layer.values, *layer.outputs)
    ):
        return None
    return "; ".join(format.refusals(layer)) or None
