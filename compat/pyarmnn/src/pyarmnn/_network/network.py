"""`INetwork`: a network that a program builds layer by layer, or that a parser read from a file."""

from __future__ import annotations

from interposer import Network
from pyarmnn._later.layers import LaterLayers
from pyarmnn._network.control import StructuralLayers
from pyarmnn._network.elementwise import ElementwiseLayers
from pyarmnn._network.movement import MovingLayers
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._network.windows import WindowedLayers

__all__ = ["INetwork"]


class INetwork(ElementwiseLayers, WindowedLayers, MovingLayers, StructuralLayers, LaterLayers):
    """A network of layers.

    Each method ``Add...Layer`` adds a layer and returns it. Connect the slots of layers, and set the infos of all
    output slots. `Optimize` prepares the network for backends; the network can be changed and optimized again
    afterwards. Not thread safe.
    """

    def __init__(self) -> None:
        self._layers: list[IConnectableLayer] = []
        self._parsed: Network | None = None

    @classmethod
    def _of(cls, network: Network) -> INetwork:
        """Return the network that a parser read; its binding ids are those of the Input and Output layers."""
        wrapper = cls()
        wrapper._parsed = network
        return wrapper

    def _append(self, layer: IConnectableLayer) -> IConnectableLayer:
        parsed = self._parsed
        if parsed is not None:
            bound = {"Input": parsed.inputs, "Output": parsed.outputs}.get(layer._type, {})
            if layer._descriptor in bound:
                raise RuntimeError("A layer already exists with the specified id")
        return super()._append(layer)
