"""ONNX converters for decision tree ensembles, in the form of the newest operator and of the older ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.scores import (
    TRANSFORMS,
    features,
    integers,
    label,
    label_above,
    labels,
    numbers,
    scores_of_two,
    transformed,
)
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition
from interposer.ops.gather import Gather
from interposer.ops.trees import TreeAggregation, TreeComparison, TreeEnsemble

__all__: list[str] = []

_ML: Final = "ai.onnx.ml"
_MEMBER: Final = 6
_MODES: Final = {
    "BRANCH_LEQ": TreeComparison.LESS_OR_EQUAL,
    "BRANCH_LT": TreeComparison.LESS,
    "BRANCH_GTE": TreeComparison.GREATER_OR_EQUAL,
    "BRANCH_GT": TreeComparison.GREATER,
    "BRANCH_EQ": TreeComparison.EQUAL,
    "BRANCH_NEQ": TreeComparison.NOT_EQUAL,
}


class _Nodes(NamedTuple):
    """The inner nodes of trees as columns with one element per node, named as the attributes of `TreeEnsemble`.

    A branch is the number of an inner node, or ``-1 - leaf`` for the leaf with that number.
    """

    features: Array
    comparisons: Array
    thresholds: Array
    true_branches: Array
    false_branches: Array
    missing_true: Array

    def attributes(self) -> dict[str, Array]:
        """Return the columns by the names of the attributes of `TreeEnsemble`."""
        return {**self._asdict(), "missing_true": self.missing_true.astype(np.bool_)}


@operator("TreeEnsemble", since=5, domain=_ML)
def tree_ensemble(node: Node) -> Value:
    """Convert TreeEnsemble.

    Inner nodes and leaves are numbered separately; a membership test becomes one comparison per member.
    """
    modes, follows_missing = (
        node.tensor_array("nodes_modes").reshape(-1),
        integers(node, "nodes_missing_value_tracks_true"),
    )
    nodes = _Nodes(
        features=integers(node, "nodes_featureids"),
        comparisons=modes.astype(np.int64),
        thresholds=node.tensor_array("nodes_splits").reshape(-1).astype(np.float64),
        true_branches=_branches(node, "true"),
        false_branches=_branches(node, "false"),
        missing_true=follows_missing if follows_missing.size else np.zeros(modes.size, np.int64),
    )
    if (modes == _MEMBER).any():
        nodes = _with_members(nodes, node.tensor_array("membership_values").reshape(-1))
    weights, aggregation = node.tensor_array("leaf_weights").reshape(-1), node.integer("aggregate_function", 1)
    transform = node.integer("post_transform", 0)
    _check_choice("post_transform", transform, len(TRANSFORMS))
    _check_choice("aggregate_function", aggregation, len(TreeAggregation))
    op = TreeEnsemble(
        roots=integers(node, "tree_roots"),
        **nodes.attributes(),
        leaf_starts=np.arange(weights.size + 1),
        targets=integers(node, "leaf_targetids"),
        weights=weights,
        num_targets=node.integer("n_targets"),
        aggregation=TreeAggregation(aggregation),
    )
    return transformed(node, node.result(op, node.value(0)), TRANSFORMS[transform])


def _check_choice(attribute: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ParseError(f"its {attribute} is {number}; expected 0 to {count - 1}")


def _branches(node: Node, side: str) -> Array:
    target_nodes = integers(node, f"nodes_{side}nodeids")
    return np.where(integers(node, f"nodes_{side}leafs") != 0, -1 - target_nodes, target_nodes)


def _with_members(nodes: _Nodes, members: Array) -> _Nodes:
    """Return the nodes with each membership test replaced by a chain of comparisons with its members.

    `members` lists the members of all such nodes in order, with NaN after the last member of each node.
    """
    rows = [list(node_row) for node_row in zip(*(column.tolist() for column in nodes), strict=True)]
    ends = np.flatnonzero(np.isnan(members))
    member_lists = [segment[~np.isnan(segment)].tolist() for segment in np.split(members, ends + 1)]
    membership_nodes = [number for number, mode in enumerate(nodes.comparisons.tolist()) if mode == _MEMBER]
    if len(ends) < len(membership_nodes):
        raise ParseError(
            f"it has {len(membership_nodes)} nodes that ask for membership, but {len(ends)} lists of members"
        )
    for number, node_members in zip(membership_nodes, member_lists, strict=False):
        feature, _, _, true_branch, false_branch, missing_tracks_true = rows[number]
        position, equal_mode = number, TreeComparison.EQUAL.value
        for member in node_members[:-1]:
            rows[position] = [feature, equal_mode, member, true_branch, len(rows), missing_tracks_true]
            position = len(rows)
            rows.append([])
        last_member, true_branch = (node_members[-1], true_branch) if node_members else (0.0, false_branch)
        rows[position] = [feature, equal_mode, last_member, true_branch, false_branch, missing_tracks_true]
    return _Nodes(*(np.array(column) for column in zip(*rows, strict=True)))


# --- the older operators ----------------------------------------------------------------------------------------------


@operator("TreeEnsembleRegressor", domain=_ML)
def tree_regressor(node: Node) -> Value:
    """Convert TreeEnsembleRegressor; base values are added before the scores are transformed."""
    name = node.text("aggregate_function", "SUM")
    if name not in TreeAggregation.__members__:
        raise ParseError(f"its aggregate_function is {name!r}; expected {', '.join(TreeAggregation.__members__)}")
    targets = integers(node, "target_ids")
    scores = _scores(node, "target", targets, node.integer("n_targets", 1), TreeAggregation[name])
    return _as_float32(node, transformed(node, scores, node.text("post_transform", "NONE")))


@operator("TreeEnsembleClassifier", domain=_ML)
def tree_classifier(node: Node) -> Sequence[Value]:
    """Convert TreeEnsembleClassifier.

    With two classes and weights for the first only, the weights are for the second, as exporters intend. If only one of
    two classes has weights, its score alone decides about the label.
    """
    class_labels, transform, class_ids = labels(node), node.text("post_transform", "NONE"), integers(node, "class_ids")
    are_probabilities = bool((numbers(node, "class_weights") >= 0).all())
    threshold = 0.5 if are_probabilities else 0.0
    if len(class_labels) > 2 or class_ids.any():
        scores = _scores(node, "class", class_ids, max(2, len(class_labels)), TreeAggregation.SUM)
        if len(class_labels) == 2 and class_ids.all():
            second = node.step(Gather(1), scores, node.constant(np.array([1])))
            chosen_labels = label_above(node, class_labels, second, threshold)
        else:
            chosen_labels = label(node, class_labels, scores)
        return [chosen_labels, _as_float32(node, transformed(node, scores, transform))]
    score = _scores(node, "class", class_ids, 1, TreeAggregation.SUM)
    chosen_labels = label_above(node, class_labels, score, threshold)
    return [
        chosen_labels,
        _as_float32(node, scores_of_two(node, score, transform, are_probabilities=are_probabilities)),
    ]


def _as_float32(node: Node, scores: Value) -> Value:
    return node.cast(scores, DataType.FLOAT32)


def _scores(node: Node, prefix: str, targets: Array, num_targets: int, aggregation: TreeAggregation) -> Value:
    """Return the scores of all targets for each row of features, base values included.

    Args:
        node: the node with the attributes of a tree ensemble.
        prefix: the prefix of the leaves' attributes, such as "target" or "class".
        targets: the number of the target for each weight, in the file's order.
        num_targets: the number of targets.
        aggregation: how the weights of a target are combined.
    """
    forest, base_values = _Forest(node), numbers(node, "base_values")
    leaf_starts, weight_order = forest.leaves_of(prefix)
    op = TreeEnsemble(
        **forest.attributes(),
        leaf_starts=leaf_starts,
        targets=targets[weight_order],
        weights=numbers(node, f"{prefix}_weights")[weight_order],
        num_targets=num_targets,
        aggregation=aggregation,
    )
    scores = node.step(op, features(node))
    if not base_values.size:
        return scores
    return node.step(Addition(), scores, node.constant(base_values.astype(scores.known.dtype.numpy)))


class _Forest:
    """Converts the node table of the older tree operators to the form of `TreeEnsemble`.

    The table mixes inner nodes and leaves; a node is identified by its tree and its number in the tree. `TreeEnsemble`
    numbers inner nodes and leaves separately.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._keys = list(zip(node.integers("nodes_treeids"), node.integers("nodes_nodeids"), strict=True))
        modes = node.texts("nodes_modes")
        unknown_modes = set(modes) - _MODES.keys() - {"LEAF"}
        if len(modes) != len(self._keys) or unknown_modes:
            counts = f"{len(self._keys)} nodes and {len(modes)} modes"
            raise ParseError(f"it has {counts}, of which these are unknown: {sorted(unknown_modes)}")
        self._is_inner = np.array([mode != "LEAF" for mode in modes], np.bool_)
        self._modes = np.array([_MODES[mode].value for mode in modes if mode != "LEAF"], np.int64)
        branches = np.where(self._is_inner, np.cumsum(self._is_inner) - 1, 0 - np.cumsum(~self._is_inner))
        self._branches = dict(zip(self._keys, branches.tolist(), strict=True))

    def attributes(self) -> dict[str, Array]:
        """Return the inner nodes and the roots by the names of the attributes of `TreeEnsemble`."""
        missing_tracks_true = integers(self._node, "nodes_missing_value_tracks_true")
        true_ends, false_ends = self._ends("true"), self._ends("false")
        nodes = _Nodes(
            integers(self._node, "nodes_featureids")[self._is_inner],
            self._modes,
            numbers(self._node, "nodes_values")[self._is_inner],
            np.array([self._branches[node_key] for node_key in true_ends], np.int64),
            np.array([self._branches[node_key] for node_key in false_ends], np.int64),
            missing_tracks_true[self._is_inner] if missing_tracks_true.size else np.zeros(len(self._modes), np.int64),
        )
        return {"roots": self._roots({*true_ends, *false_ends}), **nodes.attributes()}

    def _ends(self, side: str) -> list[tuple[int, int]]:
        ends = integers(self._node, f"nodes_{side}nodeids")[self._is_inner].tolist()
        trees = [tree for (tree, _), compares in zip(self._keys, self._is_inner, strict=True) if compares]
        return list(zip(trees, ends, strict=True))

    def _roots(self, reached_nodes: set[tuple[int, int]]) -> Array:
        """Return the root of each tree: the first node that no node leads to.

        A leaf is a root only if it is the whole tree. `reached_nodes` are the nodes that another node leads to, as
        pairs (tree, node). `ParseError` is raised if a tree has no root.
        """
        roots: dict[int, int] = {}
        trees_with_inner_nodes = {tree for (tree, _), branch in self._branches.items() if branch >= 0}
        for (tree, node_id), branch in self._branches.items():
            if (tree, node_id) not in reached_nodes and (branch >= 0 or tree not in trees_with_inner_nodes):
                roots.setdefault(tree, branch)
        rootless = sorted({tree for tree, _ in self._keys} - roots.keys())
        if rootless:
            raise ParseError(f"some trees have no root, as other nodes lead to all of theirs: {rootless[:10]}")
        return np.array(list(roots.values()), np.int64)

    def leaves_of(self, prefix: str) -> tuple[Array, Array]:
        """Return the offset of each leaf's first weight (and the total), and the order that sorts weights by leaf.

        `prefix` is that of the attributes with the leaves' weights, such as "target".
        """
        trees, node_ids = (self._node.integers(f"{prefix}_{name}") for name in ("treeids", "nodeids"))
        leaves = -1 - np.array([self._branches[name] for name in zip(trees, node_ids, strict=True)], np.int64)
        if (leaves < 0).any():
            raise ParseError(f"{prefix}_nodeids names a node that is no leaf")
        counts = np.bincount(leaves, minlength=int((~self._is_inner).sum()))
        return np.concatenate([[0], np.cumsum(counts)]), np.argsort(leaves, kind="stable")
