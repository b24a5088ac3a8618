"""Loading of dynamic backends from folders, step by step, with a record for each file.

An invalid file never stops the search or the process: it is skipped, and the record has the reason.
"""

from __future__ import annotations

import dis
import gc
import hashlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Final

from interposer.backend.base import Backend
from interposer.backend.capabilities import Options
from interposer.core.errors import BackendUnavailableError, OptionError, PluginError, UnknownBackendError
from interposer.core.ownership import why_untrusted
from interposer.core.records import dataclass
from interposer.plugins.capi.library.library import SYMBOLS
from interposer.plugins.capi.loading.elf import elf_problem
from interposer.plugins.capi.loading.file_names import looks_like_a_backend, name_problem
from interposer.plugins.capi.loading.open_libraries import (
    FileIdentity,
    backend_of_file,
    opened_file,
    sha256_of,
    shared_backend,
)
from interposer.plugins.capi.loading.paths import OWN_BACKENDS, OWN_BY_NAME_ONLY, PACKAGE_FOLDER, Folder, own_files
from interposer.plugins.capi.loading.probe import Verdict, cached_verdict, keep_verdict, probe
from interposer.plugins.capi.loading.records import DynamicBackendRecord, State, Step, StepError
from interposer.plugins.python_files import ENDING, backend_class, backend_of_python_file
from interposer.plugins.registry import BackendRegistry

__all__ = ["DynamicBackends", "LoadingOptions", "forget_verdicts", "load_backends"]

DISABLED: Final = "it is disabled"
_log = logging.getLogger("interposer.backend")
_plausible: Final[set[FileIdentity]] = set()
"""The files in which `elf_problem` has found no problem."""
_verdicts: Final[dict[tuple[FileIdentity, float, str], tuple[str, Verdict]]] = {}
"""Trial results by the time limit, the options and the SHA-256 of the file."""
_probing = threading.Lock()


@dataclass(frozen=True)
class LoadingOptions:
    """Options for loading dynamic backends.

    Args:
        allowed: the SHA-256 digests of files that may be loaded; None allows all.
        probe_seconds: the time limit for the trial of a file; 0 loads it without a trial.
        unload: whether libraries are unloaded from the process when they are no longer used.
        disabled: ids of backends that are not loaded.
        backend_options: the options for ``init``, by backend id.
    """

    allowed: frozenset[str] | None = None
    probe_seconds: float = 30.0
    unload: bool = False
    disabled: Collection[str] = ()
    backend_options: Mapping[str, Options] = field(default_factory=dict)


class DynamicBackends:
    """What `load_backends` has loaded: the registered backends, and a record for each file that was considered."""

    def __init__(
        self,
        registry: BackendRegistry,
        records: Sequence[DynamicBackendRecord],
        registered: Sequence[str],
        opened: Sequence[weakref.ref[Backend]],
    ) -> None:
        self._registry, self._registered, self._opened = registry, registered, opened
        self.records = tuple(records)

    def close(self) -> None:
        """Deregister the backends; each is shut down when it is no longer used. A second call does nothing."""
        for name in self._registered:
            with suppress(UnknownBackendError):
                self._registry.deregister(name)
        if any(backend() is not None for backend in self._opened):
            gc.collect()  # unreachable optimized networks keep their backends alive until then
        self.records = tuple(
            replace(record, state=State.CLOSED) if record.state is State.LOADED else record for record in self.records
        )


def load_backends(
    registry: BackendRegistry, folders: Sequence[Folder], options: LoadingOptions, own_folder: str = PACKAGE_FOLDER
) -> DynamicBackends:
    """Load and register the backends in the package's own folder, and then in the given folders.

    Folders are searched in the given order, and their entries by name. Invalid files never raise an exception. Own
    backends that are disabled are not loaded, and a backend in `folders` may use their id.

    Raises:
        OptionError: an option that a backend does not declare, or a value of the wrong type.
    """
    search = _Search(registry, options)
    search.own(own_files(own_folder))
    for folder in folders:
        search.folder(folder)
    search.register_absent()
    return DynamicBackends(registry, search.records, search.registered, search.opened)


