"""What commands that run something share: --option, --backend-path, --profile-to, and backends named MODULE:CLASS."""

from __future__ import annotations

import argparse
import importlib.util
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from interposer.backend import OptionValue
from interposer.backend.devices import is_address
from interposer.cli.outputs import check_writable
from interposer.cli.sources import sources_of
from interposer.cli.streams import print_error, printable
from interposer.core.config import BACKEND_PATH, NUM_THREADS
from interposer.core.errors import InvalidArgumentError, UnknownBackendError
from interposer.core.files import is_same_file
from interposer.core.records import dataclass
from interposer.optimizer import OptimizerOptions
from interposer.plugins import process_registry
from interposer.plugins.capi.loading.file_names import looks_like_a_backend
from interposer.profiling.external.options import ExternalProfilingOptions
from interposer.runtime import CreationOptions, Runtime
from interposer.session import default_runtime
from interposer.session.fallback import AUTO, used_options
from interposer.session.option_texts import option_value, sorted_options

__all__ = [
    "Running",
    "allow_working_directory",
    "backend_path",
    "find_classes",
    "options_of",
    "registered",
    "required_options",
    "running",
    "runtime_of_folders",
    "runtime_with_threads",
]

CAPTURE: Final = ".bin"
"""The suffix of a file in Arm NN's external profiling protocol, as `interposer profile FILE` reads it."""
_TARGETS: Final = {
    f"--{name.replace('_', '-')}": name
    for name in ("save", "save_intermediates", "output", "report", "html", "dot", "plot", "cut")
}
"""The options that name files which commands write, and their names among the arguments."""
_LISTS: Final = ("backends", "isolate")
_LISTS_OF_LISTS: Final = ("mix", "also")


ModelOptions: TypeAlias = Mapping[str, Mapping[str, OptionValue]]
"""Options of backends for networks, by backend and name."""


@dataclass(frozen=True)
class Running:
    """The runtime of a command, and the options of backends that --option has set for networks, by backend id."""

    runtime: Runtime
    model_options: ModelOptions = field(default_factory=dict)

    def options(
        self, options: OptimizerOptions | None = None, backends: Iterable[str] | None = None
    ) -> OptimizerOptions | None:
        """Return options of the optimizer with those of these backends, None for all; None if there are neither."""
        options_in_use = used_options(self.model_options, backends)
        return replace(options or OptimizerOptions(), model_options=options_in_use) if options_in_use else options


@contextmanager
def running(args: argparse.Namespace, *, measures_all: bool = False) -> Iterator[Running]:
    """Yield the runtime that the arguments of a command require, and close it at the end.

    Without arguments about the runtime, this is the default runtime, which stays open. If --profile-to names a file
    for a timeline, everything within the context is recorded, and written at its end. `measures_all` says that the
    command uses all backends, engines too, unless --backends names some.

    Raises:
        InvalidArgumentError: an option, a folder or a target of the profile is not valid.
    """
    required = required_options(args, measures_all=measures_all)
    threads = getattr(args, "threads", None)
    with required as (options, of_networks), _runtime(args, threads, options) as runtime:
        yield Running(runtime, of_networks)


@contextmanager
def required_options(
    args: argparse.Namespace, *, measures_all: bool = False, checks_use: bool = True
) -> Iterator[tuple[CreationOptions, ModelOptions]]:
    """Yield the options of a runtime and those of networks that the arguments require, as `running` does.

    Without `checks_use`, options are also accepted for backends that --backends does not name.
    """
    texts = _split_options(args.option)
    with backend_path(args):
        find_classes(args)
        of_runtime, of_networks = _options_of_backends(texts, args, measures_all, checks_use)
        profiling, recording = _profiling_of(args)
        with recording:
            yield CreationOptions(backend_options=of_runtime, profiling=profiling), of_networks


def _runtime(args: argparse.Namespace, count: int | None, options: CreationOptions) -> AbstractContextManager[Runtime]:
    """Return a context with a runtime of these options; that of the default runtime if nothing asks for another."""
    if count is None and not args.backend_path and options == CreationOptions():
        return nullcontext(default_runtime())
    return runtime_with_threads(count, options)


