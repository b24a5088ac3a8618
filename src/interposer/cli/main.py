"""``interposer``: the parser, the choice of the command, and how errors become messages and exit statuses."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from interposer._version import __version__
from interposer.cli.tables import printable
from interposer.errors import InterposerError, LimitExceededError, did_you_mean

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "run": "run a network on an image or on arrays, and show what it gives",
    "explain": "show which backend gets which layer, and why the others do not",
    "bench": "measure a network on all backends, side by side",
    "compare": "run two backends layer by layer, and show where they differ",
    "plan": "measure which backend should run which layer, and write that down",
    "convert": "write a network as an ONNX model",
    "backends": "list the backends, and why some are absent",
    "cache": "list what is kept between processes, say what is stale and why, or delete it",
    "ops": "list the operators, or those that a backend has kernels for",
    "check-backend": "check that a backend does what the plug-in interface asks for",
    "new-backend": "begin a backend: write a small project that builds and conforms",
}
"""The commands, each with a line about it; the module of that name has `configure` and `execute`.

`execute` gives the exit status, where that is not 0 after all has gone well.
"""

FAILED: Final = 1
TELLING: Final = frozenset({"bench", "compare", "check-backend"})
"""Commands whose status 1 says what they found, so that it is another one after an error."""
TROUBLE: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as of a program that the closed pipe ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` are the words after ``interposer``.

    Returns:
        The exit status: 0; 1 after an error, which a message on standard error tells (2 of bench, compare and
        check-backend, whose 1 says what they found); 2 for wrong usage; 130 where the user interrupts it; 141 where
        nobody reads the output any more.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(words)
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a label that the terminal cannot show is no reason to fail
    debug = "--debug" in words
    failed = FAILED
    with _messages(debug):
        try:
            args = _parsed(words)
            failed = TROUBLE if args.command in TELLING else FAILED
            status = _module(args.command).execute(args)
            sys.stdout.flush()
            return int(status or 0)
        except SystemExit as stop:
            return int(stop.code or 0)
        except BrokenPipeError:
            raise
        except Exception as error:
            _tell(error, debug)
            return failed


def _tell(error: Exception, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    lines = f"interposer: {_told(error)}".split("\n")
    print("\n".join(map(printable, lines)), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _told(error: Exception) -> str:
    if isinstance(error, LimitExceededError) and error.what in ("memory", "arithmetic"):
        option = "--limit-bytes" if error.what == "memory" else "--limit-operations"
        return f"{str(error).partition(';')[0]}; raise it with {option} if the file is trusted"
    if isinstance(error, InterposerError):
        return str(error)
    if isinstance(error, OSError):
        return ": ".join(map(str, filter(None, (error.filename, error.strerror)))) or str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    found = f"{type(error).__name__}: {error}".partition("\n")[0]
    return f"this should not have happened, it is a fault of Interposer ({found}); --debug shows where"


# --- the parser -------------------------------------------------------------------------------------------------------


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="interposer", description="Divide a neural network among backends, say why, and run it.")
    parser.add_argument("--version", action="version", version=f"interposer {__version__}")
    _add_debug(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    made = {name: commands.add_parser(name, help=line, description=_sentence(line)) for name, line in COMMANDS.items()}
    given = next((word for word in words if not word.startswith("-")), None)
    if given is None:
        return parser.parse_args(words)
    if given not in COMMANDS:
        parser.error(f"unknown command {given!r}{did_you_mean(given, COMMANDS)} (known: {', '.join(COMMANDS)})")
    _module(given).configure(made[given])
    _add_debug(made[given])
    args, unknown = parser.parse_known_args(words)
    if unknown:
        options = re.findall(r"--[a-z][a-z-]*", made[given].format_help())
        made[given].error(f"unknown argument {unknown[0]!r}{did_you_mean(unknown[0], options)}")
    return args


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)


def _add_debug(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show what is logged, and the traceback of an error")


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _module(command: str) -> ModuleType:
    return import_module(f"interposer.cli.{command.replace('-', '_')}")


# --- the standard streams ---------------------------------------------------------------------------------------------


class _OneLine(logging.Formatter):
    """Leaves out tracebacks and the time."""

    def format(self, record: logging.LogRecord) -> str:
        return f"interposer: {record.getMessage()}"


@contextmanager
def _messages(debug: bool) -> Iterator[None]:
    """Let warnings of the package appear on standard error, and with `debug` everything that it logs."""
    logger, handler = logging.getLogger("interposer"), logging.StreamHandler()
    before = logger.level
    if debug:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.setLevel(logging.DEBUG)
    else:
        handler.setFormatter(_OneLine())
        handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not complain when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
