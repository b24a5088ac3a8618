"""The standard streams: closed streams, unsupported characters, and log messages of the package."""

from __future__ import annotations

import codecs
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from interposer.cli import interrupts

__all__ = ["LEVELS", "discard_output", "log_messages", "prepare_streams", "print_error", "printable", "unlogged"]

LEVELS: Final = ("debug", "info", "warning", "error")
"""The levels of log messages that the command line can show, the most detailed first."""

_ERRORS: Final = "interposer.plain"
_PLAIN: Final = {
    "\u00b1": "+-",
    "\u00b5": "u",
    "\u03bc": "u",
    "\u00d7": "x",
    "\u2026": "...",
    "\u2013": "-",
    "\u2014": "-",
    "\u2265": ">=",
}
"""Replacements of characters that the encoding of a stream lacks; other such characters are escaped."""


def prepare_streams() -> None:
    """Make the standard streams safe to write to, even if they are closed or have a limited encoding.

    A closed stream is replaced by a file, since the next opened file would take its descriptor. Writing to a closed
    standard output is an error when it is flushed; text for a closed standard error is discarded.
    """
    _fill(0, os.O_RDONLY)
    _fill(1, os.O_RDONLY)  # so that writing fails
    _fill(2, os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise
    codecs.register_error(_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)  # do not fail if the terminal cannot show a label


def _fill(descriptor: int, flags: int) -> None:
    """Open the null device as file descriptor `descriptor`, unless that is open; `flags` are those of `os.open`."""
    try:
        os.fstat(descriptor)
    except OSError:
        new_descriptor = os.open(os.devnull, flags)
        if new_descriptor != descriptor:
            os.dup2(new_descriptor, descriptor)
            os.close(new_descriptor)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    replacement = _PLAIN.get(character)
    if replacement is not None:
        return replacement, error.start + 1
    return codecs.backslashreplace_errors(
        UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    )


def printable(text: str) -> str:
    """Return the text on one line and without control characters, which could change the state of a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def print_error(text: str) -> None:
    """Print text on standard error, or discard it if that is full, so that the exit status is the only report."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def discard_output() -> None:
    """Discard what is still buffered for standard output, so that the interpreter does not complain when it exits."""
    with suppress(OSError, ValueError):  # ValueError: the stream has no file descriptor
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())
        os.close(null_device)


class _OneLine(logging.Formatter):
    """Formats a log record as one line, "interposer: message", without its traceback and its time."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(f"interposer: {record.getMessage()}")


class _Handler(logging.StreamHandler[TextIO]):
    """Prints log records on standard error, in place of a progress line that may be there."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream.isatty():
            self.stream.write("\r\033[K")
        super().emit(record)


@contextmanager
def unlogged(phrase: str) -> Iterator[None]:
    """Hide log messages of sessions with a phrase within this context, because the command prints what they say."""
    logger = logging.getLogger("interposer.session")

    def is_other(record: logging.LogRecord) -> bool:
        return phrase not in str(record.msg)

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


@contextmanager
def log_messages(level: str = "warning") -> Iterator[None]:
    """Print log messages of the package on standard error within this context, from `level` (one of `LEVELS`) on.

    At the level "debug", each line has the message's level and the name of its logger. Nothing is printed after an
    interruption by the user, which may let anything fail.
    """
    logger, handler = logging.getLogger("interposer"), _Handler()
    previous_level = logger.level
    if level == "debug":
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(_OneLine())
    handler.setLevel(level.upper())
    handler.addFilter(lambda record: not interrupts.happened())
    if level != "warning":
        logger.setLevel(level.upper())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(previous_level)
