"""`random_network`: the network with a given number, among those of a seed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final

from interposer.core.errors import InvalidArgumentError, as_int, did_you_mean, expect
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Value
from interposer.ir.network import Network
from interposer.ops import Constant, Input, Reshape
from interposer.testing.drawing import Draw
from interposer.testing.random_networks import (  # noqa: F401 - the growers register themselves
    attention,
    containers,
    convolution,
    elementwise,
    from_samples,
    matrix,
    movement,
    normalization,
    patterns,
    pooling,
    quantized,
    recurrent,
    reduction,
)
from interposer.testing.random_networks.growers import GROWERS, Grower
from interposer.testing.random_networks.growth import EIGHT_BITS, Growth, Skipped

__all__ = ["KINDS", "RandomNetwork", "check_favoured", "check_kind", "random_network"]

KINDS: Final = ("float", "quantized")
"""The kinds of networks: mostly floats, or mostly quantized integers."""
_TRIES: Final = 4
"""The maximum number of growers that are tried for each operator of a network."""


@dataclass(frozen=True, eq=False)
class RandomNetwork:
    """A random network with the arrays to run it on, by binding id.

    The network is valid, the shapes of all values are known, and the reference kernels can run it.
    """

    seed: int
    number: int
    kind: str
    network: Network
    feeds: Mapping[int, Array]

    @property
    def id(self) -> str:
        """The kind, the seed and the number, such as ``"float-7-123"``."""
        return f"{self.kind}-{self.seed}-{self.number}"


def random_network(
    seed: int, number: int, *, kind: str | None = None, favoured: Collection[type[Op]] = (), max_layers: int = 12
) -> RandomNetwork:
    """Return the network with this number among those of a seed; the same arguments always give the same network.

    Args:
        seed: the seed of the sequence of networks; any integer.
        number: the number of the network, from 0.
        kind: "float" or "quantized"; by default even numbers are float, and odd ones quantized.
        favoured: operators that occur more often than others; their order does not matter.
        max_layers: the maximum number of operators, including those that convert values for other operators.

    Raises:
        InvalidArgumentError: the kind is unknown, `favoured` has something other than operators, `seed` or `number` is
            not an integer, the number is negative, or `max_layers` is below 1.
    """
    seed, number = as_int(seed, "seed must be an integer"), as_int(number, "number must be an integer")
    max_layers = as_int(max_layers, "max_layers must be an integer")
    kind = KINDS[number % 2] if kind is None else kind
    check_kind(kind)
    check_favoured(favoured)
    if number < 0 or max_layers < 1:
        raise InvalidArgumentError(f"number is {number} and max_layers {max_layers}; expected at least 0 and 1")
    names = sorted(op.op_name() for op in favoured)
    draw = Draw(seed, number, kind, *names, max_layers)
    network = Network(f"{kind}-{seed}-{number}")
    growth = Growth(draw, kind, network, frozenset(favoured))
    _grow(growth, max_layers)
    _add_outputs(growth)
    network.validate()
    return RandomNetwork(seed, number, kind, network, growth.feeds)


def check_kind(kind: str) -> None:
    """Raise `InvalidArgumentError` unless `kind` is a kind of random networks."""
    expect(kind, str, "the kind of random networks must be a text")
    if kind not in KINDS:
        raise InvalidArgumentError(f"unknown kind of random networks {kind!r}{did_you_mean(kind, KINDS)}")


def check_favoured(favoured: Collection[type[Op]]) -> None:
    """Raise `InvalidArgumentError` unless all of these are operator classes."""
    expect(favoured, Collection, "favoured must be a list of operators")
    candidates: Iterable[object] = favoured
    for op in candidates:
        if not (isinstance(op, type) and issubclass(op, Op)):
            raise InvalidArgumentError(f"favoured must hold classes of operators, such as ops.Softmax, not {op!r}")


def _grow(growth: Growth, max_layers: int) -> None:
    draw = growth.draw
    for _ in range(draw.weighted((1, 2, 3), (6, 3, 1))):
        _add_input(growth)
    growers = _growers()
    weights = [grower.weight_for(growth.kind, growth.favoured) for grower in growers]
    wanted_layers = draw.integer(1, max_layers)
    for _ in range(_TRIES * (wanted_layers + 2)):
        _tried(growth, draw.weighted(growers, weights), max_layers)
        if _operators(growth) >= wanted_layers:
            return
    if not _operators(growth):
        value = growth.take()
        growth.add(Reshape(tuple(value.known.shape)), value)


@cache
def _growers() -> tuple[Grower, ...]:
    """Return all growers in an order that does not depend on imports."""
    return tuple(sorted(GROWERS, key=lambda grower: grower.name))


def _operators(growth: Growth) -> int:
    return sum(layer.op.executable for layer in growth.network)


def _add_input(growth: Growth) -> Value:
    draw = growth.draw
    shape = (
        growth.image_shape()
        if draw.chance(1, 2)
        else growth.shape(draw.weighted((0, 1, 2, 3, 4, 5), (1, 3, 6, 6, 2, 2)))
    )
    if growth.kind == "quantized" and draw.chance(9, 10):
        dtype = growth.stored_type if draw.chance(4, 5) else draw.one_of(EIGHT_BITS)
        return growth.input(TensorInfo(shape, dtype, growth.quantization(dtype, draw.one_of((1.0, 3.0, 6.0)))))
    dtype = growth.real_type if draw.chance(9, 10) else draw.one_of((DataType.INT32, DataType.INT64, DataType.BOOL))
    return growth.input(TensorInfo(shape, dtype))


def _tried(growth: Growth, grower: Grower, max_operators: int) -> None:
    """Let a grower add its layers after a random value.

    If it raises `Skipped`, or the network then has more than `max_operators` operators, what it added is removed again.
    """
    num_layers, num_values, operations_left = len(growth.network), len(growth.values), growth.operations_left
    try:
        grower.function(growth, growth.take())
        if _operators(growth) > max_operators:
            raise Skipped
    except (Skipped, InvalidArgumentError):
        growth.undo(num_layers, num_values)
        growth.operations_left = operations_left


def _add_outputs(growth: Growth) -> None:
    """Make most unread values outputs, and also some values that layers read."""
    draw = growth.draw
    unread_values = [value for value in growth.values if not value.uses]
    outputs = [value for value in unread_values if draw.chance(11, 12) and (_is_computed(value) or draw.chance(1, 6))]
    outputs += [value for value in growth.values if value.uses and draw.chance(1, 10) and _is_computed(value)]
    outputs = outputs or [value for value in growth.values if _is_computed(value)][-1:]
    for binding_id, index in enumerate(draw.order(len(outputs))):
        growth.network.add_output_layer(binding_id, outputs[index])


def _is_computed(value: Value) -> bool:
    return not isinstance(value.producer.op, Input | Constant)
