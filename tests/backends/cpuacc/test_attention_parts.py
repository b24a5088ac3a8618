"""Attention that a network writes with products, a softmax and transpositions is as exact on CpuAcc as its layers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import Op
from interposer.core.types import Array, TensorInfo
from interposer.ops import (
    Addition,
    Attention,
    BatchMatMul,
    BinaryOperation,
    Division,
    ElementwiseBinary,
    Maximum,
    Multiplication,
    Reduce,
    ReduceOperation,
    Reshape,
    Softmax,
    Transpose,
)
from tests.backends.cpuacc.single import outcomes, reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

MASKS = {"none": None, "of keys": (2, 1, 1, None), "of queries": (1, 1, None, None), "of heads": (2, 3, None, None)}


def assert_alike(network: ip.Network) -> None:
    rng = np.random.default_rng(3)
    shapes = [tuple(layer.output.known.shape) for layer in network.graph.inputs]
    results = outcomes(network, [rng.standard_normal(shape).astype(np.float32) for shape in shapes])
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))


def kernels_of(network: ip.Network) -> set[str]:
    """Return the first words of the names of the kernels that a run takes."""
    model = ip.load(network, ["CpuAcc"])
    inputs = [np.ones(info.shape, np.float32) for info in model.inputs.values()]
    with ip.profile() as profile:
        model.run(inputs)
    return {step.site.name.split()[0] for step in profile.steps()}


def heads(network: ip.Network, x: object, shape: tuple[int, ...], order: tuple[int, ...]) -> object:
    return network.add_layer(Transpose(permutation=order), network.add_layer(Reshape(target_shape=shape), x))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("queries", "keys", "size"), [(5, 7, 3), (16, 32, 16), (130, 33, 20), (1, 300, 8), (700, 650, 8)]
)
def test_products_and_a_softmax_of_heads_give_what_the_reference_gives(
    queries: int, keys: int, size: int, mask: str
) -> None:
    network = ip.Network("attention")
    lengths = (queries, keys, keys)
    inputs = [network.add_input_layer(n, TensorInfo((2, lengths[n], 3 * size)), name=f"x{n}") for n in range(3)]
    orders = [(0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)]
    query, key, value = (
        heads(network, x, (2, length, 3, size), order) for x, length, order in zip(inputs, lengths, orders, strict=True)
    )
    scores = network.add_layer(BatchMatMul(), query, key)
    scores = network.add_layer(Division(), scores, network.add_constant_layer(np.float32([math.sqrt(size)])))
    shape = MASKS[mask]
    if shape is not None:
        known = tuple(keys if n == 3 else queries if size is None else size for n, size in enumerate(shape))
        scores = network.add_layer(Addition(), network.add_input_layer(3, TensorInfo(known), name="mask"), scores)
    seen = network.add_layer(BatchMatMul(), network.add_layer(Softmax(), scores), value)
    merged = network.add_layer(Transpose(permutation=(0, 2, 1, 3)), seen)
    network.add_output_layer(0, network.add_layer(Reshape(target_shape=(2, queries, 3 * size)), merged))

    assert_alike(network)


def test_scaled_operands_and_one_head_are_taken_too() -> None:
    network = ip.Network("one head")
    query, key, value = (network.add_input_layer(n, TensorInfo((4, 9, 6)), name=f"x{n}") for n in range(3))
    half = network.add_constant_layer(np.float32([0.5]))
    query, value = (network.add_layer(Multiplication(), x, half) for x in (query, value))
    scores = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    network.add_output_layer(0, network.add_layer(BatchMatMul(), network.add_layer(Softmax(), scores), value))

    assert_alike(network)


@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("larger", [Maximum(), ElementwiseBinary(BinaryOperation.MAXIMUM)])
def test_one_factor_for_each_head_and_rows_of_length_one_are_taken_too(larger: Op, rank: int, queries: int) -> None:
    network = ip.Network("cosine attention")
    query, key, value = (network.add_input_layer(n, TensorInfo((2, 3, queries, 6)), name=f"x{n}") for n in range(3))
    least = network.add_constant_layer(np.float32([1e-12]))
    for_rows = Reduce(operation=ReduceOperation.L2, axis=(-1,), keep_dims=True)
    query, key = (
        network.add_layer(Division(), x, network.add_layer(larger, network.add_layer(for_rows, x), least))
        for x in (query, key)
    )
    scores = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    factors = network.add_constant_layer(np.float32([0.5, -2, 7]).reshape(3, 1, 1))
    scores = network.add_layer(Multiplication(), scores, factors)
    bias = np.random.default_rng(1).standard_normal((1, 3, queries, queries)).astype(np.float32)
    scores = network.add_layer(Addition(), scores, network.add_constant_layer(bias))
    batch = (2, 3) if rank == 4 else (1, 2, 3)
    scores = network.add_layer(Reshape(target_shape=(*batch, queries, queries)), scores)
    value = network.add_layer(Reshape(target_shape=(*batch, queries, 6)), value)
    network.add_output_layer(0, network.add_layer(BatchMatMul(), network.add_layer(Softmax(), scores), value))

    assert_alike(network)
    assert {"attention", "L2Normalization"} >= kernels_of(network)


@pytest.mark.parametrize("queries", [1, 2, 40])
def test_heads_with_factors_of_their_own_may_share_their_keys(queries: int) -> None:
    network = ip.Network("shared keys")
    query = network.add_input_layer(0, TensorInfo((2, 4, queries, 6)), name="query")
    key, value = (network.add_input_layer(n, TensorInfo((2, 1, 9, 6)), name=f"x{n}") for n in (1, 2))
    scores = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    factors = network.add_constant_layer(np.float32([0.5, 0.5, -2, 7]).reshape(4, 1, 1))
    soft = network.add_layer(Softmax(), network.add_layer(Multiplication(), scores, factors))
    network.add_output_layer(0, network.add_layer(BatchMatMul(), soft, value))

    assert_alike(network)
    assert kernels_of(network) == {"attention"}


def test_heads_that_are_merged_after_the_softmax_are_taken_too() -> None:
    network = ip.Network("contractions")
    query, key, value = (network.add_input_layer(n, TensorInfo((2, 3, 9, 6)), name=f"x{n}") for n in range(3))
    scores = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    merged = network.add_layer(Reshape(target_shape=(6, 9, 9)), network.add_layer(Softmax(), scores))
    value = network.add_layer(Reshape(target_shape=(6, 9, 6)), value)
    network.add_output_layer(0, network.add_layer(BatchMatMul(), merged, value))

    assert_alike(network)
    assert kernels_of(network) == {"attention"}


def test_a_factor_of_each_query_is_not_a_factor_of_its_head() -> None:
    network = ip.Network("factors of queries")
    query, key, value = (network.add_input_layer(n, TensorInfo((2, 5, 6)), name=f"x{n}") for n in range(3))
    scores = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    factors = network.add_constant_layer(np.float32([1, 2, 3, 4, 5]).reshape(5, 1))
    soft = network.add_layer(Softmax(), network.add_layer(Multiplication(), scores, factors))
    network.add_output_layer(0, network.add_layer(BatchMatMul(), soft, value))

    assert_alike(network)


def test_scores_that_are_wanted_too_are_computed_for_themselves() -> None:
    network = ip.Network("scores")
    query, key, value = (network.add_input_layer(n, TensorInfo((2, 5, 6)), name=f"x{n}") for n in range(3))
    soft = network.add_layer(Softmax(), network.add_layer(BatchMatMul(transpose_y=True), query, key))
    network.add_output_layer(0, network.add_layer(BatchMatMul(), soft, value))
    network.add_output_layer(1, soft)

    assert_alike(network)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 40), (37, 37), (150, 170)])
def test_the_layer_of_several_heads_that_share_keys_gives_what_the_reference_gives(
    queries: int, keys: int, causal: bool
) -> None:
    network = ip.Network("grouped")
    shapes = [(1, 4, queries, 24), (1, 2, keys, 24), (1, 2, keys, 20)]
    operands = [network.add_input_layer(n, TensorInfo(shape), name=f"x{n}") for n, shape in enumerate(shapes)]
    network.add_output_layer(0, network.add_layer(Attention(is_causal=causal, softcap=2.0), *operands))

    assert_alike(network)


def drawn_with_specials(shape: tuple[int, ...], seed: int, specials: int) -> Array:
    """Normal numbers, some of which are infinite, NaN or near the end of the range."""
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape).astype(np.float32)
    places = rng.integers(0, array.size, specials)
    array.reshape(-1)[places] = rng.choice(np.float32([np.nan, np.inf, -np.inf, 3e38, -3e38]), specials)
    return array


EXCLUDING = {
    "nothing": Attention(),
    "later keys": Attention(is_causal=True),
    "far keys": Attention(left_window_size=2, right_window_size=1),
    "capped": Attention(is_causal=True, softcap=3.0),
}


@pytest.mark.parametrize("excluding", EXCLUDING)
@pytest.mark.parametrize("mask", ["none", "bool", "numbers", "short", "lengths"])
@pytest.mark.parametrize("specials", [1, 3])
def test_excluded_keys_that_are_not_finite_have_no_influence(specials: int, mask: str, excluding: str) -> None:
    for seed in range(4):
        network = ip.Network("excluded keys")
        arrays = [drawn_with_specials((2, 3, 7, 5), 4 * seed, specials // 2)]
        arrays += [drawn_with_specials((2, 3, 9, 5), 4 * seed + n, specials) for n in (1, 2)]
        rng = np.random.default_rng(seed)
        shown = rng.random((2, 1, 7, 6 if mask == "short" else 9)) < 0.5
        operands: list[Array | None] = [None] * 4
        if mask in ("bool", "short"):
            operands[0] = shown
        elif mask == "numbers":
            operands[0] = np.where(shown, rng.standard_normal(shown.shape), -np.inf).astype(np.float32)
        elif mask == "lengths":
            operands[3] = np.array([0, 5])
        layers = [network.add_input_layer(n, TensorInfo(array.shape)) for n, array in enumerate(arrays)]
        layers += [None if operand is None else network.add_constant_layer(operand) for operand in operands]
        network.add_output_layer(0, network.add_layer(EXCLUDING[excluding], *layers))
        result, expected = ip.load(network, ["CpuAcc"]).run(arrays)[0], reference_results(network, arrays)[0]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keys", [1, 3, 15, 16, 17, 33])
def test_a_query_with_minus_infinity_is_not_multiplied_with_the_padding_of_the_keys(keys: int) -> None:
    rng = np.random.default_rng(keys)
    query, key, value = (rng.random((1, 2, length, 5)).astype(np.float32) + 0.5 for length in (4, keys, keys))
    query[0, :, 1, 2] = -np.inf  # all scores of this row are minus infinity
    network = ip.Network("minus infinity")
    layers = [network.add_input_layer(n, TensorInfo(item.shape)) for n, item in enumerate((query, key, value))]
    network.add_output_layer(0, network.add_layer(Attention(), *layers))
    [result], [expected] = outcomes(network, [query, key, value])
    assert not np.isnan(expected).any()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
