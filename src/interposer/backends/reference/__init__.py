"""CpuRef, the reference backend: all layers and all data types, in straightforward NumPy code."""

from __future__ import annotations

from typing import ClassVar

from interposer.backend import Backend, BackendContext, BackendId, Capabilities, LayerSupport, Options
from interposer.core.errors import OptionError
from interposer.kernels import KernelTable, reference

__all__ = ["ReferenceBackend"]


class _OnFirstUse:
    """The table of all reference kernels, whose modules are imported when it is first asked for."""

    def __get__(self, instance: Backend | None, owner: type[Backend]) -> KernelTable:
        return reference()


class ReferenceBackend(Backend):
    """A backend that runs the reference kernels, which favor correctness over speed and serve as the baseline."""

    id: ClassVar = BackendId("CpuRef")
    kernels: ClassVar = _OnFirstUse()
    capabilities: ClassVar = Capabilities(
        NonConstWeights=True, ConstantTensorsAsInputs=True, HasFp16=True, DynamicShapes=True, Sequences=True
    )

    def layer_support(self, options: Options) -> LayerSupport:
        """Return the object that answers which layers the backend runs; raise `OptionError` for any option."""
        self._refuse(options)
        return super().layer_support(options)

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """Return None, as the backend has no context; raise `OptionError` for any option."""
        self._refuse(options)
        return None

    def _refuse(self, options: Options) -> None:
        for name in options:
            raise OptionError(f"backend {self.id} has no option {name!r} (it has none)")
