"""The parser of TensorFlow Lite files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from interposer import InterposerError, Network
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends import tflite
from interposer.frontends.tflite.container import read_model
from interposer.frontends.tflite.contents import Model
from interposer.frontends.tflite.inputs import input_ports, output_ports
from interposer.frontends.tflite.tensors import tensor_info
from pyarmnn._arguments import BOOL, STRING, overload_error
from pyarmnn._network.network import INetwork
from pyarmnn._parsing import FILE, SIZE, Binding, Bindings, check_file, rebind
from pyarmnn._proxy import Proxy

__all__ = ["ITfLiteParser", "TfLiteParserOptions"]

_LAYER: Final = re.compile(r"(\w+)(:\d+:\d+.*)")
_NAMES: Final = {
    "ELU": "Activation:ELU",
    "HARD_SWISH": "Activation:HARDSWISH",
    "LEAKY_RELU": "Activation:LEAKYRELU",
    "LOGISTIC": "Activation:SIGMOID",
    "RELU": "Activation:RELU",
    "RELU6": "Activation:RELU6",
    "RESIZE_BILINEAR": "Resize:BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR": "Resize:NEARESTNEIGHBOR",
    "TANH": "Activation:TANH",
}
"""Operators whose layers Arm NN does not name after the operator alone."""
_HANDLES: Final = ("resource", "variant")
_BITS_OF_SUBGRAPH: Final = 8
"""A binding id is the index of the tensor, shifted by this many bits, plus the index of the subgraph."""


_MODULE: Final = "pyarmnn._generated.pyarmnn_tfliteparser"
"""The module in which programs see the classes."""


class TfLiteParserOptions(Proxy, module=_MODULE, cpp="armnnTfLiteParser::ITfLiteParser::TfLiteParserOptions"):
    """Options of `ITfLiteParser`.

    Attributes:
        m_StandInLayerForUnsupported: use a StandIn layer for a custom operator that is not known. The network can then
            be parsed and inspected; only a backend that supports the layer can run it. False by default.
        m_InferAndValidate: accepted for programs that set it; shapes are always inferred. False by default.
    """

    def __init__(self) -> None:
        self.m_StandInLayerForUnsupported = False
        self.m_InferAndValidate = False

    def __setattr__(self, name: str, value: Any) -> None:
        is_option = name.startswith("m_")
        super().__setattr__(name, BOOL(value, f"TfLiteParserOptions_{name}_set", 2) if is_option else value)


_OVERLOADS: Final = overload_error(
    "new_ITfLiteParser",
    "armnnTfLiteParser::ITfLiteParser::ITfLiteParser",
    [["armnnTfLiteParser::ITfLiteParser::TfLiteParserOptions const *"], []],
)
"""The error for other arguments of the parser's constructor."""


class _Subgraph(NamedTuple):
    """The bindings of a subgraph of the file."""

    inputs: Bindings
    outputs: Bindings


