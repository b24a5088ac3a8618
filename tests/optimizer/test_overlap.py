"""Parts of asynchronous backends are divided so that no branch of a network waits for another one."""

from __future__ import annotations

from typing import ClassVar

import pytest

import interposer as ip
from interposer.backend import OptimizationViews
from tests.devices import Sums

INFO = ip.TensorInfo((4,))


class Parts(Sums):
    """Adds and multiplies, and records the names of the layers in each part that it is offered."""

    def __init__(self) -> None:
        self.offered: list[str] = []

    def optimize_subgraph(self, view, options):
        self.offered.append(" ".join(layer.name for layer in view))
        return OptimizationViews(view)


class Queued(Parts):
    """A backend whose layers are submitted to a queue."""

    id: ClassVar = "Queued"
    asynchronous = True


class Refusing(Queued):
    """A backend with a queue that gives back every part."""

    def optimize_subgraph(self, view, options):
        self.offered.append(" ".join(layer.name for layer in view))
        return OptimizationViews.all_failed(view, "it is not compiled")


class Other(Parts):
    """Another backend."""

    id: ClassVar = "Other"


class OtherQueued(Other):
    """Another backend whose layers are submitted to a queue."""

    asynchronous = True


def offered(
    layers: dict[str, tuple[str, str]], outputs: str, on_other: str, other: Parts, first: Queued | None = None
) -> tuple[list[str], ...]:
    """Return the parts that the first backend and the other one are offered of a network of additions.

    `layers` has the operands of each addition by name; `x` is the input. Those named in `on_other` run on `other`, and
    the rest on `first`, by default a `Queued`.
    """
    network = ip.Network("sums")
    values = {"x": network.add_input_layer(0, INFO, name="x")}
    for name, operands in layers.items():
        values[name] = network.add_addition_layer(*(values[operand] for operand in operands), name=name)
    for number, name in enumerate(outputs.split()):
        network.add_output_layer(number, values[name])
    first = first or Queued()
    backends = {"Queued": first, "Other": other}
    with ip.Runtime() as runtime:
        for backend in backends.values():
            runtime.registry.register(backend.id, lambda backend=backend: backend)
        hints = dict.fromkeys(on_other.split(), "Other")
        options = ip.OptimizerOptions(hints=hints, rewrite=False)
        ip.optimize(network, list(backends), runtime.device_spec, options)
    return first.offered, other.offered


BRANCHES = {
    "a": ("x", "x"), "b": ("a", "a"), "c": ("b", "b"),
    "d": ("a", "a"), "e": ("d", "d"),
    "sum": ("c", "e"),
}  # fmt: skip
"""A stem `a`, two branches, and their sum."""


@pytest.mark.parametrize("other", [Other, OtherQueued])
def test_branches_of_two_backends_are_parts_between_what_they_read_and_what_reads_both(other):
    assert offered(BRANCHES, "sum", "d e", other()) == (["a", "b c", "sum"], ["d e"])


def test_a_chain_of_parts_is_divided_no_further():
    chain = {"a": ("x", "x"), "b": ("a", "a"), "c": ("b", "a"), "d": ("c", "b"), "e": ("d", "c")}
    assert offered(chain, "e", "c", Other()) == (["a b", "d e"], ["c"])


def test_layers_between_what_another_part_reads_and_what_reads_it_are_a_part():
    layers = {"a": ("x", "x"), "b": ("a", "a"), "c": ("b", "b"), "d": ("a", "a"), "e": ("c", "d")}
    assert offered(layers, "e", "d", Other()) == (["a", "b c", "e"], ["d"])


def test_a_small_part_of_another_backend_divides_nothing():
    long = {f"a{n}": (f"a{n - 1}" if n else "x",) * 2 for n in range(12)}
    assert offered({**long, "b": ("x", "x"), "sum": ("a11", "b")}, "sum", "b", Other()) == (
        [" ".join(long) + " sum"],
        ["b"],
    )


@pytest.mark.parametrize("other", [Other, OtherQueued])
def test_layers_that_a_backend_gives_back_are_in_one_part_with_the_layers_around_them(other):
    first, second = offered(BRANCHES, "sum", "d e", other(), Refusing())
    assert first == ["a", "b c", "sum"]
    assert [sorted(part.split()) for part in second] == [["a", "b", "c", "d", "e", "sum"]]


def test_parts_of_synchronous_backends_are_as_large_as_possible(monkeypatch):
    monkeypatch.setattr(Queued, "asynchronous", False)
    first, second = offered(BRANCHES, "sum", "d e", Other())
    assert len(first) == 2, first
    assert second == ["d e"]
