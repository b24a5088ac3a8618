"""FastMathEnabled: results are within the bound that docs/cpuacc.md gives, and without it what they were.

As a program it compares everything with the instruction set that INTERPOSER_CPUACC_ISA names, and lists what is beyond.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.cache import cached_files
from interposer.core.types import Array
from interposer.ops import UnaryOperation
from tests import warm
from tests.backends.cpuacc import test_float_convolution as floats
from tests.backends.cpuacc import test_whole_parts as whole
from tests.instruction_sets import needs_instruction_set
from tests.parameters import slow_unless

pytestmark = [pytest.mark.usefixtures("cpuacc"), pytest.mark.needs_cpuref]

BOUND = 3e-2
"""Of a layer, as a part of the largest number."""


def options(fast: bool | None, threads: int = 0) -> ip.OptimizerOptions:
    chosen = {} if fast is None else {"FastMathEnabled": fast}
    return ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads, **chosen}})


def outputs_of(network: ip.Network, fast: bool | None, threads: int = 0) -> list[Array]:
    rng = np.random.default_rng(11)
    with ip.load(network, ["CpuAcc"], options=options(fast, threads)) as model:
        return [np.array(item) for item in model.run([drawn(rng, info) for info in model.inputs.values()])]


def drawn(rng: np.random.Generator, info: ip.TensorInfo) -> Array:
    return rng.normal(size=tuple(map(int, info.shape))).astype(np.float32)


def error(network: ip.Network, threads: int = 0) -> float:
    """The largest difference that fast math makes, by the largest number."""
    pairs = zip(outputs_of(network, True, threads), outputs_of(network, False, threads), strict=True)
    return float(np.max([np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in pairs]))  # NaN is the largest


def product() -> ip.Network:
    """A product of one row, whose weights become bfloat16 on every processor."""
    return floats.product(1, 300, 96, True, np.random.default_rng(2))


def inverses(channels: int) -> ip.Network:
    """Convolutions of an image whose blocks are filled up with what 1 / 0 gives."""
    rng = np.random.default_rng(8)
    network = ip.Network("inverses")
    x = network.add_input_layer(0, ip.TensorInfo((1, 8, 12, 12)), name="x")
    y = network.add_convolution2d_layer(
        x, network.add_constant_layer(np.float32(rng.normal(size=(channels, 8, 1, 1)))),
        network.add_constant_layer(np.full(channels, 20, np.float32)), data_layout=ip.DataLayout.NCHW,
    )  # fmt: skip
    y = network.add_elementwise_unary_layer(y, operation=UnaryOperation.RECIPROCAL)
    weights = network.add_constant_layer(np.float32(rng.normal(size=(32, channels, 3, 3))))
    network.add_output_layer(0, network.add_convolution2d_layer(y, weights, data_layout=ip.DataLayout.NCHW))
    return network


def networks() -> Iterator[tuple[str, ip.Network]]:
    kinds: Iterator[tuple[str, Callable[[np.random.Generator], Any]]] = floats.all_networks()
    for name, make in kinds:
        yield name, make(np.random.default_rng(3))
    for case in floats.SHARED:
        yield case.name, floats.network_of(case, np.random.default_rng(3))
    for channels in (9, 17, 47):
        yield f"fillers after {channels} channels", inverses(channels)
    yield "bottleneck of skipped rows", floats.bottleneck(60, 16, 96, 3, 1, np.random.default_rng(3))
    for name, (build, shape) in whole.CASES.items():
        yield name, whole.network_of(build, shape)


@pytest.mark.parametrize("instruction_set", slow_unless("avx2".__eq__, ["baseline", "avx2", "avx512bf16"]))
def test_results_are_within_the_bound_on_instruction_sets(instruction_set: str) -> None:
    needs_instruction_set(instruction_set)
    environment = {**os.environ, "INTERPOSER_CPUACC_ISA": instruction_set}
    done = subprocess.run(
        [*warm.python(), "-m", __name__], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("case", floats.SHARED, ids=lambda case: case.name)
def test_threads_that_share_a_layer_are_within_the_bound(case: floats.Case, threads: int) -> None:
    assert error(floats.network_of(case, np.random.default_rng(7)), threads) <= BOUND


def test_it_is_off_unless_it_is_asked_for() -> None:
    np.testing.assert_array_equal(outputs_of(product(), None), outputs_of(product(), False))


def test_runs_and_loads_give_the_same_bits() -> None:
    first, again = outputs_of(product(), True), outputs_of(product(), True)
    np.testing.assert_array_equal(again, first)


def test_it_may_be_asked_for_by_a_runtime_and_denied_by_a_network() -> None:
    x = drawn(np.random.default_rng(4), ip.TensorInfo((1, 300)))
    added = drawn(np.random.default_rng(5), ip.TensorInfo((1, 96)))
    creation = ip.CreationOptions(backend_options={"CpuAcc": {"FastMathEnabled": True}})
    matches = []
    for backend_options in (ip.CreationOptions(), creation):
        with ip.Runtime(backend_options) as runtime:
            for fast in (None, True, False):
                model = ip.load(product(), ["CpuAcc"], runtime=runtime, options=options(fast))
                matches.append(model.run([x, added])[0].copy())
    exact, fast = matches[0], matches[1]
    assert not np.array_equal(exact, fast)
    for result, expected in zip(matches, [exact, fast, exact, fast, fast, exact], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_a_part_that_was_kept_with_it_is_not_used_without_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    fast, exact = outputs_of(product(), True), outputs_of(product(), False)
    assert not np.array_equal(fast, exact)
    assert len(cached_files("compiled")) == 2
    np.testing.assert_array_equal(outputs_of(product(), False), exact)
    np.testing.assert_array_equal(outputs_of(product(), True), fast)
    assert len(cached_files("compiled")) == 2


def _beyond() -> Iterator[str]:
    for name, network in networks():
        result = error(network)
        if not result <= BOUND:
            yield f"{name}: {result:.1e}"


if __name__ == "__main__":
    print("".join(f"{name}\n" for name in _beyond()), end="")
