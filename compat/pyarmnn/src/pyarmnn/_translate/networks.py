"""Networks that programs built, or that parsers read, for Interposer."""

from __future__ import annotations

from collections.abc import Sequence

import interposer as ip
from pyarmnn import _types as types
from pyarmnn._infos import info_from_core
from pyarmnn._network import INetwork
from pyarmnn._network.slots import IConnectableLayer
from pyarmnn._optimized import Infos
from pyarmnn._shapes import TensorInfo
from pyarmnn._translate.graph import Builder

__all__ = ["translated"]


def translated(network: INetwork, backends: Sequence[str]) -> tuple[ip.Network, Infos]:
    """Return the network for Interposer, with the infos of its inputs and outputs; `backends` are for messages.

    Raises:
        RuntimeError: a layer is not connected or not valid.
    """
    parsed, layers = network._parsed, network._layers
    if parsed is not None and not layers:
        return parsed, _parsed_infos(parsed)
    builder = Builder(backends, None if parsed is None else parsed.graph.clone())
    builder.build(layers)
    infos = _infos(layers) if parsed is None else _merged(_parsed_infos(parsed), _infos(layers))
    return ip.Network("network", builder.network.graph), infos


def _merged(first: Infos, second: Infos) -> Infos:
    return Infos({**first.inputs, **second.inputs}, {**first.outputs, **second.outputs})


def _parsed_infos(network: ip.Network) -> Infos:
    inputs = {number: info_from_core(layer.outputs[0].known) for number, layer in network.inputs.items()}
    outputs = {number: info_from_core(layer.values[0].known) for number, layer in network.outputs.items()}
    return Infos(inputs, outputs)


def _infos(layers: Sequence[IConnectableLayer]) -> Infos:
    inputs = {layer._descriptor: TensorInfo(layer._outputs[0]._info) for layer in layers if layer._type == "Input"}
    outputs = {layer._descriptor: _result_info(layer) for layer in layers if layer._type == "Output"}
    return Infos(inputs, outputs)


def _result_info(output: IConnectableLayer) -> TensorInfo:
    """Return the info of what an Output layer reads; the results of Softmax of 8 bits always have the same scale."""
    source = output._inputs[0]._source
    assert source is not None
    info = TensorInfo(source._info)
    if source._layer._type == "Softmax" and info.GetDataType() == types.DataType_QAsymmU8:
        info.SetQuantizationScale(1 / 256)
        info.SetQuantizationOffset(0)
    return info
