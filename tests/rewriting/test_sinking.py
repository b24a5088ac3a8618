"""Transposes that are moved from the inputs of layers to their outputs, where they cancel out."""

import textwrap

import pytest

from interposer.ops import BatchNormalization
from interposer.rewriting.sinking import Sinking, sunk_past_images
from tests.optimizer.rewriting import assert_same_results, graph_of, lines

TO_LAST, TO_FIRST = "Transpose(permutation=(0, 2, 3, 1))", "Transpose(permutation=(0, 3, 1, 2))"


def sunk(text: str, *more) -> str:
    """The layers of a graph after its transposes were moved, which computes the same but for the order of sums."""
    graph = graph_of(text)
    after = Sinking(more)(graph.clone())
    assert_same_results(graph, after, rtol=1e-6, atol=1e-6)
    return lines(after)


def between(body: str, *, shape: str = "[1, 4, 4, 2]") -> str:
    """A graph in which layers that take %a and give %b are between two transposes that undo each other."""
    return f"""
    graph "g" {{
      %x = Input : float32{shape}
      %a = {TO_FIRST} %x
      {body}
      %t = {TO_LAST} %b
      Output %t as "out"
    }}
    """


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%b = Activation(function=RELU) %a", "Activation(function=RELU) %x"),
        ("%b = Concat(axis=1) %a, %a", "Concat(axis=3) %x, %x"),
        (
            "%b = Pad(pad_list=((0, 0), (1, 2), (3, 4), (5, 6))) %a",
            "Pad(pad_list=((0, 0), (3, 4), (5, 6), (1, 2))) %x",
        ),
        ("%b = Slice(begin=(0, 1, 2, 0), size=(-1, 1, 2, 3)) %a", "Slice(begin=(0, 2, 0, 1), size=(-1, 2, 3, 1)) %x"),
        ("%b = Mean(axis=(2, 3), keep_dims=True) %a", "Mean(axis=(1, 2), keep_dims=True) %x"),
    ],
)
def test_transposes_on_both_sides_of_a_layer_vanish(before, after):
    assert sunk(between(before)).splitlines()[0].partition(" = ")[2].startswith(after)


def test_a_layer_whose_transposes_vanish_keeps_its_name():
    text = between("%b = Activation(function=RELU) %a")
    assert sunk(text) == textwrap.dedent("""
        %b = Activation(function=RELU) %x replacing "b", "a", "t"
        Output %b as "out"
    """).strip()  # fmt: skip


def test_every_output_of_a_splitter_is_transposed():
    text = f"""
    graph "g" {{
      %x = Input : float32[1, 4, 4, 2]
      %a = {TO_FIRST} %x
      %s:0, %s:1 = Splitter(axis=1, sizes=(1, 1)) %a
      %t = {TO_LAST} %s:0
      %u = {TO_LAST} %s:1
      Output %t as "out"
      Output(binding_id=1) %u as "other"
    }}
    """
    assert "Transpose" not in sunk(text)
    assert "Splitter(axis=3, sizes=(1, 1)) %x" in sunk(text)


def test_constants_are_transposed_with_an_elementwise_layer():
    text = between("""%c = Constant(value=float32[2, 1, 1]{1, 2})
      %b = Addition %a, %c""")
    assert "Transpose" not in sunk(text)
    assert "float32[1, 1, 1, 2]{1.0, 2.0}" in sunk(text)


def test_a_transpose_is_dropped_if_a_reduction_leaves_the_order_of_the_axes():
    text = f"""
    graph "g" {{
      %x = Input : float32[1, 4, 4, 2]
      %a = {TO_FIRST} %x
      %b = Mean(axis=(2, 3)) %a
      Output %b as "out"
    }}
    """
    assert sunk(text) == '%b = Mean(axis=(1, 2)) %x replacing "b", "a"\nOutput %b as "out"'


def test_equal_transposes_are_merged():
    text = f"""
    graph "g" {{
      %x = Input : float32[1, 4, 4, 2]
      %a = {TO_FIRST} %x
      %b = {TO_FIRST} %x
      %c = Softmax %a
      %d = LogSoftmax %b
      Output %c as "out"
      Output(binding_id=1) %d as "other"
    }}
    """
    assert sunk(text).count("Transpose") == 1


def test_a_reshape_that_merges_the_moved_axes_lets_the_transpose_pass():
    text = f"""
    graph "g" {{
      %x = Input : float32[2, 3, 5, 4]
      %a = {TO_FIRST} %x
      %b = Reshape(target_shape=(2, 4, 15)) %a
      %t = Transpose(permutation=(0, 2, 1)) %b
      Output %t as "out"
    }}
    """
    assert sunk(text).splitlines()[0].startswith("%b = Reshape(target_shape=(2, 15, 4)) %x")
    assert "Transpose" not in sunk(text)


def test_a_transpose_of_axes_of_size_1_is_dropped_before_a_reshape():
    text = f"""
    graph "g" {{
      %x = Input : float32[2, 1, 1, 4]
      %a = {TO_FIRST} %x
      %b = Reshape(target_shape=(-1, 8)) %a
      Output %b as "out"
    }}
    """
    assert sunk(text) == '%b = Reshape(target_shape=(1, 8)) %x replacing "b", "a"\nOutput %b as "out"'


def test_a_layer_that_exists_in_both_layouts_changes_its_layout():
    numbers = "".join(f"%{name} = Constant(value=float32[2]{{1, 2}})\n      " for name in ("m", "v", "o", "g"))
    text = between(f"{numbers}%b = BatchNormalization(data_layout=NCHW) %a, %m, %v, %o, %g")
    assert sunk(text).count("Transpose") == 2
    moved = sunk(text, sunk_past_images(BatchNormalization))
    assert "Transpose" not in moved
    assert "data_layout=NHWC" in moved


def test_a_graph_stays_if_moving_gives_no_fewer_transposes():
    text = f"""
    graph "g" {{
      %x = Input : float32[1, 4, 4, 2]
      %a = {TO_FIRST} %x
      %b = Activation(function=RELU) %a
      Output %a as "out"
      Output(binding_id=1) %b as "other"
    }}
    """
    graph = graph_of(text)
    assert Sinking()(graph) is graph
    assert lines(graph) == sunk(text)
