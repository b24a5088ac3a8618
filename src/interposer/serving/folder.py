"""Folders of models: their files, versions and settings, in Triton's form and in a flat one."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from interposer.core.errors import ConfigError, InterposerError, did_you_mean
from interposer.core.records import dataclass
from interposer.file_formats import process_formats
from interposer.serving.ensemble import Ensemble, ensemble_of_table
from interposer.serving.sequence_batches import SequenceSettings, sequences_of_table
from interposer.serving.settings_text import table_of_settings, text_of_settings
from interposer.serving.triton_config import TritonConfig, read_config
from interposer.serving.warming import WarmUp, warm_ups_of

__all__ = ["ModelSettings", "ModelSource", "found_in", "source_of_file"]

_log: Final = logging.getLogger("interposer.serving")


def _suffixes() -> set[str]:
    """Return the suffixes of the files of a folder that are models; other files are ignored."""
    return {suffix for _, format in process_formats() for suffix in format.served_suffixes}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How a model is loaded and run.

    Args:
        backends: ids of backends in order of preference; None for all.
        plan: the path of a plan file; None without a plan.
        shapes: shapes of inputs by name.
        isolate: ids of backends that run in child processes.
        format: the format of the file; None detects it.
        batch: the most rows that run together; 1 runs each request alone.
        batch_delay: seconds that a request waits for others to run with.
        rate: the most requests per second; None for no limit.
        burst: how many requests may come at once although `rate` is lower; None for the requests of one second.
        instances: how many runs may be active at the same time; None for the number of threads. A model with states
            is loaded as often.
        priority: from 1, whose requests run first, to 9; None for 5.
        priority_levels: how many priorities the requests of the model may have among each other.
        warmup: what the model runs before it is ready; empty for one run with random inputs.
        cache: whether results are cached for requests with the same inputs.
        feedback: in streams of answers, the output that each of these inputs gets in the next run.
        ensemble: the steps of an ensemble; None for a model with a file.
        sequences: how requests of sequences are run; None for a model without settings about them.
        versions: "latest", "all", or a tuple of versions.
        latest: how many of the highest versions are loaded, if `versions` is "latest".
        trusted_keys: the paths of PEM files with public keys. The model must then be a saved network that one of the
            keys has signed. No file in a folder of models can set this.
        signed_names: whether the keys must have signed for the name of the model, and for the version if its folder has
            the number of one. No file in a folder of models can set this.
        least_version: the lowest version for which the keys must have signed; None accepts any. No file in a folder of
            models can set this.
    """

    backends: tuple[str, ...] | None = None
    plan: str | None = None
    shapes: Mapping[str, Any] | None = None
    isolate: tuple[str, ...] = ()
    format: str | None = None
    batch: int = 1
    batch_delay: float = 0.002
    rate: float | None = None
    burst: int | None = None
    instances: int | None = None
    priority: int | None = None
    priority_levels: int = 1
    warmup: tuple[WarmUp, ...] = ()
    cache: bool = False
    feedback: Mapping[str, str] = field(default_factory=dict)
    ensemble: Ensemble | None = None
    sequences: SequenceSettings | None = None
    versions: str | tuple[str, ...] = "latest"
    latest: int = 1
    trusted_keys: tuple[str, ...] = ()
    signed_names: bool = False
    least_version: int | None = None


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One version of a model that can be loaded from a file, or a `problem` that says why it cannot.

    `folder` is that of an ensemble which has a folder of its own, with its Python modules.
    """

    name: str
    version: str
    path: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    problem: str = ""
    folder: str = ""

    def check(self) -> None:
        """Raise `ConfigError` if the model cannot be loaded."""
        if self.problem:
            raise ConfigError(self.problem)


def source_of_file(path: str, name: str | None = None, settings: ModelSettings | None = None) -> ModelSource:
    """Return the only version of a model in one file; its name is that of the file without the ending."""
    return _named(ModelSource(name or Path(path).stem, "1", path, settings or ModelSettings()))


def found_in(folder: str, defaults: ModelSettings | None = None) -> Iterator[ModelSource]:
    """Yield the models in a folder, by name and version.

    A file such as ``kws.tflite`` is version 1 of the model ``kws``. A folder with ``1/model.tflite`` in it is a model
    with versions, as Triton has them. A file ``kws.toml`` has settings of the model ``kws``; with a table ``ensemble``,
    it is the ensemble ``kws`` itself. A model whose settings are wrong has a `problem`, and so has a version without a
    model, so that the others can be loaded.

    Raises:
        OSError: the folder cannot be read.
    """
    settings = defaults or ModelSettings()
    paths = [Path(entry.path) for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)]
    _warn_of_strays(paths)
    for path in paths:
        if not path.name.startswith("."):
            yield from map(_named, _models_of(path, settings))


def _warn_of_strays(paths: list[Path]) -> None:
    """Log each file with settings that is beside no model of its name."""
    models = [path.stem if path.suffix in _suffixes() else path.name for path in paths if path.suffix != ".toml"]
    for path in paths:
        if path.suffix == ".toml" and path.stem not in models and not _has_ensemble(path):
            _warn_once(f"{path}: there is no model {path.stem!r}{did_you_mean(path.stem, models)}")


def _warn_of_unread(folder: Path) -> None:
    """Log each file with settings in the folder of a model that has another name than the model's."""
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")]):
        if path.parent != folder or path.stem != folder.name:
            read_file = folder / f"{folder.name}.toml"
            _warn_once(f"{path} is not read; the settings of model {folder.name!r} are in {read_file}")


