"""Samples of ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from interposer.ops import TreeAggregation, TreeComparison, TreeEnsemble
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, f32

__all__: list[str] = []


def _forest(aggregation: TreeAggregation, comparison: TreeComparison, *, missing: bool = False) -> TreeEnsemble:
    """Return a tree ensemble: two trees of depth two, and a tree that is a single leaf with weights for both targets.

    All nodes have this comparison. With `missing`, some of them send NaN to the true branch.
    """
    return TreeEnsemble(
        roots=np.array([0, 3, -5]),
        features=np.array([0, 1, 2, 1]),
        comparisons=np.full(4, comparison.value),
        thresholds=np.array([0.5, -1.0, 2.0, 0.0]),
        true_branches=np.array([1, -1, -3, -1]),
        false_branches=np.array([2, -2, -4, 2]),
        leaf_starts=np.array([0, 1, 2, 3, 4, 6]),
        targets=np.array([0, 1, 0, 1, 0, 1]),
        weights=np.array([1.0, 2.0, 3.0, 4.0, -0.5, 0.25]),
        missing_true=np.array([True, False, True, False]) if missing else None,
        num_targets=2,
        aggregation=aggregation,
    )


@samples(TreeEnsemble)
def forests() -> Iterator[Sample]:
    """Yield TreeEnsemble samples: every aggregation and comparison in every type, rows with NaN, and no rows."""
    for aggregation in TreeAggregation:
        for comparison in TreeComparison:
            op = _forest(aggregation, comparison)
            yield Sample(op, [given((6, 3))], name=f"{aggregation.name}-{comparison.name}")
    op = _forest(TreeAggregation.SUM, TreeComparison.LESS_OR_EQUAL)
    for dtype in FLOATS:
        yield Sample(op, [given((6, 3), dtype)], name=str(dtype))
    yield Sample(op, [given((0, 3))], name="empty")
    gaps = of([[np.nan, 0, 9], [np.nan, np.nan, np.nan]])
    expected = [f32([[0.5, 2.25], [2.5, 2.25]])]
    with_gaps = _forest(TreeAggregation.SUM, TreeComparison.LESS_OR_EQUAL, missing=True)
    yield Sample(with_gaps, [gaps], name="missing", expected=expected)
    yield Sample(op, [of([[0, 0, 0]])], name="worked", expected=[f32([[0.5, 2.25]])])
