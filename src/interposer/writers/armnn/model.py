"""The functions `write` and `save`, which convert a network, and `reasons`, which reports unsupported layers."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from interposer.core.errors import ExecutionError, UnwritableError, expect, memory_to
from interposer.core.families import import_families
from interposer.core.files import write_file
from interposer.ir.graph import Graph, Layer
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d
from interposer.ops.matmul import FullyConnected
from interposer.writers.armnn.layers import bind_inputs, bind_outputs, write_layers
from interposer.writers.armnn.legal import legalize
from interposer.writers.armnn.releases import release_of
from interposer.writers.armnn.serial import serialized
from interposer.writers.armnn.sheet import Sheet, Tensor
from interposer.writers.borders import border_of, border_of_layer

__all__ = ["Written", "reasons", "save", "write", "written"]


def write(network: Network | Graph | SubgraphView, *, release: str | None = None, exact: bool = True) -> bytes:
    """Return the bytes of an Arm NN file that is equivalent to a network, a graph or a part of a graph.

    Inputs and outputs keep their names and binding ids, and layers their names. Scalars become tensors of the shape
    [1], as most layers of Arm NN take no others. Scales are rounded to 32 bits.

    Args:
        network: the network, graph or part of a graph; it is validated, not changed.
        release: the release of Arm NN that has to read the file, one of `RELEASES`. By default, the file uses the
            oldest form of every layer, so that the oldest possible release reads it.
        exact: refuse layers that Quantize with ties to even, which Arm NN rounds away from zero, and quantized layers
            with a bias of int64, for which Arm NN has int32.

    Raises:
        UnwritableError: layers cannot be expressed in Arm NN; the message lists them with the reasons.
        InvalidNetworkError: the network has errors.
        InvalidArgumentError: the release is not known, or the file would have 2 GiB or more.
        MissingDependencyError: the package flatbuffers is not installed.
    """
    return written(network, release=release, exact=exact).content


def save(network: Network | Graph | SubgraphView, path: str | os.PathLike[str], **options: Any) -> int:
    """Write a network to a file, and return the number of bytes.

    The file is replaced atomically: after an error, the old file is unchanged.

    Args:
        network: the network, graph or part of a graph to write.
        path: the path of the file.
        options: keyword arguments of `write`.

    Raises:
        FileWriteError: the file cannot be written.
        UnwritableError: there are layers that Arm NN cannot express; other errors are those of `write`.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    content = write(network, **options)
    write_file(path, content)
    return len(content)


class Written(NamedTuple):
    """A written file, and the oldest release of Arm NN that reads it, such as ``20.08``."""

    content: bytes
    release: str


@memory_to("write the network", ExecutionError)
def written(
    network: Network | Graph | SubgraphView, *, release: str | None = None, exact: bool = True
) -> Written:  # fmt: skip
    """Return the file for a network, and the oldest release that reads it; otherwise like `write`."""
    import_families(__package__)
    target_release = release_of(release)
    border = border_of(network, legalize)
    border.refuse_states("Arm NN")
    sheet = Sheet(target_release, exact=exact)
    if release is None and any(map(_computes_weights, border.layers)):
        target_release.use("22.05")
        sheet.weights_as_inputs = True
    refusals = dict([*bind_inputs(border, sheet), *write_layers(border, sheet)])
    for name, refusal in bind_outputs(border, sheet):
        refusals.setdefault(name, refusal)
    if refusals:
        raise UnwritableError("Arm NN", refusals, border.name)
    return Written(serialized(sheet), max(target_release.needed, release or target_release.needed))


def _computes_weights(layer: Layer) -> bool:
    """Return True if the weights or the bias of a layer are computed, so that they must be inputs of the layer."""
    kinds = Convolution2d | DepthwiseConvolution2d | FullyConnected
    return isinstance(layer.op, kinds) and any(
        value is not None and not value.is_constant for value in layer.inputs[1:]
    )


def reasons(layer: Layer, *, release: str | None = None) -> list[str]:
    """Return the reasons why Arm NN cannot express a layer; an empty list if it can.

    The infos of the layer's inputs and outputs must be known. `release` is as for `write`.
    """
    import_families(__package__)
    if any(value.info is None for value in (*layer.values, *layer.outputs)):
        return ["the shapes and types of its tensors are not known"]
    sheet = Sheet(release_of(release))
    border = border_of_layer(layer, legalize)
    for name, value in border.inputs:
        sheet.values[value] = Tensor(value.known.with_constant(None), None, name)
    return [reason for _, (_, reason) in write_layers(border, sheet)][:1]
