"""Shape inference over a graph: each layer's operator computes the infos of its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, InvalidNetworkError
from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo
from interposer.ir.graph import Graph, Inference, Layer, Value, cycle_problem
from interposer.ir.regions import border_problems, bound_info, region_title
from interposer.ops.control import Constant, Input
from interposer.ops.control_flow import ControlFlow, If, Infos, merged_carried

_declared: Final = attrgetter("declared")
_info: Final = attrgetter("info")
_inference: Final = partial(tuple.__new__, Inference)
"""Makes an `Inference` of its fields; a fast path, as every layer of a network has one."""

__all__ = [
    "declare_quantization",
    "empty_branch",
    "failing_branches_emptied",
    "infer_graph",
    "infer_layer",
    "inferences_remembered",
    "inferred_for",
    "infos_for",
    "known_inference",
    "layer_problems",
    "set_infos",
    "shaped_by_data",
]


def infer_layer(layer: Layer) -> list[str]:
    """Infer the infos of a layer's outputs from those of its inputs, and set them; return error messages.

    For a control flow layer, the infos of the values in its regions are set too. If there are errors, or an input is
    unknown, the outputs become unknown.
    """
    last_inference = known_inference(layer) if layer.inferred is not None else None
    if last_inference is not None:
        for value, info in zip(layer.outputs, last_inference.outputs, strict=True):
            value.info = info
        return []
    if type(layer.op) is Constant and layer.outputs[0].declared is None:
        return _infer_constant(layer, layer.op)
    infos = layer.input_infos
    memory = None if layer._regions else _memory.get()
    key = None if memory is None else _inference_key(layer.op, infos)
    inferred_infos = None if memory is None or key is None else memory.get(key)
    errors: list[str] = []
    if inferred_infos is None:
        is_plain = all(infos) and not layer._regions and not isinstance(layer.op, ControlFlow)
        errors = layer.op.violations(*infos) if is_plain else layer_problems(layer)
        if errors or not (is_plain or all(map(_info, layer.values))):
            _clear_infos(layer.outputs)
            return errors
        try:
            inferred_infos = layer.op.infer_infos(*infos) if is_plain else _inferred(layer)
        except InvalidNetworkError as error:
            _clear_infos(layer.outputs)
            return list(error.problems)
        except InvalidArgumentError as error:
            _clear_infos(layer.outputs)
            return [str(error)]
        _remember(memory, key, inferred_infos)
    for value, info in zip(layer.outputs, inferred_infos, strict=True):
        is_given = value.declared is None and info is not None
        merged_info = info if is_given else _merged(info, value.declared, _title(value))
        errors += [merged_info] if isinstance(merged_info, str) else []
        value.info = None if isinstance(merged_info, str) else merged_info
    if not errors and not layer._regions:
        _set_inferred(layer, infos, tuple([output.info for output in layer.outputs]))
    return errors


def _infer_constant(layer: Layer, op: Constant) -> list[str]:
    try:
        _set_inferred(layer, (), (op.info,))
    except InvalidArgumentError as error:
        _clear_infos(layer.outputs)
        return [str(error)]
    return []


def inferred_for(op: Op, inputs: Sequence[TensorInfo | None]) -> Sequence[TensorInfo | None] | None:
    """Return the infos of an operator's results for operands with these infos; None if it does not accept them."""
    memory = _memory.get()
    key = None if memory is None else _inference_key(op, inputs)
    inferred_infos = None if memory is None or key is None else memory.get(key)
    if inferred_infos is None and not op.violations(*inputs):
        inferred_infos = op.infer_infos(*inputs)
        _remember(memory, key, inferred_infos)
    return inferred_infos


def declare_quantization(value: Value, quantization: Quantization) -> None:
    """Declare that an output of a new layer has its inferred type and shape, but this quantization.

    Raises:
        InvalidArgumentError: the quantization does not fit the type or the shape.
    """
    layer, inferred_info = value.producer, value.known
    value.info = value.declared = TensorInfo(inferred_info.shape, inferred_info.dtype, quantization)
    if layer.inferred is not None:
        _set_inferred(layer, layer.input_infos, tuple([output.info for output in layer.outputs]))


