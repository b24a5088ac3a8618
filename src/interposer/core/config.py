"""Settings: what the caller says, else the environment, else ``interposer.toml``.

The file is looked for in the working directory, and then in the user's configuration folder, which is
``~/.config/interposer`` or ``$XDG_CONFIG_HOME/interposer``; of a key that both have, the first counts.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from interposer.core.errors import ConfigError, did_you_mean

__all__ = [
    "BACKEND_ALLOW_LIST",
    "BACKEND_PATH",
    "CACHE_DIR",
    "CHECK_BACKENDS",
    "COUNT",
    "DISABLED_BACKENDS",
    "FILE_NAME",
    "FLAG",
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
    "config_files",
    "disabled_backends",
    "settings",
    "thread_budget",
    "unknown_variables",
]

DISABLED_BACKENDS: Final = "INTERPOSER_DISABLED_BACKENDS"
"""Environment variable: ids of backends to leave out, separated by commas."""
BACKEND_PATH: Final = "INTERPOSER_BACKEND_PATH"
"""Environment variable: absolute paths of folders with dynamic backends, separated by colons; none disables them."""
BACKEND_ALLOW_LIST: Final = "INTERPOSER_BACKEND_ALLOW_LIST"
"""Environment variable: a file with the SHA-256 of every dynamic backend that may be loaded, as from `sha256sum`."""
PROBE_SECONDS: Final = "INTERPOSER_PROBE_SECONDS"
"""Environment variable: how long a dynamic backend may take when it is tried out; 0 loads it without a trial."""
UNLOAD_LIBRARIES: Final = "INTERPOSER_UNLOAD_LIBRARIES"
"""Environment variable: whether the library of a dynamic backend leaves the process with its last user: yes or no."""
ISOLATE: Final = "INTERPOSER_ISOLATE"
"""Environment variable: ids of backends to run in child processes, separated by commas."""
ISOLATION_DEADLINE_SECONDS: Final = "INTERPOSER_ISOLATION_DEADLINE_SECONDS"
"""Environment variable: how long one call of an isolated backend may take; 0 waits for ever."""
ISOLATION_MAX_RESTARTS: Final = "INTERPOSER_ISOLATION_MAX_RESTARTS"
"""Environment variable: how often the process of an isolated backend is started again after an error."""
NUM_THREADS: Final = "INTERPOSER_NUM_THREADS"
"""Environment variable: how many threads runs and backends may use together; as many as there are processors, if 0."""
CHECK_BACKENDS: Final = "INTERPOSER_CHECK_BACKENDS"
"""Environment variable: whether runs of dynamic backends are watched for writes where they must not: yes or no."""
CACHE_DIR: Final = "INTERPOSER_CACHE_DIR"
"""Environment variable: the folder for what may be forgotten, `~/.cache/interposer` as a rule; empty for none."""

FILE_NAME: Final = "interposer.toml"
_PREFIX: Final = "INTERPOSER_"
_CGROUP_2: Final = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_1: Final = Path("/sys/fs/cgroup/cpu")
T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """How the value of a setting is written: `wanted` says it in words.

    `from_text` reads a variable of the environment, `from_file` a TOML value; both raise ValueError for what is none.
    A text that is empty says nothing, unless `empty` is something.
    """

    wanted: str
    from_text: Callable[[str], T]
    from_file: Callable[[Any], T]
    empty: T | None = None


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting: its key in the file, its variable in the environment, and how both are written.

    One that is `for_user` may stand only in the file in the user's configuration folder: a file in a working directory
    may have come from anybody.
    """

    key: str
    variable: str
    kind: Kind[T]
    for_user: bool = False

    def read(self, value: T | None = None) -> T | None:
        """`given`, unless it is None; else what environment or file say; None if nobody says anything.

        Raises:
            ConfigError: what is said cannot be meant, or a file cannot be read.
        """
        if value is not None:
            return value
        said = self._from_environment()
        return said if said is not None else self._from_files()

    def _from_environment(self) -> T | None:
        text = os.environ.get(self.variable)
        if text is None:
            return None
        if not text.strip():
            return self.kind.empty
        return self._taken(self.kind.from_text, text, self.variable)

    def _from_files(self) -> T | None:
        for path, content in _files():
            if self.key in content:
                return self._taken(self.kind.from_file, content[self.key], f"{path}: {self.key}")
        return None

    def _taken(self, take: Callable[[Any], T], value: Any, source: str) -> T:
        try:
            return take(value)
        except (ValueError, TypeError, OverflowError, RuntimeError):
            raise ConfigError(f"{source} is {value!r}; expected {self.kind.wanted}", source=source) from None


# --- kinds of settings ------------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _listed(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError
    return tuple(names)


