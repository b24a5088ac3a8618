"""The invariants of a graph, which hold before and after every pass, including passes of plug-ins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from interposer.core.errors import InvalidArgumentError, VerificationError
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import known_inference, layer_problems
from interposer.ir.regions import region_title
from interposer.ir.states import state_problems
from interposer.ops.control import Input, MemCopy, MemImport, Output, PreCompiled
from interposer.ops.control_flow import ControlFlow

__all__ = ["verify"]


def verify(graph: Graph, after: str = "", *, placed: bool = False) -> None:
    """Check all invariants of a graph and of the regions of its layers; takes time linear in the graph's size.

    - Names are unique and the graph knows them; binding ids are unique among inputs and among outputs.
    - Every layer has the outputs that its operator gives, no more inputs than operands, and all required ones.
    - Every input is an output of a layer of the graph; inputs and uses agree both ways; nothing depends on itself.
    - Every state has one layer that reads it and at most one that sets it, with the same type and shape.
    - Every tensor has an info that agrees with the info that its layer's operator infers.
    - A layer with control flow has the regions that its operator names, with the inputs and outputs that it binds.
    - With `placed`, every layer that runs has a backend, and takes only tensors for which a kind of memory was chosen.

    Raises:
        VerificationError: lists all violations; `after` names the pass that ran before.
    """
    errors = list(_graph_problems(graph, placed))
    if errors:
        raise VerificationError(errors, after)


def _graph_problems(graph: Graph, placed: bool) -> Iterator[str]:
    structure = [*_name_problems(graph), *_use_problems(graph)]
    for layer in graph:
        local_problems = (
            [] if _is_sound(graph, layer) else [*_connection_problems(graph, layer), *_output_problems(layer)]
        )
        if local_problems:
            structure += [f"layer {layer}: {error}" for error in local_problems]
        elif not _has_inferred_infos(layer):
            for error in _info_problems(layer):
                yield f"layer {layer}: {error}"
        if placed:
            yield from (f"layer {layer}: {error}" for error in _placement_problems(layer))
        for index, region in enumerate(layer._regions):
            title = f"region {region_title(layer, index)} of layer {layer}"
            yield from (f"{title}: {error}" for error in _region_problems(layer, region, placed))
    yield from structure or _cycle_problems(graph)
    yield from _binding_problems(graph)
    yield from state_problems(graph)


def _is_sound(graph: Graph, layer: Layer) -> bool:
    """Return True if the inputs and outputs of a layer without optional operands are certain to have no errors."""
    op, outputs, inputs = layer.op, layer.outputs, layer._inputs
    if len(inputs) != len(op.operands) or len(outputs) != op.num_results():
        return False
    for index, output in enumerate(outputs):
        if output.producer is not layer or output.index != index:
            return False
    for value in inputs:
        if value is None or value.producer.guid not in graph._layers:
            return False
        producer_outputs = value.producer.outputs
        if value.index >= len(producer_outputs) or producer_outputs[value.index] is not value:
            return False
    return True


def _region_problems(layer: Layer, region: Graph, placed: bool) -> Iterator[str]:
    if region.owner is not layer:
        yield "it does not know whose region it is"
    yield from _graph_problems(region, placed)


def _name_problems(graph: Graph) -> Iterator[str]:
    counts = Counter([layer.name for layer in graph])
    yield from (f"{count} layers are called {name!r}" for name, count in counts.items() if count > 1)
    yield from (f"the name {name!r} is not among the graph's names" for name in sorted(counts.keys() - graph._names))
    yield from (f"the name {name!r} is taken, but no layer has it" for name in sorted(graph._names - counts.keys()))


def _use_problems(graph: Graph) -> Iterator[str]:
    actual_uses = Counter(
        [
            (id(tensor), layer.guid, position)
            for layer in graph
            for position, tensor in enumerate(layer._inputs)
            if tensor is not None
        ]
    )
    recorded_uses = Counter(
        [
            (id(tensor), user.guid, position)
            for layer in graph
            for tensor in layer.outputs
            for user, position in tensor.uses._uses
        ]
    )
    if dict.__eq__(actual_uses, recorded_uses):  # faster than the method of Counter, which lets a count of 0 be absent
        return
    for value in (value for layer in graph for value in layer.outputs):
        for use in dict.fromkeys(value.uses):
            key = (id(value), use.layer.guid, use.position)
            if recorded_uses[key] != actual_uses[key]:
                recorded_times, actual_times = _times(recorded_uses[key]), _times(actual_uses[key])
                yield (f"tensor {value.name!r} notes {recorded_times} that layer {use.layer} takes it as input "
                       f"{use.position}; expected {actual_times}")  # fmt: skip
    for layer in graph:
        for index, input_value in enumerate(layer.inputs):
            if input_value is not None and not recorded_uses[id(input_value), layer.guid, index]:
                yield f"tensor {input_value.name!r} does not note that layer {layer} takes it as input {index}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _connection_problems(graph: Graph, layer: Layer) -> Iterator[str]:
    error = layer.op.arity_problem(len(layer.inputs))
    if error:
        yield error
        return
    for declared_operand, argument in zip(layer.op.operands, layer.op.arguments(layer.inputs), strict=True):
        if not declared_operand.optional and argument in (None, ()):
            yield f"{declared_operand.name} is not connected"
    for index, value in enumerate(layer.inputs):
        if value is not None:
            yield from (f"input {index}, {value.name!r}, {problem}" for problem in _producer_problems(graph, value))


def _producer_problems(graph: Graph, value: Value) -> Iterator[str]:
    outputs = value.producer.outputs
    if value.producer not in graph:
        yield f"comes from layer {value.producer}, which is not in the graph"
    elif not (value.index < len(outputs) and outputs[value.index] is value):
        yield f"is no longer an output of layer {value.producer}"


def _output_problems(layer: Layer) -> Iterator[str]:
    expected = layer.op.num_results()
    if len(layer.outputs) != expected:
        yield f"it has {len(layer.outputs)} outputs; {layer.kind} gives {expected}"
    for index, value in enumerate(layer.outputs):
        if value.producer is not layer:
            yield f"output {index} says that layer {value.producer} gives it"
        if value.index != index:
            yield f"output {index} says that it is output {value.index}"


def _has_inferred_infos(layer: Layer) -> bool:
    """Return True if all outputs of a layer have the infos of its last inference, which is still valid."""
    last_inference = known_inference(layer)
    if last_inference is None:
        return False
    for value, info in zip(layer.outputs, last_inference.outputs, strict=True):
        if info is None or value.info is not info:
            return False
    return True


def _info_problems(layer: Layer) -> Iterator[str]:
    """Yield errors in the infos of a layer, without errors that only follow from a missing info of an input."""
    yield from (f"output {value.name!r} has no info" for value in layer.outputs if value.info is None)
    if any(value.info is None for value in layer.values):
        return
    errors = layer_problems(layer)
    yield from errors or (_crossing_problems(layer, layer.op) if isinstance(layer.op, ControlFlow) else ())
    yield from () if errors else _inference_problems(layer)


def _crossing_problems(layer: Layer, op: ControlFlow) -> Iterator[str]:
    """Yield an error for each info of a region's input or result that contradicts the layer's own tensors.

    These are the tensors that the control flow layer binds to the input, or that it computes from the result.
    """
    operands = op.arguments(layer.input_infos)
    results = [[inner.values[0].info for inner in region.outputs if inner.values] for region in layer.regions]
    known_results = tuple(tuple(info for info in infos if info is not None) for infos in results)
    if tuple(map(len, known_results)) != op.region_outputs():
        return  # the missing infos are reported for the region itself
    try:
        for carried_infos in (op.initial(operands), op.carried_on(known_results)):
            yield from _entering_problems(layer, op.bound(operands, carried_infos))
        for value, info in zip(
            layer.outputs, op.gives(operands, op.carried_on(known_results), known_results), strict=True
        ):
            if value.info is not None and not _agree(value.info, info):
                yield f"output {value.name!r} is {value.info}; its regions give {info}"
    except InvalidArgumentError as error:
        yield str(error)


def _entering_problems(layer: Layer, bound: Sequence[Sequence[TensorInfo]]) -> Iterator[str]:
    for index, infos in enumerate(bound):
        for region_input, info in zip(layer.regions[index].inputs, infos, strict=True):
            if region_input.output.info is not None and not _agree(region_input.output.info, info):
                title = f"region {region_title(layer, index)!r}"
                yield f"{title} takes {region_input.output.info} as {region_input.name!r}, but gets {info}"


def _inference_problems(layer: Layer) -> Iterator[str]:
    try:
        inferred_infos = layer.op.infer_infos(*layer.input_infos)
    except InvalidArgumentError as error:
        yield str(error)
        return
    if len(inferred_infos) != len(layer.outputs):
        yield f"{layer.kind} infers {len(inferred_infos)} infos for {len(layer.outputs)} outputs"
        return
    for value, info in zip(layer.outputs, inferred_infos, strict=True):
        if value.info is not None and not _agree(value.info, info):
            yield f"output {value.name!r} is {value.info}; {layer.kind} gives {info}"


def _agree(info: TensorInfo, inferred_info: TensorInfo | None) -> bool:
    return inferred_info is None or (info.dtype is inferred_info.dtype and info.shape.accepts(inferred_info.shape))


def _placement_problems(layer: Layer) -> Iterator[str]:
    if not layer.backend and (layer.op.executable or isinstance(layer.op, PreCompiled)):
        yield "it has no backend"
    if not layer.backend or isinstance(layer.op, MemCopy | MemImport | ControlFlow):
        return
    for value in layer.values:
        if not value.is_constant and value.factory is None:
            yield f"it runs on {layer.backend} and takes {value.name!r}, for which no memory was chosen"


def _cycle_problems(graph: Graph) -> Iterator[str]:
    try:
        graph.topological()
    except VerificationError as error:
        yield from error.problems


def _binding_problems(graph: Graph) -> Iterator[str]:
    for kind in (Input, Output):
        name_of_id: dict[int, str] = {}
        for layer in graph:
            if isinstance(layer.op, kind):
                first_name = name_of_id.setdefault(layer.op.binding_id, layer.name)
                if first_name != layer.name:
                    yield (f"{kind.__name__.lower()} binding id {layer.op.binding_id} is used by layers {first_name!r} "
                           f"and {layer.name!r}")  # fmt: skip
