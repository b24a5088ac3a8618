"""The options of all bridges: texts by name, as ONNX Runtime and LiteRT pass them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from interposer.backend import OptionValue
from interposer.core.errors import BackendError, InvalidArgumentError, UnknownBackendError, did_you_mean
from interposer.core.records import dataclass
from interposer.optimizer import OptimizerOptions
from interposer.runtime import CreationOptions, Runtime
from interposer.session import default_runtime
from interposer.session.option_texts import has_option, sorted_options, truth
from interposer.session.placement.plan import Plan

__all__ = ["OPTIONS", "REFERENCE", "BridgeOptions", "Option", "bridge_options"]

REFERENCE: Final = "CpuRef"
"""The backend that runs every layer, slowly."""
_MOST_THREADS: Final = 4096
_PREFIX: Final = "options."
"""The beginning of the name of a backend's own option: ``options.CpuAcc.NumberOfThreads``."""
_THREADS: Final = ("NumberOfThreads", "threads")
"""The names of the option for the number of threads of a run: that of Arm NN's backends, and that of engines."""
_MOST_OF_A_RUN: Final = 256
"""The maximum of that option in CpuAcc; more threads never help."""
_ModelOptions = Mapping[str, Mapping[str, OptionValue]]


@dataclass(frozen=True)
class BridgeOptions:
    """What the user of a host asks of a bridge.

    Args:
        backends: the ids of the backends that may take nodes, in order of preference.
        backend_options: the texts of backends' own options, by backend id and name.
        min_nodes: the fewest nodes of a group that is taken. None takes groups that have a layer with arithmetic, such
            as a convolution or a matrix product, and groups of any kind that are the whole network.
        threads: the number of threads of backends; None is the default of the runtime.
        isolate: the ids of backends that run in child processes; None is the default of the runtime.
        strict: raise an error, instead of leaving nodes to the host, if anything is not taken.
        explain: the path of a file to which the report of each network is written; empty for none.
        float16: compute float32 layers in float16.
        plan: the backend of each node, by its name in the host; None means the first of `backends` that takes it.
        cache_folder: the folder where compiled networks are stored and found; empty for none.
    """

    backends: tuple[str, ...] = ()
    backend_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    min_nodes: int | None = None
    threads: int | None = None
    isolate: tuple[str, ...] | None = None
    strict: bool = False
    explain: str = ""
    float16: bool = False
    plan: Plan | None = None
    cache_folder: str = ""

    def runtime(self) -> Runtime:
        """Return the runtime for these options; networks with the same options share one.

        Raises:
            InterposerError: a backend is unknown, or has no such option.
        """
        of_runtime = _of_runtime(_frozen(self.backend_options))
        return _runtime(self.isolate, of_runtime) if of_runtime or self.isolate is not None else default_runtime()

    def check_isolated(self) -> None:
        """Raise `UnknownBackendError` if `isolate` names a backend that the runtime does not know."""
        registry = self.runtime().registry
        for name in self.isolate or ():
            if name not in registry:
                raise UnknownBackendError(name, registry.ids)

    def optimizer_options(self) -> OptimizerOptions:
        """Return the options of the optimizer, with the options of backends for networks."""
        _, of_networks = sorted_options(self.backend_options, default_runtime(), "the option")
        model_options: _ModelOptions = of_networks
        if self.threads is not None:
            model_options = self.with_default(of_networks, _THREADS, min(self.threads, _MOST_OF_A_RUN))
        return OptimizerOptions(model_options=model_options, reduce_fp32_to_fp16=self.float16)

    def with_default(self, options: _ModelOptions, names: Iterable[str], value: OptionValue) -> _ModelOptions:
        """Set the options with these names in each backend that declares them, unless `options` has them already."""
        extended_options = dict(options)
        for backend_id in self.backends:
            with suppress(BackendError):  # unknown or unavailable backends are reported where they are used
                backend = self.runtime().registry.get(backend_id)
                defaults = {name: value for name in names if has_option(backend, name)}
                extended_options |= {backend_id: {**defaults, **options.get(backend_id, {})}} if defaults else {}
        return extended_options

    @property
    def stores(self) -> bool:
        """True if compiled networks are looked for in files."""
        return bool(self.cache_folder)

    @property
    def writes_store(self) -> bool:
        """True if networks that are compiled are stored in files."""
        return bool(self.cache_folder)

    def stored_at(self, digest: str) -> Path:
        """Return the path, without a suffix, of the files for a graph with this digest."""
        return Path(self.cache_folder, digest)

    def essence(self) -> str:
        """Return the options that compiled networks follow from, as a text."""
        return repr(replace(self, explain="", cache_folder="", strict=False))


class Option(NamedTuple):
    """An option that has one name in all hosts: how its text changes `BridgeOptions`, and what it means.

    `expected` describes valid texts, for messages. `change` raises ValueError for any other text.
    """

    expected: str
    meaning: str
    change: Callable[[BridgeOptions, str], BridgeOptions]


def _ids(text: str) -> tuple[str, ...]:
    ids = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not ids:
        raise ValueError
    return ids


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _threads(text: str) -> int:
    if not 1 <= int(text) <= _MOST_THREADS:
        raise ValueError
    return int(text)


def _file(text: str) -> str:
    if not text.strip():
        raise ValueError
    return str(Path(text).expanduser())


def _folder(text: str) -> str:
    return str(Path(_file(text)).absolute())


