"""TensorFlow converters for constants, variables, and nodes that pass on their inputs."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.results import Result, Variable
from interposer.frontends.tensorflow.tensorflow_converters import operator

__all__: list[str] = []


@operator("Const", "HostConst")
def constant(node: Node) -> Result:
    """Convert Const."""
    return node.named_constant(node.tensor("value"))


@operator(
    "CheckNumerics", "EnsureShape", "Identity", "PlaceholderWithDefault", "PreventGradient", "Snapshot", "StopGradient",
    "CheckNumericsV2", "OptimizationBarrier", "Print",
)  # fmt: skip
def identity(node: Node) -> Result:
    """Convert nodes that return their first input unchanged."""
    if not node.inputs:
        raise ParseError("it has no input")
    return node.inputs[0]


@operator("IdentityN")
def identities(node: Node) -> list[Result]:
    """Convert IdentityN, which returns all of its inputs."""
    return list(node.inputs)


@operator("Assert", "NoOp")
def nothing(node: Node) -> list[Result]:
    """Convert nodes without outputs, which are not run."""
    return []


@operator("Placeholder", "PlaceholderV2")
def placeholder(node: Node) -> Result:
    """Refuse a placeholder that is not an input of the model, such as one in a function."""
    return node.unsupported("it is not an input of the model")


@operator("VarHandleOp", "VariableV2", "Variable")
def variable(node: Node) -> Result:
    """Convert a variable to a handle; the value of an old one is read at once."""
    if node.kind == "VarHandleOp":
        return Variable(node.name)
    return node.named_constant(node.importer.variable(node.name))


@operator("ReadVariableOp")
def read_variable(node: Node) -> Result:
    """Convert ReadVariableOp to a constant with the variable's value."""
    return node.named_constant(node.importer.variable(node.variable(0).name))
