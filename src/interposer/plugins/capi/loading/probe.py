"""The trial of a shared object in a separate process, which shows whether it can be loaded safely."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from interposer._version import __version__
from interposer.backend.capabilities import Options
from interposer.core.cache import read_cached, write_cached
from interposer.core.records import dataclass
from interposer.plugins.capi.abi.structs import API_VERSION
from interposer.plugins.capi.loading.records import State, Step, StepError

if TYPE_CHECKING:
    from interposer.core.child_process import Child

__all__ = ["Verdict", "cached_verdict", "keep_verdict", "probe"]

START_SECONDS: Final = 120.0
"""The time limit in seconds for starting the trial process."""
TRIAL: Final = "interposer.session.trial"
"""The module that the trial process runs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of loading a shared object in another process: whether it can be loaded safely in this one.

    `id` and `version` are those of the backend, as far as they were read. `error` is the reason against loading it, or
    None.
    """

    id: str = ""
    version: str = ""
    error: StepError | None = None
    option_problem: str = ""
    """The error in the options of the caller, or empty; the trial is incomplete then."""
    files: tuple[str, ...] = ()
    """The other libraries that were loaded in the process."""


def probe(
    library: str,
    opened_as: str,
    descriptor: int,
    seconds: float,
    options: Mapping[str, Options],
    *,
    only_id: bool = False,
) -> Verdict:
    """Load a shared object in another process, run small networks on it, and shut it down.

    Args:
        library: the canonical path of the file, which the plug-in gets.
        opened_as: the path that is loaded: the same, or the path of the descriptor.
        descriptor: a descriptor of the open file, which the process inherits with the same number.
        seconds: the time limit in seconds.
        options: options by backend id.
        only_id: only read the id and the version of the backend, without initializing it.
    """
    job = {
        "library": library,
        "opened_as": opened_as,
        "options": {key: dict(options[key]) for key in options},
        "only_id": only_id,
    }
    try:
        from interposer.core.child_process import Child  # noqa: PLC0415 - only files that were never opened are tried

        with Child(TRIAL, job, (descriptor,)) as child:
            return _Watch(child, seconds).verdict()
    except OSError as error:
        return Verdict(error=StepError(Step.PROBE, f"the process that tries it out cannot be started: {error}"))


class _Watch:
    """Waits for the process that loads a shared object on trial, and turns its messages and its end into a `Verdict`.

    The messages report what the process does next (`doing`), the backend's id and version, and a failed check. The
    process hangs if it takes longer than `seconds`.
    """

    def __init__(self, child: Child, seconds: float) -> None:
        self.child, self.seconds = child, seconds
        self.doing = "before it came to the file"
        self.reported_facts: dict[str, Any] = {}

    def verdict(self) -> Verdict:
        try:
            ending = self._ending()
        except TimeoutError:
            return self._failure(f"it hangs {self.doing}: nothing happened for {self.seconds:g} seconds")
        except ValueError:
            return self._failure(f"it disturbs the process {self.doing}")
        if "option_problem" in self.reported_facts:
            return Verdict(
                self.reported_facts["id"],
                self.reported_facts["version"],
                option_problem=str(self.reported_facts["option_problem"]),
            )
        if "failed" in self.reported_facts:
            state = State(self.reported_facts.get("state", State.REFUSED.value))
            return self._verdict_with(
                StepError(Step(self.reported_facts["failed"]), self.reported_facts["reason"], state)
            )
        if ending is not None or "done" not in self.reported_facts:
            return self._failure(f"it {ending or 'ends its process'} {self.doing}")
        return self._verdict_with(None)

    def _ending(self) -> str | None:
        deadline = time.monotonic() + START_SECONDS
        while (message := self.child.receive(deadline)) is not None:
            if "ready" in message:
                deadline = time.monotonic() + self.seconds
            self.doing = message.pop("doing", self.doing)
            self.reported_facts |= message
        return self.child.ending(deadline)

    def _failure(self, reason: str) -> Verdict:
        wrote = f"; it wrote {self.child.wrote!r}" if self.child.wrote else ""
        return self._verdict_with(StepError(Step.PROBE, f"{reason}{wrote}"))

    def _verdict_with(self, error: StepError | None) -> Verdict:
        files = tuple(map(str, self.reported_facts.get("files", ())))
        return Verdict(
            str(self.reported_facts.get("id", "")), str(self.reported_facts.get("version", "")), error, files=files
        )


# --- cached verdicts -------------------------------------------------------------------------------------------


def _name(digest: str) -> str:
    interface = ".".join(map(str, API_VERSION))
    return f"probed/{digest}-{__version__}-{interface}-{sys.implementation.cache_tag}.json"


def cached_verdict(digest: str, options: Mapping[str, Options]) -> Verdict | None:
    """Return the successful result of an earlier trial of a file with this SHA-256, or None.

    The result is also None if the options, or a library that was loaded with the file, have changed since.
    """
    content = read_cached(_name(digest))
    try:
        stored_verdict = json.loads(content or b"")
        verdict = Verdict(str(stored_verdict["id"]), str(stored_verdict["version"]))
        is_current = stored_verdict["options"] == dict(options.get(verdict.id, {})) and all(
            _state(path) == state for path, state in stored_verdict["files"].items()
        )
        return verdict if is_current else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def keep_verdict(digest: str, verdict: Verdict, options: Mapping[str, Options]) -> None:
    """Store the result of a successful trial in the cache folder."""
    if verdict.error is not None or verdict.option_problem:
        return
    files = {path: state for path in verdict.files if (state := _state(path)) is not None}
    record = {
        "id": verdict.id,
        "version": verdict.version,
        "options": dict(options.get(verdict.id, {})),
        "files": files,
    }
    write_cached(_name(digest), json.dumps(record).encode())


def _state(path: str) -> list[int] | None:
    """Return the size and the modification time of a file, to notice that it has changed; None if it is missing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return [status.st_size, status.st_mtime_ns]
