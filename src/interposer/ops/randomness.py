"""Random number generators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo

__all__ = ["Distribution", "RandomFill"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)
_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class Distribution(Enum):
    """The probability distribution of `RandomFill`."""

    UNIFORM = "uniform"
    """Uniform distribution between `a` (inclusive) and `b` (exclusive)."""
    NORMAL = "normal"
    """Normal distribution with mean `a` and standard deviation `b`."""


@op(pure=False)
class RandomFill(Op):
    """A tensor of random numbers; an operand holds the tensor's shape.

    The same seed gives the same numbers in every run on the same backend. Without a seed, every run gives different
    numbers.

    Shapes:
        dims: (R,)
        output: the dimensions in ``dims``

    Example:
        >>> numbers = compute(RandomFill(seed=7), [2, 3])
        >>> bool(np.all((0 <= numbers) & (numbers < 1))), numbers.shape
        (True, (2, 3))
        >>> compute(RandomFill(Distribution.NORMAL, a=5.0, b=0.0), [2]).tolist()
        [5.0, 5.0]

    Source:
        ONNX RandomUniform-22, RandomNormal-22 (whose reference evaluator draws the same numbers for a seed);
        TFLite RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL.
    """

    dims = operand(rank=1, dtypes=_INDEX_TYPES)
    output = result(dtypes=_FLOATS, dynamic=True)

    distribution: Distribution = attribute(default=Distribution.UNIFORM, doc="The probability distribution.")
    a: float = attribute(default=0.0, doc="Lower bound (inclusive), or mean.")
    b: float = attribute(default=1.0, doc="Upper bound (exclusive), or standard deviation.")
    seed: int | None = attribute(
        default=None, ge=0, le=2**32 - 1, doc="The seed; None means a different one in every run."
    )
    dtype: DataType = attribute(default=DataType.FLOAT32, choices=_FLOATS, doc="The type of the result.")

    def check(self, dims: TensorInfo) -> Iterator[str]:
        if dims.shape[0] > MAX_RANK:
            yield f"dims has {dims.shape[0]} dimensions; ranks 0 to {MAX_RANK} are supported"
        elif isinstance(dims.shape[0], Dim):
            yield "the number of dimensions in dims is not known"
        elif dims.constant is not None and (dims.constant < 0).any():
            yield f"dims is {dims.constant.tolist()}; a dimension must not be negative"

    def infer(self, dims: TensorInfo) -> TensorInfo:
        if dims.constant is not None:
            return TensorInfo(dims.constant.tolist(), self.dtype)
        return TensorInfo([UNKNOWN] * dims.shape[0], self.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return 16 * int(outputs[0].num_elements)
