"""Samples of Merge and Switch, which pass data on."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType
from interposer.ops import Merge, Switch
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import f32, retyped, typed

__all__: list[str] = []


@samples(Merge)
def merge() -> Iterator[Sample]:
    """Yield Merge samples: every type; if both inputs are available, the first one is expected."""
    for label, operand in typed((2, 3)):
        yield Sample(Merge(), [operand, retyped(operand, (2, 3))], name=f"type-{label}")
    for shape in ((), (0, 3), (1, 2, 1, 2, 1, 2)):
        yield Sample(Merge(), [given(shape), given(shape)], name=f"rank-{len(shape)}")
    yield Sample(Merge(), [of([1, 2]), of([3, 4])], name="worked", expected=[f32([1, 2])])


@samples(Switch)
def switch() -> Iterator[Sample]:
    """Yield Switch samples: every type; both outputs have the data."""
    condition = given((), DataType.BOOL)
    for label, operand in typed((2, 3)):
        yield Sample(Switch(), [operand, condition], name=f"type-{label}")
    for shape in ((), (0, 3), (1, 2, 1, 2, 1, 2)):
        yield Sample(Switch(), [given(shape), condition], name=f"rank-{len(shape)}")
    data = f32([1, 2])
    yield Sample(Switch(), [of(data), of(True, DataType.BOOL)], name="worked", expected=[data, data])
