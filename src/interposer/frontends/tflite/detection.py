"""TFLite converters for object detection."""

from __future__ import annotations

from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.detection import PaddedNonMaxSuppression

__all__: list[str] = []


@operator("NON_MAX_SUPPRESSION_V4")
def hard_suppression(node: Node) -> list[Value]:
    """Convert NON_MAX_SUPPRESSION_V4; the scores of the selected boxes are not among its outputs."""
    if len(node.output_infos) != 2:
        node.fail(f"it has {len(node.output_infos)} outputs; expected 2")
    indices, _, count = node.pieces(PaddedNonMaxSuppression(), *(node.input(i) for i in range(5)), None)
    return [indices, count]


@operator("NON_MAX_SUPPRESSION_V5")
def soft_suppression(node: Node) -> list[Value]:
    """Convert NON_MAX_SUPPRESSION_V5, whose last input is the width of the soft suppression."""
    return node.result(PaddedNonMaxSuppression(), *(node.input(i) for i in range(6)))
