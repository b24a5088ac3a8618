"""Layers that do nothing and are dropped; layers that look like it and stay."""

import pytest

from interposer.optimizer.passes import RewritePass, run_passes
from interposer.optimizer.rewrites.identities import IDENTITIES
from tests.optimizer.rewriting import assert_becomes, assert_stays, graph_of


@pytest.mark.parametrize(
    "idle",
    [
        "Transpose(permutation=(0, 1, 2, 3))",
        "Permute(dim_mappings=(0, 1, 2, 3))",
        "Reshape(target_shape=(2, 3, -1, 5))",
        "BroadcastTo(shape=(2, 3, 4, 5))",
        "Tile(multiples=(1, 1, 1, 1))",
        "Pad(pad_list=((0, 0), (0, 0), (0, 0), (0, 0)), pad_value=1.0)",
        "SpaceToBatchNd(block_shape=(1, 1))",
        "BatchToSpaceNd(block_shape=(1, 1))",
        "SpaceToDepth(block_size=1)",
        "DepthToSpace(block_size=1)",
        "Resize(target_width=5, target_height=4)",
        "Resize(target_width=4, target_height=3, data_layout=NHWC, method=BILINEAR, half_pixel_centers=True)",
        "Slice(begin=(0, 0, 0, 0), size=(2, -1, 4, 5))",
        "StridedSlice(begin=(0, 0), end=(9, 3), stride=(1, 1))",
        "StridedSlice(begin=(7, 7), end=(0, 0), stride=(1, 1), begin_mask=3, end_mask=3)",
        "Concat(axis=2)",
        "Splitter(axis=1, sizes=(3,))",
        "Activation(function=LINEAR, a=1.0)",
    ],
)
@pytest.mark.parametrize("kind", ["float32[2, 3, 4, 5]", "uint8[2, 3, 4, 5] q(0.5, 3)"])
def test_what_changes_nothing_is_dropped(idle, kind):
    assert_becomes(
        f"""
        graph {{
          %x = Input : {kind}
          %a = {idle} %x
          Output %a as "y"
        }}
        """,
        """
        Output %x as "y"
        """,
        *IDENTITIES,
    )


COMPRESSED = """
    graph {{
      %x = Input : int8[3, 4] q(0.5, 3)
      %c = Input(binding_id=1) : bool[3]
      %a = Cast(dtype=int8) %x
      %b = Compress(axis=0) %a, %c
      %d = Cast(dtype=int8) %b : _ declared int8[_, 4] q({scale}, 3)
      Output %d as "y"
    }}
    """


def test_casts_around_a_compress_that_drop_and_restore_the_quantization_are_dropped():
    after = """
        %d = Compress(axis=0) %x, %c replacing "a", "b", "d"
        Output %d as "y"
        """
    assert_becomes(COMPRESSED.format(scale=0.5), after, *IDENTITIES)


def test_casts_around_a_compress_that_change_the_scale_stay():
    assert_stays(COMPRESSED.format(scale=0.25), *IDENTITIES)


def test_a_cast_or_quantization_to_what_is_there_already_is_dropped():
    assert_becomes(
        """
        graph {
          %x = Input : float32[2]
          %q = Input(binding_id=1) : int8[2] q(0.5, 3)
          %a = Cast(dtype=float32) %x
          %b = Quantize(dtype=int8) %q : _ declared int8[2] q(0.5, 3)
          Output %a as "y"
          Output(binding_id=1) %b as "z"
        }
        """,
        """
        Output %x as "y"
        Output(binding_id=1) %q as "z"
        """,
        *IDENTITIES,
    )


@pytest.mark.parametrize(
    "busy",
    [
        "Transpose(permutation=(1, 0))",
        "Reshape(target_shape=(4,))",
        "Tile(multiples=(1, 2))",
        "Pad(pad_list=((0, 0), (0, 1)))",
        "Slice(begin=(0, 0), size=(2, 1))",
        "StridedSlice(begin=(0, 0), end=(2, 2), stride=(1, -1), begin_mask=3, end_mask=3)",
        "StridedSlice(begin=(0,), end=(0,), stride=(1,), new_axis_mask=1)",
        "Activation(function=LINEAR, a=1.0, b=1.0)",
    ],
)
def test_what_changes_something_stays(busy):
    assert_stays(
        f"""
        graph {{
          %x = Input : float32[2, 2]
          %a = {busy} %x
          Output %a as "y"
        }}
        """,
        *IDENTITIES,
    )


def test_a_reshape_between_shapes_of_two_unknown_extents_stays():
    assert_stays(
        """
        graph {
          %x = Input : float32[?, ?]
          %a = Reshape(target_shape=(2, -1)) %x : _ declared float32[?, ?]
          %b = Reshape(target_shape=(-1, 2)) %a : _ declared float32[?, ?]
          Output %b as "y"
        }
        """,
        *IDENTITIES,
    )


def test_what_gives_the_codes_another_meaning_stays():
    assert_stays(
        """
        graph {
          %x = Input : uint8[2, 2] q(0.5, 3)
          %a = Reshape(target_shape=(2, 2)) %x : _ declared uint8[2, 2] q(0.25, 3)
          %b = Concat(axis=0) %a : _ declared uint8[2, 2] q(0.5, 3)
          Output %b as "y"
        }
        """,
        *IDENTITIES,
    )


def test_a_dropped_layer_is_remembered_by_what_stands_in_for_it():
    graph = graph_of(
        """
        graph {
          %x = Input : float32[2, 2]
          %f = Floor %x
          %a = Reshape(target_shape=(2, 2)) %f
          %b = Slice(begin=(0, 0), size=(2, 2)) %a
          Output %b as "y"
        }
        """
    )
    run_passes(graph, [RewritePass("test", IDENTITIES)])
    assert graph.layer("f").replaced == ("f", "a", "b")


def test_a_splitter_that_tells_an_extent_stays():
    assert_stays(
        """
        graph {
          %x = Input : float32[?, 2]
          %a = Splitter(axis=0, sizes=(3,)) %x
          Output %a as "y"
        }
        """,
        *IDENTITIES,
    )
