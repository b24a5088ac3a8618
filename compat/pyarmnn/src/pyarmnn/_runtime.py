"""`IRuntime`: loads optimized networks and runs them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from interposer.core.errors import InterposerError
from interposer.runtime.bindings import Binding
from pyarmnn._arguments import INT, Kind, instance, overload_error
from pyarmnn._device import IDeviceSpec
from pyarmnn._optimized import Infos, IOptimizedNetwork
from pyarmnn._options import CreationOptions, INetworkProperties
from pyarmnn._profiler import IProfiler, profiler_of
from pyarmnn._proxy import Proxy, borrowed
from pyarmnn._shapes import TensorInfo
from pyarmnn._tensors import ConstTensor, Tensor

__all__ = ["IRuntime"]


def _pairs(kind: type) -> Kind:
    """Return the kind of lists of pairs of a binding id and a tensor."""
    name = f"std::pair< int,armnn::{kind.__name__} >"

    def convert(value: Any) -> list[tuple[int, Any]]:
        if not isinstance(value, list | tuple):
            raise TypeError
        return [(INT.convert(number), tensor) for number, tensor in map(_pair, value)]

    def _pair(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple) or len(value) != 2 or not isinstance(value[1], kind):
            raise TypeError
        return value[0], value[1]

    vector = f"std::vector< {name},std::allocator< {name} > > const &"
    return Kind(vector, convert, vector)


_OPTIONS = instance(CreationOptions, "CreationOptions const &")
_OPTIMIZED = instance(IOptimizedNetwork, "armnn::IOptimizedNetwork *")
_PROPERTIES = instance(INetworkProperties, "armnn::INetworkProperties const *")
_INPUTS, _OUTPUTS = _pairs(ConstTensor), _pairs(Tensor)


class IRuntime(Proxy):
    """The backends that a program uses, and the networks that are loaded.

    The methods are thread-safe, and networks may run concurrently.

    Raises:
        TypeError: the argument is no CreationOptions.
        RuntimeError: the options contradict each other.
    """

    def __init__(self, options: CreationOptions) -> None:
        checked: CreationOptions = _OPTIONS(options, "new_IRuntime", 1)
        profiling = checked.m_ProfilingOptions
        if profiling.m_TimelineEnabled and not profiling.m_EnableProfiling:
            raise RuntimeError("It is not possible to enable timeline reporting without profiling being enabled")
        folder = checked.m_DynamicBackendsPath
        path = str(Path(folder).resolve()) if folder and Path(folder).is_dir() else None
        sending = ip.ExternalProfilingOptions(
            profiling.m_EnableProfiling,
            profiling.m_TimelineEnabled,
            profiling.m_OutgoingCaptureFile,
            profiling.m_IncomingCaptureFile,
            profiling.m_FileOnly,
            profiling.m_CapturePeriod,
            profiling.m_FileFormat,
        )
        self._runtime = ip.Runtime(ip.CreationOptions(dynamic_backends_path=path, profiling=sending))
        self._infos: dict[int, Infos] = {}

    def _release(self) -> None:
        self._runtime.close()

    def GetDeviceSpec(self) -> IDeviceSpec:
        """Return the backends for which networks can be optimized."""
        return IDeviceSpec._of(self._runtime.device_spec)

    def LoadNetwork(
        self, network: IOptimizedNetwork, networkProperties: INetworkProperties | None = None
    ) -> tuple[int, str]:
        """Load a network, and return its id and an empty message. The runtime owns the network from then on.

        Arrays are used without a copy wherever the backends allow it, whatever the properties say.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the network cannot be loaded.
        """
        known = networkProperties is None or _PROPERTIES.accepts(networkProperties)
        if not _OPTIMIZED.accepts(network) or not known:
            types = (_OPTIMIZED.parameter, _PROPERTIES.parameter)
            raise overload_error("IRuntime_LoadNetwork", "armnn::IRuntime::LoadNetwork", (types, types[:1]))
        borrowed(network)
        try:
            number = self._runtime.load_network(network._optimized)
        except InterposerError as error:
            text = f"An error occurred when preparing the network workloads:  {error}"
            raise RuntimeError(text) from error
        self._infos[number] = network._infos
        return number, ""

    def UnloadNetwork(self, networkId: int) -> None:
        """Unload a network.

        Raises:
            RuntimeError: it is not loaded, or a backend refuses.
        """
        network_id = INT(networkId, "IRuntime_UnloadNetwork", 2)
        try:
            self._runtime.unload_network(network_id)
        except InterposerError as error:
            raise RuntimeError("Failed to unload network.") from error
        self._infos.pop(network_id, None)

    def GetInputTensorInfo(self, networkId: int, layerId: int) -> TensorInfo:
        """Return the info of an input by its binding id.

        Raises:
            RuntimeError: there is no such network or input.
        """
        infos = self._loaded(INT(networkId, "IRuntime_GetInputTensorInfo", 2)).inputs
        return _info(infos, INT(layerId, "IRuntime_GetInputTensorInfo", 3), "input")

    def GetOutputTensorInfo(self, networkId: int, layerId: int) -> TensorInfo:
        """Return the info of an output by its binding id.

        Raises:
            RuntimeError: there is no such network or output.
        """
        infos = self._loaded(INT(networkId, "IRuntime_GetOutputTensorInfo", 2)).outputs
        return _info(infos, INT(layerId, "IRuntime_GetOutputTensorInfo", 3), "output")

    def _loaded(self, number: int) -> Infos:
        if number not in self._infos:
            raise RuntimeError(f"No network with id {number} is loaded.")
        return self._infos[number]

    def EnqueueWorkload(
        self, networkId: int, inputTensors: list[tuple[int, ConstTensor]], outputTensors: list[tuple[int, Tensor]]
    ) -> None:
        """Run a network once: read the inputs and write to the memory of the outputs, each with its binding id.

        Raises:
            TypeError: an argument has the wrong type.
            RuntimeError: the network is not loaded, a tensor is absent or does not fit, or a layer failed.
        """
        number = INT(networkId, "IRuntime_EnqueueWorkload", 2)
        sources = _INPUTS(inputTensors, "IRuntime_EnqueueWorkload", 3)
        targets = _OUTPUTS(outputTensors, "IRuntime_EnqueueWorkload", 4)
        infos = self._loaded(number)
        if len(sources) != len(infos.inputs):
            raise RuntimeError("Number of inputs provided does not match network.")
        try:
            bindings = self._runtime.bindings(number)
            inputs = _arrays("input", infos.inputs, dict(sources), bindings.inputs)
            outputs = _arrays("output", infos.outputs, dict(targets), bindings.outputs)
            self._runtime.enqueue_workload(number, inputs, outputs)
        except InterposerError as error:
            raise RuntimeError(f"Failed to enqueue workload for network. {error}") from error

    def GetProfiler(self, networkId: int) -> IProfiler:
        """Return the profiler of a loaded network, which is disabled at first.

        Raises:
            RuntimeError: the network is not loaded.
        """
        try:
            return profiler_of(self._runtime.get_profiler(INT(networkId, "IRuntime_GetProfiler", 2)))
        except InterposerError as error:
            raise RuntimeError("Failed to get profiler") from error


def _info(infos: Mapping[int, TensorInfo], number: int, kind: str) -> TensorInfo:
    if number not in infos:
        raise RuntimeError(f"No {kind} layer is associated with id {number}")
    return TensorInfo(infos[number])


def _arrays(
    kind: str, infos: Mapping[int, TensorInfo], tensors: Mapping[int, Any], bindings: Mapping[int, Binding]
) -> dict[int, np.ndarray[Any, Any]]:
    """Return the memory of each tensor in the shape and type that the loaded network has for it."""
    for number in infos:
        if number not in tensors:
            raise RuntimeError(f"No tensor supplied for {kind} {number}")
    return {number: _array(info, tensors[number], bindings[number]) for number, info in infos.items()}


def _array(info: TensorInfo, tensor: Any, binding: Binding) -> np.ndarray[Any, Any]:
    if tensor.GetNumElements() != info.GetNumElements():
        raise RuntimeError("MemCopyQueueDescriptor: input & output must have the same number of elements.")
    if tensor.GetDataType() != info.GetDataType():
        raise RuntimeError("MemCopyQueueDescriptor: input & output must have identical data types.")
    memory = tensor.get_memory_area()
    if memory is None:
        raise RuntimeError("A tensor has no memory; create it from a TensorInfo or from an array.")
    shaped: np.ndarray[Any, Any] = memory.reshape(list(info.GetShape()) if binding.shape is None else binding.shape)
    return shaped
