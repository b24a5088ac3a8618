"""Samples of LSTMs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, NamedTuple

from interposer.core.schema import Op
from interposer.core.types import DataType, Quantization
from interposer.ops import (
    ActivationRounding,
    BidirectionalSequenceLstm,
    FusedActivation,
    Lstm,
    UnidirectionalSequenceLstm,
)
from interposer.ops.lstm import LstmOperands
from interposer.testing.sample import Given, Sample, given, samples, weights
from interposer.testing.samples.common import FLOATS

__all__ = ["FEATURES", "Cell", "Features", "operands"]

BATCH, STEPS, INPUTS, UNITS, OUTPUTS = 2, 3, 3, 5, 4
GATES: Final = ("input", "forget", "cell", "output")
TANH: Final = FusedActivation.TANH


class Features(NamedTuple):
    """The options of an LSTM beyond the basic form."""

    cifg: bool = False
    peephole: bool = False
    projection: bool = False
    norm: bool = False

    @property
    def flags(self) -> dict[str, Any]:
        """The options as keyword arguments of the operator, such as ``cifg_enabled``."""
        names = ("cifg_enabled", "peephole_enabled", "projection_enabled", "layer_norm_enabled")
        return dict(zip(names, self, strict=True))

    @property
    def title(self) -> str:
        """The names of the enabled options with "-" in between, for the names of samples; "basic" if there are none."""
        return "-".join(name for name, is_enabled in self._asdict().items() if is_enabled) or "basic"


FEATURES: Final = tuple(Features(*each) for each in product([False, True], repeat=4))


class Cell(NamedTuple):
    """The types and quantizations of an LSTM's operands; by default those of a float layer."""

    matrix: DataType = DataType.FLOAT32
    vector: DataType = DataType.FLOAT32
    bias: DataType = DataType.FLOAT32
    output: DataType = DataType.FLOAT32
    cell: DataType = DataType.FLOAT32
    matrix_scale: Quantization | None = None
    vector_scale: Quantization | None = None
    bias_scale: Quantization | None = None
    output_scale: Quantization | None = None
    cell_scale: Quantization | None = None

    def operands(self, features: Features, inputs: int = INPUTS) -> dict[str, Given]:
        """Return the operands of an LSTM in one direction with these features, by name; the input is not among them.

        `inputs` is the number of elements of the input.
        """
        outputs = OUTPUTS if features.projection else UNITS
        operands = {
            "output_state_in": given((BATCH, outputs), self.output, self.output_scale, low=-1, high=1),
            "cell_state_in": given((BATCH, UNITS), self.cell, self.cell_scale, low=-1, high=1),
        }
        for gate in GATES[features.cifg :]:
            operands[f"input_to_{gate}_weights"] = self._matrix(UNITS, inputs)
            operands[f"recurrent_to_{gate}_weights"] = self._matrix(UNITS, outputs)
            operands["cell_bias" if gate == "cell" else f"{gate}_gate_bias"] = self._bias(UNITS)
            if features.peephole and gate != "cell":
                operands[f"cell_to_{gate}_weights"] = weights((UNITS,), self.vector, self.vector_scale)
            if features.norm:
                operands[f"{gate}_layer_norm_weights"] = weights((UNITS,), self.vector, self.vector_scale)
        if features.projection:
            operands |= {"projection_weights": self._matrix(OUTPUTS, UNITS), "projection_bias": self._bias(OUTPUTS)}
        return operands

    def _matrix(self, rows: int, columns: int) -> Given:
        return weights((rows, columns), self.matrix, self.matrix_scale)

    def _bias(self, count: int) -> Given:
        return weights((count,), self.bias, self.bias_scale)


def operands(op: Op, named: dict[str, Given]) -> list[Given | None]:
    """Return the operands `named` in the order in which the operator declares them; None for absent ones."""
    return [named.get(declared_operand.name) for declared_operand in op.operands]


def _of(dtype: DataType) -> Cell:
    return Cell(dtype, dtype, dtype, dtype, dtype)


HYBRID: Final = Cell(matrix=DataType.INT8, matrix_scale=Quantization(1 / 128))
SIXTEEN: Final = Quantization(1 / 4096)
OF_16_BITS: Final = _of(DataType.INT16)._replace(
    matrix_scale=SIXTEEN, vector_scale=SIXTEEN, bias_scale=SIXTEEN, output_scale=SIXTEEN, cell_scale=SIXTEEN
)


