"""What a shell can complete on the command line: commands, options, and the values of options by their kind."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from interposer.cli.parsing import GLOBAL_FLAGS, LEVEL_OPTION, Parser
from interposer.cli.streams import LEVELS

__all__ = ["Candidate", "Kind", "candidates", "kind_of"]


class Kind(Enum):
    """What the value of an argument names, as far as a shell can complete it."""

    OTHER = auto()
    CHOICE = auto()
    FILE = auto()
    FOLDER = auto()
    MODEL = auto()
    INPUT = auto()
    BACKENDS = auto()
    BACKEND = auto()
    BACKEND_OPTION = auto()
    OPERATOR = auto()
    SCHEME = auto()


class Candidate(NamedTuple):
    """A text that can be the current word, and a short description of it, which may be empty."""

    text: str
    about: str = ""


_BY_NAME: Final = {
    "network": Kind.MODEL, "model": Kind.MODEL, "input": Kind.INPUT, "backends": Kind.BACKENDS, "mix": Kind.BACKENDS,
    "also": Kind.BACKENDS, "isolate": Kind.BACKENDS, "backend": Kind.BACKEND, "option": Kind.BACKEND_OPTION,
    "operator": Kind.OPERATOR, "scheme": Kind.SCHEME,
    "dir": Kind.FOLDER, "folder": Kind.FOLDER, "backend_path": Kind.FOLDER,
    "output": Kind.FILE, "profile_to": Kind.FILE, "data": Kind.FILE, "file": Kind.FILE, "compare": Kind.FILE,
}  # fmt: skip
"""The kinds of the arguments whose names are in `argparse.Action.dest`; the metavar decides about the others."""
_AUTO: Final = Candidate("auto", "the fastest backend, or a mix of several")
_LIBRARY: Final = re.compile(r"[A-Za-z0-9]+_([A-Za-z0-9]+)_backend\.(so(\.[0-9]+)*|py)")


def kind_of(action: argparse.Action) -> Kind:
    """Return what the value of an argument names."""
    if action.choices is not None:
        return Kind.CHOICE
    if action.dest == "output" and action.metavar == "NAME":  # an output of the network
        return Kind.OTHER
    if action.dest in _BY_NAME:
        return _BY_NAME[action.dest]
    return Kind.FILE if str(action.metavar).startswith("FILE") else Kind.OTHER


def candidates(
    words: Sequence[str], commands: Mapping[str, str], parser_of: Callable[[str], Parser]
) -> list[Candidate]:
    """Return what the last of the words after ``interposer`` can be.

    Args:
        words: the words of the command line up to the one that is being written, which may be empty.
        commands: the names of the commands with their descriptions.
        parser_of: returns the parser of a command.
    """
    *before, current = words or [""]
    command = next((word for word in before if word in commands), None)
    if command is None:
        return _commands(before, current, commands)
    parser = parser_of(command)
    action, prefix, current = _value_of(before, current, parser)
    if action is not None:
        return [Candidate(prefix + text, about) for text, about in _values(action, current)]
    if current.startswith("-"):
        return _options(before, current, parser)
    positional = _positional(before[before.index(command) + 1 :], parser)
    return list(_values(positional, current)) if positional is not None else []


def _commands(before: Sequence[str], current: str, commands: Mapping[str, str]) -> list[Candidate]:
    """Return the commands and global options that begin with the current word, and files, which are run."""
    if before and before[-1] == LEVEL_OPTION:
        return [Candidate(level) for level in LEVELS if level.startswith(current)]
    flags = [Candidate(flag) for flag in ("--help", "--version", LEVEL_OPTION, *GLOBAL_FLAGS)]
    all_commands = [Candidate(name, summary) for name, summary in commands.items()]
    matching = [
        candidate
        for candidate in (flags if current.startswith("-") else all_commands)
        if candidate.text.startswith(current)
    ]
    return matching or list(_files(current))


def _value_of(before: Sequence[str], current: str, parser: Parser) -> tuple[argparse.Action | None, str, str]:
    """Return the option whose value the current word is, the text before that value, and the value as far as written.

    The option is None if the word is no value.
    """
    if current.startswith("--") and "=" in current:
        flag, _, value = current.partition("=")
        return parser.action_named(flag), f"{flag}=", value
    action = parser.action_named(before[-1]) if before and before[-1].startswith("-") else None
    return (action, "", current) if action is not None and action.nargs != 0 else (None, "", current)


def _options(before: Sequence[str], current: str, parser: Parser) -> list[Candidate]:
    """Return the options that begin with the current word; those that were given are left out, unless they repeat."""
    matching = []
    for action in parser._actions:
        was_given = any(word.partition("=")[0] in action.option_strings for word in before)
        if was_given and not isinstance(action, argparse._AppendAction):
            continue
        about = re.split(r";|:? \{", action.help or "")[0]
        matching += [Candidate(flag, about) for flag in action.option_strings if flag.startswith(current)]
    return matching


def _positional(before: Sequence[str], parser: Parser) -> argparse.Action | None:
    """Return the positional argument that the next word is, after the words that follow the command."""
    count, is_value = 0, False
    for word in before:
        action = parser.action_named(word.partition("=")[0]) if word.startswith("-") else None
        count += action is None and not is_value
        is_value = action is not None and action.nargs != 0 and "=" not in word
    actions = parser._get_positional_actions()
    repeated = [action for action in actions if action.nargs in ("+", "*")]
    return actions[count] if count < len(actions) else repeated[-1] if repeated else None


# --- values -----------------------------------------------------------------------------------------------------------


def _values(action: argparse.Action, current: str) -> Iterator[Candidate]:
    kind = kind_of(action)
    if kind is Kind.CHOICE:
        yield from (Candidate(str(choice)) for choice in action.choices or () if str(choice).startswith(current))
    elif kind in (Kind.FILE, Kind.MODEL, Kind.FOLDER):
        yield from _files(current, only_folders=kind is Kind.FOLDER)
    elif kind is Kind.INPUT:
        name, separator, path = current.rpartition("=")
        yield from (Candidate(f"{name}{separator}{text}") for text, _ in _files(path))
    elif kind in (Kind.BACKENDS, Kind.BACKEND):
        yield from _backends(current, several=kind is Kind.BACKENDS)
    elif kind is Kind.BACKEND_OPTION:
        yield from (Candidate(f"{name}.") for name in _ids() if "." not in current and name.startswith(current))
    elif kind is Kind.OPERATOR:
        yield from _operators(current)
    elif kind is Kind.SCHEME:
        yield from _schemes(current)


def _files(current: str, only_folders: bool = False) -> Iterator[Candidate]:
    """Yield the files and folders whose path begins with the current word, folders with a slash at the end."""
    folder, name = os.path.split(current)
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(name) or (entry.name.startswith(".") and not name):
            continue
        path = os.path.join(folder, entry.name)
        if entry.is_dir():
            yield Candidate(f"{path}/")
        elif not only_folders:
            yield Candidate(path)


def _backends(current: str, several: bool) -> Iterator[Candidate]:
    """Yield lists of ids that begin as the written one, such as ``CpuAcc,CpuRef`` for ``CpuAcc,Cpu``."""
    chosen, separator, written = current.rpartition(",") if several else ("", "", current)
    if several and not chosen and "auto".startswith(written):
        yield _AUTO
    for name in _ids():
        if name.startswith(written) and name not in chosen.split(","):
            yield Candidate(f"{chosen}{separator}{name}")


def _ids() -> list[str]:
    """Return the ids of backends that are installed, by their entry points and the names of files in folders.

    No backend is loaded. The id of the backend in a file may differ from the file's name.
    """
    from interposer.core.config import settings  # noqa: PLC0415 - not needed for most words
    from interposer.core.entry_points import entry_points  # noqa: PLC0415

    folders = [str(Path(__file__).parents[1] / "native"), *(settings()["backend_path"].read() or ())]
    files = [name for folder in folders if os.path.isdir(folder) for name in sorted(os.listdir(folder))]
    libraries = [match[1] for name in files if (match := _LIBRARY.fullmatch(name))]
    installed_ids = (point.name for _, point in entry_points("interposer.backends"))
    return list(dict.fromkeys([*libraries, *installed_ids]))


def _operators(current: str) -> Iterator[Candidate]:
    import interposer.ops  # noqa: F401, PLC0415 - declares the operators
    from interposer.core.schema import registered_ops  # noqa: PLC0415

    yield from (Candidate(name) for name in registered_ops() if name.startswith(current))


def _schemes(current: str) -> Iterator[Candidate]:
    from interposer.quantization import SCHEMES, STORAGE  # noqa: PLC0415 - takes longer than the rest of the command

    yield from (Candidate(name) for name in (*SCHEMES, *STORAGE) if name.startswith(current))
