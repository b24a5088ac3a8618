"""The shrinker: reduces a network to the smallest one that fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from interposer.core.errors import InterposerError
from interposer.testing.judge.draft import Draft, Place
from interposer.testing.judge.edits import EDITS, Edit, Recorded
from interposer.testing.judge.reference import all_values
from interposer.testing.judge.subject import Subject, Verdict

__all__ = ["shrunk"]

Judge = Callable[[Subject], Verdict]
_ROUNDS: Final = 8


def shrunk(subject: Subject, verdict: Verdict, judge: Judge, seconds: float) -> tuple[Subject, Verdict]:
    """Return the smallest network found that still fails in the same way, and its verdict.

    Args:
        subject: a network that fails.
        verdict: the failure.
        judge: a function that judges a network, in a process that may crash.
        seconds: the time limit of the search.
    """
    search = _Search(subject, verdict, judge, time.monotonic() + seconds)
    search.simplify_conditions()
    search.simplify_network()
    return search.subject, search.verdict


class _Search:
    """Reduces a failing network: `subject` and `verdict` are the smallest failing network so far and its failure.

    `judge` judges a network in a process that may crash. The search ends at `deadline`, a time of `time.monotonic`.
    """

    def __init__(self, subject: Subject, verdict: Verdict, judge: Judge, deadline: float) -> None:
        self.subject, self.verdict, self.judge, self.deadline = subject, verdict, judge, deadline

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def simplify_conditions(self) -> None:
        """Try simpler conditions, without layers that are held back or without rewrites.

        Adopt them if the network still fails.
        """
        for changes in ({"held_back": ()}, {"integers": False}, {"rewrite": False, "integers": False}):
            conditions = replace(self.subject.conditions, **changes)
            if conditions != self.subject.conditions and not self.is_over:
                self._accepts(replace(self.subject, conditions=conditions))

    def simplify_network(self) -> None:
        """Apply all edits in turn until none of them gives a smaller network that still fails."""
        draft = Draft.of(self.subject.network, self.subject.feeds)
        for _ in range(_ROUNDS):
            before_round = draft
            for edit in EDITS:
                while (simpler_draft := self._better(draft, edit)) is not None:
                    draft = simpler_draft
            if draft is before_round or self.is_over:
                return

    def _better(self, draft: Draft, edit: Edit) -> Draft | None:
        """Return the first draft that the edit makes from `draft` which is simpler and still fails.

        None if there is none.
        """
        for candidate in edit(draft, _recorded(draft)):
            if self.is_over:
                return None
            try:
                simpler_draft = candidate()
                if simpler_draft.weight >= draft.weight:
                    continue
                network, feeds = simpler_draft.built()
            except (InterposerError, ValueError, IndexError, TypeError):
                continue
            if self._accepts(replace(self.subject, network=network, feeds=feeds)):
                return simpler_draft
        return None

    def _accepts(self, subject: Subject) -> bool:
        names = {layer.name for layer in subject.network}
        held_back = tuple(name for name in subject.conditions.held_back if name in names)
        subject = replace(subject, conditions=replace(subject.conditions, held_back=held_back))
        verdict = self.judge(subject)
        if not verdict.alike(self.verdict) or verdict.culprit != self.verdict.culprit:
            return False
        self.subject, self.verdict = subject, verdict
        return True


def _recorded(draft: Draft) -> Recorded:
    """Return the info and array of every result of a draft, by place, as the reference computes them.

    Empty if the reference cannot compute them.
    """
    try:
        network, feeds = draft.built()
        values = all_values(network.graph, feeds)
    except InterposerError:
        return {}
    return {
        Place(number, value.index): (value.known.with_constant(None), values[value])
        for number, layer in enumerate(network.graph) if number < len(draft.steps)
        for value in layer.outputs
    }  # fmt: skip
