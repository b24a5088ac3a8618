"""The parser of a command: short errors, help with texts that take time to find, and the arguments of all commands."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any, Final, NoReturn

from interposer.cli.streams import LEVELS, print_error
from interposer.core.errors import did_you_mean

__all__ = [
    "GLOBAL_FLAGS",
    "LEVEL_OPTION",
    "LIST_OPTION",
    "SEPARATOR",
    "Parser",
    "add_global_arguments",
    "command_parser",
    "flags_of",
    "parsed",
]

GLOBAL_FLAGS: Final = ("--debug", "--no-settings")
LEVEL_OPTION: Final = "--log-level"
LIST_OPTION: Final = "--input"
"""The option that can be followed by several values."""
SEPARATOR: Final = "\0"
"""The character between the values of `LIST_OPTION`, which no path can contain."""
_BACKENDS: Final = "--backends names what runs the network, such as CpuAcc"
_PRECISION: Final = "--precision float16 computes in half precision, where a command has that option"
_SAVE: Final = "--save FILE writes the outputs"
_SHAPE: Final = "--shape gives the shape of an input, as in: --shape image=8x3x224x224"
_RECORD: Final = "interposer trace records a run of a model, and interposer bench measures it"
_ELSEWHERE: Final = {
    "--batch": _SHAPE,
    "--batch-size": _SHAPE,
    "--cpu": _BACKENDS,
    "--cuda": _BACKENDS,
    "--fp16": _PRECISION,
    "--gpu": _BACKENDS,
    "--half": _PRECISION,
    "--quiet": "--log-level error hides messages",
    "--version": "interposer --version prints the version",
    "-m": "the network has no option before it, as in: interposer run net.onnx",
    "-v": "--version prints the version, and --log-level info shows more messages",
    "--deadline": "no option limits the time of a run; interposer serve --timeout limits that of a request",
    "--device": _BACKENDS,
    "--iterations": "interposer run --repeat N and interposer bench run a network several times",
    "--model": "the network has no option before it, as in: interposer run net.onnx",
    "--num-threads": "the environment variable INTERPOSER_NUM_THREADS sets the number of threads",
    "--threads": "the environment variable INTERPOSER_NUM_THREADS sets the number of threads",
    "--timeout": "no option limits the time of a run; interposer serve --timeout limits that of a request",
    "--verbose": "--log-level info shows more messages",
    "-q": "--log-level error hides messages",
    "compile --random": "nothing is run, so no inputs are needed",
    "convert --random": "nothing is run, so no inputs are needed",
    "plan --random": "plan makes its inputs itself, as times seldom depend on them",
    "profile --backends": _RECORD,
    "profile --input": _RECORD,
    "profile --random": _RECORD,
    "quantize --random": "the ranges come from real inputs, which --data gives",
    "run -n": "interposer run --repeat N and interposer bench run a network several times",
    "run -o": _SAVE,
    "run --out": _SAVE,
}
"""Options of other programs or commands, with what serves the same purpose here; for commands without such an option.

A key with the name of a command is for this command alone.
"""
_NETWORKS: Final = (".armnn", ".caffemodel", ".ipn", ".onnx", ".pb", ".prototxt", ".pt2", ".tflite")
"""The suffixes of files that are networks, and no inputs of one."""
_OTHER_NETWORK: Final = {
    "compare": ", and runs it on two backends; "
    "interposer quantize --report compares a quantized network with its original"
}
"""What follows the refusal of a second network, by command."""
_LATE: Final = re.compile(r"\{(formats|readers|writers)\}")
_WIDTH: Final = 100
"""The most characters of a line that explains an argument after an error."""


def add_global_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that all commands have, and that may also precede the command."""
    group = parser.add_argument_group("messages and settings")
    group.add_argument("--debug", action="store_true", help="show log messages, and the traceback of an error")
    group.add_argument(LEVEL_OPTION, choices=LEVELS, metavar="LEVEL", help=f"show messages of this level: {_levels()}")
    group.add_argument("--no-settings", action="store_true", help="ignore the defaults in [cli] of interposer.toml")


def _levels() -> str:
    return ", ".join("warning (default)" if level == "warning" else level for level in LEVELS)


