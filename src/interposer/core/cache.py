"""The cache folder: small files that may be forgotten at any time, kept between processes.

``$INTERPOSER_CACHE_DIR``, else ``$XDG_CACHE_HOME/interposer``, else ``~/.cache/interposer``. A folder that cannot be
read or written is as good as none, and no error. What takes a `folder` works on that one instead; a relative path is
taken from the working directory, ``~`` is the user's own folder, and an empty one means the folder above. Users may
have files of their own there: only such as have names of `own_names` are ever deleted to make room.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.config import CACHE_DIR
from interposer.core.files import reason_of, replacing

__all__ = [
    "LARGEST",
    "LATER",
    "CachedFile",
    "Record",
    "cache_folder",
    "cached_files",
    "forget_cached",
    "has_cached",
    "later",
    "make_room",
    "mapped_cached",
    "own_names",
    "read_cached",
    "read_record",
    "settle",
    "trim_cached",
    "write_cached",
]

LARGEST: Final = 1 << 28
"""Files of more bytes are not read."""
LATER: Final = 1 << 20
"""What has more bytes is written by `later`, while others go on."""
_ALIGNMENT: Final = 64
_LANES: Final = 1024

_log = logging.getLogger("interposer.cache")
_reported: set[tuple[Path, str]] = set()


def cache_folder(folder: str = "") -> Path | None:
    """Return the absolute path of the folder, whether it is there yet or not; None if there is to be none."""
    said = folder if folder.strip() else os.environ.get(CACHE_DIR)
    if said is not None:
        return Path(os.path.expanduser(said)).absolute() if said.strip() else None
    for above in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(above):
            return Path(above, "interposer")
    return None


def read_cached(name: str, folder: str = "") -> bytes | None:
    """Return what was written under this name (a relative path), or None."""
    where = cache_folder(folder)
    if where is None:
        return None
    settle(name)
    try:
        with open(where / name, "rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None
    return content if len(content) <= LARGEST else None


def mapped_cached(name: str, folder: str = "") -> memoryview | None:
    """Return the same, mapped and not copied; files of the folder are replaced, never changed."""
    where = cache_folder(folder)
    if where is None:
        return None
    settle(name)
    try:
        with open(where / name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)) if size <= LARGEST else None
    except (OSError, ValueError):  # an empty one cannot be mapped
        return None


def write_cached(name: str, content: bytes | Iterable[bytes | memoryview], folder: str = "") -> bool:
    """Keep `content`, or pieces of it, under a name (a relative path); False if that could not be done.

    Readers see all of it or nothing, whatever happens to this process.
    """
    where = cache_folder(folder)
    if where is None:
        return False
    try:
        _write(where / name, [content] if isinstance(content, bytes) else content)
    except (OSError, ValueError) as error:
        _complain(name, where, error)
        return False
    _note_written(where / name)
    return True


def _complain(name: str, where: Path, error: OSError | ValueError) -> None:
    """Warn once for each folder and reason."""
    reason = getattr(error, "reason", "") or reason_of(error)
    if (where, reason) not in _reported:
        _reported.add((where, reason))
        _log.warning(
            "%s cannot be kept in the cache folder %s: %s (an empty %s does without a cache)",
            name, where, reason, CACHE_DIR,
        )  # fmt: skip


class Record(NamedTuple):
    """What some files hold: `facts` that JSON can write, and `pieces` of bytes, each at a multiple of 64 bytes."""

    facts: Mapping[str, Any]
    pieces: Sequence[bytes | memoryview]

    def content(self, magic: bytes) -> list[bytes | memoryview]:
        """Return the pieces of a file that begins with `magic`, with sums by which damage is found."""
        sizes = [(len(piece), _sum(piece)) for piece in self.pieces]
        head = json.dumps({"facts": self.facts, "pieces": sizes}).encode()
        start = [magic, hashlib.sha256(head).digest(), len(head).to_bytes(8, "little"), head]
        datas: list[bytes | memoryview] = [*start, bytes(-sum(map(len, start)) % _ALIGNMENT)]
        for piece in self.pieces:
            datas += [piece, bytes(-len(piece) % _ALIGNMENT)]
        return datas


def read_record(content: bytes | memoryview, magic: bytes) -> Record:
    """Return what such a file holds; its pieces lie in `content`.

    Raises:
        ValueError: it is damaged, or another file.
    """
    view, at = memoryview(content), len(magic) + 32
    end = at + 8 + int.from_bytes(view[at : at + 8], "little")
    head = view[at + 8 : end]
    if content[: len(magic)] != magic or hashlib.sha256(head).digest() != content[len(magic) : at]:
        raise ValueError("its content is damaged")
    said = json.loads(bytes(head))
    pieces = []
    for size, total in said["pieces"]:
        end += -end % _ALIGNMENT
        pieces.append(view[end : end + size])
        end += size
        if len(pieces[-1]) != size or _sum(pieces[-1]) != total:
            raise ValueError("its content is damaged")
    if len(view) != end + -end % _ALIGNMENT:
        raise ValueError("it has another length")
    return Record(said["facts"], tuple(pieces))


def _sum(piece: bytes | memoryview) -> str:
    """A digest that takes no longer than reading the bytes: of the sums of every 1024th word, and of what is left."""
    end = len(piece) - len(piece) % (8 * _LANES)
    words = np.frombuffer(piece, np.uint64, end // 8).reshape(-1, _LANES)
    return hashlib.sha256(words.sum(axis=0, dtype=np.uint64).tobytes() + bytes(piece[end:])).hexdigest()


class CachedFile(NamedTuple):
    """A file in the cache folder: its relative path, its bytes, and when it was written (seconds since 1970)."""

    name: str
    size: int
    time: float


def cached_files(below: str = "", folder: str = "") -> list[CachedFile]:
    """The files in the folder, or in one of its folders, by their names; it waits for what is to be written later."""
    where = cache_folder(folder)
    if where is None:
        return []
    settle()
    paths: list[Path] = []
    with suppress(ValueError):  # no folder has such a name
        for root, _, names in os.walk(where / below):  # which passes over folders that are gone
            paths += (Path(root, name) for name in names)
    return sorted(_described(paths, where))


def _described(paths: Iterable[Path], where: Path) -> Iterator[CachedFile]:
    for path in paths:
        with suppress(OSError):
            facts = path.stat(follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                yield CachedFile(path.relative_to(where).as_posix(), facts.st_size, facts.st_mtime)


def has_cached(below: str, ending: str, folder: str = "") -> bool:
    """Return True if a folder in the cache folder has a file whose name, from its first dot on, is `ending`.

    This is a hint that saves callers from computing a file's full name; it does not wait for files that `later` will
    write. It can be out of date, because a listing counts until the modification time of the folder changes. File
    systems round that time, to 4 ms or as much as 2 s, so it stays the same if another process adds or deletes a file
    right after the listing. It also says nothing of a file that another process adds just before this process writes
    one of its own. A wrong answer only costs time: after a wrong True, reading the file gives None; after a wrong
    False, the caller makes the file again, and the new one replaces the old. `read_cached` always looks at the file.
    """
    where = cache_folder(folder)
    if where is None:
        return False
    try:
        listing = _listing(where / below)
    except (OSError, ValueError):
        return False
    return ending in listing.endings


class _Listing(NamedTuple):
    """The endings of the names in a folder, from the first dot on.

    `time` is the folder's modification time when it was listed, in nanoseconds. See `has_cached` for its limits.
    """

    time: int
    endings: set[str]


_listings: dict[Path, _Listing] = {}


def _listing(folder: Path) -> _Listing:
    """List a folder, or return the last listing if the folder's modification time has not changed since."""
    changed = os.stat(folder).st_mtime_ns
    known = _listings.get(folder)
    if known is None or known.time != changed:
        known = _listings[folder] = _Listing(changed, {_ending(name) for name in os.listdir(folder)})
    return known


