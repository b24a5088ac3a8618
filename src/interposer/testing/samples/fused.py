"""Samples of operators that combine several operators."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import Fused
from interposer.testing.sample import Sample, given, of, samples, weights
from interposer.testing.samples.common import BYTES, FLOATS, f32

__all__: list[str] = []


@samples(Fused)
def add_mul_add() -> Iterator[Sample]:
    """Yield Fused samples of an addition, a multiplication and an addition.

    The first sum is an output or not, and the shapes are equal or broadcast.
    """
    for count in (1, 2):
        op = Fused(num_outputs=count)
        for name, shape in (("same", (2, 3, 4)), ("broadcast", (3, 1))):
            for dtype in (*FLOATS, DataType.INT32):
                factors = [weights((4,), dtype, low=-3.0, high=3.0), weights((4,), dtype, low=-3.0, high=3.0)]
                yield Sample(
                    op, [given((2, 3, 4), dtype), given(shape, dtype), *factors], name=f"{name}-{count}-{dtype}"
                )
            for dtype, quantization in BYTES.items():
                output = TensorInfo((2, 3, 4), dtype, Quantization(quantization.scale * 4, quantization.zero_point))
                factors = [weights((4,), dtype, quantization), weights((4,), dtype, quantization)]
                operands = [given((2, 3, 4), dtype, quantization), given(shape, dtype, quantization), *factors]
                yield Sample(op, operands, [output] * count, f"{name}-{count}-{dtype}")


@samples(Fused)
def worked() -> Iterator[Sample]:
    """Yield a worked Fused example with both outputs."""
    operands = [of([[1, 2], [3, 4]]), of([[1, 1], [0, 0]]), of([2, 3]), of([10, 0])]
    yield Sample(Fused(), operands, name="worked", expected=[f32([[2, 3], [3, 4]]), f32([[14, 9], [16, 12]])])
