"""Reading files with the settings of a model, and their signatures."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any, Final

__all__ = ["content_of_settings", "table_of_settings", "text_of_settings"]

_LARGEST: Final = 1 << 20


def table_of_settings(text: str) -> dict[str, Any]:
    """Return the table that a text in TOML describes; raise ValueError if the text is damaged."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its lists or tables are nested too deeply") from None


def text_of_settings(path: Path) -> str:
    """Return the text of a file with settings, of at most a MiB.

    Raises:
        OSError: the file cannot be read, or is no regular file, such as a pipe or a device.
        ValueError: the file is larger, or is not UTF-8.
    """
    return content_of_settings(path).decode()


def content_of_settings(path: Path) -> bytes:
    """Return the bytes of a file with settings or of their signature; see `text_of_settings`.

    Raises:
        OSError: as for `text_of_settings`.
        ValueError: the file is larger than a MiB.
    """
    with open(path, "rb", opener=_opened) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST:,} bytes")
    return content


def _opened(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe, which may have replaced the file since it was listed."""
    return os.open(path, flags | os.O_NONBLOCK)