@lru_cache(1024)
def _warn_once(text: str) -> None:
    """Log a warning about a file, which a server would repeat whenever a client lists its models."""
    _log.warning("%s", text)


def _models_of(path: Path, settings: ModelSettings) -> list[ModelSource]:
    """Return the versions of a model in a file or a folder; an empty list for files that are no models."""
    try:
        if path.suffix in _suffixes():
            return [_flat_model(path, settings)]
        if path.suffix == ".toml" and _has_ensemble(path) and not _has_model(path):
            return [_of_ensemble(path.stem, "1", path, _with_toml(settings, path))]
        return list(_versions(path, settings)) if path.is_dir() else []
    except (ConfigError, OSError) as error:
        name = path.stem if path.suffix in {*_suffixes(), ".toml"} else path.name
        return [ModelSource(name, "1", str(path), settings, str(error))]


def _flat_model(path: Path, defaults: ModelSettings) -> ModelSource:
    file = path.with_suffix(".toml")
    settings = _with_toml(defaults, file)
    if settings.ensemble is not None:
        raise ConfigError(f"{file} has an ensemble, but {path.name} is a model with the same name; rename one of them")
    if settings.versions != defaults.versions:
        raise ConfigError(f"{file}: versions is for a folder with a subfolder for each version; this model is one file")
    return ModelSource(path.stem, "1", str(path), settings)


def _named(source: ModelSource) -> ModelSource:
    """Return the source, with a `problem` if requests cannot name its model: the name is not UTF-8, or has a slash."""
    name = source.name.encode("utf-8", "replace").decode()
    if name == source.name and "/" not in name:
        return source
    return replace(source, name=name, problem=f"requests cannot have the model name {name!r}; use UTF-8 without /")


def _versions(folder: Path, defaults: ModelSettings) -> Iterator[ModelSource]:
    numbers = sorted((int(path.name) for path in folder.iterdir() if _is_version(path)), reverse=True)
    files = folder / "config.pbtxt", folder.with_name(f"{folder.name}.toml"), folder / f"{folder.name}.toml"
    ensembles = [file for file in files if _has_ensemble(file)]
    if not numbers and not ensembles:
        return
    config = read_config(files[0])
    if config.ignored:
        _warn_once(f"{folder / 'config.pbtxt'}: these fields are ignored: {', '.join(config.ignored)}")
    _warn_of_unread(folder)
    settings = _with_toml(_with_toml(_with_config(defaults, config), files[1]), files[2])
    for number in _chosen(numbers or [1], settings):
        version = ModelSource(config.name or folder.name, str(number), str(folder / str(number)), settings)
        try:
            if number not in (numbers or [1]):
                raise ConfigError(f"versions has {number}, but the model has {', '.join(map(str, numbers))}")
            if settings.ensemble is not None:
                yield replace(_of_ensemble(version.name, version.version, ensembles[-1], settings), folder=str(folder))
                continue
            yield replace(version, path=str(_model_file(folder / str(number), config.filename)))
        except (ConfigError, OSError) as error:
            yield replace(version, problem=str(error))


