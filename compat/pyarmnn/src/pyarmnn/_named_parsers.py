"""The parsers of ONNX, Caffe and TensorFlow models, which identify inputs and outputs by their names alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from interposer import Network, frontends
from interposer.frontends.template import Template
from pyarmnn._arguments import STRING
from pyarmnn._network.network import INetwork
from pyarmnn._parsing import FILE, SHAPES, TEXTS, Binding, Bindings, check_file, parse_errors
from pyarmnn._proxy import Proxy
from pyarmnn._shapes import TensorShape

__all__ = ["ICaffeParser", "IOnnxParser", "ITfParser"]


class _NamedParser(Proxy, module=None, destructor=False):
    """A parser that returns the bindings of the network that it created last."""

    def __init__(self) -> None:
        self._inputs = Bindings("input", {})
        self._outputs = Bindings("output", {})

    def GetNetworkInputBindingInfo(self, name: str) -> Binding:
        """Return the binding id and the `TensorInfo` of an input.

        Raises:
            RuntimeError: the network has no such input, or none was created.
        """
        return self._inputs.get(STRING(name, f"{type(self).__name__}_GetNetworkInputBindingInfo", 2))

    def GetNetworkOutputBindingInfo(self, name: str) -> Binding:
        """Return the binding id and the `TensorInfo` of an output.

        Raises:
            RuntimeError: the network has no such output, or none was created.
        """
        return self._outputs.get(STRING(name, f"{type(self).__name__}_GetNetworkOutputBindingInfo", 2))

    def _created(self, read: Callable[[], Template]) -> INetwork:
        """Return the network of the model that `read` reads, and keep its bindings."""
        with parse_errors():
            template = read()
            network = template.network()
        _check_shapes(network)
        self._inputs = Bindings.of("input", list(template.inputs), network.inputs)
        self._outputs = Bindings.of("output", list(template.outputs), network.outputs)
        return INetwork._of(network)


def _check_shapes(network: Network) -> None:
    """Raise RuntimeError if the shape of an input is not known, as a `TensorInfo` cannot describe it."""
    infos = {layer.name: layer.output.known for layer in network.inputs.values()}
    unknown = [f"{name!r} is {info}" for name, info in infos.items() if not info.is_concrete]
    if unknown:
        raise RuntimeError(
            f"The model leaves the shapes of inputs open: {'; '.join(unknown)}. "
            "Pass inputShapes, a TensorShape by the name of each of these inputs"
        )


def _arguments(
    method: str, file: str, shapes: Mapping[str, TensorShape], outputs: Sequence[str], absent: str
) -> tuple[str, dict[str, list[int]], list[str] | None]:
    """Return the checked arguments of a method that reads a graph; no outputs are None.

    `absent` is the message of the RuntimeError for a file that does not exist.
    """
    path, known, requested = FILE(file, method, 2), SHAPES(shapes, method, 3), TEXTS(outputs, method, 4)
    check_file(path, absent)
    return path, known, requested or None


class IOnnxParser(_NamedParser, module="pyarmnn._generated.pyarmnn_onnxparser", cpp="armnnOnnxParser::IOnnxParser"):
    """Creates networks from ONNX models.

    All operators that Interposer's front end reads are supported. Inputs and outputs are numbered from 0 in the
    model's order. Not thread safe.
    """

    def CreateNetworkFromBinaryFile(
        self,
        graphFile: str,
        inputShapes: Mapping[str, TensorShape] | None = None,
    ) -> INetwork:
        """Return the network in a binary file.

        Args:
            graphFile: the path of the file.
            inputShapes: a shape by input name, for inputs whose shape the model leaves open. PyArmNN has no such
                argument; it is that of Arm NN 22.02.

        Raises:
            RuntimeError: the file does not exist, is damaged, has operators that are not supported, or leaves shapes
                open.
        """
        return self._read("CreateNetworkFromBinaryFile", graphFile, inputShapes)

    def CreateNetworkFromTextFile(
        self,
        graphFile: str,
        inputShapes: Mapping[str, TensorShape] | None = None,
    ) -> INetwork:
        """Return the network in a file in protobuf's text format; arguments and errors are those of a binary file."""
        return self._read("CreateNetworkFromTextFile", graphFile, inputShapes)

    def _read(self, method: str, file: str, shapes: Mapping[str, TensorShape] | None) -> INetwork:
        name = f"IOnnxParser_{method}"
        path, known = FILE(file, name, 2), SHAPES(shapes or {}, name, 3)
        check_file(path, "Invalid (null) filename: the file '{}' does not exist")
        return self._created(lambda: frontends.onnx.template(path, shapes=known))


