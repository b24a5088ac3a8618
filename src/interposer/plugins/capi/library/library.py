"""An opened plug-in: validation of its functions, table and information, calls, and shutdown.

Loaders use `identify` and `open_library`; both name the check that failed in `PluginError.check`.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

from interposer.backend.base import BackendId
from interposer.backend.capabilities import Options
from interposer.core import config
from interposer.core.cache import settle
from interposer.core.checksums import file_checksum
from interposer.core.errors import (
    BackendContractError,
    BackendUnavailableError,
    InterposerError,
    InvalidArgumentError,
    PluginError,
)
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError, ErrorBuffer, ErrorBuffers, announce
from interposer.plugins.capi.abi.flatten import Withholding
from interposer.plugins.capi.abi.reading import code_fault, read, read_versioned
from interposer.plugins.capi.library.host import HostServices, HostSettings, LogRing
from interposer.plugins.capi.library.information import LibraryInfo, read_info
from interposer.plugins.capi.library.option_tables import OptionTable, checked_options
from interposer.plugins.capi.loading.elf import build_id

__all__ = ["SYMBOLS", "Identity", "Library", "identify", "open_library", "version_problem"]

SYMBOLS: Final = ("GetBackendId", "GetVersion", "BackendFactory")
"""The functions that a plug-in must export."""
HOST_VERSION: Final = "SetHostVersion"
VOCABULARY_REVISION: Final = "GetVocabularyRevision"
"""The optional function that gets the host's version of the interface before the plug-in returns its own."""
PATIENCE: Final = 10.0
"""Seconds that `Library.close` waits for running calls."""
_UNWRITTEN: Final = 0xFFFFFFFF
_LONGEST_ID: Final = 256
_open: set[Library] = set()


class Identity(NamedTuple):
    """The id of a plug-in, and its versions of the interface and of the vocabulary."""

    id: str
    major: int
    minor: int
    vocabulary: int = 0

    @property
    def version(self) -> str:
        """The version as text, "1.0"."""
        return f"{self.major}.{self.minor}"


def version_problem(version: tuple[int, int], supported: tuple[int, int] | None = None) -> str | None:
    """Return why a plug-in's version (major, minor) is not compatible with `supported`, or None if it is.

    It must have the same major version, and no greater minor version. By default, `supported` is the version of this
    package.
    """
    supported = abi.API_VERSION if supported is None else supported
    if version[0] == supported[0] and version[1] <= supported[1]:
        return None
    return f"it needs version {version[0]}.{version[1]} of the backend interface; this is {supported[0]}.{supported[1]}"


def identify(library: ctypes.CDLL, path: str) -> Identity:
    """Return the id and the versions of an opened shared object; this runs code of the plug-in. `path` is for messages.

    Raises:
        PluginError: ``.check`` is "symbols" (one is missing), "version" or "id".
    """
    for name in SYMBOLS:
        if not hasattr(library, name):
            raise PluginError(path, "symbols", f"it does not export {name}")
    major, minor = _version(library, path)
    error = version_problem((major, minor))
    if error is not None:
        raise PluginError(path, "version", error)
    return Identity(_id(library, path), major, minor, _vocabulary(library))


def _version(library: ctypes.CDLL, path: str) -> tuple[int, int]:
    if hasattr(library, HOST_VERSION):
        _exported(library, HOST_VERSION, None, ctypes.c_uint32, ctypes.c_uint32)(*abi.API_VERSION)
    major, minor = ctypes.c_uint32(_UNWRITTEN), ctypes.c_uint32(_UNWRITTEN)
    ask = _exported(library, "GetVersion", None, ctypes.c_void_p, ctypes.c_void_p)
    ask(ctypes.addressof(major), ctypes.addressof(minor))
    for name, number in (("major", major), ("minor", minor)):
        if number.value == _UNWRITTEN:
            raise PluginError(path, "version", f"GetVersion did not write the {name} version")
    return major.value, minor.value


def _vocabulary(library: ctypes.CDLL) -> int:
    """Return the vocabulary revision of a plug-in; 0 if it does not export the function."""
    if not hasattr(library, VOCABULARY_REVISION):
        return 0
    return int(_exported(library, VOCABULARY_REVISION, ctypes.c_uint32)())


def _id(library: ctypes.CDLL, path: str) -> str:
    address = _exported(library, "GetBackendId", ctypes.c_void_p)()
    if not address:
        raise PluginError(path, "id", "GetBackendId gave NULL")
    try:
        return BackendId(_c_text(address).decode("utf-8"))
    except (InterposerError, UnicodeDecodeError) as error:
        raise PluginError(path, "id", f"GetBackendId gave no valid id: {error}") from error


