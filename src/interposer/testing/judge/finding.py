"""`Finding`: something that is wrong, with everything that was found out about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from interposer.testing.judge.subject import AS_BUILT, Verdict

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a backend, or with Interposer itself, on one network.

    Args:
        id: of a random network the kind, the seed and the number, such as ``"float-7-123"``.
        verdict: what is wrong with the network as it was drawn, under which conditions, and whose error it is.
        note: what else is to be known, such as that it does not show again.
        where: the first layer whose result is wrong.
        opinions: what installed engines give, a sentence each.
        network: the smallest network found that fails in the same way, as text with long constants left out.
        operators: the operators of that network, in running order.
        text: what is wrong with that network.
        script: the path of a script that shows it again; empty if none was written.
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
        """What sort of failure it is, such as "crash" or "difference"."""
        return self.verdict.sort.value if self.verdict.sort else ""

    @property
    def route(self) -> str:
        """The route by which the network failed: "network" as built, or a model format."""
        return self.verdict.conditions.route

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the finding for people, line by line."""
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