class ICaffeParser(_NamedParser, module="pyarmnn._generated.pyarmnn_caffeparser", cpp="armnnCaffeParser::ICaffeParser"):
    """Creates networks from Caffe models.

    All layers that Interposer's front end reads are supported. Inputs are numbered from 0 in the model's order, outputs
    in the order in which they are requested. Not thread safe.
    """

    def CreateNetworkFromBinaryFile(
        self,
        graphFile: str,
        inputShapes: Mapping[str, TensorShape],
        requestedOutputs: Sequence[str],
    ) -> INetwork:
        """Return the network in a binary file (``.caffemodel``).

        Args:
            graphFile: the path of the file.
            inputShapes: a shape by input name, which replaces the file's.
            requestedOutputs: the names of the layers or blobs that are the outputs; none means those that no layer
                reads.

        Raises:
            RuntimeError: the file does not exist, is damaged, has layers that are not supported, or lacks an output.
        """
        return self._read("CreateNetworkFromBinaryFile", graphFile, inputShapes, requestedOutputs)

    def CreateNetworkFromTextFile(
        self,
        graphFile: str,
        inputShapes: Mapping[str, TensorShape],
        requestedOutputs: Sequence[str],
    ) -> INetwork:
        """Return the network in a file in protobuf's text format (``.prototxt``).

        The weights are in the file itself, or in the file of the same name with the ending ``.caffemodel`` beside it.
        Arguments and errors are those of a binary file.
        """
        return self._read("CreateNetworkFromTextFile", graphFile, inputShapes, requestedOutputs)

    def _read(self, method: str, file: str, shapes: Mapping[str, TensorShape], outputs: Sequence[str]) -> INetwork:
        absent = "Failed to open graph file '{}': the file does not exist"
        path, known, requested = _arguments(f"ICaffeParser_{method}", file, shapes, outputs, absent)
        return self._created(lambda: frontends.caffe.template(path, shapes=known, outputs=requested))


class ITfParser(_NamedParser, module="pyarmnn._generated.pyarmnn_tfparser", cpp="armnnTfParser::ITfParser"):
    """Creates networks from frozen graphs of TensorFlow.

    All operators that Interposer's front end reads are supported. Inputs are numbered from 0 in the graph's order,
    outputs in the order in which they are requested. Not thread safe.
    """

    def CreateNetworkFromBinaryFile(
        self,
        graphFile: str,
        inputShapes: Mapping[str, TensorShape],
        requestedOutputs: Sequence[str],
    ) -> INetwork:
        """Return the network in a binary file (``.pb``).

        Args:
            graphFile: the path of the file.
            inputShapes: a shape by input name; a node that is no placeholder becomes an input by its shape.
            requestedOutputs: the names of the nodes that are the outputs; none means those that no other node reads.

        Raises:
            RuntimeError: the file does not exist, is damaged, has operators that are not supported, or lacks an output.
        """
        return self._read("CreateNetworkFromBinaryFile", graphFile, inputShapes, requestedOutputs)

    def CreateNetworkFromTextFile(
        self,
        graphFile: str,
        inputShapes: Mapping[str, TensorShape],
        requestedOutputs: Sequence[str],
    ) -> INetwork:
        """Return the network in a file in protobuf's text format (``.pbtxt``).

        Arguments and errors are those of a binary file.
        """
        return self._read("CreateNetworkFromTextFile", graphFile, inputShapes, requestedOutputs)

    def _read(self, method: str, file: str, shapes: Mapping[str, TensorShape], outputs: Sequence[str]) -> INetwork:
        absent = "Graph file '{}' failed to open: the file does not exist"
        path, known, requested = _arguments(f"ITfParser_{method}", file, shapes, outputs, absent)
        return self._created(lambda: frontends.tensorflow.template(path, shapes=known, outputs=requested))
