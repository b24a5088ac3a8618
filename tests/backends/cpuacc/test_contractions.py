"""Small Einstein summations give on CpuAcc what the reference gives, in every type of its kernel."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.ops import Einsum
from tests.backends.cpuacc.single import network_of, reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

RNG = np.random.default_rng(9)
FORMS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bkj", [(2, 3, 4), (2, 5, 4)]),
    ("ii->i", [(6, 6)]),
    ("ii", [(6, 6)]),
    ("iij,jk->ki", [(3, 3, 4), (4, 2)]),
    ("i,j,k->kij", [(3,), (4,), (5,)]),
    ("...i,i->...", [(2, 3, 4), (4,)]),
    ("i...,j...->...ji", [(3, 2, 1), (4, 1, 5)]),
    ("ij,ij->", [(1, 4), (3, 4)]),
    ("ij->ji", [(0, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, np.int64])
@pytest.mark.parametrize("rewrite", [False, True])
def test_contractions(equation: str, shapes: list[tuple[int, ...]], dtype: type, rewrite: bool) -> None:
    arrays = [RNG.integers(0, 100, shape).astype(dtype) for shape in shapes]
    network, given = network_of(Einsum(equation), arrays)
    model = ip.load(network, ["CpuAcc", "CpuRef"], options=ip.OptimizerOptions(rewrite=rewrite))
    np.testing.assert_array_equal(model.run(given)[0], reference_results(network, given)[0])


def test_many_products_are_left_to_others() -> None:
    network, _ = network_of(Einsum("ij,jk->ik"), [np.zeros((64, 64), np.int8)] * 2)
    model = ip.load(network, ["CpuAcc", "CpuRef"], options=ip.OptimizerOptions(rewrite=False))
    assert "more than 2**14 products" in str(model.explain())
