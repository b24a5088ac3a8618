"""Loading of the models that a server runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from interposer.backend import Options
from interposer.core.constants import private_copies
from interposer.core.errors import InterposerError, InvalidArgumentError, did_you_mean
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
from interposer.serving.sequences import Sequences
from interposer.serving.served import ServedModel
from interposer.serving.turns import InTurns, SharedGate, rate_limit
from interposer.session import Limits, Model, load
from interposer.session.fallback import used_options
from interposer.session.placement import Plan

__all__ = ["Loader", "served_model"]

_log: Final = logging.getLogger("interposer.serving")


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
        try:
            if _has_states(model) and not self._allows_states:
                raise InvalidArgumentError(
                    f"model {source.name!r} has states, which several workers do not share; use --workers 1"
                )
            served = served_model(source.name, source.version, model, source, self._runner(model, source))
            served.rate, served.cache = (
                rate_limit(source.settings.rate, source.settings.burst, self._workers),
                self._model_cache(model, source),
            )
            served.feedback = source.settings.feedback
            served.warm_up(source.settings.warmup)
        except BaseException:
            model.close()
            raise
        return served

    def _runner(self, model: Model, source: ModelSource) -> Runner:
        """Return what runs requests: one by one, in batches, or in their sequences."""
        settings = source.settings
        if not _has_states(model):
            single = self._in_turns(Plain(model), model, settings, settings.instances)
            return self._batcher(model, source, single) or single
        self._batcher(model, source)  # logs why there are no batches
        idle, most = self._sequences
        copies = [self._model(source, settings.shapes) for _ in range((settings.instances or 1) - 1)]
        return self._in_turns(Sequences(model, idle, most, copies), model, settings)

    def _in_turns(self, runner: Runner, model: Model, settings: ModelSettings, instances: int | None = None) -> InTurns:
        with self._lock:
            shared = self._gates.setdefault(id(model.runtime), SharedGate())
            if settings.priority is not None:
                shared.activate(model.runtime.workers.limit)
        return InTurns(runner, shared, instances, settings.priority, settings.priority_levels)

    def _model_cache(self, model: Model, source: ModelSource) -> ModelCache | None:
        if not source.settings.cache:
            return None
        reason = _why_not_cached(model)
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

    def _batcher(self, model: Model, source: ModelSource, single: InTurns | None = None) -> Batcher | None:
        """Return what runs requests in batches; None, with a warning that says why, if that is not possible."""
        settings = source.settings
        if settings.batch < 2:
            return None
        variants: dict[int, Model] = {}
        try:
            if _has_states(model):
                raise InvalidArgumentError("the model has states")
            with self._model(source, settings.shapes, fallback=False) as probe:
                largest = largest_integers(probe)
            for size in sizes_up_to(settings.batch):
                variants[size] = self._model(source, batch_shapes(model, size))
                reason = why_not_batched(model, variants[size], size, largest)
                if reason:
                    raise InvalidArgumentError(reason)
        except InterposerError as error:
            for variant in variants.values():
                variant.close()
            first_line = str(error).splitlines()[0]
            _log.warning("model %r runs without batches of %d: %s", source.name, settings.batch, first_line)
            return None
        alone, together = seconds_of_a_row(model, variants[settings.batch], settings.batch, largest)
        if not gains(alone, together):
            _log.warning(
                "model %r hardly gains from batches of %d: a row takes %.0f us alone and %.0f us in a batch, without "
                "its gathering; it may be faster without the setting batch",
                source.name, settings.batch, alone * 1e6, together * 1e6,
            )  # fmt: skip
        return Batcher(model, variants, settings.batch_delay, single)

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
) -> ServedModel:
    """Return a model as a server runs it.

    Args:
        name: the name of the model in requests.
        version: the number of the version, as text.
        model: the model.
        source: the file of the model; without it, the caller closes the model.
        runner: runs the model for requests; None runs each request alone, and in its sequence if the model has states.
        sequences: seconds after which an idle sequence is dropped, and the most sequences.

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
    )


def _why_not_cached(model: Model) -> str:
    """Return what a model has for which its results cannot be cached; an empty text if nothing."""
    try:
        graph = model.network.graph
    except InvalidArgumentError:
        return "layers that depend on the values of inputs"
    if _has_states(model):
        return "states"
    return "" if is_pure(graph) else "random layers"


def _has_states(model: Model) -> bool:
    try:
        return bool(model.state)
    except InvalidArgumentError:  # the layers are not known before the first run
        return False


def _labels(model: Model) -> tuple[str, ...]:
    """Return the list of labels in the model's file, or an empty tuple if it does not have exactly one."""
    try:
        lists = [content for name, content in model.metadata.files.items() if name.endswith(".txt")]
        return tuple(lists[0].decode("utf-8").splitlines()) if len(lists) == 1 else ()
    except (InterposerError, UnicodeDecodeError):
        return ()
