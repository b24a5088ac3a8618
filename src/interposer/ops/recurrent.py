"""Recurrent layers without gates: simple RNNs (single step or sequence) and SVDF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import TensorInfo, TensorShape
from interposer.ops.named_sizes import Infos, by_name, dimension_problems, matrix_operations, shape_of, sizes_by_letter

__all__ = [
    "ActivationRounding",
    "BidirectionalSequenceRnn",
    "FusedActivation",
    "Rnn",
    "Svdf",
    "UnidirectionalSequenceRnn",
]


class FusedActivation(Enum):
    """The activation function of a recurrent layer; the numbers are those of TFLite, NNAPI and Arm NN."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGMOID = 6


class ActivationRounding(Enum):
    """How a recurrent layer with quantized weights rounds activations to 8 bits: not at all, or with these scales.

    Each row is rounded as by `DynamicFakeQuantization`, before it is multiplied with a matrix of weights.
    """

    NONE = "none"
    SYMMETRIC = "symmetric"
    ASYMMETRIC = "asymmetric"


def without_rounding(op: Op) -> Op | None:
    """Return a recurrent operator that rounds activations as one that does not; None for all other operators."""
    rounding = getattr(op, "activation_rounding", ActivationRounding.NONE)
    return None if rounding is ActivationRounding.NONE else op.replace(activation_rounding=ActivationRounding.NONE)


ROUNDING_DOC: Final = (
    "Rounding of each row to 8 bits before it is multiplied with weights, as in TFLite's hybrid kernels."
)

DIRECTIONS: Final = ("forward", "backward")


def sequence_word(time_major: bool, last_letter: str) -> str:
    """Return the letters of a sequence's dimensions, "TB" or "BT" (T steps, B batches) and the letter `last_letter`.

    With `time_major`, time is the first axis. `named_sizes` explains such words.
    """
    return f"TB{last_letter}" if time_major else f"BT{last_letter}"


def of_direction(infos: Infos, direction: str) -> dict[str, TensorInfo | None]:
    """Return the infos of one direction's operands by their names without the prefix, "forward_" or "backward_"."""
    return {
        name.removeprefix(f"{direction}_"): info for name, info in infos.items() if name.startswith(f"{direction}_")
    }


def frame_problems(infos: Infos, time_major: bool) -> Iterator[str]:
    """Yield an error if the operands "input" and "aux_input" differ in batch size or number of steps.

    With `time_major`, the first axis is time, else the batch.
    """
    words = {"input": sequence_word(time_major, "I"), "aux_input": sequence_word(time_major, "A")}
    yield from dimension_problems({name: infos[name] for name in words}, words)


def aux_problems(infos: Infos, weights: Sequence[str]) -> Iterator[str]:
    """Yield an error if only some of these auxiliary weights are connected, or if they are without an auxiliary input.

    `infos` has the operands by name, and `weights` the names of the auxiliary weights of both directions.
    """
    connected_names = [name for name in weights if infos[name] is not None]
    absent_names = [name for name in weights if infos[name] is None]
    if connected_names and absent_names:
        yield f"{absent_names[0]} is not connected, but {connected_names[0]} is"
    elif connected_names and infos["aux_input"] is None:
        yield f"{connected_names[0]} is connected, but aux_input is not"


_STEP_WORDS: Final = {
    "input": "BI",
    "weights": "UI",
    "aux_input": "BA",
    "aux_weights": "UA",
    "recurrent_weights": "UU",
    "bias": "U",
    "hidden_state_in": "BU",
}


def _sequence_words(time_major: bool) -> dict[str, str]:
    return _STEP_WORDS | {"input": sequence_word(time_major, "I"), "aux_input": sequence_word(time_major, "A")}


