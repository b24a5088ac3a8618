"""``interposer``: the parser, the dispatch to a command, and the mapping of errors to messages and exit statuses."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import sys
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module
from itertools import takewhile
from types import ModuleType
from typing import Any, Final

from interposer._version import __version__
from interposer.cli.streams import discard_output, log_messages, prepare_streams, printable
from interposer.core.config import check_settings, unknown_variables
from interposer.core.errors import InterposerError, LimitExceededError, did_you_mean

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "run": "run a network on an image or on arrays, and show what it gives",
    "explain": "show which backend gets which layer, and why the others do not",
    "trace": "run a network, and write what happened as a timeline for Perfetto or Chrome",
    "profile": "collect the profiles that programs send in Arm NN's protocol, or read one",
    "bench": "measure a network on all backends, and compare their times",
    "compare": "run two backends layer by layer, and show where they differ",
    "serve": "answer requests over HTTP and gRPC, with the Open Inference Protocol",
    "plan": "measure which backend should run which layer, and write a plan file",
    "compile": "optimize a network, and save it with what the backends compiled",
    "saved": "show what a saved network contains, and verify it",
    "convert": "write a network in another format",
    "quantize": "quantize a float network with calibration data",
    "backends": "list the backends, and why some are absent",
    "cache": "list the cached files, say which are stale and why, or delete them",
    "ops": "list the operators, or those that a backend has kernels for",
    "check-backend": "check that a backend conforms to the plug-in interface",
    "new-backend": "create a project for a new backend, which builds and conforms",
}
"""The commands with their descriptions; the module of the same name has `configure` and `execute`.

`execute` returns the exit status if the answer of the command is "no", and None or 0 otherwise.
"""

NO_MEANS: Final = {
    "bench": "no backend could run the network, or none within --threshold",
    "run": "the median time of a run is above --threshold",
    "compare": "the backends differ by more than is allowed",
    "check-backend": "the backend does not conform",
}
"""The meaning of exit status 1, for each command that answers a question."""
_OF_WRITING: Final = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}
"""The `errno` values of write errors; files are written by a function whose errors name the file."""
ERROR: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # the status of a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` are the arguments after ``interposer``.

    Returns:
        The exit status, by one rule for all commands: 0 if the command succeeded; 1 if it succeeded and its answer is
        "no" (see `NO_MEANS`); 2 after any error, wrong usage included, with a message on standard error; 130 after an
        interruption by the user; 141 if the reader of the output has closed the pipe.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        prepare_streams()
        return _run(words)
    except BrokenPipeError:
        discard_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        discard_output()
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    debug = "--debug" in words
    with log_messages(debug):
        try:
            status = _executed(words)
            sys.stdout.flush()
            return status
        except BrokenPipeError:
            raise
        except Exception as error:
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            _report(error, debug)
            return ERROR


def _was_interrupted(error: BaseException | None) -> bool:
    """Return True if an error follows from Ctrl-C, as when the import of an extension module is interrupted."""
    visited = set[int]()
    while error is not None and id(error) not in visited:
        if isinstance(error, KeyboardInterrupt):
            return True
        visited.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _executed(words: Sequence[str]) -> int:
    try:
        args = _parsed(words)
        args.words = words
        check_settings()
        _warn_of_unknown_variables()
        return int(_module(args.command).execute(args) or 0)
    except SystemExit as stop:  # after --help, --version and wrong usage
        return int(stop.code or 0)


def _warn_of_unknown_variables() -> None:
    for name, suggestion in unknown_variables().items():
        logging.getLogger("interposer").warning("the environment variable %s is unknown%s", name, suggestion)


def _report(error: Exception, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    lines = f"interposer: {_message(error)}".split("\n")
    print("\n".join(map(printable, lines)), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def _message(error: Exception) -> str:
    if isinstance(error, LimitExceededError) and error.what in ("memory", "arithmetic"):
        option = "--limit-bytes" if error.what == "memory" else "--limit-operations"
        return f"{str(error).partition(';')[0]}; raise it with {option} if the file is trusted"
    if isinstance(error, InterposerError):
        return str(error)
    if isinstance(error, OSError):
        name = error.filename or ("standard output" if error.errno in _OF_WRITING else None)
        return ": ".join(map(str, filter(None, (name, error.strerror)))) or str(error)
    if isinstance(error, MemoryError):
        return ": ".join(filter(None, ("there is not enough memory", str(error))))
    description = f"{type(error).__name__}: {error}".partition("\n")[0]
    return f"unexpected {description}; this is a defect of Interposer, and --debug shows the traceback"


# --- the parser -------------------------------------------------------------------------------------------------------


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="interposer", description="Divide a neural network among backends, say why, and run it.",
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_statuses("the answer of the command is no"),
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"interposer {__version__}")
    _add_debug(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    parsers = {
        name: commands.add_parser(name, help=summary, description=_sentence(summary))
        for name, summary in COMMANDS.items()
    }
    command = next((word for word in words if not word.startswith("-")), None)
    if command is None:
        return parser.parse_args(words)
    if command not in COMMANDS:
        parser.error(f"unknown command {command!r}{did_you_mean(command, COMMANDS)} (known: {', '.join(COMMANDS)})")
    _module(command).configure(parsers[command])
    _add_debug(parsers[command])
    _add_statuses(parsers[command], NO_MEANS.get(command, ""))
    options = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", parsers[command].format_help())
    _refuse_files_like_options(words, options, parsers[command])
    args, unknown = parser.parse_known_args(words)
    args.words = tuple(words)
    if unknown:
        hint = did_you_mean(unknown[0].partition("=")[0], options)
        parsers[command].error(f"unknown argument {unknown[0]!r}{hint}")
    return args


def _refuse_files_like_options(words: Sequence[str], options: Collection[str], parser: argparse.ArgumentParser) -> None:
    for word in takewhile(lambda word: word != "--", words):
        if word.startswith("-") and word not in options and os.path.isfile(word):
            path = os.path.join(".", word)
            parser.error(f"unknown argument {word!r}; a file whose name begins with a dash is given as {path!r}")


def _add_statuses(parser: argparse.ArgumentParser, meaning_of_one: str) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(filter(None, [parser.epilog, _statuses(meaning_of_one)]))


def _statuses(meaning_of_one: str) -> str:
    rows = [("0", "success"), ("1", meaning_of_one)]
    rows += [("2", "an error, wrong usage included"), ("130", "interrupted by Ctrl-C")]
    return "\n".join(["exit status:", *(f"  {status:3}  {meaning}" for status, meaning in rows if meaning)])


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise `argparse.ArgumentError` for a value that is not among the argument's choices.

        The message has the closest choice as a hint.
        """
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            hint = did_you_mean(str(value), known)
            raise argparse.ArgumentError(action, f"unknown choice {value!r}{hint} (known: {', '.join(known)})")


def _add_debug(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show log messages, and the traceback of an error")


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _module(command: str) -> ModuleType:
    return import_module(f"interposer.cli.{command.replace('-', '_')}")
