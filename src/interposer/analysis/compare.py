"""`compare`: run two backends layer by layer on the same inputs, and find where and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.analysis.divergence import Divergence, Tolerance
from interposer.analysis.random_inputs import random_inputs
from interposer.backend import Options
from interposer.backend.ids import listed_ids
from interposer.core.errors import InterposerError, InvalidArgumentError, UnsupportedLayerError
from interposer.core.records import dataclass
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ir.states import states_of
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import Constant, Input, Output
from interposer.optimizer import OptimizerOptions, simplified
from interposer.quantization.statistics import SignalToNoise, bounds, finite_or_none, real_values
from interposer.runtime import Runtime
from interposer.session import Limits, Model, default_runtime, load
from interposer.session.fallback import used_options
from interposer.session.placement.cuts import part_network

__all__ = ["Comparison", "Culprit", "Cut", "LayerComparison", "compare"]

REFERENCE: Final = "CpuRef"
_LISTED: Final = 8
_HINT: Final = (
    "\nnothing can be compared; if a layer stands for a whole network, give the model from which it was made instead"
)
Progress: TypeAlias = Callable[[str, int, int], None]
Arrays: TypeAlias = "dict[Value, Any]"


@dataclass(frozen=True)
class LayerComparison:
    """The difference between two backends for one layer.

    `local` is the difference when the second backend runs the layer on the inputs of the first one. `accumulated` is
    the difference when it runs the layer on its own earlier results. `refused` has the reason for each backend that
    does not run the layer; `local` is then None, and `taken_from` is the backend that gave the result instead. `depth`
    is the number of layers on the longest path to the layer, including itself: an accumulated difference may have as
    many tolerances.

    `low` and `high` are the bounds of the first result on the first backend, and `snr` is the signal-to-noise ratio in
    dB of the second backend's accumulated result, both of float values, as in the report of a quantization. `snr` is
    infinite if the results are equal. These are None for results that are neither floats nor quantized.
    """

    name: str
    kind: str
    info: str
    depth: int
    local: Divergence | None = None
    accumulated: Divergence | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    taken_from: str = ""
    low: float | None = None
    high: float | None = None
    snr: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-compatible data; an infinite ratio is None."""
        return asdict(self) | {"snr": finite_or_none(self.snr)}


@dataclass(frozen=True)
class Culprit:
    """What was found to cause the difference between two backends.

    `kind` is "layer" (one layer, on the same inputs), "fusion" (layers that are right one by one, but wrong when
    `backend` compiles them together) or "accumulation" (the whole network, but no smaller part of it).
    """

    kind: str
    backend: str
    layers: tuple[str, ...]
    divergence: Divergence

    def to_dict(self) -> dict[str, Any]:
        """Return the culprit as JSON-compatible data."""
        return asdict(self)

    def __str__(self) -> str:
        if self.kind == "layer":
            return f"layer {self.layers[0]!r} by itself: {self.divergence}"
        if self.kind == "fusion":
            names = f"{len(self.layers)} layers from {self.layers[0]!r} to {self.layers[-1]!r}"
            return f"{names}, right one by one, when {self.backend} compiles them together: {self.divergence}"
        return f"no part alone; small differences that add up over {len(self.layers)} layers: {self.divergence}"


