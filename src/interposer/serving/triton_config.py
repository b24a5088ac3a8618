"""The fields of Triton's ``config.pbtxt`` that have a meaning here, read from protobuf's text format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from interposer.core.errors import ConfigError, InterposerError
from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.serving.ensemble import Ensemble, Step, tensor_info
from interposer.serving.sequence_batches import SequenceSettings
from interposer.serving.settings_text import text_of_settings
from interposer.serving.triton_fields import Fields, check_known, message, number, whole, whole_or_any
from interposer.serving.triton_sequences import sequence_batching
from interposer.serving.warming import WarmUp

__all__ = ["TritonConfig", "ensemble_of_config", "read_config"]

_TOKEN: Final = re.compile(
    r"""\s+|\#[^\n]*|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<word>[\w.+-]+)|(?P<sign>[{}\[\]<>:,;])"""
)
_READ: Final = {
    "name", "max_batch_size", "dynamic_batching", "version_policy", "default_model_filename", "instance_group",
    "response_cache", "model_warmup", "ensemble_scheduling", "sequence_batching",
}  # fmt: skip
_OF_THE_FILE: Final = {"platform", "backend", "runtime", "input", "output"}
"""Fields whose facts come from the model's own file."""
_IGNORED: Final = {
    "batch_input", "batch_output", "cc_model_filenames", "metric_tags", "model_metrics",
    "model_operations", "model_repository_agents", "model_transaction_policy", "optimization", "parameters",
}  # fmt: skip
"""Fields that Triton has and that have no meaning here; a warning names them."""
_DELAY: Final = "max_queue_delay_microseconds"
_LEVELS: Final = "priority_levels"
_IGNORED_OF_BATCHING: Final = {
    "default_priority_level", "default_queue_policy", "preferred_batch_size", "preserve_ordering",
    "priority_queue_policy",
}  # fmt: skip
_POLICIES: Final = {"all": (), "latest": ("num_versions",), "specific": ("versions",)}
_DEEPEST: Final = 32
_MOST_LEVELS: Final = 1000
_MOST_RUNS: Final = 1000


@dataclass(frozen=True, slots=True)
class TritonConfig:
    """What a ``config.pbtxt`` says.

    Args:
        name: the name of the model; empty for that of the folder.
        max_batch_size: the most rows that run together; 0 or 1 for none.
        is_batching: whether requests are gathered in batches.
        delay_seconds: seconds that a request waits for others; None for the default.
        versions: "latest", "all", or the versions that are loaded.
        latest: how many of the highest versions are loaded, if `versions` is "latest".
        filename: the name of the model's file in the folder of a version; empty for a file that is named ``model``.
        instances: how many runs may be active at the same time; None if the file does not say.
        cache: whether results are cached.
        ignored: the names of fields that have no meaning here.
        levels: the number of priorities that requests may have; None if the file does not say.
        warmup: requests that run before the model is ready.
        ensemble: the steps of an ensemble; None for a model with a file.
        sequences: how requests of sequences are run; None if the file does not say.
    """

    name: str = ""
    max_batch_size: int = 0
    is_batching: bool = False
    delay_seconds: float | None = None
    versions: str | tuple[str, ...] = "latest"
    latest: int = 1
    filename: str = ""
    instances: int | None = None
    cache: bool = False
    ignored: tuple[str, ...] = ()
    levels: int | None = None
    warmup: tuple[WarmUp, ...] = ()
    ensemble: Ensemble | None = None
    sequences: SequenceSettings | None = None


