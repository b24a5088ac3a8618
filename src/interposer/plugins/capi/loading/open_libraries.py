"""The shared objects that this process has open; each is opened once, even if several runtimes use its backend."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import os
import stat
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from interposer.backend.capabilities import Options
from interposer.core.cache import cache_folder
from interposer.core.config import thread_budget
from interposer.core.errors import BackendUnavailableError, InterposerError, OptionError, PluginError
from interposer.core.records import dataclass
from interposer.plugins.capi.abi.reading import forget_code
from interposer.plugins.capi.library.host import HostSettings
from interposer.plugins.capi.library.library import SYMBOLS, Library, identify, open_library
from interposer.plugins.capi.loading.elf import elf_problem
from interposer.plugins.capi.loading.records import State, Step, StepError
from interposer.plugins.capi.running.backend import DynamicBackend

__all__ = [
    "FileIdentity",
    "backend_of_file",
    "host_settings",
    "opened_file",
    "sha256_of",
    "shared_backend",
    "step_error",
]

PATIENCE: Final = 20.0
"""Seconds to wait for the shutdown of a backend that was released in another thread."""
_changed = threading.Condition(threading.RLock())
_opened: dict[tuple[int, int], _Opened] = {}


class FileIdentity(NamedTuple):
    """What identifies an open file and its content regardless of its path: device, inode, size, and times."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, descriptor: int) -> FileIdentity:
        """Return the identity of an open file."""
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def content(self) -> tuple[int, int]:
        """The size and modification time, which differ after the content has changed."""
        return self.size, self.modified_ns


