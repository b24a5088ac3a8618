"""`interposer`: the backend of `torch.compile` that runs graphs with Interposer's backends."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from interposer.core.errors import InterposerError, UnsupportedOperatorError
from interposer.frontends.torch.functional import composite_and_other
from interposer.frontends.torch.graph import missing_operators
from interposer.frontends.torch.package import torch
from interposer.session.fallback import chosen_ids
from interposer.session.torch.compiled import CompiledGraph
from interposer.session.torch.fallbacks import Fallback, record
from interposer.session.torch.fast_paths import fast_paths
from interposer.session.torch.options import CompileOptions

__all__ = ["CompileOptions", "interposer"]

_tracing = threading.RLock()
_PLACE: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def interposer(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: Any = None
) -> Callable[..., Any]:
    """Return the function that runs a graph of `torch.compile`, in which PyTorch finds this backend by its name.

    Parameters and buffers become constants of a network, which is prepared again when they change. A graph that
    Interposer cannot run is left to PyTorch, and is listed by `fallbacks`: if it has operators that are not supported,
    draws random numbers, has tensors on a device or records gradients.

    Args:
        graph: the `torch.fx.GraphModule` that PyTorch has captured.
        example_inputs: tensors and numbers, as in the first call.
        options: see `CompileOptions`.
        mode: None or "default".

    Raises:
        InvalidArgumentError: an option is unknown or has the wrong type.
        InterposerError: with the option ``strict``, a graph cannot be run.
    """
    compile_options = CompileOptions.of(options, mode)
    chosen_ids(compile_options.backends)
    reason = _reason_for_eager(example_inputs)
    if reason is not None:
        return _left_to_torch(graph, reason, compile_options)
    try:
        return _traced(graph, example_inputs, compile_options)
    except (InterposerError, torch._dynamo.exc.TorchDynamoException):
        raise
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        return _left_to_torch(graph, f"PyTorch cannot trace it: {_first_line(error)}", compile_options)


def _reason_for_eager(example_inputs: Sequence[Any]) -> str | None:
    """Return why a graph with these inputs is left to PyTorch before it is traced, or None."""
    tensors = [tensor for tensor in example_inputs if isinstance(tensor, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "gradients are recorded; call the module under torch.no_grad() or torch.inference_mode()"
    device = next((tensor.device.type for tensor in tensors if tensor.device.type != "cpu"), None)
    if device is not None:
        return f"it has tensors on the device {device!r}; only those on the CPU are supported"
    return None


def _traced(graph: Any, example_inputs: Sequence[Any], options: CompileOptions) -> Callable[..., Any]:
    """Return the function for a graph that is traced to ATen operators without in-place changes."""
    from torch._dynamo.backends.common import aot_autograd  # noqa: PLC0415 - only needed to compile
    from torch.export.exported_program import _override_composite_implicit_decomp  # noqa: PLC0415

    def compiled(lowered_graph: Any, examples: Sequence[Any]) -> Any:
        return _compiled(lowered_graph, options)

    composite, table = _decompositions()
    if _differentiates(graph):
        composite = {}
    compiler = aot_autograd(fw_compiler=compiled, inference_compiler=compiled, decompositions=table)
    with _tracing, _override_composite_implicit_decomp(composite):
        function: Callable[..., Any] = compiler(graph, example_inputs)
        return function


def _differentiates(graph: Any) -> bool:
    """Return True if a graph computes gradients or maps functions itself, as with ``torch.func``.

    Its composite operators have to be decomposed, since an operator that stays whole has no gradient.
    """
    return any(_is_transform(node) for inner in _graphs(graph) for node in inner.graph.nodes)


def _is_transform(node: Any) -> bool:
    title = f"{getattr(node.target, '__module__', '')} {getattr(node.target, '__qualname__', node.target)}"
    enables_gradients = "set_grad_enabled" in title and bool(node.args) and node.args[0] is True
    return enables_gradients or any(word in title for word in ("functorch", "autograd", "requires_grad", "backward"))


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph module and those in it, as of control flow."""
    return (module for module in graph.modules() if isinstance(module, torch.fx.GraphModule))


