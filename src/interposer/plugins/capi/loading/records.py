"""What became of every file that was seen while dynamic backends were looked for."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

__all__ = ["DynamicBackendRecord", "State", "Step", "StepError"]


class State(Enum):
    """What became of a file."""

    LOADED = "loaded"
    """Its backend is registered."""
    SKIPPED = "skipped"
    """There is no need of it, or it was not meant to be a backend: nothing is wrong."""
    REFUSED = "refused"
    """It did not pass a check."""
    CLOSED = "closed"
    """It was loaded, and is gone with its runtime."""


class Step(Enum):
    """The steps of loading, in their order. A record has the last one that was taken."""

    FOLDER = "folder"
    """The folder is there: its path is absolute, and it can be read."""
    LINK = "link"
    """Symbolic links lead to a file."""
    NAME = "name"
    """The file name is that of a backend."""
    LIBRARY = "library"
    """The same file was not seen before under another name."""
    FILE = "file"
    """It is a shared object for this machine that exports the three functions."""
    ALLOW_LIST = "allow-list"
    """It is one of those that may be loaded, where there is such a list."""
    PROBE = "probe"
    """A process of its own has loaded and tried it, and survived."""
    OPEN = "open"
    """The dynamic linker takes it."""
    VERSION = "version"
    """It was made for this version of the interface."""
    ID = "id"
    """It tells an id that can be one."""
    FACTORY = "factory"
    """Its factory gives something."""
    TABLE = "table"
    """That is a table of functions, and nothing in it is missing."""
    INFO = "info"
    """What it says of itself makes sense."""
    INIT = "init"
    """Its ``init`` succeeds."""
    REGISTER = "register"
    """No other backend has its id, and nobody disables it."""


@dataclass(frozen=True, slots=True)
class DynamicBackendRecord:
    """What became of one file, or of a folder that could not be searched.

    `path` is where it was found and `library` the file itself, which is another where `path` is a symbolic link. `step`
    is the last step that was taken, `reason` says why it was the last. `id`, `version` (of the interface, such as
    ``"1.0"``) and `sha256` are empty as long as they are not known.
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
        """Where a backend comes from, in words."""
        return f"{'folder' if self.step is Step.FOLDER else 'shared object'} {self.path}"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        data = asdict(self) | {"state": self.state.value, "step": self.step.value}
        return {"file": self.file_name, **data}

    def __str__(self) -> str:
        who = f" (backend {self.id})" if self.id else ""
        why = f": {self.reason}" if self.reason else ""
        path = self.path if self.path and self.path.isprintable() else repr(self.path)
        return f"{path}{who} is {self.state.value}{why}"


class StepError(Exception):
    """Ends the loading of one file at a step; the reason is one line."""

    def __init__(self, step: Step, reason: str, state: State = State.REFUSED) -> None:
        self.step, self.reason, self.state = step, " ".join(reason.split()), state
        super().__init__(self.reason)
