"""The conversion of a Caffe network to a `Network`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from interposer.core.constants import share
from interposer.core.errors import ParseError
from interposer.core.types import DataType, TensorInfo, TensorShape
from interposer.formats.caffe import is_text
from interposer.frontends.caffe.caffe_converters import find, is_loss
from interposer.frontends.caffe.flow import Flow, Tensor, flow_of
from interposer.frontends.caffe.net import Layer, Net, read_net
from interposer.frontends.caffe.node import Node
from interposer.frontends.caffe.proto import read_message, text_of
from interposer.frontends.caffe.sources import declared_inputs, is_source, with_sources
from interposer.frontends.importer import Importer, keep_names
from interposer.frontends.refusals import missing_operators
from interposer.frontends.resizing import Resizes, check_shapes, resized
from interposer.frontends.sources import errors_at, read_file
from interposer.frontends.template import Template, Values, check_names, value_of
from interposer.ir.graph import Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output

__all__ = ["Source", "load", "template", "weights_of"]

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"
_MOST_LAYERS: Final = 1 << 16


def load(
    source: Source,
    *,
    weights: Source | None = None,
    shapes: Resizes | None = None,
    outputs: Sequence[str] | None = None,
) -> Network:
    """Return the network in a Caffe file.

    Args:
        source: a path or the bytes of a network: a prototxt in protobuf's text format, or a binary caffemodel.
        weights: a path or the bytes of the caffemodel with the weights. By default, they are in `source` itself, or in
            the file of the same name with the ending ``.caffemodel`` beside it.
        shapes: shapes of inputs by name. Inputs for which the file declares no shape need one.
        outputs: the names of the blobs or layers whose results are outputs; by default the blobs that no layer reads.

    Raises:
        MissingDependencyError: the package protobuf is not installed.
        UnboundInputError: an input has no shape.
        UnsupportedOperatorError: layers are not supported; the message lists their types with counts and names.
        ParseError: a file cannot be read, is damaged, or has no weights for a layer.
        BindingError: the network has no blob or layer of a name in `outputs`.
        InvalidArgumentError: a shape that does not fit its input.
    """
    return template(source, weights=weights, shapes=shapes, outputs=outputs).network()


def template(
    source: Source,
    *,
    weights: Source | None = None,
    shapes: Resizes | None = None,
    outputs: Sequence[str] | None = None,
) -> Template:
    """Return a template that becomes the network of a Caffe file once all shapes of its inputs are known.

    The arguments and errors are those of `load`, but for shapes that are missing.
    """
    path = None if isinstance(source, bytes | bytearray | memoryview) else os.fspath(source)
    with errors_at(path):
        net = with_sources(_net(source, weights).with_shared_weights())
        inputs = declared_inputs(net)
        declared_shapes = resized(inputs, shapes or {})
        infos = {name: TensorInfo(shape, DataType.FLOAT32) for name, shape in declared_shapes.items()}
        plan = _Plan(net, tuple(inputs), outputs)

    def build(new_shapes: Mapping[str, Any], values: Values) -> Network:
        check_names(values, infos)
        resized_shapes = resized(declared_shapes, new_shapes)
        open_inputs = [name for name, shape in resized_shapes.items() if not shape.is_concrete and name not in values]
        with errors_at(path):
            check_shapes(open_inputs)
            return _Importer(plan, path, resized_shapes, values).convert()

    return Template(net.name or "caffe", infos, dict.fromkeys(plan.outputs), build)


def weights_of(path: str | os.PathLike[str]) -> Path | None:
    """Return the path of the caffemodel beside a prototxt, with the same name; None if there is none."""
    file = Path(path)
    if file.suffix == ".caffemodel":
        return None
    caffemodel = file.with_suffix(".caffemodel")
    return caffemodel if caffemodel.is_file() else None


def _net(source: Source, weights: Source | None) -> Net:
    content = _content(source)
    net = read_net(read_message(content))
    if weights is None and not isinstance(source, bytes | bytearray | memoryview) and is_text(content):
        weights = weights_of(source)
    if weights is None:
        return net
    with errors_at(weights if isinstance(weights, str | os.PathLike) else None):
        return net.with_weights(read_net(read_message(_content(weights)), only_weights=True))


def _content(source: Source) -> memoryview:
    return memoryview(read_file(source)[1]).cast("B")


class _Plan:
    """What is converted: the layers of a network, who reads what, the outputs, and the layers that they need."""

    def __init__(self, net: Net, inputs: Sequence[str], outputs: Sequence[str] | None) -> None:
        self.name = net.name
        self.inputs = inputs
        self.layers = tuple(layer for layer in net.layers if not is_source(layer))
        if len(self.layers) > _MOST_LAYERS:
            raise ParseError(f"the network has more than {_MOST_LAYERS:,} layers, which is not supported")
        ends = {number for number, layer in enumerate(self.layers) if is_loss(layer.type)}
        self.flow: Flow = flow_of(inputs, self.layers, ends)
        self.outputs: Mapping[str, Tensor] = self.flow.outputs(self.layers, outputs)
        self.needed = self.flow.needed(self.outputs.values())
        unknown_layers = [layer for n, layer in enumerate(self.layers) if n in self.needed and not _is_known(layer)]
        if unknown_layers:
            raise missing_operators((_title(layer), layer.where) for layer in unknown_layers)


def _is_known(layer: Layer) -> bool:
    return layer.type == "Parameter" or find(layer.type) is not None


def _title(layer: Layer) -> str:
    """Return the type of a layer for messages, with the class of a layer that is written in Python."""
    if layer.type != "Python":
        return layer.type or "a layer without a type"
    parameters = layer.parameters("python_param")
    return f"Python {text_of(parameters.module)}.{text_of(parameters.layer)}"


class _Importer(Importer):
    """Converts the layers of a plan to a graph, for known shapes of the inputs; inputs with values become constants."""

    def __init__(self, plan: _Plan, path: str | None, shapes: Mapping[str, TensorShape], values: Values) -> None:
        super().__init__(Network(plan.name or "caffe"))
        self.plan = plan
        self._file = os.path.basename(path) if path else ""
        self._shapes, self._given_values = shapes, values
        self._values: dict[Tensor, Value] = {}

    def convert(self) -> Network:
        """Convert all layers that the outputs need, and return the network."""
        self._add_inputs()
        for number, layer in enumerate(self.plan.layers):
            if number in self.plan.needed:
                self._convert(number, layer)
        for binding_id, (name, tensor) in enumerate(self.plan.outputs.items()):
            self.network.graph.add(Output(binding_id), [self._values[tensor]], name=name)
        names = ((name, self._values[at]) for name, at in self.plan.flow.last.items() if at in self._values)
        keep_names(self.network.graph, names)
        return self.network

    def _add_inputs(self) -> None:
        graph, binding_id = self.network.graph, 0
        for number, name in enumerate(self.plan.inputs):
            info = TensorInfo(self._shapes[name], DataType.FLOAT32)
            if name in self._given_values:
                layer = graph.add(Constant(share(value_of(name, info, self._given_values[name]))), name=name)
            else:
                layer = self.network.graph.add(
                    Input(binding_id), name=name, outputs=[info], source=self._source("inputs")
                )
                binding_id += 1
            infer_layer(layer)
            self._values[-1, number] = layer.output

    def _convert(self, number: int, layer: Layer) -> None:
        with self.conversion(layer.where):
            tops = self._tops(self._node(number, layer))
            values = [tops] if isinstance(tops, Value) else tops
            if len(values) != len(layer.tops):
                raise ParseError(f"it has {len(layer.tops)} tops; expected {len(values)}")
            self._values.update({(number, index): value for index, value in enumerate(values)})

    def _node(self, number: int, layer: Layer) -> Node:
        """Return the node of a layer; one that is named like an output of the network also has its type in its name."""
        inputs = tuple(self._values[tensor] for tensor in self.plan.flow.read[number])
        name = layer.name or layer.type
        name = f"{name}:{layer.type}" if name in self.plan.outputs else name
        return Node(self, layer, inputs, name, self._source(layer.where))

    def _tops(self, node: Node) -> Value | Sequence[Value]:
        if node.layer.type == "Parameter":
            return node.constant(node.blob(0, "value"))
        convert = find(node.layer.type)
        assert convert is not None
        return convert(node)

    def _source(self, place: str) -> str:
        return f"{self._file}, {place}" if self._file else place
