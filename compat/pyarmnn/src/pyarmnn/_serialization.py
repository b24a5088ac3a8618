"""`IDeserializer` and `ISerializer`, which read and write Arm NN's own files; PyArmNN does not wrap them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from interposer import InterposerError, Network, frontends, writers
from pyarmnn._arguments import STRING, UINT, instance
from pyarmnn._network.network import INetwork
from pyarmnn._parsing import FILE, Binding, Bindings, check_file, parse_errors
from pyarmnn._proxy import Proxy
from pyarmnn._translate import translated

__all__ = ["IDeserializer", "ISerializer"]


class Stream(Protocol):
    """A binary file that is open for writing."""

    def write(self, content: bytes, /) -> object:
        """Write bytes."""


class IDeserializer(Proxy, module="pyarmnn", cpp="armnnDeserializer::IDeserializer"):
    """Creates networks from Arm NN's own files (``.armnn``), of all releases. Not thread safe."""

    def __init__(self) -> None:
        self._inputs = Bindings("input", {})
        self._outputs = Bindings("output", {})

    def CreateNetworkFromBinaryFile(self, graphFile: str | os.PathLike[str]) -> INetwork:
        """Return the network in a file.

        Raises:
            TypeError: the argument is no path.
            RuntimeError: the file does not exist, is damaged, or has layers that are not supported.
        """
        path = FILE(graphFile, "IDeserializer_CreateNetworkFromBinaryFile", 2)
        check_file(path, "Cannot find the file ({}) errorCode: No such file or directory")
        with parse_errors():
            return self._created(frontends.armnn.load(path))

    def CreateNetworkFromBinary(self, binaryContent: bytes | bytearray | memoryview) -> INetwork:
        """Return the network in the content of a file.

        Raises:
            TypeError: the argument is not bytes.
            RuntimeError: the content is damaged, or has layers that are not supported.
        """
        if not isinstance(binaryContent, bytes | bytearray | memoryview):
            raise TypeError(
                "in method 'IDeserializer_CreateNetworkFromBinary', argument 2 of type 'std::vector< uint8_t > const &'"
            )
        with parse_errors():
            return self._created(frontends.armnn.load(bytes(binaryContent)))

    def GetNetworkInputBindingInfo(self, layerId: int, name: str) -> Binding:
        """Return the binding id and the `TensorInfo` of an input by the name of its layer.

        `layerId` is ignored, as in Arm NN.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the network has no such input, or none was created.
        """
        return self._inputs.get(_checked(layerId, name, "GetNetworkInputBindingInfo"))

    def GetNetworkOutputBindingInfo(self, layerId: int, name: str) -> Binding:
        """Return the binding id and the `TensorInfo` of an output by the name of its layer.

        `layerId` is ignored, as in Arm NN.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the network has no such output, or none was created.
        """
        return self._outputs.get(_checked(layerId, name, "GetNetworkOutputBindingInfo"))

    def _created(self, network: Network) -> INetwork:
        inputs = {layer.name: (number, layer.output.known) for number, layer in network.inputs.items()}
        outputs = {layer.name: (number, layer.values[0].known) for number, layer in network.outputs.items()}
        self._inputs, self._outputs = Bindings("input", inputs), Bindings("output", outputs)
        return INetwork._of(network)


def _checked(layer: object, name: object, method: str) -> str:
    UINT(layer, f"IDeserializer_{method}", 2)
    return str(STRING(name, f"IDeserializer_{method}", 3))


NETWORK = instance(INetwork, "armnn::INetwork const &")


class ISerializer(Proxy, module="pyarmnn", cpp="armnnSerializer::ISerializer"):
    """Writes networks as Arm NN's own files (``.armnn``). Not thread safe.

    Files use the oldest form of every layer, so that the oldest possible release of Arm NN reads them.
    """

    def __init__(self) -> None:
        self._content: bytes | None = None

    def Serialize(self, inNetwork: INetwork) -> None:
        """Convert a network to the content of a file, which the next call of `SaveSerializedToStream` writes.

        Raises:
            TypeError: the argument is no INetwork.
            RuntimeError: the network is not valid, or has layers that Arm NN's files cannot express; lists all of them.
        """
        core, _ = translated(NETWORK(inNetwork, "ISerializer_Serialize", 2), ("CpuRef",))
        try:
            self._content = writers.armnn.write(core)
        except InterposerError as error:
            raise RuntimeError(str(error)) from error

    def SaveSerializedToStream(self, stream: Stream) -> bool:
        """Write the content to a binary file that is open for writing, and return True.

        Raises:
            RuntimeError: no network was serialized.
        """
        stream.write(self._serialized())
        return True

    def SaveSerializedToFile(self, path: str | os.PathLike[str]) -> bool:
        """Write the content to a file with this path, and return True.

        Raises:
            TypeError: the argument is no path.
            RuntimeError: no network was serialized, or the file cannot be written.
        """
        target = Path(FILE(path, "ISerializer_SaveSerializedToFile", 2))
        content = self._serialized()
        try:
            target.write_bytes(content)
        except OSError as error:
            raise RuntimeError(f"The file {target} cannot be written: {error.strerror}") from error
        return True

    def _serialized(self) -> bytes:
        if self._content is None:
            raise RuntimeError("No network was serialized; call Serialize first")
        return self._content
