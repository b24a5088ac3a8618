"""The conversion of an Arm NN file to a `Network`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from interposer.core.errors import ParseError, memory_to
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.frontends.armnn.armnn_converters import find
from interposer.frontends.armnn.container import read_content
from interposer.frontends.armnn.contents import Content, Layer
from interposer.frontends.armnn.node import FileImporter, Node
from interposer.frontends.armnn.tensors import constant_array, quantization_of, tensor_info
from interposer.frontends.flatbuffer import Record
from interposer.frontends.importer import keep_names
from interposer.frontends.refusals import missing_operators
from interposer.frontends.sources import Source, errors_at, read_file
from interposer.ir.graph import Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Input, Output
from interposer.ops.reshape import Reshape

__all__ = ["Source", "load"]


@memory_to("read the network")
def load(source: Source) -> Network:
    """Return the network in an Arm NN file.

    Layers keep their names; a number is appended to a name that is not unique. Binding ids are those of the file.
    Constants are views of the file's bytes, which must not change while the network is in use.

    Args:
        source: a path, or the bytes of a file.

    Raises:
        ParseError: the file cannot be read, is damaged, or uses something that is not supported.
        UnsupportedOperatorError: layers are not known; the message lists all of them with their counts.
        InvalidArgumentError: `source` is not a path or bytes.
    """
    path, content = read_file(source)
    file = Path(path).name if path else ""
    with errors_at(path):
        return _Importer(read_content(content), file).convert()


class _Importer(FileImporter):
    """Converts the layers of a file to a graph."""

    def __init__(self, content: Content, file: str) -> None:
        super().__init__(Network(Path(file).stem or "armnn"))
        self.weights_layout = content.weights_layout
        self._file = file
        self._content = content
        self._values: dict[tuple[int, int], Value] = {}
        self._titles = {content.layers[index].name for index in (*content.inputs, *content.outputs)}
        self._named_values: list[tuple[str, Value]] = []
        self._read = {(slot.layer, slot.output) for layer in content.layers.values() for slot in layer.inputs.values()}

    def convert(self) -> Network:
        """Convert all layers, and return the network."""
        layers = self._content.layers
        unknown_layers = [(layer.kind, layer.where) for layer in layers.values() if not _is_known(layer)]
        if unknown_layers:
            raise missing_operators(unknown_layers)
        for index in self._content.inputs:
            self._add_input(layers[index])
        for layer in layers.values():
            if layer.kind not in {"Input", "Output"}:
                self._convert_layer(layer)
        for index in self._content.outputs:
            self._add_output(layers[index])
        keep_names(self.network.graph, self._named_values)
        return self.network

    def _add_input(self, layer: Layer) -> None:
        [info] = self._infos(layer, 1)
        name = layer.name or f"input_{layer.binding_id}"
        port = self.network.graph.add(Input(layer.binding_id), name=name, outputs=[info], source=self._source(layer))
        infer_layer(port)
        self._values[layer.index, 0] = port.output

    def _add_output(self, layer: Layer) -> None:
        value = self.input(layer, 0)
        if value is None:
            raise ParseError("input slot 0 is not connected", where=layer.where)
        name = layer.name or f"output_{layer.binding_id}"
        self.network.graph.add(Output(layer.binding_id), [value], name=name, source=self._source(layer))

    def _convert_layer(self, layer: Layer) -> None:
        convert = find(layer.kind)
        assert convert is not None
        name = f"{layer.name}:{layer.kind}" if layer.name in self._titles else layer.name or layer.kind
        with self.conversion(layer.where):
            outputs = convert(Node(self, layer, name, self._source(layer), self._infos(layer)))
            self._values.update({(layer.index, number): value for number, value in enumerate(outputs)})
            if layer.name and layer.name not in self._titles and len(outputs) == 1:
                self._named_values.append((layer.name, outputs[0]))

    def _infos(self, layer: Layer, count: int | None = None) -> Sequence[TensorInfo]:
        if count is not None and len(layer.outputs) != count:
            raise ParseError(f"it has {len(layer.outputs)} output slots; expected {count}", where=layer.where)
        return [tensor_info(record, layer.where) for record in layer.outputs]

    def input(self, layer: Layer, number: int) -> Value | None:
        """Return what input slot `number` of a layer reads, or None if it is not connected."""
        slot = layer.inputs.get(number)
        if slot is None:
            return None
        value = self._values[slot.layer, slot.output]
        if slot.seen_as is None:
            return value
        return self._seen_as(value, tensor_info(slot.seen_as, layer.where), layer)

    def is_read(self, layer: Layer, slot: int) -> bool:
        """Return True if another layer reads output `slot` of a layer."""
        return (layer.index, slot) in self._read

    def _seen_as(self, value: Value, info: TensorInfo, layer: Layer) -> Value:
        if info.shape == value.known.shape:
            return value
        source = self._source(layer)
        return self.add_layer(Reshape(tuple(info.shape)), [value], f"{value.name}/reshaped", source).output

    def stored(self, record: Record, name: str, source: str, where: str, *, scaled: bool) -> Value:
        """Return a constant of the file as a layer with this name and source; `where` is for errors.

        With `scaled`, a Signed32 constant has the scale in the file.
        """
        if record["info"] is None:
            raise ParseError("it has no tensor info", where=where)
        info = tensor_info(record["info"], where, scaled=scaled)
        return self.constant(constant_array(record, info, where), name, source, info.quantization)

    def raw(self, record: Record, where: str) -> tuple[Array, Quantization | None]:
        """Return the elements of a constant of the file, and its scales, which may belong to no axis of it."""
        if record["info"] is None:
            raise ParseError("it has no tensor info", where=where)
        array = constant_array(record, tensor_info(record["info"], where, bare=True), where)
        return array, quantization_of(record["info"], where)

    def _source(self, layer: Layer) -> str:
        """Return the file and the place of a layer in it, as messages about the layer show it."""
        return f"{self._file}, {layer.where}" if self._file else layer.where


def _is_known(layer: Layer) -> bool:
    return layer.kind in {"Input", "Output"} or find(layer.kind) is not None
