"""Operators without a converter whose operands are constants: PyTorch computes them while the program is imported.

An operator without operands, such as kaiser_window, is one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from interposer.core.dlpack import Exported
from interposer.core.errors import ParseError
from interposer.core.types import Array
from interposer.frontends.torch.package import torch
from interposer.frontends.torch.tensors import array_of
from interposer.ir.graph import Value
from interposer.ops.control import Constant

__all__ = ["computed", "constant_nodes", "is_computable"]


def is_computable(target: Any) -> bool:
    """Return True for an ATen operator that always returns the same for the same operands, and writes to none."""
    return (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace == "aten"
        and not target._schema.is_mutable
        and not _is_random(target)
    )


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def constant_nodes(graph: Any, constants: Collection[Any]) -> set[Any]:
    """Return the nodes of an fx graph that depend on nothing but `constants`, a collection of its placeholders.

    Random numbers and what is computed of them are not constant.
    """
    computable_nodes = set(constants)
    for node in graph.nodes:
        is_call = node.op == "call_function" and not _is_random(node.target)
        if node.op == "get_attr" or (is_call and computable_nodes.issuperset(node.all_input_nodes)):
            computable_nodes.add(node)
    return computable_nodes


def computed(node: Any, values: Mapping[Any, Any], place: str) -> Any:
    """Return the results of an operator as arrays, computed by PyTorch; None unless all of its operands are constants.

    `values` are the operands by node: values of the network, or numbers. The result is an array, a number, or a list of
    these.

    Raises:
        ParseError: PyTorch cannot compute the operator; `place` says where it is.
    """
    is_check = isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() == "with_effects"
    function, args = (node.args[1], node.args[2:]) if is_check else (node.target, node.args)
    if not is_computable(function):
        return None
    operands = dict[Any, Any]()
    torch.fx.node.map_arg((args, node.kwargs), lambda arg: operands.update({arg: _tensor(values[arg], arg)}))
    if any(operand is None for operand in operands.values()):
        return None
    args, kwargs = (torch.fx.node.map_arg(nodes, operands.__getitem__) for nodes in (args, node.kwargs))
    try:
        with torch.no_grad():
            arrays = _arrays(function(*args, **kwargs), str(function))
            return [None, arrays] if is_check else arrays
    except RuntimeError as error:
        raise ParseError(f"PyTorch cannot compute it: {str(error).partition(chr(10))[0]}", where=place) from error


def _tensor(value: Any, node: Any) -> Any:
    """Return the tensor or number of a constant operand; None if it is not constant."""
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, Value) or not isinstance(value.producer.op, Constant):
        return None
    array = np.array(value.producer.op.value)  # PyTorch takes no arrays that are read-only
    tensor = torch.from_numpy(array) if array.dtype.isbuiltin == 1 else torch.from_dlpack(Exported(array))
    recorded_tensor = node.meta.get("val")
    is_complex = isinstance(recorded_tensor, torch.Tensor) and recorded_tensor.is_complex()
    return torch.view_as_complex(tensor) if is_complex else tensor


def _arrays(returned_value: Any, title: str) -> Any:
    if isinstance(returned_value, list | tuple):
        return [_arrays(part, title) for part in returned_value]
    if not isinstance(returned_value, torch.Tensor):
        return returned_value
    array: Array = array_of(returned_value.contiguous(), f"the result of {title}")
    return array
