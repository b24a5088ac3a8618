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
    *words_before, current_word = words or [""]
    command = next((word for word in words_before if word in commands), None)
    if command is None:
        return _commands(words_before, current_word, commands)
    parser = parser_of(command)
    action, prefix, current_word = _value_of(words_before, current_word, parser)
    if action is not None:
        return [Candidate(prefix + text, about) for text, about in _values(action, current_word)]
    if current_word.startswith("-"):
        return _options(words_before, current_word, parser)
    positional = _positional(words_before[words_before.index(command) + 1 :], parser)
    return list(_values(positional, current_word)) if positional is not None else []


def _commands(words_before: Sequence[str], current: str, commands: Mapping[str, str]) -> list[Candidate]:
    """Return the commands and global options that begin with the current word, and files, which are run."""
    if words_before and words_before[-1] == LEVEL_OPTION:
        return [Candidate(level) for level in LEVELS if level.startswith(current)]
    flags = [Candidate(flag) for flag in ("--help", "--version", LEVEL_OPTION, *GLOBAL_FLAGS)]
    all_commands = [Candidate(name, summary) for name, summary in commands.items()]
    matches = [
        candidate
        for candidate in (flags if current.startswith("-") else all_commands)
        if candidate.text.startswith(current)
    ]
    return matches or list(_files(current))


def _value_of(
    words_before: Sequence[str], current_word: str, parser: Parser
) -> tuple[argparse.Action | None, str, str]:
    """Return the option whose value the current word is, the text before that value, and the value as far as written.

    The option is None if the word is no value.
    """
    if current_word.startswith("--") and "=" in current_word:
        flag, _, value = current_word.partition("=")
        return parser.action_named(flag), f"{flag}=", value
    action = parser.action_named(words_before[-1]) if words_before and words_before[-1].startswith("-") else None
    return (action, "", current_word) if action is not None and action.nargs != 0 else (None, "", current_word)


def _options(words_before: Sequence[str], current_word: str, parser: Parser) -> list[Candidate]:
    """Return the options that begin with the current word; those that were given are left out, unless they repeat."""
    matches = []
    for action in parser._actions:
        was_given = any(word.partition("=")[0] in action.option_strings for word in words_before)
        if was_given and not isinstance(action, argparse._AppendAction):
            continue
        about = re.split(r";|:? \{", action.help or "")[0]
        matches += [Candidate(flag, about) for flag in action.option_strings if flag.startswith(current_word)]
    return matches


def _positional(words_before: Sequence[str], parser: Parser) -> argparse.Action | None:
    """Return the positional argument that the next word is, after the words that follow the command."""
    count, is_value = 0, False
    for word in words_before:
        action = parser.action_named(word.partition("=")[0]) if word.startswith("-") else None
        count += action is None and not is_value
        is_value = action is not None and action.nargs != 0 and "=" not in word
    actions = parser._get_positional_actions()
    repeated_actions = [action for action in actions if action.nargs in ("+", "*")]
    return actions[count] if count < len(actions) else repeated_actions[-1] if repeated_actions else None


# --- values -----------------------------------------------------------------------------------------------------------


def _values(action: argparse.Action, current_word: str) -> Iterator[Candidate]:
    kind = kind_of(action)
    if kind is Kind.CHOICE:
        yield from (Candidate(str(choice)) for choice in action.choices or () if str(choice).startswith(current_word))
    elif kind in (Kind.FILE, Kind.MODEL, Kind.FOLDER):
        yield from _files(current_word, only_folders=kind is Kind.FOLDER)
    elif kind is Kind.INPUT:
        name, separator, path = current_word.rpartition("=")
        yield from (Candidate(f"{name}{separator}{text}") for text, _ in _files(path))
    elif kind in (Kind.BACKENDS, Kind.BACKEND):
        yield from _backends(current_word, allows_several=kind is Kind.BACKENDS)
    elif kind is Kind.BACKEND_OPTION:
        yield from (
            Candidate(f"{name}.") for name in _ids() if "." not in current_word and name.startswith(current_word)
        )
    elif kind is Kind.OPERATOR:
        yield from _operators(current_word)
    elif kind is Kind.SCHEME:
        yield from _schemes(current_word)


def _files(current_word: str, only_folders: bool = False) -> Iterator[Candidate]:
    """Yield the files and folders whose path begins with the current word, folders with a slash at the end."""
    folder, name = os.path.split(current_word)
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


def _backends(current_word: str, allows_several: bool) -> Iterator[Candidate]:
    """Yield lists of ids that begin as the written one, such as ``CpuAcc,CpuRef`` for ``CpuAcc,Cpu``."""
    other_ids, separator, written_id = current_word.rpartition(",") if allows_several else ("", "", current_word)
    if allows_several and not other_ids and "auto".startswith(written_id):
        yield _AUTO
    for name in _ids():
        if name.startswith(written_id) and name not in other_ids.split(","):
            yield Candidate(f"{other_ids}{separator}{name}")


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


def _operators(current_word: str) -> Iterator[Candidate]:
    import interposer.ops  # noqa: F401, PLC0415 - declares the operators
    from interposer.core.schema import registered_ops  # noqa: PLC0415

    yield from (Candidate(name) for name in registered_ops() if name.startswith(current_word))


def _schemes(current_word: str) -> Iterator[Candidate]:
    from interposer.quantization import SCHEMES, STORAGE  # noqa: PLC0415 - takes longer than the rest of the command

    yield from (Candidate(name) for name in (*SCHEMES, *STORAGE) if name.startswith(current_word))
