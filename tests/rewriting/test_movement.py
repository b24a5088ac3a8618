"""Transposes and reshapes that are merged, moved or removed."""

import pytest

from interposer.optimizer.rewrites.constants import fold_constants
from interposer.optimizer.rewrites.identities import IDENTITIES
from interposer.rewriting.movement import RESHAPES, TRANSPOSES, transpose_as_reshape
from tests.optimizer.rewriting import assert_becomes, assert_stays

MOVES = (fold_constants, *IDENTITIES, *TRANSPOSES)


@pytest.mark.parametrize("kind", ["float32[2, 3, 4]", "uint8[2, 3, 4] q(0.5, 3)", "bool[2, 3, 4]"])
@pytest.mark.parametrize("undo", ["Transpose(permutation=(1, 2, 0))", "Permute(dim_mappings=(2, 0, 1))"])
def test_a_transpose_that_undoes_another_one_vanishes_with_it(kind, undo):
    assert_becomes(
        f"""
        graph {{
          %x = Input : {kind}
          %a = Transpose(permutation=(2, 0, 1)) %x
          %b = {undo} %a
          Output %b as "y"
        }}
        """,
        """
        Output %x as "y"
        """,
        *MOVES,
    )


def test_a_transpose_along_scales_of_their_own_is_undone_too():
    assert_becomes(
        """
        graph {
          %x = Input : int8[2, 3] q([0.5, 0.25], [0, 0], axis=0)
          %a = Transpose(permutation=(1, 0)) %x
          %b = Transpose(permutation=(1, 0)) %a
          Output %b as "y"
        }
        """,
        """
        Output %x as "y"
        """,
        *MOVES,
    )


def test_transposes_in_a_row_become_one_and_the_first_stays_for_its_other_user():
    assert_becomes(
        """
        graph {
          %x = Input : float32[2, 3, 4]
          %a = Transpose(permutation=(2, 0, 1)) %x
          %b = Transpose(permutation=(2, 1, 0)) %a
          Output %b as "y"
          Output(binding_id=1) %a as "z"
        }
        """,
        """
        %a = Transpose(permutation=(2, 0, 1)) %x
        Output(binding_id=1) %a as "z"
        %b = Transpose(permutation=(1, 0, 2)) %x
        Output %b as "y"
        """,
        *MOVES,
    )


def test_a_transpose_moves_up_through_elementwise_layers_to_the_one_that_it_undoes():
    assert_becomes(
        """
        graph {
          %x = Input : float32[1, 2, 3, 4]
          %a = Transpose(permutation=(0, 3, 1, 2)) %x
          %r = Activation(function=RELU) %a
          %f = Floor %r
          %b = Transpose(permutation=(0, 2, 3, 1)) %f
          Output %b as "y"
        }
        """,
        """
        %r = Activation(function=RELU) %x
        %f = Floor %r
        Output %f as "y"
        """,
        *MOVES,
    )


def test_an_input_without_a_transpose_gets_the_one_that_moves_up():
    assert_becomes(
        """
        graph {
          %x = Input : float32[1, 2, 3, 4]
          %w = Input(binding_id=1) : float32[4, 1, 3]
          %a = Transpose(permutation=(0, 3, 1, 2)) %x
          %s = Addition %a, %w
          %b = Transpose(permutation=(0, 2, 3, 1)) %s
          Output %b as "y"
        }
        """,
        """
        %reshape-b = Reshape(target_shape=(1, 4, 1, 3)) %w replacing "b"
        %moved_up-b_1 = Transpose(permutation=(0, 2, 3, 1)) %reshape-b replacing "b"
        %s = Addition %x, %moved_up-b_1
        Output %s as "y"
        """,
        *MOVES,
    )


def test_constants_are_transposed_at_once_and_scalars_stay_as_they_are():
    assert_becomes(
        """
        graph {
          %x = Input : float32[1, 2, 3, 4]
          %a = Transpose(permutation=(0, 3, 1, 2)) %x
          %bias = Constant(value=float32[4, 1, 1]{1, 2, 3, 4})
          %half = Constant(value=float32[]{0.5})
          %s = Addition %a, %bias
          %m = Multiplication %half, %s
          %b = Transpose(permutation=(0, 2, 3, 1)) %m
          Output %b as "y"
        }
        """,
        """
        %half = Constant(value=float32[]{0.5})
        %moved_up-b_1 = Constant(value=float32[1, 1, 1, 4]{1.0, 2.0, 3.0, 4.0}) replacing "b"
        %s = Addition %x, %moved_up-b_1
        %m = Multiplication %half, %s
        Output %m as "y"
        """,
        *MOVES,
    )


