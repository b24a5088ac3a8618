"""The conversion of the nodes of a graph or function to layers of a network, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.frontends.importer import Importer, keep_names
from interposer.frontends.tensorflow.loops import Loops
from interposer.frontends.tensorflow.messages import FunctionDef, NodeDef
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.references import (
    Reference,
    control_inputs,
    data_inputs,
    in_function,
    in_graph,
    output_names,
    title,
)
from interposer.frontends.tensorflow.results import Absent, Complex, Result, TensorList, Variable
from interposer.frontends.tensorflow.tensorflow_converters import Converter, find
from interposer.frontends.unsupported import Needs, UnsupportedFormError
from interposer.ir.graph import Value
from interposer.ir.network import Network

__all__ = ["Guards", "Scope", "Shared", "returned"]

Guards: TypeAlias = "frozenset[tuple[Value, bool]]"
"""The conditions under which a value is used: predicates of the model, and whether each is true or false."""

_DEPTH: Final = 32
_MOST_NODES: Final = 1 << 18
"""Limits of nested calls, and of converted nodes per import; those of a function count once per call."""
_NEVER: Final[Guards] = frozenset()


@dataclass(slots=True)
class Shared:
    """What all graphs and functions of one import share: the model's functions and variables, and what is refused.

    `folder` is that of a SavedModel, which has files for tables. `assets` has the file that the SavedModel names for
    each node whose tensor is the path of a file.
    """

    functions: Mapping[str, FunctionDef]
    variable: Callable[[str], Array]
    folder: Path | None = None
    assets: Mapping[str, str] = field(default_factory=dict)
    spent: int = 0
    named: set[str] = field(default_factory=set)
    surveyed: set[str] = field(default_factory=set)


class Scope(Importer):
    """Converts the nodes of the graph, or those of a function applied to arguments.

    Layers are added to `network`. A scope with an `outer` scope continues its import: in the same network, unless the
    function becomes the region of a layer.
    """

    outer: Scope | None

    def __init__(
        self, network: Network, shared: Shared, nodes: Sequence[NodeDef], outer: Scope | None = None, *, function: bool
    ) -> None:
        super().__init__(network, outer)
        self.shared = shared
        self.depth: int = 1 + (outer.depth if outer is not None else 0)
        self._nodes = {node.name: node for node in nodes}
        self._is_function = function
        self.loops = Loops(self._nodes)
        self._has_switches = any(node.op in {"Switch", "RefSwitch"} for node in nodes)
        self._results: dict[str, Sequence[Result] | Absent] = {}
        self._guards: dict[Reference, Guards] = {}
        self._readers: Counter[Reference] = Counter()
        self._reads: dict[Value, int] = {}
        if self.depth > _DEPTH:
            raise ParseError(f"functions call each other in more than {_DEPTH} levels, which is not supported")
        if len(self._nodes) < len(nodes):
            raise ParseError("two nodes have one name")

    def define(self, name: str, *results: Result) -> None:
        """Record what the outputs of a node, or an argument of a function, stand for."""
        self._results[name] = results

    def define_input(self, name: str, value: Value) -> None:
        """Record the value that an input of the model stands for: a node, or another output such as ``split:1``."""
        self.add_input(value)
        self.define_output(in_graph(name), value)

    def define_output(self, reference: Reference, value: Value) -> None:
        """Record what an output of a node stands for, which is not converted."""
        known_results = self._results.get(reference.node, ())
        results = [] if isinstance(known_results, Absent) else list(known_results)
        results += [Absent.DEAD] * (reference.number + 1 - len(results))
        results[reference.number] = value
        self._results[reference.node] = results

    def brought_in(self, result: Result) -> Result:
        """Return what a result of the outer scope stands for in this scope, whose network is another one.

        A constant is added again, and any other value becomes an input, which is listed in `captured`.
        """
        if isinstance(result, Value):
            return self.within(result)
        return Complex(self.within(result.parts)) if isinstance(result, Complex) else result

    def within(self, value: Value) -> Value:
        """Return a value of this or an outer scope as a value of this scope's network."""
        if value.producer in self.network.graph:
            return value
        assert self.outer is not None
        outer_value = self.outer.within(value)
        return outer_value if outer_value.producer in self.network.graph else self.capture(outer_value)

    def variable(self, name: str) -> Array:
        """Return the value of a variable; `ParseError` if the model does not have it."""
        return self.shared.variable(name)

    def reference(self, text: str) -> Reference:
        """Return the output that an input of a node refers to."""
        if not self._is_function:
            return in_graph(text)
        return in_function(self._nodes, lambda node: output_names(node, self.shared.functions), text)

    def message_of(self, name: str) -> NodeDef | None:
        """Return a node by its name; None if there is none, as for an argument of a function."""
        return self._nodes.get(name)

    @property
    def nodes(self) -> list[NodeDef]:
        """The nodes of the graph or function."""
        return list(self._nodes.values())

    @property
    def is_function(self) -> bool:
        """True for the body of a function, in which inputs are written in another way than in a graph."""
        return self._is_function

    # --- order --------------------------------------------------------------------------------------------------------

    def needed(self, texts: Iterable[str]) -> list[NodeDef]:
        """Return the nodes on which these outputs depend and that are not converted yet, producers first.

        Raises:
            ParseError: a name is not defined, or nodes depend on themselves.
        """
        order: list[NodeDef] = []
        visited_names = set(self._results)
        for text in texts:
            self._visit(self.reference(text).node, text, visited_names, order)
        return order

    def _visit(self, start: str, text: str, visited_names: set[str], order: list[NodeDef]) -> None:
        open_nodes: dict[str, Iterator[str]] = {}
        pending_names = [] if start in visited_names else [start]
        while pending_names:
            name = pending_names[-1]
            if name not in open_nodes:
                node = self._nodes.get(name)
                if node is None:
                    raise ParseError(
                        f"the value {name!r} is not defined, but {self._reader(pending_names, text)} takes it"
                    )
                open_nodes[name] = self._dependencies(node)
            inner = next((dependency for dependency in open_nodes[name] if dependency not in visited_names), None)
            if inner is None:
                visited_names.add(name)
                order.append(self._nodes[name])
                pending_names.pop()
            elif inner in open_nodes:
                raise ParseError(f"nodes depend on themselves: {inner!r}, {name!r}")
            else:
                pending_names.append(inner)

    def _reader(self, pending_names: Sequence[str], text: str) -> str:
        return f"node {pending_names[-2]!r}" if len(pending_names) > 1 else f"the output {text!r}"

    def _dependencies(self, node: NodeDef) -> Iterator[str]:
        loop = self.loops.of(node)
        if loop is not None:
            yield from (self.reference(text).node for text in loop.entries())
            return
        yield from (self.reference(text).node for text in data_inputs(node))
        yield from self._pivots(node)

    def _pivots(self, node: NodeDef) -> Iterator[str]:
        """Yield the nodes that say in which branch of a conditional a node without inputs in the branch is."""
        if self._has_switches:
            for name in control_inputs(node):
                inner = self._nodes.get(name)
                if inner is not None and inner.op in {"Identity", "Switch", "RefSwitch"}:
                    yield name

    # --- conversion ---------------------------------------------------------------------------------------------------

    def converted(self, texts: Sequence[str]) -> list[Result]:
        """Convert all nodes on which these outputs depend, and return the outputs."""
        order = self.needed(texts)
        self._readers.update(self.reference(text) for node in order for text in data_inputs(node))
        self._readers.update(map(self.reference, texts))
        with np.errstate(all="ignore"):
            for node in order:
                self._spend(node)
                self._convert(node)
        return [self.result(text) for text in texts]

    def _spend(self, node: NodeDef) -> None:
        self.shared.spent += 1
        if self.shared.spent > _MOST_NODES:
            raise ParseError(f"the functions make more than {_MOST_NODES:,} nodes, which is not supported")

    def result(self, text: str) -> Result:
        """Return what an output of a converted node, or an argument, stands for."""
        reference = self.reference(text)
        results = self._results.get(reference.node)
        if results is None:
            raise ParseError(f"the value {text!r} is not defined")
        if isinstance(results, Absent):
            return results
        if reference.number >= len(results):
            raise ParseError(f"node {reference.node!r} has {len(results)} outputs; output {reference.number} is used")
        return results[reference.number]

    def _convert(self, node: NodeDef) -> None:
        with self.conversion(f"node {node.name!r} ({node.op})", partial(self._refuse, node), node.name):
            self._results[node.name] = self._converted(node)

    def _converted(self, node: NodeDef) -> Sequence[Result] | Absent:
        loop = self.loops.of(node)
        texts = data_inputs(node) if loop is None else loop.entries()
        inputs = [self.result(text) for text in texts]
        if Absent.MISSING in inputs:
            self._survey(node)
            return Absent.MISSING
        is_merge = node.op in {"Merge", "RefMerge"}
        states = [self._results.get(name) for name in self._pivots(node)]
        is_dead = [result is Absent.DEAD for result in inputs]
        if Absent.DEAD in states or (any(is_dead) and not is_merge) or (is_merge and all(is_dead)):
            return Absent.DEAD
        converted_node = Node(self, node, inputs)
        converted_node.guards = [self._guards.get(self.reference(text), _NEVER) for text in texts]
        outputs = self._converter(node)(converted_node)
        if outputs is Absent.MISSING:
            return Absent.MISSING
        results: Sequence[Result] = (
            [outputs] if isinstance(outputs, Value | Variable | TensorList | Complex | Absent) else outputs
        )
        self._guard(node, converted_node, len(results))
        for index, result in enumerate(results):
            if isinstance(result, Value):
                self._reads[result] = self._reads.get(result, 1) - 1 + self._readers[Reference(node.name, index)]
        return results

    def is_from_data(self, needs: Needs | None) -> bool:
        """Return True if what would make a value known, `needs`, cannot be given before running."""
        if needs is None:
            return True
        inputs = [layer.output.known for layer in self._inputs if layer.name in needs.values]
        if any(not info.dtype.is_integer for info in inputs):
            return True
        return not needs.values and not self.has_open_inputs

    def is_read_once(self, value: Value) -> bool:
        """Return True if a value is read by one node only, under all names that it has."""
        return not value.uses and self._reads.get(value) == 1

    def _converter(self, node: NodeDef) -> Converter:
        entry = find(node.op)
        if entry is not None:
            return entry.convert
        if node.op in self.shared.functions:
            return lambda created: self.inlined(node.op, created.inputs)
        raise UnsupportedFormError("")

    def _guard(self, node: NodeDef, converted_node: Node, count: int) -> None:
        """Record under which conditions the outputs of a node are used."""
        guards = frozenset(guard for guards_of_input in converted_node.guards for guard in guards_of_input)
        for name in self._pivots(node):
            guards |= self._guards.get(Reference(name), _NEVER)
        if not guards and converted_node.decided is None:
            return
        for index in range(count):
            result_guards = converted_node.decided[index] if converted_node.decided is not None else guards
            self._guards[Reference(node.name, index)] = result_guards

    def guard_like(self, name: str, node: Node) -> None:
        """Record that a node is used under the conditions under which the inputs of another one are."""
        guards = frozenset(guard for guards_of_input in node.guards for guard in guards_of_input)
        if guards:
            self._guards[Reference(name)] = guards

    def is_guarded(self, text: str, guard: tuple[Value, bool]) -> bool:
        """Return True if a node is in the branch of a condition; those that switch values into it are not."""
        reference = self.reference(text)
        node = self._nodes.get(reference.node)
        is_switch = node is not None and node.op in {"Switch", "RefSwitch"}
        outputs = [Reference(reference.node, 0), Reference(reference.node, 1)] if is_switch else [reference]
        return all(guard in self._guards.get(output, _NEVER) for output in outputs)

    def border(self, text: str, guard: tuple[Value, bool]) -> list[str]:
        """Return the converted nodes outside of the branch of a condition on which a value in the branch depends.

        The nodes that switch values into the branch belong to them.
        """
        pending_texts, seen_nodes, outside_references = [text], set[str](), []
        while pending_texts:
            text = pending_texts.pop()
            name = self.reference(text).node
            if name in seen_nodes:
                continue
            seen_nodes.add(name)
            node = self._nodes.get(name)
            if node is None or not self.is_guarded(text, guard):
                outside_references.append(name)
                continue
            pending_texts += self._operands(node)
        return outside_references

    def _operands(self, node: NodeDef) -> list[str]:
        """Return the references to all values on which a node depends directly."""
        loop = self.loops.of(node)
        return loop.entries() if loop is not None else [*data_inputs(node), *self._pivots(node)]

    def bring_in(self, name: str) -> None:
        """Record that a node stands for what it stands for in the outer scope."""
        assert self.outer is not None
        results = self.outer._results[name]
        if not isinstance(results, Absent):
            results = [self.brought_in(result) for result in results]
        self._results[name] = results

    def _survey(self, node: NodeDef) -> None:
        """Record a node's operator if it is not known, and those of the functions that it calls.

        It is called for a node that cannot be converted, so that one error lists all unsupported operators.
        """
        if find(node.op) is None and node.op not in self.shared.functions:
            self._refuse(node, UnsupportedFormError(""))
        for name in (node.op, *(attribute.func.name for attribute in node.attr.values() if attribute.func is not None)):
            if name in self.shared.functions and name not in self.shared.surveyed:
                self.shared.surveyed.add(name)
                for inner in self.shared.functions[name].node_def:
                    self._survey(inner)

    def _refuse(self, node: NodeDef, error: UnsupportedFormError) -> None:
        self._results[node.name] = Absent.MISSING
        self.refuse(node.op, f"node {node.name!r}", error)

    # --- functions ----------------------------------------------------------------------------------------------------

    def inlined(self, function: str, arguments: Sequence[Result]) -> list[Result]:
        """Add the layers of a function of the model, applied to `arguments`, and return its outputs."""
        body = self.function(function, len(arguments))
        scope = Scope(self.network, self.shared, body.node_def, self, function=True)
        for argument, result in zip(body.signature.input_arg, arguments, strict=True):
            scope.define(argument.name, result)
        results = scope.converted(returned(body))
        scope.keep_names()
        return results

    def function(self, name: str, count: int) -> FunctionDef:
        """Return a function of the model; `ParseError` if it does not exist or does not have `count` arguments."""
        body = self.shared.functions.get(name)
        if body is None:
            raise ParseError(f"the function {name!r} is not defined")
        if len(body.signature.input_arg) != count:
            raise ParseError(f"the function {name!r} takes {len(body.signature.input_arg)} arguments, but gets {count}")
        return body

    def keep_names(self) -> None:
        """Record on the values of the network the names that they have in the model."""
        new_names = [(name, value) for name, value in self._named() if name not in self.shared.named]
        self.shared.named.update(name for name, _ in new_names)
        keep_names(self.network.graph, new_names)

    def _named(self) -> Iterator[tuple[str, Value]]:
        for node, results in self._results.items():
            for index, result in enumerate(() if isinstance(results, Absent) else results):
                if isinstance(result, Value):
                    yield title(Reference(node, index)), result


def returned(body: FunctionDef) -> list[str]:
    """Return what the outputs of a function refer to in its body, in the order of its signature."""
    missing_outputs = [arg.name for arg in body.signature.output_arg if arg.name not in body.ret]
    if missing_outputs:
        raise ParseError(f"the function {body.signature.name!r} does not return its output {missing_outputs[0]!r}")
    return [body.ret[arg.name] for arg in body.signature.output_arg]
