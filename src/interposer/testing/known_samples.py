"""The samples of an operator, and the operators that have samples."""

from __future__ import annotations

from collections import Counter
from typing import Final

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.testing.sample import Sample, given_by, registered_ops, sources_of

__all__ = ["sampled_ops", "samples_of"]

_CACHE: Final[dict[type[Op], tuple[Sample, ...]]] = {}


def sampled_ops() -> tuple[type[Op], ...]:
    """Return the operators that have samples, in the order of the families."""
    _import_families()
    return registered_ops()


def samples_of(op: type[Op]) -> tuple[Sample, ...]:
    """Return all samples of an operator.

    Raises:
        InvalidArgumentError: two of them share a name.
    """
    if op not in _CACHE:
        _CACHE[op] = _samples_of(op)
    return _CACHE[op]


def _samples_of(op: type[Op]) -> tuple[Sample, ...]:
    _import_families()
    result = tuple(item for source in sources_of(op) for item in given_by(source, op))
    for name, count in Counter(item.id for item in result).items():
        if count > 1:
            raise InvalidArgumentError(f"two samples are called {name!r}")
    return result


def _import_families() -> None:
    """Import all families, which register their samples. They are many, so this happens on first use."""
    import interposer.testing.samples  # noqa: F401, PLC0415
