"""TFLite converters for normalization."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.normalization import L2Normalization, Normalization

__all__: list[str] = []


@operator("L2_NORMALIZATION", options=True)
def l2_normalization(node: Node) -> Value:
    """Convert L2_NORMALIZATION along the last axis."""
    activation = node.options["fused_activation_function"]
    return node.result(L2Normalization(axis=-1), node.value(0), activation=activation)


@operator("LOCAL_RESPONSE_NORMALIZATION", options=True)
def local_response_normalization(node: Node) -> Value:
    """Convert LOCAL_RESPONSE_NORMALIZATION across the channels, which are the last axis."""
    o = node.options
    if o["radius"] < 0:
        node.fail(f"the radius is {o['radius']}; expected 0 or more")
    op = Normalization(norm_size=2 * o["radius"] + 1, alpha=o["alpha"], beta=o["beta"], k=o["bias"], axis=-1)
    return node.result(op, node.value(0))
