"""Recurrent layers over sequences of different lengths, unidirectional or bidirectional (ONNX RNN, GRU, LSTM)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import DataType, TensorInfo, TensorShape
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.named_sizes import by_name, dimension_problems, matrix_operations, shape_of, sizes_by_letter
from interposer.ops.recurrent import sequence_word

__all__ = ["GruSequence", "LstmSequence", "RecurrentDirection", "RnnSequence"]


class RecurrentDirection(Enum):
    """The direction in which a layer processes sequences in time: forward, reverse, or both (bidirectional)."""

    FORWARD = "forward"
    REVERSE = "reverse"
    BIDIRECTIONAL = "bidirectional"

    @property
    def reversals(self) -> tuple[bool, ...]:
        """For each direction that is computed, True if it processes the sequence in reverse."""
        return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[self.value]


@op(register=False)
class _Sequence(Op):
    """Base class of ONNX's recurrent layers: operands, attributes, checks and shape inference.

    A subclass sets `gates`, the number of gates, and `defaults`, the default activation functions of one direction.
    """

    gates: ClassVar[int]
    defaults: ClassVar[tuple[ActivationFunction, ...]]

    input = operand(rank=3)
    weights = operand(role=Role.WEIGHTS, rank=3)
    recurrent_weights = operand(role=Role.WEIGHTS, rank=3)
    bias = operand(role=Role.BIAS, rank=2, optional=True)
    sequence_lengths = operand(
        role=Role.SIZES,
        rank=1,
        dtypes={DataType.INT32, DataType.INT64},
        optional=True,
        doc="The length of each sequence; all steps if absent.",
    )
    hidden_state_in = operand(rank=3, optional=True, doc="Zeros if absent.")
    output = result(rank=4, doc="Zeros after the end of a sequence.")
    hidden_state_out = result(rank=3, doc="The state after the last step of every sequence.")

    direction: RecurrentDirection = attribute(
        default=RecurrentDirection.FORWARD, doc="Forward, reverse or bidirectional."
    )
    time_major: bool = attribute(default=True, doc="The first axis is time, not the batch.")
    activations: tuple[ActivationFunction, ...] = attribute(
        default=(), doc="The activation functions of the first, then of the second direction; empty for the defaults."
    )
    activation_a: tuple[float, ...] = attribute(
        default=(), doc="The first parameters of the activation functions; empty for those of Activation."
    )
    activation_b: tuple[float, ...] = attribute(
        default=(), doc="The second parameters of the activation functions; empty for those of Activation."
    )
    clip: float = attribute(default=0.0, ge=0.0, doc="Bound of the arguments of the gates' functions; 0 means none.")

    @property
    def directions(self) -> int:
        """The number of directions: 1 or 2."""
        return len(self.direction.reversals)

    def functions(self) -> tuple[tuple[ActivationFunction, float, float], ...]:
        """Return the activation functions of all directions, each with its parameters a and b.

        Those of the first direction come first.
        """
        functions = self.activations or self.defaults * self.directions
        by_default = [Activation(function) for function in functions]
        a = self.activation_a or [activation.a for activation in by_default]
        b = self.activation_b or [activation.b for activation in by_default]
        return tuple(zip(functions, a, b, strict=True))

    def _words(self) -> Mapping[str, str]:
        state = "DBH" if self.time_major else "BDH"
        words = {"weights": "DKI", "recurrent_weights": "DKH", "sequence_lengths": "B"}
        states = dict.fromkeys(("hidden_state_in", "cell_state_in"), state)
        return {"input": sequence_word(self.time_major, "I")} | words | states

    def check(self, *operands: Any) -> Iterator[str]:
        infos = by_name(self, operands)
        yield from self._function_problems()
        yield from dimension_problems(infos, self._words())
        sizes = sizes_by_letter(infos, self._words())
        directions, rows, units = sizes["D"], sizes["K"], sizes["H"]
        if not TensorShape((self.directions, self.gates * units)).accepts(TensorShape((directions, rows))):
            expected = f"({self.directions}, {self.gates} * H, I), where H is {units}, from recurrent_weights"
            yield f"weights has shape {operands[1].shape}; expected {expected}"
        for name, width in (("bias", 2 * self.gates * units), ("peephole_weights", 3 * units)):
            info, shape = infos.get(name), TensorShape((self.directions, width))
            if info is not None and not shape.accepts(info.shape):
                yield f"{name} has shape {info.shape}; expected {shape}"

    def _function_problems(self) -> Iterator[str]:
        expected = len(self.defaults) * self.directions
        if len(self.activations) not in {0, expected}:
            yield f"activations has {len(self.activations)} functions; expected {expected}, or none"
        for name in ("activation_a", "activation_b"):
            if len(getattr(self, name)) not in {0, expected}:
                yield f"{name} has {len(getattr(self, name))} numbers; expected {expected}, or none"

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        sizes, input = sizes_by_letter(by_name(self, operands), self._words()), operands[0]
        sizes |= {"D": self.directions}
        states = [input.with_shape(shape_of(self._words()["hidden_state_in"], sizes))] * (len(self.results) - 1)
        return input.with_shape(shape_of("TDBH" if self.time_major else "BTDH", sizes)), *states

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return matrix_operations(self, inputs)


@op
class RnnSequence(_Sequence):
    """A simple recurrent layer over sequences: H' = f(W @ x + R @ H + b).

    Shapes (T steps, B sequences, I inputs, H units, D directions: 1, or 2 if bidirectional):
        input: (T, B, I)
        weights: (D, H, I)
        recurrent_weights: (D, H, H)
        bias: (D, 2 * H), of the input, then of the state
        sequence_lengths: (B,)
        hidden_state_in, hidden_state_out: (D, B, H)
        output: (T, D, B, H)
        Without ``time_major``, input (B, T, I), output (B, T, D, H) and the states (B, D, H).

    Example:
        >>> op = RnnSequence(activations=(ActivationFunction.RELU,))
        >>> weights = {"weights": [[[1.0]]], "recurrent_weights": [[[0.5]]]}
        >>> output, state = compute(op, [[[8.0]], [[0.0]], [[1.0]]], sequence_lengths=[2], **weights)
        >>> output.tolist(), state.tolist()
        ([[[[8.0]]], [[[4.0]]], [[[0.0]]]], [[[4.0]]])

    Source:
        ONNX RNN-22.
    """

    gates: ClassVar[int] = 1
    defaults: ClassVar[tuple[ActivationFunction, ...]] = (ActivationFunction.TANH,)


@op
class GruSequence(_Sequence):
    """A gated recurrent unit (GRU) layer over sequences; the activation functions are f and g.

    The gates are z (update), r (reset) and h (hidden); biases are omitted::

        z = f(W_z @ x + R_z @ H)
        r = f(W_r @ x + R_r @ H)
        h = g(W_h @ x + R_h @ (r * H)), with ``linear_before_reset`` g(W_h @ x + r * (R_h @ H))
        H' = (1 - z) * h + z * H

    Shapes (T steps, B sequences, I inputs, H units, D directions: 1, or 2 if bidirectional):
        input: (T, B, I)
        weights: (D, 3 * H, I), the gates z, r, h
        recurrent_weights: (D, 3 * H, H)
        bias: (D, 6 * H), of the input, then of the state (also reset with ``linear_before_reset``)
        sequence_lengths: (B,)
        hidden_state_in, hidden_state_out: (D, B, H)
        output: (T, D, B, H)
        Without ``time_major``, input (B, T, I), output (B, T, D, H) and the states (B, D, H).

    Example:
        >>> weights = {"weights": [[[0.0]] * 3], "recurrent_weights": [[[0.0]] * 3]}  # the gates are half open
        >>> output, state = compute(GruSequence(), [[[0.0]], [[0.0]]], hidden_state_in=[[[8.0]]], **weights)
        >>> output.tolist(), state.tolist()
        ([[[[4.0]]], [[[2.0]]]], [[[2.0]]])

    Source:
        ONNX GRU-22.
    """

    gates: ClassVar[int] = 3
    defaults: ClassVar[tuple[ActivationFunction, ...]] = (ActivationFunction.SIGMOID, ActivationFunction.TANH)

    linear_before_reset: bool = attribute(
        default=False, doc="Apply the reset gate to the product with the state, not to the state."
    )


@op
class LstmSequence(_Sequence):
    """An LSTM layer over sequences; the activation functions are f, g and h.

    With ``dynamic_quantization``, x and H are rounded before they are multiplied with weights. The scale of x follows
    from all steps up to the end of the longest sequence. The scale of H follows, in each step, from the initial
    states or from the outputs of the step before, which are zero after the end of a sequence.

    The gates are i (input), o (output), f (forget) and c (cell), and P are peephole weights; biases are omitted::

        i = f(W_i @ x + R_i @ H + P_i * C)
        f = f(W_f @ x + R_f @ H + P_f * C), with ``input_forget`` 1 - i
        C' = f * C + i * g(W_c @ x + R_c @ H)
        o = f(W_o @ x + R_o @ H + P_o * C')
        H' = o * h(C')

    Shapes (T steps, B sequences, I inputs, H units, D directions: 1, or 2 if bidirectional):
        input: (T, B, I)
        weights: (D, 4 * H, I), the gates i, o, f, c
        recurrent_weights: (D, 4 * H, H)
        bias: (D, 8 * H), of the input, then of the state
        sequence_lengths: (B,)
        hidden_state_in, hidden_state_out, cell_state_in, cell_state_out: (D, B, H)
        peephole_weights: (D, 3 * H), for i, o, f
        output: (T, D, B, H)
        Without ``time_major``, input (B, T, I), output (B, T, D, H) and the states (B, D, H).

    Example:
        >>> sigmoid, relu = ActivationFunction.SIGMOID, ActivationFunction.RELU
        >>> op = LstmSequence(activations=(sigmoid, relu, relu))
        >>> weights = {"weights": [[[0.0], [0.0], [0.0], [4.0]]], "recurrent_weights": [[[0.0]] * 4]}
        >>> output, hidden_state, cell_state = compute(op, [[[1.0]], [[0.0]]], **weights)  # the gates are half open
        >>> output.tolist(), cell_state.tolist()
        ([[[[1.0]]], [[[0.5]]]], [[[1.0]]])

    Source:
        ONNX LSTM-22; ONNX Runtime's DynamicQuantizeLSTM, with ``dynamic_quantization`` and quantized weights.
    """

    gates: ClassVar[int] = 4
    defaults: ClassVar[tuple[ActivationFunction, ...]] = (
        ActivationFunction.SIGMOID,
        ActivationFunction.TANH,
        ActivationFunction.TANH,
    )

    cell_state_in = operand(rank=3, optional=True, doc="Zeros if absent.")
    peephole_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    cell_state_out = result(rank=3, doc="The cell state after the last step of every sequence.")

    input_forget: bool = attribute(default=False, doc="Couple input and forget gate.")
    dynamic_quantization: bool = attribute(
        default=False,
        doc="Round the input, and the hidden state before each step, to 8 bits as DynamicQuantize and Dequantize do.",
    )