@dataclass(frozen=True)
class Cut:
    """The smallest part of a network that reproduces a difference, as a separate network with input arrays."""

    network: Network
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: the layers in running order, and the outputs of the whole compiled network.

    `culprit` is the cause of a difference beyond the tolerance, or None. `cut` is the part of the network that
    reproduces it.
    """

    network: str
    backends: tuple[str, str]
    layers: tuple[LayerComparison, ...]
    outputs: Mapping[str, Divergence]
    culprit: Culprit | None
    tolerance: Tolerance
    cut: Cut | None = field(default=None, repr=False)

    @property
    def agrees(self) -> bool:
        """True if no difference exceeds the tolerance."""
        return self.culprit is None

    @property
    def first(self) -> LayerComparison | None:
        """The first layer whose local difference exceeds the tolerance, else the first whose accumulated one does.

        Or None.
        """
        for layer in self.layers:
            if layer.local is not None and self.tolerance.exceeded(layer.local):
                return layer
        return next((layer for layer in self.layers if self.tolerance.exceeded(layer.accumulated, layer.depth)), None)

    @property
    def largest(self) -> LayerComparison | None:
        """The layer with the largest local difference; None if no layer differs."""
        differing_layers = [layer for layer in self.layers if layer.local is not None and layer.local.differs]
        return max(differing_layers, key=lambda layer: self.tolerance.share(layer.local), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-compatible data."""
        first, largest = self.first, self.largest
        return {
            "network": self.network,
            "backends": list(self.backends),
            "agrees": self.agrees,
            "tolerance": asdict(self.tolerance),
            "first": None if first is None else first.name,
            "largest": None if largest is None else largest.name,
            "culprit": None if self.culprit is None else self.culprit.to_dict(),
            "outputs": {name: asdict(divergence) for name, divergence in self.outputs.items()},
            "layers": [layer.to_dict() for layer in self.layers],
        }


def _silent(step: str, finished: int, total: int) -> None:
    """Do nothing; the default of `progress`, whose arguments are the current step, and the finished and all steps."""


def compare(
    network: Network,
    backends: Sequence[str],
    inputs: Mapping[str, Any] | None = None,
    *,
    tolerance: Tolerance | None = None,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    progress: Progress = _silent,
    model_options: Mapping[str, Options] | None = None,
) -> Comparison:
    """Run two backends layer by layer, and the second one also on the whole network, and locate their differences.

    Every layer runs as a separate network. The first backend runs it on its own earlier results. The second backend
    runs it on the same inputs, which shows the error of the layer, and on its own earlier results, which shows the
    accumulated error. Then both run the whole network. If its results are wrong, but no layer is, a bisection finds the
    shortest run of layers that is wrong when it is compiled together. The reference backend runs layers that one of the
    backends refuses; if it refuses them too, the other one of the two runs them.

    Args:
        network: any network; its input shapes must be known unless `inputs` are passed.
        backends: two ids, the trusted backend first.
        inputs: arrays by the names of inputs; None means random arrays, generated from `seed`.
        tolerance: the allowed differences; None means `Tolerance()`.
        progress: a function that is called with the current step, the number of finished steps, and their total.
        model_options: options of the backends, by backend id.

    Raises:
        InvalidArgumentError: there are not two backends, or an input shape is unknown and no inputs are passed.
        InterposerError: a backend is missing (see `optimize`), a run of the first backend failed, or every layer runs
            on one of the backends only.

    Example:
        A backend that computes a sum wrongly, beside the reference:

        >>> import interposer as ip
        >>> from interposer.analysis.compare import compare
        >>> class Wrong(ip.Backend):
        ...     id = "Wrong"
        ...     kernels = ip.backend.KernelTable()
        >>> @Wrong.kernels(ip.ops.Addition)
        ... def add(op, a, b, *, out):
        ...     out[...] = a
        >>> runtime, network = ip.Runtime(), ip.Network("twice")
        >>> runtime.registry.register("Wrong", Wrong)
        >>> x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
        >>> y = network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
        >>> comparison = compare(network, ["CpuRef", "Wrong"], runtime=runtime)
        >>> comparison.agrees, comparison.first.name
        (False, 'sum')
    """
    ids = listed_ids(backends)
    if len(ids) != 2 or ids[0] == ids[1]:
        raise InvalidArgumentError(f"compare takes two different backends, not {', '.join(ids) or 'none'}")
    runtime = default_runtime() if runtime is None else runtime
    for backend in ids:
        runtime.registry.get(backend)
    (limits or Limits()).check(network.graph)
    feeds = random_inputs(network, seed) if inputs is None else inputs
    simplified_network = simplified(network, ids, runtime.device_spec)
    comparer = _Comparer(
        simplified_network, (ids[0], ids[1]), runtime, tolerance or Tolerance(), progress, model_options
    )
    return comparer.compare(_checked(network, feeds, runtime))


