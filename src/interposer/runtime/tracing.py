"""The sites of a loaded network's events, for recorders: see `interposer.profiling`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, TypeAlias

from interposer.core.types import Dim
from interposer.ir.graph import Layer, Value
from interposer.ir.regions import places
from interposer.ops.control import Constant, Input, MemCopy, MemImport
from interposer.profiling.events import Category, Counter, HeldTensor, Holding, Site, TracedNetwork
from interposer.profiling.recorder import Gauge, active
from interposer.report.optimized import OptimizedNetwork

__all__ = ["HeldTensors", "NetworkSites"]

HeldTensors: TypeAlias = Callable[[], Sequence[HeldTensor] | None]
"""Returns the tensors in a memory of a network, or None if the network is gone."""

_numbers: Final = itertools.count()


class NetworkSites:
    """The sites of one loaded network, which are created when the first of its runs is recorded."""

    def __init__(self, optimized: OptimizedNetwork, network_id: int) -> None:
        self._optimized = optimized
        self.network = TracedNetwork(optimized.name, network_id, next(_numbers))
        self.inferences = itertools.count()
        self._layers: dict[tuple[Layer, str], Site] = {}
        self._gauges: dict[str, Gauge] = {}

    @cached_property
    def run(self) -> Site:
        """The site of whole runs."""
        return Site(Category.RUN, self.network.name, network=self.network)

    @cached_property
    def execute(self) -> Site:
        """The site of the layers of a run, without the tensors of the caller."""
        return Site(Category.EXECUTE, "execute", network=self.network)

    @cached_property
    def acquire(self) -> Site:
        """The site at which a run acquires its memory."""
        return Site(Category.MEMORY, "acquire memory", network=self.network)

    @cached_property
    def fill(self) -> Site:
        """The site at which a run takes in its inputs, and copies those that it cannot use directly."""
        total = sum(_bytes(layer.output) for layer in self._optimized.inputs)
        return Site(Category.COPY, "take in inputs", "Input", self.network, bytes=total)

    @cached_property
    def give(self) -> Site:
        """The site at which a run copies those outputs to the caller that no layer wrote directly."""
        total = sum(_bytes(layer.values[0]) for layer in self._optimized.outputs)
        return Site(Category.COPY, "give out outputs", "Output", self.network, bytes=total)

    def memory(
        self, owner: str, amount: int, kind: str = "", backend: str = "", tensors: HeldTensors | None = None
    ) -> None:
        """Record that the network holds more bytes for an owner, such as an arena, or fewer if `amount` is negative.

        `tensors` returns what is in them, if the network still exists; see `Holding` for `kind` and `backend`.
        """
        if amount:
            self._gauge(owner, kind, backend, tensors).add(amount)

    def watch_memory(self, owner: str, kind: str, backend: str, tensors: HeldTensors) -> None:
        """Let recorders ask how many bytes the network holds for an owner: those of `tensors` together."""
        gauge = self._gauge(owner, kind, backend, tensors, lambda: sum(tensor.bytes for tensor in tensors() or ()))
        if active:
            gauge.refresh()

    def _gauge(
        self,
        owner: str,
        kind: str,
        backend: str,
        tensors: HeldTensors | None,
        probe: Callable[[], int] | None = None,
    ) -> Gauge:
        if owner not in self._gauges:
            counter = Counter(f"{self.network.name}: {owner}", "bytes", category="memory")
            describe = None if tensors is None else partial(_held, self.network, kind, backend, tensors)
            self._gauges.setdefault(owner, Gauge(counter, self.network, describe, probe))
        return self._gauges[owner]

    def forget_memory(self) -> None:
        """Record that the network holds no memory any more."""
        for gauge in self._gauges.values():
            gauge.end()

    @cached_property
    def _operations(self) -> Mapping[str, int]:
        """The numbers of operations of the layers, by name, as they were before backends fused them."""
        return self._optimized.operations()

    @cached_property
    def _partitions(self) -> Mapping[tuple[Layer, str], str]:
        """The names of the partitions of the layers: the backend and a number, such as "CpuAcc 1"."""
        partitions: dict[tuple[Layer, str], str] = {}
        partition_number, previous_backend = 0, None
        for place in places(self._optimized.graph):
            layer = place.layer
            if isinstance(layer.op, Input | Constant) or layer.backend is None:
                continue
            partition_number += (place.graph, layer.backend) != previous_backend
            previous_backend = place.graph, layer.backend
            partitions[layer, place.name] = f"{layer.backend} {partition_number}"
        return partitions

    def layer(self, layer: Layer, name: str) -> Site:
        """Return the site of a layer that runs; `name` is its name with the names of regions around it."""
        key = layer, name
        if key not in self._layers:
            self._layers[key] = self._new_layer(layer, name)
        return self._layers[key]

    def _new_layer(self, layer: Layer, name: str) -> Site:
        prefix = name.removesuffix(layer.name)
        replaced_names = tuple(f"{prefix}{inner_name}" for inner_name in layer.replaced)
        is_transfer = isinstance(layer.op, MemCopy | MemImport)
        return Site(
            Category.COPY if is_transfer else Category.LAYER,
            name,
            layer.kind,
            self.network,
            name,
            self._partitions.get((layer, name), ""),
            str(layer.backend),
            "",
            replaced_names,
            tuple(f"{prefix}{producer.name}" for producer in _producers(layer)),
            sum(_bytes(value) for value in {*layer.values, *layer.outputs}),
            sum(self._operations.get(inner_name, 0) for inner_name in replaced_names or (name,)) or None,
        )


def _held(network: TracedNetwork, kind: str, backend: str, tensors: HeldTensors, counter: Counter) -> Holding | None:
    held_tensors = tensors()
    if held_tensors is None:
        return None
    size = max((tensor.offset + tensor.bytes for tensor in held_tensors), default=0)
    total = size if kind == "arena" else sum(tensor.bytes for tensor in held_tensors)
    return Holding(counter, network, kind, backend, total, tuple(held_tensors))


def _bytes(value: Value) -> int:
    info = value.info
    size = 0 if info is None or not info.is_tensor else info.num_bytes
    return 0 if isinstance(size, Dim) else int(size)


def _producers(layer: Layer) -> Sequence[Layer]:
    """Return the layers that computed the inputs of a layer, without constants."""
    producers = dict.fromkeys(value.producer for value in layer.values)
    return [producer for producer in producers if not isinstance(producer.op, Constant)]
