"""Networks of OpenVINO's IR: OpenVINO reads the file, and the network is one layer that only its backend runs.

The layer is a `StandIn` whose first two operands are constants with the bytes of the ``.xml`` and of the ``.bin`` file;
the others are the inputs of the network in the order of the file. Its outputs are those of the network.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.core.errors import MissingDependencyError, ParseError, UnboundInputError, UnsupportedOperatorError
from interposer.core.records import dataclass
from interposer.core.telemetry import without_openvino_telemetry
from interposer.core.types import UNKNOWN, UNRANKED, Array, DataType, TensorInfo, TensorShape
from interposer.frontends.resizing import Resizes, resized
from interposer.frontends.sources import errors_at, read_file
from interposer.frontends.template import Shapes, Template, Values, check_names, value_of
from interposer.ir.network import Network
from interposer.ops.control import Constant, StandIn

__all__ = ["template"]

_TYPES: Final = {
    "boolean": "bool", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _File:
    """The content of both files of a network, and the infos of its inputs and outputs by name."""

    text: Array
    weights: Array
    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]

    def model(self) -> Any:
        """Return OpenVINO's model of the files."""
        return _model(self.text, self.weights)

    @property
    def description(self) -> str:
        """The description of the layer; OpenVino, the backend, recognizes the layer by its first words."""
        return f"OpenVINO IR {self.name!r}, SHA-256 {hashlib.sha256(self.text.tobytes()).hexdigest()[:16]}"


def template(source: Any, shapes: Resizes | None = None, weights: Any = None) -> Template:
    """Return a template of the network in a file of OpenVINO's IR.

    Args:
        source: the path of the ``.xml`` file, or its bytes.
        shapes: shapes of inputs by name, or sizes of named dimensions.
        weights: the path or the bytes of the ``.bin`` file; by default, the file of this name beside the other one.

    Raises:
        MissingDependencyError: OpenVINO is not installed.
        FileReadError: a file cannot be read.
        ParseError: OpenVINO cannot read the network.
        UnsupportedOperatorError: the network has states, or tensors of a type that Interposer has not.
        InvalidArgumentError: the shapes do not fit the inputs.
    """
    path = os.fsdecode(source) if isinstance(source, str | os.PathLike) else None
    if find_spec("openvino") is None:
        raise MissingDependencyError("openvino", "openvino", "reading the network in OpenVINO's IR" + _of(path))
    with errors_at(path):
        file = _read(source, path, weights)
    given_shapes = dict(shapes or {})
    known_shapes = resized({name: info.shape for name, info in file.inputs.items()}, given_shapes)
    inputs = {name: info.with_shape(known_shapes[name]) for name, info in file.inputs.items()}

    def build(more_shapes: Shapes, values: Values) -> Network:
        with errors_at(path):
            return _network(file, {**given_shapes, **more_shapes}, values)

    return Template(file.name, inputs, dict(file.outputs), build)


def _of(path: str | None) -> str:
    return "" if path is None else f" {path}"


def _read(source: Any, path: str | None, weights: Any) -> _File:
    text = np.frombuffer(read_file(source)[1], np.uint8)
    model = _model(text, binary := _weights(path, weights))
    if model.get_sinks():
        kinds = [node.get_type_name() for node in model.get_sinks()]
        reason = "it has a state, which lasts from run to run; make the state an input and an output"
        raise UnsupportedOperatorError({kind: kinds.count(kind) for kind in kinds}, notes=dict.fromkeys(kinds, reason))
    names = _names(model.inputs, "input"), _names(model.outputs, "output")
    inputs, outputs = (
        {name: _info(port, name) for name, port in zip(names_of, ports, strict=True)}
        for names_of, ports in zip(names, (model.inputs, model.outputs), strict=True)
    )
    return _File(text, binary, model.get_friendly_name(), inputs, outputs)


def _weights(path: str | None, weights: Any) -> Array:
    """Return the bytes of the file with the weights; one zero if there is none."""
    if weights is None and path is not None:
        bin_path = Path(path).with_suffix(".bin")
        weights = str(bin_path) if bin_path.exists() else None
    content = b"" if weights is None else read_file(weights)[1]
    return np.frombuffer(content, np.uint8) if len(content) else np.zeros(1, np.uint8)


