"""Layer support: a backend's answers to the question whether it can run a layer."""

from __future__ import annotations

from collections.abc import Iterable

from interposer.core.records import dataclass
from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.table import KernelInfo, KernelTable

__all__ = ["KernelSupport", "LayerSupport", "Support"]


@dataclass(frozen=True, slots=True)
class Support:
    """The answer to the question whether a backend supports a layer.

    `reasons` says why it does not; the layer is supported if there are none. The object is true if the layer is
    supported.
    """

    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        reasons: Iterable[object] = self.reasons
        object.__setattr__(self, "reasons", (reasons,) if isinstance(reasons, str) else tuple(map(str, reasons)))

    @classmethod
    def yes(cls) -> Support:
        """Return the answer that the layer is supported."""
        return cls()

    @classmethod
    def no(cls, *reasons: str) -> Support:
        """Return the answer that the layer is not supported, with the reasons."""
        return cls(reasons or ("no reason was given",))

    @classmethod
    def of(cls, reasons: Iterable[str]) -> Support:
        """Return the answer "supported" if `reasons` is empty, else "not supported" with these reasons."""
        return cls((reasons,) if isinstance(reasons, str) else tuple(reasons))

    def __bool__(self) -> bool:
        return not self.reasons


class LayerSupport:
    """Answers the optimizer's question which layers a backend supports.

    Override `is_layer_supported`, or `query` if the answer for a layer depends on its neighbours.
    """

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return whether the backend can run one layer, whose tensor infos are known."""
        return Support.no("is_layer_supported is not implemented")

    def query(self, view: SubgraphView) -> list[Support]:
        """Return one answer for each layer of a view, in its order. The assignment of layers calls only this method."""
        return [self.is_layer_supported(layer) for layer in view]


class KernelSupport(LayerSupport):
    """The layer support of a backend with a kernel table: it supports the layers that a kernel of the table accepts."""

    def __init__(self, kernels: KernelTable) -> None:
        self.kernels = kernels

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return "supported" if a kernel accepts the layer's operator with its tensors, else the kernels' reasons."""
        info = KernelInfo.of(layer.op, layer.input_infos, layer.output_infos)
        return Support.of(self.kernels.reasons(layer.op, info))
