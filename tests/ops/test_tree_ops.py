"""Ensembles of trees: errors are reported before one runs."""

import numpy as np
import pytest

from interposer.core.types import TensorInfo
from interposer.kernels import compute
from interposer.ops import TreeAggregation, TreeEnsemble

X = TensorInfo((4, 2))
STUMP = {
    "roots": [0],
    "features": [1],
    "comparisons": [0],
    "thresholds": [0.5],
    "true_branches": [-1],
    "false_branches": [-2],
    "leaf_starts": [0, 1, 2],
    "targets": [0, 0],
    "weights": [10.0, 20.0],
}


def stump(**changes):
    values = STUMP | changes
    return TreeEnsemble(
        **{name: np.array(field) if isinstance(field, list) else field for name, field in values.items()}
    )


def test_a_right_one_has_no_faults_and_a_column_for_each_target():
    assert stump().violations(X) == []
    [info] = stump(num_targets=3).infer_infos(X)
    assert info.shape == (4, 3)


@pytest.mark.parametrize(("changes", "fault"), [
    ({"thresholds": [0.5, 1.0]}, "thresholds has shape [2]; expected [1], one for each node"),
    ({"weights": [1.0]}, "there are 2 leaves with 2 targets and 1 weights"),
    ({"features": [0.5]}, "branches, features, comparisons, starts and targets must be integers"),
    ({"roots": [1]}, "roots has a branch to a missing one of 1 nodes and 2 leaves"),
    ({"false_branches": [-3]}, "false_branches has a branch to a missing one of 1 nodes and 2 leaves"),
    ({"comparisons": [9]}, "comparisons has numbers from 9 to 9; expected 0 to 5"),
    ({"targets": [0, 1]}, "targets has numbers from 0 to 1; expected 0 to 0"),
    ({"leaf_starts": [0, 3, 2]}, "leaf_starts must increase from 0 to 2, the number of weights"),
    ({"true_branches": [0]}, "a tree has a cycle, or more than 4096 levels"),
    ({"features": [2]}, "a node compares column 2, but the input has 2"),
    ({"missing_true": np.zeros(2, np.bool_)},
     "features and missing_true must have 1 elements, one for each node"),
])  # fmt: skip
def test_faults_are_named(changes, fault):
    assert stump(**changes).violations(X) == [fault]


def test_a_tree_may_be_a_leaf_and_a_leaf_may_give_nothing():
    leaf = stump(roots=[-2], leaf_starts=[0, 0, 2])
    assert compute(leaf, np.zeros((2, 2), np.float32)).tolist() == [[30], [30]]
    empty = stump(roots=[-1], leaf_starts=[0, 0, 2])
    assert compute(empty, np.zeros((1, 2), np.float32)).tolist() == [[0]]


def test_means_are_over_trees():
    twice = stump(roots=[0, 0, -1], aggregation=TreeAggregation.AVERAGE)
    result = compute(twice, np.float32([[0, 0], [0, 1]]))
    assert result.tolist() == [[10], [pytest.approx(50 / 3)]]


def test_many_rows_go_down_some_at_a_time():
    x = np.random.default_rng(0).uniform(size=(3000, 2)).astype(np.float32)
    assert compute(stump(), x)[:, 0].tolist() == np.where(x[:, 1] <= 0.5, 10.0, 20.0).tolist()
