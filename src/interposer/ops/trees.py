"""Tree ensembles (decision forests)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

import numpy as np

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Trait
from interposer.core.types import Array, DataType, TensorInfo

__all__ = ["TreeAggregation", "TreeComparison", "TreeEnsemble"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)
_MAX_DEPTH: Final = 4096


class TreeComparison(Enum):
    """How a node of `TreeEnsemble` compares a feature (left side) with its threshold (right side).

    If the comparison holds, the true branch is taken.
    """

    LESS_OR_EQUAL = 0
    LESS = 1
    GREATER_OR_EQUAL = 2
    GREATER = 3
    EQUAL = 4
    NOT_EQUAL = 5


class TreeAggregation(Enum):
    """How `TreeEnsemble` combines the weights that the reached leaves of all trees have for a target."""

    AVERAGE = 0
    """The sum of the weights, divided by the number of trees."""
    SUM = 1
    MIN = 2
    """The minimum; 0 if there are no weights."""
    MAX = 3
    """The maximum; 0 if there are no weights."""


@op(traits=Trait.DISCONTINUOUS)
class TreeEnsemble(Op):
    """A decision tree ensemble: find the leaf of every tree for each row, and aggregate the leaves' weights.

    The nodes of all trees are numbered together, and so are the leaves. Every node compares a feature (a column of the
    input) with a threshold, and has two branches. A branch with the number n >= 0 leads to node n, and one with the
    number -1 - n leads to leaf n. Leaf n has the elements of ``weights`` from ``leaf_starts[n]`` on and before
    ``leaf_starts[n + 1]``. Each of them contributes to the target at the same position of ``targets``.

    Shapes:
        input: (N, F)
        output: (N, T), where T is ``num_targets``

    Example:
        >>> branches = {"true_branches": [-1], "false_branches": [-2]}
        >>> leaves = {"leaf_starts": [0, 1, 2], "targets": [0, 0], "weights": [10.0, 20.0]}
        >>> stump = TreeEnsemble(roots=[0], features=[1], comparisons=[0], thresholds=[0.5], **branches, **leaves)
        >>> compute(stump, [[9.0, 0.5], [0.0, 0.6]]).tolist()
        [[10.0], [20.0]]

    Source:
        ONNX ai.onnx.ml TreeEnsemble-5, TreeEnsembleRegressor-3, TreeEnsembleClassifier-3.
    """

    input = operand(rank=2, dtypes=_FLOATS)
    output = result(rank=2, dtype_of="input")

    roots: Array = attribute(doc="The first branch of each tree.")
    features: Array = attribute(doc="The input column that each node compares.")
    comparisons: Array = attribute(doc="The value of each node's `TreeComparison`.")
    thresholds: Array = attribute(doc="The threshold of each node.")
    true_branches: Array = attribute(doc="The branch of each node if the comparison is true.")
    false_branches: Array = attribute(doc="The branch of each node if the comparison is false.")
    leaf_starts: Array = attribute(doc="The index of each leaf's first weight, then the number of weights.")
    targets: Array = attribute(doc="The target of each weight.")
    weights: Array = attribute(doc="The weights that leaves add to targets.")
    missing_true: Array | None = attribute(
        default=None, doc="For each node: NaN takes the true branch. None means False for all."
    )
    num_targets: int = attribute(default=1, ge=1, le=2**31 - 1, doc="Number of targets.")
    aggregation: TreeAggregation = attribute(default=TreeAggregation.SUM, doc="How the weights are aggregated.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(self._length_problems())
        errors = errors or list(self._number_problems())
        yield from errors
        if not errors and self._is_too_deep():
            yield f"a tree has a cycle, or more than {_MAX_DEPTH} levels"
        if not errors and self.features.size and self.features.max() >= input.shape[1]:
            yield f"a node compares column {self.features.max()}, but the input has {input.shape[1]}"

    def _length_problems(self) -> Iterator[str]:
        nodes, leaves = self.features.size, self.leaf_starts.size - 1
        for name in ("comparisons", "thresholds", "true_branches", "false_branches"):
            if getattr(self, name).shape != (nodes,):
                yield f"{name} has shape {list(getattr(self, name).shape)}; expected [{nodes}], one for each node"
        if self.features.ndim != 1 or (self.missing_true is not None and self.missing_true.shape != (nodes,)):
            yield f"features and missing_true must have {nodes} elements, one for each node"
        if leaves < 0 or self.targets.shape != self.weights.shape or self.targets.ndim != 1:
            yield f"there are {leaves} leaves with {self.targets.size} targets and {self.weights.size} weights"
        integers = (self.roots, self.features, self.comparisons, self.true_branches, self.leaf_starts, self.targets)
        if any(array.dtype.kind not in "iu" and array.size for array in (*integers, self.false_branches)):
            yield "branches, features, comparisons, starts and targets must be integers"

    def _number_problems(self) -> Iterator[str]:
        nodes, leaves = self.features.size, self.leaf_starts.size - 1
        for name in ("roots", "true_branches", "false_branches"):
            branches = getattr(self, name)
            if branches.size and not -leaves <= branches.min() <= branches.max() < nodes:
                yield f"{name} has a branch to a missing one of {nodes} nodes and {leaves} leaves"
        limits = (("features", 2**31), ("comparisons", len(TreeComparison)), ("targets", self.num_targets))
        for name, limit in limits:
            values = getattr(self, name)
            if values.size and not 0 <= values.min() <= values.max() < limit:
                yield f"{name} has numbers from {values.min()} to {values.max()}; expected 0 to {limit - 1}"
        leaf_sizes, first_and_last_start = (
            np.diff(self.leaf_starts.astype(np.int64)),
            (self.leaf_starts[0], self.leaf_starts[-1]),
        )
        if (leaf_sizes < 0).any() or first_and_last_start != (0, self.weights.size):
            yield f"leaf_starts must increase from 0 to {self.weights.size}, the number of weights"

    def _is_too_deep(self) -> bool:
        level_nodes = np.unique(self.roots[self.roots >= 0])
        for _ in range(_MAX_DEPTH):
            if not level_nodes.size:
                return False
            level_nodes = np.unique(np.concatenate([self.true_branches[level_nodes], self.false_branches[level_nodes]]))
            level_nodes = level_nodes[level_nodes >= 0]
        return True

    def infer(self, input: TensorInfo) -> TensorInfo:
        return TensorInfo((input.shape[0], self.num_targets), input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        depth = max(1, int(self.features.size).bit_length())
        return 8 * int(outputs[0].shape[0]) * self.roots.size * depth
