"""Models from PyTorch: calls as a module takes them, weights that change, and the backend of `torch.compile`.

::

    model = ip.load(torch.export.export(module, (x,)))
    fast = torch.compile(module, backend="interposer", options={"backends": ["CpuAcc", "CpuRef"]})
    print(interposer.session.torch.fallbacks())
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from interposer.session.torch.fallbacks import Fallback, FallbackWarning, clear_fallbacks, fallbacks

if TYPE_CHECKING:
    from interposer.session.torch.compiling import CompileOptions, interposer
    from interposer.session.torch.program_model import ProgramModel

__all__ = [
    "CompileOptions",
    "Fallback",
    "FallbackWarning",
    "ProgramModel",
    "clear_fallbacks",
    "fallbacks",
    "interposer",
]

_MODULES = {"CompileOptions": "compiling", "ProgramModel": "program_model", "interposer": "compiling"}
"""The modules of the names that are imported on first use, because every `load` imports the format in this package."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'interposer.session.torch' has no attribute {name!r}")
    return getattr(import_module(f"interposer.session.torch.{_MODULES[name]}"), name)
