"""Arm NN writers for layers that pass tensors on, and for stand-ins."""

from __future__ import annotations

from interposer.ops.control import Debug, MemCopy, MemImport, Merge, StandIn, Switch
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor

__all__: list[str] = []


@writer(Merge, moves=True)
def merge(draft: Draft, op: Merge) -> Tensor:
    """Write Merge."""
    return draft.final("Merge", draft.operand(0), draft.operand(1))


@writer(Switch, moves=True)
def switch(draft: Draft, op: Switch) -> list[Tensor]:
    """Write Switch."""
    return draft.finals("Switch", draft.operand(0), draft.operand(1))


@writer(StandIn, moves=True)
def stand_in(draft: Draft, op: StandIn) -> list[Tensor]:
    """Write StandIn."""
    inputs = draft.tensors()
    return draft.finals("StandIn", *inputs, descriptor={"numInputs": len(inputs), "numOutputs": len(draft.results)})


@writer(MemCopy, MemImport, Debug, moves=True)
def passed(draft: Draft, op: MemCopy | MemImport | Debug) -> Tensor:
    """Write nothing for a layer that the optimizer has inserted; its result is its operand."""
    return draft.operand(0)