@op(register=False)
class _OneDirection(Op):
    """Base class of `Rnn` and `UnidirectionalSequenceRnn`, with the operands, attributes and checks that both have."""

    input = operand()
    weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_weights = operand(role=Role.WEIGHTS, rank=2)
    bias = operand(role=Role.BIAS, rank=1)
    hidden_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")

    activation_func: FusedActivation = attribute(
        default=FusedActivation.TANH, doc="The activation function of the hidden state."
    )

    def _words(self) -> Mapping[str, str]:
        return _STEP_WORDS

    def check(self, *operands: Any) -> Iterator[str]:
        yield from dimension_problems(by_name(self, operands), self._words())

    def _infos(self, operands: Sequence[TensorInfo | None]) -> tuple[TensorInfo, TensorInfo]:
        """Return the inferred infos of the output and of the hidden state; `operands` are the operands' infos."""
        words, infos = self._words(), by_name(self, operands)
        sizes, input = sizes_by_letter(infos, words), infos["input"]
        assert input is not None
        output = input.with_shape(shape_of(words["input"][:-1] + "U", sizes))
        state = infos["hidden_state_in"] or input
        return output, state.with_shape(shape_of("BU", sizes))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return matrix_operations(self, inputs)


@op
class Rnn(_OneDirection):
    """One step of a simple recurrent layer: act(weights @ input + recurrent_weights @ hidden_state_in + bias).

    Shapes (B batches, I inputs, U units):
        input: (B, I)
        weights: (U, I)
        recurrent_weights: (U, U)
        bias: (U,)
        hidden_state_in, hidden_state_out, output: (B, U)

    Example:
        >>> op = Rnn(activation_func=FusedActivation.RELU)
        >>> weights = {"weights": [[2.0], [-2.0]], "recurrent_weights": [[1.0, 1.0], [0.0, 1.0]], "bias": [0.0, 0.5]}
        >>> hidden_state_out, output = compute(op, [[1.0]], hidden_state_in=[[3.0, 4.0]], **weights)
        >>> output.tolist(), hidden_state_out.tolist()
        ([[9.0, 2.5]], [[9.0, 2.5]])

    Source:
        TFLite RNN; NNAPI RNN.
    """

    input = operand(rank=2)
    hidden_state_out = result(rank=2)
    output = result(rank=2)

    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def infer(self, *operands: Any) -> tuple[TensorInfo, TensorInfo]:
        output, state = self._infos(operands)
        return state, output


@op
class UnidirectionalSequenceRnn(_OneDirection):
    """A simple recurrent layer over a sequence: `Rnn` applied step by step.

    Shapes (T steps, B batches, I inputs, U units):
        input: (B, T, I), with ``time_major`` (T, B, I)
        weights: (U, I)
        recurrent_weights: (U, U)
        bias: (U,)
        hidden_state_in, hidden_state_out: (B, U)
        output: (B, T, U), with ``time_major`` (T, B, U)

    Example:
        >>> op = UnidirectionalSequenceRnn(activation_func=FusedActivation.RELU)
        >>> weights = {"weights": [[1.0]], "recurrent_weights": [[0.5]], "bias": [0.0]}
        >>> output, hidden_state_out = compute(op, [[[8.0], [0.0], [1.0]]], **weights)
        >>> output.tolist(), hidden_state_out.tolist()
        ([[[8.0], [4.0], [3.0]]], [[3.0]])

    Source:
        TFLite UNIDIRECTIONAL_SEQUENCE_RNN; NNAPI UNIDIRECTIONAL_SEQUENCE_RNN.
    """

    input = operand(rank=3)
    output = result(rank=3)
    hidden_state_out = result(rank=2, doc="The state after the last step.")

    time_major: bool = attribute(default=False, doc="The first axis is time, not the batch.")
    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def _words(self) -> Mapping[str, str]:
        return _sequence_words(self.time_major)

    def infer(self, *operands: Any) -> tuple[TensorInfo, TensorInfo]:
        return self._infos(operands)


