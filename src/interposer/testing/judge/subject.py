"""The subject of judging: a network with its inputs and conditions, and the verdict about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from typing import Final

from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.ir.network import Network

__all__ = ["AS_BUILT", "Conditions", "Outcome", "Sort", "Subject", "Verdict"]

AS_BUILT: Final = "network"
"""The route of a network that is judged as it was built, without a model file in between."""


@dataclass(frozen=True)
class Conditions:
    """The conditions under which a network runs.

    Args:
        route: "network" for the network as built; "onnx", "onnx-inexact" or "tflite" for the network that is read back
            from such a model. "onnx-inexact" writes quantized layers between DequantizeLinear and QuantizeLinear.
        rewrite: whether the optimizer's own rewrites are applied.
        integers: whether the rewrites may compute quantized layers in integers; only with `rewrite`.
        held_back: names of layers that are left to the reference backend.
    """

    route: str = AS_BUILT
    rewrite: bool = True
    integers: bool = False
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, the arrays of its inputs by binding id, and the conditions under which it runs."""

    network: Network
    feeds: Mapping[int, Array]
    conditions: Conditions = field(default_factory=Conditions)
    id: str = ""


class Outcome(Enum):
    """How the judging of a network ended."""

    PASS = "passed"
    EXPLAINED = "explained by conditioning"
    """The results differ, but by no more than the reference's results do when its layers are perturbed."""
    LEFT = "left to the reference"
    """The backend supports none of the layers."""
    UNWRITABLE = "not expressible"
    """The model format cannot express the network, or the imported network cannot be compared with it."""
    UNJUDGED = "not comparable"
    """The reference cannot run the network on these inputs, or its results are random; the backend did not crash."""
    FINDING = "finding"


class Sort(Enum):
    """What kind of failure a verdict reports."""

    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"
    ERROR = "error"
    DIFFERENCE = "difference"
    UNSTABLE = "unstable"
    """A second run on the same inputs gives other results."""
    INPUTS = "inputs"
    """The backend writes to its inputs or constants."""
    VALUES = "values"
    """An invalid value, such as an index out of range, is reported as a failure of the backend."""
    TRANSLATION = "translation"
    """A written model file does not have the same meaning as the network."""


@dataclass(frozen=True)
class Verdict:
    """The result of judging one network under one set of conditions.

    `text` describes the failure. `culprit` is the id of the backend that causes it, "Interposer" if the failure occurs
    without any of the backends under test, or empty if the cause is not known yet. `gross` is True if quantized results
    are off by more than one step.
    """

    outcome: Outcome
    conditions: Conditions
    sort: Sort | None = None
    text: str = ""
    culprit: str = ""
    gross: bool = False

    @property
    def is_finding(self) -> bool:
        """True if something is wrong."""
        return self.outcome is Outcome.FINDING

    def blaming(self, culprit: str) -> Verdict:
        """Return the same verdict with a culprit."""
        return replace(self, culprit=culprit)

    def alike(self, other: Verdict) -> bool:
        """Return True if this verdict, on a reduced network, reports the same failure as `other`, on the original one.

        Both must have the same outcome and sort. Crashes and errors must also have the same first line up to a colon,
        apart from digits. If `other` is gross, this verdict must be gross too; the reverse is not required, so the
        relation is not symmetric.
        """
        if (self.outcome, self.sort) != (other.outcome, other.sort) or (other.gross and not self.gross):
            return False
        return self.sort not in _REPORTED_BY_TEXT or _gist(self.text) == _gist(other.text)


_REPORTED_BY_TEXT: Final = frozenset({Sort.CRASH, Sort.ERROR})


def _gist(text: str) -> str:
    """Return the first line of a message up to the first colon, without digits, to recognize equal errors."""
    first_line = text.partition("\n")[0]
    return "".join(letter for letter in first_line.partition(":")[0] if not letter.isdigit())
