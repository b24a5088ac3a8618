"""Long short-term memory (LSTM): one step, a sequence, and a sequence in both directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import TensorInfo, TensorShape
from interposer.ops.named_sizes import Infos, by_name, dimension_problems, matrix_operations, shape_of, sizes_by_letter
from interposer.ops.recurrent import (
    DIRECTIONS,
    ROUNDING_DOC,
    ActivationRounding,
    FusedActivation,
    aux_problems,
    frame_problems,
    of_direction,
    sequence_word,
)

__all__ = ["BidirectionalSequenceLstm", "Lstm", "UnidirectionalSequenceLstm"]

_GATES: Final = ("input", "forget", "cell", "output")
_AXIS_LETTERS: Final = {
    "input": "BI",
    "output_state_in": "BO",
    "cell_state_in": "BU",
    **{f"input_to_{gate}_weights": "UI" for gate in _GATES},
    **{f"aux_input_to_{gate}_weights": "UA" for gate in _GATES},
    **{f"recurrent_to_{gate}_weights": "UO" for gate in _GATES},
    **{f"cell_to_{gate}_weights": "U" for gate in _GATES},
    **dict.fromkeys(("input_gate_bias", "forget_gate_bias", "cell_bias", "output_gate_bias"), "U"),
    "projection_weights": "OU",
    "projection_bias": "O",
    **{f"{gate}_layer_norm_weights": "U" for gate in _GATES},
}


class Feature(NamedTuple):
    """An optional feature of an LSTM, such as projection: if it is used, and why, for error messages.

    The reason is a phrase such as "projection_enabled is False" or "projection_weights is not connected".
    """

    on: bool
    reason: str


class Features(NamedTuple):
    """The optional features of an LSTM, which determine its operands and their shapes."""

    cifg: Feature
    peephole: Feature
    projection: Feature
    layer_norm: Feature

    @classmethod
    def of_operands(cls, infos: Infos, prefix: str) -> Features:
        """Return the features of one direction of a bidirectional LSTM: they are used if their operands are connected.

        The operands' names in `infos` have no prefix; `prefix`, such as "forward_", is added to them in messages.
        """

        def feature_of_operand(name: str) -> Feature:
            is_connected = infos.get(name) is not None
            return Feature(is_connected, f"{prefix}{name} is {'' if is_connected else 'not '}connected")

        input_gate = feature_of_operand("input_to_input_weights")
        return cls(
            input_gate._replace(on=not input_gate.on),
            feature_of_operand("cell_to_output_weights"),
            feature_of_operand("projection_weights"),
            feature_of_operand("output_layer_norm_weights"),
        )

    def words(self, sequence: str) -> dict[str, str]:
        """Return every operand's shape as a word with a letter for each dimension, such as "UI" for (units, inputs).

        `sequence` is the word of the input. Without projection, outputs have the letter of the units.
        """
        words = _AXIS_LETTERS | {"input": sequence, "aux_input": f"{sequence[:-1]}A"}
        return words if self.projection.on else {name: word.replace("O", "U") for name, word in words.items()}

    def problems(self, infos: Infos, prefix: str = "") -> Iterator[str]:
        """Yield an error for every operand that is missing or superfluous with these features.

        `infos` has the operands by name without `prefix`, which messages put before the name.
        """
        if self.cifg.on and infos.get("aux_input_to_input_weights") is not None:
            yield f"{prefix}aux_input_to_input_weights is connected, but {self.cifg.reason}"
        for names, feature, expected in self._rules():
            for name in names:
                if (infos.get(name) is not None) != expected:
                    yield f"{prefix}{name} is {'not ' if expected else ''}connected, but {feature.reason}"
        if infos.get("projection_bias") is not None and not self.projection.on:
            yield f"{prefix}projection_bias is connected, but {self.projection.reason}"

    def _rules(self) -> Iterator[tuple[Sequence[str], Feature, bool]]:
        """Yield names of operands, the feature that decides about them, and whether they must be connected."""
        cifg, peephole, projection, norm = self
        yield ("input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias"), cifg, not cifg.on
        yield ("cell_to_forget_weights", "cell_to_output_weights"), peephole, peephole.on
        yield ("projection_weights",), projection, projection.on
        yield ("forget_layer_norm_weights", "cell_layer_norm_weights", "output_layer_norm_weights"), norm, norm.on
        for name, feature in (("cell_to_input_weights", peephole), ("input_layer_norm_weights", norm)):
            yield (name,), cifg if feature.on and cifg.on else feature, feature.on and not cifg.on


@op(register=False)
class LstmOperands(Op):
    """Base class of the unidirectional LSTMs: the operands of Arm NN's LstmInputParams, and attributes for features.

    It checks the operands' shapes and which of them are connected.
    """

    input = operand(rank=2)
    output_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    cell_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    input_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True, doc="Absent with ``cifg_enabled``.")
    input_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    input_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    input_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True, doc="Absent with ``cifg_enabled``.")
    recurrent_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    cell_to_input_weights = operand(
        role=Role.WEIGHTS, rank=1, optional=True, doc="Only with ``peephole_enabled``, and not with ``cifg_enabled``."
    )
    cell_to_forget_weights = operand(role=Role.WEIGHTS, rank=1, optional=True, doc="Only with ``peephole_enabled``.")
    cell_to_output_weights = operand(role=Role.WEIGHTS, rank=1, optional=True, doc="Only with ``peephole_enabled``.")
    input_gate_bias = operand(role=Role.BIAS, rank=1, optional=True, doc="Absent with ``cifg_enabled``.")
    forget_gate_bias = operand(role=Role.BIAS, rank=1)
    cell_bias = operand(role=Role.BIAS, rank=1)
    output_gate_bias = operand(role=Role.BIAS, rank=1)
    projection_weights = operand(role=Role.WEIGHTS, rank=2, optional=True, doc="Only with ``projection_enabled``.")
    projection_bias = operand(role=Role.BIAS, rank=1, optional=True, doc="Optional, only with ``projection_enabled``.")
    input_layer_norm_weights = operand(
        role=Role.PARAMETER,
        rank=1,
        optional=True,
        doc="Only with ``layer_norm_enabled``, and not with ``cifg_enabled``.",
    )
    forget_layer_norm_weights = operand(
        role=Role.PARAMETER, rank=1, optional=True, doc="Only with ``layer_norm_enabled``."
    )
    cell_layer_norm_weights = operand(
        role=Role.PARAMETER, rank=1, optional=True, doc="Only with ``layer_norm_enabled``."
    )
    output_layer_norm_weights = operand(
        role=Role.PARAMETER, rank=1, optional=True, doc="Only with ``layer_norm_enabled``."
    )

    cifg_enabled: bool = attribute(
        default=True, doc="Couple input and forget gate: the input gate is 1 minus the forget gate."
    )
    peephole_enabled: bool = attribute(default=False, doc="Add peephole connections from the cell state to the gates.")
    projection_enabled: bool = attribute(default=False, doc="Project the units to another number of outputs.")
    layer_norm_enabled: bool = attribute(
        default=False, doc="Apply layer normalization over the units before every gate's function."
    )

    def _features(self) -> Features:
        names = ("cifg_enabled", "peephole_enabled", "projection_enabled", "layer_norm_enabled")
        return Features(*(Feature(getattr(self, name), f"{name} is {getattr(self, name)}") for name in names))

    def _words(self) -> Mapping[str, str]:
        return self._features().words("BI")

    def check(self, *operands: Any) -> Iterator[str]:
        infos = by_name(self, operands)
        yield from self._features().problems(infos)
        yield from dimension_problems(infos, self._words())

    def _infos(self, operands: Sequence[TensorInfo | None]) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
        """Return the inferred infos of output state, cell state and output; `operands` are the operands' infos."""
        words, infos = self._words(), by_name(self, operands)
        sizes, input = sizes_by_letter(infos, words), infos["input"]
        assert input is not None
        output_state = infos["output_state_in"] or input
        cell_state = infos["cell_state_in"] or input
        output_letter = words["output_state_in"][-1]
        return (
            output_state.with_shape(shape_of(f"B{output_letter}", sizes)),
            cell_state.with_shape(shape_of("BU", sizes)),
            output_state.with_shape(shape_of(words["input"][:-1] + output_letter, sizes)),
        )

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return matrix_operations(self, inputs)


