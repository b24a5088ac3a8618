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
from interposer.writers.borders import border_of, border_of_layer
from interposer.writers.refusals import RefusedError
from interposer.writers.tflite.cleaning import clean
from interposer.writers.tflite.layers import bind_inputs, name_outputs, write_layers
from interposer.writers.tflite.legal import legalize
from interposer.writers.tflite.serial import serialized
from interposer.writers.tflite.sheet import Sheet, Tensor
from interposer.writers.tflite.states import assign_states, read_states

__all__ = ["Traced", "reasons", "save", "traced", "write"]


def write(network: Network | Graph | SubgraphView, *, name: str | None = None) -> bytes:
    """Return the bytes of a TFLite file that is equivalent to a network, a graph or a part of a graph.

    Inputs and outputs keep their order, types, scales and names, which are those of the tensors and of the file's only
    signature; dimensions that are not known stay open. States become variables of the file. The inputs and outputs of a
    part are named after the layers that produce them. Scales are rounded to 32 bits, as the format stores them as
    float32.

    Args:
        network: the network, graph or part of a graph; it is validated, not changed.
        name: the subgraph's name; by default the network's.

    Raises:
        UnwritableError: layers cannot be expressed in TFLite; the message lists them with the reasons.
        InvalidNetworkError: the network has errors.
        InvalidArgumentError: the file would have 2 GiB or more.
        MissingDependencyError: the package flatbuffers is not installed.
    """
    return traced(network, name=name).content


def save(network: Network | Graph | SubgraphView, path: str | os.PathLike[str], **options: Any) -> int:
    """Write a network to a file, and return the number of bytes.

    The file is replaced atomically: after an error, the old file is unchanged.

    Args:
        network: the network, graph or part of a graph to write.
        path: the path of the file.
        options: keyword arguments of `write`.

    Raises:
        FileWriteError: the file cannot be written.
        UnwritableError: there are layers that TFLite cannot express; other errors are those of `write`.
    """
    expect(path, str | os.PathLike, "the file must be named by a path")
    content = write(network, **options)
    write_file(path, content)
    return len(content)


class Traced(NamedTuple):
    """A written file, and for each operator of its main subgraph the name of the layer that it was written for."""

    content: bytes
    layers: tuple[str, ...]


@memory_to("write the network", ExecutionError)
def traced(network: Network | Graph | SubgraphView, *, name: str | None = None) -> Traced:
    """Return the file for a network, with the layer that each operator was written for; otherwise like `write`."""
    import_families(__package__)
    border = border_of(network, legalize)
    sheet = Sheet(name or border.name or "main")
    refusals = dict([*bind_inputs(border, sheet), *read_states(border, sheet), *write_layers(border, sheet)])
    assign_states(border, sheet)
    try:
        name_outputs(border, sheet)
    except RefusedError as error:
        refusals.setdefault("outputs", ("Output", str(error)))
    if refusals:
        raise UnwritableError("TFLite", refusals, border.name)
    clean(sheet)
    return Traced(serialized(sheet), tuple(operator.layer for operator in sheet.operators))


def reasons(layer: Layer) -> list[str]:
    """Return the reasons why TFLite cannot express a layer; an empty list if it can.

    The infos of the layer's inputs and outputs must be known.

    Raises:
        MissingDependencyError: the package flatbuffers is not installed.
    """
    import_families(__package__)
    if any(value.info is None for value in (*layer.values, *layer.outputs)):
        return ["the shapes and types of its tensors are not known"]
    sheet = Sheet()
    border = border_of_layer(layer, legalize)
    for name, value in border.inputs:
        sheet.values[value] = Tensor(name, value.known.with_constant(None))
    return [reason for _, (_, reason) in write_layers(border, sheet)][:1]
