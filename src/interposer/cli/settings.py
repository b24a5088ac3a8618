"""Defaults for options of the command line, which the table ``[cli]`` of ``interposer.toml`` has.

``[cli]`` holds options of all commands that have them, and ``[cli.run]`` options of one command::

    [cli]
    log-level = "info"

    [cli.run]
    backends = ["CpuAcc", "CpuRef"]
    option = { "CpuAcc.NumberOfThreads" = 2 }

A default has no effect if the command line has the option. A file in the working directory may come from somebody else,
so it cannot set options that name files, load code, lift limits, or open the server to others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from interposer.cli.completing import Kind, kind_of
from interposer.cli.parsing import Parser, parsed
from interposer.core.config import COMMAND_LINE, command_line_tables, config_files
from interposer.core.errors import ConfigError, did_you_mean
from interposer.core.records import dataclass

__all__ = ["Default", "arguments_with_defaults", "defaults_of"]

_NEVER: Final = ("help", "version", "no-settings", "debug")
"""Options that no file sets."""
_FOR_USER: Final = (
    "backend-path", "control", "drain", "host", "isa", "isolate", "limit-bytes", "limit-operations", "listen",
    "max-body", "metrics-port", "option", "profile-to", "queue", "shared-memory", "socket", "stand-in", "timeout",
    "workers",
)  # fmt: skip
"""Options that only the user's file sets, in addition to those that take a file or a folder."""
_PATHS: Final = (Kind.FILE, Kind.FOLDER, Kind.MODEL, Kind.INPUT)


@dataclass(frozen=True)
class Default:
    """A default from a settings file: the option's argument, the words that set it, and where it is written."""

    action: argparse.Action
    words: tuple[str, ...]
    source: str

    @property
    def flag(self) -> str:
        """The option as it is written on the command line."""
        return self.action.option_strings[-1]


def defaults_of(
    command: str, parser: Parser, words: Sequence[str], parsers: Callable[[], Mapping[str, Parser]]
) -> list[Default]:
    """Return the defaults for the options of a command that its words neither have nor exclude.

    `parsers` returns the parsers of all commands by name; it is called for keys that this command does not have.

    Raises:
        ConfigError: a settings file cannot be read, or has a key or a value that it cannot have.
    """
    decided_ids = _decided(parser, words)
    defaults: dict[int, Default] = {}
    for path, is_user_file, table in command_line_tables():
        for action, default in _defaults_in(table, str(path), command, parser, parsers, is_user_file):
            if id(action) not in decided_ids:
                defaults.setdefault(id(action), default)
    return list(defaults.values())


def _decided(parser: Parser, words: Sequence[str]) -> set[int]:
    """Return the `id` of the arguments that the words give, and of those that exclude these."""
    decided_ids = {id(action) for action in _given(parser, words)}
    for group in parser._mutually_exclusive_groups:
        members = {id(action) for action in group._group_actions}
        if not members.isdisjoint(decided_ids):
            decided_ids |= members
    return decided_ids


def _given(parser: Parser, words: Sequence[str]) -> Iterator[argparse.Action]:
    """Yield the arguments that words give; words without an option are those of positional arguments in order."""
    positionals = iter(parser._get_positional_actions())
    is_value = False
    for number, word in enumerate(words):
        if word == "--":
            yield from (action for action, _ in zip(positionals, words[number + 1 :], strict=False))
            return
        if word.startswith("-") and word != "-":
            action, has_value = _option_of(parser, word)
            is_value = action is not None and action.nargs != 0 and not has_value
            yield from filter(None, [action])
        elif is_value:
            is_value = False
        else:
            yield from islice(positionals, 1)


def _option_of(parser: Parser, word: str) -> tuple[argparse.Action | None, bool]:
    """Return the argument of an option (``-s x=3``, ``-sx=3`` and ``--shape=x=3``) and if its value is in the word."""
    action = parser.action_named(word)
    if action is not None:
        return action, False
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    return parser.action_named(name), True


def _defaults_in(
    table: Mapping[str, Any],
    path: str,
    command: str,
    parser: Parser,
    parsers: Callable[[], Mapping[str, Parser]],
    is_user_file: bool,
) -> Iterator[tuple[argparse.Action, Default]]:
    """Yield the defaults in one file, those for this command alone first."""
    for name, content in table.items():
        if isinstance(content, dict) and _is_command(name, content, path, parsers) and _flag(name) == command:
            for key, value in content.items():
                source = f"{path}: [{COMMAND_LINE}.{name}] {key}"
                yield _default(_action(parser, key, source), key, value, source, is_user_file)
    for key, value in table.items():
        source = f"{path}: [{COMMAND_LINE}] {key}"
        if not isinstance(value, dict) or _has_option(parser, key):
            if _has_option(parser, key):
                yield _default(_action(parser, key, source), key, value, source, is_user_file)
            else:
                _check_other(key, source, parsers)


def _is_command(name: str, content: Mapping[str, Any], path: str, parsers: Callable[[], Mapping[str, Parser]]) -> bool:
    """Return True if a key is a command; raise `ConfigError` if it is neither that nor an option that takes a table."""
    commands = parsers()
    if _flag(name) in commands:
        for key in content:
            _action(commands[_flag(name)], key, f"{path}: [{COMMAND_LINE}.{name}] {key}")
        return True
    _check_other(name, f"{path}: [{COMMAND_LINE}] {name}", parsers)
    return False


