"""Random networks: the same everywhere, valid, runnable, and with everything in them that can go wrong together."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from interposer.errors import InvalidArgumentError
from interposer.ir.text import print_graph
from interposer.ops import Addition, Convolution2d, Softmax
from interposer.testing.oracle import reference_outputs
from interposer.testing.random_networks import KINDS, RandomNetwork, random_network
from interposer.types import Array


def digest(network: RandomNetwork) -> str:
    """A checksum of a network's text form, its constants and its feeds."""
    total = hashlib.sha256(print_graph(network.network.graph).encode())
    for layer in network.network:
        if layer.kind == "Constant":
            total.update(bytes_of(layer.output.known.constant))
    for number in sorted(network.feeds):
        total.update(f"{number} {network.feeds[number].dtype} {network.feeds[number].shape}".encode())
        total.update(bytes_of(network.feeds[number]))
    return total.hexdigest()[:16]


def bytes_of(array: Array | None) -> bytes:
    assert array is not None
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def ran(network: RandomNetwork) -> Mapping[int, Array]:
    return reference_outputs(network.network.graph, network.feeds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_and_a_number_always_give_the_same_network(kind: str):
    for number in range(20):
        first, second = (random_network(3, number, kind=kind) for _ in range(2))
        assert digest(first) == digest(second)


def test_a_fresh_process_with_another_hash_seed_draws_the_same_networks():
    code = (
        "from tests.testing.test_random_networks import digest, random_network\n"
        "print(*(digest(random_network(5, number)) for number in range(30)))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == [digest(random_network(5, number)) for number in range(30)]


def test_other_numbers_and_seeds_give_other_networks():
    digests = {digest(random_network(seed, number)) for seed in range(5) for number in range(20)}
    assert len(digests) == 100


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_is_valid_and_runs_on_the_reference_kernels(kind: str):
    for number in range(150):
        network = random_network(11, number, kind=kind)
        network.network.validate()
        assert sorted(network.feeds) == sorted(network.network.inputs)
        assert sorted(ran(network)) == list(range(len(network.network.outputs)))


def test_the_kind_follows_from_the_number_where_none_is_given():
    assert [random_network(1, number).kind for number in range(4)] == ["float", "quantized", "float", "quantized"]
    assert random_network(7, 123).id == "quantized-7-123"


def test_the_order_of_the_favoured_operators_does_not_matter():
    ops = (Addition, Convolution2d, Softmax)
    assert digest(random_network(1, 1, favoured=ops)) == digest(random_network(1, 1, favoured=ops[::-1]))


def test_favoured_operators_are_most_of_what_comes():
    networks = [random_network(1, number, kind="float", favoured=(Addition, Softmax)) for number in range(100)]
    kinds = [layer.kind for network in networks for layer in network.network if layer.op.executable]
    assert sum(kind in {"Addition", "Softmax"} for kind in kinds) > len(kinds) / 2


def test_networks_have_at_most_as_many_operators_as_asked_for():
    for number in range(50):
        kinds = [layer for layer in random_network(2, number, max_layers=1).network if layer.op.executable]
        assert 1 <= len(kinds) <= 8, "one operator, and what converts its operands"


def test_an_unknown_kind_is_refused_with_the_nearest_match():
    with pytest.raises(InvalidArgumentError, match="unknown kind of random networks 'flaot'; did you mean 'float'?"):
        random_network(1, 1, kind="flaot")


def test_a_negative_number_is_refused():
    with pytest.raises(InvalidArgumentError, match="number is -1 and max_layers 12; expected at least 0 and 1"):
        random_network(1, -1)