def test_a_transpose_moves_up_from_quantized_to_real_numbers():
    assert_becomes(
        """
        graph {
          %x = Input : float32[1, 2, 3, 4]
          %a = Transpose(permutation=(0, 3, 1, 2)) %x
          %q = Quantize %a : _ declared uint8[1, 4, 2, 3] q(0.1, 100)
          %b = Transpose(permutation=(0, 2, 3, 1)) %q
          Output %b as "y"
        }
        """,
        """
        %q = Quantize %x
        Output %q as "y"
        """,
        *MOVES,
    )


@pytest.mark.parametrize(
    "middle",
    [
        "%r = Activation(function=RELU) %x",
        "%r = Softmax %a",
        '%r = Activation(function=RELU) %a\n  Output(binding_id=1) %r as "z"',
        "%r = Addition %a, %a2",
    ],
    ids=["no transpose above", "not elementwise", "another user", "two inputs without a transpose"],
)
def test_a_transpose_stays_where_moving_it_up_gains_nothing(middle):
    assert_stays(
        f"""
        graph {{
          %x = Input : float32[1, 2, 3, 4]
          %v = Input(binding_id=1) : float32[1, 4, 2, 3]
          %a = {"Transpose(permutation=(0, 3, 1, 2)) %x" if "a2" not in middle else "Softmax %v"}
          %a2 = Softmax(axis=1) %v
          {middle}
          %b = Transpose(permutation=(0, 2, 3, 1)) %r
          Output %b as "y"
          Output(binding_id=2) %a as "unused"
          Output(binding_id=3) %a2 as "unused2"
        }}
        """,
        *MOVES,
    )


def test_a_transpose_that_only_moves_extents_of_one_is_a_reshape_and_joins_the_next():
    assert_becomes(
        """
        graph {
          %x = Input : float32[1, 2, 1, 4]
          %b = Permute(dim_mappings=(2, 1, 0, 3)) %x
          %c = Reshape(target_shape=(4, -1)) %b
          Output %c as "y"
        }
        """,
        """
        %c = Reshape(target_shape=(4, 2)) %x replacing "b", "c"
        Output %c as "y"
        """,
        transpose_as_reshape,
        *RESHAPES,
    )


def test_a_transpose_that_moves_data_is_no_reshape():
    assert_stays(
        """
        graph {
          %x = Input : float32[1, 2, 1, 4]
          %b = Permute(dim_mappings=(0, 3, 2, 1)) %x
          Output %b as "y"
        }
        """,
        transpose_as_reshape,
    )


def test_reshapes_back_to_where_they_came_from_vanish_also_with_an_unknown_extent():
    assert_becomes(
        """
        graph {
          %x = Input : float32[batch, 2, 3]
          %b = Reshape(target_shape=(-1, 6)) %x
          %c = Reshape(target_shape=(-1, 3, 2)) %b
          %d = Reshape(target_shape=(-1, 2, 3)) %c
          Output %d as "y"
        }
        """,
        """
        Output %x as "y"
        """,
        *IDENTITIES,
        *RESHAPES,
    )


def test_a_reshape_that_copies_an_extent_from_the_one_before_is_joined_with_what_it_means():
    assert_becomes(
        """
        graph {
          %x = Input : int8[2, 3, 4] q(0.5, 1)
          %b = Reshape(target_shape=(6, 4)) %x
          %c = Reshape(target_shape=(0, 2, 2), copy_zeros=True) %b
          Output %c as "y"
        }
        """,
        """
        %c = Reshape(target_shape=(6, 2, 2)) %x replacing "b", "c"
        Output %c as "y"
        """,
        *RESHAPES,
    )


@pytest.mark.parametrize("swap", ["Permute(dim_mappings=(3, 1, 2, 0))", "Transpose(permutation=(3, 1, 2, 0))"])
def test_channels_brought_to_the_batch_and_from_there_to_space_are_a_depth_to_space(swap):
    assert_becomes(
        f"""
        graph {{
          %x = Input : uint8[1, 2, 3, 4] q(0.5, 3)
          %a = {swap} %x
          %b = BatchToSpaceNd(block_shape=(2, 2), data_layout=NHWC) %a
          Output %b as "y"
        }}
        """,
        """
        %b = DepthToSpace(block_size=2) %x replacing "a", "b"
        Output %b as "y"
        """,
        *MOVES,
    )


@pytest.mark.parametrize(
    "block",
    [
        "BatchToSpaceNd(block_shape=(2, 1), data_layout=NHWC)",
        "BatchToSpaceNd(block_shape=(2, 2), crops=((1, 0), (0, 0)), data_layout=NHWC)",
        "BatchToSpaceNd(block_shape=(2, 2))",
    ],
)
def test_other_blocks_stay_a_batch_to_space(block):
    assert_stays(
        f"""
        graph {{
          %x = Input : float32[1, 2, 3, 4]
          %a = Permute(dim_mappings=(3, 1, 2, 0)) %x
          %b = {block} %a
          Output %b as "y"
        }}
        """,
        *MOVES,
    )
