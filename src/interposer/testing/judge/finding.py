"""`Finding`: a failure with the results of its analysis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interposer.core.records import dataclass
from interposer.testing.judge.subject import AS_BUILT, Verdict

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """A failure of a backend, or of Interposer itself, on one network.

    Args:
        id: for a random network its kind, seed and number, such as ``"float-7-123"``.
        verdict: the failure of the original network, its conditions, and the culprit.
        note: further remarks, for example that the failure cannot be reproduced.
        where: the first layer whose result is wrong.
        opinions: the results of installed engines, one sentence each.
        network: the smallest network that fails in the same way, as text without long constants.
        operators: the operators of that network, in running order.
        text: the failure of that network.
        script: the path of a script that reproduces the failure; empty if none was written.
    """

    id: str
    verdict: Verdict
    note: str = ""
    where: str = ""
    opinions: tuple[str, ...] = ()
    network: str = ""
    operators: tuple[str, ...] = ()
    text: str = ""
    script: str = ""

    @property
    def sort(self) -> str:
        """The kind of failure, such as "crash" or "difference"; empty if there is none."""
        return self.verdict.sort.value if self.verdict.sort else ""

    @property
    def route(self) -> str:
        """How the network reached the backend when it failed: "network" as built, or a model file format."""
        return self.verdict.conditions.route

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the lines of a description of the finding for users."""
        route = "" if self.route == AS_BUILT else f" by way of {self.route}"
        yield f"{self.id}{route}: {self.sort}, the cause: {self.verdict.culprit or 'unknown'}"
        for text in (self.verdict.text, self.note, self.where, *self.opinions):
            yield from (f"  {line}" for line in text.splitlines())
        if self.network:
            yield f"  The smallest network that fails in the same way ({' -> '.join(self.operators)}):"
            yield from (f"    {line}" for line in self.network.splitlines())
            yield from (f"  {line}" for line in self.text.splitlines() if self.text != self.verdict.text)
        if self.script:
            yield f"  python {self.script} shows it again"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible data."""
        return {
            "id": self.id,
            "route": self.route,
            "sort": self.sort,
            "culprit": self.verdict.culprit,
            "text": self.verdict.text,
            "note": self.note,
            "where": self.where,
            "opinions": list(self.opinions),
            "network": self.network,
            "operators": list(self.operators),
            "script": self.script,
        }