@contextmanager
def opened_file(path: str) -> Iterator[int]:
    """Open a regular file and yield its descriptor; raise `StepError` if it cannot be opened or is not regular."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise StepError(Step.FILE, f"it cannot be opened: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StepError(Step.FILE, "it is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(eq=False)
class _Opened:
    """A shared object that this process has open, with its backend as long as something refers to it.

    `descriptor` keeps the file open if it is not None. `unload` is True if the library is unloaded with its backend.
    `is_busy` is True from the start of its backend until the backend is shut down. `is_stuck` is True if the backend
    could not be shut down, so that it cannot be started again.
    """

    path: str
    identity: FileIdentity
    library: ctypes.CDLL
    descriptor: int | None
    unload: bool
    backend: weakref.ref[DynamicBackend] | None = None
    is_busy: bool = False
    is_stuck: bool = False

    def live_backend(self) -> DynamicBackend | None:
        return None if self.backend is None else self.backend()


def shared_backend(
    path: str, descriptor: int, *, options: Mapping[str, Options], unload: bool = False, exactly: bool = False
) -> DynamicBackend:
    """Return the backend of a shared object, which is opened if necessary.

    The plug-in is shut down when nothing refers to its backends any more. Each caller gets a backend of its own, which
    has the caller's options and allocator. Thread-safe.

    Args:
        path: the canonical path of the file.
        descriptor: a descriptor of the open file.
        options: the options for ``init``, by backend id. The first caller determines them; for later callers with
            other options, those that a network may have are passed with every network.
        unload: whether the library is unloaded with the backend, which happens if all callers request it.
        exactly: load the file of `descriptor`, even if another file replaces it at the path in the meantime. The
            library does not know its folder (``$ORIGIN``) then.

    Raises:
        StepError: the library cannot be loaded; has the step that failed.
        OptionError: an option that the backend does not declare, or a value of the wrong type.
    """
    with _changed:
        opened_library = _opened_library(path, descriptor, unload=unload, exactly=exactly)
        if opened_library.is_stuck:
            raise StepError(Step.INIT, "it could not be shut down after its last use; only a new process can use it")
        if not _changed.wait_for(
            lambda: opened_library.live_backend() is not None or not opened_library.is_busy, PATIENCE
        ):
            raise StepError(Step.INIT, "its last use in this process has not come to its end")
        backend = opened_library.live_backend()
        opened_library.unload = unload if backend is None else opened_library.unload and unload
        return _for_runtime(_new_backend(opened_library, options) if backend is None else backend, options)


def _for_runtime(backend: DynamicBackend, options: Mapping[str, Options]) -> DynamicBackend:
    try:
        return backend.for_runtime(options.get(backend.id, {}))
    except OptionError:
        raise
    except InterposerError as error:
        raise step_error(error) from error


def backend_of_file(
    path: str | os.PathLike[str], options: Mapping[str, Options] | None = None, *, sha256: str = ""
) -> DynamicBackend:
    """Return the backend of one file with any name, loaded into this process without a trial.

    `options` are options by backend id. If `sha256` is given, the content of the file must have this digest.

    Raises:
        PluginError: the file cannot be loaded; ``.check`` names the step that failed.
        OptionError: an option that the backend does not declare, or a value of the wrong type.
    """
    library = os.path.realpath(path)
    try:
        with opened_file(library) as descriptor:
            problem = elf_problem(descriptor, SYMBOLS)
            if problem is not None:
                raise StepError(Step.FILE, problem)
            if sha256 and sha256_of(descriptor) != sha256:
                raise StepError(Step.ALLOW_LIST, f"its SHA-256 is not {sha256} any more")
            return shared_backend(library, descriptor, options=options or {}, exactly=bool(sha256))
    except StepError as error:
        raise PluginError(library, error.step.value, error.reason) from error


def sha256_of(descriptor: int) -> str:
    """Return the SHA-256 of an open file."""
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opened_library(path: str, descriptor: int, *, unload: bool, exactly: bool) -> _Opened:
    identity = FileIdentity.of(descriptor)
    key = identity.device, identity.inode
    opened_library = _opened.get(key)
    if opened_library is None:
        if not exactly and any(other_library.path == path for other_library in _opened.values()):
            raise StepError(Step.OPEN, "this process has loaded another file of this path; only a new one can load it")
        _opened[key] = opened_library = _load(path, descriptor, identity, unload=unload, exactly=exactly)
    elif opened_library.identity.content != identity.content:
        raise StepError(Step.OPEN, "it was changed after this process had loaded it; only a new one can load it")
    return opened_library


def _load(path: str, descriptor: int, identity: FileIdentity, *, unload: bool, exactly: bool) -> _Opened:
    # The dynamic linker knows libraries by their names: as long as this one is loaded, its descriptor stays open, so
    # that the name below cannot mean another file.
    own_descriptor = os.dup(descriptor) if exactly else None
    name = path if own_descriptor is None else f"/proc/self/fd/{own_descriptor}"
    try:
        with _same_arithmetic():
            library = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        if own_descriptor is not None:
            os.close(own_descriptor)
        raise StepError(Step.OPEN, f"the dynamic linker refuses it: {str(error).replace(name, path)}") from error
    return _Opened(path, identity, library, own_descriptor, unload)


@contextmanager
def _same_arithmetic() -> Iterator[None]:
    """A context manager that restores this thread's floating-point settings after a library was loaded in the block.

    Code that was linked with -ffast-math changes them on loading.
    """
    process = ctypes.CDLL(None)
    state = ctypes.create_string_buffer(4096)
    try:
        process.fegetenv(state)
    except AttributeError:  # no libm here
        yield
        return
    try:
        yield
    finally:
        process.fesetenv(state)


def _new_backend(opened_library: _Opened, options: Mapping[str, Options]) -> DynamicBackend:
    library: Library | None = None
    try:
        backend_options = options.get(identify(opened_library.library, opened_library.path).id, {})
        library = open_library(
            opened_library.library,
            opened_library.path,
            settings=host_settings(opened_library.path),
            options=backend_options,
        )
        backend = DynamicBackend(library)
    except InterposerError as error:
        _release(opened_library, library)
        if isinstance(error, OptionError):
            raise
        raise step_error(error) from error
    opened_library.backend, opened_library.is_busy = weakref.ref(backend), True
    weakref.finalize(backend, _release, opened_library, library).atexit = False  # libraries close themselves then
    return backend


def step_error(error: InterposerError) -> StepError:
    """Return an exception of `open_library` as a `StepError`, with the step of loading that failed."""
    if isinstance(error, PluginError):
        return StepError(Step.FILE if error.check == "symbols" else Step(error.check), error.reason)
    if isinstance(error, BackendUnavailableError):
        return StepError(Step.INIT, error.reason, State.SKIPPED)
    return StepError(Step.INIT, str(error))


def host_settings(path: str) -> HostSettings:
    """Return the settings of this machine that a plug-in gets, with a separate folder in the cache folder.

    Raises:
        ConfigError: the setting ``num_threads`` is invalid.
    """
    cache_root, threads = cache_folder(), thread_budget()
    if cache_root is None:
        return HostSettings(threads=threads)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    folder = cache_root / "backends" / f"{Path(path).name}-{digest}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return HostSettings(threads=threads)
    return HostSettings(cache_dir=str(folder), threads=threads)


def _after_fork() -> None:
    global _changed  # noqa: PLW0603 - a thread that is not here may hold its lock
    _changed = threading.Condition(threading.RLock())


os.register_at_fork(after_in_child=_after_fork)


# --- the end ----------------------------------------------------------------------------------------------------------


def _release(opened_library: _Opened, library: Library | None) -> None:
    is_closed = library is None or library.close()
    with _changed:
        opened_library.backend, opened_library.is_busy, opened_library.is_stuck = None, False, not is_closed
        if opened_library.unload and is_closed:
            _unload(opened_library)
        _changed.notify_all()


def _unload(opened_library: _Opened) -> None:
    name = opened_library.library._name
    _ctypes.dlclose(opened_library.library._handle)
    forget_code()
    with suppress(OSError):  # some libraries stay, whatever they are asked
        opened_library.library = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        return
    del _opened[opened_library.identity.device, opened_library.identity.inode]
    if opened_library.descriptor is not None:
        os.close(opened_library.descriptor)
