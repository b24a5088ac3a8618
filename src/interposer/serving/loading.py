"""Loading of the models that a server runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from interposer.backend import Options
from interposer.core.errors import InterposerError, InvalidArgumentError, did_you_mean
from interposer.optimizer import OptimizerOptions
from interposer.runtime import CreationOptions, Runtime
from interposer.serving.batching import Batcher, batch_shapes, largest_integers, sizes_up_to, why_not_batched
from interposer.serving.folder import ModelSource
from interposer.serving.runs import Plain, Runner
from interposer.serving.sequences import Sequences
from interposer.serving.served import ServedModel
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
        creation: the other options of the runtimes.
        model_options: options of backends for all models, by backend id.
    """

    def __init__(
        self,
        threads: int | None = None,
        limits: Limits | None = None,
        sequences: tuple[float, int] = (60.0, 256),
        allows_states: bool = True,
        creation: CreationOptions | None = None,
        model_options: Mapping[str, Options] | None = None,
    ) -> None:
        self._creation, self._model_options = creation or CreationOptions(), model_options
        self._threads, self._limits, self._sequences = threads, limits, sequences
        self._allows_states = allows_states
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
            runner = self._batcher(model, source)
            served = served_model(source.name, source.version, model, source, runner, self._sequences)
            served.warm_up()
        except BaseException:
            model.close()
            raise
        return served

    def _model(self, source: ModelSource, shapes: Any, fallback: bool | None = None) -> Model:
        settings = source.settings
        plan = None if settings.plan is None else Plan.load(settings.plan)
        used = used_options(self._model_options, settings.backends if plan is None else plan.backends)
        return load(
            source.path,
            settings.backends,
            format=settings.format,
            options=OptimizerOptions(model_options=used) if used else None,
            runtime=self._runtime(settings.isolate),
            limits=self._limits,
            shapes=shapes,
            fallback=fallback,
            plan=plan,
            trusted_keys=settings.trusted_keys or None,
        )

    def _batcher(self, model: Model, source: ModelSource) -> Batcher | None:
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
        return Batcher(model, variants, settings.batch_delay)

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
