"""Tensors of unknown rank, treated as the set of all ranks that they may have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from interposer.core.shape import MAX_RANK, UNKNOWN, UNRANKED
from interposer.core.types import TensorInfo

__all__ = ["are_ranked", "is_ranked", "of_every_rank", "true_of_all"]

Infos = Sequence[TensorInfo | None]


def is_ranked(info: TensorInfo | None) -> bool:
    """Return True if the rank of a tensor is known; also for an absent operand (None)."""
    return info is None or info.is_ranked


def are_ranked(infos: Infos) -> bool:
    """Return True if the ranks of all these tensors are known; None is an absent operand."""
    for info in infos:  # noqa: SIM110 - every inference asks this, and a generator takes three times as long
        if info is not None and info.shape is UNRANKED:
            return False
    return True


def of_every_rank(infos: Infos) -> Iterator[list[TensorInfo | None]]:
    """Yield copies of `infos` in which tensors of unknown rank have a rank, for all combinations of ranks.

    With three or more such tensors, only combinations in which all of them have the same rank are yielded.
    """
    positions = [position for position, info in enumerate(infos) if not is_ranked(info)]
    ranks = range(MAX_RANK + 1)
    choices = itertools.product(ranks, ranks) if len(positions) == 2 else ((rank,) * len(positions) for rank in ranks)
    for assumed_ranks in choices:
        rank_at = dict(zip(positions, assumed_ranks, strict=True))
        yield [_of_rank(info, rank_at.get(position)) for position, info in enumerate(infos)]


def _of_rank(info: TensorInfo | None, rank: int | None) -> TensorInfo | None:
    return info if info is None or rank is None else info.with_shape([UNKNOWN] * rank)


def true_of_all(cases: Iterable[tuple[TensorInfo | None, ...] | None]) -> tuple[TensorInfo | None, ...]:
    """Return for each result of an operator the info that holds in all valid cases.

    Each of `cases` has the infos of all results under one assumption, or is None if that assumption is not valid. At
    least one case must be valid. A result is None if it is None in one of the cases.
    """
    common_infos, *other_cases = (case for case in cases if case is not None)
    for other_case in other_cases:
        common_infos = tuple(a and b and a.joined(b) for a, b in zip(common_infos, other_case, strict=True))
    return common_infos