def set_infos(layer: Layer, *infos: TensorInfo) -> None:
    """Set the infos of a layer's outputs as if they were inferred.

    The caller is certain that the operator accepts the inputs, and that inference would give the same infos.
    """
    _set_inferred(layer, layer.input_infos, infos)


_Infos = tuple[TensorInfo | None, ...]
_Memory = dict[Any, Sequence[TensorInfo | None]]
_memory: ContextVar[_Memory | None] = ContextVar("interposer_inferences", default=None)


@contextmanager
def inferences_remembered() -> Iterator[None]:
    """Infer equal layers on equal inputs only once in this block, as large networks have many of them."""
    if _memory.get() is not None:
        yield
        return
    token = _memory.set({})
    try:
        yield
    finally:
        _memory.reset(token)


def _inference_key(op: Op, inputs: Sequence[TensorInfo | None]) -> tuple[Any, ...] | None:
    """Return a key of an operator and the infos of its inputs; None if equal keys may not have equal results.

    Constants are identified by their arrays, which the infos in the key refer to.
    """
    if not inputs or not op.executable:
        return None
    constants = []
    for info in inputs:
        if info is None or info.element is not None or not info.shape.is_concrete:
            return None
        constants.append(id(info.constant))
    return op, *inputs, *constants


def _remember(memory: _Memory | None, key: tuple[Any, ...] | None, inferred_infos: Sequence[TensorInfo | None]) -> None:
    if memory is not None and key is not None and all(map(_is_plain, inferred_infos)):
        memory[key] = inferred_infos


def _is_plain(info: TensorInfo | None) -> bool:
    """Return True if equal infos are the same in all respects, as infos with constants or named dimensions are not."""
    return info is not None and info.constant is None and info.element is None and info.shape.is_concrete


def _set_inferred(layer: Layer, inputs: _Infos, infos: _Infos) -> None:
    for value, info in zip(layer.outputs, infos, strict=True):
        value.info = info
    layer.inferred = _inference((layer.op, inputs, tuple(map(_declared, layer.outputs)), infos))


def known_inference(layer: Layer) -> Inference | None:
    """Return the last inference of a layer if it had no errors and operator and infos are still the same, else None.

    Operators and infos are immutable, so the inference need not be repeated.
    """
    last_inference, outputs, inputs = layer.inferred, layer.outputs, layer._inputs
    if last_inference is None or last_inference.op is not layer.op or layer._regions:
        return None
    if len(last_inference.inputs) != len(inputs) or len(last_inference.outputs) != len(outputs):
        return None
    for value, info in zip(inputs, last_inference.inputs, strict=True):
        if info is not (None if value is None else value.info):
            return None
    for output, declared_info in zip(outputs, last_inference.declared, strict=True):
        if output.declared is not declared_info:
            return None
    return last_inference


def layer_problems(layer: Layer) -> list[str]:
    """Return the errors in a layer's inputs, without errors that only follow from an unknown input."""
    infos = layer.input_infos
    if not all(map(_info, layer.values)):
        arguments = zip(layer.op.operands, layer.op.arguments(layer.inputs), strict=True)
        missing_names = [
            declared_operand.name
            for declared_operand, value in arguments
            if value is None and not declared_operand.optional
        ]
        return [f"{name} is not connected" for name in missing_names]
    return layer.op.violations(*infos) or list(border_problems(layer))


def _inferred(layer: Layer) -> Sequence[TensorInfo | None]:
    if isinstance(layer.op, ControlFlow):
        return _through_regions(layer, layer.op)
    return layer.op.infer_infos(*layer.input_infos)


