import pytest

from interposer.core.types import DataType, Dim, TensorInfo
from interposer.ops.linear_attention import LinearAttention

OP = LinearAttention(q_num_heads=4, kv_num_heads=2)
QUERY, KEY, VALUE = TensorInfo((2, 5, 12)), TensorInfo((2, 5, 6)), TensorInfo((2, 5, 8))


def test_the_state_is_a_matrix_for_each_head():
    past = TensorInfo((2, 2, 3, 4), DataType.FLOAT16)
    output, state = OP.infer_infos(QUERY, KEY, VALUE, past)
    assert (str(output), str(state)) == ("float32[2, 5, 16]", "float16[2, 2, 3, 4]")


def test_steps_that_are_not_known_yet_stay_open():
    output, state = OP.infer_infos(*(TensorInfo(("batch", None, info.shape[2])) for info in (QUERY, KEY, VALUE)))
    assert (tuple(output.shape), tuple(state.shape)) == ((Dim("batch"), Dim(), 16), (Dim("batch"), 2, 3, 4))


@pytest.mark.parametrize(
    ("op", "infos", "fault"),
    [
        (LinearAttention(3, 2), [QUERY, KEY, VALUE], "q_num_heads is 3; expected a multiple of kv_num_heads, 2"),
        (
            OP,
            [QUERY, KEY, TensorInfo((2, 5, 7))],
            "value has shape [2, 5, 7], whose last dimension cannot be divided among 2 heads",
        ),
        (
            OP,
            [QUERY, TensorInfo((2, 5, 8)), VALUE],
            "key (B, G, T, D) has shape [2, 2, 5, 4] and query (B, H, T, D) [2, 4, 5, 3]; D must be the same",
        ),
        (
            OP,
            [QUERY, KEY, VALUE, None, TensorInfo((2, 5, 5))],
            "decay has shape [2, 5, 5]; expected [2, 5, 2] or [2, 5, 6]",
        ),
        (
            OP,
            [QUERY, KEY, VALUE, None, None, TensorInfo((2, 4, 1))],
            "beta has shape [2, 4, 1]; expected [2, 5, 2] or [2, 5, 1]",
        ),
    ],
)
def test_a_fault_says_what_was_expected(op, infos, fault):
    assert op.violations(*infos) == [fault]


def test_the_cost_grows_with_the_length_alone():
    costs = []
    for steps in (5, 10):
        inputs = [TensorInfo((2, steps, width)) for width in (12, 6, 8)]
        costs.append(OP.operations(inputs, OP.infer_infos(*inputs)))
    assert costs[1] == 2 * costs[0] == 2 * (2 * 5) * (2 * 3 * 4) * (4 + 3 * 2)
