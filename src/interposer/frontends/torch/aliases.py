"""Tensors of a program that share memory, of which the program changes one in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from interposer.frontends.torch.package import torch
from interposer.frontends.torch.tensors import key_of

__all__ = ["changed_alias", "shared_memory", "with_one_of_each"]

_STORED: Final = frozenset({"PARAMETER", "BUFFER", "CONSTANT_TENSOR"})
_CHANGED: Final = frozenset({"BUFFER_MUTATION", "PARAMETER_MUTATION"})


def changed_alias(program: Any) -> tuple[str, str] | None:
    """Return the names of two tensors that share memory, of which a functional program changes at least one.

    None if there are none: then each state of the program has memory of its own.
    """
    changed_targets = {spec.target for spec in program.graph_signature.output_specs if spec.kind.name in _CHANGED}
    return shared_memory(program, changed_targets) if changed_targets else None


def shared_memory(program: Any, names: Collection[str] | None = None) -> tuple[str, str] | None:
    """Return the names of two tensors that a program uses and that share memory; None if there are none.

    If `names` are given, one of the two tensors has one of these names.
    """
    used_names = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    stored_spans = [(spec.target, *_span(tensor)) for spec, tensor in _stored(program) if spec.arg.name in used_names]
    stored_spans.sort(key=lambda span: span[1])
    for index, (name, _, end) in enumerate(stored_spans):
        for other_name, start, other_end in stored_spans[index + 1 :]:
            if start >= end:
                break
            if start < other_end and (names is None or name in names or other_name in names):
                return name, other_name
    return None


def with_one_of_each(program: Any, module: Any) -> Any:
    """Return a program in which equal views of the same memory are one parameter, buffer or constant.

    The first one stands for all; the others are no longer used. `module` is a copy of the program's graph module, which
    is changed.
    """
    state, constants = dict(program.state_dict), dict(program.constants)
    nodes = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    first_node_of = dict[Any, Any]()
    for spec, tensor in _stored(program):
        node, key = nodes[spec.arg.name], key_of(tensor)
        if key is None or first_node_of.setdefault(key, node) is node:
            continue
        node.replace_all_uses_with(first_node_of[key])
        example = node.meta["val"]
        with example.fake_mode:
            node.meta["val"] = torch.empty_like(example)
        (state if spec.target in state else constants)[spec.target] = _apart(tensor)
    module.recompile()
    return program._update(module, program.graph_signature, state_dict=state, constants=constants)


def _apart(tensor: Any) -> Any:
    """Return a copy of a tensor, so that PyTorch does not find the shared memory."""
    copied_tensor = tensor.detach().clone()
    return (
        torch.nn.Parameter(copied_tensor, tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter)
        else copied_tensor
    )


def _stored(program: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the specifications of the parameters, buffers and constants of a program, with their tensors."""
    for spec in program.graph_signature.input_specs:
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if spec.kind.name in _STORED and isinstance(tensor, torch.Tensor):
            yield spec, tensor


def _span(tensor: Any) -> tuple[int, int]:
    """Return the addresses of the first element and after the last one of a tensor; equal if it has no memory."""
    if key_of(tensor) is None:
        return 0, 0
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start: int = tensor.data_ptr()
    return start, start + (steps + 1) * tensor.element_size()
