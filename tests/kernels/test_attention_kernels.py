import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InvalidValueError
from interposer.core.types import TensorInfo
from interposer.kernels import evaluate
from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding

F32 = np.float32


def run(op, *arrays):
    infos = [None if array is None else TensorInfo(array.shape, array.dtype) for array in arrays]
    assert op.violations(*infos) == []
    return evaluate(op, arrays, infos, op.infer_infos(*infos))


def drawn(seed, *shapes):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(F32) for shape in shapes]


def one_query(query, key, value, seen, scale):
    """What a single query sees, from the definition."""
    scores = np.array([scale * (query @ k) if s else -np.inf for k, s in zip(key, seen, strict=True)])
    if not any(seen):
        return np.zeros(value.shape[1])
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()) @ value


@given(
    st.integers(0, 2**16),
    st.booleans(),
    st.integers(-1, 3),
    st.integers(-1, 3),
    st.sampled_from([(4, 1), (4, 2), (3, 3)]),
)
@settings(max_examples=25)
def test_every_query_sees_the_keys_around_its_position(seed, causal, left, right, heads):
    query, key, value = drawn(seed, (2, heads[0], 3, 4), (2, heads[1], 5, 4), (2, heads[1], 5, 2))
    op = Attention(is_causal=causal, left_window_size=left, right_window_size=right)
    [result] = run(op, query, key, value)
    for b, h, i in np.ndindex(2, heads[0], 3):
        seen = [
            (j <= i or not causal) and (left < 0 or j >= i - left) and (right < 0 or j <= i + right) for j in range(5)
        ]
        g = h * heads[1] // heads[0]
        expected = one_query(query[b, h, i], key[b, g], value[b, g], seen, 0.5)
        np.testing.assert_allclose(result[b, h, i], expected, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 2**16), st.integers(1, 5))
