"""The cache folder: small files that are shared between processes and may be deleted at any time.

The folder is ``$INTERPOSER_CACHE_DIR``, else ``$XDG_CACHE_HOME/interposer``, else ``~/.cache/interposer``. If it cannot
be read or written, nothing is cached, and no error is raised. The same holds for a folder that other users could have
written, and for such files in it, because a cached file is used in the place of a model: see
`interposer.core.ownership`. Functions with an argument `folder` use that folder
instead: a relative path is resolved against the working directory, ``~`` is the user's home folder, and an empty text
selects the folder above. Users may put files of their own into the folder: only files whose names match a pattern of
`own_names` are ever deleted to free space.
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
from typing import Any, Final, NamedTuple, TypeAlias

from interposer.core.checksums import BLOCK, checksum
from interposer.core.config import CACHE_DIR
from interposer.core.files import reason_of, replacing
from interposer.core.ownership import why_untrusted, why_untrusted_file

__all__ = [
    "LARGEST",
    "LATER",
    "CachedFile",
    "Piece",
    "Record",
    "Streamed",
    "cache_folder",
    "cached_files",
    "forget_cached",
    "has_cached",
    "is_listed",
    "keep_listing",
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

LARGEST: Final = 1 << 31
"""Largest file that is read, in bytes; larger files count as absent."""
LATER: Final = 1 << 20
"""Size in bytes from which on callers write content in the background, by `later`."""
_ALIGNMENT: Final = 64
CHUNK: Final = 2 * BLOCK
"""Size in bytes of the chunks of `Streamed`: a checksum takes whole blocks."""

_log = logging.getLogger("interposer.cache")
_warned: set[tuple[Path, str]] = set()


def cache_folder(folder: str = "") -> Path | None:
    """Return the absolute path of the cache folder, which need not exist; None if caching is disabled.

    Args:
        folder: the path to use instead of the default; empty for the default.
    """
    configured_folder = folder if folder.strip() else os.environ.get(CACHE_DIR)
    if configured_folder is not None:
        return Path(os.path.expanduser(configured_folder)).absolute() if configured_folder.strip() else None
    for base_folder in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(base_folder):
            return Path(base_folder, "interposer")
    return None


def read_cached(name: str, folder: str = "") -> bytes | None:
    """Return the content of the file `name`, a relative path in the cache folder, or None if it cannot be read.

    That is the case if it is absent, unreadable or too large, or if caching is disabled. `folder` is the cache folder,
    or empty for the default. Waits for a job of `later` with the same name.
    """
    folder_path = _trusted_folder(folder)
    if folder_path is None:
        return None
    settle(name)
    try:
        with open(folder_path / name, "rb") as file:
            _check_owner(folder_path / name, file.fileno())
            content = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None
    return content if len(content) <= LARGEST else None


def mapped_cached(name: str, folder: str = "") -> memoryview | None:
    """Return the content of the cached file `name`, mapped into memory; None if it cannot be read: see `read_cached`.

    A cached file is replaced as a whole and never modified, so the mapped content stays the same.
    """
    folder_path = _trusted_folder(folder)
    if folder_path is None:
        return None
    settle(name)
    try:
        with open(folder_path / name, "rb") as file:
            _check_owner(folder_path / name, file.fileno())
            size = os.fstat(file.fileno()).st_size
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)) if size <= LARGEST else None
    except (OSError, ValueError):  # ValueError: an empty file cannot be mapped
        return None


def write_cached(name: str, content: bytes | Iterable[Piece], folder: str = "") -> bool:
    """Store `content` (bytes, or an iterable of pieces) in the cached file `name`, a relative path.

    Returns False if the file cannot be written; a warning is logged once for each folder and reason. The file is
    replaced atomically: readers see the whole new content or the old one, even if this process crashes.
    """
    folder_path = _trusted_folder(folder)
    if folder_path is None:
        return False
    try:
        _write(folder_path / name, [content] if isinstance(content, bytes) else content)
    except (OSError, ValueError) as error:
        _warn_unwritable(name, folder_path, error)
        return False
    _add_to_listing(folder_path / name)
    return True


def _trusted_folder(folder: str) -> Path | None:
    """Return the cache folder, or None if caching is disabled or other users could have written to the folder."""
    path = cache_folder(folder)
    if path is None:
        return None
    key = _owner_and_mode(path)
    if _owners.get(path) != key:
        _warn_untrusted(path, why_untrusted(path))
        _owners[path] = key
    return None if path in _untrusted else path


_owners: dict[Path, tuple[int, int] | None] = {}
"""The owner and the mode of each cache folder when it was checked; None for an absent one."""
_untrusted: set[Path] = set()


def _owner_and_mode(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_uid, status.st_mode


def _warn_untrusted(folder: Path, problem: str) -> None:
    """Note whether a cache folder is not to be used, and log a warning in that case."""
    _untrusted.discard(folder)
    if problem:
        _untrusted.add(folder)
        _log.warning(
            "the cache folder %s is not used, because other users could have written to it: %s (%s names another one)",
            folder, problem, CACHE_DIR,
        )  # fmt: skip


def _check_owner(path: Path, descriptor: int) -> None:
    """Raise PermissionError, and log a warning once, if another user could have written an open cached file."""
    problem = why_untrusted_file(descriptor, path.parent)
    if not problem:
        return
    if (path, problem) not in _warned:
        _warned.add((path, problem))
        _log.warning("the cached file %s is not used: %s", path, problem)
    raise PermissionError(problem)


def _warn_unwritable(name: str, folder: Path, error: OSError | ValueError) -> None:
    """Log a warning that the cached file `name` cannot be written in the folder `folder`, because of `error`.

    There is one warning for each folder and reason.
    """
    reason = getattr(error, "reason", "") or reason_of(error)
    if (folder, reason) not in _warned:
        _warned.add((folder, reason))
        _log.warning(
            "%s cannot be stored in the cache folder %s: %s (set %s to an empty text to disable the cache)",
            name, folder, reason, CACHE_DIR,
        )  # fmt: skip


class Streamed:
    """Bytes that are read in chunks, so that they need not be in memory as a whole; `read` may be called repeatedly.

    `read` yields chunks of any size that have `size` bytes together.
    """

    def __init__(self, size: int, read: Callable[[], Iterator[bytes | memoryview]]) -> None:
        self._size, self._read = size, read

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in chunks of `CHUNK` bytes and a smaller last one."""
        buffer = bytearray()
        for piece in self._read():
            buffer += piece
            while len(buffer) >= CHUNK:
                yield bytes(buffer[:CHUNK])
                del buffer[:CHUNK]
        if buffer:
            yield bytes(buffer)