@op
class BidirectionalSequenceRnn(Op):
    """A bidirectional simple recurrent layer: one RNN runs forward in time, the other backward.

    If the auxiliary input has weights, its product with them is added in both directions. If it has no weights, it
    replaces the input of the backward direction.

    Shapes (T steps, B batches, I inputs, A auxiliary inputs, U forward units, V backward units):
        input: (B, T, I), with ``time_major`` (T, B, I)
        forward_weights: (U, I)
        forward_recurrent_weights: (U, U)
        forward_bias: (U,)
        forward_hidden_state_in, forward_hidden_state_out: (B, U)
        backward_...: the same with V, backward_weights (V, A) if the auxiliary input has no weights
        aux_input: (B, T, A), with ``time_major`` (T, B, A)
        forward_aux_weights: (U, A)
        backward_aux_weights: (V, A)
        output: (B, T, U), with ``merge_outputs`` (B, T, U + V); with ``time_major`` (T, B, ...)
        backward_output, absent with ``merge_outputs``: (B, T, V), with ``time_major`` (T, B, V)

    Example:
        >>> op = BidirectionalSequenceRnn(activation_func=FusedActivation.RELU, merge_outputs=True)
        >>> forward = {"forward_weights": [[1.0]], "forward_recurrent_weights": [[0.5]], "forward_bias": [0.0]}
        >>> backward = {"backward_weights": [[1.0]], "backward_recurrent_weights": [[0.5]], "backward_bias": [0.0]}
        >>> output, *states = compute(op, [[[8.0], [0.0], [1.0]]], **forward, **backward)
        >>> output.tolist()
        [[[8.0, 8.25], [4.0, 0.5], [3.0, 1.0]]]
        >>> [state.tolist() for state in states]
        [[[3.0]], [[8.25]]]

    Source:
        TFLite BIDIRECTIONAL_SEQUENCE_RNN; NNAPI BIDIRECTIONAL_SEQUENCE_RNN, whose second output is the last one here.
    """

    input = operand(rank=3)
    forward_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_recurrent_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_bias = operand(role=Role.BIAS, rank=1)
    forward_hidden_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    backward_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_recurrent_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_bias = operand(role=Role.BIAS, rank=1)
    backward_hidden_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    aux_input = operand(rank=3, optional=True)
    forward_aux_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_aux_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    output = result(rank=3, doc="The forward direction's output, or both along the last axis.")
    forward_hidden_state_out = result(rank=2, doc="The state after the last step.")
    backward_hidden_state_out = result(rank=2, doc="The state after the first step, which is processed last.")
    backward_output = result(rank=3, doc="Only without ``merge_outputs``.")

    activation_func: FusedActivation = attribute(
        default=FusedActivation.TANH, doc="The activation function of the hidden state."
    )
    time_major: bool = attribute(default=False, doc="The first axis is time, not the batch.")
    merge_outputs: bool = attribute(default=False, doc="Concatenate both directions' outputs into one tensor.")
    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def num_results(self) -> int:
        return 3 if self.merge_outputs else 4

    def _by_direction(self, operands: Sequence[TensorInfo | None]) -> list[dict[str, TensorInfo | None]]:
        """Return the infos of the operands of the forward and of the backward direction, by name without the prefix.

        "input" and "aux_input" are the tensors that the direction reads.
        """
        infos = by_name(self, operands)
        forward_infos, backward_infos = (of_direction(infos, direction) for direction in DIRECTIONS)
        aux_has_weights = infos["forward_aux_weights"] is not None
        aux = infos["aux_input"]
        forward_inputs = {"input": infos["input"], "aux_input": aux if aux_has_weights else None}
        backward_inputs = forward_inputs if aux_has_weights or aux is None else {"input": aux, "aux_input": None}
        return [forward_inputs | forward_infos, backward_inputs | backward_infos]

    def check(self, *operands: Any) -> Iterator[str]:
        infos = by_name(self, operands)
        yield from frame_problems(infos, self.time_major)
        yield from aux_problems(infos, ["forward_aux_weights", "backward_aux_weights"])
        for direction, direction_infos in zip(DIRECTIONS, self._by_direction(operands), strict=True):
            for error in dimension_problems(direction_infos, _sequence_words(self.time_major)):
                yield f"{direction}: {error}"

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        words = _sequence_words(self.time_major)
        input: TensorInfo = operands[0]
        states = [
            (direction_infos["hidden_state_in"] or input).with_shape(
                shape_of("BU", sizes_by_letter(direction_infos, words))
            )
            for direction_infos in self._by_direction(operands)
        ]
        forward_width, backward_width = (state.shape[1] for state in states)
        frame = shape_of(words["input"][:-1], sizes_by_letter(self._by_direction(operands)[0], words))
        if self.merge_outputs:
            return input.with_shape((*frame, forward_width + backward_width)), *states
        return input.with_shape((*frame, forward_width)), *states, input.with_shape((*frame, backward_width))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return matrix_operations(self, inputs)


