"""Kernel of ensembles of decision trees: all rows descend all trees together, one level at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from interposer.core.types import Array
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.trees import TreeAggregation, TreeComparison, TreeEnsemble

__all__: list[str] = []

_COMPARE: Final[dict[TreeComparison, Callable[[Any, Any], Any]]] = {
    TreeComparison.LESS_OR_EQUAL: np.less_equal,
    TreeComparison.LESS: np.less,
    TreeComparison.GREATER_OR_EQUAL: np.greater_equal,
    TreeComparison.GREATER: np.greater,
    TreeComparison.EQUAL: np.equal,
    TreeComparison.NOT_EQUAL: np.not_equal,
}
_ROWS: Final = 1 << 10


@kernel(TreeEnsemble)
def tree_ensemble(op: TreeEnsemble, x: Array, *, info: KernelInfo, out: Array) -> None:
    """Compute `TreeEnsemble` for a limited number of rows at a time, since memory grows with rows times trees."""
    rows = real(x, info.input)
    for start in range(0, len(rows), _ROWS):
        block = slice(start, start + _ROWS)
        out[block] = _gathered(op, _leaves(op, rows[block]), rows.dtype)


def _leaves(op: TreeEnsemble, x: Array) -> Array:
    """Return the index of the leaf that each row of `x` (N, F) reaches in every tree, (N, trees)."""
    nodes = np.broadcast_to(op.roots.astype(np.int64), (len(x), op.roots.size)).copy()
    thresholds = op.thresholds.astype(x.dtype)
    while (is_node := nodes >= 0).any():
        row, _ = np.nonzero(is_node)
        node = nodes[is_node]
        is_true = _goes_on_true(op, x[row, op.features[node]], thresholds[node], node)
        nodes[is_node] = np.where(is_true, op.true_branches[node], op.false_branches[node])
    return -1 - nodes


def _goes_on_true(op: TreeEnsemble, values: Array, thresholds: Array, node: Array) -> Array:
    is_true, kinds = np.zeros(len(node), np.bool_), op.comparisons[node]
    for kind, compare in _COMPARE.items():
        of_kind = kinds == kind.value
        is_true[of_kind] = compare(values[of_kind], thresholds[of_kind])
    if op.missing_true is not None:
        is_true |= np.isnan(values) & op.missing_true[node].astype(np.bool_)
    return is_true


def _gathered(op: TreeEnsemble, leaves: Array, dtype: np.dtype[Any]) -> Array:
    """Return the results (N, T): the weights of the reached leaves (N, trees), combined for each of T targets."""
    starts = op.leaf_starts.astype(np.int64)
    first_weights, counts = starts[leaves], starts[leaves + 1] - starts[leaves]
    row = np.repeat(np.arange(len(leaves)), counts.sum(axis=1))
    weight_indices = np.repeat(first_weights.ravel() - np.cumsum(counts) + counts.ravel(), counts.ravel()) + np.arange(
        counts.sum()
    )
    initial = {TreeAggregation.MIN: np.inf, TreeAggregation.MAX: -np.inf}.get(op.aggregation, 0)
    sums = np.full((len(leaves), op.num_targets), initial, dtype)
    combine = {TreeAggregation.MIN: np.minimum, TreeAggregation.MAX: np.maximum}.get(op.aggregation, np.add)
    combine.at(sums, (row, op.targets[weight_indices]), op.weights.astype(dtype)[weight_indices])
    sums[np.isinf(initial) & (sums == initial)] = 0  # targets without weights
    return sums / dtype.type(max(1, op.roots.size)) if op.aggregation is TreeAggregation.AVERAGE else sums
