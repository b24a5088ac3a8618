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
        seen_keys = set()
        for base in _usual_samples(op):
            negative_axis_sample = _counted_from_the_end(base)
            key = negative_axis_sample and (negative_axis_sample.op, _info(base).dtype, _info(base).rank)
            if negative_axis_sample is not None and key not in seen_keys:
                seen_keys.add(key)
                yield negative_axis_sample


def _usual_samples(op: type[Op]) -> Iterator[Sample]:
    for source in sources_of(op):
        if source is not negative_axes:
            yield from filter(_is_usual, given_by(source, op))


def _is_usual(sample: Sample) -> bool:
    info = _info(sample)
    return info.dtype in TYPES and info.rank >= 2 and info.num_elements > 0 and not sample.extreme


def _info(sample: Sample) -> Any:
    assert sample.inputs[0] is not None
    return sample.inputs[0].info


def _counted_from_the_end(base: Sample) -> Sample | None:
    """Return the sample with negative axes; None if no axis becomes less than -1 (other samples cover -1)."""
    rank = _info(base).rank
    attributes = {name: getattr(base.op, name) for name in NAMES if hasattr(base.op, name)}
    negative_axes = {name: _from_end(attribute, rank) for name, attribute in attributes.items()}
    lowest = min((axis for attribute in negative_axes.values() for axis in _flat(attribute)), default=0)
    if negative_axes == attributes or lowest > -2:
        return None
    label = "-".join(f"{axis:d}" for attribute in negative_axes.values() for axis in _flat(attribute))
    op = base.op.replace(**negative_axes)
    return Sample(op, base.inputs, base.outputs, f"{base.name}-from-end-{label}", base.expected)


def _from_end(attribute: Any, rank: int) -> Any:
    if isinstance(attribute, tuple):
        return tuple(_from_end(axis, rank) for axis in attribute)
    return attribute if attribute is None or attribute < 0 else attribute - rank


def _flat(attribute: Any) -> tuple[int, ...]:
    if attribute is None:
        return ()
    return attribute if isinstance(attribute, tuple) else (attribute,)