def forget_verdicts() -> None:
    """Forget the results of trials in this process, so that files are tried again."""
    _verdicts.clear()


def _after_fork() -> None:
    global _probing  # noqa: PLW0603 - a thread that is not here may hold it
    _probing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class _Search:
    def __init__(self, registry: BackendRegistry, options: LoadingOptions) -> None:
        self.registry, self.options = registry, options
        self.records: list[DynamicBackendRecord] = []
        self.registered: list[str] = []
        self.opened: list[weakref.ref[Backend]] = []
        self.seen_files: dict[tuple[int, int], str] = {}
        self.vacant = set(OWN_BACKENDS) & set(options.disabled)
        """Ids of the package's own backends that are disabled; other backends may use these ids."""

    def own(self, files: Mapping[str, str]) -> None:
        """Load the package's own shared objects; `files` maps the ids in their names to their paths."""
        for backend_id, path in files.items():
            if backend_id in self.options.disabled:
                self.vacant.add(backend_id)
            else:
                self._record(_File(self, path, own_id=backend_id).load(), ours=True)

    def folder(self, folder: Folder) -> None:
        """Load the backends in a folder, and add a record for each file."""
        try:
            if folder.problem:
                raise StepError(Step.FOLDER, folder.problem)
            names = _entries(folder.path)
        except StepError as error:
            self._record(DynamicBackendRecord(folder.path, error.state, error.step, error.reason))
            return
        for name in names:
            self._record(_File(self, os.path.join(folder.path, name)).load())

    def register_absent(self) -> None:
        """Register the ids of backends that could not be loaded, so that requests for them report the reason."""
        for record in self.records:
            if record.id and record.id not in self.registry:
                self.registry.register_absent(record.id, record.reason, source=record.source)
                self.registered.append(record.id)

    def _record(self, record: DynamicBackendRecord, *, ours: bool = False) -> None:
        self.records.append(record)
        id_taken = record.state is State.SKIPPED and record.step is Step.REGISTER and record.reason != DISABLED
        is_warning = record.state is State.REFUSED or (id_taken and not ours)
        _log.log(logging.WARNING if is_warning else logging.INFO, "%s", record)


def _entries(folder: str) -> list[str]:
    if not os.path.exists("/proc/self/exe"):
        raise StepError(Step.FOLDER, "dynamic backends are only for Linux; nothing here is looked at")
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise StepError(Step.FOLDER, f"the folder cannot be read: {error.strerror}") from error


