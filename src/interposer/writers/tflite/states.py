"""States of a network as variable tensors of recurrent operators, or as variables that the file reads and assigns.

A recurrent operator of TFLite reads and updates its states itself; they are tensors of the subgraph that are marked as
variable, and begin with zeros. Any other state is a variable that READ_VARIABLE reads and ASSIGN_VARIABLE sets. A
subgraph that runs once assigns its initial value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from interposer.core.schema import Op
from interposer.core.types import TensorInfo
from interposer.ir.states import State, initial_value
from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.quantized_recurrent import QLstm
from interposer.ops.recurrent import BidirectionalSequenceRnn, Rnn, Svdf, UnidirectionalSequenceRnn
from interposer.writers.borders import Border
from interposer.writers.emission import Refusals
from interposer.writers.tflite.sheet import Operator, Sheet, Tensor

__all__ = ["STATES", "assign_states", "read_states"]

STATES: Final[Mapping[type[Op], Mapping[str, str]]] = {
    Lstm: {"output_state_in": "output_state_out", "cell_state_in": "cell_state_out"},
    QLstm: {"output_state_in": "output_state_out", "cell_state_in": "cell_state_out"},
    UnidirectionalSequenceLstm: {"output_state_in": "output_state_out", "cell_state_in": "cell_state_out"},
    BidirectionalSequenceLstm: {
        f"{side}_{state}_state_in": f"{side}_{state}_state_out"
        for side in ("forward", "backward")
        for state in ("output", "cell")
    },
    Rnn: {"hidden_state_in": "hidden_state_out"},
    UnidirectionalSequenceRnn: {"hidden_state_in": "hidden_state_out"},
    BidirectionalSequenceRnn: {
        f"{side}_hidden_state_in": f"{side}_hidden_state_out" for side in ("forward", "backward")
    },
    Svdf: {"state_in": "state_out"},
}
"""The operands of recurrent operators that are states, with the results that have their new values."""


def read_states(border: Border, sheet: Sheet) -> Refusals:
    """Enter the values that the states have before a run as tensors on the sheet, which must have no operators yet.

    The result has the name of each state whose tensor a file cannot have, with its operator and the reason.
    """
    variables = []
    for state in border.states:
        if not state.info.is_tensor:
            yield state.name, ("Input", f"TFLite has no variables of type {state.info.dtype}")
            continue
        tensor = Tensor(sheet.names.free(state.name), state.info.with_constant(None), is_variable=_is_updated(state))
        sheet.values[state.source.output] = tensor
        if not tensor.is_variable:
            variables.append((state, tensor))
    if variables:
        initialization = _initialization([state for state, _ in variables])
        sheet.operators.append(Operator("CALL_ONCE", [], [], {"init_subgraph_index": initialization}))
    for state, tensor in variables:
        sheet.operators.append(Operator("READ_VARIABLE", [_handle(sheet, state)], [tensor], layer=state.name))


def assign_states(border: Border, sheet: Sheet) -> None:
    """Add the operators that set the states which no recurrent operator updates itself; all layers are written."""
    for state in border.states:
        if state.target is not None and not sheet.values[state.source.output].is_variable:
            handle = _handle(sheet, state)
            new_value = sheet.values[state.target.values[0]]
            sheet.operators.append(Operator("ASSIGN_VARIABLE", [handle, new_value], [], layer=state.name))


def _is_updated(state: State) -> bool:
    """Return True if a recurrent layer alone reads the state and sets it, and it begins with zeros."""
    uses = list(state.source.output.uses)
    if len(uses) != 1 or state.target is None:
        return False
    layer, (new_value,) = uses[0].layer, state.target.values
    names = STATES.get(type(layer.op), {})
    is_own = any(
        layer.operand(old) is state.source.output and layer.outputs[_number(layer.op, new)] is new_value
        for old, new in names.items()
    )
    return is_own and len(new_value.uses) == 1 and bool(np.array_equal(state.initial, initial_value(state.info, None)))


def _number(op: Op, name: str) -> int:
    return [declared.name for declared in op.results].index(name)


def _handle(sheet: Sheet, state: State) -> Tensor:
    """Add an operator that gives the handle of the variable of a state, and return the handle."""
    handle = Tensor(sheet.names.free(f"{state.name}/handle"), TensorInfo(()), is_handle=True)
    sheet.operators.append(Operator("VAR_HANDLE", [], [handle], {"shared_name": state.name}, state.name))
    return handle


def _initialization(states: list[State]) -> Sheet:
    """Return the subgraph that assigns the initial values of the states."""
    sheet = Sheet("initialization")
    for state in states:
        value = sheet.constant(state.initial, state.info.quantization, f"{state.name}/initial")
        sheet.operators.append(Operator("ASSIGN_VARIABLE", [_handle(sheet, state), value], [], layer=state.name))
    return sheet
