"""Trees, linear and support vector machines, and what prepares their features."""

import numpy as np
import pytest
from onnx import helper

from interposer.core.errors import InvalidValueError, ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from tests.frontends.onnx.models import model, ours, theirs

RNG = np.random.default_rng(6)
X = RNG.normal(size=(20, 3)).astype(np.float32)


def learner(op, *inputs, outputs=1, version=3, **attributes):
    names, results = [f"x{i}" for i in range(len(inputs))], [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="node", domain="ai.onnx.ml", **attributes)
    domains = [helper.make_opsetid("ai.onnx.ml", version)]
    return model([node], dict(zip(names, inputs, strict=True)), results, domains=domains)


def agree(given, *inputs, rtol=1e-4, atol=1e-5):
    for our, expected in zip(ours(given, *inputs), theirs(given, *inputs), strict=True):
        assert our.shape == expected.shape
        if our.dtype.kind == "O":
            assert our.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(our, expected, rtol=rtol, atol=atol)


# Two trees: feature 0 <= 0.2 ? (feature 1 > 0 ? leaf 3 : leaf 4) : leaf 2, and feature 2 < -0.1 ? leaf 1 : leaf 2.
NODES = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
    "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
    "nodes_values": [0.2, 0.0, 0.0, 0.0, 0.0, -0.1, 0.0, 0.0],
    "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
}


def leaves(prefix, targets, weights):
    return {
        f"{prefix}_treeids": [0, 0, 0, 1, 1],
        f"{prefix}_nodeids": [2, 3, 4, 1, 2],
        f"{prefix}_ids": targets,
        f"{prefix}_weights": weights,
    }


def by_hand(weights):
    """The sum of the weights of the leaves that every row ends in."""
    first = np.where(X[:, 0] <= 0.2, np.where(X[:, 1] > 0, weights[1], weights[2]), weights[0])
    return first + np.where(X[:, 2] < -0.1, weights[3], weights[4])


WEIGHTS = [1.0, -2.0, 0.5, 3.0, -1.0]


