"""Tensors of unknown rank, as the tensors of all ranks that they may turn out to have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from interposer.core.shape import MAX_RANK, UNKNOWN
from interposer.core.types import TensorInfo

__all__ = ["is_ranked", "of_every_rank", "true_of_all"]

Infos = Sequence[TensorInfo | None]


def is_ranked(info: TensorInfo | None) -> bool:
    """False for a tensor of unknown rank."""
    return info is None or info.is_ranked


def of_every_rank(infos: Infos) -> Iterator[list[TensorInfo | None]]:
    """The infos with ranks for those that have none: all pairs of ranks for two such, else the same rank for all."""
    places = [place for place, info in enumerate(infos) if not is_ranked(info)]
    ranks = range(MAX_RANK + 1)
    choices = itertools.product(ranks, ranks) if len(places) == 2 else ((rank,) * len(places) for rank in ranks)
    for choice in choices:
        value = dict(zip(places, choice, strict=True))
        yield [_of_rank(info, value.get(place)) for place, info in enumerate(infos)]


def _of_rank(info: TensorInfo | None, rank: int | None) -> TensorInfo | None:
    return info if info is None or rank is None else info.with_shape([UNKNOWN] * rank)


def true_of_all(cases: Iterable[tuple[TensorInfo | None, ...] | None]) -> tuple[TensorInfo | None, ...]:
    """Return what is true of every result in all cases that can be (those that cannot are None; one can)."""
    first, *others = (case for case in cases if case is not None)
    for other in others:
        first = tuple(a and b and a.joined(b) for a, b in zip(first, other, strict=True))
    return first
