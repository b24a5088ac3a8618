"""Converters of constants, of layers that pass tensors on, and of stand-ins."""

from __future__ import annotations

from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.control import Merge, StandIn, Switch

__all__: list[str] = []


@layer("Constant")
def constant(node: Node) -> list[Value]:
    """Convert Constant; biases that are inputs have their scale in the file's constant."""
    record = node.layer.record["input"]
    if record is None:
        node.fail("it has no input, which is its value")
    where = f"{node.layer.where}.input"
    return [node.given(node.importer.stored(record, node.name, node.source, where, scaled=True))]


@layer("Merge")
def merge(node: Node) -> list[Value]:
    """Convert Merge."""
    return node.results(Merge(), node.value(0), node.value(1))


@layer("Switch")
def switch(node: Node) -> list[Value]:
    """Convert Switch."""
    return node.results(Switch(), node.value(0), node.value(1))


@layer("StandIn")
def stand_in(node: Node) -> list[Value]:
    """Convert StandIn, which no backend of Interposer runs; its outputs are as in the file."""
    count = max(node.layer.inputs, default=-1) + 1
    if node.descriptor["numInputs"] != count:
        node.fail(f"numInputs is {node.descriptor['numInputs']}, but it has {count} connected input slots")
    return node.declared(StandIn(num_outputs=len(node.infos), description="StandIn"), node.values())
