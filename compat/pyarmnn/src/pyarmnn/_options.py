"""Options of the optimizer, of the runtime and of loaded networks."""

from __future__ import annotations

from typing import Any

from pyarmnn._arguments import BOOL, STRING, UINT32, Kind, instance, overload_error
from pyarmnn._descriptor import Descriptor, Field
from pyarmnn._later.options import MODEL_OPTIONS
from pyarmnn._proxy import Proxy

__all__ = ["CreationOptions", "ExternalProfilingOptions", "INetworkProperties", "OptimizerOptions"]


class OptimizerOptions(Descriptor):
    """Options of `Optimize`.

    `m_ModelOptions` is a list of BackendOptions, as in release 23.08.

    Args:
        args: nothing, or ``reduceFp32ToFp16, debug[, reduceFp32ToBf16[, importEnabled]]``, all bool.

    Raises:
        TypeError: the arguments are others.
        RuntimeError: both reductions are requested.
    """

    _constructors = (
        ("m_ReduceFp32ToFp16", "m_Debug", "m_ReduceFp32ToBf16", "m_ImportEnabled"),
        ("m_ReduceFp32ToFp16", "m_Debug", "m_ReduceFp32ToBf16"),
        ("m_ReduceFp32ToFp16", "m_Debug"),
    )

    m_ReduceFp32ToFp16 = Field(BOOL, False)
    m_Debug = Field(BOOL, False)
    m_ReduceFp32ToBf16 = Field(BOOL, False)
    m_ImportEnabled = Field(BOOL, False)
    m_ModelOptions = Field(MODEL_OPTIONS, list)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._check()

    def _check(self) -> None:
        if self.m_ReduceFp32ToFp16 and self.m_ReduceFp32ToBf16:
            raise RuntimeError("BFloat16 and Float16 optimization cannot be enabled at the same time.")


class ExternalProfilingOptions(Descriptor, cpp="ExternalProfilingOptions"):
    """Where a runtime reports what it does. Periods are in microseconds."""

    m_EnableProfiling = Field(BOOL, False)
    m_TimelineEnabled = Field(BOOL, False)
    m_OutgoingCaptureFile = Field(STRING, "")
    m_IncomingCaptureFile = Field(STRING, "")
    m_FileOnly = Field(BOOL, False)
    m_CapturePeriod = Field(UINT32, 10000)
    m_FileFormat = Field(STRING, "binary")


PROFILING_OPTIONS = instance(ExternalProfilingOptions, "ExternalProfilingOptions *")


def _no_tuning(value: Any) -> None:
    if value is not None:
        raise TypeError


TUNED_PARAMETERS = "std::shared_ptr< armnn::IGpuAccTunedParameters > *"


class CreationOptions(Descriptor, cpp="CreationOptions"):
    """Options of a runtime.

    `m_GpuAccTunedParameters` and `m_EnableGpuProfiling` are for Arm NN's backend GpuAcc, and have no effect here.
    """

    m_GpuAccTunedParameters = Field(Kind(TUNED_PARAMETERS, _no_tuning, TUNED_PARAMETERS), None)
    m_EnableGpuProfiling = Field(BOOL, False)
    m_DynamicBackendsPath = Field(STRING, "")
    m_ProfilingOptions = Field(PROFILING_OPTIONS, ExternalProfilingOptions)


class INetworkProperties(Proxy):
    """Whether a loaded network reads the memory of inputs and writes the memory of outputs without copies.

    Raises:
        TypeError: an argument is no bool.
    """

    def __init__(self, importEnabled: bool = False, exportEnabled: bool = False) -> None:
        if not BOOL.accepts(importEnabled) or not BOOL.accepts(exportEnabled):
            name = "armnn::INetworkProperties::INetworkProperties"
            raise overload_error("new_INetworkProperties", name, (("bool", "bool"), ("bool",), ()))
        self._import, self._export = importEnabled, exportEnabled

    @property
    def m_ImportEnabled(self) -> bool:
        """Whether the memory of inputs is read without a copy."""
        return self._import

    @property
    def m_ExportEnabled(self) -> bool:
        """Whether the memory of outputs is written without a copy."""
        return self._export