def _ending(name: str) -> str:
    return name[name.find(".") :] if "." in name else ""


def _note_written(path: Path) -> None:
    """Add a file that this process has written to the listing of its folder, which counts as up to date."""
    known = _listings.get(path.parent)
    if known is not None:
        known.endings.add(_ending(path.name))
        with suppress(OSError):
            _listings[path.parent] = _Listing(os.stat(path.parent).st_mtime_ns, known.endings)


def forget_cached(name: str, folder: str = "") -> bool:
    """Delete a file of the folder; False if that cannot be done."""
    where = cache_folder(folder)
    if where is None:
        return False
    try:
        (where / name).unlink()
    except (OSError, ValueError) as error:
        _log.info("%s cannot be deleted from the cache folder %s: %s", name, where, error)
        return False
    return True


def own_names(pattern: str) -> re.Pattern[str]:
    """Return the names of files that were written here under names of a pattern, or were begun to be."""
    return re.compile(rf"(?:{pattern})|\.(?:{pattern})\.[a-z0-9_]{{8}}")


def trim_cached(below: str, names: re.Pattern[str], most: int, folder: str = "") -> None:
    """Delete the oldest files with such names in a folder until the others have at most so many bytes together."""
    where = cache_folder(folder)
    if where is None:
        return
    try:
        paths = [where / below / name for name in os.listdir(where / below) if names.fullmatch(name)]
    except (OSError, ValueError):
        return
    files = sorted(_described(paths, where), key=lambda file: file.time)
    over = sum(file.size for file in files) - most
    for file in files:
        if over <= 0:
            return
        over -= file.size
        forget_cached(file.name, folder)