@contextmanager
def runtime_with_threads(count: int | None, options: CreationOptions | None = None) -> Iterator[Runtime]:
    """Yield a runtime whose backends use up to `count` threads; None keeps the default.

    The runtime has these options, and is closed at the end.

    The environment variable for the number of threads is set until then, and restored afterwards.
    """
    options = replace(options or CreationOptions(), num_threads=count)
    with _environment(NUM_THREADS, None if count is None else str(count)), Runtime(options) as runtime:
        yield runtime


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of the environment within this context, also for child processes; None changes nothing."""
    previous_value = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if value is not None:
            os.environ.pop(name, None)
            if previous_value is not None:
                os.environ[name] = previous_value


# --- folders of backends ----------------------------------------------------------------------------------------------


@contextmanager
def backend_path(args: argparse.Namespace) -> Iterator[None]:
    """Let runtimes that are created within this context search the folders of --backend-path.

    Raises:
        InvalidArgumentError: there is no such folder, or it has no file that can be a backend.
    """
    folders = [folder for text in args.backend_path for folder in text.split(os.pathsep)]
    for folder in folders:
        _check_folder(folder)
    with _environment(BACKEND_PATH, os.pathsep.join(map(os.path.abspath, folders)) if folders else None):
        yield


def _check_folder(folder: str) -> None:
    if os.path.isfile(folder):
        parent = os.path.dirname(folder) or "."
        raise InvalidArgumentError(
            f"--backend-path: {folder!r} is a file; give the folder that contains it, {parent!r}"
        )
    if not os.path.isdir(folder):
        raise InvalidArgumentError(f"--backend-path: there is no folder {folder!r}")
    if not any(looks_like_a_backend(name) for name in os.listdir(folder)):
        print_error(
            f"interposer: --backend-path: {printable(folder)!r} contains no backend, which is a file with a name such "
            "as Example_Npu_backend.so or Example_Npu_backend.py"
        )


@contextmanager
def runtime_of_folders(args: argparse.Namespace) -> Iterator[Runtime]:
    """Yield a runtime with the backends of --backend-path, or the default runtime without this option."""
    with backend_path(args), Runtime() if args.backend_path else nullcontext(default_runtime()) as runtime:
        yield runtime


# --- MODULE:CLASS -----------------------------------------------------------------------------------------------------


def find_classes(args: argparse.Namespace) -> None:
    """Register the backends that arguments name as MODULE:CLASS, and replace these names by the ids.

    Modules are also found in the working directory. `args.classes` has the names by id.

    Raises:
        InvalidArgumentError: a name cannot be imported, or gives no backend.
        DuplicateBackendError: another backend has the same id.
    """
    args.classes = {}
    for name in _LISTS:
        ids = getattr(args, name, None)
        if ids:
            setattr(args, name, [_id_of(backend, args.classes) for backend in ids])
    for name in _LISTS_OF_LISTS:
        lists = getattr(args, name, None)
        if lists:
            setattr(args, name, [[_id_of(backend, args.classes) for backend in ids] for ids in lists])


def _id_of(name: str, classes: dict[str, str]) -> str:
    backend_id = registered(name)
    if backend_id != name:
        classes[backend_id] = name
    return backend_id


def registered(name: str) -> str:
    """Return the id of a backend; one that is named MODULE:CLASS is registered, and other names are ids.

    A name that begins with the id of a backend, such as "Npu:1", is that of a device.
    """
    if ":" not in name or is_address(name) or name.partition(":")[0] in default_runtime().registry:
        return name
    from interposer.testing.replay import backend_of, imported  # noqa: PLC0415 - other names do not need the kit

    allow_working_directory(name)
    backend, factory = backend_of(name), imported(name)
    registry = process_registry()
    if backend.id not in registry or type(backend) is not type(_existing(backend.id)):
        registry.register(backend.id, factory if callable(factory) else lambda: backend, source=name)
    return str(backend.id)


def _existing(backend_id: str) -> object:
    registry = process_registry()
    return None if registry.reason_absent(backend_id) is not None else registry.get(backend_id)


def allow_working_directory(name: str) -> None:
    """Let the module in MODULE:CLASS be imported from the working directory, if it is not found elsewhere.

    Child processes take over this path of modules.
    """
    module = name.partition(":")[0].partition(".")[0]
    folder = os.getcwd()
    if module.isidentifier() and folder not in sys.path and importlib.util.find_spec(module) is None:
        sys.path.append(folder)


# --- options of backends ----------------------------------------------------------------------------------------------


def _split_options(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the texts of --option by backend and name."""
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        backend, dot, option = name.rpartition(".")
        if not (separator and dot and backend and option):
            raise InvalidArgumentError(
                f"--option: expected BACKEND.NAME=VALUE, such as CpuAcc.NumberOfThreads=2, not {text!r}"
            )
        if option in options.setdefault(backend, {}):
            raise InvalidArgumentError(f"--option gives {name!r} more than once")
        options[backend][option] = value
    return options


