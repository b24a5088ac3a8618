"""The cache folder: small files that may be forgotten at any time, kept between processes.

``$INTERPOSER_CACHE_DIR``, else ``$XDG_CACHE_HOME/interposer``, else ``~/.cache/interposer``. Nothing here ever fails: a
folder that cannot be read or written is as good as none.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from interposer.config import CACHE_DIR

__all__ = [
    "LARGEST",
    "CachedFile",
    "cache_folder",
    "cached_files",
    "forget_cached",
    "read_cached",
    "trim_cached",
    "write_cached",
]

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


class CachedFile(NamedTuple):
    """A file in the cache folder: its relative path, its bytes, and when it was written (seconds since 1970)."""

    name: str
    size: int
    time: float


def cached_files(below: str = "") -> list[CachedFile]:
    """The files in the folder, or in one of its folders, by their names."""
    folder = cache_folder()
    if folder is None:
        return []
    found = []
    for path in sorted(folder.joinpath(below).rglob("*")):
        with suppress(OSError):
            facts = path.stat(follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                found.append(CachedFile(path.relative_to(folder).as_posix(), facts.st_size, facts.st_mtime))
    return found


def forget_cached(name: str) -> bool:
    """Delete a file of the folder; False where that cannot be done."""
    folder = cache_folder()
    if folder is None:
        return False
    try:
        (folder / name).unlink()
    except OSError as error:
        _log.info("%s cannot be deleted from the cache folder %s: %s", name, folder, error)
        return False
    return True


def trim_cached(below: str, most: int) -> None:
    """Delete the oldest files of a folder until the others have no more than so many bytes together."""
    files = sorted(cached_files(below), key=lambda file: file.time)
    over = sum(file.size for file in files) - most
    for file in files:
        if over <= 0:
            return
        over -= file.size
        forget_cached(file.name)


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
