import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import TensorInfo
from interposer.kernels import evaluate
from interposer.ops.attention import Attention, AttentionScores
from interposer.ops.linear_attention import LinearAttention

F32 = np.float32


def run(op, *inputs):
    infos = [None if array is None else TensorInfo(array.shape, array.dtype) for array in inputs]
    assert op.violations(*infos) == []
    return evaluate(op, inputs, infos, op.infer_infos(*infos))


def drawn(seed, *shapes):
    generator = np.random.default_rng(seed)
    return [generator.uniform(-1, 1, shape).astype(F32) for shape in shapes]


@given(st.integers(0, 2**16))
@settings(max_examples=10)
def test_without_gates_it_is_causal_attention_without_softmax(seed):
    query, key, value = drawn(seed, (2, 5, 12), (2, 5, 6), (2, 5, 8))
    output, _ = run(LinearAttention(4, 2), query, key, value)
    scaled = run(Attention(q_num_heads=4, kv_num_heads=2, scores=AttentionScores.SCALED), query, key, value)[3]
    causal = np.tril(scaled)
    heads = np.repeat(value.reshape(2, 5, 2, 4).swapaxes(1, 2), 2, axis=1)
    expected = (causal @ heads).swapaxes(1, 2).reshape(2, 5, 16)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@given(st.integers(0, 2**16), st.integers(0, 5))
@settings(max_examples=10)
def test_a_sequence_may_be_taken_in_two_parts(seed, cut):
    operands = drawn(seed, (1, 5, 4), (1, 5, 4), (1, 5, 6), (1, 5, 2), (1, 5, 1))
    op = LinearAttention(2, 2)

    def part(steps, state):
        query, key, value, decay, beta = (x[:, steps] for x in operands)
        return run(op, query, key, value, state, decay, beta)

    whole, last = part(slice(None), None)
    first, state = part(slice(cut), None)
    second, end = part(slice(cut, None), state)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(end, last, rtol=1e-4, atol=1e-5)


def test_a_whole_beta_overwrites_what_a_key_gave():
    key = np.eye(2, dtype=F32)[[0, 1, 0]].reshape(1, 3, 2)
    value = F32([[[5], [6], [7]]])
    output, state = run(LinearAttention(1, 1, scale=1.0), key, key, value, None, None, np.ones((1, 3, 1), F32))
    assert output.ravel().tolist() == [5, 6, 7]
    assert state.ravel().tolist() == [7, 6]


def test_a_decay_forgets_rows_of_the_state():
    key, value = F32([[[1, 1], [0, 0]]]), F32([[[8], [0]]])
    decay = np.log(F32([[[1, 1], [0.5, 0.25]]]))
    _, state = run(LinearAttention(1, 1), key, key, value, None, decay)
    np.testing.assert_allclose(state.ravel(), [4, 2], rtol=1e-6)