def _checked(network: Network, feeds: Mapping[str, Any], runtime: Runtime) -> dict[str, Any]:
    """Return the input arrays `feeds`, by name, converted to the types that the network declares.

    This runs a network on `runtime` that only returns its inputs. Raises `BindingError` if shapes do not fit.
    """
    infos = {layer.name: layer.output.known for layer in network.graph.inputs}
    identity = Network("inputs")
    inputs = [identity.add_input_layer(number, info, name=name) for number, (name, info) in enumerate(infos.items())]
    for number, input_layer in enumerate(inputs):
        identity.add_output_layer(number, input_layer)
    with load(identity, [REFERENCE], runtime=runtime) as model:
        return dict(zip(infos, model.run(feeds), strict=True))


class _Comparer:
    def __init__(
        self,
        network: Network,
        backends: tuple[str, str],
        runtime: Runtime,
        tolerance: Tolerance,
        progress: Progress,
        model_options: Mapping[str, Options] | None,
    ) -> None:
        self.model_options = model_options
        self.network, self.backends, self.runtime = network, backends, runtime
        self.tolerance, self.progress = tolerance, progress
        self.graph = network.graph
        self.running = [
            layer for layer in self.graph.topological() if not isinstance(layer.op, Input | Output | Constant)
        ]
        self.depths = _depths(self.running)
        self.refused: dict[tuple[str, str], str] = {}
        self.first_results: Arrays = {}
        self.second_results: Arrays = {}

    def compare(self, feeds: Mapping[str, Any]) -> Comparison:
        """Run the comparison on the inputs `feeds`, by name: all layers one by one, then the whole network."""
        for layer in self.graph.inputs:
            self.first_results[layer.output] = self.second_results[layer.output] = feeds[layer.name]
        for state in states_of(self.graph):
            self.first_results[state.source.output] = self.second_results[state.source.output] = state.initial
        layers = []
        for number, layer in enumerate(self.running):
            self.progress("layer by layer", number, len(self.running))
            layers.append(self._layer(layer))
        self._check_compared(layers)
        self.progress("as a whole", len(self.running), len(self.running))
        outputs = self._outputs()
        culprit = self._culprit(layers, outputs)
        cut = None if culprit is None else self._cut(culprit)
        return Comparison(self.network.name, self.backends, tuple(layers), outputs, culprit, self.tolerance, cut)

    # --- layer by layer -----------------------------------------------------------------------------------------------

    def _layer(self, layer: Layer) -> LayerComparison:
        first, second = self.backends
        part = part_network(self.graph, [layer], layer.name)
        layer_comparison = LayerComparison(
            layer.name, layer.kind, str(layer.outputs[0].known) if layer.outputs else "", self.depths[layer]
        )
        expected = self._run(first, part, layer, self.first_results)
        taken_from, results = ("", expected) if expected else self._substitute(second, part, layer, self.first_results)
        self.first_results.update(results)
        local = self._run(second, part, layer, self.first_results)
        if local is None:
            taken_from, results = self._substitute(first, part, layer, self.second_results)
            self.second_results.update(results)
        else:
            self.second_results.update(
                local if self._same_inputs(layer) else self._run(second, part, layer, self.second_results) or local
            )
        refusals = {
            backend: self.refused[backend, layer.name]
            for backend in self.backends
            if (backend, layer.name) in self.refused
        }
        return replace(
            layer_comparison,
            local=None if refusals else self._difference(layer, local or {}),
            accumulated=self._difference(layer, self.second_results),
            refused=refusals,
            taken_from=taken_from,
            **self._statistics(layer),
        )

    def _statistics(self, layer: Layer) -> dict[str, Any]:
        """Return the range and the signal-to-noise ratio of the first result; nothing if it has no float values."""
        first_value = next(iter(_leaving(self.graph, [layer])), None)
        expected, actual = (
            (None, None)
            if first_value is None
            else (self.first_results[first_value], self.second_results.get(first_value))
        )
        if first_value is None or not _has_float_values(first_value, expected, actual):
            return {}
        ratio, expected_values = SignalToNoise(), real_values(np.asarray(expected), first_value.known)
        ratio.add(real_values(np.asarray(actual), first_value.known), expected_values)
        low, high = bounds(expected_values)
        return {"low": low, "high": high, "snr": ratio.decibels}

    def _same_inputs(self, layer: Layer) -> bool:
        return all(
            self.first_results[value] is self.second_results[value] for value in layer.values if not value.is_constant
        )

    def _run(self, backend: str, part: Network, layer: Layer, arrays: Arrays) -> Arrays | None:
        """Run one layer on a backend, and return its results by value.

        `part` is the network that consists of this layer only, and `arrays` has the tensors that it reads. Returns None
        if the backend refuses the layer or fails; the reason is then added to `refused`.
        """
        try:
            return self._results(backend, part, layer, arrays)
        except UnsupportedLayerError as error:
            reasons = [reason for refusal in error.refusals for reason in refusal.reasons]
            self.refused[backend, layer.name] = "; ".join(reasons) or _first_line(error)
            return None
        except InterposerError as error:
            self.refused[backend, layer.name] = f"it failed: {_first_line(error)}"
            return None

    def _substitute(self, other_backend: str, part: Network, layer: Layer, arrays: Arrays) -> tuple[str, Arrays]:
        """Run a layer that one backend refuses, and return which backend ran it and its results by value.

        This is the reference backend, or `other_backend`, the other one of the two, if the reference backend refuses
        it.
        """
        try:
            return REFERENCE, self._results(REFERENCE, part, layer, arrays)
        except UnsupportedLayerError:
            if other_backend == REFERENCE:
                raise
            return other_backend, self._results(other_backend, part, layer, arrays)

    def _results(self, backend: str, part: Network, layer: Layer, arrays: Arrays) -> Arrays:
        with self._loaded(part, backend) as model:
            results = model.run(self._feeds([layer], arrays))
        return dict(zip(_leaving(self.graph, [layer]), results, strict=True))

    def _check_compared(self, layers: Sequence[LayerComparison]) -> None:
        """Raise `InterposerError` if every layer runs on one of the backends only, and not on the reference backend."""
        if not layers or any(layer.taken_from in {"", REFERENCE} for layer in layers):
            return
        lines = [
            f"\n  - {layer.name!r} ({layer.kind}): {backend} says: {reason}"
            for layer in layers
            for backend, reason in layer.refused.items()
        ]
        raise InterposerError(f"no layer runs on both {' and '.join(self.backends)}:{''.join(lines[:_LISTED])}{_HINT}")

    def _loaded(self, part: Network, *backends: str) -> Model:
        options = OptimizerOptions(rewrite=False, model_options=used_options(self.model_options, backends))
        return load(part, backends, runtime=self.runtime, options=options, fallback=False)

    def _feeds(self, layers: Sequence[Layer], arrays: Arrays) -> list[Any]:
        return [arrays[value] for value in _entering(self.graph, layers)]

    def _difference(self, layer: Layer, arrays: Arrays) -> Divergence | None:
        arrays_to_compare = [
            (arrays[value], self.first_results[value], value.known)
            for value in _leaving(self.graph, [layer])
            if value in arrays
        ]
        return self.tolerance.worst(Divergence.between(*pair) for pair in arrays_to_compare)

    # --- as a whole ---------------------------------------------------------------------------------------------------

    def _outputs(self) -> dict[str, Divergence]:
        """Return the differences of the outputs of the whole network, as the second backend compiles it."""
        results = self._together(self.backends[1], self.running) if self.running else {}
        outputs = {}
        for layer in self.graph.outputs:
            [value] = layer.values
            if value in results:
                outputs[layer.name] = Divergence.between(results[value], self.first_results[value], value.known)
        return outputs

    def _together(self, backend: str, layers: Sequence[Layer]) -> Arrays:
        """Return the results of layers that are compiled together, run on the first backend's values.

        The reference backend runs the layers that the backend refuses, then the other one of the two.
        """
        part = part_network(self.graph, layers, "part")
        ids = list(dict.fromkeys([backend, REFERENCE, *self.backends]))
        try:
            with self._loaded(part, *ids) as model:
                results = model.run(self._feeds(layers, self.first_results))
        except InterposerError as error:
            raise InterposerError(f"{backend} does not run the layers as a whole: {error}") from error
        return dict(zip(_leaving(self.graph, layers), results, strict=True))

    def _whole_differs(self, backend: str, layers: Sequence[Layer]) -> Divergence | None:
        """Return the largest difference beyond the tolerance of layers that are compiled together.

        None if none exceeds it.

        The layers run on the values of the first backend.
        """
        results = self._together(backend, layers)
        depths = _depths(layers)
        divergences_and_values = [
            (Divergence.between(array, self.first_results[value], value.known), value)
            for value, array in results.items()
        ]
        return self.tolerance.worst(
            divergence
            for divergence, value in divergences_and_values
            if self.tolerance.exceeded(divergence, depths[value.producer])
        )

    # --- whose error it is --------------------------------------------------------------------------------------------

    def _culprit(self, layers: Sequence[LayerComparison], outputs: Mapping[str, Divergence]) -> Culprit | None:
        second = self.backends[1]
        for comparison in layers:
            if comparison.local is not None and self.tolerance.exceeded(comparison.local):
                return Culprit("layer", second, (comparison.name,), comparison.local)
        for backend in reversed(self.backends):
            fusion = self._fusion(backend)
            if fusion is not None:
                return fusion
        names = tuple(layer.name for layer in self.running)
        accumulated = [
            layer for layer in layers if layer.accumulated and self.tolerance.exceeded(layer.accumulated, layer.depth)
        ]
        if accumulated and accumulated[0].accumulated is not None:
            return Culprit(
                "accumulation", second, names[: names.index(accumulated[0].name) + 1], accumulated[0].accumulated
            )
        return None

    def _fusion(self, backend: str) -> Culprit | None:
        """Return the shortest run of layers that a backend computes wrongly when it compiles them together."""
        count = len(self.running)
        if count < 2 or self._whole_differs(backend, self.running) is None:
            return None
        self.progress(f"looking for what {backend} gets wrong", 0, 1)
        end = _least(1, count, lambda stop: self._whole_differs(backend, self.running[:stop]) is not None)
        length = _least(1, end, lambda size: self._whole_differs(backend, self.running[end - size : end]) is not None)
        layers = self.running[end - length : end]
        divergence = self._whole_differs(backend, layers)
        if divergence is None:  # it comes and goes with what is around it
            layers = self.running[:end]
            divergence = self._whole_differs(backend, layers)
        if divergence is None:
            return None
        return Culprit("fusion", backend, tuple(layer.name for layer in layers), divergence)

    def _cut(self, culprit: Culprit) -> Cut:
        names = set(culprit.layers)
        layers = [layer for layer in self.running if layer.name in names]
        part = part_network(self.graph, layers, "part")
        entering = dict(zip(part.graph.inputs, _entering(self.graph, layers), strict=True))
        return Cut(part, {layer.name: self.first_results[value] for layer, value in entering.items()})


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest integer from `low` to `high` for which `holds` is True, by bisection.

    `holds` must be False below some integer and True from it on, and True for `high`.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _entering(graph: Any, layers: Sequence[Layer]) -> Sequence[Value]:
    return SubgraphView(graph, layers).inputs


def _leaving(graph: Any, layers: Sequence[Layer]) -> Sequence[Value]:
    return SubgraphView(graph, layers).outputs


def _depths(layers: Sequence[Layer]) -> dict[Layer, int]:
    """Return for each layer the number of the given layers on the longest path to it."""
    depths: dict[Layer, int] = {}
    for layer in layers:
        depths[layer] = 1 + max((depths.get(value.producer, 0) for value in layer.values), default=0)
    return depths


def _has_float_values(value: Value, expected: Any, actual: Any) -> bool:
    """Return True if two results of a value are float or quantized tensors of the same shape."""
    if value.known.quantization is None and not value.known.dtype.is_float:
        return False
    return isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray) and expected.shape == actual.shape


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