def _has_ensemble(file: Path) -> bool:
    """Return True if a file with settings says that the model is an ensemble, or if a damaged one seems to say so."""
    try:
        settings_text = text_of_settings(file)
    except (OSError, ValueError):
        return False
    if file.suffix != ".toml":
        return re.search(r"\bensemble_scheduling\b|\bplatform\s*:\s*.ensemble\b", settings_text) is not None
    try:
        return "ensemble" in table_of_settings(settings_text)
    except ValueError:
        return re.search(r"^[ \t]*\[+[ \t]*ensemble\b", settings_text, re.MULTILINE) is not None


def _has_model(file: Path) -> bool:
    """Return True if there is a folder or a file of a model with the name of a file with settings."""
    return any(file.with_suffix(suffix).exists() for suffix in ("", *_suffixes()))


def _of_ensemble(name: str, version: str, file: Path, settings: ModelSettings) -> ModelSource:
    """Return an ensemble as a model; the settings of models with files, such as their backends, are not for it."""
    kept_settings = {key: getattr(settings, key) for key in (*_KEPT_OF_ENSEMBLE, *_SIGNATURES)}
    return ModelSource(name, version, str(file), ModelSettings(**kept_settings))


def _is_version(path: Path) -> bool:
    return path.is_dir() and path.name.isascii() and path.name.isdecimal() and path.name == str(int(path.name))


def _chosen(numbers: list[int], settings: ModelSettings) -> list[int]:
    """Return the versions to load, highest first; those that are listed in the settings may be absent in `numbers`."""
    if settings.versions == "all":
        return numbers
    if settings.versions == "latest":
        return numbers[: settings.latest]
    return sorted({int(version) for version in settings.versions}, reverse=True)


def _model_file(folder: Path, filename: str) -> Path:
    if filename:
        path = folder / os.path.basename(filename)
        if not path.is_file():
            raise ConfigError(f"the folder {folder} has no file {filename!r}, which default_model_filename names")
        return path
    models = [path for path in sorted(folder.iterdir()) if path.suffix in _suffixes()]
    named_model = [path for path in models if path.stem == "model"] or models
    if not named_model:
        raise ConfigError(f"the folder {folder} has no model, such as model.onnx or model.tflite")
    if len(named_model) > 1:
        names = ", ".join(path.name for path in named_model)
        raise ConfigError(f"the folder {folder} has several models ({names}); call one of them model")
    return named_model[0]


def _with_config(settings: ModelSettings, config: TritonConfig) -> ModelSettings:
    changes: dict[str, Any] = {"versions": config.versions, "latest": config.latest}
    if config.instances is not None:
        changes["instances"] = config.instances
    if config.cache:
        changes["cache"] = True
    if config.levels is not None:
        changes["priority_levels"] = config.levels
    if config.ensemble is not None:
        changes["ensemble"] = config.ensemble
    if config.warmup:
        changes["warmup"] = config.warmup
    return replace(settings, **changes, **_batches_of(config))


def _batches_of(config: TritonConfig) -> dict[str, Any]:
    """Return the settings about batches of requests, or of sequences."""
    changes: dict[str, Any] = {} if config.sequences is None else {"sequences": config.sequences}
    if (config.is_batching or config.sequences is not None) and config.max_batch_size > 1:
        changes["batch"] = config.max_batch_size
        if config.delay_seconds is not None:
            changes["batch_delay"] = config.delay_seconds
    return changes