def _sample(op: LstmOperands, cell: Cell, shape: tuple[int, ...], features: Features, name: str) -> Sample:
    x = given(shape, cell.output, cell.output_scale, low=-2, high=2)
    return Sample(op, operands(op, {"input": x} | cell.operands(features)), name=name)


@samples(Lstm)
def lstm() -> Iterator[Sample]:
    """Yield Lstm samples: every combination of features, with bounds, activation functions and types."""
    shape = (BATCH, INPUTS)
    for features in FEATURES:
        yield _sample(Lstm(activation_func=TANH, **features.flags), Cell(), shape, features, features.title)
    full_features, basic_features = FEATURES[-1], Features()
    bound = Lstm(activation_func=TANH, clipping_thres_cell=0.2, clipping_thres_proj=0.3, **full_features.flags)
    yield _sample(bound, Cell(), shape, full_features, "bounds")
    for function in FusedActivation:
        op = Lstm(activation_func=function, **basic_features.flags)
        yield _sample(op, Cell(), shape, basic_features, function.name.lower())
    op = Lstm(activation_func=TANH, **full_features.flags)
    for dtype in FLOATS:
        yield _sample(op, _of(dtype), shape, full_features, f"{dtype}")
    yield _sample(op, HYBRID, shape, full_features, "hybrid")
    for rounding in (ActivationRounding.SYMMETRIC, ActivationRounding.ASYMMETRIC):
        op = Lstm(activation_func=TANH, activation_rounding=rounding, **full_features.flags)
        yield _sample(op, HYBRID, shape, full_features, f"hybrid-{rounding.value}")
    op = Lstm(activation_func=TANH, **full_features.flags)
    yield _sample(op, OF_16_BITS, shape, full_features, "quantized-int16")


@samples(UnidirectionalSequenceLstm)
def unidirectional() -> Iterator[Sample]:
    """Yield UnidirectionalSequenceLstm samples.

    They cover every combination of features, both orders of the first two axes, and types.
    """
    for features in FEATURES:
        op = UnidirectionalSequenceLstm(activation_func=TANH, **features.flags)
        yield _sample(op, Cell(), (BATCH, STEPS, INPUTS), features, features.title)
    full_features = FEATURES[-1]
    op = UnidirectionalSequenceLstm(activation_func=TANH, time_major=True, **full_features.flags)
    for dtype in FLOATS:
        yield _sample(op, _of(dtype), (STEPS, BATCH, INPUTS), full_features, f"time-first-{dtype}")
    yield _sample(op, HYBRID, (STEPS, BATCH, INPUTS), full_features, "hybrid")


@samples(BidirectionalSequenceLstm)
def bidirectional() -> Iterator[Sample]:
    """Yield BidirectionalSequenceLstm samples.

    They cover separate and merged outputs, with each use of an auxiliary input, features and types.
    """
    for features in FEATURES:
        yield _both(BidirectionalSequenceLstm(), features, features.title)
    for merge in (False, True):
        op, title = BidirectionalSequenceLstm(merge_outputs=merge), "merged" if merge else "apart"
        yield _both(op, Features(cifg=True), f"{title}-crossed", is_crossed=True)
        yield _both(op, Features(projection=True), f"{title}-parallel", parallel=True)
    for dtype in FLOATS:
        yield _both(BidirectionalSequenceLstm(clipping_thres_cell=0.3), Features(), f"{dtype}", _of(dtype))


def _both(
    op: BidirectionalSequenceLstm,
    features: Features,
    name: str,
    cell: Cell | None = None,
    *,
    is_crossed: bool = False,
    parallel: bool = False,
) -> Sample:
    cell, operands_by_name = cell or Cell(), dict[str, Given]()
    for direction in ("forward", "backward"):
        direction_operands = cell.operands(features, 7 if parallel and direction == "backward" else INPUTS)
        if is_crossed:
            direction_operands |= {
                f"aux_input_to_{gate}_weights": weights((UNITS, 7)) for gate in GATES[features.cifg :]
            }
        operands_by_name |= {f"{direction}_{name}": operand for name, operand in direction_operands.items()}
    operands_by_name["input"] = given((BATCH, STEPS, INPUTS), cell.output, low=-2, high=2)
    if is_crossed or parallel:
        operands_by_name["aux_input"] = given((BATCH, STEPS, 7), low=-2, high=2)
    return Sample(op, operands(op, operands_by_name), name=name)