def _option(name: str, expected: str, meaning: str, read: Callable[[str], Any]) -> Option:
    """Return the option that sets the field `name` to the value that `read` makes of its text."""

    def change(options: BridgeOptions, text: str) -> BridgeOptions:
        return replace(options, **{name: read(text)})

    return Option(expected, meaning, change)


OPTIONS: Final[dict[str, Option]] = {
    "backends": _option(
        "backends", "ids of backends, such as CpuAcc,CpuRef", "the backends that may take nodes, preferred first", _ids
    ),
    "min-nodes": _option(
        "min_nodes",
        "a whole number, 1 or more",
        "the fewest nodes of a group that is taken; by default, a group needs a layer with arithmetic",
        _count,
    ),
    "threads": _option(
        "threads", f"a whole number from 1 to {_MOST_THREADS}", "the number of threads of backends", _threads
    ),
    "isolate": _option("isolate", "ids of backends", "backends that run in child processes", _ids),
    "strict": _option("strict", "true or false", "an error if a node is not taken", truth),
    "explain": _option("explain", "the path of a file", "a file to which reports are written", _file),
    "plan": _option(
        "plan",
        "the path of a plan",
        "a file that says which backend runs which node; it names the backends too",
        Plan.load,
    ),
    "cache-dir": _option(
        "cache_folder", "the path of a folder", "a folder where compiled networks are stored and found", _folder
    ),
    "reduce-fp32-to-fp16": _option("float16", "true or false", "whether float32 layers are computed in float16", truth),
}
"""The options that all hosts have, by name."""


def bridge_options(
    texts: Mapping[str, str],
    default_backends: Iterable[str] = (),
    options: Mapping[str, Option] = OPTIONS,
    defaults: BridgeOptions | None = None,
) -> BridgeOptions:
    """Return the options that a host passes as texts by name; ``_`` in a name is read as ``-``.

    Args:
        texts: the options of the user. ``options.<backend>.<name>`` is an option of a backend.
        default_backends: the backends to use if the user names none; empty means the default ones of the runtime.
        options: the known options.
        defaults: what the user asks for without options; None means `BridgeOptions()`.

    Raises:
        InvalidArgumentError: an option is unknown, or its text is not valid; both a plan and backends are given.
    """
    current_options = replace(defaults or BridgeOptions(), backends=tuple(default_backends))
    for name, text in texts.items():
        if name.startswith(_PREFIX):
            current_options = _with_backend_option(current_options, name, text)
        else:
            current_options = _changed(current_options, name, text, options)
    if current_options.plan is not None:
        return _with_backends_of_plan(current_options, current_options.plan, "backends" in texts)
    return current_options if current_options.backends else replace(current_options, backends=_default_backends())


def _with_backends_of_plan(current_options: BridgeOptions, plan: Plan, names_backends: bool) -> BridgeOptions:
    if names_backends:
        raise InvalidArgumentError(
            f"the plan has its own backends ({', '.join(plan.backends)}); give either the option 'plan' or 'backends'"
        )
    return replace(current_options, backends=tuple(dict.fromkeys((*plan.backends, *plan.layers.values()))))


def _default_backends() -> tuple[str, ...]:
    """Return the backends that `load` uses, without CpuRef if there are others: the host runs what they refuse."""
    ids = tuple(default_runtime().device_spec.default_backends)
    return tuple(name for name in ids if name != REFERENCE) or ids


def _changed(current_options: BridgeOptions, name: str, text: str, options: Mapping[str, Option]) -> BridgeOptions:
    option = options.get(name.replace("_", "-"))
    if option is None:
        known_names = ", ".join([*options, f"{_PREFIX}<backend>.<name>"])
        raise InvalidArgumentError(
            f"there is no option {name!r}{did_you_mean(name, options)} (there are: {known_names})"
        )
    try:
        return option.change(current_options, text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"the option {name!r}: {error}") from error
    except (ValueError, RuntimeError):  # of `expanduser`, for the home of a user who does not exist
        raise InvalidArgumentError(f"the option {name!r} is {text!r}; expected {option.expected}") from None


def _with_backend_option(current_options: BridgeOptions, name: str, text: str) -> BridgeOptions:
    backend, dot, option = name.removeprefix(_PREFIX).rpartition(".")
    if not (backend and dot and option):
        raise InvalidArgumentError(
            f"the option {name!r} names no option of a backend; expected {_PREFIX}<backend>.<name>, such as "
            f"{_PREFIX}CpuAcc.NumberOfThreads"
        )
    of_backend = {**current_options.backend_options.get(backend, {}), option: text}
    return replace(current_options, backend_options={**current_options.backend_options, backend: of_backend})


_Frozen = tuple[tuple[str, tuple[tuple[str, OptionValue], ...]], ...]


def _frozen(options: _ModelOptions) -> _Frozen:
    return tuple((backend, tuple(of_backend.items())) for backend, of_backend in options.items())


@cache
def _of_runtime(texts: _Frozen) -> _Frozen:
    """Return those options of backends that are for a runtime, not for a network."""
    by_backend = {backend: {name: str(text) for name, text in pairs} for backend, pairs in texts}
    return _frozen(sorted_options(by_backend, default_runtime(), "the option")[0])


@cache
def _runtime(isolate: tuple[str, ...] | None, of_runtime: _Frozen) -> Runtime:
    options = {backend: dict(pairs) for backend, pairs in of_runtime}
    return Runtime(CreationOptions(backend_options=options, isolate=isolate))