def _through_regions(layer: Layer, op: ControlFlow) -> Infos:
    """Infer the infos in the regions of a control flow layer, and return the infos of the layer's outputs.

    The regions of a loop are inferred repeatedly, until the infos of carried values are valid in every iteration. This
    ends, as every round makes at least one dimension of a carried value unknown.
    """
    operands = op.arguments(layer.input_infos)
    carried_infos = tuple(info.with_constant(None) for info in op.initial(operands))
    while True:
        bound = op.bound(operands, carried_infos)
        if isinstance(op, If):
            return _through_branches(layer, op, bound)
        region_outputs = tuple(_through_region(layer, index, infos) for index, infos in enumerate(bound))
        carried_after = op.carried_on(region_outputs)
        merged_infos = merged_carried(carried_infos, carried_after)
        if merged_infos == carried_infos:
            _check_bound(layer, op.bound(operands, carried_after))
            return op.gives(operands, carried_infos, region_outputs)
        carried_infos = merged_infos


def _through_branches(layer: Layer, op: If, bound: Sequence[Infos]) -> Infos:
    """Infer the infos in the branches of an If, whose inputs have the infos `bound`, and return those of its outputs.

    Within `failing_branches_emptied`, a branch with errors is recorded there, and the infos are those of the other one.
    """
    failed_branches = _failing.get()
    outputs, errors = list[Infos](), dict[int, InvalidNetworkError]()
    for index, infos in enumerate(bound):
        try:
            outputs.append(_through_region(layer, index, infos))
        except InvalidNetworkError as error:
            errors[index] = error
    if failed_branches is not None:
        failed_branches.pop(layer, None)
    if not errors:
        return op.gives((), (), outputs)
    [(index, first), *other_errors] = errors.items()
    if failed_branches is None or other_errors or any(op.failures):
        raise first
    failed_branches[layer] = index, "; ".join(first.problems)
    return outputs[0]


_Failing = dict[Layer, tuple[int, str]]
_failing: ContextVar[_Failing | None] = ContextVar("interposer_failing_branches", default=None)


@contextmanager
def failing_branches_emptied() -> Iterator[None]:
    """Let one branch of an If have errors when layers are inferred in this block, such as shapes that do not fit.

    At the end of the block, such a branch is emptied, with the error as the reason: the layer has the infos of the
    other branch, and fails if it takes the empty one. Branches are only inferred for the shapes of these inputs, so
    their networks must not be used for others afterwards.
    """
    token = _failing.set({})
    try:
        yield
        failed_branches = _failing.get() or {}
    finally:
        _failing.reset(token)
    for layer, (index, reason) in failed_branches.items():
        empty_branch(layer, index, reason)


def empty_branch(layer: Layer, index: int, reason: str) -> None:
    """Remove all layers but the inputs from branch `index` of an If, which fails for `reason` when it is taken."""
    region = layer.regions[index]
    for inner in reversed(region.topological()):
        if not isinstance(inner.op, Input):
            region.erase(inner)
    layer.op = layer.op.replace(**{f"{region_title(layer, index)}_failure": reason})


def _through_region(layer: Layer, index: int, bound: Infos) -> Infos:
    """Infer the infos in the layer's region `index` when its inputs are bound to tensors with the infos `bound`.

    Returns the infos of the region's outputs.

    Raises:
        InvalidNetworkError: layers of the region have errors; lists all of them.
    """
    region = layer.regions[index]
    order, stuck_layers = region.schedule()
    errors = [cycle_problem(stuck_layers)] if stuck_layers else []
    for region_input, info in zip(region.inputs, bound, strict=True):
        bound_or_error = bound_info(region_input.output, info)
        errors += [f"layer {region_input}: {bound_or_error}"] if isinstance(bound_or_error, str) else []
        region_input.output.info = None if isinstance(bound_or_error, str) else bound_or_error
    for inner_layer in order:
        errors += (
            ()
            if isinstance(inner_layer.op, Input)
            else (f"layer {inner_layer}: {error}" for error in infer_layer(inner_layer))
        )
    if errors:
        raise InvalidNetworkError([f"region {region_title(layer, index)!r}: {error}" for error in errors])
    return tuple(region_output.values[0].known for region_output in region.outputs)


