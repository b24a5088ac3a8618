"""The graph with slots that programs build, and the layers of Arm NN 20.08 that it is made of."""

from pyarmnn._network.network import INetwork
from pyarmnn._network.slots import IConnectableLayer, IInputSlot, IOutputSlot

__all__ = ["IConnectableLayer", "IInputSlot", "INetwork", "IOutputSlot"]
