"""`DynamicBackend`: an opened plug-in as a `Backend` like any other."""

from __future__ import annotations

from interposer.backend.base import Backend, BackendContext
from interposer.backend.capabilities import Options
from interposer.backend.dynamic import abi
from interposer.backend.dynamic.blobs import Blobs
from interposer.backend.dynamic.context import DynamicContext
from interposer.backend.dynamic.executable import Executable, compile_part
from interposer.backend.dynamic.flatten import FlatGraph
from interposer.backend.dynamic.library import Library
from interposer.backend.dynamic.options import OptionTable, checked_options
from interposer.backend.dynamic.parts import Optimizer
from interposer.backend.dynamic.support import DynamicSupport
from interposer.backend.dynamic.workload import DynamicWorkload
from interposer.backend.memory import MemoryManager
from interposer.backend.support import LayerSupport
from interposer.backend.views import OptimizationViews
from interposer.backend.workload import Workload, WorkloadFactory, WorkloadInfo
from interposer.errors import BackendContractError
from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import PreCompiled
from interposer.types import TensorInfo

__all__ = ["DynamicBackend", "DynamicWorkloadFactory"]


class DynamicBackend(Backend):
    """The backend behind a plug-in's table. Thread safe; works until the library is closed.

    What it makes keeps it alive, so that the library can be closed when the backend is gone, and nobody uses it then.

    A connected part becomes one compiled unit, unless the plug-in's ``optimize`` says otherwise; layers that it leaves
    as they are are compiled one by one. Tensors lie in ordinary memory, and are not copied.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.id = library.id  # type: ignore[misc] # of one instance, as every library brings its own
        self.version = library.info.version  # type: ignore[misc]
        self.api_version = (library.identity.major, library.identity.minor)  # type: ignore[misc]
        self.capabilities = library.info.named_capabilities()  # type: ignore[misc]

    def layer_support(self, options: Options) -> LayerSupport:
        """What the plug-in says that it can run."""
        return DynamicSupport(self.library, options, self)

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Let the plug-in compile the view, or what it makes of it."""
        return Optimizer(self.library, view, self._options(options), self).views()

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Makes workloads that run compiled parts, and compiles what is not."""
        return DynamicWorkloadFactory(self.library, memory_manager, self._options(options), self)

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """The plug-in's context, where it has the extension."""
        return DynamicContext.of(self.library, options, self)

    @property
    def blobs(self) -> Blobs | None:
        """Saving and restoring of compiled parts, where the plug-in can."""
        return Blobs.of(self.library, self)

    def _options(self, options: Options) -> OptionTable:
        return OptionTable(checked_options(self.id, options, self.library.info.options, abi.SCOPE_MODEL))


class DynamicWorkloadFactory(WorkloadFactory):
    """Makes the workloads of one network for a plug-in."""

    def __init__(
        self, library: Library, memory_manager: MemoryManager | None, options: OptionTable, owner: object = None
    ) -> None:
        super().__init__(memory_manager)
        self.library, self._owner = library, owner
        self.alignment = library.info.alignment
        self._options = options

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """The workload of a compiled part, or of a layer that is compiled now.

        Raises:
            CallError: the plug-in cannot compile the layer.
            BackendContractError: the part was compiled by another backend.
        """
        if not isinstance(layer.op, PreCompiled):
            return self._compiled(layer, info)
        executable = layer.op.object
        if not isinstance(executable, Executable) or executable.library is not self.library:
            raise BackendContractError(f"layer {layer} was not compiled by {self.library.id}", backend=self.library.id)
        inputs = [(position, one) for position, one in enumerate(info.inputs) if one is not None]
        return DynamicWorkload(executable, inputs, info.outputs)

    def _compiled(self, layer: Layer, info: WorkloadInfo) -> Workload:
        inputs: dict[int, TensorInfo] = {}
        infos = dict(zip(layer.outputs, info.outputs, strict=True))
        seen = set()
        for position, (value, one) in enumerate(zip(layer.inputs, info.inputs, strict=True)):
            if value is None or one is None:
                continue
            infos[value] = one
            if not value.is_constant and value not in seen:
                seen.add(value)
                inputs[position] = one
        entering = [value for value in (layer.inputs[position] for position in inputs) if value is not None]
        flat = FlatGraph(
            [layer], entering, layer.outputs, minor=self.library.identity.minor,
            alignment=self.library.info.alignment, infos=infos,
        )  # fmt: skip
        executable = compile_part(self.library, flat, self._options, self._owner)
        return DynamicWorkload(executable, list(inputs.items()), info.outputs)
