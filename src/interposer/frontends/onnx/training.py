"""ONNX converters for the optimizer steps of ai.onnx.preview.training: parameters, gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Refusal, operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Multiplication,
    Subtraction,
    UnaryOperation,
    Where,
)
from interposer.ops.quantization import Cast

__all__: list[str] = []

_DOMAIN: Final = "ai.onnx.preview.training"
_SQRT: Final = ElementwiseUnary(UnaryOperation.SQRT)
Step = Callable[["_Arithmetic", Value, Value, Sequence[Value]], Sequence[Value]]


class _Arithmetic:
    """Adds layers for arithmetic on the values of a training operator, on behalf of its node.

    `rate` is the operand with the learning rate, and `count` the operand with the number of steps so far.
    """

    def __init__(self, node: Node) -> None:
        self.node, self.rate, self.count = node, node.value(0), node.value(1)

    def add(self, a: Value, b: Value) -> Value:
        return self.node.step(Addition(), a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.node.step(Subtraction(), a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.node.step(Multiplication(), a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.node.step(Division(), a, b)

    def times(self, factor: float, a: Value) -> Value:
        return self.mul(a, self.node.scalar_like(factor, a))

    def plus(self, number: float, a: Value) -> Value:
        return self.add(a, self.node.scalar_like(number, a))

    def root(self, a: Value) -> Value:
        return self.node.step(_SQRT, a)

    def mixed(self, share: float, old: Value, new: Value) -> Value:
        """Return share * old + (1 - share) * new."""
        return self.add(self.times(share, old), self.times(1 - share, new))

    def regularized(self, x: Value, gradient: Value) -> Value:
        """Return the gradient of a parameter `x` plus that of the L2 regularization term, norm_coefficient * x."""
        return self.add(self.times(self.node.number("norm_coefficient", 0.0), x), gradient)

    def counted(self, like: Value) -> Value:
        """Return the operand with the number of steps so far, cast to the type of `like`."""
        return self.node.step(Cast(like.known.dtype), self.count)

    def unless_first(self, later: Value, first: Value) -> Value:
        """Return `later` from the second optimizer step on, and `first` in the first step, when the step count is 0."""
        zero = self.node.scalar_like(0, self.count)
        started = self.node.step(Comparison(ComparisonOperation.GREATER), self.count, zero)
        return self.node.step(Where(), started, later, first)


def _for_each(node: Node, remembered: int, step: Step) -> list[Value]:
    """Return the results of an optimizer step: new values of all parameters, then each kind of state for all.

    The node's inputs after the learning rate and the step count are all parameters, then all gradients, then
    `remembered` kinds of state. `step` takes the arithmetic, a parameter, its gradient and its states, and returns the
    new parameter and the new states.
    """
    kinds = 2 + remembered
    count, rest = divmod(node.num_inputs - 2, kinds)
    if rest or count < 1:
        raise ParseError(f"it has {node.num_inputs} inputs; expected 2, and {kinds} more for each parameter")
    arithmetic, columns = _Arithmetic(node), []
    for place in range(2, 2 + count):
        x, gradient, *memory = (node.value(place + count * kind) for kind in range(kinds))
        columns.append(step(arithmetic, x, gradient, memory))
    return [value for row in zip(*columns, strict=True) for value in row]


operator("Gradient", domain=_DOMAIN)(Refusal("it computes derivatives; load the model for inference, without it"))


@operator("Adagrad", domain=_DOMAIN)
def adagrad(node: Node) -> Sequence[Value]:
    """Convert Adagrad: step sizes shrink with the sum of squared gradients."""
    decay, epsilon = node.number("decay_factor", 0.0), node.number("epsilon", 0.0)

    def step(a: _Arithmetic, x: Value, gradient: Value, memory: Sequence[Value]) -> Sequence[Value]:
        rate = a.div(a.rate, a.plus(1, a.times(decay, a.counted(a.rate))))
        g = a.regularized(x, gradient)
        squares = a.add(memory[0], a.mul(g, g))
        return a.sub(x, a.div(a.mul(rate, g), a.plus(epsilon, a.root(squares)))), squares

    return _for_each(node, 1, step)


@operator("Adam", domain=_DOMAIN)
def adam(node: Node) -> Sequence[Value]:
    """Convert Adam: bias-corrected running means of the gradients and of their squares."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    epsilon, after = node.number("epsilon", 0.0), node.number("norm_coefficient_post", 0.0)

    def missing(a: _Arithmetic, share: float) -> Value:
        power = ElementwiseBinary(BinaryOperation.POWER)
        grown = node.step(power, node.scalar_like(share, a.rate), a.counted(a.rate))
        return a.sub(node.scalar_like(1, a.rate), grown)

    def step(a: _Arithmetic, x: Value, gradient: Value, memory: Sequence[Value]) -> Sequence[Value]:
        g = a.regularized(x, gradient)
        mean, squares = a.mixed(alpha, memory[0], g), a.mixed(beta, memory[1], a.mul(g, g))
        corrected = a.div(a.mul(a.rate, a.root(missing(a, beta))), missing(a, alpha))
        rate = a.unless_first(corrected, a.rate)
        moved = a.sub(x, a.mul(rate, a.div(mean, a.plus(epsilon, a.root(squares)))))
        return a.times(1 - after, moved), mean, squares

    return _for_each(node, 2, step)


@operator("Momentum", domain=_DOMAIN)
def momentum(node: Node) -> Sequence[Value]:
    """Convert Momentum: a running sum of gradients, with Nesterov's look-ahead as an option."""
    alpha, beta, mode = node.number("alpha"), node.number("beta"), node.text("mode")
    if mode not in {"standard", "nesterov"}:
        raise ParseError(f"its mode is {mode!r}; expected standard or nesterov")

    def step(a: _Arithmetic, x: Value, gradient: Value, memory: Sequence[Value]) -> Sequence[Value]:
        g = a.regularized(x, gradient)
        share = a.unless_first(node.scalar_like(beta, g), node.scalar_like(1, g))
        direction = a.add(a.times(alpha, memory[0]), a.mul(share, g))
        way = direction if mode == "standard" else a.add(g, a.times(alpha, direction))
        return a.sub(x, a.mul(a.rate, way)), direction

    return _for_each(node, 1, step)