def _c_text(address: int) -> bytes:
    """Return the bytes of a C string at an address, without the NUL at its end.

    The memory is read in pieces that do not cross a page unless necessary, since the next page may not be mapped.
    """
    text_bytes = b""
    while len(text_bytes) <= _LONGEST_ID:
        piece = read(address + len(text_bytes), min(64, 4096 - (address + len(text_bytes)) % 4096), "the id")
        end = piece.find(b"\0")
        if end >= 0:
            return text_bytes + piece[:end]
        text_bytes += piece
    raise BackendContractError(f"it is longer than {_LONGEST_ID} bytes")


def _exported(library: ctypes.CDLL, name: str, result_type: Any, *argument_types: Any) -> Callable[..., Any]:
    announce(name)
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    function: Callable[..., Any] = ctypes.CFUNCTYPE(result_type, *argument_types)(address or 0)
    return function


def open_library(
    library: ctypes.CDLL,
    path: str,
    *,
    settings: HostSettings | None = None,
    options: Options | None = None,
    checking: bool | None = None,
) -> Library:
    """Validate an opened shared object, get its function table and initialise it.

    Args:
        library: the shared object, which the result keeps open.
        path: the canonical path of the file, which the plug-in gets.
        settings: the settings of the machine that the plug-in gets.
        options: the user's options for ``init`` of the plug-in.
        checking: whether to detect invalid writes to outputs, inputs and constants in every run, which is slow. None
            uses the setting ``check_backends``.

    Raises:
        PluginError: ``.check`` is one of those of `identify`, "factory", "table", "info" or "init".
        InvalidArgumentError: the plug-in has no such option, or the value has the wrong type.
        BackendUnavailableError: the plug-in reports that a requirement is missing.
    """
    identity = identify(library, path)
    table = _table(library, path, identity)
    opened_library = Library(library, path, identity, table, bool(config.settings()["check_backends"].read(checking)))
    opened_library._start(settings or HostSettings(), options or {})
    return opened_library


def _table(library: ctypes.CDLL, path: str, identity: Identity) -> abi.Backend:
    address = _exported(library, "BackendFactory", ctypes.c_void_p)()
    if not address:
        raise PluginError(path, "factory", "BackendFactory gave NULL")
    try:
        table_bytes = _table_bytes(address, path, identity)
    except BackendContractError as error:
        raise PluginError(path, "table", str(error)) from error
    table = abi.Backend.from_buffer_copy(table_bytes.ljust(ctypes.sizeof(abi.Backend), b"\0"))
    for name in (*abi.REQUIRED, *abi.OPTIONAL):
        problem = code_fault(getattr(table, name))
        if problem is not None and (name in abi.REQUIRED or getattr(table, name)):
            raise PluginError(path, "table", f"its member {name} {problem}")
    return table


def _table_bytes(address: int, path: str, identity: Identity) -> bytes:
    head = read(address, 16, "the table")
    magic, declared_size = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    if magic != abi.MAGIC:
        raise PluginError(
            path,
            "table",
            f"it begins with {magic:#018x}, not with {abi.MAGIC:#018x}: BackendFactory gave no ipr_backend "
            "(a backend for Arm NN exports the same functions, and gives a C++ object)",
        )
    least_size = abi.TABLE_SIZES[identity.minor]
    if not least_size <= declared_size <= abi.MAX_STRUCT_SIZE:
        raise PluginError(
            path,
            "table",
            f"its struct_size is {declared_size:,}; version {identity.version} of the interface, "
            f"which GetVersion returns, needs at least {least_size}, and {abi.MAX_STRUCT_SIZE:,} is the most",
        )
    return read(address, min(declared_size, ctypes.sizeof(abi.Backend)), "the table")


class _Held(NamedTuple):
    """An object that the plug-in allocated: the function to release it, and `data` that must stay alive until then."""

    release: Callable[[], None] | None
    data: object