def _options_of_backends(
    texts: Mapping[str, Mapping[str, str]], args: argparse.Namespace, measures_all: bool, checks_use: bool
) -> tuple[dict[str, dict[str, OptionValue]], dict[str, dict[str, OptionValue]]]:
    """Return the options of --option for the runtime, and those for networks; raise an error for invalid ones."""
    if not texts:
        return {}, {}
    with Runtime() if args.backend_path else nullcontext(default_runtime()) as runtime:
        _check_known(texts, runtime)
        if checks_use:
            _check_used(texts, args, runtime, measures_all)
        return sorted_options(texts, runtime, "--option")


def _check_known(options: Iterable[str], runtime: Runtime) -> None:
    for backend in options:
        if backend not in runtime.registry:
            raise UnknownBackendError(backend, runtime.registry.ids)


def _check_used(options: Iterable[str], args: argparse.Namespace, runtime: Runtime, measures_all: bool) -> None:
    """Raise `InvalidArgumentError` for options of a backend that the command does not use."""
    if getattr(args, "plan", None) is not None:
        return
    lists = [args.backends, *(ids for name in _LISTS_OF_LISTS for ids in getattr(args, name, []))]
    default = runtime.registry.available() if measures_all else runtime.registry.by_default()
    used_backends = {backend for ids in lists for backend in (default if ids is None else ids)}
    if AUTO in used_backends:
        return
    for backend in options:
        if backend not in used_backends:
            raise InvalidArgumentError(
                f"--option: backend {backend!r} is not used; name it with --backends "
                f"(used: {', '.join(sorted(used_backends))})"
            )


def options_of(texts: Sequence[str], backends: Sequence[Any]) -> dict[str, dict[str, OptionValue]]:
    """Return the values of --option by backend, for the backends that a command checks.

    Raises:
        InvalidArgumentError: an option is of another backend, is unknown, or has an invalid value.
    """
    texts_of_backend = _split_options(texts)
    known_backends = {str(backend.id): backend for backend in backends}
    unknown_id = next((name for name in texts_of_backend if name not in known_backends), None)
    if unknown_id is not None:
        expected = (
            f"backend is {[*known_backends][0]!r}"
            if len(known_backends) == 1
            else f"backends are {', '.join(map(repr, known_backends))}"
        )
        raise InvalidArgumentError(f"--option: the {expected}, not {unknown_id!r}")
    return {
        id: {name: option_value(known_backends[id], name, text, "--option") for name, text in texts.items()}
        for id, texts in texts_of_backend.items()
    }


# --- profiling --------------------------------------------------------------------------------------------------------


def _profiling_of(args: argparse.Namespace) -> tuple[ExternalProfilingOptions | None, Any]:
    """Return what --profile-to asks of the runtime, and a context that records a timeline and writes it."""
    target = args.profile_to
    if target is None:
        return None, nullcontext()
    if target.startswith("@") or _is_socket(target):
        return ExternalProfilingOptions(enable_profiling=True, timeline_enabled=True, socket=target), nullcontext()
    from interposer.profiling.profiles import SUFFIXES, Profile  # noqa: PLC0415 - most runs are not recorded

    suffix = Path(target).suffix.lower()
    if suffix not in (*SUFFIXES, CAPTURE):
        known_suffixes = ", ".join([*SUFFIXES, CAPTURE])
        raise InvalidArgumentError(
            f"--profile-to takes a file with the suffix {known_suffixes}, or the socket of a collector, not {target!r}"
        )
    check_writable("--profile-to", Path(target), sources_of(args))
    _check_apart(target, args)
    if suffix != CAPTURE:
        return None, Profile(target)
    options = ExternalProfilingOptions(
        enable_profiling=True, timeline_enabled=True, outgoing_capture_file=os.path.abspath(target), file_only=True
    )
    return options, nullcontext()


def _check_apart(target: str, args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` if the command writes another result to the profile's file."""
    for option, name in _TARGETS.items():
        path = getattr(args, name, None)
        if path is None or (name == "output" and args.command == "run"):  # where --output names a value
            continue
        if is_same_file(target, path):
            raise InvalidArgumentError(f"--profile-to and {option} name one file, {target!r}")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
