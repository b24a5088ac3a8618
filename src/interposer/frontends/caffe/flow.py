"""Which layer of a Caffe network writes the blob that another layer reads, and which layers the outputs need.

Caffe runs layers in the order of the file. A layer may write the blob that it reads, and layers after it then read the
new content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from interposer.core.errors import BindingError, ParseError, did_you_mean
from interposer.frontends.caffe.net import Layer

__all__ = ["Flow", "Tensor", "flow_of"]

Tensor: TypeAlias = "tuple[int, int]"
"""A blob as a layer writes it: the number of the layer and of its top; layer -1 stands for the inputs."""


class Flow(NamedTuple):
    """The blobs of a network: those that each layer reads, and the last content of every blob by its name.

    `unread` are the names of the blobs whose last content no layer reads, in the order in which they are written.
    """

    read: tuple[tuple[Tensor, ...], ...]
    last: dict[str, Tensor]
    unread: tuple[str, ...]

    def outputs(self, layers: Sequence[Layer], names: Sequence[str] | None) -> dict[str, Tensor]:
        """Return the outputs by name: the requested blobs or first tops of layers, by default all unread blobs.

        Raises:
            BindingError: the network has no blob or layer of a requested name.
            ParseError: no layer writes a blob that is an output.
        """
        if names is None and not self.unread:
            raise ParseError(
                "no layer gives an output, as in a file that has only weights; "
                "give the prototxt of the network, and this file as its weights"
            )
        if names is None:
            return {name: self.last[name] for name in self.unread}
        first_tops = {layer.name: (number, 0) for number, layer in enumerate(layers) if layer.tops}
        tensor_of_name = {**first_tops, **self.last}
        for name in names:
            if name not in tensor_of_name:
                hint = did_you_mean(str(name), tensor_of_name)
                raise BindingError(f"outputs: the network has no blob or layer {name!r}{hint}")
        return {name: tensor_of_name[name] for name in names}

    def needed(self, outputs: Iterable[Tensor]) -> set[int]:
        """Return the numbers of the layers from which the outputs are computed."""
        needed_layers, pending_layers = set[int](), [number for number, _ in outputs]
        while pending_layers:
            number = pending_layers.pop()
            if number >= 0 and number not in needed_layers:
                needed_layers.add(number)
                pending_layers += (producer for producer, _ in self.read[number])
        return needed_layers


def _silence(layer: Layer, unread_tops: dict[str, None]) -> None:
    """Remove the blobs that a layer of type Silence reads from the blobs that are outputs by default."""
    if layer.type == "Silence":
        for name in layer.bottoms:
            unread_tops.pop(name, None)


def flow_of(inputs: Collection[str], layers: Sequence[Layer], ends: Collection[int]) -> Flow:
    """Return which layer reads what.

    Args:
        inputs: the names of the network's inputs.
        layers: the layers in the order in which they run.
        ends: the numbers of layers that do not count as readers, such as losses.

    Raises:
        ParseError: a layer reads a blob that no layer before it writes.
    """
    last_writer: dict[str, Tensor] = {name: (-1, number) for number, name in enumerate(inputs)}
    tensors_read, unread_tops = list[tuple[Tensor, ...]](), dict[str, None]()
    for number, layer in enumerate(layers):
        if number in ends:
            tensors_read.append(())
            _silence(layer, unread_tops)
            continue
        for name in layer.bottoms:
            if name not in last_writer:
                raise ParseError(f"it reads {name!r}, which no layer before it writes", where=layer.where)
            unread_tops.pop(name, None)
        tensors_read.append(tuple(last_writer[name] for name in layer.bottoms))
        for index, name in enumerate(layer.tops):
            last_writer[name] = number, index
            unread_tops.pop(name, None)
            unread_tops[name] = None
    return Flow(tuple(tensors_read), last_writer, tuple(unread_tops))
