"""The cache folder: small files that may be forgotten at any time, kept between processes.

``$INTERPOSER_CACHE_DIR``, else ``$XDG_CACHE_HOME/interposer``, else ``~/.cache/interposer``. Nothing here ever fails: a
folder that cannot be read or written is as good as none.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Final

from interposer.config import CACHE_DIR

__all__ = ["LARGEST", "cache_folder", "read_cached", "write_cached"]

LARGEST: Final = 1 << 28
"""Files of more bytes are not read."""

_log = logging.getLogger("interposer.cache")


def cache_folder() -> Path | None:
    """The absolute path of the folder, whether it is there yet or not; None where there is to be none."""
    said = os.environ.get(CACHE_DIR)
    if said is not None:
        return Path(os.path.expanduser(said)).absolute() if said.strip() else None
    for above in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(above):
            return Path(above, "interposer")
    return None


def read_cached(name: str) -> bytes | None:
    """What was written under this name (a relative path), or None."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        with open(folder / name, "rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None
    return content if len(content) <= LARGEST else None


def write_cached(name: str, content: bytes) -> bool:
    """Keep `content` under a name (a relative path); False where that could not be done.

    Readers see all of it or nothing, whatever happens to this process.
    """
    folder = cache_folder()
    if folder is None:
        return False
    try:
        _write(folder / name, content)
    except (OSError, ValueError) as error:
        _log.info("%s cannot be kept in the cache folder %s: %s", name, folder, error)
        return False
    return True


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
