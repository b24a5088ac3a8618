"""ONNX writers for layers that only pass data on."""

from __future__ import annotations

from interposer.ops.control import Debug, MemCopy, MemImport, Merge, PreCompiled, StandIn, Switch
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


@writer(Debug, MemCopy, MemImport, Merge, moves=True)
def passed_on(draft: Draft, op: Debug | MemCopy | MemImport | Merge) -> Tensor:
    """Write a layer that does not change its input as no node: return the first operand."""
    return draft.operand(0)


@writer(Switch, moves=True)
def switch(draft: Draft, op: Switch) -> list[Tensor]:
    """Write Switch as no node: return the data operand for both outputs."""
    return [draft.operand(0)] * 2


@writer(StandIn)
def stand_in(draft: Draft, op: StandIn) -> Tensor:
    """Refuse a placeholder for an unknown operator."""
    refuse(f"it stands in for {op.description or 'an operator that is not known'}")


@writer(PreCompiled)
def pre_compiled(draft: Draft, op: PreCompiled) -> Tensor:
    """Refuse a compiled partition, whose content only its backend knows."""
    refuse("it was compiled by a backend; write the network before it is optimized")
