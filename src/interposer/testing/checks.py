"""The checks that are made of every sample; each looks at one trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from interposer.core.types import Array, DataType, TensorInfo
from interposer.testing.bench import Bench
from interposer.testing.exact import suited
from interposer.testing.order import order_problems
from interposer.testing.outcome import Refused, Skipped
from interposer.testing.sample import Sample
from interposer.testing.tolerances import Tolerances, bias, same
from interposer.testing.trial import Outputs, Trial

__all__ = ["SAMPLE_CHECKS", "Check"]


@dataclass(frozen=True)
class Check:
    """One thing that is checked: what it is called, what it is about, and a function that yields errors.

    `variants` are what a check of the backend as a whole is made on; a check of samples has none.
    """

    name: str
    doc: str
    run: Callable[[Any, Any], Iterator[str]]
    variants: tuple[str, ...] = ()


SAMPLE_CHECKS: Final[list[Check]] = []


def _on_samples(run: Callable[[Trial], Iterator[str]]) -> Callable[[Trial], Iterator[str]]:
    doc = " ".join((run.__doc__ or "").split())
    SAMPLE_CHECKS.append(Check(run.__name__, doc, lambda bench, sample: run(_trial(bench, sample))))
    return run


def _trial(bench: Bench, sample: Sample) -> Trial:
    if bench.latest is None or bench.latest.sample is not sample:
        bench.latest = Trial(bench, sample)
    trial: Trial = bench.latest
    return trial


@_on_samples
def support(trial: Trial) -> Iterator[str]:
    """What a backend says of a layer holds.

    It gives reasons for a no, says the same when it is asked again, and answers for every layer of a larger view.
    """
    yield from trial.support_problems
    if trial.reasons and not trial.support_problems:
        raise Refused("; ".join(trial.reasons))


@_on_samples
def results(trial: Trial) -> Iterator[str]:
    """Yield a layer that the backend takes can be loaded and run, and gives the right results.

    These are what a worked example says, or what the reference kernel gives, within the tolerances and without a bias,
    also in another run on other inputs. Results that are exact by specification allow no difference.
    """
    _require_taken(trial)
    if trial.fault:
        yield trial.fault
        return
    tolerances = suited(trial.bench.tolerances, trial.layer)
    tolerances = tolerances.exact(bits=True) if trial.sample.exact else tolerances
    yield from _differences(trial, tolerances, trial.first, trial.expected(), trial.feeds)
    if trial.other is not None and not trial.sample.statistical:
        errors = _differences(
            trial, tolerances, trial.other, trial.expected_of_others(), trial.other_feeds, trial.first
        )
        yield from (f"in another run, on other inputs, {error}" for error in errors)


def _differences(
    trial: Trial,
    tolerances: Tolerances,
    results: Outputs,
    expected: Outputs,
    feeds: Outputs,
    earlier: Outputs | None = None,
) -> Iterator[str]:
    for key, value in enumerate(trial.layer.outputs):
        result, requested = results[key], expected[key]
        info = value.known.with_shape(result.shape)
        if trial.sample.statistical:
            yield from _kind_problems(key, result, value.known)
            continue
        before = None if earlier is None or same(requested, earlier[key]) else earlier[key]
        error = tolerances.difference(result, requested, info, trial.evidence(feeds), before) or bias(
            result, requested, info
        )
        if error:
            yield f"output {key}: {error}"


@_on_samples
def repetition(trial: Trial) -> Iterator[str]:
    """Yield another run on the same inputs gives the same, bit by bit, whatever ran in between and however arrays lie.

    A backend with the capability Deterministic=False may differ within the tolerances. Operators that draw at random
    need to give only the same shapes and types again.
    """
    _require_run(trial)
    strict = not trial.bench.backend.capabilities.has("Deterministic", False)
    for key, value in enumerate(trial.layer.outputs):
        first, again = trial.first[key], trial.again[key]
        if trial.sample.statistical:
            yield from _kind_problems(key, again, value.known)
        elif strict and not same(again, first):
            yield f"output {key} is not the same when the network runs again on the same inputs"
        elif not strict:
            error = trial.bench.tolerances.difference(again, first, value.known.with_shape(first.shape))
            yield from [f"output {key} of another run: {error}"] if error else []


@_on_samples
def inputs(trial: Trial) -> Iterator[str]:
    """Nobody writes to a layer's inputs.

    Not to the caller's arrays, not to constants, and not to the tensors of the network, which other layers may read.
    """
    _require_run(trial)
    if not trial.untouched:
        yield "an array of the caller, or a constant, was written to"
    yield from dict.fromkeys(error for error in trial.recording.problems if " wrote to " in error)


@_on_samples
def order(trial: Trial) -> Iterator[str]:
    """Memory and workloads are used in the right order.

    Memory is acquired once, in the first run, and released once, when the network is unloaded; tensors are mapped only
    in between, and unmapped afterwards; every network has a manager and handles of its own.
    """
    _require_run(trial)
    yield from dict.fromkeys(error for error in trial.recording.problems if " wrote to " not in error)
    yield from order_problems(trial.recording)


def _require_taken(trial: Trial) -> None:
    if trial.reasons:
        raise Refused("; ".join(trial.reasons))


def _require_run(trial: Trial) -> None:
    _require_taken(trial)
    if trial.fault:
        raise Skipped("it did not run; the check 'results' says why")


def _kind_problems(key: int, array: Array, info: TensorInfo) -> Iterator[str]:
    if array.dtype != info.dtype.numpy or not info.shape.accepts(info.with_shape(array.shape).shape):
        yield f"output {key} is {DataType.of(array.dtype)}{list(array.shape)}; expected {info}"
