"""The check on random networks: results are compared with the reference, and the first failure becomes a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from interposer.backend import Backend
from interposer.testing.bench import Bench
from interposer.testing.contracts import on_backend
from interposer.testing.judge.inspecting import Inspection, inspect
from interposer.testing.judge.judging import judge
from interposer.testing.judge.seat import Seat
from interposer.testing.judge.serving import Setup
from interposer.testing.judge.subject import Subject, Verdict
from interposer.testing.judge.tasks import Plan, drawn, subjects_of
from interposer.testing.judge.workers import nursery_for
from interposer.testing.outcome import Skipped
from interposer.testing.progress import note

__all__: list[str] = []

_MANY_OPERATORS: Final = 12
"""The number of supported operators from which on a backend is tried on all random networks; fewer get a share."""
_LEAST: Final = 4
_CPU_SECONDS: Final = 0.1
"""Processor time in seconds per network of `Settings.examples`. A case ends when its total is used up."""
_MOST: Final = 3
"""The number of failures after which a case tries no more networks."""
_SECONDS: Final = 10.0
_SHRINK_SECONDS: Final = 10.0
_SHARES: Final = {"whole": 1, "divided": 2, "others": 4}


@on_backend("whole", "divided", "others")
def random(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if results of random networks differ from the reference.

    Networks run on the backend by itself, divided between backends, and combined with other backends. Layers that the
    backend does not support run on the reference backend. A failure that also occurs without the backend is not
    reported. The first failure is reduced to the smallest network that still fails, and written to a script.
    """
    other_ids = [other_backend.id for other_backend in bench.other_backends if other_backend.id != bench.backend.id]
    if variant == "others" and not other_ids:
        raise Skipped("there are no other backends here")
    name = bench.backend.id
    preferences = (
        [(name,)]
        if variant != "others"
        else [ids for other_backend in other_ids for ids in ((other_backend, name), (name, other_backend))]
    )
    favoured = tuple(sorted({type(sample.op).op_name() for sample in bench.taken}))
    suspects = list[tuple[tuple[str, ...], Subject, Verdict]]()
    for ids in preferences:
        plan = Plan(0, ids=ids, favoured=favoured, ways="divided" if variant == "divided" else "whole")
        count = _count(bench, len(favoured)) // _SHARES[variant] // len(preferences)
        for subject, verdict in _findings(bench, plan, max(_LEAST, count)):
            suspects.append((ids, subject, verdict))
            if len(suspects) == _MOST:
                break
    yield from _reported(bench, suspects)


def _count(bench: Bench, operators: int) -> int:
    """Return how many networks to try for a backend that supports this number of operators.

    It is at most `Settings.examples`. With few operators there are fewer networks, as most layers run elsewhere.
    """
    return bench.settings.examples * min(operators, _MANY_OPERATORS) // _MANY_OPERATORS


def _findings(bench: Bench, plan: Plan, count: int) -> Iterator[tuple[Subject, Verdict]]:
    """Run `count` random networks of a plan in this process; yield each failure that the backend under test causes.

    Fewer networks are run if they take too long.
    """
    deadline = time.process_time() + _CPU_SECONDS * count
    options = {bench.backend.id: bench.settings.options} if bench.settings.options else {}
    seat = Seat((bench.backend, *_others(bench)), options, bench.tolerances)
    for number in range(count):
        if number >= _LEAST and time.process_time() > deadline:
            return
        network_drawn = drawn(plan, number)
        for subject in subjects_of(plan, network_drawn):
            note(f"judging the random network {network_drawn.id} on {' and '.join(plan.ids or ())}")
            verdict = judge(seat, subject, plan.ids)
            if verdict.is_finding and bench.backend.id in verdict.culprit.split(" and "):
                yield subject, verdict


def _reported(bench: Bench, suspects: list[tuple[tuple[str, ...], Subject, Verdict]]) -> Iterator[str]:
    """Yield a text with the first failure, reduced and analyzed, and with the ids of the other networks that fail.

    `suspects` has the ids of the backends that were used, the network and its failure.
    """
    if not suspects:
        return
    ids, subject, verdict = suspects[0]
    setup = _setup(bench)
    backends = dict(zip((bench.backend.id, *(other.id for other in _others(bench))), setup.backends, strict=True))
    inspection = Inspection(
        [backends[backend_id] for backend_id in ids], ids, _SECONDS, _SHRINK_SECONDS, folder=Path(bench.settings.folder)
    )
    note(f"reducing the random network {subject.id}, on which the backend fails")
    with nursery_for(setup) as nursery:
        finding = inspect(nursery, inspection, [subject], verdict)
    other_ids = [backend_id.id for _, backend_id, _ in suspects[1:]]
    yield f"{finding}\nrandom networks that fail too: {', '.join(other_ids)}" if other_ids else str(finding)


def _others(bench: Bench) -> list[Backend]:
    return [other_backend for other_backend in bench.other_backends if other_backend.id != bench.backend.id]


def _setup(bench: Bench) -> Setup:
    """Return the backends from which a worker process runs a failing network again: the one under test and the others.

    They are given by id if another process can create them, otherwise as objects for a forked process.
    """
    other_backends, options = (
        _others(bench),
        {bench.backend.id: bench.settings.options} if bench.settings.options else {},
    )
    if bench.backend_source is not None:
        return Setup(
            (bench.backend_source, *(other_backend.id for other_backend in other_backends)),
            options,
            bench.tolerances,
            formats=False,
        )
    return Setup(
        tuple(partial(_itself, backend) for backend in (bench.backend, *other_backends)),
        options,
        bench.tolerances,
        formats=False,
    )


def _itself(backend: Backend) -> Backend:
    return backend
