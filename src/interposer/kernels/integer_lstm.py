"""LSTMs in integers, bit for bit as TFLite's reference: 8-bit tensors, 16-bit gates and cell states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo
from interposer.kernels.fixedfunctions import inverse_sqrt
from interposer.kernels.fixedpoint import (
    FixedPoint,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from interposer.kernels.gates16 import saturate, sigmoid, tanh
from interposer.kernels.table import KernelInfo
from interposer.ops.lstm import UnidirectionalSequenceLstm
from interposer.ops.quantized_recurrent import QLstm
from interposer.ops.recurrent import FusedActivation

__all__ = ["INTEGER_RULES", "INTEGER_TYPES", "IntegerLstm", "cell_scale", "exact_product", "exponent", "tanh_only"]

Ints = NDArray[np.int64]
_ONE: Final = 2**15 - 1
_GATE_SCALE: Final = np.float32(2.0**-12)


def _scale(info: TensorInfo) -> np.float32:
    return np.float32(info.scale)


def exponent(info: TensorInfo) -> int | None:
    """Return the base-2 logarithm of the scale of a cell state; None if it is farther than 0.001 from an integer."""
    logarithm = float(np.log2(_scale(info)))
    return round(logarithm) if abs(logarithm - round(logarithm)) < 1e-3 else None


def exact_product(x: Array, weights: Array) -> Ints:
    """Return the product ``x @ weights.T``; the integers have few enough bits for float64 sums to be exact."""
    return np.asarray(x.astype(np.float64) @ weights.astype(np.float64, copy=False).T).astype(np.int64)


class _Product(NamedTuple):
    """Computes one matrix product of an LSTM in integers, called with 8-bit values (B, I).

    It subtracts `zero_point` from the values, multiplies with the weights, adds the bias and multiplies by `factor`.
    """

    weights: Array
    factor: FixedPoint
    zero_point: int
    bias: Array | int

    def __call__(self, quantized: Array) -> Ints:
        sums = exact_product(quantized.astype(np.int64) - self.zero_point, self.weights) + self.bias
        return multiply_by_quantized_multiplier(sums, self.factor)


class _Norm(NamedTuple):
    """Computes layer normalization in integers, called with the sums of a gate (B, U).

    `factor` is the scale of the weights, and `least_variance` replaces variances below 1.
    """

    weights: Ints
    factor: FixedPoint
    bias: Ints
    least_variance: int

    def __call__(self, x: Ints) -> Ints:
        """Return the normalized rows of `x`, 16-bit gate sums, as 16-bit numbers.

        Mean and deviation are computed with 10 fractional bits more than `x`.
        """
        units = x.shape[-1]
        if units == 0:
            return x
        sums = x.sum(axis=-1, keepdims=True) * 1024
        mean = np.sign(sums) * (np.abs(sums) // units)
        scaled_variance = np.square(x).sum(axis=-1, keepdims=True) * (2**20 // units) - np.square(mean)
        variance = np.sign(scaled_variance) * (np.abs(scaled_variance) >> 20)
        inverse = inverse_sqrt(np.where(variance < 1, self.least_variance, variance))
        normalized = multiply_by_quantized_multiplier(1024 * x - mean, inverse)
        weighted = (normalized * self.weights + self.bias).astype(np.int32).astype(np.int64)
        rounded = np.sign(weighted) * ((np.abs(weighted) + 512) >> 10)
        output_factor = FixedPoint(self.factor.multiplier, self.factor.shift + 12)
        return saturate(multiply_by_quantized_multiplier(rounded, output_factor))


class _Gate(NamedTuple):
    """Computes the argument of a gate's function from the step's input, the previous output and the cell state.

    It is a sum of three products, saturated to 16 bits after each, and then normalized if `norm` is not None.
    """

    of_input: _Product
    of_output: _Product
    peephole: tuple[Ints, FixedPoint] | None
    norm: _Norm | None

    def __call__(self, x: Array, output: Array, cell: Ints) -> Ints:
        total = saturate(self.of_input(x))
        total = saturate(self.of_output(output) + total)
        if self.peephole is not None:
            weights, factor = self.peephole
            total = saturate(multiply_by_quantized_multiplier(weights * cell, factor) + total)
        return total if self.norm is None else self.norm(total)


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Gives the arrays, scales and infos of an LSTM's operands by the operands' names."""

    arrays: Mapping[str, Array | None]
    info: KernelInfo

    def __getitem__(self, name: str) -> Array:
        array = self.arrays[name]
        assert array is not None, name
        return array

    def has(self, name: str) -> bool:
        return self.arrays[name] is not None

    def scale(self, name: str) -> np.float32:
        return _scale(self.at(name))

    def at(self, name: str) -> TensorInfo:
        return self.info.at(self.info.names.index(name))


def _bias_name(gate: str) -> str:
    return "cell_bias" if gate == "cell" else f"{gate}_gate_bias"


