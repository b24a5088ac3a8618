"""`bench`: run and time one network on several choices of backends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.analysis.random_inputs import random_array, random_inputs
from interposer.backend import Options
from interposer.core.errors import InterposerError, InvalidArgumentError, UnknownBackendError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.optimizer import OptimizerOptions
from interposer.runtime import Runtime
from interposer.session import Limits, Model, default_runtime, load
from interposer.session.fallback import AUTO, used_options
from interposer.session.placement import Plan
from interposer.session.timing import Timing, take_turns, undecided

__all__ = ["BenchReport", "Candidate", "bench", "candidates", "random_array", "random_inputs"]

REFERENCE: Final = "CpuRef"
_SEARCH: Final = "looking for the fastest placement"
Progress: TypeAlias = Callable[[str, int, int], None]
_LoadModel: TypeAlias = Callable[..., Model]
"""A function that loads the network on backends with these ids, or by a plan if that is the second argument."""


@dataclass
class Candidate:
    """The measurements of one choice of backends.

    `layers` counts the layers by backend, and `copies` the tensors that are copied between backends. `load_ms` is the
    time to load the network, and `first_ms` that of its first run; neither includes the search for a placement.
    `deviation` is the largest difference from the results of the last candidate that ran: in steps for integers,
    relative to the largest element for floats. `reason` says why the candidate did not run or failed; the other fields
    are then incomplete. `remarks` are sentences about what the search for a placement did not time.
    """

    backends: tuple[str, ...]
    layers: dict[str, int] = field(default_factory=dict)
    copies: int = 0
    load_ms: float | None = None
    first_ms: float | None = None
    timing: Timing | None = None
    deviation: float | None = None
    reason: str = ""
    title: str = ""
    remarks: tuple[str, ...] = ()
    same_as: str = ""
    """The candidate with the same placement, whose timing this one shares; empty if it was timed itself."""

    @property
    def name(self) -> str:
        """The title, or the backends in order of preference, without the reference backend that only completes them."""
        if self.title:
            return self.title
        main = self.backends[:-1] if self.backends[-1] == REFERENCE and len(self.backends) > 1 else self.backends
        return ",".join(main)

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as JSON-compatible data."""
        timing = self.timing
        return {
            "name": self.name,
            "backends": list(self.backends),
            "layers": self.layers,
            "copies": self.copies,
            "load_ms": self.load_ms,
            "first_ms": self.first_ms,
            "median_ms": None if timing is None else timing.median,
            "least_ms": None if timing is None else timing.least,
            "spread": None if timing is None else timing.spread,
            "turns_ms": [] if timing is None else list(timing.turns),
            "same_as": self.same_as,
            "deviation": self.deviation,
            "reason": self.reason,
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True)
class BenchReport:
    """The result of `bench`: what was measured for each choice of backends of one network.

    `network` is the name of the network. `candidates` has one entry per choice, in the order in which the choices were
    passed.
    """

    network: str
    candidates: tuple[Candidate, ...]
    concurrent: int = 1
    """The number of threads that ran a candidate at the same time; a time is that of one run in each of them."""

    @property
    def quickest(self) -> Candidate | None:
        """The candidate with the lowest median time of a run; None if no candidate ran."""
        timed_candidates = [
            candidate for candidate in self.candidates if candidate.timing is not None and not candidate.same_as
        ]
        return min(
            timed_candidates, key=lambda candidate: candidate.timing.median if candidate.timing else 0.0, default=None
        )

    @property
    def undecided(self) -> tuple[Candidate, ...]:
        """The fastest candidate, and the candidates that are too close to it to be certainly slower.

        These win against the fastest one in more than a sixth of the turns.
        """
        timed_candidates = {
            str(number): candidate
            for number, candidate in enumerate(self.candidates)
            if candidate.timing and not candidate.same_as
        }
        timings = {
            number: candidate.timing for number, candidate in timed_candidates.items() if candidate.timing is not None
        }
        return tuple(timed_candidates[number] for number in undecided(timings))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        best = self.quickest
        return {
            "network": self.network,
            "concurrent": self.concurrent,
            "quickest": None if best is None else best.name,
            "undecided": [candidate.name for candidate in self.undecided],
            "candidates": [candidate.to_dict() for candidate in self.candidates],
        }


