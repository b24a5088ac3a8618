"""Models from PyTorch: calls as a module takes them, weights that change, and the backend of `torch.compile`.

::

    model = ip.load(torch.export.export(module, (x,)))
    fast = torch.compile(module, backend="interposer", options={"backends": ["CpuAcc", "CpuRef"]})
    print(interposer.session.torch.fallbacks())
"""

from interposer.session.torch.compiling import CompileOptions, interposer
from interposer.session.torch.fallbacks import Fallback, FallbackWarning, clear_fallbacks, fallbacks
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
