import pytest

from interposer.core.types import DataType, TensorInfo
from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding


def shapes(op, *operands):
    infos = [None if shape is None else TensorInfo(shape) for shape in operands]
    assert op.violations(*infos) == []
    return [tuple(info.shape) for info in op.infer_infos(*infos)]


def problems(op, *operands):
    return op.violations(*(None if shape is None else TensorInfo(shape) for shape in operands))


QUERY, KEY, VALUE = (2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 8)


def test_the_output_has_the_heads_and_places_of_the_query_and_the_size_of_the_values():
    assert shapes(Attention(), QUERY, KEY, VALUE) == [(2, 4, 3, 8)]
    flat = Attention(q_num_heads=4, kv_num_heads=2)
    assert shapes(flat, (2, 3, 24), (2, 5, 12), (2, 5, 16)) == [(2, 3, 32)]


def test_the_present_is_the_past_and_the_new():
    past = (2, 2, 7, 6), (2, 2, 7, 8)
    result = shapes(Attention(scores=AttentionScores.MASKED), QUERY, KEY, VALUE, None, *past)
    assert result == [(2, 4, 3, 8), (2, 2, 12, 6), (2, 2, 12, 8), (2, 4, 3, 12)]
    assert shapes(Attention(present=True), QUERY, KEY, VALUE) == [(2, 4, 3, 8), KEY, VALUE]


def test_extents_that_are_not_known_are_taken_from_where_they_are():
    [info] = Attention().infer_infos(
        TensorInfo(("batch", 4, "length", 6)), TensorInfo((2, 4, 5, None)), TensorInfo((None, 4, 5, 6))
    )
    assert str(info) == "float32[2, 4, length, 6]"
    [info] = Attention(q_num_heads=4, kv_num_heads=4).infer_infos(*[TensorInfo(("batch", "length", 24))] * 3)
    assert str(info) == "float32[batch, length, 24]"


def test_attention_counts_both_products():
    op = Attention()
    inputs = [TensorInfo(QUERY), TensorInfo(KEY), TensorInfo(VALUE)]
    assert op.operations(inputs, op.infer_infos(*inputs)) == 2 * (2 * 4 * 3 * 5) * (6 + 8)


@pytest.mark.parametrize(
    ("op", "operands", "text"),
    [
        (Attention(), [QUERY, (2, 5, 12), VALUE], "query, key and value have ranks 4, 3 and 4; expected one rank"),
        (
            Attention(q_num_heads=3),
            [QUERY, KEY, VALUE],
            "q_num_heads is 3, but query of shape [2, 4, 3, 6] has 4 heads",
        ),
        (
            Attention(q_num_heads=4, kv_num_heads=2),
            [(2, 3, 24), (2, 5, 12), (2, 5, 7)],
            "kv_num_heads is 2; expected a divisor of 7, the last dimension of value",
        ),
        (
            Attention(),
            [QUERY, (2, 2, 5, 7), VALUE],
            "key (B, G, K, D) has shape [2, 2, 5, 7] and query (B, H, Q, D) [2, 4, 3, 6]; D must be the same",
        ),
        (
            Attention(),
            [QUERY, (2, 3, 5, 6), (2, 3, 5, 8)],
            "4 heads of the query are not a multiple of the 3 heads of key and value",
        ),
        (
            Attention(),
            [QUERY, KEY, VALUE, None, (2, 2, 1, 6)],
            "past_value is not connected, but past_key is",
        ),
        (Attention(), [QUERY, KEY, VALUE, (6,)], "mask has shape [6], but there are 5 keys"),
        (
            Attention(),
            [QUERY, KEY, VALUE, (2, 5)],
            "mask has shape [2, 5], which does not broadcast to the shape of the scores, [2, 4, 3, 5]",
        ),
        (
            RotaryEmbedding(),
            [(2, 3, 24), (2, 3, 3), (2, 3, 3)],
            "num_heads is 0; expected a divisor of 24, the input's last dimension",
        ),
        (
            RotaryEmbedding(rotary_embedding_dim=8),
            [QUERY, (2, 3, 3), (2, 3, 3)],
            "8 elements of a head are to be rotated; expected an even number, at most 6",
        ),
        (RotaryEmbedding(), [QUERY, (2, 3, 3), (2, 1, 3)], "sin_cache has shape [2, 1, 3]; expected [2, 3, 3]"),
    ],
)
def test_a_fault_says_what_was_expected(op, operands, text):
    assert problems(op, *operands) == [text]


def test_a_padded_cache_has_no_past_beside_it():
    operands = [TensorInfo(shape) for shape in (QUERY, KEY, VALUE)]
    past = [None, TensorInfo((2, 2, 1, 6)), TensorInfo((2, 2, 1, 8))]
    assert Attention().violations(*operands, *past, TensorInfo((2,), DataType.INT64)) == [
        "valid_lengths and past_key are both connected; connect only one of them"
    ]


def test_positions_are_one_for_each_place():
    ids, cache = TensorInfo((2, 4), DataType.INT64), TensorInfo((9, 3))
    assert RotaryEmbedding().violations(TensorInfo(QUERY), cache, cache, ids) == [
        "position_ids has shape [2, 4]; expected [2, 3]"
    ]