Piece: TypeAlias = "bytes | memoryview | Streamed"


class Record(NamedTuple):
    """What a cached file holds: `facts`, which are JSON-compatible, and `pieces` of bytes, such as compiled kernels.

    Each piece begins at a multiple of 64 bytes in the file.
    """

    facts: Mapping[str, Any]
    pieces: Sequence[Piece]

    def content(self, magic: bytes) -> list[Piece]:
        """Return the content of a file with this record, in pieces to be written one after the other.

        These are `magic`, a header with checksums, and the record's own pieces, each padded to a multiple of 64 bytes.
        """
        sizes = [(len(piece), checksum(piece)) for piece in self.pieces]
        header = json.dumps({"facts": self.facts, "pieces": sizes}).encode()
        preamble = [magic, hashlib.sha256(header).digest(), len(header).to_bytes(8, "little"), header]
        parts: list[Piece] = [*preamble, bytes(-sum(map(len, preamble)) % _ALIGNMENT)]
        for piece in self.pieces:
            parts += [piece, bytes(-len(piece) % _ALIGNMENT)]
        return parts


def read_record(content: bytes | memoryview, magic: bytes) -> tuple[Any, tuple[memoryview, ...]]:
    """Return the facts and the pieces of a record, from the content that `Record.content` wrote.

    The file must begin with the bytes `magic`. The pieces are views of `content`.

    Raises:
        ValueError: the content is damaged, or does not begin with `magic`.
    """
    view, size_offset = memoryview(content), len(magic) + 32
    position = size_offset + 8 + int.from_bytes(view[size_offset : size_offset + 8], "little")
    header = view[size_offset + 8 : position]
    if content[: len(magic)] != magic or hashlib.sha256(header).digest() != content[len(magic) : size_offset]:
        raise ValueError("the content is damaged")
    header_data = json.loads(bytes(header))
    pieces = []
    for size, expected_checksum in header_data["pieces"]:
        position += -position % _ALIGNMENT
        pieces.append(view[position : position + size])
        position += size
        if len(pieces[-1]) != size or checksum(pieces[-1]) != expected_checksum:
            raise ValueError("the content is damaged")
    if len(view) != position + -position % _ALIGNMENT:
        raise ValueError("the length is not the recorded one")
    return header_data["facts"], tuple(pieces)


class CachedFile(NamedTuple):
    """A file in the cache folder: its relative path, its size in bytes and its modification time in Unix seconds."""

    name: str
    size: int
    time: float