@op
class Lstm(LstmOperands):
    """One step of an LSTM.

    The gates are i (input), f (forget), c (cell) and o (output), and g is ``activation_func``::

        i = sigmoid(W_i @ input + R_i @ output_state_in + P_i * cell_state_in + b_i)  # with CIFG: 1 - f
        f = sigmoid(W_f @ input + R_f @ output_state_in + P_f * cell_state_in + b_f)
        cell_state_out = clip(f * cell_state_in + i * g(W_c @ input + R_c @ output_state_in + b_c))
        o = sigmoid(W_o @ input + R_o @ output_state_in + P_o * cell_state_out + b_o)
        output = output_state_out = o * g(cell_state_out)  # with projection: clip(projection @ (o * g(...)) + bias)

    With layer normalization, the sum before the bias is normalized to mean 0 and variance 1 over the units, and
    multiplied by the layer normalization weights of the gate.

    Shapes (B batches, I inputs, U units, O outputs; O = U without projection):
        input: (B, I)
        output_state_in, output_state_out, output: (B, O)
        cell_state_in, cell_state_out: (B, U)
        input_to_..._weights: (U, I)
        recurrent_to_..._weights: (U, O)
        cell_to_..._weights, ..._bias, ..._layer_norm_weights: (U,)
        projection_weights: (O, U)
        projection_bias: (O,)
        scratch: (B, 4 * U), the gates input, cell, forget and output; with CIFG (B, 3 * U), without the input gate

    Example:
        >>> needed = [slot for slot in Lstm.operands[1:] if not slot.optional]
        >>> weights = {slot.name: np.zeros((1,) * slot.rank, np.float32) for slot in needed}
        >>> weights["input_to_cell_weights"] = [[4.0]]
        >>> scratch, *results = compute(Lstm(), [[1.0]], cell_state_in=[[2.0]], **weights)  # the gates are half open
        >>> [state.tolist() for state in results]
        [[[1.5]], [[3.0]], [[1.5]]]

    Source:
        TFLite LSTM; NNAPI LSTM; Arm NN LstmDescriptor, LstmInputParams.
    """

    scratch = result(rank=2)
    output_state_out = result(rank=2)
    cell_state_out = result(rank=2)
    output = result(rank=2)

    activation_func: FusedActivation = attribute(
        default=FusedActivation.RELU, doc="Activation of the cell's input and output; usually TANH."
    )
    clipping_thres_cell: float = attribute(default=0.0, ge=0.0, doc="Bound of the cell state; 0 means none.")
    clipping_thres_proj: float = attribute(default=0.0, ge=0.0, doc="Bound of the projection; 0 means none.")
    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        output_state, cell_state, output = self._infos(operands)
        batch, units = cell_state.shape
        input: TensorInfo = operands[0]
        return input.with_shape((batch, units * (3 if self.cifg_enabled else 4))), output_state, cell_state, output


