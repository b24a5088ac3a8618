"""ONNX converters for loss functions, which an exported network may still contain."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.frontends.elementwise import EQUAL, NEG
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import LogSoftmax
from interposer.ops.elementwise import Division, Multiplication, Where
from interposer.ops.gather import Gather, GatherElements
from interposer.ops.reduction import Mean, Reduce

__all__: list[str] = []


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(node: Node) -> Value:
    """Convert NegativeLogLikelihoodLoss."""
    return _loss(node, node.value(0))


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(node: Node) -> Sequence[Value]:
    """Convert SoftmaxCrossEntropyLoss; the logarithms of the softmax are an optional second result."""
    logarithms = node.step(LogSoftmax(axis=1), node.value(0))
    return [_loss(node, logarithms), logarithms]


def _loss(node: Node, logarithms: Value) -> Value:
    """Return the negative log-likelihood loss for `logarithms` (log-probabilities) of the target classes in operand 1.

    It is weighted by class and reduced as the attribute reduction says. Targets equal to ignore_index do not count.
    """
    reduction, target = node.text("reduction", "mean"), node.value(1)
    if reduction not in {"none", "sum", "mean"} or logarithms.known.rank < 2:
        raise ParseError(f"its reduction is {reduction!r} and its input has shape {logarithms.known.shape}")
    is_ignored = None
    if node.has_attribute("ignore_index"):
        ignored_class = node.scalar_like(node.integer("ignore_index"), target)
        is_ignored = node.step(EQUAL, target, ignored_class)
        target = node.step(Where(), is_ignored, node.scalar_like(0, target), target)
    losses = _losses(node, logarithms, target)
    weights = _weights(node, logarithms, target, is_ignored)
    losses = losses if weights is None else node.step(Multiplication(), losses, weights)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return node.result(Reduce(), losses)
    if weights is None:
        return node.result(Mean(), losses)
    return node.result(Division(), node.step(Reduce(), losses), node.step(Reduce(), weights))


def _losses(node: Node, logarithms: Value, target: Value) -> Value:
    shape = target.known.shape
    class_indices = reshaped(node, target, [*shape[:1], 1, *shape[1:]], 1)
    picked_logarithms = final_reshape_like(node, node.step(GatherElements(1), logarithms, class_indices), target)
    return node.step(NEG, picked_logarithms)


def _weights(node: Node, logarithms: Value, target: Value, is_ignored: Value | None) -> Value | None:
    """Return the weight of each element of the loss; None if all weights are 1.

    The weight of a target class is in operand 2, by default 1. Elements for which `is_ignored` is true have weight 0.
    `logarithms` only gives the type of the result.
    """
    if not node.has(2) and is_ignored is None:
        return None
    one, zero = node.scalar_like(1, logarithms), node.scalar_like(0, logarithms)
    weights = node.step(Gather(), node.value(2), target) if node.has(2) else one
    return weights if is_ignored is None else node.step(Where(), is_ignored, zero, weights)
