"""NNAPI converters for reductions and choices; a reduction to a scalar has shape [1]."""

from __future__ import annotations

from typing import Final

from interposer.core.schema import Op
from interposer.frontends.nnapi.nnapi_converters import operator
from interposer.frontends.nnapi.node import Node
from interposer.ir.graph import Value
from interposer.ops.axes import normal_axis
from interposer.ops.choice import RandomMultinomial, TopK
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation
from interposer.ops.reshape import Reshape

__all__: list[str] = []

_OPERATIONS: Final = {f"REDUCE_{name}": ReduceOperation[name] for name in ("ALL", "ANY", "MAX", "MIN", "PROD", "SUM")}


@operator("MEAN", inputs=3)
def mean(node: Node) -> list[Value]:
    """Convert MEAN, whose flag to keep the axes is an integer."""
    keep = node.integer_of(2, "whether to keep axes") > 0
    return _reduced(node, Mean(_axes(node), keep))


@operator(*_OPERATIONS, inputs=3)
def reduce(node: Node) -> list[Value]:
    """Convert REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD and REDUCE_SUM over several axes."""
    op = Reduce(_axes(node), node.flag_of(2, "whether to keep axes"), _OPERATIONS[node.operation.name])
    return _reduced(node, op)


@operator("ARGMAX", "ARGMIN", inputs=2)
def arg_min_max(node: Node) -> list[Value]:
    """Convert ARGMAX and ARGMIN: the index of the largest or smallest element along one axis."""
    function = ArgMinMaxFunction[node.operation.name.removeprefix("ARG")]
    return _reduced(node, ArgMinMax(function, node.axis(1, node.info(0).rank)))


def _axes(node: Node) -> tuple[int, ...]:
    """Return the axes in input 1, counted from the front and each once; fail if there are none."""
    rank, axes = node.info(0).rank, node.integers_of(1, "the axes")
    for axis in axes:
        if not -rank <= axis < rank:
            node.fail(f"the axes (input 1) are {list(axes)}; expected {-rank} to {rank - 1}")
    return tuple(sorted({normal_axis(axis, rank) for axis in axes})) or node.fail("there are no axes (input 1)")


def _reduced(node: Node, op: Op) -> list[Value]:
    x = node.value(0)
    inferred_info = op.infer_infos(x.known)[0] if not op.violations(x.known) else None
    if inferred_info is None or inferred_info.rank:
        return node.results(op, x)
    return node.results(Reshape((1,)), node.step(op, x, quantization=node.outputs[0].quantization))


# --- selection and draws ----------------------------------------------------------------------------------------------


@operator("TOPK_V2", inputs=2)
def top_k(node: Node) -> list[Value]:
    """Convert TOPK_V2: the largest elements along the last axis."""
    return node.results(TopK(node.integer_of(1, "k")), node.value(0))


@operator("RANDOM_MULTINOMIAL", inputs=3)
def random_multinomial(node: Node) -> list[Value]:
    """Convert RANDOM_MULTINOMIAL: samples drawn with two seeds."""
    op = RandomMultinomial(node.integer_of(1, "the number of samples"))
    return node.results(op, node.value(0), node.value(2))
