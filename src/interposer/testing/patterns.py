"""Networks of several layers, built from samples that a backend supports."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.testing.outcome import Refused
from interposer.testing.sample import Given, Sample

__all__ = ["PATTERNS", "VARIANTS", "Growth", "Pool"]

LENGTH: Final = 6
VARIANTS: Final = 16
"""The number of networks for each pattern, each built from other samples."""

_INDEX_TYPES: Final = frozenset({DataType.INT32, DataType.INT64})


@dataclass(frozen=True, eq=False)
class Link:
    """A sample that can be one layer of a network: the info of the tensor that it reads, and of its only result.

    The first operand may have any values. The other operands come with the sample.
    """

    sample: Sample
    takes: TensorInfo
    gives: TensorInfo


class Pool:
    """The samples from which networks are built, indexed by the info of the tensor that they read.

    `after` has all of them, `keeping` those whose result has the same info, and `joining` those that combine two such
    tensors.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        links = [link for link in map(_link, samples) if link is not None]
        self.after: dict[TensorInfo, list[Link]] = {}
        for link in links:
            self.after.setdefault(link.takes, []).append(link)
        self.keeping = {info: [link for link in links if link.gives == info] for info, links in self.after.items()}
        self.joining = {
            info: [link for link in keeping_links if _joins(link)] for info, keeping_links in self.keeping.items()
        }


def _link(sample: Sample) -> Link | None:
    network, _ = sample.network()
    infos = [value.info for value in network.graph.layer("layer").outputs]
    first = sample.inputs[0] if sample.inputs and not sample.extreme else None
    if first is None or not _is_open(sample, 0) or len(infos) != 1 or infos[0] is None or not infos[0].is_concrete:
        return None
    return Link(sample, first.info, infos[0].with_constant(None))


def _is_open(sample: Sample, index: int) -> bool:
    """Return True if an operand is an input with arbitrary values, and not an index, size or box."""
    operand: Given | None = sample.inputs[index]
    dtypes = sample.op.operands[min(index, len(sample.op.operands) - 1)].dtypes
    return (
        operand is not None
        and not operand.constant
        and operand.values is None
        and not (dtypes and dtypes <= _INDEX_TYPES)
    )


def _joins(link: Link) -> bool:
    second_operand = link.sample.inputs[1:2]
    return (
        bool(second_operand)
        and _is_open(link.sample, 1)
        and second_operand[0] is not None
        and second_operand[0].info == link.takes
    )


class Growth:
    """A network that is built layer by layer from the samples of a pool, and `feeds`, its input arrays by binding id.

    The same seed gives the same network.
    """

    def __init__(self, pool: Pool, seed: str) -> None:
        self.pool, self.random = pool, random.Random(seed)
        self.network = Network(seed)
        self.feeds: dict[int, Array] = {}

    def start(self, *, merged: bool = False) -> Value:
        """Add an input of random type and shape (of those that samples have), and return its value.

        Layers with a result of the same type and shape can follow; with `merged`, also layers that combine two such
        values.

        Raises:
            Refused: the backend supports no such layers.
        """
        choices = [info for info, links in (self.pool.joining if merged else self.pool.keeping).items() if links]
        if not choices:
            raise Refused("the samples that the backend takes do not fit together in this way")
        info = self.random.choice(choices)
        array = self.pool.after[info][0].sample.arrays()[0]
        assert array is not None
        return self._input(info, array)

    def follow(self, value: Value, *, last: bool = False) -> Value:
        """Add a random layer that reads a value, and return its result.

        Unless `last`, a layer is preferred to whose result further layers can be added.
        """
        links = self.pool.after[value.known]
        return self._add([link for link in links if last or link.gives in self.pool.after] or links, {0: value})

    def keep(self, value: Value) -> Value:
        """Add a random layer that reads a value, and return its result, which has the same type and shape."""
        return self._add(self.pool.keeping[value.known], {0: value})

    def join(self, first: Value, second: Value) -> Value:
        """Add a random layer that combines two values of the same info, and return its result of the same info."""
        return self._add(self.pool.joining[first.known], {0: first, 1: second})

    def output(self, *values: Value) -> None:
        """Make these values the outputs of the network."""
        for number, value in enumerate(values):
            self.network.add_output_layer(number, value)

    def _add(self, links: Sequence[Link], attached_values: dict[int, Value]) -> Value:
        sample = self.random.choice(links).sample
        values: list[Value | None] = []
        for index, (operand, array) in enumerate(zip(sample.inputs, sample.arrays(), strict=True)):
            values.append(attached_values[index] if index in attached_values else self._operand(operand, array))
        return self.network.add_layer(sample.op, *values, outputs=sample.outputs).output

    def _operand(self, operand: Given | None, array: Array | None) -> Value | None:
        if operand is None or array is None:
            return None
        if operand.constant:
            return self.network.add_constant_layer(array, operand.info.quantization).output
        return self._input(operand.info, array)

    def _input(self, info: TensorInfo, array: Array) -> Value:
        binding_id = len(self.feeds)
        self.feeds[binding_id] = array
        return self.network.add_input_layer(binding_id, info).output


def _chain(growth: Growth, value: Value) -> list[Value]:
    values = []
    for number in range(LENGTH):
        if value.known not in growth.pool.after:
            break
        value = growth.follow(value, last=number == LENGTH - 1)
        values.append(value)
    return values


def chain(growth: Growth) -> None:
    """Build a chain of layers."""
    growth.output(_chain(growth, growth.start())[-1])


def ladder(growth: Growth) -> None:
    """Build a chain of layers in which every value is an output."""
    growth.output(*_chain(growth, growth.start()))


def fan(growth: Growth) -> None:
    """Build a value that several layers read."""
    value = growth.keep(growth.start())
    growth.output(*(growth.follow(value, last=True) for _ in range(3)))


def diamond(growth: Growth) -> None:
    """Build two paths of different lengths that split and merge again."""
    top = growth.keep(growth.start(merged=True))
    growth.output(growth.join(growth.keep(top), growth.keep(growth.keep(top))))


def twice(growth: Growth) -> None:
    """Build a value that one layer reads twice, and that other layers read too."""
    value = growth.start(merged=True)
    growth.output(growth.keep(growth.join(value, value)))


def twins(growth: Growth) -> None:
    """Build two independent networks in one."""
    growth.output(_chain(growth, growth.start())[-1], _chain(growth, growth.start())[-1])


def braid(growth: Growth) -> None:
    """Build two values that are combined repeatedly, each time with an earlier one."""
    first = growth.start(merged=True)
    second = growth.keep(first)
    for _ in range(3):
        first, second = second, growth.join(first, second)
    growth.output(first, second)


PATTERNS: Final[dict[str, Callable[[Growth], None]]] = {
    build.__name__: build for build in (chain, ladder, fan, diamond, twice, twins, braid)
}
"""The patterns by name."""
