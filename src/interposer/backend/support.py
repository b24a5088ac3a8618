"""The answers of a backend to the question whether it can run a layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.table import KernelInfo, KernelTable

__all__ = ["KernelSupport", "LayerSupport", "Support"]


@dataclass(frozen=True, slots=True)
class Support:
    """Yes, or no with reasons. True in a condition exactly where it is a yes."""

    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values: Iterable[object] = self.reasons
        object.__setattr__(self, "reasons", (values,) if isinstance(values, str) else tuple(map(str, values)))

    @classmethod
    def yes(cls) -> Support:
        """Return the layer can be run."""
        return cls()

    @classmethod
    def no(cls, *reasons: str) -> Support:
        """Return the layer cannot be run, and why."""
        return cls(reasons or ("no reason was given",))

    @classmethod
    def of(cls, reasons: Iterable[str]) -> Support:
        """Return a no where there are reasons, else a yes."""
        return cls((reasons,) if isinstance(reasons, str) else tuple(reasons))

    def __bool__(self) -> bool:
        return not self.reasons


class LayerSupport:
    """What a backend can run. Override `is_layer_supported`, or `query` where a verdict depends on the neighbours."""

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return whether the backend can run one layer, whose tensor infos are known."""
        return Support.no("is_layer_supported is not implemented")

    def query(self, view: SubgraphView) -> list[Support]:
        """Return one verdict for each layer of a view, in its order. Assignment asks only this."""
        return [self.is_layer_supported(layer) for layer in view]


class KernelSupport(LayerSupport):
    """Takes what a table has a kernel for."""

    def __init__(self, kernels: KernelTable) -> None:
        self.kernels = kernels

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return a yes where a kernel takes the layer's operator on its tensors."""
        info = KernelInfo.of(layer.op, layer.input_infos, layer.output_infos)
        return Support.of(self.kernels.reasons(layer.op, info))