@settings(max_examples=15)
def test_step_by_step_with_a_past_is_the_same_as_all_at_once(seed, length):
    query, key, value = drawn(seed, (1, 4, length, 4), (1, 2, length, 4), (1, 2, length, 3))
    [all_at_once] = run(Attention(is_causal=True), query, key, value)
    past = np.empty((1, 2, 0, 4), F32), np.empty((1, 2, 0, 3), F32)
    for step in range(length):
        now = slice(step, step + 1)
        op = Attention(is_causal=True, present=True)
        output, *past = run(op, query[:, :, now], key[:, :, now], value[:, :, now], None, *past)
        np.testing.assert_allclose(output[0, :, 0], all_at_once[0, :, step], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(past[0], key)


def test_a_padded_cache_gives_what_its_valid_part_gives():
    query, key, value = drawn(1, (2, 2, 2, 4), (2, 2, 6, 4), (2, 2, 6, 4))
    [result] = run(Attention(is_causal=True), query, key, value, None, None, None, np.array([6, 3]))
    for sample, valid in enumerate((6, 3)):
        mine = slice(sample, sample + 1)
        past = key[mine, :, : valid - 2], value[mine, :, : valid - 2]
        new = key[mine, :, valid - 2 : valid], value[mine, :, valid - 2 : valid]
        [alone] = run(Attention(is_causal=True), query[mine], *new, None, *past)
        np.testing.assert_allclose(result[mine], alone, rtol=1e-5)


def test_heads_in_one_axis_are_the_same_as_heads_in_an_axis_of_their_own():
    query, key, value = drawn(2, (2, 3, 8), (2, 5, 4), (2, 5, 6))
    [flat] = run(Attention(q_num_heads=4, kv_num_heads=2), query, key, value)
    split = (x.reshape(2, x.shape[1], heads, -1).swapaxes(1, 2) for x, heads in ((query, 4), (key, 2), (value, 2)))
    [result] = run(Attention(), *split)
    np.testing.assert_allclose(result.swapaxes(1, 2).reshape(flat.shape), flat, rtol=1e-6)


def test_a_mask_of_numbers_is_added_and_a_shorter_one_hides_the_last_keys():
    query, key, value = drawn(3, (1, 1, 2, 4), (1, 1, 3, 4), (1, 1, 3, 4))
    mask = np.array([[True, False], [False, False]])
    [truth] = run(Attention(), query, key, value, mask)
    [numbers] = run(Attention(), query, key, value, np.where(mask, F32(0), F32(-np.inf)))
    np.testing.assert_array_equal(truth, numbers)
    np.testing.assert_allclose(truth[0, 0], [value[0, 0, 0], [0, 0, 0, 0]], rtol=1e-6)


def test_what_is_not_seen_does_no_harm_even_where_it_is_infinite():
    query, key, value = F32([[[[1]]]]), F32([[[[1], [np.inf]]]]), F32([[[[7], [9]]]])
    for mask in (np.array([True, False]), F32([0, -np.inf])):
        assert run(Attention(), query, key, value, mask)[0].ravel().tolist() == [7]


def test_a_key_that_is_not_seen_has_no_influence_even_if_it_and_its_value_are_not_finite():
    query, key, value = drawn(3, (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 2))
    mask = np.array([True, True, True, False, False])
    expected = run(Attention(), query, key, value, mask)
    key[:, :, 3], value[:, :, 3] = np.inf, np.nan
    key[:, :, 4], value[:, :, 4] = np.nan, -np.inf
    for excluding in (mask, np.where(mask, F32(0), F32(-np.inf)), mask[:3]):
        np.testing.assert_array_equal(run(Attention(), query, key, value, excluding), expected)
    lengths = np.array([3])
    np.testing.assert_array_equal(run(Attention(), query, key, value, None, None, None, lengths), expected)


def test_a_key_that_some_queries_see_makes_only_their_results_not_a_number():
    query, key, value = drawn(4, (1, 1, 3, 4), (1, 1, 3, 4), (1, 1, 3, 2))
    value[0, 0, 1] = [np.nan, 1]
    [result] = run(Attention(is_causal=True), query, key, value)
    assert np.isnan(result[0, 0]).tolist() == [[False, False], [True, False], [True, False]]


def test_scores_are_those_of_every_stage():
    query, key, value = F32([[[[2]]]]), F32([[[[1], [3]]]]), F32([[[[0], [1]]]])
    mask = np.array([False, True])
    stages = {
        which: run(Attention(scale=1.0, softcap=4.0, scores=which), query, key, value, mask)[3].ravel()
        for which in list(AttentionScores)[1:]
    }
    np.testing.assert_allclose(stages[AttentionScores.SCALED], [2, 6])
    np.testing.assert_allclose(stages[AttentionScores.CAPPED], 4 * np.tanh([0.5, 1.5]), rtol=1e-6)
    assert stages[AttentionScores.MASKED].tolist() == [-np.inf, stages[AttentionScores.CAPPED][1]]
    assert stages[AttentionScores.PROBABILITIES].tolist() == [0, 1]


@given(st.integers(0, 2**16), st.booleans(), st.integers(0, 9), st.integers(0, 9))
@settings(max_examples=25)
def test_products_of_turned_vectors_depend_on_the_distance_of_their_positions_alone(seed, interleaved, first, second):
    angles = np.arange(20)[:, None] * 0.3 ** np.arange(2)
    cos, sin = np.cos(angles).astype(F32), np.sin(angles).astype(F32)
    x, y = drawn(seed, (1, 1, 1, 4), (1, 1, 1, 4))

    def product(p, q):
        turned = [
            run(RotaryEmbedding(interleaved), item, cos, sin, np.array([[at]]))[0] for item, at in ((x, p), (y, q))
        ]
        return np.vdot(*turned)

    assert product(first, second) == pytest.approx(product(first + 7, second + 7), abs=1e-4)


def test_what_is_behind_the_turned_part_stays():
    x = np.arange(6, dtype=F32).reshape(1, 1, 1, 6)
    zero, one = np.zeros((1, 1, 1), F32), np.ones((1, 1, 1), F32)
    [result] = run(RotaryEmbedding(rotary_embedding_dim=2), x, zero, one)
    assert result.ravel().tolist() == [-1, 0, 2, 3, 4, 5]


def test_a_position_that_the_caches_lack_is_named():
    cache = np.ones((3, 1), F32)
    with pytest.raises(InvalidValueError, match=r"^position_ids has 3 at \[0, 0\]; expected 0 to 2$"):
        run(RotaryEmbedding(), np.ones((1, 1, 1, 2), F32), cache, cache, np.array([[3]]))