_room: dict[tuple[Path, int], int] = {}
"""For folders and the most bytes in each, how many may be written before the files are looked at again."""
_CHECKS: Final = 16


def make_room(below: str, names: re.Pattern[str], most: int, needed: int, folder: str = "") -> None:
    """Delete the oldest files with such names where `needed` more bytes would be more than `most`.

    The files are looked at when a sixteenth of `most` has been written since the last time, not for every file: a
    network of many small parts would spend its time on that.
    """
    where = cache_folder(folder)
    if where is None:
        return
    key = where / below, most
    if needed > _room.get(key, -1):
        part = most // _CHECKS
        trim_cached(below, names, most - max(needed, part), folder)
        _room[key] = part
    _room[key] -= needed


class _Thread:
    """Does what may be done later, one after the other, and ends when nothing is left; the process waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[tuple[str, Callable[[], object]]] = deque()
        self._doing: str | None = None
        self._worker: int | None = None  # the thread that is at work

    def add(self, name: str, job: Callable[[], object]) -> None:
        with self._changed:
            self._jobs.append((name, job))
            if self._worker is not None:
                return
            self._worker = 0
        self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="interposer cache", daemon=False).start()
        except RuntimeError:  # the interpreter ends, or there are too many threads
            self._work()

    def wait(self, name: str | None, seconds: float | None) -> None:
        if self._worker in (None, threading.get_ident()):
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._is_open(name), seconds)

    def _is_open(self, name: str | None) -> bool:
        return self._worker is not None and (name in (None, self._doing) or any(name == item for item, _ in self._jobs))

    def _work(self) -> None:
        self._worker = threading.get_ident()
        try:
            while (job := self._next()) is not None:
                _attempt(job)
                del job  # and what it holds, before those who wait go on
        except BaseException:
            self._start()  # the other jobs, and those who wait for them, go on
            raise

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._doing, job = self._jobs.popleft() if self._jobs else (None, None)
            if job is None:
                self._worker = None
            self._changed.notify_all()
            return job


def _attempt(job: Callable[[], object]) -> None:
    with suppress(Exception):  # also those of what writes the log
        try:
            job()
        except Exception:
            _log.exception("something cannot be kept in the cache folder")


_thread = _Thread()


def _forget_thread() -> None:
    """In a forked process, where there is no such thread; what it has begun is its own."""
    global _thread  # noqa: PLW0603 - the locks of the old one may be held
    _thread = _Thread()


os.register_at_fork(after_in_child=_forget_thread)


def later(name: str, job: Callable[[], object]) -> None:
    """Let a thread do `job`; the end of the process waits for it.

    Who reads a file of this name waits for it, too. Where the file has another name, readers call `settle`.
    """
    _thread.add(name, job)


def settle(name: str | None = None, seconds: float | None = None) -> None:
    """Wait until all that was to be done later is done, or what was for one name; not longer than so many seconds."""
    _thread.wait(name, seconds)


def _write(path: Path, content: Iterable[bytes | memoryview]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, durable=False, permissions=0o600) as file:  # what a crash damages is found by its sums
        file.writelines(content)