class Library:
    """An initialised plug-in, usable until `close`. Created by `open_library`; thread-safe.

    `info` is the plug-in's information about itself. Other modules of this package call it with `call` and
    `serialized`. `refuses` is True if the plug-in must not be called, and `active_calls` has one element for each call
    in progress; `close` waits until it is empty. `queue_ends` has an object for each queue, whose `is_open` is True
    while something in the queue is not over; `close` waits for these, too.
    """

    def __init__(self, library: ctypes.CDLL, path: str, identity: Identity, table: abi.Backend, checking: bool) -> None:
        self.path, self.identity, self.checking = path, identity, checking
        self.id = identity.id
        self.log = logging.getLogger(f"interposer.backend.{identity.id}")
        self.info = LibraryInfo()
        self.functions = {
            name: abi.FUNCTIONS[name](getattr(table, name))
            for name in (*abi.REQUIRED, *abi.OPTIONAL)
            if getattr(table, name)
        }
        self._library, self._table = library, table
        self.self = table.self
        self.setting: tuple[int, Options] = (0, {})  # threads, and what `init` was given
        self._errors = ErrorBuffers(identity.id)
        self._extensions: dict[bytes, dict[str, Any] | None] = {}
        self._tables: dict[bytes, Any] = {}
        self.queue_ends: set[Any] = set()
        self._host: HostServices | None = None
        self._ring = LogRing()
        self._compiling = threading.Lock()
        self._closing = threading.RLock()  # a finalizer may come here again
        self.withholding = Withholding(identity.vocabulary)
        self._releases: set[int] = set()
        self._held: dict[int, _Held] = {}
        self._to_release: deque[int] = deque()
        self.active_calls: list[None] = []
        self._numbers = itertools.count()
        self._pid = os.getpid()
        self._fork_safe = self._abandoned = False
        self._closed_reason = "it is not initialised"
        self.refuses = True

    def __repr__(self) -> str:
        return f"<Library {self.id} {self.identity.version} at {self.path}>"

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _start(self, settings: HostSettings, options: Options) -> None:
        self.info = self._ask_info()
        option_table = OptionTable(checked_options(self.id, options, self.info.options, abi.SCOPE_INIT))
        self.setting = (settings.threads, option_table.options)
        host = HostServices(self.path, settings, self.checking, self._ring)
        self._host = host
        try:
            self._errors.call(
                "init", self.functions["init"], self.self, ctypes.addressof(host.struct), option_table.address
            )
        except CallError as error:
            self.read_log()
            if error.status == abi.UNAVAILABLE:
                raise BackendUnavailableError(self.id, error.message or error.reason) from error
            raise PluginError(self.path, "init", f"init: {error.reason}") from error
        except BackendContractError as error:
            raise PluginError(self.path, "init", str(error)) from error
        self._closed_reason, self.refuses = "", False
        _open.add(self)
        try:
            self.info = self._ask_info()
        except BaseException:
            self.close()
            raise
        self._fork_safe = abi.Cap.FORK_SAFE in self.info.capabilities
        self.read_log()

    def _ask_info(self) -> LibraryInfo:
        out = abi.Info(struct_size=ctypes.sizeof(abi.Info))
        try:
            self._errors.call("get_info", self.functions["get_info"], self.self, ctypes.addressof(out))
            return read_info(out)
        except (CallError, BackendContractError, InvalidArgumentError) as error:
            raise PluginError(self.path, "info", f"get_info: {getattr(error, 'reason', error)}") from error

    @property
    def closed(self) -> bool:
        """True after `close`, and before initialisation."""
        return bool(self._closed_reason)

    @property
    def stamp(self) -> str:
        """A text that changes if the plug-in's file is replaced: its id, version, size and modification time."""
        status = os.stat(self.path)
        return f"{self.id} {self.info.version} {status.st_size} {status.st_mtime_ns}"

    @cached_property
    def build(self) -> str:
        """A text that is the same for equal files of the plug-in: its id, its version, and its build ID.

        A digest of the file stands for the build ID if the linker wrote none.
        """
        return f"{self.id} {self.info.version} {(build_id(self.path) or file_checksum(self.path))[:32]}"

    @property
    def table_rules(self) -> dict[str, Any]:
        """The arguments of `FlatGraph` that say which tables the plug-in accepts."""
        return {
            "revision": self.identity.vocabulary,
            "alignment": self.info.alignment,
            "unaligned": abi.Cap.UNALIGNED_CONSTANTS in self.info.capabilities,
        }

    def close(self) -> bool:
        """Release all objects of the plug-in, newest first, and shut it down. May be called again.

        This waits for running calls. If a call does not return, the plug-in is not shut down, and False is returned:
        its code must stay in memory.
        """
        settle(seconds=PATIENCE)  # compiled parts may still have to be written to the cache
        with self._closing:
            if self.closed:
                return not self._abandoned
            self._closed_reason, self.refuses = "it was shut down", True
            _open.discard(self)
            if not self._usable_here():
                self._abandoned = True  # the plug-in belongs to the parent process
                return False
            if not (
                self._wait_until_idle() and self._compiling.acquire(timeout=PATIENCE)
            ):  # never released, to block later compilation
                self.log.warning("backend %s is left as it is: it cannot be shut down now", self.id)
                self._abandoned = True
                return False
            for number in sorted(self._held, reverse=True):
                self._release(number)
            announce("shutdown")
            self.functions["shutdown"](self.self)
            self.read_log()
            return True

    def close_at_last(self, process: int) -> None:
        """Release and shut down like `close`, at interpreter exit when modules are already cleared.

        No global names are used here. A plug-in that a thread still executes, or that belongs to the parent of this
        `process`, is not shut down.
        """
        if self._closed_reason or self._is_busy or not (process == self._pid or self._fork_safe):
            return
        self._closed_reason, self.refuses = "it was shut down", True
        for number in sorted(self._held, reverse=True):
            release = self._held.pop(number).release
            if release is not None:
                release()
        self.functions["shutdown"](self.self)

    def _wait_until_idle(self) -> bool:
        """Wait for running calls and the work of queues, unless the plug-in is abandoned because its device hangs."""
        end = time.monotonic() + PATIENCE
        while self._is_busy and not self._abandoned and time.monotonic() < end:
            time.sleep(0.001)
        return not (self._is_busy or self._abandoned)

    @property
    def _is_busy(self) -> bool:
        return bool(self.active_calls) or any([end.is_open for end in tuple(self.queue_ends)])

    def _usable_here(self) -> bool:
        return (os.getpid() == self._pid or self._fork_safe) and not self._abandoned

    def abandon(self, reason: str) -> None:
        """Never call the plug-in again, not even to release its objects or to shut it down, as its device hangs."""
        self.log.warning("backend %s is not used any more: %s", self.id, reason)
        self._closed_reason, self.refuses, self._abandoned = reason, True, True
        _open.discard(self)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, function: Callable[..., int], *arguments: Any) -> None:
        """Call a function of the plug-in with `arguments` and an error buffer.

        `name` is the function's name, for messages.

        Raises:
            BackendUnavailableError: the library is closed, or was opened before the process was forked.
            CallError: the function failed.
        """
        self.active_calls.append(None)
        try:
            if self.refuses:
                self._refuse()
            self._errors.call(name, function, *arguments)
        finally:
            self.active_calls.pop()
            if self._ring.lines_written[0] != self._ring.lines_read:
                self.read_log()

    def prepared(
        self, name: str, function: Callable[..., int], *arguments: Any, owner: object = None
    ) -> Callable[[], None]:
        """Return a function that does what `call` does with these arguments, as often as it is called, but faster.

        It keeps `owner` alive. It is not thread-safe.
        """
        call, ring = self._errors.prepared(name, function, *arguments), self._ring
        lines_written, enter, leave = ring.lines_written, self.active_calls.append, self.active_calls.pop

        def run(_: object = owner) -> None:
            enter(None)
            try:
                if self.refuses:
                    self._refuse()
                call()
            finally:
                leave()
                if lines_written[0] != ring.lines_read:
                    self.read_log()

        return run

    def _refuse(self) -> None:
        """Raise `BackendUnavailableError` if the plug-in was closed, or was opened before the process was forked."""
        if self._closed_reason:
            raise BackendUnavailableError(self.id, self._closed_reason)
        if not self._usable_here():
            raise BackendUnavailableError(self.id, "it was opened before this process was forked")

    @contextmanager
    def serialized(self) -> Iterator[None]:
        """A context manager for queries and compilation: the plug-in cannot be closed during the block.

        Concurrent queries and compilations wait for each other unless the plug-in supports concurrency.
        """
        self.active_calls.append(None)
        try:
            self._refuse()
            if abi.Cap.CONCURRENT_COMPILE in self.info.capabilities:
                yield
            else:
                with self._compiling:
                    yield
        finally:
            self.active_calls.pop()
            self._release_waiting()

    def extension(
        self,
        name: bytes,
        kind: type[ctypes.Structure],
        functions: Mapping[str, str],
        optional: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any] | None:
        """Return the functions of an extension by member name, or None if the plug-in does not have the extension.

        Args:
            name: the name of the extension, such as ``ipr.blobs/1``.
            kind: the type of its table.
            functions: for each member of the table, the name of its type in `abi.FUNCTIONS`.
            optional: the same for members at the end of the table that may be absent or NULL, and then are left out.

        Raises:
            BackendContractError: the table is too small, or a member is not a function.
        """
        if name not in self._extensions:
            self._extensions[name] = self._query_extension(name, kind, functions, optional)
        return self._extensions[name]

    def _query_extension(
        self, name: bytes, kind: type[ctypes.Structure], functions: Mapping[str, str], optional: Mapping[str, str]
    ) -> dict[str, Any] | None:
        ask = self.functions.get("get_extension")
        if ask is None:
            return None
        with self.serialized():
            address = ask(self.self, name)
        if not address:
            return None
        subject = f"the table of {name.decode()}"
        least_size = min((getattr(kind, member).offset for member in optional), default=ctypes.sizeof(kind))
        table = self._tables[name] = read_versioned(kind, address, least_size, subject)
        functions = {**functions, **{key: value for key, value in optional.items() if getattr(table, key)}}
        for member in functions:
            error = code_fault(getattr(table, member))
            if error is not None:
                raise BackendContractError(f"{subject}: its member {member} {error}", backend=self.id)
        return {member: abi.FUNCTIONS[kind_of](getattr(table, member)) for member, kind_of in functions.items()}

    def extension_table(self, name: bytes) -> Any:
        """Return the struct of an extension, for members that are not functions; `extension` has found it before."""
        return self._tables[name]

    # --- what the plug-in gave ----------------------------------------------------------------------------------------

    def hold(self, out: Any, retained: object = None) -> int:
        """Store a struct that the plug-in filled in; `let_go` releases it when called with the returned number.

        `retained` are objects that must stay alive until then.

        Raises:
            BackendContractError: the release function of the struct is not a function.
        """
        if not out.release:
            return self.hold_call(None, retained)
        if out.release not in self._releases:
            error = code_fault(out.release)
            if error is not None:
                raise BackendContractError(f"the release function {error}", backend=self.id)
            self._releases.add(out.release)
        return self.hold_call(partial(abi.FUNCTIONS["release"](out.release), out.owner), retained)

    def hold_call(self, release: Callable[[], None] | None, retained: object = None) -> int:
        """Store a function, and call it when `let_go` is called with the returned number; None calls nothing.

        `retained` are objects that must stay alive until then.
        """
        number = next(self._numbers)
        self._held[number] = _Held(release, retained)
        return number

    def let_go(self, number: int) -> None:
        """Release what was stored under a number by `hold`: now, or after the plug-in call in progress. Never waits."""
        self._to_release.append(number)
        self._release_waiting()

    @contextmanager
    def holding(self, out: Any) -> Iterator[None]:
        """A context manager that releases a struct which the plug-in filled in, at the end of the block."""
        number = self.hold(out)
        try:
            yield
        finally:
            self._release(number)

    def _release_waiting(self) -> None:
        while self._to_release and self._compiling.acquire(blocking=False):
            try:
                while self._to_release:
                    self._release(self._to_release.popleft())
            except IndexError:  # another thread took the last one
                pass
            finally:
                self._compiling.release()

    def _release(self, number: int) -> None:
        held_object = self._held.pop(number, None)
        if held_object is not None and held_object.release is not None and self._usable_here():
            held_object.release()
            self.read_log()

    def read_log(self) -> None:
        """Pass on the lines that the plug-in has logged."""
        self._ring.drain(self.log)

    @property
    def log_address(self) -> int:
        """The address of the ``ipr_log_ring``: its head and tail differ if there are lines to read."""
        return ctypes.addressof(self._ring.header)

    def fail(self, name: str, status: int, buffer: ErrorBuffer) -> NoReturn:
        """Raise the error of a call that gave this status and message; see `ErrorBuffers.fail`."""
        self._errors.fail(name, status, buffer)

    def after_fork(self) -> None:
        """Forget, in the child process, the threads of the parent process, which do not exist there."""
        self.refuses = self.closed or not self._usable_here()
        self._compiling, self._closing = threading.Lock(), threading.RLock()
        self.active_calls.clear()
        self._ring.after_fork()


@atexit.register
def _settle() -> None:
    if _open:
        settle(seconds=PATIENCE)


class _AtLast:
    """Shuts plug-ins down when the interpreter has finalized the objects of all other modules.

    Functions registered with `atexit` may run before other such functions of the user, and run before ``__del__`` of
    objects in modules. Models must still work in both. The interpreter clears the module `sys` after all others, so an
    object in `sys` is deleted last.
    """

    def __del__(self, libraries: set[Library] = _open, process: Callable[[], int] = os.getpid) -> None:
        for library in [*libraries]:
            library.close_at_last(process())


vars(sys).setdefault("_interposer_at_last", []).append(_AtLast())


def _after_fork() -> None:
    for library in _open:
        library.after_fork()


os.register_at_fork(after_in_child=_after_fork)