def cached_files(below: str = "", folder: str = "") -> list[CachedFile]:
    """Return the files in the cache folder or its subfolder `below`, sorted by name. Waits for all jobs of `later`."""
    folder_path = cache_folder(folder)
    if folder_path is None:
        return []
    settle()
    paths: list[Path] = []
    with suppress(ValueError):  # `below` is no valid path, for example if it has a null character
        for root, _, names in os.walk(folder_path / below):  # ignores folders that are deleted during the walk
            paths += (Path(root, name) for name in names)
    files: list[CachedFile] = []
    for path in paths:
        with suppress(OSError):
            status = path.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                name = path.relative_to(folder_path).as_posix()
                files.append(CachedFile(name, status.st_size, status.st_mtime))
    return sorted(files)


def has_cached(below: str, ending: str, folder: str = "") -> bool:
    """Return True if a folder in the cache folder has a file whose name, from its first dot on, is `ending`.

    This is a hint that saves callers from computing a file's full name. It does not wait for files that `later` will
    write. The hint can be out of date, because a listing is valid until the modification time of the folder changes.
    File systems round that time, to 4 ms or as much as 2 s, so the time can stay the same if another process adds or
    deletes a file right after the listing. The hint also misses a file that another process adds just before this
    process writes one or calls `keep_listing`. A wrong answer only costs time: after a wrong True, reading the file
    gives None; after a wrong False, the caller creates the file again, and the new one replaces the old. `read_cached`
    always reads the file.
    """
    folder_path = _trusted_folder(folder)
    if folder_path is None:
        return False
    try:
        listing = _listing(folder_path / below)
    except (OSError, ValueError):
        return False
    return ending in listing.endings


class _Listing(NamedTuple):
    """The last listing of a cache folder, stored to answer `has_cached` without reading the folder again.

    `endings` has the part of each file name from its first dot on. `time` is the folder's modification time when it was
    listed, in nanoseconds. See `has_cached` for its limits.
    """

    time: int
    endings: set[str]


_listings: dict[Path, _Listing] = {}


def _listing(folder: Path) -> _Listing:
    """List a folder, or return the last listing if the folder's modification time has not changed since."""
    modified_ns = os.stat(folder).st_mtime_ns
    listing = _listings.get(folder)
    if listing is None or listing.time != modified_ns:
        listing = _listings[folder] = _Listing(modified_ns, {_ending(name) for name in os.listdir(folder)})
    return listing


def _ending(name: str) -> str:
    return name[name.find(".") :] if "." in name else ""


def _add_to_listing(path: Path) -> None:
    """Add a file that this process has written to the cached listing of its folder, instead of listing it again."""
    listing = _listings.get(path.parent)
    if listing is not None:
        listing.endings.add(_ending(path.name))
        keep_listing(path.parent)


def is_listed(folder: Path) -> bool:
    """Return True if `has_cached` has a listing of a folder that is up to date."""
    listing = _listings.get(folder)
    try:
        return listing is not None and listing.time == os.stat(folder).st_mtime_ns
    except OSError:
        return False


def keep_listing(folder: Path) -> None:
    """Declare the listing of a folder up to date, after this process added or deleted a file that nobody asks for.

    Call it only if `is_listed` was True before. Without it, `has_cached` lists the folder again after every such file,
    which takes milliseconds for a folder with thousands of files.
    """
    listing = _listings.get(folder)
    if listing is not None:
        with suppress(OSError):
            _listings[folder] = _Listing(os.stat(folder).st_mtime_ns, listing.endings)


def forget_cached(name: str, folder: str = "") -> bool:
    """Delete the file `name`, a relative path in the cache folder; return False if it is absent or cannot be deleted.

    `folder` is the cache folder, or empty for the default.
    """
    folder_path = cache_folder(folder)
    if folder_path is None:
        return False
    try:
        (folder_path / name).unlink()
    except (OSError, ValueError) as error:
        _log.info("%s cannot be deleted from the cache folder %s: %s", name, folder_path, error)
        return False
    return True


def own_names(pattern: str) -> re.Pattern[str]:
    """Return a pattern of the names of cached files that match `pattern`, and of their unfinished temporary files."""
    return re.compile(rf"(?:{pattern})|\.(?:{pattern})\.[a-z0-9_]{{8}}")


def trim_cached(below: str, names: re.Pattern[str], max_bytes: int, folder: str = "") -> None:
    """Delete the oldest files in the subfolder `below` that match `names` until few enough remain.

    That is, until they have `max_bytes` bytes or fewer, and are 8,192 files or fewer, so that looking at all of them
    takes a short time.
    """
    folder_path = cache_folder(folder)
    if folder_path is None:
        return
    try:
        with os.scandir(folder_path / below) as entries:
            files = sorted(_matching(entries, names))
    except (OSError, ValueError):
        return
    excess = sum(size for _, size, _ in files) - max_bytes
    for index, (_, size, name) in enumerate(files):
        if excess <= 0 and len(files) - index <= _MOST_FILES:
            return
        excess -= size
        forget_cached(os.path.join(below, name), folder)


