"""Tensors of unknown rank, treated as the set of all ranks that they may have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from interposer.core.shape import MAX_RANK, UNKNOWN
from interposer.core.types import TensorInfo

__all__ = ["is_ranked", "of_every_rank", "true_of_all"]

Infos = Sequence[TensorInfo | None]


def is_ranked(info: TensorInfo | None) -> bool:
    """Return True if the rank is known, or if the operand is absent (None)."""
    return info is None or info.is_ranked


def of_every_rank(infos: Infos) -> Iterator[list[TensorInfo | None]]:
    """Yield `infos` with every possible combination of ranks for the tensors of unknown rank.

    For one or two such tensors, these are all ranks or all pairs of ranks; for more, all of them get the same rank.
    """
    places = [place for place, info in enumerate(infos) if not is_ranked(info)]
    ranks = range(MAX_RANK + 1)
    choices = itertools.product(ranks, ranks) if len(places) == 2 else ((rank,) * len(places) for rank in ranks)
    for choice in choices:
        value = dict(zip(places, choice, strict=True))
        yield [_of_rank(info, value.get(place)) for place, info in enumerate(infos)]


def _of_rank(info: TensorInfo | None, rank: int | None) -> TensorInfo | None:
    return info if info is None or rank is None else info.with_shape([UNKNOWN] * rank)


def true_of_all(cases: Iterable[tuple[TensorInfo | None, ...] | None]) -> tuple[TensorInfo | None, ...]:
    """Return the infos that hold in all valid cases. Each case has one info per result; an invalid case is None.

    At least one case must be valid.
    """
    first, *others = (case for case in cases if case is not None)
    for other in others:
        first = tuple(a and b and a.joined(b) for a, b in zip(first, other, strict=True))
    return first
