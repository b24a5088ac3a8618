"""Loading of the models that a server runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from interposer.backend import Options
from interposer.core.constants import private_copies
from interposer.core.errors import InterposerError, InvalidArgumentError, did_you_mean
from interposer.core.types import TensorInfo
from interposer.ir.network import Network
from interposer.optimizer import OptimizerOptions
from interposer.runtime import CreationOptions, Runtime
from interposer.saved import SignedAs
from interposer.serving.batching import (
    Batcher,
    batch_shapes,
    gains,
    largest_integers,
    seconds_of_a_row,
    sizes_up_to,
    why_not_batched,
)
from interposer.serving.cache import Cache, ModelCache, is_pure
from interposer.serving.folder import ModelSettings, ModelSource
from interposer.serving.runs import Plain, Runner
from interposer.serving.sequence_batches import SequenceSettings, SlotRows, StateRows, with_states_as_inputs
from interposer.serving.sequences import Sequences
from interposer.serving.served import ServedModel
from interposer.serving.turns import InTurns, SharedGate, rate_limit
from interposer.session import Limits, Model, load
from interposer.session.fallback import used_options
from interposer.session.placement import Plan

__all__ = ["Loader", "served_model"]

_log: Final = logging.getLogger("interposer.serving")
_Opening: TypeAlias = Callable[[Any, "bool | None"], Model]
"""Loads a model for some shapes; the second argument is the argument `fallback` of `load`."""


class Loader:
    """Loads models from files; those with the same isolated backends share a runtime.

    Args:
        threads: how many threads the runs of a runtime may use; None for the default.
        limits: the most memory and arithmetic of a network.
        sequences: seconds after which an idle sequence is dropped, and the most sequences of a model.
        allows_states: whether models may have states.
        cache: the most bytes of results that are cached for models whose settings ask for it.
        workers: the number of processes that share the requests, and so the rates of models.
        creation: the other options of the runtimes.
        model_options: options of backends for all models, by backend id.
    """

    def __init__(
        self,
        threads: int | None = None,
        limits: Limits | None = None,
        sequences: tuple[float, int] = (60.0, 256),
        allows_states: bool = True,
        cache: int = 64 << 20,
        workers: int = 1,
        creation: CreationOptions | None = None,
        model_options: Mapping[str, Options] | None = None,
    ) -> None:
        self._creation, self._model_options = creation or CreationOptions(), model_options
        self._threads, self._limits, self._sequences = threads, limits, sequences
        self._allows_states = allows_states
        self._cache, self._workers = Cache(cache), workers
        self._gates: dict[int, SharedGate] = {}
        self._runtimes: dict[tuple[str, ...], Runtime] = {}
        self._lock: Final = threading.Lock()

    def __call__(self, source: ModelSource) -> ServedModel:
        """Load one version of a model, and run it once.

        Raises:
            InterposerError: it cannot be loaded.
        """
        source.check()
        model = self._model(source, source.settings.shapes)
        has_sequences = _has_states(model) or source.settings.sequences is not None
        try:
            if has_sequences and not self._allows_states:
                raise InvalidArgumentError(
                    f"model {source.name!r} has states, which several workers do not share; use --workers 1"
                )
            model, runner, sequences = self._runner(model, source)
            served = served_model(source.name, source.version, model, source, runner, settings=sequences)
            served.rate, served.cache = (
                rate_limit(source.settings.rate, source.settings.burst, self._workers),
                self._model_cache(model, source, has_sequences),
            )
            served.feedback = source.settings.feedback
            served.warm_up(source.settings.warmup)
        except BaseException:
            model.close()
            raise
        return served

    def _runner(self, model: Model, source: ModelSource) -> tuple[Model, Runner, SequenceSettings | None]:
        """Return what runs requests, one by one, in batches, or in their sequences.

        Also returns the model that it runs, which may replace the given one, and what it does with its sequences.
        """
        settings = source.settings
        opening = self._opening(source)
        if not _has_states(model) and settings.sequences is None:
            single_runner = self._in_turns(Plain(model), model, settings, settings.instances)
            return model, self._batcher(model, source, opening, single_runner) or single_runner, None
        sequences = settings.sequences or SequenceSettings()
        sequences.check(source.name, model.inputs, model.outputs)
        idle_seconds, max_sequences = self._sequences
        idle_seconds, max_sequences = sequences.idle or idle_seconds, sequences.most or max_sequences
        instances = settings.instances or 1
        if not _has_states(model):
            single_runner = self._in_turns(Plain(model), model, settings, settings.instances)
            batcher = self._batcher(model, source, opening, single_runner, is_for_sequences=True)
            return (
                model,
                self._rows(batcher or single_runner, source, sequences, model.inputs, idle_seconds, max_sequences),
                sequences,
            )
        if settings.batch > 1 or sequences.states or sequences.controls:
            rows = self._with_rows(model, source, sequences, idle_seconds, max_sequences)
            if rows is not None:
                return rows
        copies = [self._model(source, settings.shapes) for _ in range(instances - 1)]
        turns = self._in_turns(Plain(model), model, settings, instances)
        places = sequences.places(instances, max_sequences * instances)
        return model, Sequences(model, idle_seconds, max_sequences, copies, places, turns), sequences

    def _with_rows(
        self, model: Model, source: ModelSource, sequences: SequenceSettings, idle_seconds: float, max_sequences: int
    ) -> tuple[Model, Runner, SequenceSettings] | None:
        """Return a model in place of one with states, whose states are inputs and outputs, so that sequences are rows.

        Returns None, with a warning that says why, if they cannot be rows and need not be. Closes `model` otherwise.

        Raises:
            InterposerError: the settings need a model whose states are inputs, and there is none.
        """
        settings, is_needed = source.settings, bool(sequences.states or sequences.controls)
        lifted_model: Model | None = None
        try:
            if settings.plan is not None:
                raise InvalidArgumentError("it has a plan, which is for a network whose states are none of its inputs")
            network, states = with_states_as_inputs(model.network)
            opening = partial(self._of_network, network, source)
            lifted_model = opening(settings.shapes, None)
        except InterposerError as error:
            if is_needed:
                raise
            _warn_unbatched(source, error)
            return None
        single_runner = self._in_turns(Plain(lifted_model), lifted_model, settings, settings.instances)
        batcher = self._batcher(lifted_model, source, opening, single_runner, is_for_sequences=True)
        if batcher is None and not is_needed:
            lifted_model.close()
            return None
        model.close()
        all_states = replace(sequences, states={**states, **sequences.states})
        rows = self._rows(
            batcher or single_runner, source, all_states, lifted_model.inputs, idle_seconds, max_sequences
        )
        return lifted_model, rows, all_states

    def _rows(
        self,
        inner: Batcher | InTurns,
        source: ModelSource,
        sequences: SequenceSettings,
        infos: Mapping[str, TensorInfo],
        idle_seconds: float,
        max_sequences: int,
    ) -> StateRows:
        """Return what runs requests of sequences as rows of batches, or one by one if `inner` is no batcher."""
        settings, instances = source.settings, source.settings.instances or 1
        if sequences.strategy == "direct" and isinstance(inner, Batcher):
            batchers = [inner.with_slots(sequences.utilization) for _ in range(instances)]
            return SlotRows(batchers, sequences, infos, idle_seconds)
        slots = instances * max(1, settings.batch)
        return StateRows(
            inner, sequences, infos, idle_seconds, max_sequences, sequences.places(slots, max_sequences * instances)
        )

    def _in_turns(self, runner: Runner, model: Model, settings: ModelSettings, instances: int | None = None) -> InTurns:
        with self._lock:
            shared_gate = self._gates.setdefault(id(model.runtime), SharedGate())
            if settings.priority is not None:
                shared_gate.activate(model.runtime.workers.limit)
        return InTurns(runner, shared_gate, instances, settings.priority, settings.priority_levels)

    def _model_cache(self, model: Model, source: ModelSource, has_sequences: bool) -> ModelCache | None:
        if not source.settings.cache:
            return None
        reason = "states" if has_sequences else _why_not_cached(model)
        if reason:
            _log.warning("the results of model %r are not cached, because it has %s", source.name, reason)
            return None
        return self._cache.of_model()

    def _model(self, source: ModelSource, shapes: Any, fallback: bool | None = None) -> Model:
        settings = source.settings
        plan = None if settings.plan is None else Plan.load(settings.plan)
        model_options = used_options(self._model_options, settings.backends if plan is None else plan.backends)
        with private_copies():  # so that who changes a file does not change a loaded model, or end the process
            return self._loaded(source, shapes, fallback, plan, model_options)

    def _loaded(
        self, source: ModelSource, shapes: Any, fallback: bool | None, plan: Plan | None, model_options: Any
    ) -> Model:
        settings = source.settings
        return load(
            source.path,
            settings.backends,
            format=settings.format,
            options=OptimizerOptions(model_options=model_options) if model_options else None,
            runtime=self._runtime(settings.isolate),
            limits=self._limits,
            shapes=shapes,
            fallback=fallback,
            plan=plan,
            trusted_keys=_trusted_keys(source),
        )

    def _opening(self, source: ModelSource) -> _Opening:
        """Return a function that loads a model from its file for some shapes."""
        return lambda shapes, fallback: self._model(source, shapes, fallback)

    def _of_network(self, network: Network, source: ModelSource, shapes: Any, fallback: bool | None) -> Model:
        """Load a network that was made from a model, for some shapes."""
        settings = source.settings
        model_options = used_options(self._model_options, settings.backends)
        return load(
            network,
            settings.backends,
            options=OptimizerOptions(model_options=model_options) if model_options else None,
            runtime=self._runtime(settings.isolate),
            limits=self._limits,
            shapes=shapes,
            fallback=fallback,
        )

    def _batcher(
        self,
        model: Model,
        source: ModelSource,
        opening: _Opening,
        single_runner: InTurns,
        is_for_sequences: bool = False,
    ) -> Batcher | None:
        """Return what runs requests in batches; None, with a warning that says why, if that is not possible.

        That is so as well if batches save no time, unless the rows are those of sequences.
        """
        settings = source.settings
        if settings.batch < 2:
            return None
        variants: dict[int, Model] = {}
        try:
            batch_shapes(model, settings.batch)  # raises an error with the reason before anything is loaded
            with opening(settings.shapes, False) as probe:
                largest = largest_integers(probe)
            for size in sizes_up_to(settings.batch):
                variants[size] = opening(batch_shapes(model, size), None)
                reason = why_not_batched(model, variants[size], size, largest)
                if reason:
                    raise InvalidArgumentError(reason)
        except InterposerError as error:
            for variant in variants.values():
                variant.close()
            _warn_unbatched(source, error)
            return None
        seconds_alone, seconds_together = seconds_of_a_row(model, variants[settings.batch], settings.batch, largest)
        if not is_for_sequences and not gains(seconds_alone, seconds_together):
            _log.warning(
                "model %r runs without batches of %d, because it gains nothing from them: a row takes %.0f us alone, "
                "and %.0f us in a batch, without its gathering",
                source.name, settings.batch, seconds_alone * 1e6, seconds_together * 1e6,
            )  # fmt: skip
            for variant in variants.values():
                variant.close()
            return None
        return Batcher(model, variants, settings.batch_delay, single_runner)

    def _runtime(self, isolate: tuple[str, ...]) -> Runtime:
        with self._lock:
            if isolate not in self._runtimes:
                options = replace(self._creation, num_threads=self._threads, isolate=isolate or None)
                self._runtimes[isolate] = _checked(Runtime(options), isolate)
            return self._runtimes[isolate]

    def close(self) -> None:
        """Close the runtimes."""
        for runtime in self._runtimes.values():
            runtime.close()


def _trusted_keys(source: ModelSource) -> SignedAs | tuple[str, ...] | None:
    """Return the keys that must have signed a model, and what for; None if it need not be signed."""
    settings = source.settings
    if not settings.trusted_keys or not (settings.signed_names or settings.least_version is not None):
        return settings.trusted_keys or None
    has_number = Path(source.path).parent.name == source.version
    version = int(source.version) if has_number and settings.signed_names else None
    return SignedAs(settings.trusted_keys, source.name, settings.least_version, version)


def _warn_unbatched(source: ModelSource, error: InterposerError) -> None:
    first_line = str(error).splitlines()[0]
    _log.warning("model %r runs without batches of %d: %s", source.name, source.settings.batch, first_line)


def _checked(runtime: Runtime, isolate: Iterable[str]) -> Runtime:
    """Return a runtime whose registry knows the backends to isolate; raise `InvalidArgumentError` for other ids."""
    for name in isolate:
        if name not in runtime.registry:
            hint = did_you_mean(name, runtime.registry.ids)
            runtime.close()
            raise InvalidArgumentError(f"backend {name!r} is to be isolated, but it is unknown{hint}")
    return runtime


def served_model(
    name: str,
    version: str,
    model: Model,
    source: ModelSource | None = None,
    runner: Runner | None = None,
    sequences: tuple[float, int] = (60.0, 256),
    settings: SequenceSettings | None = None,
) -> ServedModel:
    """Return a model as a server runs it.

    Args:
        name: the name of the model in requests.
        version: the number of the version, as text.
        model: the model.
        source: the file of the model; without it, the caller closes the model.
        runner: runs the model for requests; None runs each request alone, and in its sequence if the model has states.
        sequences: seconds after which an idle sequence is dropped, and the most sequences.
        settings: the states and the inputs of the model that are for `runner`, and not for clients.

    Raises:
        InvalidArgumentError: the protocol cannot express an input or an output.
    """
    suffix = "" if source is None else Path(source.path).suffix[1:]
    return ServedModel(
        name,
        version,
        model,
        (Sequences(model, *sequences) if _has_states(model) else Plain(model)) if runner is None else runner,
        format=suffix or "network",
        labels=_labels(model),
        owned=source is not None,
        sequences=settings,
    )


def _why_not_cached(model: Model) -> str:
    """Return what a model has for which its results cannot be cached; an empty text if nothing."""
    try:
        graph = model.network.graph
    except InvalidArgumentError:
        return "layers that depend on the values of inputs"
    return "" if is_pure(graph) else "random layers"


def _has_states(model: Model) -> bool:
    try:
        return bool(model.state)
    except InvalidArgumentError:  # the layers are not known before the first run
        return False


def _labels(model: Model) -> tuple[str, ...]:
    """Return the list of labels in the model's file, or an empty tuple if it does not have exactly one."""
    try:
        label_contents = [content for name, content in model.metadata.files.items() if name.endswith(".txt")]
        return tuple(label_contents[0].decode("utf-8").splitlines()) if len(label_contents) == 1 else ()
    except (InterposerError, UnicodeDecodeError):
        return ()
