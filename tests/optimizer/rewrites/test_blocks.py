"""Layers that move elements are moved from dequantized weights to the integers and their scales."""

from interposer.optimizer.rewrites.blocks import BLOCKS
from tests.optimizer.rewriting import assert_becomes, assert_stays

WEIGHTS = """
          %w = Constant(value=int8[2, 4]{1, 2, 3, 4, 5, 6, 7, 8})
          %s = Constant(value=float32[2, 2]{0.5, 2, 1, 3})
          %z = Constant(value=int8[2, 2]{0, 1, 2, 3})
          %d = BlockDequantize(block_size=2) %w, %s, %z
"""


def test_integers_and_scales_are_transposed():
    assert_becomes(
        f"""
        graph {{{WEIGHTS}
          %t = Transpose(permutation=(1, 0)) %d
          Output %t as "y"
        }}
        """,
        """
        %w = Constant(value=int8[2, 4]{1, 2, 3, 4, 5, 6, 7, 8})
        %s = Constant(value=float32[2, 2]{0.5, 2.0, 1.0, 3.0})
        %z = Constant(value=int8[2, 2]{0, 1, 2, 3})
        %transpose-t = Transpose(permutation=(1, 0)) %w replacing "d", "t"
        %transpose-t_1 = Transpose(permutation=(1, 0)) %s replacing "d", "t"
        %transpose-t_2 = Transpose(permutation=(1, 0)) %z replacing "d", "t"
        %t = BlockDequantize(block_size=2, axis=0) %transpose-t, %transpose-t_1, %transpose-t_2 replacing "d", "t"
        Output %t as "y"
        """,
        *BLOCKS,
    )


def test_an_axis_of_the_elements_of_a_block_is_merged_into_that_of_the_blocks():
    assert_becomes(
        """
        graph {
          %w = Constant(value=int8[2, 2, 2]{1, 2, 3, 4, 5, 6, 7, 8})
          %s = Constant(value=float32[2, 2, 1]{0.5, 2, 1, 3})
          %d = BlockDequantize(block_size=2, axis=2) %w, %s
          %r = Reshape(target_shape=(2, 4)) %d
          Output %r as "y"
        }
        """,
        """
        %w = Constant(value=int8[2, 2, 2]{1, 2, 3, 4, 5, 6, 7, 8})
        %s = Constant(value=float32[2, 2, 1]{0.5, 2.0, 1.0, 3.0})
        %reshape-r = Reshape(target_shape=(2, 4)) %w replacing "d", "r"
        %reshape-r_1 = Reshape(target_shape=(2, 2)) %s replacing "d", "r"
        %r = BlockDequantize(block_size=2) %reshape-r, %reshape-r_1 replacing "d", "r"
        Output %r as "y"
        """,
        *BLOCKS,
    )


def test_an_empty_axis_is_not_merged_into_that_of_the_blocks():
    assert_stays(
        """
        graph {
          %w = Constant(value=int8[2, 2, 0]{})
          %s = Constant(value=float32[2, 2, 0]{})
          %d = BlockDequantize(block_size=2, axis=2) %w, %s
          %r = Reshape(target_shape=(2, 0)) %d
          Output %r as "y"
        }
        """,
        *BLOCKS,
    )


def test_rows_of_a_table_are_selected_while_they_are_quantized():
    assert_becomes(
        f"""
        graph {{{WEIGHTS}
          %i = Constant(value=int64[1, 3]{{1, 0, 1}})
          %g = Gather %d, %i
          Output %g as "y"
        }}
        """,
        """
        %w = Constant(value=int8[2, 4]{1, 2, 3, 4, 5, 6, 7, 8})
        %s = Constant(value=float32[2, 2]{0.5, 2.0, 1.0, 3.0})
        %z = Constant(value=int8[2, 2]{0, 1, 2, 3})
        %i = Constant(value=int64[1, 3]{1, 0, 1})
        %gather-g = Gather %w, %i replacing "d", "g"
        %gather-g_1 = Gather %s, %i replacing "d", "g"
        %gather-g_2 = Gather %z, %i replacing "d", "g"
        %g = BlockDequantize(block_size=2, axis=2) %gather-g, %gather-g_1, %gather-g_2 replacing "d", "g"
        Output %g as "y"
        """,
        *BLOCKS,
    )


def test_rows_with_a_scale_each_are_selected_while_they_are_quantized():
    assert_becomes(
        """
        graph {
          %w = Constant(value=int8[2, 3]{1, 2, 3, 4, 5, 6}, quantization=q([0.5, 0.25], [0, 1], axis=0))
          %d = Dequantize %w
          %i = Constant(value=int64[2]{1, 0})
          %g = Gather %d, %i
          Output %g as "y"
        }
        """,
        """
        %i = Constant(value=int64[2]{1, 0})
        %constant-g = Constant(value=int8[2, 3]{1, 2, 3, 4, 5, 6})
        %gather-g = Gather %constant-g, %i replacing "d", "g"
        %constant-g_1 = Constant(value=float32[2, 1]{0.5, 0.25})
        %gather-g_1 = Gather %constant-g_1, %i replacing "d", "g"
        %constant-g_2 = Constant(value=int8[2, 1]{0, 1})
        %gather-g_2 = Gather %constant-g_2, %i replacing "d", "g"
        %g = BlockDequantize(block_size=3) %gather-g, %gather-g_1, %gather-g_2 replacing "d", "g"
        Output %g as "y"
        """,
        *BLOCKS,
    )


def test_elements_within_blocks_are_selected_after_dequantization():
    assert_stays(
        f"""
        graph {{{WEIGHTS}
          %i = Constant(value=int64[2]{{1, 3}})
          %g = Gather(axis=1) %d, %i
          Output %g as "y"
        }}
        """,
        *BLOCKS,
    )
