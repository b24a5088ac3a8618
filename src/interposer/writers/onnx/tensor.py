"""What the writer knows of a tensor of the model: its name and type, or the array that it will become."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from interposer.core.types import Array, DataType, Quantization

__all__ = ["Tensor", "turned"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the model.

    A constant has an `array` and no place in the model until a node takes it. Where it is quantized by `codes_as`, the
    array holds integers, and the tensor the numbers of type `dtype` that they stand for. Any other tensor of such
    numbers may have `codes`, a tensor of integers that it was made of.
    """

    name: str
    dtype: DataType
    array: Array | None = None
    codes_as: Quantization | None = None
    codes: Tensor | None = None

    def transposed(self, permutation: tuple[int, ...]) -> Tensor:
        """Return a constant with its axes in another order."""
        assert self.array is not None
        q = turned(self.codes_as, permutation)
        return replace(self, name=f"{self.name}/transposed", array=self.array.transpose(permutation), codes_as=q)

    def reshaped(self, shape: tuple[int, ...]) -> Tensor | None:
        """Return a constant with another shape, which may have one -1; None if that tears its scales apart."""
        assert self.array is not None
        if self.codes_as is not None and self.codes_as.per_axis:
            return None
        return replace(self, name=f"{self.name}/reshaped", array=np.reshape(self.array, shape))


def turned(q: Quantization | None, permutation: tuple[int, ...]) -> Quantization | None:
    """Return the quantization of a tensor whose axes get another order."""
    if q is None or q.axis is None:
        return q
    return Quantization(q.scales, q.zero_points, permutation.index(q.axis))
