"""Broadcasts that the next layer does by itself."""

from interposer.optimizer.rewrites.broadcasts import BROADCASTS
from tests.optimizer.rewriting import assert_becomes, assert_stays


def test_an_elementwise_layer_broadcasts_its_operands_itself():
    assert_becomes(
        """
        graph {
          %x = Input : float32[2, 1]
          %u = Input(binding_id=1) : float32[2, 3]
          %a = BroadcastTo(shape=(2, 3)) %x
          %s = Subtraction %u, %a
          Output %s as "y"
        }
        """,
        """
        %s = Subtraction %u, %x replacing "a", "s"
        Output %s as "y"
        """,
        *BROADCASTS,
    )


def test_one_broadcast_stays_where_without_any_the_result_would_be_smaller():
    assert_becomes(
        """
        graph {
          %x = Input : bool[2, 1]
          %u = Input(binding_id=1) : uint8[1, 3] q(0.5, 3)
          %a = BroadcastTo(shape=(4, 2, 3)) %x
          %b = BroadcastTo(shape=(4, 2, 3)) %u
          %w = Where %a, %b, %u : _ declared uint8[4, 2, 3] q(0.5, 3)
          Output %w as "y"
        }
        """,
        """
        %b = BroadcastTo(shape=(4, 2, 3)) %u
        %w = Where %x, %b, %u replacing "a", "w"
        Output %w as "y"
        """,
        *BROADCASTS,
    )


def test_a_broadcast_for_another_layer_stays():
    assert_stays(
        """
        graph {
          %x = Input : float32[2, 1]
          %a = BroadcastTo(shape=(2, 3)) %x
          %s = Softmax %a
          Output %s as "y"
        }
        """,
        *BROADCASTS,
    )
