"""What can come of a case."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Refused", "Result", "Skipped", "Status"]


class Skipped(Exception):  # noqa: N818 - no error, but the end of a check
    """A check that may apply to the backend cannot be made here; says why."""


class Refused(Exception):  # noqa: N818 - no error, but an answer
    """The backend does not take what a check is about, or does not claim it; says why."""


class Status(Enum):
    """How a case ended."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    """The check may apply to the backend, but could not be made."""
    REFUSED = "refused"
    """The backend does not take the sample and says why, or does not claim what the check is about. That is right."""
    XFAIL = "xfail"
    """It failed, as was expected."""
    XPASS = "xpass"
    """It was expected to fail and did not, which is wrong too: the expectation is out of date."""

    @property
    def good(self) -> bool:
        """True unless something is to be done about it."""
        return self not in (Status.FAIL, Status.XPASS)


@dataclass(frozen=True)
class Result:
    """What came of one case; `text` says what is wrong, or why it was refused or skipped."""

    id: str
    check: str
    family: str
    operator: str
    status: Status
    text: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the result as plain data."""
        return {
            "id": self.id,
            "check": self.check,
            "family": self.family,
            "operator": self.operator,
            "status": self.status.value,
            "text": self.text,
        }
