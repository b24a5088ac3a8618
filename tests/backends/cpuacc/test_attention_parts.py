"""Attention that a network writes with products, a softmax and transpositions is as exact on CpuAcc as its layers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import interposer as ip
from interposer.ops import Addition, Attention, BatchMatMul, Division, Multiplication, Reshape, Softmax, Transpose
from interposer.types import Array, TensorInfo

pytestmark = [pytest.mark.usefixtures("cpuacc"), pytest.mark.needs_cpuref]

MASKS = {"none": None, "of keys": (2, 1, 1, None), "of queries": (1, 1, None, None), "of heads": (2, 3, None, None)}


def given_by(network: ip.Network, backend: str) -> list[Array]:
    model = ip.load(network, [backend])
    rng = np.random.default_rng(3)
    shapes = [tuple(layer.output.known.shape) for layer in network.graph.inputs]
    return [np.array(one) for one in model.run([rng.standard_normal(shape).astype(np.float32) for shape in shapes])]


def assert_alike(network: ip.Network) -> None:
    for found, wanted in zip(given_by(network, "CpuAcc"), given_by(network, "CpuRef"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


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
        known = tuple(keys if n == 3 else queries if extent is None else extent for n, extent in enumerate(shape))
        scores = network.add_layer(Addition(), network.add_input_layer(3, TensorInfo(known), name="mask"), scores)
    seen = network.add_layer(BatchMatMul(), network.add_layer(Softmax(), scores), value)
    joined = network.add_layer(Transpose(permutation=(0, 2, 1, 3)), seen)
    network.add_output_layer(0, network.add_layer(Reshape(target_shape=(2, queries, 3 * size)), joined))

    assert_alike(network)


def test_scaled_operands_and_one_head_are_taken_too() -> None:
    network = ip.Network("one head")
    query, key, value = (network.add_input_layer(n, TensorInfo((4, 9, 6)), name=f"x{n}") for n in range(3))
    half = network.add_constant_layer(np.float32([0.5]))
    query, value = (network.add_layer(Multiplication(), x, half) for x in (query, value))
    scores = network.add_layer(BatchMatMul(transpose_y=True), query, key)
    network.add_output_layer(0, network.add_layer(BatchMatMul(), network.add_layer(Softmax(), scores), value))

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
