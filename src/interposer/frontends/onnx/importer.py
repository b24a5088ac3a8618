"""The conversion of the nodes of a graph to layers of a network, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from interposer.frontends.onnx.channel_blocks import block_size
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Converter, Refusal, find, newest_version
from interposer.frontends.onnx.operator_names import NCHWC, domain_of, title
from interposer.frontends.onnx.order import graphs_of, names_in
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.schemas import has_function, newest_opset, standard_function
from interposer.frontends.onnx.state import ImportState
from interposer.frontends.unsupported import UnsupportedFormError
from interposer.ir.graph import Value

__all__ = ["GraphImporter"]

NodeKind: TypeAlias = tuple[str, int | None, Converter | None]
"""The domain of an operator, the version of its opset and its converter, None if they are not known."""


class GraphImporter(ImportState):
    """Converts the nodes of an ONNX graph to layers; the base class keeps the values and names of the import so far."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kinds: dict[tuple[str, str], NodeKind] = {}

    def convert(self, nodes: Sequence[Message]) -> None:
        """Convert nodes, which must be in topological order.

        Raises:
            ParseError: a node violates the format.
            UnsupportedOperatorError: operators are not supported; the error lists all of them.
            UnboundInputError: all operators are supported, but shapes or values of inputs are missing.
        """
        self.block_size = block_size(nodes, self._arrays) if any(node.domain == NCHWC for node in nodes) else 0
        with np.errstate(all="ignore"):
            for message in nodes:
                self._convert_node(message, self._node_name(message))
        self.refusals.check()

    def _node_name(self, message: Message) -> str:
        if message.name:
            return str(message.name)
        number = self._numbers[message.op_type]
        self._numbers[message.op_type] += 1
        return f"{message.op_type}_{number}"

    def _convert_node(self, message: Message, name: str) -> None:
        kind = self._kinds.get((message.domain, message.op_type)) or self._kind(message)
        domain, version, converter = kind
        function = self._functions.find(message)
        converter = None if function is not None else converter
        place, refuse = f"node {name!r} ({message.op_type})", partial(self._refuse, message, name, domain)
        with self.conversion(place, refuse, name):
            if self._missing and any(name in self._missing for name in names_in(message)):
                self._survey(message, name)
                self._missing.update(output for output in message.output if output)
            elif converter is not None:
                self._run(converter, Node(self, message, name, version or 1), message.output)
            else:
                self._inline(function or self._standard_function(message, version), message, name, self._convert_node)

    def _kind(self, message: Message) -> NodeKind:
        """Return what is known of the operator of a node, for all nodes of this operator."""
        domain = domain_of(message)
        version = self._version(domain)
        kind = domain, version, self._converter(message, version)
        self._kinds[message.domain, message.op_type] = kind
        return kind

    def _version(self, domain: str) -> int | None:
        """Return the version of a domain's opset, which is the newest known one if the model does not import it.

        ONNX Runtime reads such models likewise. The result is None for a domain of which nothing is known.
        """
        if domain in self._opsets:
            return self._opsets[domain]
        return newest_opset(domain) or newest_version(domain)

    def _converter(self, message: Message, version: int | None) -> Converter | None:
        """Return the converter for a node whose opset has this version, or None if its operator is not known.

        The caller's converters take precedence. `version` is None if nothing is known of the node's domain.
        """
        domain = domain_of(message)
        own_converter = self._operators.get(title(domain, message.op_type)) if self._operators else None
        return own_converter or (None if version is None else find(domain, message.op_type, version))

    def _standard_function(self, message: Message, version: int | None) -> Message:
        """Return the `FunctionProto` by which the ONNX standard defines a node's operator, which has no converter.

        `UnsupportedFormError` is raised if the standard has none for this opset version.
        """
        definition = version and standard_function(message, version, lambda name: self.value(name).known)
        if not definition:
            raise UnsupportedFormError("")
        return definition

    def _inline(self, function: Message, message: Message, name: str, visit: Callable[[Message, str], None]) -> None:
        """Call `visit` with each node of a function's body, and with its name, instead of converting the calling node.

        `message` is the calling node and `name` its name, which prefixes the names in the body.
        """
        body = self._functions.body(function, message, name)
        opsets, kinds = self._opsets, self._kinds
        self._opsets, self._kinds = {**opsets, **body.opsets}, {}
        for inner in body.nodes:
            visit(inner, inner.name)
        self._opsets, self._kinds = opsets, kinds
        for output, value in body.aliases:
            if value in self._missing:
                self._missing.add(output)
            elif visit == self._convert_node:
                self._values[output] = self.value(value)

    def _survey(self, message: Message, name: str) -> None:
        """Record every unknown operator in a node, its function body and its subgraphs, without converting them.

        It is called for a node that cannot be converted, so that one error lists all unsupported operators of the
        model.
        """
        domain = domain_of(message)
        version, function = self._version(domain), self._functions.find(message)
        if function is not None:
            self._inline(function, message, name, self._survey)
        else:
            self._survey_operator(message, name, self._converter(message, version))
        for graph in graphs_of(message):
            for inner in graph.node:
                self._survey(inner, self._node_name(inner))

    def _survey_operator(self, message: Message, name: str, converter: Converter | None) -> None:
        """Record the operator of a node if it is unknown, or if no form of it is supported."""
        domain = domain_of(message)
        version = self._version(domain)
        if isinstance(converter, Refusal):
            self._refuse(message, name, domain, UnsupportedFormError(converter.reason))
        elif not (converter or (version and has_function(message, version))):
            self._refuse(message, name, domain, UnsupportedFormError(""))

    def _run(self, converter: Converter, node: Node, outputs: Sequence[str]) -> None:
        converted_node = converter(node)
        results = [converted_node] if isinstance(converted_node, Value) else list(converted_node)
        results += [None] * (len(outputs) - len(results))
        for number, (name, value) in enumerate(zip(outputs, results, strict=False)):
            if name and value is None:
                raise UnsupportedFormError(f"it gives output number {number}, {name!r}")
            if name and value is not None:
                self._values[name] = value

    def _refuse(self, message: Message, name: str, domain: str, error: UnsupportedFormError) -> None:
        """Record that a node cannot be converted, and mark its outputs as missing.

        The final error lists it as unsupported, or as requiring shapes or values of inputs if `error` says that such
        inputs would make it supported.
        """
        version = self._opsets.get(domain)
        opset = _opset_text(version)
        self._missing.update(output for output in message.output if output)
        is_foreign = version is not None and not domain.startswith("ai.onnx") and bool(domain)
        hint = "map it with interposer.frontends.onnx.operator" if is_foreign else ""
        self.refuse(title(domain, message.op_type), f"node {name!r}", error, detail=opset, hint=hint)


def _opset_text(version: int | None) -> str:
    """Return what a message says about the opset version in which a model imports the domain of an operator."""
    if version is None:
        return "whose opset the model does not import"
    return f"opset {version}" if version > 0 else f"opset {version}, a version that does not exist"
