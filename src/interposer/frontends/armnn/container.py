"""The layers of an Arm NN file, checked: every connection leads to an output, and no layer depends on itself."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NoReturn

from interposer.core.errors import DamagedFileError, ParseError
from interposer.formats.armnn.schema import SCHEMA
from interposer.formats.armnn.schema import layers as known_layers
from interposer.frontends.armnn.contents import Content, Layer, Slot
from interposer.frontends.flatbuffer import Reader, Record
from interposer.frontends.refusals import missing_operators

__all__ = ["read_content"]

IDENTIFIER: Final = b"ARMN"
_HEAD: Final = 8
_MOST_LAYERS: Final = 1 << 16


def read_content(data: bytes | bytearray | memoryview | mmap.mmap) -> Content:
    """Read the bytes of an Arm NN file, with or without the file identifier of the format.

    The content refers to `data`, which must stay unchanged, and open where mapped, while it is in use.

    Raises:
        ParseError: the file is damaged, truncated or no Arm NN file.
    """
    view = memoryview(data)
    view = (view if view.c_contiguous else memoryview(bytes(view))).cast("B").toreadonly()
    if len(view) < _HEAD:
        raise DamagedFileError(f"it has {len(view)} bytes, and an Arm NN file has at least {_HEAD}")
    reader = Reader(view, SCHEMA)
    root = reader.root("SerializedGraph", 8 if bytes(view[4:8]) == IDENTIFIER else 4)
    content = _content(root)
    reader.refuse_overlaps()
    return content


def _content(root: Record) -> Content:
    records = root["layers"]
    if not records:
        raise DamagedFileError("it has no layers", where="layers")
    if len(records) > _MOST_LAYERS:
        raise ParseError(f"the network has more than {_MOST_LAYERS:,} layers, which is not supported")
    _refuse_later(records)
    layers = _by_index(_layer(record, position) for position, record in enumerate(records))
    versions = root["featureVersions"] or {}
    by_index = not (versions and versions["bindingIdsScheme"])
    inputs = _bound(layers, root["inputIds"], "Input", by_index)
    outputs = _bound(layers, root["outputIds"], "Output", by_index)
    return Content(_ordered(layers), inputs, outputs, versions["weightsLayoutScheme"] if versions else 0)


# --- layers -----------------------------------------------------------------------------------------------------------


def _refuse_later(records: Sequence[Record]) -> None:
    """Raise `UnsupportedOperatorError` for layers of types that the format did not have when this was written."""
    later = [
        (f"layer type {record['layer_type']}", f"layers[{position}]")
        for position, record in enumerate(records)
        if record["layer_type"] > len(known_layers())
    ]
    if later:
        raise missing_operators(later)


def _layer(record: Record, position: int) -> Layer:
    where = f"layers[{position}]"
    member = record["layer"]
    if member is None:
        raise DamagedFileError("it is no layer", where=where)
    kind = member.type.removesuffix("Layer")
    outer_base = member["base"] or _fail("base is missing", f"{where} {kind}")
    bindable = outer_base.type == "BindableLayerBase"
    base = (outer_base["base"] or _fail("base.base is missing", f"{where} {kind}")) if bindable else outer_base
    name, binding_id = base["layerName"] or "", outer_base["layerBindingId"] if bindable else 0
    layer = Layer(kind, position, base["index"], name, {}, (), binding_id, member.fields)
    return Layer(
        kind, position, base["index"], name, _inputs(base, layer.where), _outputs(base, layer.where), binding_id,
        member.fields,
    )  # fmt: skip


def _inputs(base: Record, where: str) -> Mapping[int, Slot]:
    slots = dict[int, Slot]()
    for slot in base["inputSlots"] or ():
        connection = slot["connection"]
        if slot["index"] in slots:
            _fail(f"two input slots have the number {slot['index']}", where)
        if connection is not None:
            seen_as = slot["overriddenTensorInfo"] if slot["isOverridden"] else None
            slots[slot["index"]] = Slot(connection["sourceLayerIndex"], connection["outputSlotIndex"], seen_as)
    return slots


def _outputs(base: Record, where: str) -> tuple[Record, ...]:
    slots = base["outputSlots"] or ()
    infos: dict[int, Record] = {slot["index"]: slot["tensorInfo"] for slot in slots}
    if sorted(infos) != list(range(len(slots))):
        _fail(f"the output slots have the numbers {[slot['index'] for slot in slots]}", where)
    for number, info in infos.items():
        if info is None:
            _fail(f"output slot {number} has no tensor info", where)
    return tuple(infos[number] for number in range(len(slots)))


def _by_index(layers: Iterable[Layer]) -> dict[int, Layer]:
    layers_by_index = dict[int, Layer]()
    for layer in layers:
        if layer.index in layers_by_index:
            _fail(f"it has the index {layer.index}, like {layers_by_index[layer.index].where}", layer.where)
        layers_by_index[layer.index] = layer
    return layers_by_index


def _ordered(layers: Mapping[int, Layer]) -> Mapping[int, Layer]:
    """Return the layers in an order in which each follows those that it reads: that of the file if possible."""
    for layer in layers.values():
        for number, slot in layer.inputs.items():
            _check_connection(layers, layer, number, slot)
    if _is_ordered(layers.values()):
        return layers
    sorter = TopologicalSorter(
        {index: {slot.layer for slot in layer.inputs.values()} for index, layer in layers.items()}
    )
    try:
        order = list(sorter.static_order())
    except CycleError as error:
        _fail("it depends on its own results", layers[error.args[1][0]].where)
    return {index: layers[index] for index in order}


def _is_ordered(layers: Iterable[Layer]) -> bool:
    seen_layers = set[int]()
    for layer in layers:
        if any(slot.layer not in seen_layers for slot in layer.inputs.values()):
            return False
        seen_layers.add(layer.index)
    return True


def _check_connection(layers: Mapping[int, Layer], layer: Layer, number: int, slot: Slot) -> None:
    source = layers.get(slot.layer)
    if source is None:
        _fail(f"input slot {number} reads layer {slot.layer}, which does not exist", layer.where)
    if slot.output >= len(source.outputs):
        _fail(f"input slot {number} reads output {slot.output} of {source.where}, which does not exist", layer.where)


# --- inputs and outputs -----------------------------------------------------------------------------------------------


def _bound(layers: Mapping[int, Layer], ids: Sequence[int] | None, kind: str, by_index: bool) -> tuple[int, ...]:
    """Return the indices of the layers of `kind`, Input or Output, in the order of `ids`.

    The ids are the indices of the layers with `by_index`, which is the older scheme, else their binding ids.
    """
    index_of_id = {layer.index if by_index else layer.binding_id: layer.index for layer in _of(layers, kind)}
    count, place = len(_of(layers, kind)), f"{kind.lower()}Ids"
    if len(index_of_id) != count:
        _fail(f"several layers of type {kind} have the same binding id", place)
    order = index_of_id if ids is None else [int(number) for number in ids]
    for number in order:
        if number not in index_of_id:
            _fail(f"there is no layer of type {kind} with the id {number}", place)
    if len(set(order)) != len(order) or len(order) != count:
        _fail(f"it has {len(order)} ids for {count} layers of type {kind}", place)
    return tuple(index_of_id[number] for number in order)


def _of(layers: Mapping[int, Layer], kind: str) -> list[Layer]:
    return [layer for layer in layers.values() if layer.kind == kind]


def _fail(message: str, where: str) -> NoReturn:
    raise DamagedFileError(message, where=where)