@op
class UnidirectionalSequenceLstm(LstmOperands):
    """An LSTM over a sequence: `Lstm` applied step by step.

    With a quantized input, the arithmetic is that of `QLstm`; the last six attributes are only used in this case.

    Shapes (T steps, B batches, I inputs, U units, O outputs; O = U without projection):
        input: (B, T, I), with ``time_major`` (T, B, I)
        output: (B, T, O), with ``time_major`` (T, B, O)
        the others: as for `Lstm`

    Example:
        >>> needed = [slot for slot in UnidirectionalSequenceLstm.operands[1:] if not slot.optional]
        >>> weights = {slot.name: np.zeros((1,) * slot.rank, np.float32) for slot in needed}
        >>> weights["input_to_cell_weights"] = [[4.0]]
        >>> results = compute(UnidirectionalSequenceLstm(), [[[1.0], [0.0]]], **weights)  # the gates are half open
        >>> [state.tolist() for state in results]
        [[[[1.0], [0.5]]], [[0.5]], [[1.0]]]

    Source:
        TFLite UNIDIRECTIONAL_SEQUENCE_LSTM; NNAPI UNIDIRECTIONAL_SEQUENCE_LSTM; Arm NN
        UnidirectionalSequenceLstmDescriptor, whose outputs come in another order.
    """

    input = operand(rank=3)
    output = result(rank=3)
    output_state_out = result(rank=2, doc="The output of the last step.")
    cell_state_out = result(rank=2, doc="The cell state after the last step.")

    activation_func: FusedActivation = attribute(
        default=FusedActivation.RELU, doc="Activation of the cell's input and output; usually TANH."
    )
    clipping_thres_cell: float = attribute(default=0.0, ge=0.0, doc="Bound of the cell state; 0 means none.")
    clipping_thres_proj: float = attribute(default=0.0, ge=0.0, doc="Bound of the projection; 0 means none.")
    time_major: bool = attribute(default=False, doc="The first axis is time, not the batch.")
    input_intermediate_scale: float = attribute(
        default=0.0, ge=0.0, doc="Scale of the input gate's sum before normalization."
    )
    forget_intermediate_scale: float = attribute(
        default=0.0, ge=0.0, doc="Scale of the forget gate's sum before normalization."
    )
    cell_intermediate_scale: float = attribute(
        default=0.0, ge=0.0, doc="Scale of the cell gate's sum before normalization."
    )
    output_intermediate_scale: float = attribute(
        default=0.0, ge=0.0, doc="Scale of the output gate's sum before normalization."
    )
    hidden_state_zero_point: int = attribute(
        default=0,
        ge=-128,
        le=127,
        doc="Zero point of the hidden state before projection; without projection, of the output.",
    )
    hidden_state_scale: float = attribute(
        default=0.0,
        ge=0.0,
        doc="Scale of the hidden state before projection; without projection, of the output (0: as declared).",
    )
    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def _words(self) -> Mapping[str, str]:
        return self._features().words(sequence_word(self.time_major, "I"))

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        output_state, cell_state, output = self._infos(operands)
        return output, output_state, cell_state


