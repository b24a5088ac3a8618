"""Single steps of quantized LSTMs, in integer arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import TensorInfo
from interposer.ops.lstm import LstmOperands
from interposer.ops.named_sizes import by_name, dimension_problems, matrix_operations, shape_of, sizes_by_letter

__all__ = ["QLstm", "QuantizedLstm"]

_GATES: Final = ("input", "forget", "cell", "output")


@op
class QLstm(LstmOperands):
    """One step of an LSTM in 8- and 16-bit integers with tanh as cell activation; formulas as for `Lstm`.

    The argument of a gate's function is a 16-bit number with scale 2**-12; before layer normalization, it has the
    gate's intermediate scale. The scale of the cell state is a power of 2, from 2**-15 to 2**-9. Biases are 32-bit
    integers. Their scale is the product of the scales of input and weights; with layer normalization, it is the scale
    of the layer normalization weights / 1024.

    Shapes (B batches, I inputs, U units, O outputs; O = U without projection):
        input: (B, I)
        output_state_in, output_state_out, output: (B, O)
        cell_state_in, cell_state_out: (B, U)
        input_to_..._weights: (U, I)
        recurrent_to_..._weights: (U, O)
        cell_to_..._weights, ..._bias, ..._layer_norm_weights: (U,)
        projection_weights: (O, U)
        projection_bias: (O,)

    Example:
        >>> needed = [slot for slot in QLstm.operands if not slot.optional]
        >>> operands = {slot.name: np.int8([[0]]) if slot.rank == 2 else np.int32([0]) for slot in needed}
        >>> quantization = {slot.name: Quantization(2**-7) for slot in needed if slot.rank == 2}
        >>> operands["cell_state_in"], quantization["cell_state_in"] = np.int16([[8192]]), Quantization(2**-12)
        >>> results = compute(QLstm(), **operands, quantization=quantization)  # the gates are half open
        >>> [state.tolist() for state in results]
        [[[49]], [[4096]], [[49]]]

    Source:
        TFLite LSTM with int8 input; NNAPI QUANTIZED_LSTM and Arm NN QLstmDescriptor, which leave the biases of gates
        out where there is no layer normalization.
    """

    output_state_in = operand(rank=2)
    cell_state_in = operand(rank=2)
    output_state_out = result(rank=2)
    cell_state_out = result(rank=2)
    output = result(rank=2)

    cell_clip: float = attribute(default=0.0, ge=0.0, doc="Bound of the cell state; 0 means none.")
    projection_clip: float = attribute(default=0.0, ge=0.0, doc="Bound of the projection; 0 means none.")
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

    def infer(self, *operands: Any) -> tuple[TensorInfo, ...]:
        output_state, cell_state, output = self._infos(operands)
        return output_state, cell_state, output


@op
class QuantizedLstm(Op):
    """One step of the basic LSTM in integers, with 8-bit weights and a 16-bit cell state.

    A gate multiplies the concatenation of inputs and previous outputs with the concatenation of its recurrent and input
    weights. The order is crossed, as in NNAPI: the first I of a row's U + I weights are multiplied with the inputs.
    Input and output have scale 1 / 128 and zero point 128, and the cell state has scale 2**-11. All weights share one
    quantization; the scale of the biases is the scale of the weights / 128.

    Shapes (B batches, I inputs, U units):
        input: (B, I)
        cell_state_in, cell_state_out: (B, U)
        output_state_in, output: (B, U)
        input_to_..._weights: (U, I)
        recurrent_to_..._weights: (U, U)
        ..._bias: (U,)

    Example:
        >>> declared = QuantizedLstm.operands
        >>> operands = {slot.name: np.uint8([[128]]) if slot.rank == 2 else np.int32([0]) for slot in declared}
        >>> quantization = {slot.name: Quantization(2**-7, 128) for slot in declared if slot.rank == 2}
        >>> operands["cell_state_in"], quantization["cell_state_in"] = np.int16([[4096]]), Quantization(2**-11)
        >>> results = compute(QuantizedLstm(), **operands, quantization=quantization)  # the gates are half open
        >>> [state.tolist() for state in results]
        [[[2048]], [[177]]]

    Source:
        TFLite LSTM of kernel type BASIC with uint8 input; NNAPI QUANTIZED_16BIT_LSTM; Arm NN QuantizedLstmLayer.
    """

    input = operand(rank=2)
    cell_state_in = operand(rank=2)
    output_state_in = operand(rank=2)
    input_to_input_weights = operand(role=Role.WEIGHTS, rank=2)
    input_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    input_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    input_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_input_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_forget_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_cell_weights = operand(role=Role.WEIGHTS, rank=2)
    recurrent_to_output_weights = operand(role=Role.WEIGHTS, rank=2)
    input_gate_bias = operand(role=Role.BIAS, rank=1)
    forget_gate_bias = operand(role=Role.BIAS, rank=1)
    cell_bias = operand(role=Role.BIAS, rank=1)
    output_gate_bias = operand(role=Role.BIAS, rank=1)
    cell_state_out = result(rank=2)
    output = result(rank=2)

    def check(self, *operands: Any) -> Iterator[str]:
        yield from dimension_problems(by_name(self, operands), _AXIS_LETTERS)

    def infer(self, *operands: Any) -> tuple[TensorInfo, TensorInfo]:
        infos = by_name(self, operands)
        shape = shape_of("BU", sizes_by_letter(infos, _AXIS_LETTERS))
        cell_state, output_state = infos["cell_state_in"], infos["output_state_in"]
        assert cell_state is not None
        assert output_state is not None
        return cell_state.with_shape(shape), output_state.with_shape(shape)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return matrix_operations(self, inputs)


_AXIS_LETTERS: Final = {
    "input": "BI",
    "cell_state_in": "BU",
    "output_state_in": "BU",
    **{f"input_to_{gate}_weights": "UI" for gate in _GATES},
    **{f"recurrent_to_{gate}_weights": "UU" for gate in _GATES},
    **dict.fromkeys(("input_gate_bias", "forget_gate_bias", "cell_bias", "output_gate_bias"), "U"),
}
