"""How operators on quantized tensors round their results."""

from __future__ import annotations

from enum import Enum
from typing import Any

from interposer.core.schema import attribute

__all__ = ["Requantization"]


class Requantization(Enum):
    """How an operator on quantized tensors rounds its results to the steps of the output.

    FIXED_POINT is the arithmetic of TensorFlow Lite's reference kernels: factors become integers of 31 bits, and the
    results are rounded half away from zero, some of them twice. HALF_TO_EVEN is the arithmetic of ONNX: the result on
    the dequantized operands, divided by the scale of the output and rounded half to even. Sums and means are then exact
    before they are divided; functions of single elements are computed in float32. A bias may be float32.
    """

    FIXED_POINT = "fixed_point"
    HALF_TO_EVEN = "half_to_even"


def requantization() -> Any:
    """Return the declaration of an operator's attribute of this type."""
    return attribute(
        default=Requantization.FIXED_POINT, doc="How results on quantized tensors are rounded; no effect on others."
    )