def _gate(tensors: _Tensors, op: QLstm | UnidirectionalSequenceLstm, name: str) -> _Gate:
    scale = np.float32(getattr(op, f"{name}_intermediate_scale")) if op.layer_norm_enabled else _GATE_SCALE
    bias = tensors[_bias_name(name)].astype(np.int64)

    def product(source_name: str, weights_name: str, bias: Array | int) -> _Product:
        factor = quantize_multiplier(tensors.scale(weights_name) * tensors.scale(source_name) / scale)
        return _Product(tensors[weights_name].astype(np.float64), factor, tensors.at(source_name).zero_point, bias)

    return _Gate(
        product("input", f"input_to_{name}_weights", 0 if op.layer_norm_enabled else bias),
        product("output_state_in", f"recurrent_to_{name}_weights", 0),
        _peephole(tensors, f"cell_to_{name}_weights", scale) if op.peephole_enabled and name != "cell" else None,
        _norm(tensors, f"{name}_layer_norm_weights", bias) if op.layer_norm_enabled else None,
    )


def _peephole(tensors: _Tensors, name: str, scale: np.float32) -> tuple[Ints, FixedPoint]:
    state_scale = 2.0 ** (exponent(tensors.at("cell_state_in")) or 0)
    factor = np.float32(state_scale * float(tensors.scale(name)) / float(scale))
    return tensors[name].astype(np.int64), quantize_multiplier(factor)


def _norm(tensors: _Tensors, name: str, bias: Ints) -> _Norm:
    scale = tensors.scale(name)
    return _Norm(tensors[name].astype(np.int64), quantize_multiplier(scale), bias, max(1, int(10000 * scale)))


class IntegerLstm(NamedTuple):
    """Computes the steps of an LSTM in integers; the scale of the cell state is 2 to the power of `cell_exponent`.

    The four gates give the arguments of their functions. `input_gate` is None with CIFG, `cell_bound` is 0 without a
    bound, and `to_output` converts the gates' product to the quantized output.
    """

    input_gate: _Gate | None
    forget_gate: _Gate
    cell_gate: _Gate
    output_gate: _Gate
    cell_exponent: int
    cell_bound: int
    to_output: Callable[[Ints], Ints]

    @classmethod
    def of(
        cls,
        op: QLstm | UnidirectionalSequenceLstm,
        arrays: tuple[Array | None, ...],
        info: KernelInfo,
        clips: tuple[float, float],
    ) -> IntegerLstm:
        """Return the LSTM for an operator and its operands, `arrays` in the order of `info.names`.

        `clips` are the bounds of the cell state and of the projection as float values; 0 means no bound.
        """
        tensors = _Tensors(dict(zip(info.names, arrays, strict=True)), info)
        return cls(
            None if op.cifg_enabled else _gate(tensors, op, "input"),
            _gate(tensors, op, "forget"),
            _gate(tensors, op, "cell"),
            _gate(tensors, op, "output"),
            exponent(tensors.at("cell_state_in")) or 0,
            _bound(clips[0], tensors.scale("cell_state_in"), _ONE),
            _finish(tensors, op, clips[1]),
        )

    def step(self, x: Array, output: Array, cell: Ints) -> tuple[Ints, Ints]:
        """Compute one step, and return the new output and cell state.

        `x` is the step's input (B, I), `output` the previous output (B, O), and `cell` the previous cell state (B, U).
        """
        forget_gate = sigmoid(self.forget_gate(x, output, cell))
        candidate = tanh(self.cell_gate(x, output, cell), 3)
        input_gate = _ONE - forget_gate if self.input_gate is None else sigmoid(self.input_gate(x, output, cell))
        remembered = rounding_divide_by_pot(forget_gate * cell, 15)
        cell = _bounded(
            saturate(remembered + rounding_divide_by_pot(input_gate * candidate, 30 + self.cell_exponent)),
            self.cell_bound,
        )
        output_gate = sigmoid(self.output_gate(x, output, cell))
        return self.to_output(output_gate * tanh(cell, 15 + self.cell_exponent)), cell


def _bound(clip: float, scale: np.float32, largest: int) -> int:
    """Return a float bound in steps of `scale`, at most `largest`; 0, which means no bound, if it is below one step."""
    return int(min(float(np.float32(clip) / scale), largest)) if clip > 0 else 0


def _bounded(x: Ints, bound: int) -> Ints:
    return np.clip(x, -bound, bound) if bound > 0 else x


