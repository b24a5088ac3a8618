"""Records of the files that were considered as dynamic backends."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import Enum
from typing import Any

from interposer.core.records import dataclass

__all__ = ["DynamicBackendRecord", "State", "Step", "StepError"]


class State(Enum):
    """How the loading of a file ended."""

    LOADED = "loaded"
    """The backend of the file is registered."""
    SKIPPED = "skipped"
    """The file is not needed, or is not meant to be a backend; this is not an error."""
    REFUSED = "refused"
    """The file failed a check."""
    CLOSED = "closed"
    """The backend was loaded, and was closed with its runtime."""


class Step(Enum):
    """The steps of loading, in order. A record has the last step that was reached."""

    FOLDER = "folder"
    """The folder exists, has an absolute path and can be read."""
    LINK = "link"
    """Symbolic links are resolved to a file."""
    NAME = "name"
    """The file name has the form of a backend."""
    LIBRARY = "library"
    """The file was not seen before under another name."""
    OWNER = "owner"
    """The file belongs to this user or to root and nobody else can write it, or there is a list of allowed files."""
    FILE = "file"
    """The file is a shared object for this machine that exports the three required functions, or in Python."""
    ALLOW_LIST = "allow-list"
    """The file is in the list of allowed files, if there is such a list."""
    PROBE = "probe"
    """A child process has loaded and tried the file successfully."""
    OPEN = "open"
    """The dynamic linker has loaded the file, or Python has run it and found one backend class."""
    VERSION = "version"
    """The backend is compatible with this version of the interface."""
    ID = "id"
    """The backend has a valid id."""
    FACTORY = "factory"
    """The factory function returns a value."""
    TABLE = "table"
    """The value is a complete table of functions."""
    INFO = "info"
    """The backend's information about itself is valid."""
    INIT = "init"
    """The backend's ``init`` function succeeds."""
    REGISTER = "register"
    """The id is not taken by another backend and is not disabled."""


@dataclass(frozen=True, slots=True)
class DynamicBackendRecord:
    """The result for one file, or for a folder that could not be searched.

    `path` is where the file was found. `library` is the file itself, which differs if `path` is a symbolic link. `step`
    is the last step that was reached, and `reason` says why loading ended there. `id`, `version` (of the interface,
    such as ``"1.0"``) and `sha256` are empty as long as they are not known.
    """

    path: str
    state: State
    step: Step
    reason: str = ""
    id: str = ""
    version: str = ""
    library: str = ""
    sha256: str = ""

    @property
    def file_name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)

    @property
    def source(self) -> str:
        """Where the backend comes from, for messages: "folder", "shared object" or "Python file", and the path."""
        if self.step is Step.FOLDER:
            return f"folder {self.path}"
        return f"{'Python file' if self.path.endswith('.py') else 'shared object'} {self.path}"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        facts = asdict(self) | {"state": self.state.value, "step": self.step.value}
        return {"file": self.file_name, **facts}

    def __str__(self) -> str:
        backend = f" (backend {self.id})" if self.id else ""
        reason = f": {self.reason}" if self.reason else ""
        path = self.path if self.path and self.path.isprintable() else repr(self.path)
        return f"{path}{backend} is {self.state.value}{reason}"


class StepError(Exception):
    """Raised to end the loading of one file: `step` has failed for this `reason`, which is one line of text."""

    def __init__(self, step: Step, reason: str, state: State = State.REFUSED) -> None:
        self.step, self.reason, self.state = step, " ".join(reason.split()), state
        super().__init__(self.reason)
