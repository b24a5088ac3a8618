"""Reports of a runtime to a collector of profiles: the networks that it loads, and the layers that these have."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from interposer.ir.graph import Layer
from interposer.ops.control import Constant, Input, Output
from interposer.profiling.external.options import ExternalProfilingOptions

if TYPE_CHECKING:
    from interposer.plugins import BackendRegistry
    from interposer.profiling.external.client import ProfilingClient
    from interposer.profiling.external.structure import NetworkOutline
    from interposer.profiling.service import ProfilingService
    from interposer.runtime.loaded import LoadedNetwork

__all__ = ["Reporting"]

_PATIENCE: Final = 3.0
"""How many seconds a new runtime waits for a collector."""


class Reporting:
    """Reports networks to a `ProfilingClient`; does nothing without one."""

    def __init__(self, client: ProfilingClient | None) -> None:
        self.client = client
        if client is not None:
            weakref.finalize(self, client.close)  # also at the end of the process, with the last events

    @classmethod
    def of(
        cls, options: ExternalProfilingOptions | None, registry: BackendRegistry, service: ProfilingService
    ) -> Reporting:
        """Return the reporting that the options ask for, after a collector has accepted it or three seconds.

        `registry` has the backends whose number is reported, and `service` has their counters.
        """
        if options is None or not options.enable_profiling:
            return cls(None)
        from interposer.profiling.external.client import ProfilingClient  # noqa: PLC0415 - few runtimes need it

        client = ProfilingClient(options, lambda: len(registry.ids), service)
        client.wait_until_active(_PATIENCE)
        return cls(client)

    def network_loaded(self, loaded: LoadedNetwork) -> None:
        """Report a network and its layers."""
        if self.client is not None:
            self.client.network_loaded(_outline(loaded))

    def network_unloaded(self, loaded: LoadedNetwork) -> None:
        """Report that a network has been unloaded."""
        if self.client is not None:
            self.client.network_unloaded(loaded.traced.number)

    def close(self) -> None:
        """End the connection to the collector."""
        if self.client is not None:
            self.client.close()


def _outline(loaded_network: LoadedNetwork) -> NetworkOutline:
    """Return the layers of a network without constants and states, in the order of execution."""
    from interposer.profiling.external.structure import LayerOutline, NetworkOutline  # noqa: PLC0415

    layers = [layer for layer in loaded_network.optimized.graph.topological() if _is_shown(layer)]
    positions = {layer: position for position, layer in enumerate(layers)}
    outlines = []
    for layer in layers:
        sources = dict.fromkeys(positions[value.producer] for value in layer.values if value.producer in positions)
        backend = "" if isinstance(layer.op, Input | Output) else str(layer.backend or "")
        outlines.append(LayerOutline(layer.name, tuple(sources), backend, layer.kind))
    return NetworkOutline(loaded_network.traced.number, tuple(outlines))


def _is_shown(layer: Layer) -> bool:
    return not isinstance(layer.op, Constant) and not (isinstance(layer.op, Input | Output) and layer.op.state)
