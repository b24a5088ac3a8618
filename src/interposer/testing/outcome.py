"""The possible outcomes of a case."""

from __future__ import annotations

from enum import Enum

from interposer.core.records import dataclass

__all__ = ["Refused", "Result", "Skipped", "Status"]


class Skipped(Exception):  # noqa: N818 - no error, but the end of a check
    """Raised with a reason if a check may apply to the backend but cannot run here."""


class Refused(Exception):  # noqa: N818 - no error, but an answer
    """Raised with a reason if the backend does not support, or does not claim, what a check is about."""


class Status(Enum):
    """How a case of the conformance run ended."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    """The check may apply to the backend, but could not run."""
    REFUSED = "refused"
    """The backend refuses the sample with a reason, or does not claim the checked property. This is conforming."""
    XFAIL = "xfail"
    """The case failed, as expected."""
    XPASS = "xpass"
    """The case was expected to fail but passed, which counts as a failure: the expectation is outdated."""

    @property
    def good(self) -> bool:
        """True unless the case failed, or passed although it was expected to fail."""
        return self not in (Status.FAIL, Status.XPASS)


@dataclass(frozen=True)
class Result:
    """The outcome of one case; `text` holds the errors, or the reason why the case was refused or skipped."""

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
