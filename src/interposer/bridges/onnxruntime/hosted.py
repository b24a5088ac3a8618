"""ONNX Runtime with the execution provider, as a host for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from interposer.bridges.files import library
from interposer.bridges.reporting import reports
from interposer.core.errors import BackendUnavailableError, ExecutionError
from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.writers.onnx import write

__all__ = ["OnnxRuntimeHost"]

_NAME: Final = "InterposerConformance"
_ONLY_FATAL: Final = 4
"""The level of logging at which ONNX Runtime does not print the errors that it raises."""


class OnnxRuntimeHost:
    """Runs ONNX models in sessions of ONNX Runtime, with a provider for one backend.

    `unable` is the exception for a model that ONNX Runtime does not accept. `options` are those of the backend, as
    texts by name.

    Raises:
        BackendUnavailableError: ONNX Runtime is not installed or too old, or the library of the bridges was not built.
    """

    name = "onnxruntime"

    def __init__(self, backend: str, options: Mapping[str, str], unable: type[Exception]) -> None:
        self._module, self._unable = _module(), unable
        of_backend = {f"options.{backend}.{name}": text for name, text in options.items()}
        self._options = {"backends": backend, "min-nodes": "1", **of_backend}
        self._devices = _devices()

    def express(self, network: Network) -> bytes:
        """Return a network as an ONNX model; raise `UnwritableError` if ONNX cannot express a layer."""
        content: bytes = write(network).SerializeToString()
        return content

    def run(self, content: bytes, inputs: Sequence[Array]) -> tuple[list[Array], list[str]]:
        """Run a model once; return the outputs, or the reasons why ONNX Runtime would run nodes itself.

        Raises:
            ExecutionError: the provider failed. An error of ONNX Runtime itself is raised as `unable`.
        """
        latest = reports()[-1:]
        try:
            session = self._session(content)
            if reports()[-1:] == latest:
                return [], ["ONNX Runtime passed nothing to the provider"]
            refusals = [reason for node in reports()[-1].refused for reason in node.reasons]
            feeds = dict(zip([value.name for value in session.get_inputs()], inputs, strict=True))
            return ([], refusals) if refusals else (session.run(None, feeds), [])
        except Exception as error:  # ONNX Runtime's errors have no common base
            message = " ".join(str(error).split())
            raise (ExecutionError(message) if "Interposer: " in message else self._unable(message)) from error

    def _session(self, content: bytes) -> Any:
        options = self._module.SessionOptions()
        options.log_severity_level = _ONLY_FATAL
        options.add_provider_for_devices(self._devices, self._options)
        return self._module.InferenceSession(content, options)


@cache
def _devices() -> list[Any]:
    """Register the library, and return the devices of its provider."""
    module = _module()
    module.set_default_logger_severity(_ONLY_FATAL)
    module.register_execution_provider_library(_NAME, library())
    return [device for device in module.get_ep_devices() if device.ep_name == f"{_NAME}ExecutionProvider"]


def _module() -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise BackendUnavailableError(
            "OnnxRuntime", "install it with pip install 'interposer-nn[onnxruntime]'"
        ) from error
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise BackendUnavailableError("OnnxRuntime", f"version {onnxruntime.__version__} is older than 1.23")
    return onnxruntime
