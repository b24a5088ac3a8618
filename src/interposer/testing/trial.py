"""`Trial`: one sample on the backend under test, queried, loaded, run three times and unloaded, with a recording."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from functools import cached_property
from itertools import islice
from typing import Any, Final

import numpy as np

from interposer.backend import Support
from interposer.core.errors import InterposerError, InvalidValueError, LimitExceededError, UnsupportedLayerError
from interposer.core.room import Room, within
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer, binding_id
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.value_checks import decisive_operands
from interposer.testing.bad_values import with_bad_values
from interposer.testing.bench import MOST_BYTES, Bench, Loaded, can_be_shaped, view_of
from interposer.testing.floating import mode_problems, reset_mode
from interposer.testing.oracle import reference_outputs
from interposer.testing.recording import Recording
from interposer.testing.sample import Sample
from interposer.testing.tolerances import same

__all__ = ["Outputs", "Trial", "run_recorded"]

Outputs = dict[int, Array]
BAD_RUNS: Final = 4
"""The most runs of a sample with values that its operator may refuse."""


class Trial:
    """What happened when a sample was tried on the backend under test; the checks of samples examine it.

    `reasons` are the reasons of a refusal, or name a missing capability that the sample needs. `failure` describes the
    error that prevented a sample from running, or is empty. `first_outputs` and `repeated_outputs` are the results of
    two runs on the same inputs. In between, `other_feeds` were run, whose results are `other_outputs` (None if those
    inputs leave nothing to compute). `value_problems` has the errors of runs with values that the operator may refuse,
    such as indices out of range. The last run used input and output arrays with unusual strides. `untouched` is
    False if the arrays of inputs or constants were written to.
    """

    def __init__(self, bench: Bench, sample: Sample) -> None:
        self.bench, self.sample = bench, sample
        self.recording = Recording()
        self.support_problems: list[str] = []
        self.reasons: tuple[str, ...] = ()
        self.failure = ""
        self.first_outputs: Outputs = {}
        self.repeated_outputs: Outputs = {}
        self.other_outputs: Outputs | None = None
        self.value_problems: list[str] = []
        self.untouched = True
        self._ask()
        if self.ran:
            self._try()

    @cached_property
    def _built(self) -> tuple[Network, Outputs]:
        return self.sample.network()

    @property
    def network(self) -> Network:
        """The network that consists of the sample's layer; built on first use."""
        return self._built[0]

    @property
    def feeds(self) -> Outputs:
        """The input arrays of the first and the last run, by binding id."""
        return self._built[1]

    @cached_property
    def other_feeds(self) -> Outputs:
        """The input arrays of the run in between, by binding id."""
        return _shuffled(self.feeds)

    @property
    def layer(self) -> Layer:
        """The sample's layer."""
        return self.network.graph.layer("layer")

    @property
    def ran(self) -> bool:
        """True if the sample ran, so that results are available."""
        return not (self.reasons or self.failure)

    def expected(self) -> Outputs:
        """Return the expected results: those of the worked example, or of the reference kernel."""
        if self.sample.expected is not None:
            return dict(enumerate(self.sample.expected))
        return reference_outputs(self.network.graph, self.feeds)

    def expected_of_others(self) -> Outputs:
        """Return the results of the reference kernel on `other_feeds`."""
        return reference_outputs(self.network.graph, self.other_feeds)

    def evidence(self, feeds: Outputs) -> list[tuple[Array, TensorInfo]]:
        """Return the input arrays of the layer with their infos, for hints at the cause of a wrong result.

        `feeds` are the inputs of that run by binding id.
        """
        evidence = []
        for value in self.layer.values:
            array = value.constant if value.is_constant else feeds.get(binding_id(value.producer))
            if array is not None and value.known.is_tensor:
                evidence.append((array, value.known))
        return evidence

    # --- support queries ----------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        op_reasons = self.bench.refusals.of(self.sample, self.bench)
        if op_reasons is not None and not self.bench.refusals.is_first(self.sample):
            self._refused(op_reasons)
            return
        missing_capability = self._lacking()
        if missing_capability:
            self.bench.verdicts[self.sample] = False
            self._refused(op_reasons or (missing_capability,))
            return
        try:
            verdicts = self._verdicts(view_of(self.network.graph))
            refusals = self.bench.refusals
            if len(verdicts) != 1 or verdicts[0] or refusals.is_queried_twice(self.sample, tuple(verdicts[0].reasons)):
                self._ask_again(verdicts)
        except Exception as error:
            self.failure = f"asking raised {type(error).__name__}: {error}"
            self.support_problems.append(self.failure)
            return
        self.bench.verdicts[self.sample] = bool(verdicts) and all(verdicts)
        if verdicts and not verdicts[0]:
            self._refused(verdicts[0].reasons)

    def _lacking(self) -> str:
        """Return which capability the sample needs and the backend lacks; empty if none is missing."""
        capabilities = self.bench.backend.capabilities
        if not (can_be_shaped(self.layer) or capabilities.has("DynamicShapes")):
            return "its shape depends on data, for which the backend lacks the capability DynamicShapes"
        infos = (*self.layer.input_infos, *self.layer.output_infos)
        if any(info and not info.is_tensor for info in infos) and not capabilities.has("Sequences"):
            return "it takes or gives what is no tensor, for which the backend lacks the capability Sequences"
        return ""

    def _ask_again(self, first: list[Support]) -> None:
        second, of_two = (self._verdicts(view_of(self.network.graph)), self._verdicts(_doubled(self.sample)))
        if first != second:
            self.support_problems.append(f"asked twice it answered {_said(first)}, then {_said(second)}")
        if len(of_two) != 2:
            self.support_problems.append(f"asked for a view of 2 layers it gave {len(of_two)} verdicts")

    def _verdicts(self, view: SubgraphView) -> list[Support]:
        verdicts: Any = self.bench.query(view)
        if not isinstance(verdicts, list) or not all(isinstance(verdict, Support) for verdict in verdicts):
            raise TypeError(f"query gave {verdicts!r}; expected a list of Support")
        return list(verdicts)

    def _refused(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        if not any(text.strip() and text not in Support.no().reasons for text in self.reasons):
            self.support_problems.append("it refuses without saying why")

    # --- running ------------------------------------------------------------------------------------------------------

    def _try(self) -> None:
        try:
            optimized = self.bench.optimize(self.network, self.recording)
        except UnsupportedLayerError as error:
            given_back = [refusal for refusal in error.refusals if refusal.stage == "optimize"]
            if given_back:
                self._refused(
                    [
                        f"gave it back: {text}"
                        for refusal_given_back in given_back
                        for text in refusal_given_back.reasons
                    ]
                )
            else:
                self.failure = f"it said yes when it was asked, but to the optimizer no: {error}"
            return
        except InterposerError as error:
            self.failure = f"it said yes, but then optimizing failed: {error}"
            return
        try:
            with self.bench.loaded(optimized) as loaded_network:
                self.recording.mark("loaded")
                self._run(loaded_network)
                self.recording.mark("unload")
        except InterposerError as error:
            self.failure = f"it said yes, but then: {error}"
        self.recording.mark("unloaded")

    def _run(self, loaded_network: Loaded) -> None:
        feeds_before = {key: deepcopy(array) for key, array in self.feeds.items()}
        constants = [(array, array.copy()) for array in _constants(self.network)]
        self.recording.spoil_unmanaged()
        self.first_outputs = self._run_once(loaded_network, self.feeds)
        self._run_on_others(loaded_network)
        self._run_on_bad_values(loaded_network)
        targets = {key: _strided(array) for key, array in self.first_outputs.items() if self._is_fixed(key)}
        self.repeated_outputs = self._run_once(
            loaded_network, {key: _strided(array) for key, array in self.feeds.items()}, targets
        )
        arrays_and_originals = [(self.feeds[key], array) for key, array in feeds_before.items()] + constants
        self.untouched = all(same(current, original) for current, original in arrays_and_originals)

    def _run_on_others(self, loaded_network: Loaded) -> None:
        """Run the loaded network on `other_feeds`, and store the results in `other_outputs`.

        An error counts only if the reference can compute these inputs.
        """
        try:
            self.other_outputs = self._run_once(loaded_network, self.other_feeds)
        except InterposerError:
            if _can_be_computed(self.network, self.other_feeds):
                raise

    def _run_on_bad_values(self, loaded_network: Loaded) -> None:
        """Run the loaded network on a few inputs with values that the operator may refuse."""
        names = [index for index in decisive_operands(self.sample.op, len(self.sample.inputs)) if index in self.feeds]
        generator = np.random.default_rng(0)
        for feeds in islice(with_bad_values(self.feeds, names, generator), BAD_RUNS):
            refusal = _refusal_of_the_reference(self.network, feeds)
            try:
                self._run_once(loaded_network, feeds)
            except (InvalidValueError, LimitExceededError) as error:
                if refusal is None:
                    self.value_problems.append(f"it refuses values that the reference accepts: {error}")
            except InterposerError as error:
                if refusal is not None:
                    self.value_problems.append(f"it reports a value that it cannot use as its own failure: {error}")

    def _is_fixed(self, key: int) -> bool:
        info = self.layer.outputs[key].known
        return info.is_tensor and info.is_concrete

    def _run_once(self, loaded_network: Loaded, feeds: Outputs, outputs: Outputs | None = None) -> Outputs:
        return run_recorded(loaded_network, self.recording, feeds, outputs)


def run_recorded(loaded: Loaded, recording: Recording, feeds: Outputs, outputs: Outputs | None = None) -> Outputs:
    """Run a network once and return its outputs by binding id; `feeds` and `outputs` are those of `Loaded.run`.

    The start and the end of the run are logged in `recording`. An error is recorded if the run changed the
    floating-point mode of the thread.
    """
    recording.mark("run")
    try:
        return loaded.run(feeds, outputs)
    finally:
        recording.mark("ran")
        errors = mode_problems()
        if errors:
            reset_mode()
            deviations = " and ".join(errors)
            recording.problems.append(
                f"the run left the floating-point mode of the calling thread changed: {deviations}"
            )


def _said(verdicts: list[Support]) -> str:
    return "; ".join("yes" if verdict else f"no ({', '.join(verdict.reasons)})" for verdict in verdicts)


def _doubled(sample: Sample) -> SubgraphView:
    """Return a view with the sample's layer and a copy of it, to query the backend about several layers."""
    network, _ = sample.network()
    layer = network.graph.layer("layer")
    network.add_layer(layer.op, *layer.inputs, name="layer again", outputs=sample.outputs)
    return view_of(network.graph)


def _constants(network: Network) -> list[Array]:
    return [
        layer.output.constant for layer in network if layer.kind == "Constant" and layer.output.constant is not None
    ]


def _shuffled(feeds: Outputs) -> Outputs:
    """Return the inputs with their rows in another order; the elements of a row stay together, as they may be a box."""
    return {key: _turned(array) for key, array in feeds.items()}


def _can_be_computed(network: Network, feeds: Outputs) -> bool:
    try:
        reference_outputs(network.graph, feeds)
    except InterposerError:
        return False
    return True


def _refusal_of_the_reference(network: Network, feeds: Outputs) -> InterposerError | None:
    """Return the error with which the reference refuses these inputs, or None if it accepts them."""
    try:
        with within(Room(MOST_BYTES)):
            reference_outputs(network.graph, feeds)
    except InterposerError as error:
        return error
    return None


def _turned(array: Array) -> Array:
    axes = range(array.ndim - 1) if array.ndim > 1 else range(array.ndim)
    long_axes = [axis for axis in axes if array.shape[axis] > 1]
    return np.roll(array, 1, long_axes[0]) if long_axes else array


def _strided(array: Array) -> Array:
    """Return the same array with unusual strides: every second element of a larger array, with the last axis first."""
    if array.ndim == 0 or any(isinstance(element, np.ndarray) for element in array.flat):
        return array
    doubled_array = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype, order="F")
    doubled_array[..., ::2] = array
    return doubled_array[..., ::2]
