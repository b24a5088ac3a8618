"""The registry of file formats, which finds them by name, by the content of a file, and by its suffix."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, TypeVar

from interposer.core.entry_points import entry_points
from interposer.core.errors import InvalidArgumentError, ParseError, did_you_mean
from interposer.core.files import unreadable
from interposer.file_formats.format import Certainty, Content, File, Format
from interposer.formats.folders import foreign_folder
from interposer.formats.foreign import foreign, foreign_suffix

__all__ = ["ENTRY_POINTS", "FormatRecord", "Formats", "process_formats"]

ENTRY_POINTS: Final = "interposer.formats"
_log: Final = logging.getLogger("interposer.formats")
_S = TypeVar("_S")
_A = TypeVar("_A")


class FormatRecord(NamedTuple):
    """What is known of a format: whether it can be used, which package has it, and the reason if it cannot be used."""

    name: str
    available: bool
    source: str
    reason: str = ""


class _Entry(NamedTuple):
    source: str
    load: Callable[[], object]


class Formats:
    """File formats by name. Those of this package come first; a name that is taken is refused, and recorded.

    The class of a format is imported when the format is asked for. One that cannot be imported is logged, recorded with
    the reason, and left out of everything.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._formats_and_reasons: dict[str, Format | str] = {}
        self._refused_records: list[FormatRecord] = []

    def register(self, name: str, load: Callable[[], object], source: str) -> None:
        """Add the format `name`, whose class `load` returns; `source` says in messages where it comes from."""
        reason = self._problem(name)
        if reason:
            self._refused_records.append(FormatRecord(name, False, source, reason))
            _log.warning("format %r (%s) is skipped: %s", name, source, reason)
        else:
            self._entries[name] = _Entry(source, load)
            self.__dict__.pop("_usable", None)

    def _problem(self, name: str) -> str:
        if not name.isidentifier():
            return f"the name of a format must be a word such as my_format, not {name!r}"
        known_entry = self._entries.get(name)
        return "" if known_entry is None else f"the name is taken ({known_entry.source})"

    def discover(self) -> None:
        """Register the formats that installed packages name in their entry points."""
        for package, point in entry_points(ENTRY_POINTS):
            self.register(point.name, point.load, f"entry point of {package}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the formats that can be used, those of this package first."""
        return tuple(name for name, _ in self)

    def __iter__(self) -> Iterator[tuple[str, Format]]:
        """Yield the formats that can be used with their names, those of this package first."""
        return iter(self._usable)

    @cached_property
    def _usable(self) -> list[tuple[str, Format]]:
        named_formats = [(name, self._format(name)) for name in self._entries]
        return [
            (name, format_or_reason) for name, format_or_reason in named_formats if isinstance(format_or_reason, Format)
        ]

    def records(self) -> list[FormatRecord]:
        """Return one record for each format, usable or not, and for each that was refused."""
        formats = {name: self._format(name) for name in self._entries}
        reasons = {
            name: format_or_reason if isinstance(format_or_reason, str) else ""
            for name, format_or_reason in formats.items()
        }
        known_records = [
            FormatRecord(name, not reason, self._entries[name].source, reason) for name, reason in reasons.items()
        ]
        return [*known_records, *self._refused_records]

    def _format(self, name: str) -> Format | str:
        """Return a format, or the reason why it cannot be used."""
        if name not in self._formats_and_reasons:
            self._formats_and_reasons[name] = format_or_reason = _made(self._entries[name])
            if isinstance(format_or_reason, str):
                _log.warning("format %r (%s) is not available: %s", name, self._entries[name].source, format_or_reason)
        return self._formats_and_reasons[name]

    # --- finding ------------------------------------------------------------------------------------------------------

    def named(self, name: str) -> Format:
        """Return the format of this name, in any case; `InvalidArgumentError` names similar ones if there is none."""
        name = next((entry for entry in self._entries if entry.lower() == name.lower()), name)
        format_or_reason = self._format(name) if name in self._entries else None
        if isinstance(format_or_reason, Format):
            return format_or_reason
        if format_or_reason is not None:
            raise InvalidArgumentError(f"the format {name!r} cannot be used: {format_or_reason}")
        hint, known_names = did_you_mean(name, self.names), ", ".join(self.names)
        raise InvalidArgumentError(f"unknown format {name!r}{hint} (known: {known_names})")

    def accepting(self, source: object) -> str | None:
        """Return the name of the format that takes an object in memory; None if none does."""
        return next((name for name, format in self if self._asked(name, format.accepts, source)), None)

    def of(self, source: File | os.PathLike[str]) -> str:
        """Return the name of the format of a file, by its content or else by its suffix.

        Raises:
            ParseError: the file cannot be read, or is of no known format; says what to do for files of known others.
        """
        content = Content(os.fsdecode(source) if isinstance(source, os.PathLike) else source)
        name, certainty = self._recognized(content)
        if certainty is Certainty.SIGNATURE:
            return name
        message = self._explanation(content)
        if message is not None:
            raise ParseError(message, path=_path_of(content))
        if certainty > Certainty.GUESS:
            return name
        name_of_suffix = self._of_suffix(content)
        if name_of_suffix is None and certainty is Certainty.NO:
            self._refuse(content)
        return name_of_suffix or name

    def _recognized(self, content: Content) -> tuple[str, Certainty]:
        best, certainty = "", Certainty.NO
        _ = content.head  # a file that cannot be read is an error of the caller, before any format is asked
        for name, format in self:
            claim = self._claim(name, format, content) if format.reads else Certainty.NO
            if claim > certainty:
                best, certainty = name, claim
        return best, certainty

    def _claim(self, name: str, format: Format, content: Content) -> Certainty:
        """Return how surely a format recognizes a file; a failure of its code counts as no."""
        claim = self._asked(name, lambda content: Certainty(format.recognizes(content)), content)
        return Certainty.NO if claim is None else claim

    def _explanation(self, content: Content) -> str | None:
        if content.is_folder and content.path is not None and (text := foreign_folder(content.path)) is not None:
            return text
        explanations = (self._asked(name, format.explains, content) for name, format in self)
        return next((text for text in explanations if text is not None), None) or foreign(content.head, content.source)

    def converting(self, operator: str) -> str:
        """Return the title of the first format whose reader converts an operator of this name, in upper or lower case.

        The text is empty if none does.
        """
        for name, format in self:
            known_operators = self._asked(
                name, lambda format: set(map(str.lower, format.operators())), format, "list operators"
            )
            if operator.lower() in (known_operators or ()):
                return format.title
        return ""

    def _asked(self, name: str, ask: Callable[[_S], _A], source: _S, task: str = "recognize a file") -> _A | None:
        """Return what the format `name` answers about a source; None, with a warning, if its code fails.

        Raises:
            FileReadError: no more files can be opened, which is not the format's failure.
        """
        try:
            return ask(source)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise unreadable(error, error.filename) from error
            _log.warning("format %r failed to %s: %s: %s", name, task, type(error).__name__, error)
            return None

    def _of_suffix(self, content: Content) -> str | None:
        """Return the format that the suffix of a file names: one of its suffixes, or its name, as in ``net.tflite``."""
        suffix = content.path.suffix.lower() if content.path is not None else ""
        return next((name for name, format in self if suffix in (*format.suffixes, f".{name}")), None)

    def _refuse(self, content: Content) -> None:
        known_suffix = foreign_suffix(content.path) if content.path is not None and content.head else None
        if known_suffix is not None:
            raise ParseError(known_suffix, path=_path_of(content))
        content_text = f"its content starts with {content.head[:8]!r}" if content.head else "it is empty"
        raise ParseError(
            f"this is no model of a known format ({', '.join(self.names)}): {content_text}; "
            "name the format if it is one",
            path=_path_of(content),
        )

    # --- writing ------------------------------------------------------------------------------------------------------

    def writers(self) -> dict[str, Format]:
        """Return the formats that can be written, by the suffix of their files."""
        writers: dict[str, Format] = {}
        for _, format in self:
            if format.writes:
                writers.setdefault(format.written_suffix, format)
        return writers


def _path_of(content: Content) -> str | None:
    return None if content.path is None else str(content.path)


def _made(entry: _Entry) -> Format | str:
    try:
        kind: Any = entry.load()
        format = kind()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    if not isinstance(format, Format):
        return f"it is {kind!r}; expected a class derived from interposer.file_formats.Format"
    if not format.reads and not format.writes:
        return "it has neither read nor write"
    return _problem_of_suffixes(format) or format


def _problem_of_suffixes(format: Format) -> str:
    """Return what is wrong with the suffixes that a format declares; empty if nothing is."""
    for attribute in ("suffixes", "served_suffixes"):
        suffixes = getattr(format, attribute)
        if isinstance(suffixes, str) or not all(map(_is_suffix, suffixes)):
            return f"its {attribute} are {suffixes!r}; expected a tuple of lower-case suffixes, such as ('.rows',)"
    if format.written_suffix and not _is_suffix(format.written_suffix):
        return f"its written_suffix is {format.written_suffix!r}; expected a lower-case suffix, such as '.rows'"
    return ""


def _is_suffix(suffix: object) -> bool:
    return isinstance(suffix, str) and suffix.startswith(".") and suffix == suffix.lower()


@cache
def process_formats() -> Formats:
    """Return the registry of the process, with the formats of entry points; it is created on first use."""
    formats = Formats()
    formats.discover()
    if not formats.names:
        _log.warning("the installation of interposer lists no file formats; install it again")
    return formats
