"""An editable form of a network with its inputs: a list of steps that refer to each other by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.ir.graph import Graph, Layer, Value, binding_id
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output

__all__ = ["Draft", "Place", "Step"]


class Place(NamedTuple):
    """A reference to a tensor of a `Draft`: the number of the step that produces it, and the index of the result."""

    step: int
    result: int = 0


@dataclass(frozen=True, eq=False)
class Step:
    """One layer of a `Draft`: an input with its array, a constant, or an operator on results of other steps.

    `quantizations` and `declared` describe the results, and `feed` is the array of an input.
    """

    op: Op
    name: str
    inputs: tuple[Place | None, ...] = ()
    quantizations: tuple[Quantization | None, ...] = ()
    declared: tuple[TensorInfo | None, ...] = ()
    feed: Array | None = None
    regions: tuple[Graph, ...] = ()

    @property
    def array(self) -> Array | None:
        """The array of an input or a constant."""
        return self.op.value if isinstance(self.op, Constant) else self.feed

    def with_array(self, array: Array, quantization: Quantization | None) -> Step:
        """Return the same input or constant with another array and quantization."""
        if isinstance(self.op, Constant):
            return replace(self, op=Constant(array, quantization), quantizations=(quantization,))
        info = self.declared[0]
        assert info is not None
        declared_info = TensorInfo(array.shape, info.dtype, quantization, None, info.element)
        return replace(self, feed=array, declared=(declared_info,), quantizations=(quantization,))

    @property
    def computes(self) -> bool:
        """True unless it is an input or a constant."""
        return not isinstance(self.op, Constant | Input)


@dataclass(frozen=True, eq=False)
class Draft:
    """A network and its inputs in a form that is easy to edit, while a failing network is reduced.

    `steps` are its layers in running order, and `outputs` refer to the results that are its outputs.
    """

    steps: tuple[Step, ...]
    outputs: tuple[Place, ...]
    name: str = field(default="network")

    @classmethod
    def of(cls, network: Network, feeds: Mapping[int, Array]) -> Draft:
        """Return the draft of a network with the arrays of its inputs, which are given by binding id."""
        layers = [layer for layer in network.graph.topological() if not isinstance(layer.op, Output)]
        places = {value: Place(number, value.index) for number, layer in enumerate(layers) for value in layer.outputs}
        steps = tuple(_step(layer, places, feeds) for layer in layers)
        return cls(steps, tuple(places[layer.values[0]] for layer in network.graph.outputs), network.name)

    def built(self) -> tuple[Network, dict[int, Array]]:
        """Return the network, and the arrays of its inputs by binding id; shapes are inferred again.

        Raises:
            InvalidArgumentError, InvalidNetworkError: the draft is no valid network.
        """
        network, feeds, values = Network(self.name), dict[int, Array](), dict[Place, Value]()
        for number, step in enumerate(self.steps):
            layer = self._added(network, step, values, feeds)
            values.update({Place(number, value.index): value for value in layer.outputs})
        for number, place in enumerate(self.outputs):
            network.add_output_layer(number, values[place])
        network.validate()
        return network, feeds

    @staticmethod
    def _added(network: Network, step: Step, values: Mapping[Place, Value], feeds: dict[int, Array]) -> Layer:
        if isinstance(step.op, Input):
            binding_id = len(feeds)
            assert step.feed is not None and step.declared[0] is not None
            feeds[binding_id] = step.feed
            return network.add_input_layer(binding_id, step.declared[0], name=step.name)
        operands = [None if place is None else values[place] for place in step.inputs]
        infos = _infos(step, operands)
        return network.add_layer(step.op, *operands, name=step.name, outputs=infos, regions=step.regions)

    def needed(self) -> Draft:
        """Return the draft without the steps that no output depends on."""
        needed = {place.step for place in self.outputs}
        for number in reversed(range(len(self.steps))):
            if number in needed:
                needed |= {place.step for place in self.steps[number].inputs if place is not None}
        numbers = {old_number: new_number for new_number, old_number in enumerate(sorted(needed))}
        with_new_places = _moving(lambda place: Place(numbers[place.step], place.result))
        steps = tuple(with_new_places(step) for number, step in enumerate(self.steps) if number in needed)
        outputs = (Place(numbers[place.step], place.result) for place in self.outputs)
        return replace(self, steps=steps, outputs=tuple(outputs))

    def with_step(self, number: int, step: Step) -> Draft:
        """Return the draft with the step at this number replaced."""
        return replace(self, steps=(*self.steps[:number], step, *self.steps[number + 1 :]))

    def with_place(self, old: Place, new: Place) -> Draft:
        """Return the draft in which all steps and outputs that used the result `old` use the result `new`."""
        redirect = _moving(lambda place: new if place == old else place)
        outputs = tuple(new if place == old else place for place in self.outputs)
        return replace(self, steps=tuple(map(redirect, self.steps)), outputs=outputs)

    @property
    def weight(self) -> tuple[float, ...]:
        """The complexity of the network as a tuple, in which earlier numbers matter more; an edit must make it smaller.

        It counts layers, outputs, operands, elements of inputs and constants, attributes, digits, and unusual
        quantizations.
        """
        arrays = [step.array for step in self.steps if step.array is not None]
        computing_steps = [step for step in self.steps if step.computes]
        return (
            len(computing_steps),
            len(self.outputs),
            sum(place is not None for step in computing_steps for place in step.inputs),
            sum(array.size for array in arrays),
            sum(len(step.op.changed_attributes()) for step in computing_steps),
            sum(map(_digits, arrays)),
            sum(
                _oddness(quantization)
                for step in self.steps
                for quantization in step.quantizations
                if quantization is not None
            ),
        )


def _digits(array: Array) -> float:
    """Return how complicated the numbers of an array are: small integers count least, and fractions most."""
    if array.dtype == object:
        return 0.0
    with np.errstate(all="ignore"):
        numbers = np.abs(array.astype(np.float64))
        digits = np.where(np.isfinite(numbers), np.log2(1 + numbers), 8)
        return float(np.sum(digits + 8 * (numbers != np.round(numbers)), where=np.isfinite(digits)))


def _oddness(quantization: Quantization) -> int:
    """Return how many scales of a quantization are not 1, plus how many zero points are not 0."""
    return sum(scale != 1 for scale in quantization.scales) + sum(map(bool, quantization.zero_points))


def _moving(move: Callable[[Place], Place]) -> Callable[[Step], Step]:
    return lambda step: replace(step, inputs=tuple(None if place is None else move(place) for place in step.inputs))


def _step(layer: Layer, places: Mapping[Value, Place], feeds: Mapping[int, Array]) -> Step:
    feed = feeds[binding_id(layer)] if isinstance(layer.op, Input) else None
    infos = tuple(value.known.with_constant(None) for value in layer.outputs)
    inputs = tuple(None if value is None else places[value] for value in layer.inputs)
    quantizations = tuple(info.quantization for info in infos)
    return Step(layer.op, layer.name, inputs, quantizations, infos, feed, layer.regions)


def _infos(step: Step, operands: Sequence[Value | None]) -> list[TensorInfo | None]:
    """Return the infos with which a step's results are declared when its layer is built, None for an inferred result.

    `operands` are the values of its operands in the new network.

    Raises:
        InvalidArgumentError: the operator does not accept these operands.
    """
    if step.regions or isinstance(step.op, Constant):
        return []
    operand_infos = [None if value is None else value.info for value in operands]
    if any(value is not None and info is None for value, info in zip(operands, operand_infos, strict=True)):
        raise InvalidArgumentError(f"an operand of {step.name!r} is not known")
    if errors := step.op.violations(*operand_infos):
        raise InvalidArgumentError("; ".join(errors))
    results = zip(step.op.infer_infos(*operand_infos), step.quantizations, step.declared, strict=True)
    return [info if inferred is None else _declared(inferred, q) for inferred, q, info in results]


def _declared(inferred_info: TensorInfo, quantization: Quantization | None) -> TensorInfo | None:
    return None if quantization is None else inferred_info.with_quantization(quantization).with_constant(None)
