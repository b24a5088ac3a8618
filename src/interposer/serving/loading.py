"""Loading of the models that a server runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from interposer.core.errors import InterposerError
from interposer.runtime import CreationOptions, Runtime
from interposer.serving.folder import ModelSource
from interposer.serving.runs import Plain, Runner
from interposer.serving.served import ServedModel
from interposer.session import Limits, Model, load
from interposer.session.placement import Plan

__all__ = ["Loader", "served_model"]


class Loader:
    """Loads models from files; those with the same isolated backends share a runtime.

    Args:
        threads: how many threads the runs of a runtime may use; None for the default.
        limits: the most memory and arithmetic of a network.
    """

    def __init__(self, threads: int | None = None, limits: Limits | None = None) -> None:
        self._threads, self._limits = threads, limits
        self._runtimes: dict[tuple[str, ...], Runtime] = {}
        self._lock: Final = threading.Lock()

    def __call__(self, source: ModelSource) -> ServedModel:
        """Load one version of a model, and run it once.

        Raises:
            InterposerError: it cannot be loaded.
        """
        settings = source.settings
        model = load(
            source.path,
            settings.backends,
            format=settings.format,
            runtime=self._runtime(settings.isolate),
            limits=self._limits,
            shapes=settings.shapes,
            plan=None if settings.plan is None else Plan.load(settings.plan),
        )
        try:
            served = served_model(source.name, source.version, model, source)
            served.warm_up()
        except BaseException:
            model.close()
            raise
        return served

    def _runtime(self, isolate: tuple[str, ...]) -> Runtime:
        with self._lock:
            if isolate not in self._runtimes:
                options = CreationOptions(num_threads=self._threads, isolate=isolate or None)
                self._runtimes[isolate] = Runtime(options)
            return self._runtimes[isolate]

    def close(self) -> None:
        """Close the runtimes."""
        for runtime in self._runtimes.values():
            runtime.close()


def served_model(name: str, version: str, model: Model, source: ModelSource | None = None) -> ServedModel:
    """Return a model as a server runs it; without `source`, the caller closes the model.

    Raises:
        InvalidArgumentError: the protocol cannot express an input or an output.
    """
    suffix = "" if source is None else Path(source.path).suffix[1:]
    return ServedModel(
        name,
        version,
        model,
        _runner(model, source),
        format=suffix or "network",
        labels=_labels(model),
        owned=source is not None,
    )


def _runner(model: Model, source: ModelSource | None) -> Runner:
    return Plain(model)


def _labels(model: Model) -> tuple[str, ...]:
    """Return the list of labels in the model's file, or an empty tuple if it does not have exactly one."""
    try:
        lists = [content for name, content in model.metadata.files.items() if name.endswith(".txt")]
        return tuple(lists[0].decode("utf-8").splitlines()) if len(lists) == 1 else ()
    except (InterposerError, UnicodeDecodeError):
        return ()
