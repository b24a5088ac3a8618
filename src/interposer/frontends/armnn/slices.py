"""Converters of slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interposer.frontends.armnn.armnn_converters import layer
from interposer.frontends.armnn.node import Node
from interposer.ir.graph import Value
from interposer.ops.rearrange import Slice, StridedSlice

__all__: list[str] = []


@layer("Slice")
def slice_(node: Node) -> list[Value]:
    """Convert Slice."""
    return node.results(Slice(node.integers("begin"), node.integers("size")), node.tensor(0))


class _Range(NamedTuple):
    """The elements of one axis: from `begin` to before `end`; an end of None lies before the first element."""

    begin: int
    end: int | None
    stride: int


@layer("StridedSlice")
def strided_slice(node: Node) -> list[Value]:
    """Convert StridedSlice.

    Arm NN ignores the masks of the ellipsis and of new axes. Positions outside the tensor are clamped: a begin to an
    existing element, also if it lies after the last one.
    """
    x, fields = node.tensor(0), node.descriptor
    sizes = node.shape(x)
    begin, end, stride = (node.integers(name) for name in ("begin", "end", "stride"))
    if not len(begin) == len(end) == len(stride) == len(sizes):
        counts = f"{len(begin)}, {len(end)} and {len(stride)}"
        node.fail(f"begin, end and stride have {counts} numbers for {len(sizes)} axes")
    if 0 in stride:
        node.fail(f"stride is {stride}; expected other numbers than 0")
    along_axes = zip(begin, end, stride, sizes, strict=True)
    ranges = [_range(_Range(*along[:3]), along[3], axis, fields) for axis, along in enumerate(along_axes)]
    return node.results(_op(ranges, fields["shrinkAxisMask"]), x)


def _range(stored: _Range, size: int, axis: int, fields: Mapping[str, Any]) -> _Range:
    bit, last, stride = 1 << axis, size - 1, stored.stride
    begin = stored.begin + size if stored.begin < 0 else stored.begin
    if fields["beginMask"] & bit:
        begin = 0 if stride > 0 else last
    begin = max(0, min(begin, last))
    if fields["shrinkAxisMask"] & bit:
        return _Range(begin, begin + 1, 1)
    assert stored.end is not None
    end = stored.end + size if stored.end < 0 else stored.end
    if fields["endMask"] & bit:
        end = size if stride > 0 else -1
    end = max(0, min(end, size)) if stride > 0 else max(-1, min(end, last))
    return _Range(begin, None if end < 0 else end, stride)


def _op(ranges: Sequence[_Range], shrink: int) -> StridedSlice:
    ends = sum(1 << axis for axis, bounds in enumerate(ranges) if bounds.end is None)
    return StridedSlice(
        begin=tuple(bounds.begin for bounds in ranges),
        end=tuple(bounds.end or 0 for bounds in ranges),
        stride=tuple(bounds.stride for bounds in ranges),
        end_mask=ends,
        shrink_axis_mask=shrink & ((1 << len(ranges)) - 1),
    )
