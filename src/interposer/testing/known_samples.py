"""The samples of an operator, and the operators that have samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Final

from interposer.core.errors import InvalidArgumentError, expect
from interposer.core.families import import_families
from interposer.core.schema import Op
from interposer.core.schema import registered_ops as declared_ops
from interposer.testing.sample import Sample, given_by, registered_ops, sources_of

__all__ = ["KnownSamples", "sampled_ops", "samples_of"]

_SAMPLES: Final = "interposer.testing.samples"
"""The package whose modules register samples. They are many, so they are imported on first use."""

_NOT_TRIED: Final = "requantization"
"""A module whose samples are rounded half to even: some writers give results for them that differ by one step."""

_CACHE: Final[dict[type[Op], tuple[Sample, ...]]] = {}


def sampled_ops() -> tuple[type[Op], ...]:
    """Return the operators that have samples, in the order of the families."""
    import_families(_SAMPLES, but=_NOT_TRIED)
    return registered_ops()


def samples_of(op: type[Op]) -> tuple[Sample, ...]:
    """Return all samples of an operator.

    Raises:
        InvalidArgumentError: `op` is no operator, or two of its samples share a name.
    """
    requirement = "samples are those of an operator, such as interposer.ops.Softmax"
    expect(op, type, requirement)
    if not issubclass(op, Op):
        raise InvalidArgumentError(f"{requirement}, not {op.__name__}")
    if op not in _CACHE:
        _CACHE[op] = _samples_of(op)
    return _CACHE[op]


def _samples_of(op: type[Op]) -> tuple[Sample, ...]:
    import_families(_SAMPLES, but=_NOT_TRIED)
    samples = tuple(sample for source in sources_of(op) for sample in given_by(source, op))
    for name, count in Counter(sample.id for sample in samples).items():
        if count > 1:
            raise InvalidArgumentError(f"two samples are called {name!r}")
    return samples


class KnownSamples:
    """The samples of all operators of some families (of all families if none is given), created on first use."""

    def __init__(self, families: Collection[str] = ()) -> None:
        self.families = families

    def of(self, op: type[Op]) -> tuple[Sample, ...]:
        """Return the samples of one operator; those of other operators are not created."""
        return samples_of(op) if not self.families or op.family in self.families else ()

    @cached_property
    def _all(self) -> tuple[Sample, ...]:
        return tuple(sample for op in declared_ops().values() for sample in self.of(op))

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._all)
