"""A tensor of the model: its name and type, or its array until it is added as a constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, Quantization

__all__ = ["Tensor", "turned"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the model.

    A constant has an `array`, and is only added to the model if a node uses it. With a `quantization`, the array holds
    quantized values, and the tensor is their dequantized form of type `dtype`. Any other dequantized tensor may have
    `integers`, the tensor of quantized values that it was made from.
    """

    name: str
    dtype: DataType
    array: Array | None = None
    quantization: Quantization | None = None
    integers: Tensor | None = None

    def transposed(self, permutation: tuple[int, ...]) -> Tensor:
        """Return a constant with its axes in the order `permutation`, and its per-channel scales along with them."""
        assert self.array is not None
        q = turned(self.quantization, permutation)
        return replace(self, name=f"{self.name}/transposed", array=self.array.transpose(permutation), quantization=q)

    def reshaped(self, shape: tuple[int, ...]) -> Tensor | None:
        """Return a constant with the shape `shape`, which may have one -1; None if it has per-channel scales."""
        assert self.array is not None
        if self.quantization is not None and self.quantization.per_axis:
            return None
        return replace(self, name=f"{self.name}/reshaped", array=np.reshape(self.array, shape))


def turned(q: Quantization | None, permutation: tuple[int, ...]) -> Quantization | None:
    """Return the quantization of a tensor after a permutation of its axes, which moves the axis of the scales."""
    if q is None or q.axis is None:
        return q
    return Quantization(q.scales, q.zero_points, permutation.index(q.axis))
