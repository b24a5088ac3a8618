"""Settings: an argument of the caller, else an environment variable, else a key in ``interposer.toml``.

The file is read from the working directory, from the user's configuration folder, which is
``$XDG_CONFIG_HOME/interposer`` or ``~/.config/interposer``, and from those of the machine, which are the folders
``interposer`` in ``$XDG_CONFIG_DIRS`` or ``/etc/xdg``. If several files have a key, the first one's value is used.
The table ``cli`` of the file has defaults for the options of the command line, which checks them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from interposer.core.errors import ConfigError, did_you_mean
from interposer.core.files import check_regular
from interposer.core.records import dataclass

__all__ = [
    "BACKEND_ALLOW_LIST",
    "BACKEND_PATH",
    "CACHE_DIR",
    "CHECK_BACKENDS",
    "COMMAND_LINE",
    "COUNT",
    "DIRECT_CALLS",
    "DISABLED_BACKENDS",
    "FILE_NAME",
    "FLAG",
    "FOLDERS",
    "ISOLATE",
    "ISOLATION_DEADLINE_SECONDS",
    "ISOLATION_MAX_RESTARTS",
    "NAMES",
    "NUM_THREADS",
    "PATH",
    "PROBE_SECONDS",
    "SECONDS",
    "UNLOAD_LIBRARIES",
    "Kind",
    "Setting",
    "check_settings",
    "command_line_tables",
    "config_files",
    "disabled_backends",
    "settings",
    "thread_budget",
    "unknown_variables",
]

DISABLED_BACKENDS: Final = "INTERPOSER_DISABLED_BACKENDS"
"""Environment variable: ids of backends to disable, separated by commas."""
BACKEND_PATH: Final = "INTERPOSER_BACKEND_PATH"
"""Environment variable: absolute paths of folders with dynamic backends, separated by colons; empty disables them."""
BACKEND_ALLOW_LIST: Final = "INTERPOSER_BACKEND_ALLOW_LIST"
"""Environment variable: a file with the SHA-256 of every dynamic backend that may be loaded, in `sha256sum` format."""
PROBE_SECONDS: Final = "INTERPOSER_PROBE_SECONDS"
"""Environment variable: seconds that the trial load of a dynamic backend may take; 0 loads it without a trial."""
UNLOAD_LIBRARIES: Final = "INTERPOSER_UNLOAD_LIBRARIES"
"""Environment variable: whether a dynamic backend's library is unloaded when its last user is gone: yes or no."""
ISOLATE: Final = "INTERPOSER_ISOLATE"
"""Environment variable: ids of backends to run in child processes, separated by commas."""
ISOLATION_DEADLINE_SECONDS: Final = "INTERPOSER_ISOLATION_DEADLINE_SECONDS"
"""Environment variable: seconds that one call of an isolated backend may take; 0 means no limit."""
ISOLATION_MAX_RESTARTS: Final = "INTERPOSER_ISOLATION_MAX_RESTARTS"
"""Environment variable: how often the process of an isolated backend may be restarted after a failure."""
NUM_THREADS: Final = "INTERPOSER_NUM_THREADS"
"""Environment variable: threads that runs and backends may use in total; 0 means one per available processor."""
CHECK_BACKENDS: Final = "INTERPOSER_CHECK_BACKENDS"
"""Environment variable: whether runs of dynamic backends are checked for forbidden memory writes: yes or no."""
DIRECT_CALLS: Final = "INTERPOSER_DIRECT_CALLS"
"""Environment variable: whether calls of a network that one plug-in runs may skip most Python code: yes or no."""
CACHE_DIR: Final = "INTERPOSER_CACHE_DIR"
"""Environment variable: the cache folder, by default `~/.cache/interposer`; an empty value disables caching."""

