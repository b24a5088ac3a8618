"""`Repository`: the models of a server, which can be loaded, replaced and unloaded while requests run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from interposer.core.errors import ConfigError, InterposerError, did_you_mean
from interposer.serving.ensemble_files import functions_of
from interposer.serving.ensemble_runs import ServedEnsemble, StepRequest, is_ensemble
from interposer.serving.folder import ModelSource
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.served import ServedModel
from interposer.serving.watching import Fingerprint, fingerprints

__all__ = ["Repository", "by_name", "usable"]

_log: Final = logging.getLogger("interposer.serving")


class Repository:
    """The models of a server by name and version. Used from the thread of the event loop only.

    Args:
        sources: called for the list of models that can be loaded.
        load: loads one of them; called in another thread.
        served: models that are loaded already.
        workers: the number of processes that share the rates of ensembles.

    Attributes:
        request: runs the steps of ensembles; None for a repository that no server uses.
    """

    def __init__(
        self,
        sources: Callable[[], Iterable[ModelSource]] = lambda: (),
        load: Callable[[ModelSource], ServedModel] | None = None,
        served: Iterable[ServedModel] = (),
        workers: int = 1,
    ) -> None:
        self._sources, self._load = sources, load
        self._workers = workers
        self.request: StepRequest | None = None
        self._models: dict[str, dict[str, ServedModel]] = {}
        self._reasons: dict[tuple[str, str], str] = {}
        self._broken_names: set[str] = set()
        self._is_loading = False
        self._seen: dict[str, Fingerprint] = {}
        self._changed: dict[str, Fingerprint] = {}
        self._lock, self._listing = asyncio.Lock(), asyncio.Lock()
        self._next_list: asyncio.Future[list[ModelSource]] | None = None
        for model in served:
            self._models.setdefault(model.name, {})[model.version] = model

    def is_ready(self, strict: bool = False) -> bool:
        """Return True if loading has ended and a model can run; with `strict`, if all models can.

        A repository without models is ready, unless they could not be loaded.
        """
        if self._is_loading:
            return False
        states = [model.readiness.is_ready for model in self.served]
        states += [False for name in self._broken_names if name not in self._models]
        return all(states) if strict or not states else any(states)

    @property
    def served(self) -> list[ServedModel]:
        """All versions of all models that are loaded."""
        return [model for versions in self._models.values() for model in versions.values()]

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model that are ready, in ascending order."""
        return sorted(self._models.get(name, {}), key=_number)

    def find(self, name: str, version: str = "") -> ServedModel:
        """Return a model that is ready; without a version, the one with the highest number.

        Raises:
            ServingError: no model of this name and version is ready.
        """
        versions = self._models.get(name)
        if not versions:
            raise self._absent(name)
        model = versions.get(version or (max(versions, key=_number) if len(versions) > 1 else next(iter(versions))))
        if model is None:
            ready = ", ".join(self.versions(name))
            raise ServingError(
                Status.NOT_FOUND, f"model {name!r} has no version {version[:40]!r} that is ready (ready: {ready})"
            )
        return model

    def _absent(self, name: str) -> ServingError:
        if self._is_loading:
            return ServingError(Status.UNAVAILABLE, "the server still loads its models", retry_after=1)
        return self._not_loaded(name)

    def _not_loaded(self, name: str) -> ServingError:
        if any(known_name == name for known_name, _ in self._reasons):
            return ServingError(Status.UNAVAILABLE, f"model {name!r} is not loaded")
        return ServingError(Status.NOT_FOUND, f"unknown model {name[:200]!r}{did_you_mean(name, self._models)}")

    async def index(self, only_ready: bool = False) -> list[dict[str, str]]:
        """Return name, version, state and reason of each version of each model that is known."""
        sources = [] if only_ready else await self._listed()
        state_of_version = {(model.name, model.version): _state(model) for model in self.served}
        if only_ready:
            state_of_version = {key: state for key, state in state_of_version.items() if state[0] == "READY"}
        if not only_ready:
            state_of_version = {
                key: ("UNAVAILABLE", reason) for key, reason in self._reasons.items()
            } | state_of_version
            for source in sources:
                state_of_version.setdefault((source.name, source.version), ("UNAVAILABLE", "not loaded"))
        return [
            {"name": name, "version": version, "state": state, "reason": reason}
            for (name, version), (state, reason) in sorted(
                state_of_version.items(), key=lambda row: (row[0][0], _number(row[0][1]))
            )
        ]

    async def load_all(self, *, needs_all: bool = True, needs_one: bool = True) -> None:
        """Load every model, and log the errors of those that cannot be loaded.

        Args:
            needs_all: raise the error of the first model that cannot be loaded.
            needs_one: raise an error if no model could be loaded: that of the only model, which is not logged, or a
                `ConfigError` if there are several.

        Raises:
            InterposerError: see the arguments, or the list of models cannot be read.
        """
        self._is_loading = True
        models = by_name(await asyncio.to_thread(self._sources_list))
        if needs_all:
            for versions in models.values():
                usable(versions)
        failures = await self._load_each(models, raises=needs_all or (needs_one and len(models) == 1))
        if failures and needs_one and not self._models:
            raise ConfigError(
                f"none of the {len(failures)} models can be loaded; the log has the reasons"
            ) from failures[0]
        self._is_loading = False

    async def _load_each(self, models: dict[str, list[ModelSource]], raises: bool) -> list[Exception]:
        """Load every model. Errors are logged and returned; with `raises`, the first one is raised instead."""
        failures: list[Exception] = []
        for name in self._in_order(models, [source for versions in models.values() for source in versions]):
            try:
                await self._replace(name)
            except Exception as error:
                if raises:
                    raise
                failures.append(error)
                _log_failure(name, error)
        return failures

    async def look_for_changes(self) -> None:
        """Load the models whose files are new or have changed, and unload those whose files are gone.

        A change counts when the files are the same as at the look before, so that no half-written file is loaded. The
        versions of a model that were loaded stay if the new files cannot be loaded. A model that a client has unloaded
        stays unloaded until its files change.
        """
        try:
            current_fingerprints = fingerprints(await asyncio.to_thread(self._sources_list))
        except Exception as error:  # polling goes on, whatever a file or a store does
            _log.warning("the models cannot be listed: %s: %s", type(error).__name__, error)
            return
        previous_fingerprints, self._changed = self._changed, {}
        for name in [*current_fingerprints, *(name for name in self._seen if name not in current_fingerprints)]:
            fingerprint = current_fingerprints.get(name, ())
            if fingerprint == self._seen.get(name):
                continue
            if previous_fingerprints.get(name) == fingerprint:
                await self._follow(name, fingerprint)
            else:
                self._changed[name] = fingerprint

    async def _follow(self, name: str, fingerprint: Fingerprint) -> None:
        """Load a model again that has changed, or unload it if it has no files."""
        self._seen[name] = fingerprint
        try:
            if fingerprint:
                await self._replace(name)
                _log.warning("model %r was loaded, because its files have changed", name)
                await self._retry_ensembles()
                return
            del self._seen[name]
            self._broken_names.discard(name)
            if name in self._models:
                await self.unload(name)
                _log.warning("model %r was unloaded, because its files are gone", name)
        except Exception as error:
            _log_failure(name, error)

    async def load(self, name: str) -> None:
        """Load a model, or load it again from its file.

        Requests that run keep the model that they began with. A version that has a problem, such as one without a
        file, is left out if another one can be loaded. If loading a version fails, the versions that were loaded before
        stay.

        Raises:
            ServingError: the folder has no such model, or it cannot be loaded.
        """
        try:
            await self._replace(name)
            await self._retry_ensembles()
        except ServingError:
            raise
        except (InterposerError, OSError) as error:
            _log_failure(name, error)
            reason = "the log of the server has the details"
            raise ServingError(
                Status.INVALID, f"model {name!r} cannot be loaded ({type(error).__name__}); {reason}"
            ) from error

    async def _replace(self, name: str) -> None:
        async with self._lock:
            all_sources = await asyncio.to_thread(self._sources_list)
            sources = [source for source in all_sources if source.name == name]
            if self._load is None or not sources:
                raise ServingError(Status.NOT_FOUND, f"the server has no file for a model {name[:200]!r}")
            self._seen |= await asyncio.to_thread(fingerprints, sources)
            new_models: dict[str, ServedModel] = {}
            try:
                source = sources[0]
                self._depth(name, all_sources)
                for source in usable(sources):
                    new_models[source.version] = await self._loaded(source)
            except BaseException as error:
                is_public = isinstance(error, ServingError)
                self._reasons[name, source.version] = str(error) if is_public else type(error).__name__
                self._broken_names.add(name)
                for model in new_models.values():
                    model.retire()
                raise
            old_models = self._models.get(name, {})
            self._models[name] = new_models
            self._broken_names.discard(name)
            for model in new_models.values():
                model.readiness.watch()
            self._reasons = {key: reason for key, reason in self._reasons.items() if key[0] != name} | {
                (name, source.version): ConfigError.__name__ for source in sources if source.problem
            }
            for model in old_models.values():
                model.retire()

    async def _loaded(self, source: ModelSource) -> ServedModel:
        """Load one version of a model, or check an ensemble against the models that are loaded."""
        assert self._load is not None
        ensemble = source.settings.ensemble
        if ensemble is None:
            return await asyncio.to_thread(self._load, source)
        source.check()
        if self.request is None:
            raise ConfigError(f"the ensemble {source.name!r} needs a server that runs its steps")
        functions = await asyncio.to_thread(functions_of, source)
        try:
            return ServedEnsemble(source, ensemble, self._member, self.request, self._workers, functions)
        except ServingError as error:
            if functions is not None:
                functions.close()
            raise ServingError(Status.INVALID, f"ensemble {source.name!r}: {error}") from None

    def _member(self, name: str, version: str) -> ServedModel:
        """Return a model that is a step of an ensemble; raise `ServingError` if it is not loaded."""
        if name not in self._models:
            raise self._not_loaded(name)
        return self.find(name, version)

    def _members(self, name: str, sources: Iterable[ModelSource]) -> set[str]:
        """Return the names of the models of all steps of an ensemble, as it is loaded and as its files say."""
        ensembles = [source.settings.ensemble for source in sources if source.name == name]
        ensembles += [model.ensemble for model in self._models.get(name, {}).values() if is_ensemble(model)]
        return {step.model for ensemble in ensembles if ensemble is not None for step in ensemble.steps if step.model}

    def _depth(self, name: str, sources: Sequence[ModelSource], path: tuple[str, ...] = ()) -> int:
        """Return 0 for a model with a file, and one more than the largest depth of its steps for an ensemble.

        Raises:
            ServingError: an ensemble is a step of itself, or of one of its steps.
        """
        if name in path:
            cycle = " has the step ".join(map(repr, (*path[path.index(name) :], name)))
            raise ServingError(Status.INVALID, f"the ensembles form a cycle: {cycle}")
        members = sorted(self._members(name, sources))
        return 1 + max((self._depth(member, sources, (*path, name)) for member in members), default=-1)

    def _in_order(self, names: Iterable[str], sources: Sequence[ModelSource]) -> list[str]:
        """Return names of models so that those of the steps of an ensemble come before it."""

        def depth(name: str) -> int:
            try:
                return self._depth(name, sources)
            except ServingError:  # which loading reports
                return 0

        return sorted(names, key=depth)

    async def _retry_ensembles(self) -> None:
        """Load the ensembles that could not be loaded, as a model of their steps may have come."""
        sources = await asyncio.to_thread(self._known_sources)
        broken_names = {
            source.name for source in sources if source.settings.ensemble and source.name in self._broken_names
        }
        for name in self._in_order(broken_names, sources):
            try:
                await self._replace(name)
                _log.warning("model %r was loaded, as the models of its steps are there", name)
            except Exception as error:
                _log.debug("model %r still cannot be loaded: %s", name, error)

    async def _listed(self) -> list[ModelSource]:
        """List the models that can be loaded in another thread, once for all who ask before it begins."""
        if self._next_list is None:
            self._next_list = asyncio.ensure_future(self._listed_next())
        return await asyncio.shield(self._next_list)

    async def _listed_next(self) -> list[ModelSource]:
        async with self._listing:
            self._next_list = None  # who asks from now on gets a list that begins later
            return await asyncio.to_thread(self._known_sources)

    def _known_sources(self) -> list[ModelSource]:
        """Return the models that can be loaded; an empty list, with a warning, if their folder cannot be read."""
        try:
            return self._sources_list()
        except (InterposerError, OSError) as error:
            _log.warning("the models cannot be listed: %s", error)
            return []

    def _sources_list(self) -> list[ModelSource]:
        return list(self._sources())

    async def unload(self, name: str) -> None:
        """Unload all versions of a model; requests that run end normally.

        Raises:
            ServingError: no model of this name is loaded.
        """
        async with self._lock:
            versions = self._models.pop(name, None)
            if versions is None:
                raise self._absent(name)
            for version, model in versions.items():
                self._reasons[name, version] = "unloaded"
                self._broken_names.discard(name)
                model.retire()

    def close(self) -> None:
        """Close all models that no request uses; the others are closed when their requests end."""
        for model in self.served:
            model.retire()
        self._models = {}

    def describe(self) -> list[dict[str, Any]]:
        """Return what the status page shows of each model that is loaded."""
        return [
            {
                "name": model.name, "version": model.version, "platform": model.platform,
                "layers": model.layers_by_backend(), "note": model.runner.describe(),
                "in_flight": model.statistics.all_in_flight(), "stats": model.statistics.to_dict(),
                "percentiles": model.statistics.percentiles(50, 90, 99), **model.tensors(),
            }
            for model in self.served
        ]  # fmt: skip


def _log_failure(name: str, error: Exception) -> None:
    is_unexpected = not isinstance(error, InterposerError | OSError)
    _log.error("model %r cannot be loaded: %s", name, error, exc_info=error if is_unexpected else None)


def by_name(sources: Iterable[ModelSource]) -> dict[str, list[ModelSource]]:
    """Return the versions of each model by its name."""
    models: dict[str, list[ModelSource]] = {}
    for source in sources:
        models.setdefault(source.name, []).append(source)
    return models


def usable(versions: Sequence[ModelSource]) -> list[ModelSource]:
    """Return the versions of a model that can be loaded, and log the problems of the others.

    Raises:
        ConfigError: there is none.
    """
    usable = [version for version in versions if not version.problem]
    if not usable:
        versions[0].check()
    for version in versions:
        if version.problem:
            _log.warning("version %s of model %r is left out: %s", version.version, version.name, version.problem)
    return usable


def _state(model: ServedModel) -> tuple[str, str]:
    """Return the state of a model that is loaded, and its reason."""
    return ("READY", "") if model.readiness.is_ready else ("UNAVAILABLE", model.readiness.reason)


def _number(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdecimal() else (-1, version)
