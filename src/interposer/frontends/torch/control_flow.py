"""Converters for control flow: cond, while_loop, map and scan, whose branches and bodies become regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.types import DataType, TensorInfo
from interposer.frontends.torch.call import Call, Operand
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Graph, Value
from interposer.ops.control_flow import If, Scan, While

__all__: list[str] = []


@aten("higher_order.cond")
def cond(c: Call, predicate: Operand, then: Any, otherwise: Any, operands: Sequence[Any] = ()) -> list[Value]:
    """Convert cond; a predicate that is known selects a branch, which is converted in place."""
    known_predicate = predicate.constant if isinstance(predicate, Value) else predicate
    if known_predicate is not None:
        results: list[Value] = c.inlined(then if bool(known_predicate) else otherwise, list(operands))
        return results
    assert isinstance(predicate, Value)
    values = [operand for operand in operands if isinstance(operand, Value)]
    regions = [_region(c, module, operands, [v.known for v in values]) for module in (then, otherwise)]
    op = If(len(regions[0].outputs))
    return c.control(op, [c.reshape(c.cast(predicate, DataType.BOOL), []), *values], regions)


def _region(c: Call, module: Any, operands: Sequence[Any], infos: Sequence[TensorInfo]) -> Graph:
    """Return a graph module as a region; its inputs have `infos`, other operands are Python numbers."""
    graph: Graph = c.region(module, list(operands), [info.with_constant(None) for info in infos])
    return graph


@aten("higher_order.while_loop")
def while_loop(c: Call, condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()) -> list[Value]:
    """Convert while_loop; numbers that it carries become tensors."""
    values = [operand if isinstance(operand, Value) else c.constant(_number(operand)) for operand in carried]
    operands = [*values, *more]
    infos = [operand.known for operand in operands if isinstance(operand, Value)]
    regions = [_region(c, module, operands, infos) for module in (condition, body)]
    return c.control(While(len(values)), [operand for operand in operands if isinstance(operand, Value)], regions)


def _number(number: Any) -> Any:
    return np.asarray(number)


@aten("higher_order.map_impl")
def map_(c: Call, body: Any, xs: Sequence[Value], more: Sequence[Any] = ()) -> list[Value]:
    """Convert map over the first axis."""
    return _scanned(c, body, [], xs, more)


@aten("higher_order.scan")
def scan(c: Call, body: Any, initial: Sequence[Value], xs: Sequence[Value], more: Sequence[Any] = ()) -> list[Value]:
    """Convert scan along the first axis."""
    return _scanned(c, body, initial, xs, more)


def _scanned(
    c: Call, body: Any, initial_values: Sequence[Value], xs: Sequence[Value], more_operands: Sequence[Any]
) -> list[Value]:
    slices = [x.known.with_constant(None).with_shape(x.known.shape[1:]) for x in xs]
    captured_values = [operand for operand in more_operands if isinstance(operand, Value)]
    infos = [*(value.known for value in initial_values), *slices, *(value.known for value in captured_values)]
    region = _region(c, body, [*initial_values, *xs, *more_operands], infos)
    op = Scan(len(initial_values), len(xs), len(region.outputs) - len(initial_values))
    return c.control(op, [*initial_values, *xs, *captured_values], [region])