class Help(argparse.RawDescriptionHelpFormatter):
    """Formats help; ``{readers}``, ``{writers}`` and ``{formats}`` in it are lists that plug-ins can extend."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return None if action.help is None else _LATE.sub(lambda match: _late(match[1]), action.help)


def _late(name: str) -> str:
    from interposer.file_formats import process_formats  # noqa: PLC0415 - takes longer than the rest of the command

    formats = process_formats()
    if name == "formats":
        return ", ".join(formats.names)
    if name == "writers":
        return _or(list(formats.writers()))
    return _or(sorted((format.title for _, format in formats if format.reads), key=str.lower))


def _or(names: Sequence[str]) -> str:
    *other_names, last_name = names
    return f"{', '.join(other_names)} or {last_name}" if other_names else last_name


class Parser(argparse.ArgumentParser):
    """A parser whose errors explain the one argument that is wrong, instead of listing all arguments."""

    words: Sequence[str] = ()
    """The words of the command line that are parsed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, exit_on_error=False, formatter_class=Help, **settings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise `argparse.ArgumentError` for a value that is not among the argument's choices.

        The message has the closest choice as a hint.
        """
        if action.choices is not None and value not in action.choices:
            known_choices = list(map(str, action.choices))
            hint = did_you_mean(str(value), known_choices)
            raise argparse.ArgumentError(action, f"unknown choice {value!r}{hint} (known: {', '.join(known_choices)})")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a message, and report a full disk or a closed pipe, which the method of the base class ignores.

        Messages for standard error are discarded if it is full.
        """
        if message and file is sys.stdout:
            file.write(message)
        elif message:
            print_error(message.removesuffix("\n"))

    def error(self, message: str) -> NoReturn:
        """Print the short usage and a message, and exit with status 2."""
        self.refuse(f"{message}{self._hint_of_output(message)}")

    def _hint_of_output(self, message: str) -> str:
        """Return a hint for the file to write, which some commands take with an option and others without; or ""."""
        free_words = [words[0] for _, words in _grouped(self.words, self, None) if not words[0].startswith("-")]
        if message.endswith(": -o/--output") and len(free_words) == len(self._get_positional_actions()) + 1:
            return f"; the file to write is given as -o {free_words[-1]}"
        if message.endswith(": output") and self.words[-2:-1] in (("-o",), ("--output",)):
            return f"; the file to write follows the network without an option: NETWORK {self.words[-1]}"
        return ""

    def refuse(self, message: str, actions: Iterable[argparse.Action] = ()) -> NoReturn:
        """Print the short usage, the help of the arguments that the message is about, and the message; exit."""
        lines = [f"usage: {self.short_usage()}"]
        for action in actions:
            lines += self._explanation(action)
        lines.append(f"       {self.prog} --help describes all arguments")
        print_error("\n".join(lines))
        self.exit(2, f"{self.prog}: error: {message}\n")

    def short_usage(self) -> str:
        """Return the usage with the required arguments alone."""
        if self.usage is not None:
            return self.usage
        required_actions = [action for action in self._actions if action.option_strings and action.required]
        words = [f"{action.option_strings[0]} {self._metavar(action)}" for action in required_actions]
        return " ".join([self.prog, "[options]", *map(self._positional, self._get_positional_actions()), *words])

    def _positional(self, action: argparse.Action) -> str:
        word = self._metavar(action)
        return {"?": f"[{word}]", "*": f"[{word} ...]", "+": f"{word} [{word} ...]"}.get(str(action.nargs), word)

    def _metavar(self, action: argparse.Action) -> str:
        if isinstance(action.metavar, tuple):
            return " ".join(action.metavar)
        return action.metavar or (action.dest.upper() if action.option_strings else action.dest)

    def _explanation(self, action: argparse.Action) -> list[str]:
        names = ", ".join(action.option_strings) or self._metavar(action)
        takes_value = bool(action.option_strings) and action.nargs != 0
        subject = f"{names} {self._metavar(action)}" if takes_value else names
        help_text = self._get_formatter()._expand_help(action) if action.help else ""
        width = min(_WIDTH, max(40, shutil.get_terminal_size().columns)) - 7
        lines = textwrap.wrap(f"{subject}: {help_text}", width, subsequent_indent="    ", break_on_hyphens=False)
        return [f"       {line}" for line in lines]

    def action_named(self, name: str | None) -> argparse.Action | None:
        """Return the argument that an `argparse.ArgumentError` calls by this name, or that has this option."""
        for action in self._actions:
            names = {*action.option_strings, "/".join(action.option_strings), action.dest, str(action.metavar)}
            if name is not None and name in names:
                return action
        return None


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a parser as they are written on the command line, such as ``--input`` and ``-o``."""
    return [flag for action in parser._actions for flag in action.option_strings]


def command_parser(command: str, description: str, epilog: str) -> Parser:
    """Return the parser of one command with all its arguments; `epilog` follows what the command says itself."""
    parser = Parser(prog=f"interposer {command}", description=description)
    import_module(f"interposer.cli.arguments.{command.replace('-', '_')}").configure(parser)
    add_global_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, epilog]))
    return parser


def parsed(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command; wrong ones are reported with a hint, and end with `SystemExit`."""
    parser.words = tuple(words)
    _refuse_files_like_options(words, parser)
    _refuse_unknown_options(words, parser)
    try:
        args, unknown_words = parser.parse_known_args(_with_lists(words, parser))
    except argparse.ArgumentError as error:
        action = parser.action_named(error.argument_name)
        message = re.sub("ignored explicit argument (.*)", r"it takes no value, but \1 was given", str(error))
        parser.refuse(message, [] if action is None else [action])
    if unknown_words:
        command = parser.prog.rpartition(" ")[2]
        if unknown_words[0] == command:
            parser.refuse(f"unknown argument {command!r}; the command is given once, before the network")
        if command in words:
            parser.refuse(f"unknown argument {unknown_words[0]!r}; the command {command!r} is given twice")
        _refuse_separate_value(unknown_words[0], words, parser)
        _refuse_second_file(unknown_words[0], args, parser)
        if command == "backends" and unknown_words[0].endswith(_NETWORKS):
            parser.refuse(
                f"unknown argument {unknown_words[0]!r}; interposer explain shows which backend runs which layer"
            )
        _refuse_unknown(unknown_words[0], parser)
    return args