def _silent(step: str, finished: int, total: int) -> None:
    """Do nothing; the default of `progress`, whose arguments are the current step, and the finished and all steps."""


def candidates(runtime: Runtime) -> list[tuple[str, ...]]:
    """Return the default choices of `bench`: one list of backend ids for every available backend of the runtime.

    Each list ends with CpuRef, which runs what the backend does not support; CpuRef alone is the last one.
    """
    ids = [backend for backend in runtime.registry.available() if backend != REFERENCE]
    completion = (REFERENCE,) if REFERENCE in runtime.registry.available() else ()
    return [*((backend, *completion) for backend in ids), *((reference,) for reference in completion)]


def bench(
    network: Network,
    choices: Iterable[Sequence[str]] | None = None,
    inputs: Mapping[str, Any] | None = None,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    rounds: int = 7,
    seconds: float = 0.2,
    progress: Progress = _silent,
    budget_seconds: float = 10.0,
    plan: Plan | None = None,
    concurrent: int = 1,
    model_options: Mapping[str, Options] | None = None,
) -> BenchReport:
    """Load a network on each choice of backends, compare the results, and time the choices in turns.

    Everything runs in this process.

    Args:
        network: any network; its input shapes must be known unless `inputs` are passed.
        choices: the backends of each candidate, in order of preference; None means those of `candidates`. ("auto",)
            stands for the fastest combination of all backends.
        inputs: arrays by the names of inputs; None means those of `random_inputs`.
        runtime: the runtime that loads the networks; None means the default runtime.
        limits: the maximum memory and number of operations that the network may need.
        rounds: the number of turns of each candidate; more turns reduce the influence of other load on the machine.
        seconds: the duration of a turn.
        progress: a function that is called with the current step, the number of finished steps, and their total.
        budget_seconds: the time limit for finding the fastest combination, unless it is known from an earlier run.
        plan: the placement of one more candidate.
        concurrent: the number of threads that run a candidate at the same time. A timed run then is one run in each of
            them, and lasts until all are done.
        model_options: options of backends, by backend id; each candidate gets those of its backends.

    Duplicate candidates, and candidates with the same placement of every layer, are measured once. A candidate whose
    backends are not available, or that cannot be loaded or run, has a reason instead of times.

    Raises:
        UnknownBackendError: no backend has an id in `choices` or in the plan.
        InvalidArgumentError: there are no candidates, rounds or threads, or an input shape is unknown and no inputs are
            passed.
    """
    runtime = default_runtime() if runtime is None else runtime
    candidate_ids = candidates(runtime) if choices is None else list(dict.fromkeys(tuple(choice) for choice in choices))
    if not candidate_ids or not all(candidate_ids):
        raise InvalidArgumentError("there is nothing to compare: give backends for each candidate")
    if rounds < 1 or not seconds >= 0:
        raise InvalidArgumentError(f"expected 1 round or more of 0 seconds or more, not {rounds} of {seconds}")
    if concurrent < 1:
        raise InvalidArgumentError(f"concurrent is {concurrent}; expected 1 thread or more")
    _check_ids([backend for ids in (*candidate_ids, () if plan is None else plan.backends) for backend in ids], runtime)
    feeds = random_inputs(network) if inputs is None else inputs

    def load_model(ids: Sequence[str] | None, plan: Plan | None = None) -> Model:
        of_backends = used_options(model_options, ids if plan is None else plan.backends)
        budget = budget_seconds if ids == ("auto",) else None
        options = OptimizerOptions(budget_seconds=budget, model_options=of_backends)
        return load(network, ids, runtime=runtime, limits=limits, options=options, plan=plan)

    measured_candidates = _measured(candidate_ids, plan, load_model, feeds, rounds, seconds, progress, concurrent)
    return BenchReport(network.name, measured_candidates, concurrent)