def _model(text: Array, weights: Array) -> Any:
    """Return OpenVINO's model; raise `ParseError` if it cannot read it."""
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415 - optional, and slow to import

    try:
        return openvino.Core().read_model(text.tobytes(), openvino.Tensor(weights.copy(), shared_memory=True))
    except Exception as error:  # OpenVINO's exceptions have no common base class
        missing_text = (
            "; its weights, a file of the same name that ends with .bin, must be beside it" if weights.size < 2 else ""
        )
        raise ParseError(f"OpenVINO cannot read the network: {_last_line(error)}{missing_text}") from error


def _last_line(error: Exception) -> str:
    """Return the last line of an error of OpenVINO, which has the reason; the others are places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _names(ports: Any, kind: str) -> list[str]:
    """Return a name for each port: its shortest name of a tensor, or that of its node."""
    names = list[str]()
    for index, port in enumerate(ports):
        sorted_names = sorted(port.get_names(), key=lambda name: (len(name), name))
        name = sorted_names[0] if sorted_names else port.get_node().get_friendly_name()
        names.append(name if name and name not in names else f"{kind}_{index}")
    return names


def _info(port: Any, name: str) -> TensorInfo:
    kind = port.get_element_type().get_type_name()
    if kind not in _TYPES:
        raise UnsupportedOperatorError({"Parameter or Result": 1}, notes={"Parameter or Result": f"{name!r} is {kind}"})
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return TensorInfo(UNRANKED, DataType.of(_TYPES[kind]))
    sizes = [UNKNOWN if size.is_dynamic else size.get_length() for size in shape]
    return TensorInfo(TensorShape(sizes), DataType.of(_TYPES[kind]))


def _network(file: _File, shapes: Shapes, values: Values) -> Network:
    """Return the network for shapes and values of inputs; `UnboundInputError` if a size is still unknown."""
    check_names(values, file.inputs)
    arrays = {name: value_of(name, file.inputs[name], value) for name, value in values.items()}
    input_shapes = resized(
        {name: info.shape for name, info in file.inputs.items()},
        {**shapes, **{name: array.shape for name, array in arrays.items()}},
    )
    if not all(shape.is_concrete for shape in input_shapes.values()):
        raise UnboundInputError({"OpenVINO IR": 1}, (), shapes=True)
    network = Network(file.name)
    text, binary = (
        network.add_layer(Constant(array), name=name).output
        for array, name in ((file.text, "xml"), (file.weights, "weights"))
    )
    operands = []
    for number, (name, info) in enumerate(file.inputs.items()):
        if name in arrays:
            operands.append(network.add_layer(Constant(arrays[name]), name=name).output)
        else:
            operands.append(network.add_input_layer(number, info.with_shape(input_shapes[name]), name).output)
    outputs = _outputs(file, input_shapes)
    op = StandIn(len(outputs), file.description)
    layer = network.add_layer(op, text, binary, *operands, name=file.name, outputs=list(outputs.values()))
    for number, (name, value) in enumerate(zip(outputs, layer.outputs, strict=True)):
        network.add_output_layer(number, value, name)
    return network


def _outputs(file: _File, shapes: Mapping[str, TensorShape]) -> dict[str, TensorInfo]:
    """Return the infos of the outputs for these shapes of the inputs, as OpenVINO infers them."""
    if all(info.shape.is_concrete for info in (*file.inputs.values(), *file.outputs.values())) and all(
        tuple(shapes[name]) == tuple(info.shape) for name, info in file.inputs.items()
    ):
        return dict(file.outputs)
    with without_openvino_telemetry():
        import openvino  # noqa: PLC0415 - optional, and slow to import

    model = file.model()
    try:
        model.reshape({index: openvino.PartialShape(list(shape)) for index, shape in enumerate(shapes.values())})
    except Exception as error:
        raise ParseError(f"OpenVINO cannot give the network these shapes of inputs: {_last_line(error)}") from error
    infos = {name: _info(port, name) for name, port in zip(file.outputs, model.outputs, strict=True)}
    for name, info in infos.items():
        if not info.shape.is_concrete:
            note = f"the shape of {name!r} is known only after a run, and is {info.shape}"
            raise UnsupportedOperatorError({"Result": 1}, notes={"Result": note})
    return infos