class ITfLiteParser(Proxy, module=_MODULE, cpp="armnnTfLiteParser::ITfLiteParser"):
    """Creates networks from TensorFlow Lite files.

    All operators that Interposer's front end reads are supported. Binding ids are those of Arm NN: the index of the
    tensor in the file, shifted left by 8 bits, plus the index of the subgraph. Layers are named after operators, such
    as ``Conv2D:0:3`` for operator 3 of subgraph 0. Not thread safe.

    Args:
        options: a `TfLiteParserOptions`, or None for the defaults. It is copied.
    """

    def __init__(self, options: TfLiteParserOptions | None = None) -> None:
        if not isinstance(options, TfLiteParserOptions | None):
            raise TypeError(*_OVERLOADS.args)
        self._stand_in = options is not None and options.m_StandInLayerForUnsupported
        self._subgraphs: list[_Subgraph] | None = None

    def CreateNetworkFromBinaryFile(self, graphFile: str) -> INetwork:
        """Return the network of the first subgraph in a file; other subgraphs are those that operators call.

        Raises:
            RuntimeError: the file does not exist, is damaged, or has operators that are not supported.
        """
        missing = "Cannot find the file ({}) errorCode: No such file or directory"
        path = FILE(graphFile, "ITfLiteParser_CreateNetworkFromBinaryFile", 2)
        check_file(path, missing)
        model = _read(path)
        try:
            network = tflite.load(path, stand_in=self._stand_in)
            subgraphs = [_bindings(model, number) for number in range(len(model.subgraphs))]
        except UnsupportedOperatorError as error:
            raise RuntimeError(_refusal(error, model)) from error
        except InterposerError as error:
            raise RuntimeError(str(error)) from error
        _rename(network)
        rebind(network, subgraphs[0].inputs.ids, subgraphs[0].outputs.ids)
        self._subgraphs = subgraphs
        return INetwork._of(network)

    def GetNetworkInputBindingInfo(self, subgraphId: int, name: str) -> Binding:
        """Return the binding id and the `TensorInfo` of an input of a subgraph.

        Raises:
            RuntimeError: no network was created, or there is no such subgraph or input.
        """
        subgraph = self._subgraph("GetNetworkInputBindingInfo", subgraphId)
        name = STRING(name, "ITfLiteParser_GetNetworkInputBindingInfo", 3)
        return subgraph.inputs.get(name, f"subgraph:{subgraphId} and ")

    def GetNetworkOutputBindingInfo(self, subgraphId: int, name: str) -> Binding:
        """Return the binding id and the `TensorInfo` of an output of a subgraph.

        Raises:
            RuntimeError: no network was created, or there is no such subgraph or output.
        """
        subgraph = self._subgraph("GetNetworkOutputBindingInfo", subgraphId)
        name = STRING(name, "ITfLiteParser_GetNetworkOutputBindingInfo", 3)
        return subgraph.outputs.get(name, f"subgraph:{subgraphId} and ")

    def GetSubgraphCount(self) -> int:
        """Return the number of subgraphs in the file.

        Raises:
            RuntimeError: no network was created.
        """
        return len(self._parsed("GetSubgraphCount", 0))

    def GetSubgraphInputTensorNames(self, subgraphId: int) -> tuple[str, ...]:
        """Return the names of a subgraph's inputs in the file's order.

        Raises:
            RuntimeError: no network was created, or there is no such subgraph.
        """
        return self._subgraph("GetSubgraphInputTensorNames", subgraphId).inputs.names

    def GetSubgraphOutputTensorNames(self, subgraphId: int) -> tuple[str, ...]:
        """Return the names of a subgraph's outputs in the file's order.

        Raises:
            RuntimeError: no network was created, or there is no such subgraph.
        """
        return self._subgraph("GetSubgraphOutputTensorNames", subgraphId).outputs.names

    def _parsed(self, method: str, number: int) -> list[_Subgraph]:
        if self._subgraphs is None:
            raise RuntimeError(
                f"{method} was called with invalid (null) model. Possible reason is that the model is not yet loaded "
                f"and Unpack(ed). subgraph:{number}; call CreateNetworkFromBinaryFile first"
            )
        return self._subgraphs

    def _subgraph(self, method: str, value: int) -> _Subgraph:
        number: int = SIZE(value, f"ITfLiteParser_{method}", 2)
        subgraphs = self._parsed(method, number)
        if number >= len(subgraphs):
            raise RuntimeError(f"{method} was called with an invalid subgraph index. subgraph:{number}")
        return subgraphs[number]


def _read(path: str) -> Model:
    """Return the content of a file; raise RuntimeError if it is damaged, or no TensorFlow Lite file."""
    data = Path(path).read_bytes()
    try:
        return read_model(data, path=path)
    except ParseError as error:
        raise RuntimeError(
            f"Buffer doesn't conform to the expected Tensorflow Lite flatbuffers format. size:{len(data)}: {error}"
        ) from error


def _bindings(model: Model, number: int) -> _Subgraph:
    """Return the bindings of a subgraph, without handles of resources, to which no tensor can be bound."""
    subgraph = model.subgraphs[number]

    def bindings(kind: str, ports: Mapping[str, int]) -> Bindings:
        tensors = {name: at for name, at in ports.items() if subgraph.tensors[at].dtype not in _HANDLES}
        return Bindings(
            kind,
            {
                name: ((at << _BITS_OF_SUBGRAPH) + number, tensor_info(subgraph.tensors[at], f"{kind}s"))
                for name, at in tensors.items()
            },
        )

    return _Subgraph(bindings("input", input_ports(subgraph, None)), bindings("output", output_ports(subgraph, None)))


def _rename(network: Network) -> None:
    """Name the layers as Arm NN does, which writes operators in CamelCase: ``CONV_2D:0:3`` becomes ``Conv2D:0:3``."""
    for layer in network:
        match = _LAYER.fullmatch(layer.name)
        if match:
            network.graph.rename(layer, _layer_name(layer.kind, match[1], match[2]))


def _layer_name(kind: str, operator: str, place: str) -> str:
    if kind == "StandIn":
        return f"StandIn{place}:CUSTOM"
    return (_NAMES.get(operator) or _camel_case(operator)) + place


def _camel_case(operator: str) -> str:
    words = (word for word in operator.split("_") if word)
    return "".join(word if word in {"2D", "3D", "ND"} else word.capitalize() for word in words)


def _refusal(error: UnsupportedOperatorError, model: Model) -> str:
    """Return a line for each operator that is not supported, and the message of the front end."""
    lines = [
        f"Failed to parse operator #{at} within subgraph #{number} error: Operator not supported. subgraph:{number} "
        f"operator:{at} / {title}"
        for number, subgraph in enumerate(model.subgraphs)
        for at, operator in enumerate(subgraph.operators)
        if (title := f"CUSTOM {operator.name}" if operator.is_custom else operator.name) in error.operators
    ]
    return "\n".join([*lines, str(error)])