def test_a_forest_adds_what_its_leaves_give():
    value = learner("TreeEnsembleRegressor", X, **NODES, **leaves("target", [0] * 5, WEIGHTS), n_targets=1)
    np.testing.assert_allclose(ours(value, X)[0][:, 0], by_hand(WEIGHTS), rtol=1e-6)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_forest_with_several_targets_and_base_values(aggregate):
    attributes = leaves("target", [0, 1, 0, 1, 1], WEIGHTS)
    base = {} if aggregate in {"MIN", "MAX"} else {"base_values": [0.5, -0.25]}
    value = learner(
        "TreeEnsembleRegressor", X, **NODES, **attributes, n_targets=2, aggregate_function=aggregate, **base
    )
    [result] = ours(value, X)
    first = np.where(X[:, 0] <= 0.2, np.where(X[:, 1] > 0, 0, 0.5), 1.0)
    if aggregate in {"MIN", "MAX"}:
        np.testing.assert_allclose(result[:, 0], first, rtol=1e-6)
    else:
        np.testing.assert_allclose(result[:, 0], first / (2 if aggregate == "AVERAGE" else 1) + 0.5, rtol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_a_forest_of_classes(transform):
    attributes = {**leaves("class", [0, 1, 2, 1, 2], WEIGHTS), "classlabels_int64s": [7, 8, 9]}
    value = learner("TreeEnsembleClassifier", X, outputs=2, **NODES, **attributes, post_transform=transform)
    labels, scores = ours(value, X)
    raw = np.zeros((len(X), 3), np.float32)
    first = np.where(X[:, 0] <= 0.2, np.where(X[:, 1] > 0, 1, 2), 0)
    second = np.where(X[:, 2] < -0.1, 3, 4)
    for row, (item, other) in enumerate(zip(first, second, strict=True)):
        for leaf in (item, other):
            raw[row, [0, 1, 2, 1, 2][leaf]] += WEIGHTS[leaf]
    assert labels.tolist() == (7 + raw.argmax(axis=1)).tolist()
    exps = np.exp(raw) * (raw != 0 if transform == "SOFTMAX_ZERO" else 1)
    softmax = exps / np.maximum(exps.sum(axis=1, keepdims=True), 1e-30)
    expected = {"NONE": raw, "LOGISTIC": 1 / (1 + np.exp(-raw))}.get(transform, softmax)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize(("weights", "threshold"), [(WEIGHTS, 0.0), ([0.1, 0.4, 0.2, 0.3, 0.25], 0.5)])
def test_two_classes_with_weights_for_one(weights, threshold, transform):
    attributes = {**leaves("class", [0] * 5, weights), "classlabels_strings": ["no", "yes"]}
    value = learner("TreeEnsembleClassifier", X, outputs=2, **NODES, **attributes, post_transform=transform)
    labels, scores = ours(value, X)
    score = by_hand(weights)
    assert labels.tolist() == np.where(score > threshold, "yes", "no").tolist()
    other = 1 - score if threshold and transform == "NONE" else -score
    both = np.stack([other, score], 1)
    np.testing.assert_allclose(scores, both if transform == "NONE" else 1 / (1 + np.exp(-both)), rtol=1e-5)


def test_a_leaf_that_is_none_and_an_unknown_mode_are_refused():
    wrong = leaves("target", [0] * 5, WEIGHTS)
    wrong["target_nodeids"] = [0, 3, 4, 1, 2]
    with pytest.raises(ParseError, match="target_nodeids names a node that is no leaf"):
        load(learner("TreeEnsembleRegressor", X, **NODES, **wrong, n_targets=1))
    modes = {**NODES, "nodes_modes": ["BRANCH_X", *NODES["nodes_modes"][1:]]}
    with pytest.raises(ParseError, match=r"8 nodes and 8 modes, of which these are unknown: \['BRANCH_X'\]"):
        load(learner("TreeEnsembleRegressor", X, **modes, **leaves("target", [0] * 5, WEIGHTS), n_targets=1))


def test_a_tree_that_goes_round_in_circles_is_refused():
    loop = {**NODES, "nodes_truenodeids": [1, 1, 0, 0, 0, 1, 0, 0]}
    with pytest.raises(ParseError, match="a tree has a cycle, or more than 4096 levels"):
        load(learner("TreeEnsembleRegressor", X, **loop, **leaves("target", [0] * 5, WEIGHTS), n_targets=1))


def test_a_tree_that_leads_back_to_its_root_is_refused():
    loop = {**NODES, "nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}
    with pytest.raises(ParseError, match=r"some trees have no root, as other nodes lead to all of theirs: \[0\]"):
        load(learner("TreeEnsembleRegressor", X, **loop, **leaves("target", [0] * 5, WEIGHTS), n_targets=1))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_machines(transform):
    coefficients, intercepts = RNG.normal(size=6).tolist(), [0.5, -0.5]
    numbers = {"coefficients": coefficients, "intercepts": intercepts}
    regressor = learner("LinearRegressor", X, targets=2, **numbers)
    expected = X @ np.reshape(coefficients, (2, 3)).T + intercepts
    np.testing.assert_allclose(ours(regressor, X)[0], expected, rtol=1e-4, atol=1e-5)
    agree(learner("LinearClassifier", X, outputs=2, classlabels_ints=[3, 5], post_transform=transform, **numbers), X)
    names = {"classlabels_strings": ["a", "b"]}
    agree(learner("LinearClassifier", X, outputs=2, post_transform=transform, **names, **numbers), X)


def test_a_linear_classifier_has_a_score_for_each_intercept():
    numbers = {"intercepts": [0.5, -0.5, 0.1], "classlabels_ints": [3, 5, 7]}
    surplus = RNG.normal(size=18).tolist()
    found, scores = ours(learner("LinearClassifier", X, outputs=2, coefficients=surplus, **numbers), X)
    expected = X @ np.reshape(surplus[:9], (3, 3)).T + [0.5, -0.5, 0.1]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    assert found.tolist() == np.array([3, 5, 7])[expected.argmax(1)].tolist()
    with pytest.raises(ParseError, match="it has 8 coefficients; expected 3 x 3"):
        load(learner("LinearClassifier", X, outputs=2, coefficients=surplus[:8], **numbers))


@pytest.mark.parametrize("kind", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vector_machines_for_numbers(kind):
    vectors, coefficients = RNG.normal(size=(4, 3)), RNG.normal(size=4)
    value = learner("SVMRegressor", X, support_vectors=vectors.ravel().tolist(), coefficients=coefficients.tolist(),
                    n_supports=4, rho=[0.3], kernel_type=kind, kernel_params=[0.5, 0.1, 2.0])  # fmt: skip
    products = X @ vectors.T
    kernels = {
        "LINEAR": products,
        "RBF": np.exp(-0.5 * ((X[:, None] - vectors) ** 2).sum(axis=2)),
        "POLY": (0.5 * products + 0.1) ** 2,
        "SIGMOID": np.tanh(0.5 * products + 0.1),
    }
    np.testing.assert_allclose(ours(value, X)[0][:, 0], kernels[kind] @ coefficients + 0.3, rtol=1e-4, atol=1e-4)


FLOAT64 = X.astype(np.float64)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("targets", [[0] * 5, [1] * 5], ids=str)
def test_scores_of_trees_and_labels_are_those_of_onnxruntime(targets, transform):
    for weights in (WEIGHTS, np.abs(WEIGHTS).tolist()):
        forest = {**NODES, **leaves("class", targets, weights), "post_transform": transform}
        classes = {"classlabels_int64s": [5, 7]}
        for x in (X, FLOAT64):
            agree_with_onnxruntime(learner("TreeEnsembleClassifier", x, outputs=2, **forest, **classes), x)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_targets_without_leaves_are_zero_and_float64_gives_float32(aggregate):
    forest = {**NODES, **leaves("target", [0, 1, 2, 1, 0], WEIGHTS), "n_targets": 3, "aggregate_function": aggregate}
    for x in (X, FLOAT64):
        agree_with_onnxruntime(learner("TreeEnsembleRegressor", x, **forest), x)


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_of_a_single_score_most_functions_have_no_effect(transform):
    forest = {**NODES, **leaves("target", [0] * 5, WEIGHTS), "n_targets": 1, "post_transform": transform}
    agree_with_onnxruntime(learner("TreeEnsembleRegressor", X, **forest), X)
    linear = {"coefficients": [1.0, -2.0, 0.5], "post_transform": transform}
    agree_with_onnxruntime(learner("LinearRegressor", X, intercepts=[0.5], **linear), X)
    vectors = {"support_vectors": [0.5, 1.0, -1.0], "n_supports": 1, "kernel_params": [0.5, 0.1, 2.0]}
    svm = {**vectors, "coefficients": [2.0], "rho": [0.3], "kernel_type": "RBF", "post_transform": transform}
    agree_with_onnxruntime(learner("SVMRegressor", X, **svm), X)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_one_row_of_coefficients_is_for_the_second_class(transform):
    numbers = {"coefficients": [1.5, -0.7, 0.2], "intercepts": [0.2], "post_transform": transform}
    for x in (X, FLOAT64, X[0]):
        value = learner("LinearClassifier", x, outputs=2, classlabels_strings=["a", "b"], **numbers)
        agree_with_onnxruntime(value, x)


def test_one_row_of_coefficients_needs_two_labels():
    numbers = {"coefficients": [1.5, -0.7, 0.2], "intercepts": [0.2], "classlabels_ints": [3, 5, 7]}
    with pytest.raises(ParseError, match="it has coefficients for one score, but 3 labels; expected 2"):
        load(learner("LinearClassifier", X, outputs=2, **numbers))


@pytest.mark.parametrize("kind", ["LinearClassifier", "TreeEnsembleClassifier", "SVMClassifier"])
def test_probit_of_two_classes_is_refused(kind):
    attributes = {
        "LinearClassifier": {"coefficients": [1.5, -0.7, 0.2], "intercepts": [0.2]},
        "TreeEnsembleClassifier": {**NODES, **leaves("class", [0] * 5, WEIGHTS)},
        "SVMClassifier": machine(2, kernel_type="LINEAR"),
    }
    with pytest.raises(UnsupportedOperatorError, match="its post_transform is PROBIT for two classes"):
        load(learner(kind, X, outputs=2, post_transform="PROBIT", **attributes[kind]))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_are_divided_by_their_norm_also_if_it_is_negative_or_zero(norm):
    x = np.concatenate([X, -np.abs(X), np.zeros((1, 3), np.float32)])
    agree_with_onnxruntime(learner("Normalizer", x, norm=norm), x)


@pytest.mark.parametrize("version", [2, 4])
def test_a_key_that_is_nan_matches_since_the_fourth_version(version):
    x = np.array([[1, np.nan, 3]], np.float32)
    encoder = learner("LabelEncoder", x, version=version, keys_floats=[1.0, np.nan], values_int64s=[10, 20])
    agree_with_onnxruntime(encoder, x)


def test_an_unknown_category_is_an_invalid_value_if_the_encoder_forbids_it():
    value = learner("OneHotEncoder", np.int64([3, 1]), cats_int64s=[1, 3], zeros=0)
    assert ours(value, np.int64([3, 1]))[0].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InvalidValueError, match=r"indices has 2 at \[1\]; expected -2 to 1"):
        ours(value, np.int64([3, 2]))


def machine(num_classes, *, with_vectors=True, **attributes):
    """Attributes of an SVMClassifier with two support vectors for each class, or with a linear model."""
    pairs, vectors = num_classes * (num_classes - 1) // 2, RNG.normal(size=2 * num_classes * 3)
    if with_vectors:
        coefficients = RNG.normal(size=2 * num_classes * (num_classes - 1)).tolist()
        attributes |= {"vectors_per_class": [2] * num_classes, "support_vectors": vectors.tolist()}
    else:
        coefficients = RNG.normal(size=3 * num_classes).tolist()
    return {
        "coefficients": coefficients,
        "rho": RNG.normal(size=pairs if with_vectors else 1).tolist(),
        "kernel_params": [0.5, 0.1, 2.0],
        "classlabels_ints": list(range(5, 5 + num_classes)),
        **attributes,
    }


def agree_with_onnxruntime(given, *inputs):
    """ONNX Runtime is the reference here, as the evaluator of the package onnx ignores prob_a of several classes."""
    runtime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
    session = runtime.InferenceSession(given.SerializeToString())
    feeds = {each.name: array for each, array in zip(session.get_inputs(), inputs, strict=True)}
    for our, expected in zip(ours(given, *inputs), session.run(None, feeds), strict=True):
        assert (our.shape, our.dtype) == (expected.shape, expected.dtype)
        if our.dtype.kind == "O":
            assert our.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(our, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_probabilities_of_support_vector_machines_come_from_those_of_pairs(num_classes, transform):
    pairs = num_classes * (num_classes - 1) // 2
    numbers = {"prob_a": (-RNG.uniform(0.2, 2, pairs)).tolist(), "prob_b": RNG.normal(size=pairs).tolist()}
    for kind in ("LINEAR", "RBF"):
        attributes = machine(num_classes, kernel_type=kind, post_transform=transform, **numbers)
        agree_with_onnxruntime(learner("SVMClassifier", X, outputs=2, **attributes), X)


def test_probabilities_need_two_numbers_for_each_pair_of_classes():
    wrong = machine(3, prob_a=[1.0, 2.0], prob_b=[1.0, 2.0])
    with pytest.raises(ParseError, match="it has 2 numbers in prob_a; expected 3, one for each pair of classes"):
        load(learner("SVMClassifier", X, outputs=2, **wrong))


@pytest.mark.parametrize("num_classes", [1, 2, 3])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_a_support_vector_classifier_without_vectors_is_linear(num_classes, transform):
    attributes = machine(num_classes, with_vectors=False, kernel_type="RBF", post_transform=transform)
    for sign in (1, -1):
        attributes["coefficients"] = [sign * abs(number) for number in attributes["coefficients"]]
        agree_with_onnxruntime(learner("SVMClassifier", X, outputs=2, **attributes), X)


@pytest.mark.parametrize("transform", ["SOFTMAX", "SOFTMAX_ZERO", "LOGISTIC"])
def test_two_classes_without_probabilities_have_the_scores_of_onnxruntime(transform):
    attributes = machine(2, kernel_type="LINEAR", post_transform=transform)
    agree_with_onnxruntime(learner("SVMClassifier", X, outputs=2, **attributes), X)


def test_one_class_is_told_by_a_sign():
    value = learner("SVMRegressor", X, coefficients=[1.0, 2.0, 3.0], n_supports=0, rho=[0.1], one_class=1)
    assert ours(value, X)[0][:, 0].tolist() == np.where(X @ [1, 2, 3] + 0.1 > 0, 1.0, -1.0).tolist()


def test_features_are_scaled_and_normalized():
    agree(learner("Scaler", X, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0]), X)
    agree(learner("Scaler", X, offset=[1.0], scale=[0.5]), X)
    for norm in ("L1", "L2"):
        agree(learner("Normalizer", X, norm=norm), X)
    with pytest.raises(ParseError, match="its norm is 'L3'; expected MAX, L1 or L2"):
        load(learner("Normalizer", X, norm="L3"))


def test_missing_numbers_give_way():
    gaps = np.float32([[1, np.nan, 3], [np.nan, 5, 6]])
    agree(learner("Imputer", gaps, imputed_value_floats=[9.0, 8.0, 7.0], replaced_value_float=float("nan")), gaps)
    whole = np.int64([[1, -1, 3]])
    agree(learner("Imputer", whole, imputed_value_int64s=[5], replaced_value_int64=-1), whole)


def test_categories_become_ones():
    whole = np.int64([[3, 1], [2, 9]])
    value = learner("OneHotEncoder", whole, cats_int64s=[1, 2, 3], zeros=1)
    assert ours(value, whole)[0].tolist() == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 0, 0]]]
    names = np.array(["b", "a"], object)
    assert ours(learner("OneHotEncoder", names, cats_strings=["a", "b"]), names)[0].tolist() == [[0, 1], [1, 0]]


def test_columns_are_put_beside_each_other():
    more = np.int64([[1, 2]] * 20)
    [result] = ours(learner("FeatureVectorizer", X, more, inputdimensions=[3, 2]), X, more)
    np.testing.assert_array_equal(result, np.concatenate([X, more.astype(np.float32)], axis=1))


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [4, 5, 6]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_the_scores_of_a_zip_map_are_a_tensor_with_a_column_for_each_class(labels):
    [result] = ours(learner("ZipMap", X, **labels), X)
    np.testing.assert_array_equal(result, X)
    [result] = ours(learner("ZipMap", X[0], **labels), X[0])
    np.testing.assert_array_equal(result, X[:1])


def test_a_zip_map_without_a_label_for_each_column_is_refused():
    for labels in ({}, {"classlabels_int64s": [4, 5]}, {"classlabels_int64s": [4, 5, 6], "classlabels_strings": ["a"]}):
        with pytest.raises(ParseError):
            load(learner("ZipMap", X, **labels))
