"""The graph of an interpreter as claims see it: nodes with named values, and parts of it as templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any

from interposer.bridges.claims import HostNode, label
from interposer.bridges.litert.graph import read_graph
from interposer.bridges.litert.host import Host
from interposer.frontends.template import Template, Values
from interposer.frontends.tflite.contents import Model, Operator, Tensor
from interposer.frontends.tflite.importer import SubgraphImporter
from interposer.frontends.tflite.inputs import Request, Shapes
from interposer.ir.network import Network

__all__ = ["InterpreterGraph"]


class InterpreterGraph:
    """The graph of a host, which is readable during the call of the host that passed it.

    `nodes` are those of the execution plan, in order. `names` has the name of each tensor, which no other tensor has.

    Raises:
        ParseError: what the host passes does not fit the structs that are known.
    """

    def __init__(self, host: Host, name: str) -> None:
        self.name, self._host = name, host
        graph = read_graph(host)
        self.plan, self.model, self._left = graph.plan, graph.model, graph.left
        self.names = _unique_names(graph.subgraph.tensors)
        self.index_of_name = {name: index for index, name in enumerate(self.names)}
        self.nodes: Sequence[HostNode] = [self._node(n, operator) for n, operator in enumerate(self._operators)]
        self.outputs: Sequence[str] = self._named(self._outputs())

    @property
    def _operators(self) -> tuple[Operator, ...]:
        return self.model.subgraphs[0].operators

    def _node(self, position: int, operator: Operator) -> HostNode:
        names = self._named(operator.outputs)
        name = f"{operator.name} {self.plan[position]}" + (f" ({names[0]})" if names else "")
        inputs = (self.names[index] if index >= 0 else "" for index in operator.inputs)
        layer = f"{operator.name}:0:{self.plan[position]}"
        return HostNode(name, operator.name, tuple(inputs), tuple(names), self._left.get(position, ""), layer)

    def _named(self, indices: Iterable[int]) -> list[str]:
        return [self.names[index] for index in indices]

    def _outputs(self) -> set[int]:
        """Return the tensors that the host's graph returns, which it says only of a part that has all nodes."""
        parts = self._host.partition(self.plan) if self.plan else []
        return {index for part in parts for index in part.outputs}

    def groups(self, claimed: Set[int]) -> list[list[int]]:
        """Return the nodes at the positions `claimed` in the groups in which the host would run them."""
        position = {number: index for index, number in enumerate(self.plan)}
        parts = self._host.partition([self.plan[index] for index in sorted(claimed)]) if claimed else []
        groups = [[position[number] for number in part.nodes] for part in parts]
        return [group for group in groups if claimed >= {*group}]

    # --- what files of compiled groups depend on ----------------------------------------------------------------------

    def facts(self) -> Iterator[Any]:
        """Yield all but the data of constants; see `stored.StoredGraph`."""
        for operator in self._operators:
            yield (
                operator.name, operator.version, operator.inputs, operator.outputs, operator.intermediates,
                sorted(operator.attributes.items()), bytes(operator.custom_options or b""),
            )  # fmt: skip
        yield from self.model.subgraphs[0].tensors

    def constants(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the constants."""
        return (content for content in self.model.buffers if content is not None)

    # --- parts --------------------------------------------------------------------------------------------------------

    def ends(self, members: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the tensors that the nodes at these positions read from others, and those that others read of them.

        Constants are not among them. A tensor that nobody reads is an output only if the part had no output otherwise.
        """
        operators, inner_numbers = self._operators, frozenset(members)
        computed_tensors = dict.fromkeys(index for n in members for index in operators[n].outputs)
        tensors_read = dict.fromkeys(index for n in members for index in operators[n].inputs if index >= 0)
        tensors_read_outside = {
            index for n, operator in enumerate(operators) if n not in inner_numbers for index in operator.inputs
        } | self._returned
        inputs = [index for index in tensors_read if index not in computed_tensors and index not in self._constants]
        outputs = [index for index in computed_tensors if index in tensors_read_outside]
        return inputs, outputs or [index for index in computed_tensors if index not in tensors_read]

    @cached_property
    def _returned(self) -> set[int]:
        return {self.index_of_name[name] for name in self.outputs}

    @cached_property
    def _constants(self) -> set[int]:
        """The tensors with data in the file, and those without elements that no node computes."""
        subgraph = self.model.subgraphs[0]
        computed_tensors = {index for operator in self._operators for index in operator.outputs}
        of_file = {i for i, tensor in enumerate(subgraph.tensors) if self.model.buffers[tensor.buffer] is not None}
        return of_file | {i for i in self._empty_of_file if i not in computed_tensors}

    @cached_property
    def _empty_of_file(self) -> set[int]:
        return self.model.subgraphs[0].empty_constants()

    def template(self, members: Sequence[int]) -> Template:
        """Return the part of the graph that consists of the nodes at these positions; see `claims.HostGraph`."""
        return part_template(self.part(members), self.name)

    def part(self, members: Sequence[int]) -> Model:
        """Return the contents of a file that has only the nodes at these positions, with unique names of tensors."""
        inputs, outputs = self.ends(members)
        operators = tuple(replace(self._operators[n], where=label(n)) for n in members)
        tensors = self.model.subgraphs[0].tensors
        named_tensors = tuple(replace(tensor, name=name) for tensor, name in zip(tensors, self.names, strict=True))
        subgraph = replace(
            self.model.subgraphs[0],
            tensors=named_tensors,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            operators=operators,
        )
        return replace(self.model, subgraphs=(subgraph,))


def part_template(part: Model, name: str) -> Template:
    """Return the template of a part of a graph, whose layers have names that begin with the label of their node."""
    request = Request(part, name)
    importer = _PartImporter(request)

    def build(shapes: Shapes, values: Values) -> Network:
        return _PartImporter(replace(request, shapes=shapes, values=values)).convert()

    return Template(name, importer.inputs.infos(), importer.outputs(), build, importer.inputs.usual_shapes())


class _PartImporter(SubgraphImporter):
    """The importer of a part of a graph; the places of its operators are their labels.

    Only shapes of inputs are those of the host. Those of results are inferred, because files may declare other ones for
    results whose shapes depend on data.
    """

    def __init__(self, request: Request, outer: SubgraphImporter | None = None, network: Network | None = None) -> None:
        super().__init__(request, outer, network)
        self._is_resized = True

    def titles(self, index: int, operator: Operator) -> tuple[str, str]:
        """Return the label of an operator's node, as the name of its layers and as its place."""
        return operator.where, operator.where


def _unique_names(tensors: Sequence[Tensor]) -> list[str]:
    """Return the names of tensors in order; those that several tensors or none have get the tensor's number."""
    counts = Counter(tensor.name for tensor in tensors)
    return [
        tensor.name if tensor.name and counts[tensor.name] == 1 else f"{tensor.name or 'tensor'}#{index}"
        for index, tensor in enumerate(tensors)
    ]