def _matching(entries: Iterable[os.DirEntry[str]], names: re.Pattern[str]) -> Iterator[tuple[float, int, str]]:
    """Yield the modification time, the size and the name of each regular file that matches `names`."""
    for entry in entries:
        with suppress(OSError):
            if names.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield status.st_mtime, status.st_size, entry.name


_free_bytes: dict[tuple[Path, int], int] = {}
"""By folder and byte limit: how many more bytes may be written before the sizes of the files are summed up again."""
_CHECKS: Final = 16
_MOST_FILES: Final = 8192
"""Files of one kind that remain after a check of the cache folder."""


def make_room(below: str, names: re.Pattern[str], max_bytes: int, new_bytes: int, folder: str = "") -> None:
    """Delete the oldest files in `below` that match `names` if `new_bytes` more bytes would exceed `max_bytes` bytes.

    The sizes of the files are only summed up after a sixteenth of `max_bytes` has been written since the last time.
    Doing so for every file would dominate the time of a network with many small compiled subgraphs.
    """
    folder_path = cache_folder(folder)
    if folder_path is None:
        return
    room_key = folder_path / below, max_bytes
    if new_bytes > _free_bytes.get(room_key, -1):
        sixteenth = max_bytes // _CHECKS
        trim_cached(below, names, max_bytes - max(new_bytes, sixteenth), folder)
        _free_bytes[room_key] = sixteenth
    _free_bytes[room_key] -= new_bytes


class _Thread:
    """A queue of jobs, such as writing cached files, that one background thread runs in order.

    The thread starts when a job is added and ends when none is left. The process does not exit before that.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[tuple[str, Callable[[], object]]] = deque()
        self._current_name: str | None = None
        self._worker_id: int | None = None  # the identifier of the running thread; 0 while it starts

    def add(self, name: str, job: Callable[[], object]) -> None:
        with self._changed:
            self._jobs.append((name, job))
            if self._worker_id is not None:
                return
            self._worker_id = 0
        self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="interposer cache", daemon=False).start()
        except RuntimeError:  # the interpreter is shutting down, or there are too many threads
            self._work()

    def wait(self, name: str | None, seconds: float | None) -> None:
        if self._worker_id in (None, threading.get_ident()):
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._is_open(name), seconds)

    def _is_open(self, name: str | None) -> bool:
        return self._worker_id is not None and (
            name in (None, self._current_name) or any(name == queued for queued, _ in self._jobs)
        )

    def _work(self) -> None:
        self._worker_id = threading.get_ident()
        try:
            while (job := self._next()) is not None:
                _attempt(job)
                del job  # release its references before waiting threads continue
        except BaseException:
            self._start()  # a new thread runs the remaining jobs, so that waiting threads are not blocked for ever
            raise

    def _next(self) -> Callable[[], object] | None:
        with self._changed:
            self._current_name, job = self._jobs.popleft() if self._jobs else (None, None)
            if job is None:
                self._worker_id = None
            self._changed.notify_all()
            return job


def _attempt(job: Callable[[], object]) -> None:
    with suppress(Exception):  # also exceptions of log handlers
        try:
            job()
        except Exception:
            _log.exception("a file cannot be stored in the cache folder")


_thread = _Thread()


def _forget_thread() -> None:
    """Create a new background thread object in a forked process: threads do not survive a fork."""
    global _thread  # noqa: PLW0603 - the locks of the old object may be held
    _thread = _Thread()


os.register_at_fork(after_in_child=_forget_thread)


def later(name: str, job: Callable[[], object]) -> None:
    """Run `job` in the background thread, in the order of the calls. The process waits for it before it exits.

    `read_cached` and `mapped_cached` wait for the job if they read a file of the same `name`. If the job writes files
    of other names, their readers must call `settle`.
    """
    _thread.add(name, job)


def settle(name: str | None = None, seconds: float | None = None) -> None:
    """Wait until the jobs called `name` (None: all jobs of `later`) are done, at most `seconds` (None: no limit)."""
    _thread.wait(name, seconds)


def _write(path: Path, content: Iterable[Piece]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, durable=False, permissions=0o600) as file:  # checksums detect what a crash damages
        for piece in content:
            file.writelines(piece if isinstance(piece, Streamed) else (piece,))