def _check_bound(layer: Layer, bound: Sequence[Infos]) -> None:
    """Check that the values that one iteration passes to the next one fit the declared inputs of the regions.

    `bound` has the infos of these values for the inputs of each region. Raises `InvalidArgumentError` if one does not
    fit.
    """
    for index, (region, infos) in enumerate(zip(layer.regions, bound, strict=True)):
        for region_input, info in zip(region.inputs, infos, strict=True):
            bound_or_error = bound_info(region_input.output, info)
            if isinstance(bound_or_error, str):
                raise InvalidArgumentError(
                    f"region {region_title(layer, index)!r}: layer {region_input}: {bound_or_error}"
                )


def infos_for(layer: Layer, inputs: Sequence[TensorInfo | None]) -> list[TensorInfo]:
    """Return the infos of a layer's outputs for other inputs, which have the infos `inputs`; the layer is not changed.

    What is already known of the outputs remains; a control flow layer keeps all infos of its outputs.

    Raises:
        InvalidArgumentError: the operator does not accept the inputs, or its results contradict the known infos.
    """
    errors = layer.op.violations(*inputs)
    if errors:
        raise InvalidArgumentError("; ".join(errors))
    if isinstance(layer.op, ControlFlow):
        return [value.known for value in layer.outputs]
    infos = []
    for value, info in zip(layer.outputs, layer.op.infer_infos(*inputs), strict=True):
        merged_info = _merged(info, value.known, _title(value))
        if isinstance(merged_info, str):
            raise InvalidArgumentError(merged_info)
        infos.append(merged_info)
    return infos


def shaped_by_data(graph: Graph) -> set[Value]:
    """Return the values whose shapes are known only at run time, even if the shapes of all inputs are known.

    These are dynamic results whose shape inference could not determine, and the values that depend on them. In a
    region, these are all values of unknown shape.
    """
    if graph.owner is not None:
        return {value for layer in graph for value in layer.outputs if value.info and not value.info.is_concrete}
    values: set[Value] = set()
    for layer in graph.topological():
        depends_on_data = not values.isdisjoint(layer.values)
        for value in layer.outputs:
            if value.info is not None and not value.info.is_concrete and (depends_on_data or _is_dynamic(value)):
                values.add(value)
    return values


def _is_dynamic(value: Value) -> bool:
    declared_results = value.producer.op.results
    return declared_results[min(value.index, len(declared_results) - 1)].dynamic


def _clear_infos(values: Iterable[Value]) -> None:
    for value in values:
        value.info = None


def _title(value: Value) -> str:
    return "its output" if len(value.producer.outputs) == 1 else f"its output {value.index}"


def _merged(inferred_info: TensorInfo | None, declared_info: TensorInfo | None, title: str) -> TensorInfo | str:
    if inferred_info is None:
        hint = "has no tensor info and none can be inferred; declare it with outputs=[TensorInfo(...)]"
        return declared_info or f"{title} {hint}"
    if declared_info is None:
        return inferred_info
    if declared_info.dtype is not inferred_info.dtype:
        return f"{title} is declared as {declared_info.dtype}, but it gives {inferred_info.dtype}"
    has_same_shape = declared_info.shape == inferred_info.shape
    if has_same_shape and _is_plain(inferred_info) and _is_plain(declared_info):
        return declared_info
    if not has_same_shape and not declared_info.shape.accepts(inferred_info.shape):
        return f"{title} is declared with shape {declared_info.shape}, but it gives {inferred_info.shape}"
    element = inferred_info.element and _merged(
        inferred_info.element, declared_info.element, f"every element of {title}"
    )
    if isinstance(element, str):
        return element
    shape = inferred_info.shape.merged(declared_info.shape)
    try:
        return TensorInfo(shape, inferred_info.dtype, declared_info.quantization, inferred_info.constant, element)
    except InvalidArgumentError as error:
        return f"{title} cannot be as it is declared: {error}"


def infer_graph(graph: Graph) -> None:
    """Infer the infos of all values.

    Raises:
        InvalidNetworkError: with every error of every layer.
    """
    errors = [f"layer {layer}: {error}" for layer in graph.topological() for error in infer_layer(layer)]
    if errors:
        raise InvalidNetworkError(errors, graph.name)