def _check_other(key: str, source: str, parsers: Callable[[], Mapping[str, Parser]]) -> None:
    """Raise `ConfigError` unless a key is an option of some command; `source` names the file and the key."""
    commands = parsers()
    if _flag(key) in commands:
        raise ConfigError(f"{source} is the name of a command; expected a table [{COMMAND_LINE}.{key}]", source=source)
    if any(_has_option(parser, key) for parser in commands.values()):
        return
    known_names = [*commands, *dict.fromkeys(name for parser in commands.values() for name in _names(parser))]
    raise ConfigError(
        f"{source}: there is no such command, and no command has this option{did_you_mean(_flag(key), known_names)}",
        source=source,
    )


def _flag(key: str) -> str:
    return key.replace("_", "-")


def _names(parser: Parser) -> list[str]:
    flags = (flag.removeprefix("--") for action in parser._actions for flag in action.option_strings)
    return [flag for flag in flags if not flag.startswith("-") and flag not in _NEVER]


def _has_option(parser: Parser, key: str) -> bool:
    return _flag(key) in _names(parser)


def _action(parser: Parser, key: str, source: str) -> argparse.Action:
    action = parser.action_named(f"--{_flag(key)}") if _has_option(parser, key) else None
    if action is None:
        names = _names(parser)
        command = parser.prog.partition(" ")[2]
        raise ConfigError(
            f"{source}: {command} has no such option{did_you_mean(_flag(key), names)} (known: {', '.join(names)})",
            source=source,
        )
    return action


def _default(
    action: argparse.Action, key: str, value: Any, source: str, is_user_file: bool
) -> tuple[argparse.Action, Default]:
    if not is_user_file:
        _check_local(action, _flag(key), value, source)
    return action, Default(action, tuple(_words(action, f"--{_flag(key)}", value, source)), source)


def _check_local(action: argparse.Action, name: str, value: Any, source: str) -> None:
    """Raise `ConfigError` if only the user's own file may have this default."""
    loads_code = kind_of(action) in (Kind.BACKENDS, Kind.BACKEND) and any(map(_loads_code, _texts(value)))
    if name not in _FOR_USER and kind_of(action) not in _PATHS and not loads_code:
        return
    places = " or ".join(["the command line", *map(str, config_files()[1:])])
    subject = f"{value!r} loads code, which" if loads_code else "this option"
    raise ConfigError(f"{source}: {subject} only {places} may give", source=source)


def _loads_code(backends: str) -> bool:
    """Return True if one of some backends, separated by commas, may be named MODULE:CLASS."""
    if ":" not in backends:
        return False
    from interposer.backend.devices import is_address  # noqa: PLC0415 - seldom needed, and slow to import

    return any(":" in name and not is_address(name.strip()) for name in backends.split(","))


def _words(action: argparse.Action, flag: str, value: Any, source: str) -> Iterator[str]:
    """Yield the words of a command line that set an option to the value of a TOML key."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        if not isinstance(value, bool):
            raise ConfigError(f"{source} is {value!r}; expected true or false", source=source)
        if value:
            yield flag
        elif isinstance(action, argparse.BooleanOptionalAction):
            yield f"--no-{flag.removeprefix('--')}"
        return
    if isinstance(value, bool) or action.nargs not in (None, "+"):
        raise ConfigError(f"{source} is {value!r}; the option takes another value", source=source)
    texts = list(_texts(value))
    if _is_repeated(action):
        yield from (f"{flag}={text}" for text in texts)
    else:
        yield f"{flag}={','.join(texts)}"


def _is_repeated(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _texts(value: Any, name: str = "") -> Iterator[str]:
    """Yield a value as the texts that options take; a table gives ``NAME=VALUE``, and nested ones dots in the name."""
    if isinstance(value, dict):
        for key, element in value.items():
            path = f"{name}.{key}" if name else key
            yield from _texts(element, path) if isinstance(element, dict) else [f"{path}={_joined(element)}"]
    elif isinstance(value, list):
        yield from map(_joined, value)
    else:
        yield _joined(value)


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def words_of(defaults: Iterable[Default]) -> list[str]:
    """Return the words that set all these defaults."""
    return [word for default in defaults for word in default.words]


def arguments_with_defaults(
    command: str, parser: Parser, words: Sequence[str], parsers: Callable[[], Mapping[str, Parser]]
) -> argparse.Namespace:
    """Return the arguments of a command, with the defaults of the settings files for options that are not given.

    `args.defaults` has these defaults; `parsers` is that of `defaults_of`.
    """
    defaults = defaults_of(command, parser, words, parsers)
    for default in defaults:
        _check_value(parser, default)
    args = parsed(parser, [*words_of(defaults), *words])
    args.defaults = defaults
    return args


def _check_value(parser: Parser, default: Default) -> None:
    """Raise `ConfigError` if a default is no valid value of its option."""
    if default.action.nargs == 0 or isinstance(default.action, argparse.BooleanOptionalAction):
        return
    for word in default.words:
        try:
            parser._get_values(default.action, [word.partition("=")[2]])
        except argparse.ArgumentError as error:
            raise ConfigError(f"{default.source}: {error.message}", source=default.source) from None
