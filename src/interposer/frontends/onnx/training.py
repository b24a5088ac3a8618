"""ONNX converters for the optimizer steps of ai.onnx.preview.training: parameters, gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.frontends.elementwise import GREATER, POWER, SQRT
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import Refusal, operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import Addition, Division, Multiplication, Subtraction, Where
from interposer.ops.quantization import Cast

__all__: list[str] = []

_DOMAIN: Final = "ai.onnx.preview.training"
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
        return self.node.step(SQRT, a)

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
        has_started = self.node.step(GREATER, self.count, zero)
        return self.node.step(Where(), has_started, later, first)


def _for_each(node: Node, num_states: int, step: Step) -> list[Value]:
    """Return the results of an optimizer step: new values of all parameters, then each kind of state for all.

    The node's inputs after the learning rate and the step count are all parameters, then all gradients, then
    `num_states` kinds of state. `step` takes the arithmetic, a parameter, its gradient and its states, and returns the
    new parameter and the new states.
    """
    num_kinds = 2 + num_states
    num_parameters, remainder = divmod(node.num_inputs - 2, num_kinds)
    if remainder or num_parameters < 1:
        raise ParseError(f"it has {node.num_inputs} inputs; expected 2, and {num_kinds} more for each parameter")
    arithmetic, results_per_parameter = _Arithmetic(node), []
    for position in range(2, 2 + num_parameters):
        x, gradient, *states = (node.value(position + num_parameters * kind) for kind in range(num_kinds))
        results_per_parameter.append(step(arithmetic, x, gradient, states))
    return [result for results_of_kind in zip(*results_per_parameter, strict=True) for result in results_of_kind]


operator("Gradient", domain=_DOMAIN)(Refusal("it computes derivatives; load the model for inference, without it"))


@operator("Adagrad", domain=_DOMAIN)
def adagrad(node: Node) -> Sequence[Value]:
    """Convert Adagrad: step sizes shrink with the sum of squared gradients."""
    decay, epsilon = node.number("decay_factor", 0.0), node.number("epsilon", 0.0)

    def step(a: _Arithmetic, x: Value, gradient: Value, states: Sequence[Value]) -> Sequence[Value]:
        rate = a.div(a.rate, a.plus(1, a.times(decay, a.counted(a.rate))))
        regularized_gradient = a.regularized(x, gradient)
        square_sum = a.add(states[0], a.mul(regularized_gradient, regularized_gradient))
        return a.sub(x, a.div(a.mul(rate, regularized_gradient), a.plus(epsilon, a.root(square_sum)))), square_sum

    return _for_each(node, 1, step)


@operator("Adam", domain=_DOMAIN)
def adam(node: Node) -> Sequence[Value]:
    """Convert Adam: bias-corrected running means of the gradients and of their squares."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    epsilon, post_decay = node.number("epsilon", 0.0), node.number("norm_coefficient_post", 0.0)

    def bias_correction(arithmetic: _Arithmetic, decay: float) -> Value:
        power_op = POWER
        decay_to_count = node.step(
            power_op, node.scalar_like(decay, arithmetic.rate), arithmetic.counted(arithmetic.rate)
        )
        return arithmetic.sub(node.scalar_like(1, arithmetic.rate), decay_to_count)

    def step(a: _Arithmetic, x: Value, gradient: Value, states: Sequence[Value]) -> Sequence[Value]:
        regularized_gradient = a.regularized(x, gradient)
        mean, square_mean = (
            a.mixed(alpha, states[0], regularized_gradient),
            a.mixed(beta, states[1], a.mul(regularized_gradient, regularized_gradient)),
        )
        corrected_rate = a.div(a.mul(a.rate, a.root(bias_correction(a, beta))), bias_correction(a, alpha))
        rate = a.unless_first(corrected_rate, a.rate)
        new_x = a.sub(x, a.mul(rate, a.div(mean, a.plus(epsilon, a.root(square_mean)))))
        return a.times(1 - post_decay, new_x), mean, square_mean

    return _for_each(node, 2, step)


@operator("Momentum", domain=_DOMAIN)
def momentum(node: Node) -> Sequence[Value]:
    """Convert Momentum: a running sum of gradients, with Nesterov's look-ahead as an option."""
    alpha, beta, mode = node.number("alpha"), node.number("beta"), node.text("mode")
    if mode not in {"standard", "nesterov"}:
        raise ParseError(f"its mode is {mode!r}; expected standard or nesterov")

    def step(a: _Arithmetic, x: Value, gradient: Value, states: Sequence[Value]) -> Sequence[Value]:
        regularized_gradient = a.regularized(x, gradient)
        gradient_share = a.unless_first(
            node.scalar_like(beta, regularized_gradient), node.scalar_like(1, regularized_gradient)
        )
        direction = a.add(a.times(alpha, states[0]), a.mul(gradient_share, regularized_gradient))
        step_direction = direction if mode == "standard" else a.add(regularized_gradient, a.times(alpha, direction))
        return a.sub(x, a.mul(a.rate, step_direction)), direction

    return _for_each(node, 1, step)
