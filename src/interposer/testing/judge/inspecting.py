"""Inspection of a failure: confirm it, reduce it, locate it, compare with engines, and write a script."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from interposer.core.errors import FileWriteError, InterposerError
from interposer.core.records import dataclass
from interposer.ir.text import print_graph
from interposer.testing.judge.finding import Finding
from interposer.testing.judge.locating import located
from interposer.testing.judge.opinions import opinions
from interposer.testing.judge.record import write
from interposer.testing.judge.reference import computing_layers
from interposer.testing.judge.routes import Route, bound_again, through
from interposer.testing.judge.shrinking import shrunk
from interposer.testing.judge.solo import Solo
from interposer.testing.judge.subject import AS_BUILT, Sort, Subject, Verdict
from interposer.testing.judge.workers import START_SECONDS, Nursery
from interposer.testing.replay import Factory

__all__ = ["Inspection", "inspect"]

_ELIDED: Final = 24
_OMITTED_VARIABLES: Final = frozenset({"INTERPOSER_CACHE_DIR"})
_TRIAL_SECONDS: Final = 10.0
"""The time limit for one network, in seconds, while a failure other than a hang is reduced."""


@dataclass(frozen=True)
class Inspection:
    """The settings for inspecting a failure.

    Args:
        backends: the backends to use, as in the setup, in order of preference.
        ids: the ids of these backends.
        seconds: the time limit for one network.
        shrink_seconds: the time limit for reducing the network; 0 leaves the network unchanged.
        engines: the ids of installed engines to compare with.
        folder: the folder for the script; None writes nothing.
        environment: environment variables of the child processes, which the script sets.
    """

    backends: Sequence[str | Factory]
    ids: Sequence[str]
    seconds: float
    shrink_seconds: float = 30.0
    engines: Sequence[str] = ()
    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def inspect(
    nursery: Nursery,
    inspection: Inspection,
    subjects: Sequence[Subject],
    suspected_verdict: Verdict,
    *,
    thorough: bool = True,
) -> Finding:
    """Inspect a failure and return the finding.

    Args:
        nursery: the process that forks workers.
        inspection: the settings.
        subjects: the network under the conditions under which it may have failed; at least one.
        suspected_verdict: the failure.
        thorough: False only confirms the failure and determines the culprit.
    """
    with Solo(nursery, inspection.seconds, inspection.ids) as solo:
        for subject in subjects:
            verdict = solo.judge(subject)
            if verdict.is_finding and not thorough:
                return Finding(subject.id, verdict)
            if verdict.is_finding:
                return _inspected(solo, inspection, subject, verdict)
    note = "It does not show again when the network is run alone in a new process."
    return Finding(subjects[0].id, suspected_verdict, note)


def _inspected(solo: Solo, inspection: Inspection, subject: Subject, verdict: Verdict) -> Finding:
    if verdict.sort is not Sort.HANG:
        solo.seconds = min(solo.seconds, _TRIAL_SECONDS)
    solo.renew()
    name = subject.id
    subject, current_verdict = _as_built(solo, subject, verdict)
    culprit = located(subject, current_verdict, solo.judge)
    if inspection.shrink_seconds:
        subject, current_verdict = shrunk(subject, current_verdict, solo.judge, inspection.shrink_seconds)
    solo.seconds = max(solo.seconds, START_SECONDS)  # engines take a while to import
    finding = Finding(
        name,
        verdict,
        where=culprit,
        opinions=opinions(subject, current_verdict, solo.ids, inspection.engines, solo.do),
        network=print_graph(subject.network.graph, elide=_ELIDED),
        operators=tuple(layer.kind for layer in computing_layers(subject.network.graph)),
        text=current_verdict.text,
    )
    try:
        return replace(finding, script=_written(solo, inspection, subject, finding))
    except FileWriteError as error:
        return replace(finding, note=str(error))


def _as_built(solo: Solo, subject: Subject, verdict: Verdict) -> tuple[Subject, Verdict]:
    """Return the network that was imported from a model file, if it fails in the same way without the file.

    Otherwise the subject and its verdict are returned unchanged.
    """
    if subject.conditions.route == AS_BUILT or verdict.sort is Sort.TRANSLATION:
        return subject, verdict
    try:
        imported_network = through(Route(subject.conditions.route), subject.network)
    except InterposerError:
        return subject, verdict
    feeds = (
        imported_network
        if isinstance(imported_network, str)
        else bound_again(subject.network, imported_network, subject.feeds)
    )
    if isinstance(imported_network, str) or isinstance(feeds, str):
        return subject, verdict
    conditions = replace(subject.conditions, route=AS_BUILT)
    name = f"{subject.id}-{subject.conditions.route}"
    direct_subject = replace(subject, network=imported_network, feeds=feeds, conditions=conditions, id=name)
    verdict_without_file = solo.judge(direct_subject)
    return (direct_subject, verdict_without_file) if verdict_without_file.alike(verdict) else (subject, verdict)


def _written(solo: Solo, inspection: Inspection, subject: Subject, finding: Finding) -> str:
    if inspection.folder is None:
        return ""
    setup = solo.nursery.setup
    own_settings = {name: value for name, value in os.environ.items() if name.startswith("INTERPOSER_")}
    variables = {
        name: value
        for name, value in (own_settings | {**inspection.environment}).items()
        if name not in _OMITTED_VARIABLES
    }
    finding_text = "\n".join([finding.text or finding.verdict.text, finding.where, *finding.opinions]).strip()
    title = f"{finding.sort}, the cause: {finding.verdict.culprit}\n{finding_text}"
    path = write(
        inspection.folder, subject, title, inspection.backends,
        options=setup.options, steps=setup.tolerances.steps, environment=variables,
    )  # fmt: skip
    return str(path)