@op
class BidirectionalSequenceLstm(Op):
    """A bidirectional LSTM: two LSTMs over a sequence, one forward and one backward in time.

    Each direction has CIFG, peephole, projection and layer normalization if the corresponding operands are connected;
    see `Lstm`. If the auxiliary input has weights, its product with them is added to the gates of both directions. If
    it has no weights, it replaces the input of the backward direction.

    Shapes (T steps, B batches, I inputs, A auxiliary inputs; of each direction U units, O outputs):
        input: (B, T, I), with ``time_major`` (T, B, I)
        aux_input: (B, T, A), with ``time_major`` (T, B, A)
        ..._aux_input_to_..._weights: (U, A)
        the other operands of each direction: as for `Lstm`; those for the input (U, A) in the backward direction if
            the auxiliary input has no weights
        output: (B, T, O) of the forward direction, with ``merge_outputs`` (B, T, both O); with ``time_major`` T first
        backward_output, absent with ``merge_outputs``: (B, T, O), with ``time_major`` (T, B, O)
        ..._output_state_out: (B, O)
        ..._cell_state_out: (B, U)

    Example:
        >>> op = BidirectionalSequenceLstm(activation_func=FusedActivation.RELU, merge_outputs=True)
        >>> needed = [slot for slot in op.operands[1:] if not slot.optional]
        >>> weights = {slot.name: np.zeros((1,) * slot.rank, np.float32) for slot in needed}
        >>> weights |= {f"{direction}_input_to_cell_weights": [[4.0]] for direction in ("forward", "backward")}
        >>> output, *states = compute(op, [[[1.0], [0.0]]], **weights)  # the gates are half open
        >>> output.tolist()
        [[[1.0, 1.0], [0.5, 0.0]]]
        >>> [state.tolist() for state in states]
        [[[0.5]], [[1.0]], [[1.0]], [[2.0]]]

    Source:
        TFLite BIDIRECTIONAL_SEQUENCE_LSTM; NNAPI BIDIRECTIONAL_SEQUENCE_LSTM, whose second output is the last one here.
    """

    input = operand(rank=3)
    forward_input_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_input_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_input_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_input_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_recurrent_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_recurrent_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_recurrent_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_recurrent_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    forward_cell_to_input_weights = operand(role=Role.WEIGHTS, rank=1, optional=True)
    forward_cell_to_forget_weights = operand(role=Role.WEIGHTS, rank=1, optional=True)
    forward_cell_to_output_weights = operand(role=Role.WEIGHTS, rank=1, optional=True)
    forward_input_gate_bias = operand(role=Role.BIAS, rank=1, optional=True)
    forward_forget_gate_bias = operand(role=Role.BIAS, rank=1)
    forward_cell_bias = operand(role=Role.BIAS, rank=1)
    forward_output_gate_bias = operand(role=Role.BIAS, rank=1)
    forward_projection_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_projection_bias = operand(role=Role.BIAS, rank=1, optional=True)
    backward_input_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_input_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_input_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_input_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_recurrent_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_recurrent_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_recurrent_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_recurrent_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    backward_cell_to_input_weights = operand(role=Role.WEIGHTS, rank=1, optional=True)
    backward_cell_to_forget_weights = operand(role=Role.WEIGHTS, rank=1, optional=True)
    backward_cell_to_output_weights = operand(role=Role.WEIGHTS, rank=1, optional=True)
    backward_input_gate_bias = operand(role=Role.BIAS, rank=1, optional=True)
    backward_forget_gate_bias = operand(role=Role.BIAS, rank=1)
    backward_cell_bias = operand(role=Role.BIAS, rank=1)
    backward_output_gate_bias = operand(role=Role.BIAS, rank=1)
    backward_projection_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_projection_bias = operand(role=Role.BIAS, rank=1, optional=True)
    forward_output_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    forward_cell_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    backward_output_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    backward_cell_state_in = operand(rank=2, optional=True, doc="Zeros if absent.")
    aux_input = operand(rank=3, optional=True)
    forward_aux_input_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_aux_input_to_forget_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_aux_input_to_cell_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_aux_input_to_output_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_aux_input_to_input_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_aux_input_to_forget_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_aux_input_to_cell_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    backward_aux_input_to_output_weights = operand(role=Role.WEIGHTS, rank=2, optional=True)
    forward_input_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    forward_forget_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    forward_cell_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    forward_output_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    backward_input_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    backward_forget_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    backward_cell_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    backward_output_layer_norm_weights = operand(role=Role.PARAMETER, rank=1, optional=True)
    output = result(rank=3, doc="The forward direction's output, or both along the last axis.")
    forward_output_state_out = result(rank=2, doc="The forward direction's output of the last step.")
    forward_cell_state_out = result(rank=2)
    backward_output_state_out = result(rank=2, doc="The backward direction's output of the first step.")
    backward_cell_state_out = result(rank=2)
    backward_output = result(rank=3, doc="Only without ``merge_outputs``.")

    activation_func: FusedActivation = attribute(
        default=FusedActivation.TANH, doc="Activation of the cell's input and output."
    )
    clipping_thres_cell: float = attribute(default=0.0, ge=0.0, doc="Bound of the cell state; 0 means none.")
    clipping_thres_proj: float = attribute(default=0.0, ge=0.0, doc="Bound of the projection; 0 means none.")
    time_major: bool = attribute(default=False, doc="The first axis is time, not the batch.")
    merge_outputs: bool = attribute(default=False, doc="Concatenate both directions' outputs into one tensor.")
    activation_rounding: ActivationRounding = attribute(default=ActivationRounding.NONE, doc=ROUNDING_DOC)

    def num_results(self) -> int:
        return 5 if self.merge_outputs else 6

    def _by_direction(self, infos: Infos) -> Iterator[tuple[str, dict[str, TensorInfo | None], Features]]:
        """Yield for each direction its prefix, such as "forward_", the infos of its operands, and its features.

        The operands' names have no prefix; "input" and "aux_input" are the tensors that the direction reads.
        """
        aux, aux_has_weights = infos["aux_input"], infos["forward_aux_input_to_output_weights"] is not None
        inputs = {"input": infos["input"], "aux_input": aux if aux_has_weights else None}
        for direction in DIRECTIONS:
            direction_infos = inputs | of_direction(infos, direction)
            yield f"{direction}_", direction_infos, Features.of_operands(direction_infos, f"{direction}_")
            inputs = inputs if aux_has_weights or aux is None else {"input": aux, "aux_input": None}

    def check(self, *operands: Any) -> Iterator[str]:
        infos, sequence = by_name(self, operands), sequence_word(self.time_major, "I")
        yield from frame_problems(infos, self.time_major)
        yield from aux_problems(infos, self._aux_weights(infos))
        for prefix, direction_infos, features in self._by_direction(infos):
            yield from features.problems(direction_infos, prefix)
            yield from (
                f"{prefix[:-1]}: {error}" for error in dimension_problems(direction_infos, features.words(sequence))
            )

    def _aux_weights(self, infos: Infos) -> list[str]:
        """Return the names of the weights for the auxiliary input that must all be connected or all be absent.

        Those of an input gate are not among them if the direction has none (CIFG).
        """
        return [
            f"{direction}_aux_input_to_{gate}_weights"
            for direction in DIRECTIONS
            for gate in _GATES
            if gate != "input" or infos[f"{direction}_input_to_input_weights"] is not None
        ]

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        infos, sequence = by_name(self, operands), sequence_word(self.time_major, "I")
        input: TensorInfo = operands[0]
        states, widths, frame = [], [], TensorShape(())
        for _, direction_infos, features in self._by_direction(infos):
            words = features.words(sequence)
            sizes, output_letter = sizes_by_letter(direction_infos, words), words["output_state_in"][-1]
            frame = frame or shape_of(sequence[:-1], sizes)
            widths.append(sizes[output_letter])
            states.append(
                (direction_infos["output_state_in"] or input).with_shape(shape_of(f"B{output_letter}", sizes))
            )
            states.append((direction_infos["cell_state_in"] or input).with_shape(shape_of("BU", sizes)))
        forward_width, backward_width = widths
        if self.merge_outputs:
            return states[0].with_shape((*frame, forward_width + backward_width)), *states
        return states[0].with_shape((*frame, forward_width)), *states, states[2].with_shape((*frame, backward_width))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return matrix_operations(self, inputs)