class _File:
    """Loads the backend of one file in steps, from resolving the path to registration; `record` has the last step.

    `own_id` is the backend's id for a file of this package, otherwise it is empty.
    """

    def __init__(self, search: _Search, path: str, *, own_id: str = "") -> None:
        self.search, self.options, self.ours = search, search.options, bool(own_id)
        self.record = DynamicBackendRecord(path, State.REFUSED, Step.LINK, id=own_id)

    def load(self) -> DynamicBackendRecord:
        """Resolve, check, try out, open and register the file, until a step fails.

        Return the record with the last step.
        """
        try:
            self._take_steps()
        except StepError as error:
            self._update_record(step=error.step, reason=error.reason, state=error.state)
        except OptionError:  # an error of the caller, not of the file
            raise
        except Exception as error:
            reason = f"this should not have happened, it is an error of Interposer ({type(error).__name__}: {error})"
            self._update_record(step=Step.REGISTER, reason=reason, state=State.REFUSED)
        return self.record

    def _update_record(self, **facts: str | State | Step) -> None:
        self.record = replace(self.record, **facts)  # type: ignore[arg-type] # names of members

    def _take_steps(self) -> None:
        self._update_record(library=_resolved(self.record.path))
        _check_name(self.record.file_name)
        with opened_file(self.record.library) as descriptor:
            self._check_first(descriptor)
            self._check_owner()
            if self.record.file_name.endswith(ENDING):
                self._register_class(descriptor)
                return
            _check_elf(descriptor)
            self._check_allowed(lambda: sha256_of(descriptor))
            self._check_probe(descriptor)
            if self.record.id:
                self._check_id()
            self._open_and_register(descriptor)

    def _register_class(self, descriptor: int) -> None:
        """Run a Python file, and register the backend class that it defines.

        The file is read once, so that what runs is what the list of allowed files has.
        """
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            content = file.read()
        self._check_allowed(lambda: hashlib.sha256(content).hexdigest())
        try:
            loaded_class = backend_class(self.record.library, content)
        except PluginError as error:
            raise StepError(Step.OPEN, error.reason) from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not _is_raised_by(self.record.library, error):
                raise
            raise StepError(Step.OPEN, f"it raised {type(error).__name__}: {error}") from error
        self._update_record(id=loaded_class.id)
        self._check_id()
        self._register(partial(backend_of_python_file, self.record.library, self.record.sha256))

    def _check_first(self, descriptor: int) -> None:
        identity = FileIdentity.of(descriptor)
        first_path = self.search.seen_files.setdefault((identity.device, identity.inode), self.record.path)
        if first_path != self.record.path:
            raise StepError(Step.LIBRARY, f"it is the same file as {first_path}", State.SKIPPED)

    def _check_owner(self) -> None:
        """Refuse a file that another user could have written, unless the list of allowed files has its content."""
        problem = "" if self.ours or self.options.allowed is not None else why_untrusted(self.record.library)
        if problem:
            raise StepError(Step.OWNER, f"another user could have written it: {problem}")

    def _check_allowed(self, digest: Callable[[], str]) -> None:
        if self.options.allowed is None or self.ours:
            return
        self._update_record(sha256=digest())
        if self.record.sha256 not in self.options.allowed:
            raise StepError(Step.ALLOW_LIST, f"its SHA-256 is not in the list of allowed ones: {self.record.sha256}")

    @property
    def _needs_exact_content(self) -> bool:
        """True if the loaded content must be the one that was hashed, even if another file replaces it at the path.

        That is the case if the user allows only files with certain digests.
        """
        return self.options.allowed is not None and not self.ours

    def _check_probe(self, descriptor: int) -> None:
        """Try the file out in a child process, or only read its id there if isolation depends on that id.

        The package's own files are never tried: their names contain their ids.
        """
        if self.ours or not (self.options.probe_seconds or self.search.registry.isolates_any):
            return
        verdict = self._verdict(descriptor)
        self._update_record(id=verdict.id, version=verdict.version)
        if verdict.option_problem:
            raise OptionError(verdict.option_problem)
        if verdict.error is not None and not (verdict.error.step is Step.PROBE and self._is_isolated):
            raise StepError(verdict.error.step, verdict.error.reason, verdict.error.state)

    def _verdict(self, descriptor: int) -> Verdict:
        seconds = self.options.probe_seconds
        options = self.options.backend_options
        key = FileIdentity.of(descriptor), seconds, repr({name: dict(options[name]) for name in sorted(options)})
        with _probing:
            if key not in _verdicts:
                digest = self.record.sha256 or sha256_of(descriptor)
                _verdicts[key] = digest, cached_verdict(digest, options) or self._probed(descriptor, digest, seconds)
            digest, verdict = _verdicts[key]
        self._update_record(sha256=digest)
        return verdict

    def _probed(self, descriptor: int, digest: str, seconds: float) -> Verdict:
        opened_as = f"/proc/self/fd/{descriptor}" if self._needs_exact_content else self.record.library
        options, only_id = self.options.backend_options, not seconds
        verdict = probe(
            self.record.library,
            opened_as,
            descriptor,
            seconds or LoadingOptions.probe_seconds,
            options,
            only_id=only_id,
        )
        if not only_id:
            keep_verdict(digest, verdict, options)
        return verdict

    def _check_id(self) -> None:
        backend_id = self.record.id
        source = self.search.registry.taken_by(backend_id)
        if source is not None:
            raise StepError(Step.REGISTER, f"the id {backend_id!r} is registered already ({source})", State.SKIPPED)
        if (
            backend_id in self.options.disabled
            and backend_id not in self.search.registry
            and backend_id not in self.search.vacant
        ):
            raise StepError(Step.REGISTER, DISABLED, State.SKIPPED)

    @property
    def _is_isolated(self) -> bool:
        """True if the user wants the backend to run in a child process; its id must be known."""
        return bool(self.record.id) and self.search.registry.isolation(self.record.id) is not None

    def _open_and_register(self, descriptor: int) -> None:
        if self.ours and self.record.id in OWN_BY_NAME_ONLY and not self._is_isolated:
            self._check_id()
            self._register(partial(_opened_when_named, self.record, self.options, self.search.opened))
            return
        self._register(self._factory(descriptor))

    def _register(self, factory: Callable[[], Backend]) -> None:
        in_place = self.record.id in self.search.vacant
        by_name_only = self.ours and self.record.id in OWN_BY_NAME_ONLY
        self.search.registry.register(
            self.record.id, factory, source=self.record.source, in_place=in_place, by_name_only=by_name_only
        )
        self.search.registered.append(self.record.id)
        self._update_record(state=State.LOADED, step=Step.REGISTER)

    def _factory(self, descriptor: int) -> Callable[[], Backend]:
        if not self._is_isolated:
            backend = shared_backend(
                self.record.library, descriptor, options=self.options.backend_options,
                unload=self.options.unload, exactly=self._needs_exact_content,
            )  # fmt: skip
            self._update_record(id=backend.id, version=".".join(map(str, backend.api_version)))
            self._check_id()
            if not self._is_isolated:
                self.search.opened.append(weakref.ref(backend))
                return lambda: backend
        digest = self.record.sha256 if self._needs_exact_content else ""
        return partial(backend_of_file, self.record.library, dict(self.options.backend_options), sha256=digest)