def _with_lists(words: Sequence[str], parser: Parser) -> list[str]:
    """Return the words with the files that follow ``--input FILE`` as part of its value, divided by `SEPARATOR`.

    The last of them are left to arguments without an option that have no words elsewhere, such as the network.
    """
    action = parser.action_named(LIST_OPTION)
    if action is None:
        return list(words)
    grouped_words = _grouped(words, parser, action)
    num_free = sum(len(group) for is_list, group in grouped_words if not is_list and not group[0].startswith("-"))
    num_needed = sum(positional.nargs is None for positional in parser._get_positional_actions()) - num_free
    for number, (is_list, group) in reversed(list(enumerate(grouped_words))):
        while is_list and num_needed > 0 and len(group) > 2:
            grouped_words.insert(number + 1, (False, [group.pop()]))
            num_needed -= 1
    return [word for is_list, group in grouped_words for word in (_as_one(group) if is_list else group)]


def _as_one(group: Sequence[str]) -> list[str]:
    return [group[0], SEPARATOR.join(group[1:])] if len(group) > 2 else list(group)


def _grouped(words: Sequence[str], parser: Parser, list_action: argparse.Action | None) -> list[tuple[bool, list[str]]]:
    """Return options with their values, and other words alone; True marks the option that takes a list.

    `list_action` is that option, or None.
    """
    groups: list[tuple[bool, list[str]]] = []
    is_value = False
    for number, word in enumerate(words):
        if word == "--":
            return [*groups, *((False, [later_word]) for later_word in words[number:])]
        if word.startswith("-") and word != "-":
            action = parser.action_named(word)
            groups.append((action is not None and action is list_action, [word]))
            is_value = action is not None and action.nargs != 0
        elif groups and (is_value or groups[-1][0]):
            groups[-1][1].append(word)
            is_value = False
        else:
            groups.append((False, [word]))
    return groups


def _refuse_unknown_options(words: Sequence[str], parser: Parser) -> None:
    """Refuse a misspelt option before arguments are missed that might be its value."""
    flags = flags_of(parser)
    for word in takewhile(lambda word: word != "--", words):
        if word.startswith("--") and " " not in word and word.partition("=")[0] not in flags:
            _refuse_unknown(word, parser)


def _refuse_separate_value(word: str, words: Sequence[str], parser: Parser) -> None:
    """Refuse the second of several values that are separated by a blank, where an option takes commas between them."""
    place = words.index(word) if word in words else 0
    action = parser.action_named(words[place - 2]) if place >= 2 else None
    if action is None or "," not in str(action.metavar) or action.nargs is not None:
        return
    joined_value = f"{words[place - 1].rstrip(',')},{word.lstrip(',')}"
    parser.refuse(f"unknown argument {word!r}; did you mean {action.option_strings[-1]} {joined_value}?", [action])


def _refuse_second_file(word: str, args: argparse.Namespace, parser: Parser) -> None:
    """Refuse a file after the network, which is probably meant as an input or is a second network."""
    action = parser.action_named(LIST_OPTION)
    if action is not None and os.path.isfile(word) and os.path.exists(getattr(args, "network", "")):
        if word.endswith(_NETWORKS):
            command = parser.prog.rpartition(" ")[2]
            parser.refuse(f"unknown argument {word!r}; {command} takes one network{_OTHER_NETWORK.get(command, '')}")
        parser.refuse(f"unknown argument {word!r}; a file for an input is given as {LIST_OPTION} {word}", [action])


def _refuse_unknown(word: str, parser: Parser) -> NoReturn:
    name = word.partition("=")[0]
    command = parser.prog.rpartition(" ")[2]
    elsewhere = _ELSEWHERE.get(f"{command} {name}") or _ELSEWHERE.get(name)
    if elsewhere:
        parser.refuse(f"unknown argument {word!r}; {elsewhere}")
    flag = _similar_flag(name, parser)
    if flag is None:
        parser.refuse(f"unknown argument {word!r}")
    action = parser.action_named(flag)
    parser.refuse(f"unknown argument {word!r}; did you mean {flag!r}?", [] if action is None else [action])


def _similar_flag(name: str, parser: Parser) -> str | None:
    """Return the option most similar to `name`, or None. The dashes, which all options have, are not compared."""
    flags = {flag.lstrip("-"): flag for flag in flags_of(parser)}
    quoted_flag = re.search("'(.+)'", did_you_mean(name.lstrip("-"), flags))
    return flags[quoted_flag[1]] if quoted_flag else None


def _refuse_files_like_options(words: Sequence[str], parser: Parser) -> None:
    flags = flags_of(parser)
    for word in takewhile(lambda word: word != "--", words):
        if word.startswith("-") and word not in flags and os.path.isfile(word):
            path = os.path.join(".", word)
            parser.error(f"unknown argument {word!r}; a file whose name begins with a dash is given as {path!r}")