@cache
def _decompositions() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the decompositions of composite operators, and those of all others."""
    composite, table = composite_and_other()
    return composite | {torch.ops.aten.dropout.default: _dropout}, table | fast_paths()


def _dropout(x: Any, probability: float, train: bool) -> Any:
    """Decompose dropout; outside of training it returns its operand, as in eager execution, and not a copy."""
    return torch.ops.aten.native_dropout(x, probability, True)[0] if train and probability else x


def _compiled(graph: Any, options: CompileOptions) -> Any:
    """Return the function that runs a functional graph of ATen operators, which takes a list of its inputs."""
    static = _static_inputs()
    reason, operators = _reason_against(graph, static)
    if reason is not None:
        return _boxed(_left_to_torch(graph, reason, options, operators))
    return CompiledGraph(
        graph,
        static,
        options,
        lambda error: _left_to_torch(graph, _told(error), options, {}, error),
    )


def _static_inputs() -> set[int]:
    """Return which inputs of the graph that is compiled are the same tensors in all calls, and are not written to."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return set()
    return set(metadata.static_input_indices) - {
        index for index, info in enumerate(metadata.input_info) if info.mutates_data
    }


def _reason_against(graph: Any, static: set[int]) -> tuple[str | None, Mapping[str, int]]:
    """Return why a graph of ATen operators is left to PyTorch, or None, and the operators that are not supported.

    `static` are the inputs that are constants.
    """
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    missing_names = missing_operators(graph, [node for index, node in enumerate(placeholders) if index in static])
    if missing_names:
        names = ", ".join(f"{count} x {name}" for name, count in sorted(missing_names.items()))
        return f"operators are not supported: {names}", missing_names
    random_names = sorted({str(node.target) for node in _calls(graph) if _is_random(node)})
    if random_names:
        return f"it draws random numbers with PyTorch's generator: {', '.join(random_names)}", {}
    return None, {}


def _calls(graph: Any) -> Iterator[Any]:
    for module in _graphs(graph):
        yield from (node for node in module.graph.nodes if node.op == "call_function")


def _is_random(node: Any) -> bool:
    """Return True if an operator draws random numbers; with a dropout of 0, or outside of training, it does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = node.target._schema.arguments
    values = {argument.name: argument.default_value for argument in arguments}
    values |= dict(zip((argument.name for argument in arguments), node.args, strict=False)) | node.kwargs
    return all(values.get(name, True) for name in _DROPOUT)


_DROPOUT: Final = ("dropout", "dropout_p", "p", "train", "training")
"""Arguments of operators that draw no random numbers if one of these is 0 or False."""


def _boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def boxed(inputs: list[Any]) -> Any:
        return function(*inputs)

    boxed._boxed_call = True  # type: ignore[attr-defined] # PyTorch looks for it
    return boxed


def _left_to_torch(
    graph: Any,
    reason: str,
    options: CompileOptions,
    operators: Mapping[str, int] | None = None,
    error: InterposerError | None = None,
) -> Callable[..., Any]:
    """Record that PyTorch runs a graph itself, and return the function with which it does.

    Raises:
        InterposerError: the option ``strict`` is set.
    """
    nodes = sum(1 for _ in _calls(graph))
    if options.strict:
        raise error or (
            UnsupportedOperatorError(operators) if operators else InterposerError(f"a graph is not run: {reason}")
        )
    record(Fallback(reason, _title(graph), nodes, dict(operators or {})))
    function: Callable[..., Any] = graph.forward
    return function


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3]) if lines else type(error).__name__


def _title(graph: Any) -> str:
    """Return the function and the line of the program that a graph comes from."""
    for node in _calls(graph):
        places = _PLACE.findall(node.meta.get("stack_trace") or "")
        if places:
            file, line, function = places[0]
            return f"the graph of {function} at {file.rpartition('/')[2]}:{line}"
    return "a graph"
