"""`IsolatedBackend`: the host's proxy of a backend that runs in a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from interposer.backend.base import Backend, BackendContext, BackendId
from interposer.backend.capabilities import Capabilities, Capability, Options
from interposer.backend.events import BackendEvent
from interposer.backend.memory import MemoryManager
from interposer.backend.support import LayerSupport, Support
from interposer.backend.views import OptimizationViews
from interposer.backend.workload import WorkloadFactory
from interposer.core.errors import BackendContractError, BackendCrashedError, BackendUnavailableError, OptionError
from interposer.ir.graph import Graph, Layer
from interposer.ir.subgraph import SubgraphView
from interposer.isolation.compilation import Compilation, packer_for
from interposer.isolation.context import RemoteContext, RemoteProfilingContext
from interposer.isolation.network import RemoteFactory
from interposer.isolation.settings import Isolation
from interposer.isolation.supervisor import Supervisor
from interposer.isolation.tensors import SharedMemory
from interposer.isolation.wire import Replica, crossing_problem, reading
from interposer.profiling.backends import BackendProfiling, BackendProfilingContext

__all__ = ["IsolatedBackend"]


class IsolatedBackend(Backend):
    """A proxy of a backend in a child process; crashes of the child become errors in the host.

    Args:
        backend_id: the id of the backend.
        factory: a class or function of a module, or any object that can be pickled, which returns the backend when it
            is called in the child. The host never calls it.
        how: deadlines, restarts and limits.
        record: called with an event for every crash and restart.

    Raises:
        BackendUnavailableError: the backend cannot be created in a child process, or reports that it is not available.
        OptionError: the factory passes an option that the backend does not declare, or a value of the wrong type.
    """

    def __init__(
        self,
        backend_id: str,
        factory: Callable[[], object],
        how: Isolation | None = None,
        record: Callable[[BackendEvent], None] = lambda event: None,
    ) -> None:
        self.supervisor = Supervisor(backend_id, factory, Isolation() if how is None else how, record)
        self._profiles = False
        try:
            description = self.supervisor.begin()
            with reading("what it says of itself"):
                vars(self).update(_description(backend_id, description))
        except BackendCrashedError as error:
            raise BackendUnavailableError(backend_id, f"its child process {error.reason} at the start") from error
        except OptionError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise BackendUnavailableError(backend_id, f"in its child process: {error}") from error
        if description.get("unavailable") is not None:
            self.close()
            raise BackendUnavailableError(backend_id, str(description["unavailable"]))

    def layer_support(self, options: Options) -> LayerSupport:
        """Return an object that queries the child for layer support."""
        return RemoteSupport(self.supervisor, options)

    def create_memory_manager(self) -> MemoryManager:
        """Return a manager of memory that is shared with the child."""
        return SharedMemory()

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return a factory whose workloads run in the child."""
        memory = memory_manager if isinstance(memory_manager, SharedMemory) else None
        return RemoteFactory(self.supervisor, memory, options)

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """Return the context in the child; None if the backend has none or is disabled."""
        if self.supervisor.quarantine_reason is not None:
            return None
        context = RemoteContext(self.supervisor, options)
        return context if context.is_made else None

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        """Return the context in the child; None if the backend has none or is disabled."""
        if not self._profiles or self.supervisor.quarantine_reason is not None:
            return None
        context = RemoteProfilingContext(self.supervisor, options, profiling)
        return context if context.is_made else None

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Return the result of the child. Compiled objects stay in the child; a restarted child compiles them again."""
        return Compilation(self.supervisor, view, options).views(view)

    def close(self) -> None:
        """End the child process; it is started again if the backend is used later."""
        self.supervisor.close()

    def __repr__(self) -> str:
        return f"<IsolatedBackend {self.id}>"


def _description(backend_id: str, description: Mapping[str, Any]) -> dict[str, Any]:
    capabilities = [Capability(str(name), value, str(doc)) for name, value, doc in description["capabilities"]]
    for capability in capabilities:
        if not isinstance(capability.value, bool | int | float | str):
            raise ValueError(f"the capability {capability.name!r} is {capability.value!r}")
    major, minor = map(int, description["api_version"])
    return {
        "id": BackendId.or_address(backend_id),
        "capabilities": Capabilities(*capabilities),
        "api_version": (major, minor),
        "version": str(description["version"]),
        "_profiles": description["profiles"] is True,
    }


class RemoteSupport(LayerSupport):
    """Queries the child for the layers that its backend supports."""

    def __init__(self, supervisor: Supervisor, options: Options) -> None:
        self.supervisor, self.options = supervisor, dict(options)

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return the support for a single layer."""
        return self.query(SubgraphView(Graph(), [layer], [layer]))[0]

    def query(self, view: SubgraphView) -> list[Support]:
        """Return the child's results; layers that cannot be sent to another process are unsupported."""
        errors = {layer: error for layer in view if (error := crossing_problem(layer)) is not None}
        crossing = view.part([layer for layer in view if layer not in errors]) if errors else view
        supports = iter(self._ask(crossing) if len(crossing) else ())
        return [Support.no(errors[layer]) if layer in errors else next(supports) for layer in view]

    def _ask(self, view: SubgraphView) -> list[Support]:
        packer, needed = packer_for(self.supervisor)
        replica = Replica(view, packer)
        request = {"do": "query", "graph": replica.plain, "view": replica.view, "options": self.options}
        answer = self.supervisor.ask(request, "query", *needed, arrays=packer.arrays)
        with reading("the answer of query"):
            verdicts = [Support(tuple(map(str, reasons))) for reasons in answer["verdicts"]]
        if len(verdicts) != len(view):
            raise BackendContractError(f"query gave {len(verdicts)} verdicts for {len(view)} layers")
        return verdicts
