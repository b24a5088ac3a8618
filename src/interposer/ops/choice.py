"""Operators that select the largest elements or sample at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import FLOATS, MAX_RANK, DataType, TensorInfo, differ
from interposer.ops.axes import axes_problems, normal_axis, quantized_axis_problems

__all__ = ["RandomMultinomial", "TopK"]

_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


@op(traits=Trait.CHOOSES)
class TopK(Op):
    """The k largest (or smallest) elements along an axis, best first, and their indices.

    Of equal elements, the one with the lower index comes first.

    Shapes:
        input: any of rank 1 or more
        values, indices: input.shape with ``k`` at ``axis``

    Example:
        >>> values, indices = compute(TopK(k=2), [[3, 9, 9, 1], [4, 2, 8, 6]])
        >>> values.tolist(), indices.tolist()
        ([[9, 9], [8, 6]], [[1, 2], [2, 3]])
        >>> values, indices = compute(TopK(k=1, axis=0, largest=False), [[3, 9, 9, 1], [4, 2, 8, 6]])
        >>> values.tolist(), indices.tolist()
        ([[3, 2, 8, 1]], [[0, 1, 1, 0]])

    Source:
        ONNX TopK-24; TFLite TOPK_V2; NNAPI TOPK_V2.
    """

    input = operand(rank=(1, MAX_RANK))
    values = result(dtype_of="input")
    indices = result(dtypes=_INDEX_TYPES)

    k: int = attribute(ge=0, doc="Number of elements to return.")
    axis: int = attribute(default=-1, doc="The axis that is searched; negative ones count from the end.")
    largest: bool = attribute(default=True, doc="Return the largest elements, not the smallest.")
    index_dtype: DataType = attribute(default=DataType.INT32, choices=_INDEX_TYPES, doc="The type of the indices.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems((self.axis,), input.rank))
        axis = normal_axis(self.axis, input.rank)
        yield from errors
        if not errors and self.k > input.shape[axis]:
            yield f"k is {self.k}, but axis {axis} has only {input.shape[axis]} elements"
        yield from quantized_axis_problems(input, (axis,), "choose from")

    def infer(self, input: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
        shape = list(input.shape)
        shape[normal_axis(self.axis, input.rank)] = self.k
        return input.with_shape(shape), TensorInfo(shape, self.index_dtype)


@op(pure=False, traits=Trait.RANDOM)
class RandomMultinomial(Op):
    """Sample classes at random from the distribution ``softmax(logits)`` of each row.

    The same seeds give the same classes in every run on the same backend. Without seeds, or with two zeros, every run
    gives different classes.

    Shapes:
        logits: (B, C)
        seeds: (2,)
        output: (B, num_samples)

    Example:
        >>> logits = [[0.0, -np.inf], [-np.inf, 0.0]]
        >>> compute(RandomMultinomial(num_samples=3), logits, seeds=[1, 2]).tolist()
        [[0, 0, 0], [1, 1, 1]]

    Source:
        ONNX Multinomial-22; TFLite MULTINOMIAL; NNAPI RANDOM_MULTINOMIAL.
    """

    logits = operand(rank=2, dtypes=FLOATS)
    seeds = operand(role=Role.PARAMETER, rank=1, dtypes=_INDEX_TYPES, optional=True)
    output = result(rank=2, dtypes=_INDEX_TYPES)

    num_samples: int = attribute(ge=0, doc="Number of classes that are sampled for each row.")
    dtype: DataType = attribute(default=DataType.INT32, choices=_INDEX_TYPES, doc="The type of the result.")

    def check(self, logits: TensorInfo, seeds: TensorInfo | None) -> Iterator[str]:
        if logits.shape[1] == 0:
            yield f"logits has shape {logits.shape}; expected at least one class"
        if seeds is not None and differ(seeds.shape[0], 2):
            yield f"seeds has {seeds.shape[0]} elements; expected 2"

    def infer(self, logits: TensorInfo, seeds: TensorInfo | None) -> TensorInfo:
        return TensorInfo((logits.shape[0], self.num_samples), self.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        logits = inputs[0]
        assert logits is not None
        return 4 * int(logits.num_elements) + 16 * int(outputs[0].num_elements)