def _measured(
    candidate_ids: Sequence[tuple[str, ...]],
    plan: Plan | None,
    load_model: Callable[..., Model],
    feeds: Mapping[str, Any],
    rounds: int,
    seconds: float,
    progress: Progress,
    concurrent: int,
) -> tuple[Candidate, ...]:
    """Load the candidates, run and time each of them in turns, close them, and return their measurements in order.

    Args:
        candidate_ids: the backend ids of each candidate; the last one is loaded first and its results are the
            reference.
        plan: a placement that is measured as one more candidate, or None.
        load_model: loads a model on the given backend ids, or by a plan.
        feeds: the input arrays by name.
        rounds: the number of turns of each candidate.
        seconds: the duration of a turn.
        progress: called with the current step, the number of finished steps, and their total.
        concurrent: the number of threads that run a candidate at the same time.
    """
    loaded_candidates: dict[str, _Ran] = {}
    by_number: dict[int, Candidate] = {}
    try:
        for number, backends in reversed(list(enumerate(candidate_ids))):
            by_number[number] = Candidate(backends)
            activity = _SEARCH if backends == (AUTO,) else f"loading on {by_number[number].name}"
            progress(activity, len(by_number) - 1, len(candidate_ids))
            _load(str(number), by_number[number], loaded_candidates, load_model, feeds)
        if plan is not None:
            by_number[len(candidate_ids)] = Candidate(plan.backends, title="plan")
            _load(
                str(len(candidate_ids)),
                by_number[len(candidate_ids)],
                loaded_candidates,
                lambda ids: load_model(None, plan),
                feeds,
            )
        with ThreadPoolExecutor(concurrent) as pool:
            calls = {
                key: _call(loaded_candidate, pool if concurrent > 1 else None, concurrent)
                for key, loaded_candidate in loaded_candidates.items()
            }
            _time(by_number, loaded_candidates, calls, rounds, seconds, progress)
    finally:
        for loaded_candidate in loaded_candidates.values():
            loaded_candidate.model.close()
    return tuple(by_number[number] for number in sorted(by_number))


def _check_ids(ids: Iterable[object], runtime: Runtime) -> None:
    """Raise `UnknownBackendError` for an id that no backend has; the id "auto" is skipped."""
    registry = runtime.registry
    for backend in ids:
        if isinstance(backend, str) and backend.lower() != AUTO and backend not in registry:
            raise UnknownBackendError(backend, registry.ids)


@dataclass(frozen=True)
class _Ran:
    model: Model
    inputs: list[Any]
    outputs: list[Any]


def _load(
    key: str,
    candidate: Candidate,
    loaded_candidates: dict[str, _Ran],
    load_model: _LoadModel,
    inputs: Mapping[str, Any],
) -> None:
    """Load a candidate with `load_model`, run it once, and store what was measured in the candidate.

    Its results are compared with those of the first of the `loaded_candidates`. The loaded model is added to them
    under `key`. If loading or running fails, the candidate gets the reason instead.
    """
    model = None
    try:
        if candidate.backends == (AUTO,):
            load_model = _follow_search(candidate, load_model, inputs)
        start = time.perf_counter()
        model = load_model(candidate.backends)
        loaded_at = time.perf_counter()
        outputs = model.run(inputs)
        candidate.load_ms, candidate.first_ms = (loaded_at - start) * 1e3, (time.perf_counter() - loaded_at) * 1e3
    except InterposerError as error:
        candidate.reason = str(error).partition("\n")[0]
        if model is not None:
            model.close()
        return
    candidate.layers = dict(Counter(placement.backend for placement in model.optimized.placements))
    candidate.copies = len(model.optimized.copies)
    candidate.deviation = (
        _deviation(outputs, next(iter(loaded_candidates.values())).outputs) if loaded_candidates else None
    )
    loaded_candidates[key] = _Ran(model, [inputs[name] for name in model.inputs], outputs)