FILE_NAME: Final = "interposer.toml"
COMMAND_LINE: Final = "cli"
"""The key of the table with defaults for the options of the command line."""
_OF_MACHINE: Final = "/etc/xdg"
_PREFIX: Final = "INTERPOSER_"
_CACHE_KEY: Final = "cache_dir"
_CORES: Final = Path("/sys/devices/system/cpu")
_CGROUP_2: Final = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_1: Final = Path("/sys/fs/cgroup/cpu")
T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """The type of a setting's value, such as a number or a list of ids: how to read it from text and from TOML.

    `from_text` converts the text of an environment variable, and `from_file` converts a TOML value. Both raise
    ValueError if the value is not valid, and `expected` describes valid values in the error message. An empty
    environment variable has the value `empty`; None means "not set".
    """

    expected: str
    from_text: Callable[[str], T]
    from_file: Callable[[Any], T]
    empty: T | None = None


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting: its key in the settings file, its environment variable, and the type of its value.

    If `for_user` is True, the key is only allowed in the files of the user and of the machine, because a file in the
    working directory may come from an untrusted source.
    """

    key: str
    variable: str
    kind: Kind[T]
    for_user: bool = False

    def read(self, value: T | None = None) -> T | None:
        """Return `value` unless it is None, else the environment variable, else the value in the files, else None.

        Raises:
            ConfigError: the value is not valid, or a settings file cannot be read.
        """
        if value is not None:
            return value
        from_environment = self._from_environment()
        return from_environment if from_environment is not None else self._from_files()

    def _from_environment(self) -> T | None:
        variable_text = os.environ.get(self.variable)
        if variable_text is None:
            return None
        if not variable_text.strip():
            return self.kind.empty
        return self._converted(self.kind.from_text, variable_text, self.variable)

    def _from_files(self) -> T | None:
        for path, content in _files():
            if self.key in content:
                return self._converted(self.kind.from_file, content[self.key], f"{path}: {self.key}")
        return None

    def _converted(self, convert: Callable[[Any], T], value: Any, source: str) -> T:
        try:
            return convert(value)
        except (ValueError, TypeError, OverflowError, RuntimeError):
            raise ConfigError(f"{source} is {value!r}; expected {self.kind.expected}", source=source) from None


# --- kinds of settings ------------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _names(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError
    return tuple(names)


def _at_least_zero(setting: str | float) -> float:
    number = float(setting)
    if not 0 <= number < math.inf or isinstance(setting, bool):
        raise ValueError
    return number


def _count(value: str | float) -> int:
    number = int(value)
    if number < 0 or isinstance(value, bool | float):
        raise ValueError
    return number


def _answer(text: str) -> bool:
    answers = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
    if text.strip().lower() not in answers:
        raise ValueError
    return answers[text.strip().lower()]


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _folders(value: str | list[str]) -> tuple[str, ...]:
    return tuple(value.split(":")) if isinstance(value, str) else _names(value)


def _path(value: Any) -> Path:
    path = Path(value).expanduser()
    if not path.is_absolute():
        raise ValueError
    return path


NAMES: Final = Kind[tuple[str, ...]]("names, in a variable separated by commas", _split, _names, empty=())
SECONDS: Final = Kind[float]("a number of seconds that is not negative", _at_least_zero, _at_least_zero)
COUNT: Final = Kind[int]("a whole number that is not negative", _count, _count)
FLAG: Final = Kind[bool]("yes or no (true or false in a file)", _answer, _bool)
FOLDERS: Final = Kind[tuple[str, ...]](
    "absolute paths of folders, in a text separated by colons", _folders, _folders, empty=()
)
PATH: Final = Kind[Path]("the absolute path of a file", _path, _path)


# --- the settings -----------------------------------------------------------------------------------------------------

_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    Setting("disabled_backends", DISABLED_BACKENDS, NAMES),
    Setting("backend_path", BACKEND_PATH, FOLDERS, for_user=True),
    Setting("backend_allow_list", BACKEND_ALLOW_LIST, PATH, for_user=True),
    Setting("probe_seconds", PROBE_SECONDS, SECONDS, for_user=True),
    Setting("unload_libraries", UNLOAD_LIBRARIES, FLAG),
    Setting("check_backends", CHECK_BACKENDS, FLAG),
    Setting("direct_calls", DIRECT_CALLS, FLAG),
    Setting("isolate", ISOLATE, NAMES),
    Setting("isolation_deadline_seconds", ISOLATION_DEADLINE_SECONDS, SECONDS),
    Setting("isolation_max_restarts", ISOLATION_MAX_RESTARTS, COUNT),
    Setting("num_threads", NUM_THREADS, COUNT),
)


def settings() -> Mapping[str, Setting[Any]]:
    """Return the settings that the file may hold, by their keys."""
    return {setting.key: setting for setting in _SETTINGS}


def check_settings() -> None:
    """Read every setting, so that an invalid value is reported early, even if no loaded backend reads it.

    Raises:
        ConfigError: a value is not valid, or a settings file cannot be read.
    """
    for setting in _SETTINGS:
        setting.read()


def unknown_variables() -> dict[str, str]:
    """Return the environment variables that look like a misspelled setting, each with a hint at the similar setting.

    Variables that resemble no setting are omitted, since they may belong to another program.
    """
    known_variables = {CACHE_DIR, *(setting.variable for setting in _SETTINGS)}
    unknown_names = [name for name in os.environ if name.startswith(_PREFIX) and name not in known_variables]
    hints = {
        name: did_you_mean(name.removeprefix(_PREFIX), (variable.removeprefix(_PREFIX) for variable in known_variables))
        for name in unknown_names
    }
    return {name: hint.replace("mean '", f"mean '{_PREFIX}") for name, hint in hints.items() if hint}


def disabled_backends() -> frozenset[str]:
    """Return the ids of the backends that the environment or the settings file disables."""
    return frozenset(settings()["disabled_backends"].read() or ())


# --- the file ---------------------------------------------------------------------------------------------------------


def thread_budget(number: int | None = None) -> int:
    """Return how many threads runs and backends may use in total: `number`, else the setting ``num_threads``.

    If neither is set, or is 0, the result is the number of processors that this process may use, without the little
    ones of a processor with big and little cores, limited by the CPU quota of its control group.

    Raises:
        ConfigError: the setting is not valid, or a settings file cannot be read.
    """
    configured_threads = settings()["num_threads"].read(number)
    return int(configured_threads) if configured_threads else min(_processors(), _quota())


def _processors() -> int:
    """Return the number of big cores that this process may use: those with half of the highest capacity and more."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    capacities = [_capacity(core) for core in os.sched_getaffinity(0)]
    return sum(2 * capacity >= max(capacities) for capacity in capacities)


