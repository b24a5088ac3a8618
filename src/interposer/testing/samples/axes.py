"""Samples with negative axes: copies of other samples, with the axis counted from the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.testing.sample import Sample, given_by, samples, sources_of

__all__: list[str] = []

OPERATORS: Final[tuple[type[Op], ...]] = (
    ops.ArgMinMax, ops.ChannelShuffle, ops.Compress, ops.Concat, ops.CumProd, ops.CumSum, ops.Gather,
    ops.GatherElements, ops.Hardmax, ops.L2Normalization, ops.LayerNormalization, ops.LogSoftmax, ops.Mean,
    ops.MeanVarianceNormalization, ops.Normalization, ops.Reduce, ops.ReverseSequence, ops.ReverseV2,
    ops.RmsNormalization, ops.ScatterElements, ops.Softmax, ops.Splitter, ops.TopK, ops.Unique,
)  # fmt: skip
NAMES: Final = ("axis", "axes", "batch_axis", "time_axis")
TYPES: Final = (DataType.FLOAT32, DataType.INT8)


@samples(*OPERATORS)
def negative_axes() -> Iterator[Sample]:
    """Yield samples of operators with axes: copies of their other samples with each axis counted from the end.

    There are copies in one float and one quantized type.
    """
    for op in OPERATORS:
        seen = set()
        for base in _others(op):
            created = _counted_from_the_end(base)
            key = created and (created.op, _info(base).dtype, _info(base).rank)
            if created is not None and key not in seen:
                seen.add(key)
                yield created


def _others(op: type[Op]) -> Iterator[Sample]:
    for source in sources_of(op):
        if source is not negative_axes:
            yield from filter(_is_usual, given_by(source, op))


def _is_usual(sample: Sample) -> bool:
    info = _info(sample)
    return info.dtype in TYPES and info.rank >= 2 and info.num_elements > 0


def _info(sample: Sample) -> Any:
    assert sample.inputs[0] is not None
    return sample.inputs[0].info


def _counted_from_the_end(base: Sample) -> Sample | None:
    """Return the sample with negative axes; None if no axis becomes less than -1."""
    rank = _info(base).rank
    attributes = {name: getattr(base.op, name) for name in NAMES if hasattr(base.op, name)}
    turned = {name: _turned(value, rank) for name, value in attributes.items()}
    least = min((axis for value in turned.values() for axis in _flat(value)), default=0)
    if turned == attributes or least > -2:
        return None
    label = "-".join(f"{axis:d}" for value in turned.values() for axis in _flat(value))
    op = base.op.replace(**turned)
    return Sample(op, base.inputs, base.outputs, f"{base.name}-from-end-{label}", base.expected)


def _turned(value: Any, rank: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_turned(axis, rank) for axis in value)
    return value if value is None or value < 0 else value - rank


def _flat(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)
