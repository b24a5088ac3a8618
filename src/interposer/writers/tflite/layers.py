"""Writing of one layer to the sheet, and of all layers of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from interposer.core.errors import UnknownRankError
from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops.control import Constant, Input, Output
from interposer.writers.borders import Border
from interposer.writers.refusals import RefusedError, refuse
from interposer.writers.tflite.draft import Draft
from interposer.writers.tflite.sheet import Sheet, Tensor
from interposer.writers.tflite.tables import type_code
from interposer.writers.tflite.tflite_layer_writers import Entry, find

__all__ = ["bind_inputs", "name_outputs", "write_layers"]

_PACKED: Final = frozenset({DataType.INT4, DataType.UINT4, DataType.INT2})
"""The types of 2 and 4 bits, which TFLite files only have for weights."""
Refusals: TypeAlias = Iterator[tuple[str, tuple[str, str]]]


def bind_inputs(border: Border, sheet: Sheet) -> Refusals:
    """Reserve the names of the inputs and outputs, and enter the inputs as tensors on the sheet.

    The result has the name of each input or output that a file cannot have, with its operator and the reason.
    """
    sheet.reserve([name for name, _ in (*border.inputs, *border.outputs)])
    for name, value in (*border.inputs, *border.outputs):
        reason = _unwritable(value.known)
        if reason:
            yield name, border.refused(value.producer, reason)[1]
    for name, value in border.inputs:
        sheet.values[value] = tensor = Tensor(name, value.known.with_constant(None))
        sheet.inputs.append(tensor)


def _unwritable(info: TensorInfo) -> str | None:
    """Return why a TFLite file cannot have a tensor with this info (its type, or an unknown rank); None if it can."""
    if not info.is_tensor or type_code(info.dtype) is None or info.dtype in _PACKED:
        return f"TFLite has no type {info.dtype}"
    return None if info.is_ranked else "its rank is not known"


def write_layers(border: Border, sheet: Sheet) -> Refusals:
    """Write all layers of `border` to the sheet, and yield each refused layer as (name, (operator, reason))."""
    names = {value: name for name, value in border.outputs}
    for layer in border.layers:
        if isinstance(layer.op, Constant):
            sheet.values[layer.output] = _tensor_of(layer.output, sheet.free_name(layer.name))
        elif not isinstance(layer.op, Input | Output):
            requested_names = [names.get(value) or sheet.free_name(value.name) for value in layer.outputs]
            reason = _write_layer(layer, sheet, requested_names)
            if reason is not None:
                yield border.refused(layer, reason)


def _tensor_of(value: Value, name: str) -> Tensor:
    """Return the tensor that stands for a value from outside the written layers, under `name`.

    If a constant layer produces the value, the tensor is a constant with its array.
    """
    constant = value.producer.op.value if isinstance(value.producer.op, Constant) else None
    return Tensor(name, value.known.with_constant(None), None if constant is None else np.asarray(constant))


def _write_layer(layer: Layer, sheet: Sheet, names: Sequence[str]) -> str | None:
    """Write a layer to the sheet; return the reason if it cannot be written, else None.

    `names` are the requested names of its outputs. The outputs of a refused layer become tensors too, so that the
    layers after it can be tried.
    """
    draft = Draft(sheet, layer, [None if value is None else sheet.values[value] for value in layer.inputs])
    try:
        with np.errstate(all="ignore"):
            results = draft.finish(_written(draft), names)
    except (RefusedError, UnknownRankError) as error:
        results = [Tensor(name, info) for name, info in zip(names, layer.output_infos, strict=True)]
        sheet.values.update(zip(layer.outputs, results, strict=True))
        return str(error)
    sheet.values.update(zip(layer.outputs, results, strict=True))
    return None


def _written(draft: Draft) -> list[Tensor]:
    """Add the operators of a layer to the draft, and return the layer's results.

    A layer that TFLite cannot express is refused. If the writer function does not handle types itself, float16 and
    bfloat16 data is cast to float32 and back.
    """
    for info in (*draft.infos, *draft.results):
        reason = None if info is None else _unwritable(info)
        if reason and not _is_packed(info):
            refuse(reason)
    registered = find(type(draft.layer.op))
    if registered is None:
        refuse("TFLite has no operators to make it of")
    if draft.is_quantized and not registered.quantized:
        refuse("TFLite has no operators for quantized tensors to make it of")
    if draft.is_quantized and registered.moves:
        _check_scales(draft)
    if registered.typed or not any(_is_narrow(info) for info in (*draft.infos, *draft.results)):
        return _called(registered, draft)
    wide = draft.widened()
    results = _called(registered, wide)
    draft.take_over(wide)
    return [draft.cast(item, info.dtype) for item, info in zip(results, draft.results, strict=True)]


def _called(registered: Entry, draft: Draft) -> list[Tensor]:
    written = registered.write(draft, draft.layer.op)
    return [written] if isinstance(written, Tensor) else list(written)


def _is_narrow(info: TensorInfo | None) -> bool:
    return info is not None and info.dtype in (DataType.FLOAT16, DataType.BFLOAT16)


def _is_packed(info: TensorInfo | None) -> bool:
    """Return True for constant quantized 4-bit integers (weights), which are packed two in a byte.

    No other tensor of a file can have this type.
    """
    return info is not None and info.dtype is DataType.INT4 and info.constant is not None and info.is_quantized


def _check_scales(draft: Draft) -> None:
    """Refuse a layer that moves elements between tensors whose quantization differs."""
    quantizations = {info.quantization for info in draft.infos if info is not None and info.is_quantized}
    inferred = draft.layer.op.infer_infos(*draft.infos)
    as_inferred = all(
        expected is None or expected.quantization == actual.quantization
        for expected, actual in zip(inferred, draft.results, strict=False)
    )
    if len(quantizations) > 1 or not as_inferred:
        refuse("it moves elements from one scale to another, which TFLite does not")


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
