"""Bridges: Interposer's backends inside ONNX Runtime and LiteRT, in programs that know nothing of Interposer.

`library` is the path of the shared object that a host loads. It has the entry points of both hosts::

    import onnxruntime
    import interposer.bridges

    onnxruntime.register_execution_provider_library("Interposer", interposer.bridges.library())
    providers = [("InterposerExecutionProvider", {"backends": "CpuAcc"}), "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession("net.onnx", providers=providers)
    print(interposer.bridges.reports()[-1].explain())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interposer.bridges.files import library

if TYPE_CHECKING:
    from interposer.bridges.reporting import NodeReport, PartReport, Report, reports

__all__ = [
    "NodeReport",
    "PartReport",
    "Report",
    "get_ep_name",
    "get_ep_names",
    "get_library_path",
    "library",
    "reports",
]


def get_library_path() -> str:
    """Return what `library` returns; vendors of execution providers of ONNX Runtime have a function of this name."""
    return library()


def get_ep_name() -> str:
    """Return the name of the execution provider that the registration as "Interposer" adds to ONNX Runtime."""
    return "InterposerExecutionProvider"


def get_ep_names() -> list[str]:
    """Return the names of all execution providers of the library."""
    return [get_ep_name()]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'interposer.bridges' has no attribute {name!r}")
    from interposer.bridges import reporting  # noqa: PLC0415 - not needed to find the library

    return getattr(reporting, name)
