"""Valid calls mixed with invalid ones, on random networks: each valid call is right, and no backend is disabled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Limits, Network, Runtime, TensorInfo
from interposer.backend import Workload
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import InterposerError, InvalidValueError, LimitExceededError
from interposer.testing.bad_values import decisive_inputs
from interposer.testing.judge.mixed import mixed_problems
from interposer.testing.random_networks import random_network
from tests.failing import Failing
from tests.isolating import needs_linux
from tests.parameters import slow_unless

pytestmark = pytest.mark.needs_cpuref
BLOCK = 40
LIMITS = Limits(max_bytes=1 << 26, max_operations=10**9)


def subjects(block: int) -> Iterator[tuple[str, Network, dict[str, Any]]]:
    """Yield the random networks of a block that have inputs which are indices or sizes."""
    for number in range(block * BLOCK, (block + 1) * BLOCK):
        made = random_network(30, number)
        if decisive_inputs(made.network.graph) and _is_pure(made.network):
            names = {layer.op.binding_id: layer.name for layer in made.network.graph.inputs}  # type: ignore[attr-defined]
            yield made.id, made.network, {names[number]: array for number, array in made.feeds.items()}


def _is_pure(network: Network) -> bool:
    return all(layer.op.pure for layer in network.graph)


@pytest.mark.parametrize("block", slow_unless(lambda block: block < 3, list(range(40))))
@pytest.mark.parametrize("backends", [["CpuRef"], ["CpuAcc", "CpuRef"]], ids=str)
def test_calls_of_random_networks_do_not_disturb_each_other(backends: list[str], block: int, cpuacc: object) -> None:
    for name, network, feeds in subjects(block):
        try:
            model = ip.load(network, backends, limits=LIMITS)
            model.run(feeds)
        except InterposerError:  # which other tests look at
            continue
        with model:
            assert (name, mixed_problems(model, feeds, threads=4, calls=3)) == (name, [])


@needs_linux
def test_calls_of_an_isolated_backend_do_not_disturb_each_other() -> None:
    with Runtime(CreationOptions(isolate="CpuRef")) as runtime:
        for name, network, feeds in list(subjects(0))[:4]:
            with ip.load(network, ["CpuRef"], runtime=runtime, limits=LIMITS) as model:
                assert (name, mixed_problems(model, feeds, threads=4, calls=3)) == (name, [])
        assert runtime.events == ()


def table_network() -> Network:
    network = Network("table")
    index = network.add_input_layer(0, TensorInfo((2,), "int64"), name="i")
    table = network.add_constant_layer(np.float32([0, 10, 20]))
    network.add_output_layer(0, network.add_gather_layer(table, index, axis=0, name="pick"), name="y")
    return network


def test_a_backend_that_fails_after_an_invalid_value_is_found() -> None:
    good = {"i": np.array([0, 2])}
    with Runtime() as runtime:
        backend = Failing(ReferenceBackend, "F")
        runtime.registry.register("F", lambda: backend)
        model = ip.load(table_network(), ["F"], runtime=runtime)

        def call(feeds: Any) -> list[Any]:
            backend.at = backend.at if feeds["i"].tolist() == [0, 2] else 1  # it fails from then on
            return model.run(feeds)

        problems = mixed_problems(model, good, threads=1, call=call)
        assert any("layer 'pick' (Gather) failed on backend F" in problem for problem in problems)


def test_a_backend_that_reports_values_as_its_failure_disturbs_nobody() -> None:
    with Runtime() as runtime:
        runtime.registry.register("Plain", lambda: Plain(ReferenceBackend, "Plain"))
        for backends in (["Plain"], ["Plain", "CpuRef"]):
            model = ip.load(table_network(), backends, runtime=runtime)
            assert mixed_problems(model, {"i": np.array([0, 2])}) == []
        for name, network, feeds in list(subjects(0))[:4]:
            with suppress(InterposerError), ip.load(network, ["Plain"], runtime=runtime, limits=LIMITS) as model:
                assert (name, mixed_problems(model, feeds, threads=4, calls=3)) == (name, [])


class Plain(Failing):
    """A backend that raises the same exception for a wrong value as for any other failure."""

    def _counting(self, workload: Workload) -> Workload:
        execute = workload.execute

        def plain(*handles: Any) -> None:
            try:
                execute(*handles)
            except (InvalidValueError, LimitExceededError):
                raise IndexError("out of bounds") from None

        workload.execute = plain  # type: ignore[method-assign]
        workload.prepare = lambda inputs, outputs: lambda: plain(inputs, outputs)  # type: ignore[method-assign]
        return workload