def _at_least_zero(value: str | float) -> float:
    number = float(value)
    if not 0 <= number < math.inf or isinstance(value, bool):
        raise ValueError
    return number


def _whole(value: str | float) -> int:
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


def _path(value: Any) -> Path:
    result = Path(value).expanduser()
    if not result.is_absolute():
        raise ValueError
    return result


NAMES: Final = Kind[tuple[str, ...]]("names, in a variable separated by commas", _split, _listed, empty=())
SECONDS: Final = Kind[float]("a number of seconds that is not negative", _at_least_zero, _at_least_zero)
COUNT: Final = Kind[int]("a whole number that is not negative", _whole, _whole)
FLAG: Final = Kind[bool]("yes or no (true or false in a file)", _answer, _bool)
PATH: Final = Kind[Path]("the absolute path of a file", _path, _path)


# --- the settings -----------------------------------------------------------------------------------------------------

_SETTINGS: Final[tuple[Setting[Any], ...]] = (
    Setting("disabled_backends", DISABLED_BACKENDS, NAMES),
    Setting("backend_allow_list", BACKEND_ALLOW_LIST, PATH, for_user=True),
    Setting("probe_seconds", PROBE_SECONDS, SECONDS, for_user=True),
    Setting("unload_libraries", UNLOAD_LIBRARIES, FLAG),
    Setting("check_backends", CHECK_BACKENDS, FLAG),
    Setting("isolate", ISOLATE, NAMES),
    Setting("isolation_deadline_seconds", ISOLATION_DEADLINE_SECONDS, SECONDS),
    Setting("isolation_max_restarts", ISOLATION_MAX_RESTARTS, COUNT),
    Setting("num_threads", NUM_THREADS, COUNT),
)


def settings() -> Mapping[str, Setting[Any]]:
    """Return the settings that the file may hold, by their keys."""
    return {setting.key: setting for setting in _SETTINGS}


def check_settings() -> None:
    """Read every setting, as a wrong one may otherwise be noticed late or only by the backend that needs it.

    Raises:
        ConfigError: a variable or a file says what cannot be meant.
    """
    for setting in _SETTINGS:
        setting.read()


def unknown_variables() -> dict[str, str]:
    """Variables of the environment that look like a setting and are none, each with the nearest setting as a hint.

    A variable without a near setting is left out: another program may have given it a meaning.
    """
    known = {CACHE_DIR, BACKEND_PATH, *(setting.variable for setting in _SETTINGS)}
    strange = [name for name in os.environ if name.startswith(_PREFIX) and name not in known]
    hints = {
        name: did_you_mean(name.removeprefix(_PREFIX), (item.removeprefix(_PREFIX) for item in known))
        for name in strange
    }
    return {name: hint.replace("mean '", f"mean '{_PREFIX}") for name, hint in hints.items() if hint}


def disabled_backends() -> frozenset[str]:
    """Return the ids that environment or file leave out."""
    return frozenset(settings()["disabled_backends"].read() or ())


# --- the file ---------------------------------------------------------------------------------------------------------


def thread_budget(number: int | None = None) -> int:
    """Return how many threads runs and backends may use together: what is given, or the setting ``num_threads``.

    Where nobody says anything, the processors that the process may run on, as far as its control group's quota allows.
    """
    said = settings()["num_threads"].read(number)
    return int(said) if said else min(_processors(), _quota())


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota() -> int:
    """Return the processors' worth of time that the control group (version 2, else 1) allows, rounded up."""
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
    """Return where the file may be, whether it is there or not: in the working directory, and in the user's folder."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    home = folder if os.path.isabs(folder) else os.path.expanduser("~/.config")
    here = Path(FILE_NAME)
    return (here, Path(home, "interposer", FILE_NAME)) if os.path.isabs(home) else (here,)


def _files() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    here, *users = config_files()
    yield here, _content(here, for_user=False)
    for path in users:
        yield path, _content(path, for_user=True)


def _content(path: Path, *, for_user: bool) -> Mapping[str, Any]:
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", source=str(path)) from error
    import tomllib  # noqa: PLC0415 - only where there is a file

    try:
        result = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {error}", source=str(path)) from error
    for key in result:
        _check_key(path, key, for_user=for_user)
    return result


def _check_key(path: Path, key: str, *, for_user: bool) -> None:
    known = settings()
    if key not in known:
        near = did_you_mean(key, known)
        raise ConfigError(f"{path} has an unknown key {key!r}{near} (known: {', '.join(known)})", source=str(path))
    if known[key].for_user and not for_user:
        places = " or ".join([known[key].variable, *map(str, config_files()[1:])])
        raise ConfigError(f"{path} has the key {key!r}, which only {places} may set", source=str(path))