def _opened_when_named(
    record: DynamicBackendRecord, options: LoadingOptions, opened_backends: list[weakref.ref[Backend]]
) -> Backend:
    """Return the backend of one of the package's own files, opened at its first use.

    `opened_backends` gets a weak reference to it.

    Raises:
        BackendUnavailableError: the library cannot be loaded, or the backend finds nothing to run on.
        OptionError: an option that the backend does not declare, or a value of the wrong type.
    """
    try:
        with opened_file(record.library) as descriptor:
            backend = shared_backend(record.library, descriptor, options=options.backend_options, unload=options.unload)
    except StepError as error:
        raise BackendUnavailableError(record.id, error.reason) from error
    opened_backends.append(weakref.ref(backend))
    return backend


def _is_raised_by(path: str, error: BaseException) -> bool:
    """Return True if a statement of this file has raised the error, False if a signal did while the file ran."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename != path:
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path, strict=True)
    except OSError as error:
        raise StepError(Step.LINK, f"the symbolic link leads nowhere: {error.strerror}") from error


def _check_name(file_name: str) -> None:
    error = name_problem(file_name)
    if error is not None:
        raise StepError(Step.NAME, error, State.REFUSED if looks_like_a_backend(file_name) else State.SKIPPED)


def _check_elf(descriptor: int) -> None:
    identity = FileIdentity.of(descriptor)
    if identity in _plausible:
        return
    problem = elf_problem(descriptor, SYMBOLS)
    if problem is not None:
        raise StepError(Step.FILE, problem)
    _plausible.add(identity)
