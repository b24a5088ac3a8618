"""From a network of this interface to a network of Interposer."""

from __future__ import annotations

import interposer as ip
from pyarmnn._infos import info_from_core
from pyarmnn._network.network import INetwork
from pyarmnn._optimized import Infos

__all__ = ["translated"]


def translated(network: INetwork) -> tuple[ip.Network, Infos]:
    """Return the network for Interposer, with the infos of its inputs and outputs.

    Raises:
        RuntimeError: a layer is not connected or not valid.
    """
    if network._parsed is None:
        raise RuntimeError("Networks that are built layer by layer cannot be optimized yet.")
    core = network._parsed
    inputs = {number: info_from_core(layer.outputs[0].known) for number, layer in core.inputs.items()}
    outputs = {number: info_from_core(layer.values[0].known) for number, layer in core.outputs.items()}
    return core, Infos(inputs, outputs)