def _finish(tensors: _Tensors, op: QLstm | UnidirectionalSequenceLstm, clip: float) -> Callable[[Ints], Ints]:
    """Return the function from the output gate times tanh(cell), with 30 fractional bits, to the quantized output.

    With projection, the function also multiplies the quantized hidden state with the projection weights, and `clip`
    bounds the result (0: no bound). As in TFLite, the zero point of a hidden state that is projected is negated before
    clamping; it shows only if a value is clamped.
    """
    output_state = tensors.at("output_state_in")
    hidden_scale = np.float32(op.hidden_state_scale or output_state.scale)
    factor = quantize_multiplier(np.float32(2.0**-15 / float(hidden_scale) * 2.0**-15))

    zero_point = op.hidden_state_zero_point if op.hidden_state_scale else output_state.zero_point
    zero_point = -zero_point if op.projection_enabled else zero_point

    def hidden(gated_cell: Ints) -> Ints:
        quantized = multiply_by_quantized_multiplier(gated_cell, factor) + zero_point
        return np.clip(quantized, -128, 127)

    if not op.projection_enabled:
        return hidden
    bias = tensors["projection_bias"].astype(np.int64) if tensors.has("projection_bias") else 0
    weights = tensors["projection_weights"].astype(np.float64)
    projected_factor = quantize_multiplier(tensors.scale("projection_weights") * hidden_scale / _scale(output_state))
    product = _Product(weights, projected_factor, zero_point, bias)
    bound = _bound(clip, _scale(output_state), 127)
    return lambda fractions: _bounded(np.clip(product(hidden(fractions)) + output_state.zero_point, -128, 127), bound)


# --- what these kernels take ------------------------------------------------------------------------------------------


_EIGHT: Final = frozenset({DataType.INT8})
_SIXTEEN: Final = frozenset({DataType.INT16})
INTEGER_TYPES: Final = {
    **dict.fromkeys(("input", "output_state_in", "output", "output_state_out", "projection_weights"), _EIGHT),
    **{f"{kind}_to_{gate}_weights": _EIGHT for kind in ("input", "recurrent")
       for gate in ("input", "forget", "cell", "output")},
    **{f"cell_to_{gate}_weights": _SIXTEEN for gate in ("input", "forget", "output")},
    **{f"{gate}_layer_norm_weights": _SIXTEEN for gate in ("input", "forget", "cell", "output")},
    **{_bias_name(gate): frozenset({DataType.INT32}) for gate in ("input", "forget", "cell", "output")},
    "projection_bias": frozenset({DataType.INT32}),
    **dict.fromkeys(("cell_state_in", "cell_state_out"), _SIXTEEN),
}  # fmt: skip


def _quantized_alike(op: object, info: KernelInfo) -> str | None:
    """Return why an operand is refused: all but the biases must be quantized with one scale; None if they are."""
    for name, tensor_info in zip(info.names, info.inputs, strict=False):
        if tensor_info is None or name.endswith("_bias"):
            continue
        if tensor_info.quantization is None or tensor_info.quantization.per_axis:
            return f"{name} is {tensor_info}; takes tensors quantized with one scale"
    return None


def _symmetric(op: object, info: KernelInfo) -> str | None:
    for name, tensor_info in zip(info.names, info.inputs, strict=False):
        if tensor_info is not None and tensor_info.zero_point and name.endswith(("weights", "cell_state_in")):
            return f"{name} has zero point {tensor_info.zero_point}; takes 0"
    return None


def cell_scale(op: object, info: KernelInfo) -> str | None:
    """Return why the cell state is refused: its scale must be a power of 2 from 2**-15 to 2**-9; None if it is."""
    cell = info.get("cell_state_in")
    if cell is None or (exponent(cell) or 0) not in range(-15, -8):
        description = "absent" if cell is None else f"{cell}"
        return f"cell_state_in is {description}; takes a scale that is a power of 2, from 2**-15 to 2**-9"
    return None


def _intermediate_scales(op: QLstm | UnidirectionalSequenceLstm, info: KernelInfo) -> str | None:
    if op.projection_enabled and not op.hidden_state_scale:
        return "hidden_state_scale is 0; takes the scale of what is projected"
    gates = ("forget", "cell", "output") if op.cifg_enabled else ("input", "forget", "cell", "output")
    for gate in gates if op.layer_norm_enabled else ():
        if not getattr(op, f"{gate}_intermediate_scale"):
            return f"{gate}_intermediate_scale is 0; takes the scale of what is normalized"
    return None


def _same_outputs(op: object, info: KernelInfo) -> str | None:
    """Return why an output is refused: it must be quantized like the state operand that it continues; None if all are.

    16-bit outputs continue the cell state, and all others the output state.
    """
    for index, tensor_info in enumerate(info.outputs):
        name = "cell_state_in" if tensor_info.dtype is DataType.INT16 else "output_state_in"
        state = info.get(name)
        if state is None or tensor_info.quantization != state.quantization:
            expected = f"{name}, which is {'absent' if state is None else state}"
            return f"output {index} is {tensor_info}; takes one quantized like {expected}"
    return None


def tanh_only(op: UnidirectionalSequenceLstm, info: KernelInfo) -> str | None:
    return None if op.activation_func is FusedActivation.TANH else f"{op.activation_func.name} in integers; takes TANH"


INTEGER_RULES: Final = (_quantized_alike, _symmetric, cell_scale, _intermediate_scales, _same_outputs)
