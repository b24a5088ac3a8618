"""Arm NN writers for slices."""

from __future__ import annotations

from interposer.core.types import TensorInfo
from interposer.ops.rearrange import Slice, StridedSlice
from interposer.writers.armnn.armnn_layer_writers import writer
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.sheet import Tensor
from interposer.writers.armnn.types import dimensions

__all__: list[str] = []


@writer(Slice, moves=True)
def slice_(draft: Draft, op: Slice) -> Tensor:
    """Write Slice."""
    if not draft.rank:
        return draft.reshape(draft.operand(0), (), final=True)
    return draft.final("Slice", draft.operand(0), descriptor={"begin": op.begin, "size": dimensions(draft.result)})


@writer(StridedSlice, moves=True)
def strided_slice(draft: Draft, op: StridedSlice) -> Tensor:
    """Write StridedSlice without masks except for the end, as Arm NN ignores some; a Reshape drops and adds axes."""
    x, shape = draft.operand(0), dimensions(draft.info(0))
    if not draft.rank:
        return draft.reshape(x, (), final=True)
    indices = [index for index in op.index(draft.rank) if index is not None]
    begin, end, stride, mask = [], [], [], 0
    for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
        positions = range(size)[index] if isinstance(index, slice) else range(index % size, index % size + 1)
        begin.append(positions.start)
        end.append(max(positions.stop, 0))
        stride.append(positions.step)
        mask |= (positions.stop < 0) << axis
    sizes = [
        len(range(size)[index]) if isinstance(index, slice) else 1 for index, size in zip(indices, shape, strict=True)
    ]
    fields = {"begin": begin, "end": end, "stride": stride, "endMask": mask, "dataLayout": 1}
    if tuple(sizes) == dimensions(draft.result):
        return draft.final("StridedSlice", x, descriptor=fields)
    info = TensorInfo(sizes, draft.result.dtype, draft.result.quantization)
    return draft.reshape(draft.node("StridedSlice", x, giving=info, descriptor=fields), (), final=True)