def _capacity(core: int) -> int:
    """Return the capacity of a core as Linux reports it, such as 1024 for a big one; 0 if it reports none."""
    text = _first_line(_CORES / f"cpu{core}" / "cpu_capacity")
    return int(text) if text.isdigit() else 0


def _quota() -> int:
    """Return the control group's CPU quota (version 2, else 1) in processors, rounded up; `sys.maxsize` if none."""
    try:
        quota, period = _CGROUP_2.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        quota, period = _first_line(_CGROUP_1 / "cpu.cfs_quota_us"), _first_line(_CGROUP_1 / "cpu.cfs_period_us")
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return sys.maxsize
    return max(1, -(-int(quota) // int(period)))


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def config_files() -> tuple[Path, ...]:
    """Return the paths of the settings files, which need not exist.

    The first is in the working directory. Those after it are in the user's folder and in the folders of the machine.
    """
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    home = folder if os.path.isabs(folder) else os.path.expanduser("~/.config")
    return _config_files(home, os.environ.get("XDG_CONFIG_DIRS") or _OF_MACHINE)


@lru_cache(maxsize=4)
def _config_files(home: str, of_machine: str) -> tuple[Path, ...]:
    trusted_folders = [path for path in (home, *of_machine.split(":")) if os.path.isabs(path)]
    return (Path(FILE_NAME), *(Path(path, "interposer", FILE_NAME) for path in dict.fromkeys(trusted_folders)))


def _files() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    local_file, *trusted_files = config_files()
    yield local_file, _content(local_file, for_user=False)
    for path in trusted_files:
        yield path, _content(path, for_user=True)


def _content(path: Path, *, for_user: bool) -> Mapping[str, Any]:
    try:
        check_regular(path)
        with open(path, "rb", buffering=0) as file:
            content = file.readall()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        if isinstance(error, PermissionError) and not os.path.lexists(path):  # HOME is of another user, as after su
            return {}
        raise ConfigError(f"{path} cannot be read: {error.strerror}", source=str(path)) from error
    import tomllib  # noqa: PLC0415 - only needed if there is a settings file

    try:
        settings_by_key = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", source=str(path)) from error
    for key in settings_by_key:
        if key != COMMAND_LINE:
            _check_key(path, key, for_user=for_user)
    return settings_by_key


def command_line_tables() -> list[tuple[Path, bool, Mapping[str, Any]]]:
    """Return the tables with defaults for the command line, the one of the working directory first.

    Each is given as the file, whether that is the user's or the machine's, and the content of its table ``cli``, which
    is not checked.

    Raises:
        ConfigError: a file cannot be read, or has a key ``cli`` that is no table.
    """
    tables: list[tuple[Path, bool, Mapping[str, Any]]] = []
    for number, (path, content) in enumerate(_files()):
        table = content.get(COMMAND_LINE, {})
        if not isinstance(table, dict):
            raise ConfigError(
                f"{path}: {COMMAND_LINE} is {table!r}; expected a table, such as [{COMMAND_LINE}.run]", source=str(path)
            )
        tables.append((path, number > 0, table))
    return tables


def _check_key(path: Path, key: str, *, for_user: bool) -> None:
    known_settings = settings()
    if key == _CACHE_KEY:
        raise ConfigError(f"{path} has the key {key!r}, which only the variable {CACHE_DIR} may set", source=str(path))
    if key not in known_settings:
        hint = did_you_mean(key, [*known_settings, COMMAND_LINE])
        raise ConfigError(
            f"{path} has an unknown key {key!r}{hint} (known: {', '.join(known_settings)})", source=str(path)
        )
    if known_settings[key].for_user and not for_user:
        allowed_places = " or ".join([known_settings[key].variable, *map(str, config_files()[1:])])
        raise ConfigError(f"{path} has the key {key!r}, which only {allowed_places} may set", source=str(path))
