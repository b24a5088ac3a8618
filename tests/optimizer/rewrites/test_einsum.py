"""Einsum as transposes, reshapes, sums and matrix products."""

import numpy as np
import pytest

from interposer.optimizer.passes import RewritePass, run_passes
from interposer.optimizer.rewrites.einsum import EINSUMS
from tests.optimizer.rewriting import assert_same_results, assert_stays, graph_of, lines

EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("bij, bjk -> bki", [(2, 3, 4), (2, 4, 5)]),
    ("bqhd,bkhd->bhqk", [(2, 5, 3, 4), (2, 6, 3, 4)]),
    ("bhqk,bkhd->bqhd", [(2, 3, 5, 6), (2, 6, 3, 4)]),
    ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
    ("abc,cde->abde", [(2, 3, 4), (4, 5, 6)]),
    ("abcd,dcbe->ea", [(2, 3, 4, 5), (5, 4, 3, 6)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (3, 4, 2)]),
    ("...i,i->...", [(2, 3, 4), (4,)]),
    ("i...,...j->j...i", [(2, 3, 4), (4, 5)]),
    ("ij,jk->ik", [(2, 1), (3, 2)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("ij,jk->ik", [(0, 2), (2, 3)]),
    ("bi,bi->b", [(2, 3), (2, 3)]),
    ("i,i", [(4,), (4,)]),
    ("i,j->ij", [(2,), (3,)]),
    ("ijk,jl->il", [(2, 3, 4), (3, 5)]),
    (",i->i", [(), (3,)]),
    ("ij->ji", [(2, 3)]),
    ("ijk->j", [(2, 3, 4)]),
    ("ii", [(3, 3)]),
    ("iji->ij", [(3, 2, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("ii,ij->j", [(3, 3), (3, 2)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ("bi,ij,bj,j->b", [(2, 3), (3, 4), (2, 4), (4,)]),
]


def einsum_graph(equation, shapes, dtype="float32"):
    inputs = [f"%x{n} = Input(binding_id={n}) : {dtype}{list(shape)}" for n, shape in enumerate(shapes)]
    operands = ", ".join(f"%x{n}" for n in range(len(shapes)))
    layers = [*inputs, f'%e = Einsum(equation="{equation}") {operands}', 'Output %e as "y"']
    return "graph {\n" + "\n".join(layers) + "\n}"


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_an_einsum_becomes_layers_with_the_same_result(equation, shapes):
    graph = graph_of(einsum_graph(equation, shapes))
    original = graph.clone()
    run_passes(graph, [RewritePass("test", EINSUMS)])
    assert "Einsum" not in lines(graph)
    assert_same_results(original, graph, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bki", [(2, 3, 4), (2, 4, 5)]),
        ("ijk->j", [(2, 300, 4)]),
        ("bi,ij,bj,j->b", [(2, 3), (3, 4), (2, 4), (4,)]),
    ],
)
def test_an_einsum_of_integers_becomes_layers_that_wrap_around_like_it(equation, shapes, dtype):
    graph = graph_of(einsum_graph(equation, shapes, dtype))
    original = graph.clone()
    run_passes(graph, [RewritePass("test", EINSUMS)])
    assert "Einsum" not in lines(graph)
    assert_same_results(original, graph, atol=0)


def test_the_scores_of_attention_are_one_product_whose_operands_keep_their_last_axis():
    graph = graph_of(einsum_graph("bqhd,bkhd->bhqk", [(2, 5, 3, 4), (2, 6, 3, 4)]))
    run_passes(graph, [RewritePass("test", EINSUMS)])
    assert lines(graph).splitlines() == [
        '%transpose-e = Transpose(permutation=(0, 2, 1, 3)) %x0 replacing "e"',
        '%transpose-e_1 = Transpose(permutation=(0, 2, 1, 3)) %x1 replacing "e"',
        "%e = BatchMatMul(transpose_y=True) %transpose-e, %transpose-e_1",
        'Output %e as "y"',
    ]


def test_matrices_are_multiplied_without_moving_them():
    graph = graph_of(einsum_graph("bij,bjk->bki", [(2, 3, 4), (2, 4, 5)]))
    run_passes(graph, [RewritePass("test", EINSUMS)])
    assert lines(graph) == '%e = BatchMatMul(transpose_x=True, transpose_y=True) %x1, %x0\nOutput %e as "y"'


@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], "int4"),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)], "float16"),
        ("ijk,jl->il", [(2, 3, 4), (3, 5)], "bfloat16"),
        ("jl,ijk->il", [(3, 5), (2, 3, 4)], "float16"),
        ("i,ij->i", [(3,), (3, 4)], "float16"),
    ],
)
def test_an_einsum_stays_if_its_layers_would_round_otherwise(equation, shapes, dtype):
    assert_stays(einsum_graph(equation, shapes, dtype), *EINSUMS)


def test_a_product_of_float16_is_rounded_once():
    graph = graph_of(einsum_graph("bqhd,bkhd->bhqk", [(2, 5, 3, 64), (2, 6, 3, 64)], "float16"))
    original = graph.clone()
    run_passes(graph, [RewritePass("test", EINSUMS)])
    assert "BatchMatMul" in lines(graph)
    assert_same_results(original, graph, atol=np.finfo(np.float16).eps)