def _follow_search(candidate: Candidate, load_model: _LoadModel, inputs: Mapping[str, Any]) -> _LoadModel:
    """Search for the fastest placement unless it is known, and return a function that loads a model with it.

    What the search did not time is added to the candidate's remarks.
    """
    with load_model(candidate.backends) as model:
        if model.plan is None:  # the shapes are those of the inputs
            model.run(inputs)
        plan = model.plan
    if plan is None:
        return load_model
    candidate.remarks = plan.notes()
    return lambda ids: load_model(None, plan)


def _time(
    by_number: dict[int, Candidate],
    loaded_candidates: dict[str, _Ran],
    runs: Mapping[str, Callable[[], Any]],
    rounds: int,
    seconds: float,
    progress: Progress,
) -> None:
    def failed(key: str, error: Exception) -> None:
        if not isinstance(error, InterposerError):
            raise error
        by_number[int(key)].reason = str(error).partition("\n")[0]

    def report_turns(finished: int) -> None:
        progress("taking turns", finished, rounds * len(calls))

    first_keys = {
        _placement(loaded_candidate.model): key
        for key, loaded_candidate in sorted(loaded_candidates.items(), key=lambda pair: -int(pair[0]))
    }  # of equal ones, the first that is shown
    calls = {
        key: runs[key]
        for key, loaded_candidate in loaded_candidates.items()
        if first_keys[_placement(loaded_candidate.model)] == key
    }
    for key, timing in take_turns(calls, rounds, seconds, failed, report_turns).items():
        by_number[int(key)].timing = timing
    for key, loaded_candidate in loaded_candidates.items():
        timed_candidate = by_number[int(first_keys[_placement(loaded_candidate.model)])]
        if timed_candidate is not by_number[int(key)]:
            by_number[int(key)].timing, by_number[int(key)].same_as = timed_candidate.timing, timed_candidate.name
            by_number[int(key)].reason = timed_candidate.reason


def _placement(model: Model) -> tuple[tuple[str, str, str], ...]:
    """Return for each layer its name, backend and data types; equal for models that run in the same way."""
    return tuple((placement.layer, placement.backend, placement.runs_in) for placement in model.optimized.placements)


def _call(loaded_candidate: _Ran, pool: ThreadPoolExecutor | None, concurrent: int) -> Callable[[], Any]:
    """Return a function that runs a model, once without a `pool`, else `concurrent` times at the same time."""
    if pool is None:
        return lambda: loaded_candidate.model.run(loaded_candidate.inputs)
    return lambda: list(pool.map(loaded_candidate.model.run, [loaded_candidate.inputs] * concurrent))


# --- results ----------------------------------------------------------------------------------------------------------


def _deviation(actual: Sequence[Any], expected: Sequence[Any]) -> float | None:
    """Return the largest difference between the numeric outputs of a run and the expected ones.

    It is in steps for integers, and relative to the largest element for floats. None if there is no pair of numeric
    tensors of the same shape.
    """
    arrays_of_both = [(np.asarray(a), np.asarray(b)) for a, b in zip(actual, expected, strict=True)]
    differences = [
        _difference(a, b) for a, b in arrays_of_both if a.dtype.kind in "biuf" and b.size and a.shape == b.shape
    ]
    return max(differences, default=None)


def _difference(array: Array, expected: Array) -> float:
    with np.errstate(all="ignore"):
        largest_difference = float(np.max(np.abs(array.astype(np.float64) - expected.astype(np.float64))))
        largest = float(np.max(np.abs(expected.astype(np.float64)))) if expected.dtype.kind == "f" else 1.0
    return largest_difference / (largest or 1.0)