def _with_toml(settings: ModelSettings, path: Path) -> ModelSettings:
    if not path.is_file():
        return settings
    try:
        values = table_of_settings(text_of_settings(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    changes = {}
    for key, value in values.items():
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}{did_you_mean(key, _KEYS)} (known: {', '.join(_KEYS)})")
        changes[_KEYS[key].field] = _checked(path, key, value)
    changed_settings = replace(settings, **changes)
    unused_keys = [key for key in values if "ensemble" in values and key not in _OF_ENSEMBLE]
    if unused_keys:
        raise ConfigError(
            f"{path}: {unused_keys[0]} is for the models of the steps of an ensemble; put it in their settings"
        )
    if changed_settings.burst is not None and changed_settings.rate is None:
        raise ConfigError(f"{path}: burst is for a model with a rate; set rate, too")
    if "batch_delay" in changes and changed_settings.batch == 1:
        raise ConfigError(f"{path}: batch_delay_ms is for batches; set batch to 2 or more, too")
    return changed_settings


def _ensemble(path: Path, value: Any) -> Ensemble:
    try:
        return ensemble_of_table(value)
    except InterposerError as error:
        raise ConfigError(f"{path}: {error}") from None


def _sequences(path: Path, value: Any) -> SequenceSettings:
    try:
        return sequences_of_table(value)
    except InterposerError as error:
        raise ConfigError(f"{path}: {error}") from None


def _ids(_: Path, value: Any) -> Any:
    return tuple(value) if isinstance(value, list) and all(isinstance(backend, str) for backend in value) else None


def _beside(file: Path, value: Any) -> Any:
    return str(file.parent / value) if isinstance(value, str) else None


def _delay(_: Path, value: Any) -> Any:
    return value / 1e3 if type(value) in (int, float) and 0 <= value < 60_000 else None


def _texts(value: Any) -> Any:
    return value if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()) else None


def _whole(value: Any, maximum: int) -> Any:
    return value if type(value) is int and 1 <= value <= maximum else None


def _number_up_to(value: Any, maximum: float) -> Any:
    return float(value) if type(value) in (int, float) and 0 < value <= maximum else None


def _versions_of(_: Path, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(str, value)) if all(type(number) is int for number in value) else None
    return value if value in ("latest", "all") else None


class _Key(NamedTuple):
    """A key of a file with settings."""

    field: str
    expected: str
    read: Callable[[Path, Any], Any]
    """Takes the file and the value, and returns the value of the field; None if the value is wrong."""


_KEYS: Final = {
    "backends": _Key("backends", "a list of ids of backends", _ids),
    "plan": _Key("plan", "the path of a plan file", _beside),
    "shapes": _Key("shapes", "a table of shapes by input", lambda _, v: v if isinstance(v, dict) else None),
    "isolate": _Key("isolate", "a list of ids of backends", _ids),
    "format": _Key("format", "the name of a format", lambda _, v: v if isinstance(v, str) else None),
    "batch": _Key("batch", "a whole number from 1 on", lambda _, v: v if type(v) is int and v >= 1 else None),
    "batch_delay_ms": _Key("batch_delay", "a number of milliseconds", _delay),
    "rate": _Key("rate", "a number of requests per second above 0", lambda _, v: _number_up_to(v, 1e9)),
    "burst": _Key("burst", "a whole number from 1 on", lambda _, v: _whole(v, 1 << 30)),
    "instances": _Key("instances", "a whole number from 1 to 1024", lambda _, v: _whole(v, 1024)),
    "priority": _Key("priority", "a whole number from 1 (first) to 9", lambda _, v: _whole(v, 9)),
    "priority_levels": _Key("priority_levels", "a whole number from 1 to 1000", lambda _, v: _whole(v, 1000)),
    "warmup": _Key("warmup", "a list of tables with inputs and count", lambda file, v: warm_ups_of(file.parent, v)),
    "cache": _Key("cache", "true or false", lambda _, v: v if isinstance(v, bool) else None),
    "feedback": _Key("feedback", "a table of outputs by input", lambda _, v: _texts(v)),
    "ensemble": _Key("ensemble", "a table with inputs, outputs and steps", _ensemble),
    "sequences": _Key("sequences", "a table about sequences", _sequences),
    "versions": _Key("versions", '"latest", "all", or a list of numbers', _versions_of),
}
_KEPT_OF_ENSEMBLE: Final = ("ensemble", "rate", "burst", "versions", "latest")
_SIGNATURES: Final = ("trusted_keys", "signed_names", "least_version")
_OF_ENSEMBLE: Final = ("ensemble", "rate", "burst", "versions")
"""The keys that a file with an ensemble may have."""


def _checked(path: Path, key: str, value: Any) -> Any:
    """Return the value of a key in the form of `ModelSettings`; raise `ConfigError` if it has another type."""
    setting = _KEYS[key].read(path, value)
    if setting is None:
        raise ConfigError(f"{path}: {key} must be {_KEYS[key].expected}, not {value!r}")
    return setting
