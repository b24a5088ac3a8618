"""The list of shared objects that may be loaded, by the SHA-256 of their content."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path
from typing import Final

from interposer.core.errors import ConfigError, InvalidArgumentError

__all__ = ["allowed_digests"]

_LINE: Final = re.compile(r"\\?([0-9a-fA-F]{64})(\s.*)?")


def allowed_digests(source: str | PathLike[str] | Collection[str]) -> frozenset[str]:
    """Return the allowed SHA-256 digests, from a file in the format of ``sha256sum`` or from a collection.

    In a file, each line begins with a digest; empty lines and lines that begin with ``#`` are ignored.

    Raises:
        ConfigError: the file cannot be read, or a line has no digest.
        InvalidArgumentError: an element of the collection is not a digest.
    """
    if isinstance(source, str | PathLike):
        return frozenset(_digests_in(Path(source)))
    for digest in source:
        if not re.fullmatch("[0-9a-fA-F]{64}", str(digest)):
            raise InvalidArgumentError(f"a SHA-256 has 64 hexadecimal digits; {digest!r} is none")
    return frozenset(digest.lower() for digest in source)


def _digests_in(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"the list of allowed backends {path} cannot be read: {reason}", source=str(path)) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(f"{path}, line {number}, does not begin with a SHA-256: {line[:80]!r}", source=str(path))
        yield match[1].lower()
