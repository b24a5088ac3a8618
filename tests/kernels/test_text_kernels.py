"""Texts, terms, labels and classes, by worked examples and by what holds for all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.kernels import compute
from interposer.ops import (
    CaseChange,
    LabelEncoder,
    PairwiseCoupling,
    RegexFullMatch,
    StringConcat,
    StringNormalizer,
    StringSplit,
    TermWeighting,
    TfIdfVectorizer,
)

texts = st.lists(st.text("ab, \té", max_size=6), max_size=4).map(lambda result: np.array([*result, ""], object)[:-1])


@given(texts, st.sampled_from(["", ",", "ab"]), st.none() | st.integers(0, 3))
def test_pieces_joined_again_are_the_text(x, delimiter, maxsplit):
    pieces, counts = compute(StringSplit(delimiter, maxsplit), x)
    assert pieces.shape == (*x.shape, max(counts, default=0))
    for text, row, count in zip(x, pieces, counts, strict=True):
        assert delimiter == "" or delimiter.join(row[:count]) == text
        assert maxsplit is None or count <= maxsplit + 1
        assert set(row[count:]) <= {""}


@given(texts, texts)
def test_each_text_is_joined_with_each(a, b):
    result = compute(StringConcat(), a[:, np.newaxis], b)
    assert result.tolist() == [[text_a + text_b for text_b in b] for text_a in a]


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (StringNormalizer(), ["Bus", "bus", "İ"]),
        (StringNormalizer(stopwords=("BUS",)), ["İ"]),
        (StringNormalizer(is_case_sensitive=True, stopwords=("bus",)), ["Bus", "İ"]),
        (StringNormalizer(CaseChange.UPPER, stopwords=("bus", "İ")), [""]),
        (StringNormalizer(CaseChange.LOWER), ["bus", "bus", "i̇"]),
    ],
    ids=range(5),
)
def test_stop_words_go_before_the_case_changes(op, wanted):
    array = np.array(["Bus", "bus", "İ"], object)
    assert compute(op, array).tolist() == wanted
    assert compute(op, array[np.newaxis]).tolist() == [wanted]


def test_texts_match_one_by_one():
    result = compute(RegexFullMatch("[a-z]+"), np.array([["ab", "A"], ["", "z"]], object))
    assert result.tolist() == [[True, False], [False, True]]
    assert compute(RegexFullMatch(""), np.empty((2, 0), object)).shape == (2, 0)


def terms(**changes):
    """Terms a, b and "a b", counted at places 2, 0 and 1."""
    pool = np.array(["a", "b", "a", "b"], object)
    return TfIdfVectorizer(pool, (0, 2), (2, 0, 1), **{"max_gram_length": 2, **changes})


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (terms(), [1, 1, 2]),
        (terms(min_gram_length=2), [0, 1, 0]),
        (terms(max_gram_length=1), [1, 0, 2]),
        (terms(max_skip_count=1), [1, 2, 2]),
        (terms(mode=TermWeighting.IDF), [1, 1, 1]),
        (terms(mode=TermWeighting.IDF, weights=(5.0, 7.0, 9.0)), [7, 9, 5]),
        (terms(mode=TermWeighting.TFIDF, weights=(5.0, 7.0, 9.0)), [7, 9, 10]),
        (terms(weights=(5.0, 7.0, 9.0)), [1, 1, 2]),
    ],
    ids=range(8),
)
def test_terms_are_counted_and_weighted(op, wanted):
    """In "a a b", the term "a b" stands once concurrently, and once with a word in between."""
    array = np.array(["a", "a", "b"], object)
    assert compute(op, array).tolist() == wanted
    assert compute(op, np.stack([array, array])).tolist() == [wanted, wanted]


def test_terms_at_one_place_are_added():
    op = TfIdfVectorizer(np.array([1, 2]), (0,), (1, 1))
    assert compute(op, np.array([1, 2, 2, 3])).tolist() == [0, 3]


def test_the_last_of_equal_keys_counts():
    op = LabelEncoder(np.array(["a", "a"], object), np.array([1, 2]), np.array(0))
    assert compute(op, np.array(["a", "b"], object)).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (([1, 2], [1], 0), "keys has shape [2] and values [1]; expected equal lengths"),
        (([1], [1], [0, 0]), "default is int64[2]; expected one element of int64, the values' type"),
        (([1], [1], 0.5), "default is float64[]; expected one element of int64, the values' type"),
    ],
    ids=["keys", "defaults", "type"],
)
def test_labels_that_do_not_fit_are_refused(arguments, fault):
    with pytest.raises(InvalidArgumentError) as caught:
        LabelEncoder(*map(np.array, arguments))
    assert str(caught.value) == f"LabelEncoder: {fault}"


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=6))
def test_classes_of_consistent_pairs_get_their_probabilities(weights):
    probabilities = np.array(weights) / sum(weights)
    firsts, seconds = np.triu_indices(len(weights), 1)
    pairs = probabilities[firsts] / (probabilities[firsts] + probabilities[seconds])
    found = compute(PairwiseCoupling(), pairs[np.newaxis])[0]
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-9)
    np.testing.assert_allclose(found, probabilities, atol=0.03)


@pytest.mark.parametrize("num_pairs", [0, 2, 5])
def test_numbers_of_pairs_that_no_classes_have_are_refused(num_pairs):
    with pytest.raises(InvalidArgumentError, match=f"input has {num_pairs} pairs; expected C"):
        compute(PairwiseCoupling(), np.zeros((1, num_pairs)))
