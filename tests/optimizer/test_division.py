"""However a network is divided, replaced and given back, it computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer import Network, OptimizerOptions, Runtime, TensorInfo, optimize
from interposer.backend import (
    DEFAULT_FACTORY,
    Backend,
    Failure,
    KernelWorkloadFactory,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    Support,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.backend.support import KernelSupport
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.ir.subgraph import quotient_is_acyclic
from interposer.ops import Addition, Multiplication, PreCompiled
from tests.devices import Sums, sums

INFO = TensorInfo((4,))
X = np.float32([1, -0.5, 0.25, 2])


class Program:
    """A part as a list of instructions: which operator, on which numbered values."""

    def __init__(self, part: SubgraphView) -> None:
        numbers = {value: number for number, value in enumerate((*part.inputs, *part.constants))}
        self.constants = [value.constant for value in part.constants]
        self.code = []
        for layer in part:
            self.code.append((layer.op, [numbers[value] for value in layer.values]))
            numbers[layer.output] = len(numbers)
        self.outputs = [numbers[value] for value in part.outputs]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        known: list[Any] = [*inputs, *self.constants]
        for op, operands in self.code:
            a, b = (known[number] for number in operands)
            known.append(a + b if isinstance(op, Addition) else a * b)
        return [known[number] for number in self.outputs]


class ProgramWorkload(Workload):
    def __init__(self, program: Program) -> None:
        self.program = program

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        result = self.program.run([handle.map().copy() for handle in inputs if handle is not None])
        for handle, array in zip(outputs, result, strict=True):
            handle.copy_in(array)


class Factory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        if isinstance(layer.op, PreCompiled):
            return ProgramWorkload(layer.op.object)
        return super().create_workload(layer, info)


class Picky(KernelSupport):
    """Supports only the layers that the test names."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(sums)
        self.names = names

    def is_layer_supported(self, layer: Layer) -> Support:
        return Support.yes() if layer.name in self.names else Support.no("not on the list")


class Moody(Backend):
    """Takes some layers; compiles, gives back or leaves alone pieces of what it gets, as `moods` say."""

    kernels: ClassVar = sums
    layers: ClassVar[frozenset[str]]
    moods: ClassVar[list[str]]

    def layer_support(self, options: Options) -> Picky:
        return Picky(self.layers)

    def create_workload_factory(self, memory_manager: Any, options: Options) -> WorkloadFactory:
        return Factory(self.kernels, memory_manager)

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        pieces = self.pieces(view)
        compiled = [piece for piece, mood in pieces if mood == "compile"]
        return OptimizationViews(
            view,
            substitutions=[Substitution(item, PreCompiled(len(item.outputs), Program(item))) for item in compiled],
            failed=[Failure(piece, "not today") for piece, mood in pieces if mood == "give back"],
        )

    def pieces(self, view: SubgraphView) -> list[tuple[SubgraphView, str]]:
        """The view in pieces that follow each other; a mood may cover several layers."""
        result, start = [], 0
        for stop in range(1, len(view) + 1):
            mood = self.moods[(len(result) + stop) % len(self.moods)]
            if stop == len(view) or mood != "go on":
                result.append((view.part(view.layers[start:stop]), mood))
                start = stop
        return result


def moody(title: str, names: list[str], moods: list[str]) -> type[Moody]:
    return type(title, (Moody,), {"id": title, "layers": frozenset(names), "moods": moods})


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, list[Array]]:
    """A network of sums and products, and what its outputs should be."""
    network = Network("random")
    values = [network.add_input_layer(0, INFO, name="x"), network.add_constant_layer(np.float32([1, 2, 3, 4]))]
    arrays, outputs = [X, np.float32([1, 2, 3, 4])], []
    for number in range(draw(st.integers(1, 14))):
        first = st.integers(max(0, len(values) - 4), len(values) - 1)
        a, b = draw(first), draw(st.integers(0, len(values) - 1))
        add = draw(st.booleans())
        op = Addition() if add else Multiplication()
        values.append(network.add_layer(op, values[a], values[b], name=f"layer{number}"))
        with np.errstate(all="ignore"):
            arrays.append(arrays[a] + arrays[b] if add else arrays[a] * arrays[b])
        if draw(st.integers(0, 3)) == 0:
            network.add_output_layer(len(outputs), values[-1])
            outputs.append(arrays[-1])
    network.add_output_layer(len(outputs), values[-1])
    return network, [*outputs, arrays[-1]]


moods = st.lists(st.sampled_from(["compile", "give back", "leave", "go on", "go on"]), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(networks(), st.data())
def test_however_a_network_is_divided_it_computes_the_same(
    made: tuple[Network, list[Array]], data: st.DataObject
) -> None:
    network, expected = made
    names = [layer.name for layer in network if layer.name.startswith("layer")]
    some = st.lists(st.sampled_from(names), unique=True)
    with Runtime() as runtime:
        for title in ("First", "Second"):
            runtime.registry.register(title, moody(title, data.draw(some), data.draw(moods)))
        runtime.registry.register("Sums", Sums)
        options = OptimizerOptions(rewrite=data.draw(st.booleans()))
        optimized = optimize(network, ["First", "Second", "Sums"], runtime.device_spec, options)
        result = runtime.enqueue_workload(runtime.load_network(optimized), {0: X})
        for key, expected_output in enumerate(expected):
            np.testing.assert_array_equal(result[key], expected_output)
        assert_sound(optimized)


def assert_sound(optimized: Any) -> None:
    """Every value lies where its readers read it, and every layer has exactly one placement with a known backend."""
    for layer in optimized.graph:
        for value in layer.values:
            assert value.is_constant or value.factory == DEFAULT_FACTORY
    placed = [placement.layer for placement in optimized.placements]
    assert len(placed) == len(set(placed))
    assert {placement.backend for placement in optimized.placements} <= {"First", "Second", "Sums"}
    assert quotient_is_acyclic(optimized.graph, [])