@op
class Svdf(Op):
    """SVDF: a recurrent layer whose weights over inputs and time are factored by a singular value decomposition.

    Each of F filters projects the input to one number, which is appended to the M - 1 stored ones. The weighted sum of
    these M numbers over time is the output of the filter. A unit is the sum of ``rank`` filters plus the bias, to which
    the activation function is applied.

    Shapes (B batches, I inputs, F filters, M remembered steps, U = F / ``rank`` units):
        input: (B, I)
        weights_feature: (F, I)
        weights_time: (F, M)
        bias: (U,)
        state_in, state_out: (B, F * M), the stored numbers of each filter, oldest first; the last element is
            reserved for the next step: it is ignored in ``state_in``, and zero in ``state_out``
        output: (B, U)

    Example:
        >>> state_out, output = compute(Svdf(), [[3.0]], [[2.0]], [[1.0, 10.0, 100.0]], state_in=[[4.0, 5.0, 0.0]])
        >>> output.tolist(), state_out.tolist()
        ([[654.0]], [[5.0, 6.0, 0.0]])

    Source:
        TFLite SVDF, whose state is moved on before a step, not after it; NNAPI SVDF.
    """

    input = operand(rank=2)
    weights_feature = operand(role=Role.WEIGHTS, rank=2)
    weights_time = operand(role=Role.WEIGHTS, rank=2)
    bias = operand(role=Role.BIAS, rank=1, optional=True)
    state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    state_out = result(rank=2)
    output = result(rank=2)

    rank: int = attribute(default=1, ge=1, doc="Number of filters that are summed for one unit.")
    activation_func: FusedActivation = attribute(
        default=FusedActivation.NONE, doc="The activation function of the output."
    )
    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def check(
        self,
        input: TensorInfo,
        weights_feature: TensorInfo,
        weights_time: TensorInfo,
        bias: TensorInfo | None,
        state_in: TensorInfo | None,
    ) -> Iterator[str]:
        infos = {"input": input, "weights_feature": weights_feature, "weights_time": weights_time}
        words = {"input": "BI", "weights_feature": "FI", "weights_time": "FM"}
        yield from dimension_problems(infos, words)
        sizes = sizes_by_letter(infos, words)
        if sizes["F"] % self.rank:
            yield f"weights_feature has {sizes['F']} filters; expected a multiple of the rank, {self.rank}"
        if sizes["M"] == 0:
            yield "weights_time has no time steps; expected at least one, that of the input"
        for name, info, expected in (
            ("bias", bias, TensorShape((sizes["F"] // self.rank,))),
            ("state_in", state_in, TensorShape((sizes["B"], sizes["F"] * sizes["M"]))),
        ):
            if info is not None and not expected.accepts(info.shape):
                yield f"{name} has shape {info.shape}; expected {expected}"

    def infer(
        self,
        input: TensorInfo,
        weights_feature: TensorInfo,
        weights_time: TensorInfo,
        bias: TensorInfo | None,
        state_in: TensorInfo | None,
    ) -> tuple[TensorInfo, TensorInfo]:
        infos = {"weights_feature": weights_feature, "weights_time": weights_time}
        sizes = sizes_by_letter(infos, {"weights_feature": "FI", "weights_time": "FM"})
        batch = input.shape[0]
        state = (state_in or input).with_shape((batch, sizes["F"] * sizes["M"]))
        return state, input.with_shape((batch, sizes["F"] // self.rank))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        _, feature, time, *_ = inputs
        assert feature is not None
        assert time is not None
        return 2 * int(outputs[1].shape[0]) * (int(feature.num_elements) + int(time.num_elements))