def read_config(path: Path) -> TritonConfig:
    """Return what a file says; the defaults if there is no such file.

    Raises:
        ConfigError: the file is not in protobuf's text format, Triton has no such field, or a field has a wrong value.
    """
    if not path.is_file():
        return TritonConfig()
    try:
        fields = _Parser(text_of_settings(path)).message()
        return _config(fields)
    except (ValueError, OSError, InterposerError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def ensemble_of_config(text: str) -> Ensemble | None:
    """Return the ensemble that the text of a ``config.pbtxt`` describes; None if it is about a model.

    Raises:
        ValueError: the text is wrong.
    """
    return _config(_Parser(text).message()).ensemble


def _config(fields: Fields) -> TritonConfig:
    batching = message(fields, "dynamic_batching")
    versions, latest = _policy(message(fields, "version_policy"))
    delay = number(batching or {}, _DELAY, None)
    check_known("", fields, _READ | _OF_THE_FILE | _IGNORED)
    check_known("dynamic_batching.", batching or {}, {_DELAY, _LEVELS} | _IGNORED_OF_BATCHING)
    ignored_names = [name for name in fields if name in _IGNORED]
    ignored_names += [f"dynamic_batching.{name}" for name in batching or {} if name not in (_DELAY, _LEVELS)]
    max_batch_size = number(fields, "max_batch_size", 0) or 0
    sequences, sequence_delay, ignored_of_sequences = sequence_batching(
        message(fields, "sequence_batching"), [1] if max_batch_size else []
    )
    ignored_names += ignored_of_sequences
    if sequences is not None and batching is not None:
        raise ValueError("a model has either dynamic_batching or sequence_batching")
    if max_batch_size > 1 and batching is None and sequences is None:
        ignored_names.append("max_batch_size without dynamic_batching")
    if batching is not None and max_batch_size < 2:
        ignored_names.append("dynamic_batching without max_batch_size")
    warmup, has_files = _warm_ups(fields.get("model_warmup", []), has_rows=max_batch_size > 0)
    if has_files:
        ignored_names.append("model_warmup with input_data_file")
    return TritonConfig(
        name=str(fields.get("name", [""])[-1]),
        max_batch_size=max_batch_size,
        is_batching=batching is not None,
        delay_seconds=sequence_delay if delay is None else delay / 1e6,
        versions=versions,
        latest=latest,
        filename=str(fields.get("default_model_filename", [""])[-1]),
        instances=_instances(fields.get("instance_group", [])),
        cache=_is_cached(message(fields, "response_cache")),
        levels=_levels(batching or {}),
        warmup=warmup,
        ensemble=_ensemble(fields, max_batch_size),
        sequences=sequences,
        ignored=tuple(ignored_names),
    )


def _policy(policy: Fields | None) -> tuple[str | tuple[str, ...], int]:
    if not policy:
        return "latest", 1
    check_known("version_policy.", policy, _POLICIES)
    for name, inner_names in _POLICIES.items():
        check_known(f"version_policy.{name}.", message(policy, name) or {}, inner_names)
    if "all" in policy:
        return "all", 1
    specific_policy = message(policy, "specific")
    if specific_policy is not None:
        return tuple(str(whole("versions", version)) for version in specific_policy.get("versions", [])), 1
    return "latest", number(message(policy, "latest") or {}, "num_versions", 1) or 1


_OF_SCHEDULING: Final = {"step"}
_OF_STEP: Final = {"model_name", "model_version", "input_map", "output_map"}
_OF_TENSOR: Final = {"name", "data_type", "dims", "format", "label_filename"}


def _ensemble(fields: Fields, max_batch_size: int) -> Ensemble | None:
    """Return the ensemble of a file; None if it is about a model.

    If `max_batch_size` is not 0, the tensors have one dimension more than the file says, the first one, of any size.
    """
    scheduling, platform = message(fields, "ensemble_scheduling"), str(fields.get("platform", [""])[-1])
    if scheduling is None and platform != "ensemble":
        return None
    if scheduling is None:
        raise ValueError('the platform "ensemble" needs ensemble_scheduling with its steps')
    if platform != "ensemble":
        raise ValueError(f'ensemble_scheduling is for the platform "ensemble", not {platform!r}')
    check_known("ensemble_scheduling.", scheduling, _OF_SCHEDULING)
    steps = tuple(_step(step) for step in scheduling.get("step", []))
    if not steps:
        raise ValueError("ensemble_scheduling has no step")
    rows = [-1] if max_batch_size else []
    inputs, outputs = (_tensors(kind, fields.get(kind, []), rows) for kind in ("input", "output"))
    return Ensemble(inputs, outputs, steps, signed_as=str(fields.get("name", [""])[-1]))


def _step(step: Any) -> Step:
    if not isinstance(step, dict):
        raise ValueError("ensemble_scheduling.step is not a message in braces")
    check_known("ensemble_scheduling.step.", step, _OF_STEP)
    name = str(step.get("model_name", [""])[-1])
    if not name:
        raise ValueError("ensemble_scheduling.step has no model_name")
    version = whole_or_any("model_version", step.get("model_version", ["-1"])[-1])
    inputs, outputs = (dict(_pair(key, pair) for pair in step.get(key, [])) for key in ("input_map", "output_map"))
    return Step(name, "" if version == -1 else str(version), inputs, outputs)


def _pair(key: str, pair: Any) -> tuple[str, str]:
    if not isinstance(pair, dict) or pair.keys() != {"key", "value"}:
        raise ValueError(f"ensemble_scheduling.step.{key} is not a message with key and value")
    return str(pair["key"][-1]), str(pair["value"][-1])


def _tensors(kind: str, tensors: list[Any], rows: list[int]) -> dict[str, TensorInfo]:
    infos = {}
    for tensor in tensors:
        if not isinstance(tensor, dict):
            raise ValueError(f"{kind} is not a message in braces")
        check_known(f"{kind}.", tensor, _OF_TENSOR)
        name, datatype = (str(tensor.get(field, [""])[-1]) for field in ("name", "data_type"))
        datatype = "BYTES" if datatype == "TYPE_STRING" else datatype.removeprefix("TYPE_")
        dims = [whole_or_any(f"{kind}.dims", size) for size in tensor.get("dims", [])]
        infos[name] = tensor_info(datatype, [*rows, *dims])
    if not infos:
        raise ValueError(f"an ensemble needs the field {kind}")
    return infos


_OF_GROUP: Final = {
    "name", "kind", "count", "rate_limiter", "gpus", "secondary_devices", "profile", "passive", "host_policy",
}  # fmt: skip


def _instances(groups: list[Any]) -> int | None:
    """Return the sum of the counts of the groups; where the instances run is not for this file to say."""
    for group in groups:
        if not isinstance(group, dict):
            raise ValueError("instance_group is not a message in braces")
        check_known("instance_group.", group, _OF_GROUP)
    total = sum(number(group, "count", 1) or 1 for group in groups)
    if total > 1024:
        raise ValueError(f"instance_group has {total} instances, more than 1024")
    return total or None


def _levels(batching: Fields) -> int | None:
    levels = number(batching, _LEVELS, None)
    if levels is not None and levels > _MOST_LEVELS:
        raise ValueError(f"dynamic_batching.priority_levels is {levels}, more than {_MOST_LEVELS}")
    return levels or None


_OF_WARMUP: Final = {"name", "batch_size", "inputs", "count"}
_OF_INPUT: Final = {"data_type", "dims", "zero_data", "random_data", "input_data_file"}


def _warm_ups(messages: list[Any], has_rows: bool) -> tuple[tuple[WarmUp, ...], bool]:
    """Return warm-up requests, and whether some were left out because their inputs are in files of raw bytes.

    `has_rows` says whether the field `batch_size` is a dimension before those of each input.
    """
    warm_ups, has_files = [], False
    for warm_up in messages:
        if not isinstance(warm_up, dict):
            raise ValueError("model_warmup is not a message in braces")
        check_known("model_warmup.", warm_up, _OF_WARMUP)
        rows = [number(warm_up, "batch_size", 1) or 1] if has_rows else []
        entries = [_entry(entry) for entry in warm_up.get("inputs", [])]
        if any("input_data_file" in value for _, value in entries):
            has_files = True
            continue
        inputs = {
            name: (
                "zeros" if "zero_data" in value else "random",
                (*rows, *(whole("model_warmup.inputs.value.dims", size) for size in value.get("dims", []))),
            )
            for name, value in entries
        }
        count = number(warm_up, "count", 1) or 1
        if count > _MOST_RUNS:
            raise ValueError(f"model_warmup.count is {count}, more than {_MOST_RUNS}")
        warm_ups.append(WarmUp(inputs, count))
    return tuple(warm_ups), has_files


def _entry(entry: Any) -> tuple[str, Fields]:
    """Return the name and the fields of an input of a warm-up request."""
    if not isinstance(entry, dict) or "key" not in entry:
        raise ValueError("model_warmup.inputs is not a message with key and value")
    value_message = message(entry, "value") or {}
    check_known("model_warmup.inputs.", entry, {"key", "value"})
    check_known("model_warmup.inputs.value.", value_message, _OF_INPUT)
    return str(entry["key"][-1]), value_message


def _is_cached(cache: Fields | None) -> bool:
    check_known("response_cache.", cache or {}, {"enable"})
    return (cache or {}).get("enable", ["false"])[-1] in ("true", "True", "t", "1")


class _Parser:
    """Reads protobuf's text format into dictionaries with a list of values for each field; numbers stay texts."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._position = 0

    def message(self, end: str = "", depth: int = 0) -> Fields:
        if depth > _DEEPEST:
            raise ValueError("messages are nested too deeply")
        fields: Fields = {}
        while self._peek() != end:
            name = self._next()
            if not name or not re.fullmatch(r"\w+", name):
                raise ValueError(f"expected the name of a field, not {name or 'the end'!r}")
            if self._peek() == ":":
                self._next()
            fields.setdefault(name, []).extend(self._values(depth))
            while self._peek() in (",", ";"):
                self._next()
        self._next()
        return fields

    def _values(self, depth: int) -> list[Any]:
        token = self._next()
        if token in ("{", "<"):
            return [self.message("}" if token == "{" else ">", depth + 1)]
        if token != "[":
            return [self._scalar(token)]
        if depth > _DEEPEST:
            raise ValueError("messages are nested too deeply")
        values: list[Any] = []
        while self._peek() != "]":
            values += self._values(depth + 1)
            if self._peek() == ",":
                self._next()
        self._next()
        return values

    def _scalar(self, token: str) -> str:
        if not token or token in "{}[]<>:,;":
            raise ValueError(f"expected a value, not {token or 'the end'!r}")
        scalar_text = _unquoted(token)
        while token[0] in "\"'" and self._peek()[:1] in ("'", '"'):  # strings beside each other are one
            scalar_text += _unquoted(self._next())
        return scalar_text

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1]) if token[0] in "\"'" else token


def _tokens(text: str) -> Iterator[str]:
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise ValueError(f"unexpected character {text[offset]!r} in line {text.count(chr(10), 0, offset) + 1}")
        offset = match.end()
        if match.lastgroup:
            yield match[0]
