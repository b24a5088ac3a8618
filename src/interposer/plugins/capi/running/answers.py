"""Decoding and validation of a plug-in's answer to ``optimize``: substitutions and rejected layers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from interposer.core.errors import BackendContractError
from interposer.core.records import dataclass
from interposer.ir.graph import Graph, Layer, Value
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.located import located
from interposer.plugins.capi.abi.reading import read_array, read_integers, read_text
from interposer.plugins.capi.abi.replacements import read_graph
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable

__all__ = ["Answer", "Replacement", "optimized"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A graph by which a plug-in replaces layers.

    `inputs` and `outputs` are the values of the original network to which its inputs and outputs correspond, in order.
    """

    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The decoded answer of a plug-in's ``optimize``: what to do with the layers of a part.

    The layers in `units` are compiled together, those in `replaced` are replaced by a graph, and those in `failed` are
    rejected with a reason. No layer occurs twice.
    """

    units: tuple[tuple[Layer, ...], ...]
    replaced: tuple[tuple[tuple[Layer, ...], Replacement], ...]
    failed: tuple[tuple[tuple[Layer, ...], str], ...]


def optimized(library: Library, flat: FlatGraph, options: OptionTable) -> Answer:
    """Call ``optimize`` of a plug-in for the layers of its tables, and return the answer.

    Raises:
        CallError: the function failed.
        BackendContractError: the answer is not valid.
    """
    out = abi.Answer(struct_size=ctypes.sizeof(abi.Answer))
    function, arguments = library.functions["optimize"], (library.self, flat.address, options.address)
    with library.serialized():
        with located(flat):
            library.call("optimize", function, *arguments, ctypes.addressof(out))
        with library.holding(out):
            return _Reader(flat, library.id).answer(out)


class _Reader:
    def __init__(self, flat_graph: FlatGraph, backend: str) -> None:
        self._flat_graph, self._backend = flat_graph, backend
        self._taken_layers: set[int] = set()

    def answer(self, out: abi.Answer) -> Answer:
        units, replacements, failures = [], [], []
        for number, substitution in enumerate(self._entries(abi.Substitution, out, "substitution")):
            subject = f"substitution {number}"
            layers = self._layers(substitution, subject)
            if substitution.replacement:
                replacements.append((layers, self._replacement(substitution, subject)))
            else:
                units.append(layers)
        for number, failure in enumerate(self._entries(abi.Failure, out, "failure")):
            subject = f"failure {number}"
            reason = read_text(failure.reason, f"the reason of {subject}") or "no reason was given"
            failures.append((self._layers(failure, subject), reason))
        return Answer(tuple(units), tuple(replacements), tuple(failures))

    def _entries(self, kind: type[Any], out: abi.Answer, subject: str) -> Sequence[Any]:
        count, stride = getattr(out, f"{subject}_count"), getattr(out, f"{subject}_stride")
        if count > len(self._flat_graph.layers):
            raise self._problem(f"{count:,} {subject}s for {len(self._flat_graph.layers):,} layers")
        return read_array(kind, getattr(out, f"{subject}s"), count, stride, f"the list of {subject}s")

    def _layers(self, row: Any, subject: str) -> tuple[Layer, ...]:
        layers = self._flat_graph.layers
        integers = read_integers(row.layers, row.layer_count, len(layers), f"the layers of {subject}")
        if not integers:
            raise self._problem(f"{subject} has no layers")
        for index in integers:
            if not 0 <= index < len(layers):
                raise self._problem(f"{subject} names layer {index}; there are {len(layers)}")
            if index in self._taken_layers:
                raise self._problem(f"{subject} names layer {index}, {layers[index]}, which is named already")
            self._taken_layers.add(index)
        return tuple(layers[index] for index in sorted(integers))

    def _replacement(self, substitution: Any, subject: str) -> Replacement:
        inputs = self._values(substitution.inputs, substitution.input_count, f"the inputs of {subject}")
        outputs = self._values(substitution.outputs, substitution.output_count, f"the outputs of {subject}")
        if len(set(outputs)) < len(outputs):
            raise self._problem(f"the outputs of {subject} name a tensor twice")
        infos = [value.known for value in inputs]
        graph = read_graph(substitution.replacement, infos, len(outputs), f"the replacement in {subject}")
        return Replacement(graph, inputs, outputs)

    def _values(self, address: int | None, count: int, subject: str) -> tuple[Value, ...]:
        values = self._flat_graph.values
        integers = read_integers(address, count, len(values), subject)
        for index in integers:
            if not 0 <= index < len(values):
                raise self._problem(f"{subject} name tensor {index}; there are {len(values)}")
        return tuple(values[index] for index in integers)

    def _problem(self, text: str) -> BackendContractError:
        return BackendContractError(f"optimize gave an answer that cannot be meant: {text}", backend=self._backend)
