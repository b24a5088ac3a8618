"""Writing of one layer to the sheet, and of all layers of a graph."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.writers import emission
from interposer.writers.borders import Border
from interposer.writers.emission import Refusals, array_of
from interposer.writers.refusals import refuse
from interposer.writers.registry import called
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Sheet, Tensor
from interposer.writers.tflite.tables import type_code
from interposer.writers.tflite.tflite_layer_writers import LAYER_WRITERS

__all__ = ["bind_inputs", "name_outputs", "write_layers"]

_MOST_AXES: Final = 8
_PACKED: Final = frozenset({DataType.INT4, DataType.UINT4, DataType.INT2})
"""The types of 2 and 4 bits, which TFLite files only have for weights."""


def bind_inputs(border: Border, sheet: Sheet) -> Refusals:
    """Reserve the names of the inputs and outputs, and enter the inputs as tensors on the sheet.

    The result has the name of each input or output that a file cannot have, with its operator and the reason.
    """
    sheet.names.reserve([name for name, _ in (*border.inputs, *border.outputs)])
    for name, value in (*border.inputs, *border.outputs):
        reason = _unwritable(value.known)
        if reason:
            yield name, border.refused(value.producer, reason)[1]
    for name, value in border.inputs:
        sheet.values[value] = tensor = Tensor(name, value.known.with_constant(None))
        sheet.inputs.append(tensor)


def _unwritable(info: TensorInfo) -> str | None:
    """Return why a TFLite file cannot have a tensor with this info (its type or its rank); None if it can."""
    if not info.is_tensor or type_code(info.dtype) is None or info.dtype in _PACKED:
        return f"TFLite has no type {info.dtype}"
    if info.is_ranked and info.rank > _MOST_AXES:
        return f"a tensor has rank {info.rank}, and TFLite's kernels take at most {_MOST_AXES}"
    return None if info.is_ranked else "its rank is not known"


def write_layers(border: Border, sheet: Sheet) -> Refusals:
    """Write all layers of `border` to the sheet, and yield each refused layer as (name, (operator, reason))."""
    output_names = {value: name for name, value in border.outputs}
    names: dict[Value, str] = {}

    def constant(value: Value) -> Tensor:
        name = sheet.names.free(value.producer.name)
        return Tensor(name, value.known.with_constant(None), array_of(value))

    def write(layer: Layer) -> list[Tensor]:
        names.update((value, output_names.get(value) or sheet.names.free(value.name)) for value in layer.outputs)
        draft = Draft(sheet, layer, [None if value is None else sheet.values[value] for value in layer.inputs])
        return draft.finish(_written(draft), [names[value] for value in layer.outputs])

    def stand_ins(layer: Layer) -> list[Tensor]:
        return [Tensor(names[value], value.known) for value in layer.outputs]

    return emission.write_layers(border, sheet.values, constant, write, stand_ins)


def _written(draft: Draft) -> list[Tensor]:
    """Add the operators of a layer to the draft, and return the layer's results.

    A layer that TFLite cannot express is refused. If the writer function does not handle types itself, float16 and
    bfloat16 data is cast to float32 and back.
    """
    for info in (*draft.infos, *draft.results):
        reason = None if info is None else _unwritable(info)
        if reason and not _is_packed(info):
            refuse(reason)
    registered = LAYER_WRITERS.find(type(draft.layer.op))
    if registered is None or registered.write is None:
        refuse("TFLite has no operators to make it of")
    if draft.is_quantized and registered.moves and not draft.keeps_scales:
        refuse("it moves elements from one scale to another, which TFLite does not")
    if draft.is_quantized and not registered.moves and registered.exact is None:
        refuse("TFLite has no operators for quantized tensors to make it of")
    if registered.typed or not any(_is_narrow(info) for info in (*draft.infos, *draft.results)):
        return called(registered.write, draft)
    wide_draft = draft.widened()
    results = called(registered.write, wide_draft)
    draft.take_over(wide_draft)
    return [draft.cast(tensor, info.dtype) for tensor, info in zip(results, draft.results, strict=True)]


def _is_narrow(info: TensorInfo | None) -> bool:
    return info is not None and info.dtype in (DataType.FLOAT16, DataType.BFLOAT16)


def _is_packed(info: TensorInfo | None) -> bool:
    """Return True for constant quantized 4-bit integers (weights), which are packed two in a byte.

    No other tensor of a file can have this type.
    """
    return info is not None and info.dtype is DataType.INT4 and info.constant is not None and info.is_quantized


def name_outputs(border: Border, sheet: Sheet) -> None:
    """Set the sheet's outputs to the tensors of those in `border`, each under the output's name.

    A tensor that is a constant, an input, or has another name is copied by a RESHAPE to its own shape.
    """
    for name, value in border.outputs:
        tensor = sheet.values[value]
        if tensor.array is not None or tensor.name != name or tensor in sheet.inputs:
            draft = Draft(sheet, value.producer, ())
            [tensor] = draft.finish([draft.reshape_to(tensor, value.known)], [name])
        sheet.outputs.append(tensor)
