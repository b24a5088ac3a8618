"""The seat: the backends under test in one process, on which networks are divided, loaded and run in sequence."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from interposer.backend import Backend, Options
from interposer.core.errors import InterposerError, InvalidValueError, LimitExceededError
from interposer.core.records import dataclass
from interposer.core.room import Room, within
from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.ir.regions import places
from interposer.ops.control import Constant
from interposer.ops.quantization import DynamicFakeQuantization
from interposer.optimizer import OptimizerOptions, optimize, simplified
from interposer.plugins import BackendRegistry, DeviceSpec
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import Runtime
from interposer.testing.bad_values import decisive_inputs, with_bad_values
from interposer.testing.bench import MOST_BYTES, Loaded
from interposer.testing.census import Census
from interposer.testing.judge.reference import ValueArrays, all_values
from interposer.testing.judge.subject import Conditions
from interposer.testing.oracle import Oracle
from interposer.testing.tolerances import Tolerances, same
from interposer.testing.watched import Watched

__all__ = ["Ran", "Seat"]

Outputs = Mapping[int, Array]
BAD_RUNS: Final = 2
"""The most runs of a network with invalid values."""


@dataclass(frozen=True)
class Ran:
    """What happened when `Seat.run` ran a network.

    `outputs` are the results by binding id. `taken` counts the layers on backends under test; if it is 0, nothing was
    run. `stable` is False if a second run on the same inputs gave other results. `overwritten` names the read-only
    arrays that were written to, "inputs" or "constants"; it is empty if none were. `values` describes how a run with
    invalid values, such as indices out of range, ended other than it must; it is empty if all is well.
    """

    outputs: Outputs
    taken: int
    stable: bool = True
    overwritten: str = ""
    values: str = ""


class Seat:
    """Runs networks on the backends under test within this process, and computes what the results should be.

    Layers that none of the backends supports run on the reference kernels.

    Args:
        backends: the backends in order of preference; the reference kernels come after them.
        options: model options by backend id.
        tolerances: how much the results of one layer may differ from the reference, by data type.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        options: Mapping[str, Options] | None = None,
        tolerances: Tolerances | None = None,
    ) -> None:
        self.backends = tuple(backends)
        self.options = dict(options or {})
        self.tolerances = tolerances or Tolerances(steps=0)
        self.runtime = Runtime()
        self._reference = Oracle()
        self._values: deque[tuple[Network, Outputs, ValueArrays]] = deque(maxlen=2)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the backends under test, in order of preference."""
        return tuple(backend.id for backend in self.backends)

    @cached_property
    def is_deterministic(self) -> bool:
        """False if a backend says that its results may differ from run to run."""
        return all(backend.capabilities.get("Deterministic") is not False for backend in self.backends)

    @cached_property
    def _whole(self) -> DeviceSpec:
        return self._device(())

    def _device(self, held_back: Collection[str]) -> DeviceSpec:
        registry = BackendRegistry()
        for backend in self.backends:
            tried_backend = Watched(backend, Census(), held_back) if held_back else backend
            registry.register(backend.id, _always(tried_backend))
        if self._reference.id not in registry:
            registry.register(self._reference.id, _always(self._reference))
        return DeviceSpec(registry)

    def _optimizer_options(self, conditions: Conditions, ids: Sequence[str]) -> OptimizerOptions:
        model_options = {name: self.options[name] for name in ids if name in self.options}
        return OptimizerOptions(
            rewrite=conditions.rewrite, compute_in_integers=conditions.integers, model_options=model_options
        )

    def _arguments(self, network: Network, conditions: Conditions, ids: Sequence[str]) -> tuple[Any, ...]:
        device = self._device(conditions.held_back) if conditions.held_back else self._whole
        arguments = network, [*ids, self._reference.id], device
        options = self._optimizer_options(conditions, ids)
        if options.rewrite and _roundings(network) and _is_rounding_dropped(network, simplified(*arguments, options)):
            options = replace(options, rewrite=False)
        return *arguments, options

    def reference_values(self, network: Network, feeds: Outputs) -> ValueArrays:
        """Return every value of a network as the reference computes it; those of the last two networks are cached.

        Raises:
            InterposerError: the reference cannot compute a layer on these arrays.
        """
        for cached_network, cached_feeds, values in self._values:
            if cached_network is network and cached_feeds is feeds:
                return values
        values = all_values(network.graph, feeds)
        self._values.append((network, feeds, values))
        return values

    def simplified(self, network: Network, conditions: Conditions, ids: Sequence[str]) -> Network:
        """Return the network after the optimizer's own rewrites, for the backends `ids` and under these conditions."""
        return simplified(*self._arguments(network, conditions, ids))

    def run(
        self, network: Network, feeds: Outputs, conditions: Conditions, ids: Sequence[str], *, always: bool = False
    ) -> Ran:
        """Divide a network among backends and the reference kernels, and run it on its inputs twice.

        Before that, it runs on other inputs, so that no backend can rely on fresh memory, and on a few with invalid
        values if inputs of the network are indices or sizes.

        Args:
            network: the network to divide.
            feeds: the arrays of its inputs by binding id.
            conditions: settings of the optimizer.
            ids: the backends to use, which may be fewer than those under test.
            always: True to run the network even if none of these backends supports a layer.

        Raises:
            InterposerError: an error of the optimizer, the runtime or a backend.
        """
        optimized: OptimizedNetwork = optimize(*self._arguments(network, conditions, ids))
        num_taken = sum(placement.backend in ids for placement in optimized.placements)
        if not (num_taken or always):
            return Ran({}, 0)
        constants = [(array, array.copy()) for array in _constants(network)]
        loaded_network = Loaded(self.runtime, optimized)
        try:
            run_result = self._run(loaded_network, network, feeds, num_taken)
        finally:
            loaded_network.unload()
        return run_result if all(same(*pair) for pair in constants) else replace(run_result, overwritten="constants")

    def _run(self, loaded_network: Loaded, network: Network, feeds: Outputs, num_taken: int) -> Ran:
        inputs = {key: array.copy() for key, array in feeds.items()}  # which a backend may spoil
        self._run_on_others(loaded_network, feeds)
        values = self._run_on_bad_values(loaded_network, network, feeds)
        outputs, second_outputs = loaded_network.run(inputs), loaded_network.run(inputs)
        is_stable = not self.is_deterministic or all(same(second_outputs[key], array) for key, array in outputs.items())
        are_intact = all(same(feeds[key], array) for key, array in inputs.items())
        return Ran(outputs, num_taken, is_stable, "" if are_intact else "inputs", values)

    def _run_on_others(self, loaded_network: Loaded, feeds: Outputs) -> None:
        """Run the network once on the elements of `feeds` in another order, so that its memory is no longer fresh.

        An error is ignored, as the operators may not accept these values.
        """
        try:
            loaded_network.run({key: np.roll(array, 1) for key, array in feeds.items()})
        except InterposerError:
            return

    def _run_on_bad_values(self, loaded_network: Loaded, network: Network, feeds: Outputs) -> str:
        """Run the network on a few inputs with invalid values; return what is wrong with the errors, or ""."""
        names = decisive_inputs(network.graph)
        changed_feeds = list(with_bad_values(feeds, names, np.random.default_rng(0)))
        for bad_feeds in changed_feeds[:: max(1, len(changed_feeds) // BAD_RUNS)][:BAD_RUNS]:
            is_refused = _is_refused(network, bad_feeds)
            try:
                loaded_network.run(bad_feeds)
            except (InvalidValueError, LimitExceededError) as error:
                if not is_refused:
                    return f"values are refused that the reference accepts: {error}"
            except InterposerError as error:
                if is_refused:
                    return f"an invalid value is reported as a failure: {error}"
        return ""


def _is_refused(network: Network, feeds: Outputs) -> bool:
    """Return True if the reference refuses values of these inputs."""
    try:
        with within(Room(MOST_BYTES)):
            all_values(network.graph, feeds)
    except InterposerError:
        return True
    return False


def _constants(network: Network) -> list[Array]:
    """Return the arrays of a network's constants, to check that a backend does not write to them."""
    return [layer.op.value for layer in network.graph if isinstance(layer.op, Constant)]


def _roundings(network: Network) -> int:
    return sum(isinstance(place.layer.op, DynamicFakeQuantization) for place in places(network.graph))


def _is_rounding_dropped(network: Network, rewritten: Network) -> bool:
    """Return True if rewrites removed rounding of activations, which the reference does.

    They do so if a backend does not support it. The results then differ by a step of 8 bits, which is no error.
    """
    return _roundings(rewritten) < _roundings(network)


def _always(backend: Backend) -> Callable[[], Backend]:
    return lambda: backend
