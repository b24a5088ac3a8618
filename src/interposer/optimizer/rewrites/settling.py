"""The pass that replaces layers whose attributes are tensors by their equivalents, once the tensors are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from interposer.core.errors import InvalidNetworkError
from interposer.ir.graph import Graph, Layer
from interposer.ir.inference import infer_layer
from interposer.ops import DynamicOp
from interposer.optimizer.rewrites.constants import fold_constants
from interposer.rewriting.driver import Rewritten, replace

__all__ = ["settle_layers"]

NAME: Final = "settle_layers"


def settle_layers(graph: Graph) -> Rewritten:
    """Replace layers whose operands have become known: by a constant, or by an operator with fixed attributes.

    For example, a dynamic Reshape whose target shape is known becomes a Reshape. The graph is visited once, in running
    order. Returns how often each replacement was made.

    Raises:
        InvalidNetworkError: dimensions that became known do not fit a layer.
    """
    counts: Counter[str] = Counter()
    stale_layers: set[Layer] = set()
    for layer in graph.topological() if any(isinstance(layer.op, DynamicOp) for layer in graph) else ():
        if layer in stale_layers:
            _infer_again(graph, layer)
        readers = {use.layer for value in layer.outputs for use in value.uses}
        name = _settle(graph, layer)
        counts[name] += 1 if name else 0
        stale_layers |= readers if name or layer in stale_layers else set()
    return Rewritten(counts)


def _infer_again(graph: Graph, layer: Layer) -> None:
    errors: Iterable[str] = infer_layer(layer)
    if errors:
        raise InvalidNetworkError([f"layer {layer}: {error}" for error in errors], graph.name)


def _settle(graph: Graph, layer: Layer) -> str:
    """Replace a layer by an operator with fixed attributes, or by a constant, if its operands are known.

    Returns the name of the replacement for the counts, or an empty text if the layer stays.
    """
    if isinstance(layer.op, DynamicOp):
        fixed_op = layer.op.settled(*layer.input_infos)
        if fixed_op is None:
            return ""
        new_layer = graph.add(fixed_op, layer.inputs[:1], outputs=layer.output_infos, source=layer.source)
        new_layer.hint, new_layer.merged = layer.hint, layer.merged
        _infer_again(graph, new_layer)
        for old_value, new_value in zip(layer.outputs, new_layer.outputs, strict=True):
            graph.replace_uses(old_value, new_value)
        name = layer.name
        graph.erase_dead([layer])
        graph.rename(new_layer, name)
        return NAME
    constants = fold_constants(layer)
    if constants is None:
        return ""
    replace(graph, layer, constants, by=fold_constants.name)
    return fold_constants.name
