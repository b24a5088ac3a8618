"""Writing of one layer to the sheet, and of all layers of a graph."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Input, Output
from interposer.writers import emission
from interposer.writers.armnn.armnn_layer_writers import LAYER_WRITERS
from interposer.writers.armnn.draft import Draft
from interposer.writers.armnn.releases import since_type
from interposer.writers.armnn.sheet import Sheet, Step, Tensor
from interposer.writers.armnn.types import dimensions, problem, type_name
from interposer.writers.borders import Border
from interposer.writers.emission import Refusals, array_of
from interposer.writers.refusals import refuse
from interposer.writers.registry import called

__all__ = ["bind_inputs", "bind_outputs", "write_layers"]


def bind_inputs(border: Border, sheet: Sheet) -> Refusals:
    """Enter the inputs on the sheet; yield (name, (operator, reason)) for each that a file cannot have."""
    ids = {layer.output: layer.op.binding_id for layer in border.layers if isinstance(layer.op, Input)}
    for number, (name, value) in enumerate(border.inputs):
        reason = _problem(value.known, sheet)
        if reason is not None:
            yield name, ("Input", reason)
        sheet.values[value] = tensor = _plain(value.known) if reason is None else Tensor(value.known)
        sheet.inputs.append(Step("Input", name, [], [tensor], binding_id=ids.get(value, number)))


def _plain(info: TensorInfo) -> Tensor:
    return Tensor(TensorInfo(dimensions(info), info.dtype, info.quantization))


def _problem(info: TensorInfo, sheet: Sheet) -> str | None:
    reason = _reason(info)
    if reason is not None:
        return reason
    name = type_name(info)
    since = since_type(name)
    if not sheet.release.has(since):
        return f"the type {name} exists since Arm NN {since}, and the file is for {sheet.release.target}"
    sheet.release.use(since)
    return None


def write_layers(border: Border, sheet: Sheet) -> Refusals:
    """Write all layers of `border` to the sheet, and yield each refused layer as (name, (operator, reason))."""

    def constant(value: Value) -> Tensor:
        return Tensor(value.known.with_constant(None), array_of(value), value.producer.name)

    def write(layer: Layer) -> list[Tensor] | None:
        if layer in sheet.written:
            return None
        draft = Draft(sheet, layer, [None if value is None else sheet.values[value] for value in layer.inputs])
        results = _written(draft)
        draft.finish()
        return results

    def stand_ins(layer: Layer) -> list[Tensor]:
        return [Tensor(value.known) for value in layer.outputs]

    return emission.write_layers(border, sheet.values, constant, write, stand_ins)


def _written(draft: Draft) -> list[Tensor]:
    """Add the layers of Arm NN for a layer to the draft, and return the layer's results."""
    for name, info in (*_operands(draft), *(("", info) for info in draft.results)):
        reason = _reason(info, is_bias="bias" in name)
        if reason is not None:
            refuse(reason)
    entry = LAYER_WRITERS.find(type(draft.layer.op))
    if entry is None or entry.write is None:
        refuse("Arm NN has no layers to make it of")
    if not entry.moves and any(info is not None and _is_plain_integer(info) for info in (*draft.infos, *draft.results)):
        refuse("Arm NN only has 8-bit integers that are quantized")
    return called(entry.write, draft)


def _operands(draft: Draft) -> Iterator[tuple[str, TensorInfo]]:
    """Yield the names and infos of the operands that are present."""
    declared_operands = draft.layer.op.operands
    for number, info in enumerate(draft.infos):
        if info is not None:
            yield declared_operands[min(number, len(declared_operands) - 1)].name, info


def _reason(info: TensorInfo, *, is_bias: bool = False) -> str | None:
    """Return why Arm NN cannot have a tensor, or None if it can; only biases are quantized values of int32."""
    if info.dtype is DataType.INT32 and info.is_quantized and not is_bias:
        return "Arm NN has no quantized int32 except for biases"
    if info.dtype is DataType.INT64 and info.is_quantized and is_bias:
        return None  # becomes int32
    return problem(info)


def _is_plain_integer(info: TensorInfo) -> bool:
    return info.dtype in (DataType.UINT8, DataType.INT8) and not info.is_quantized


def _outputs_beside(sheet: Sheet, value: Value) -> int:
    """Return how many outputs the layer of the file has that computes a value."""
    tensor = sheet.values[value]
    return next((len(step.outputs) for step in (*sheet.inputs, *sheet.steps) if tensor in step.outputs), 1)


def bind_outputs(border: Border, sheet: Sheet) -> Refusals:
    """Enter the outputs on the sheet; yield (name, (operator, reason)) for each that a file cannot have."""
    ids = {layer.name: layer.op.binding_id for layer in border.layers if isinstance(layer.op, Output)}
    for number, (name, value) in enumerate(border.outputs):
        reason = _problem(value.known, sheet)
        if reason is not None:
            yield name, ("Output", reason)
        elif sheet.release.target == "20.08" and number >= _outputs_beside(sheet, value):
            yield (
                name,
                ("Output", f"Arm NN 20.08 only reads output {number} if its layer has so many outputs before it"),
            )
        sheet.outputs.append(Step("Output", name, [sheet.values[value]], [], binding_id=ids.get(name, number)))
