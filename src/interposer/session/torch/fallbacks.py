"""`fallbacks`: the graphs of `torch.compile` that PyTorch runs itself, and why."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from interposer.core.records import dataclass

__all__ = ["Fallback", "FallbackWarning", "clear_fallbacks", "fallbacks", "record"]

_MOST: Final = 1000
_lock = threading.Lock()
_known: deque[Fallback] = deque(maxlen=_MOST)
_warned: set[str] = set()


class FallbackWarning(UserWarning):
    """A graph of `torch.compile` is run by PyTorch instead of Interposer."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A graph that PyTorch runs itself.

    `reason` says why, `graph` names the function and the line of the program that it comes from, `nodes` is the number
    of its operators, and `operators` counts those that are not supported, if that is the reason.
    """

    reason: str
    graph: str
    nodes: int
    operators: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.graph} ({self.nodes} operators): {self.reason}"


def fallbacks() -> tuple[Fallback, ...]:
    """Return the last 1,000 graphs of `torch.compile` that PyTorch runs itself, in the order of their compilation."""
    with _lock:
        return tuple(_known)


def clear_fallbacks() -> None:
    """Forget all recorded fallbacks; each reason is warned about once more."""
    with _lock:
        _known.clear()
        _warned.clear()


def record(fallback: Fallback) -> None:
    """Add a fallback to the record, and warn if it is the first one with its reason."""
    with _lock:
        _known.append(fallback)
        is_new = fallback.reason not in _warned
        _warned.add(fallback.reason)
    if is_new:
        warnings.warn(
            f"PyTorch runs a graph itself: {fallback}; interposer.session.torch.fallbacks() lists all of them",
            FallbackWarning,
            stacklevel=2,
        )
