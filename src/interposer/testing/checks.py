"""The checks that run for every sample; each examines the `Trial` of one sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.core.types import Array, DataType, TensorInfo
from interposer.testing.bench import Bench
from interposer.testing.exact import suited
from interposer.testing.order import order_problems
from interposer.testing.outcome import Refused, Skipped
from interposer.testing.sample import Sample
from interposer.testing.tolerances import Tolerances, bias, same
from interposer.testing.trial import Outputs, Trial

__all__ = ["SAMPLE_CHECKS", "Check", "subject_of"]


@dataclass(frozen=True)
class Check:
    """A conformance check: its name, its description, and a function `run` that yields a text for each error.

    A check of samples is called with the `Trial` of every sample, and has no `variants`. A check of the backend as a
    whole is called with the `Bench` and each of its `variants`, for example "in-place".
    """

    name: str
    doc: str
    run: Callable[[Any, Any], Iterator[str]]
    variants: tuple[str, ...] = ()


SAMPLE_CHECKS: Final[list[Check]] = []


def subject_of(run: Callable[..., Iterator[str]]) -> str:
    """Return what a check is about, from its docstring: ``Yield an error if X`` becomes ``Fails if X``."""
    doc_text = " ".join((run.__doc__ or "").split())
    return doc_text.replace("Yield an error", "Fails", 1) if doc_text.startswith("Yield an error ") else doc_text


def _on_samples(run: Callable[[Trial], Iterator[str]]) -> Callable[[Trial], Iterator[str]]:
    check = Check(run.__name__, subject_of(run), lambda bench, sample: run(_trial(bench, sample)))
    SAMPLE_CHECKS.append(check)
    return run


def _trial(bench: Bench, sample: Sample) -> Trial:
    if bench.latest is None or bench.latest.sample is not sample:
        bench.latest = Trial(bench, sample)
    trial: Trial = bench.latest
    return trial


@_on_samples
def support(trial: Trial) -> Iterator[str]:
    """Yield an error if the backend's verdict about a layer does not hold.

    A refusal must give reasons. The verdict must be the same when the query is repeated, and a query for a larger view
    must answer for every layer.
    """
    yield from trial.support_problems
    if trial.reasons and not trial.support_problems:
        raise Refused("; ".join(trial.reasons))


@_on_samples
def results(trial: Trial) -> Iterator[str]:
    """Yield an error if a supported layer cannot be loaded and run, or gives wrong results.

    The expected results come from a worked example or from the reference kernel. Results must be within the tolerances
    and without a bias, for a second run on other inputs as well. Results that are exact by specification allow no
    difference.
    """
    _require_taken(trial)
    if trial.failure:
        yield trial.failure
        return
    tolerances = suited(trial.bench.tolerances, trial.layer)
    tolerances = tolerances.exact(bits=True) if trial.sample.exact else tolerances
    yield from _differences(trial, tolerances, trial.first_outputs, trial.expected(), trial.feeds)
    if trial.other_outputs is not None and not trial.sample.statistical:
        errors = _differences(
            trial, tolerances, trial.other_outputs, trial.expected_of_others(), trial.other_feeds, trial.first_outputs
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
    for key, output in enumerate(trial.layer.outputs):
        actual, expected_array = results[key], expected[key]
        info = output.known.with_shape(actual.shape)
        if trial.sample.statistical:
            yield from _kind_problems(key, actual, output.known)
            continue
        earlier_result = None if earlier is None or same(expected_array, earlier[key]) else earlier[key]
        error = tolerances.difference(actual, expected_array, info, trial.evidence(feeds), earlier_result) or bias(
            actual, expected_array, info
        )
        if error:
            yield f"output {key}: {error}"


@_on_samples
def repetition(trial: Trial) -> Iterator[str]:
    """Yield an error if another run on the same inputs gives different bits, after other runs or with other strides.

    For a backend with the capability Deterministic=False, results may differ within the tolerances. Operators that draw
    random numbers only need to repeat shapes and types.
    """
    _require_run(trial)
    must_repeat = not trial.bench.backend.capabilities.has("Deterministic", False)
    for key, output in enumerate(trial.layer.outputs):
        first_array, repeated_array = trial.first_outputs[key], trial.repeated_outputs[key]
        if trial.sample.statistical:
            yield from _kind_problems(key, repeated_array, output.known)
        elif must_repeat and not same(repeated_array, first_array):
            yield f"output {key} is not the same when the network runs again on the same inputs"
        elif not must_repeat:
            error = trial.bench.tolerances.difference(
                repeated_array, first_array, output.known.with_shape(first_array.shape)
            )
            yield from [f"output {key} of another run: {error}"] if error else []


@_on_samples
def inputs(trial: Trial) -> Iterator[str]:
    """Yield an error if the inputs of a layer were written to.

    The check covers the caller's arrays, constants, and tensors of the network that other layers may read.
    """
    _require_run(trial)
    if not trial.untouched:
        yield "an array of the caller, or a constant, was written to"
    yield from dict.fromkeys(error for error in trial.recording.problems if " wrote to " in error)


@_on_samples
def values(trial: Trial) -> Iterator[str]:
    """Yield an error if a value that cannot be used, such as an index out of range, is reported as a failure.

    Such a run must raise `InvalidValueError` (a shared object returns ``IPR_INVALID_VALUE``), or give any results. It
    must not refuse values that the reference accepts. The next run must be right: see the check ``repetition``.
    """
    _require_run(trial)
    yield from dict.fromkeys(trial.value_problems)


@_on_samples
def order(trial: Trial) -> Iterator[str]:
    """Yield an error if memory and workloads are used in the wrong order.

    Memory is acquired once, in the first run, and released once, when the network is unloaded. Tensors are mapped only
    between these two moments, and unmapped afterwards. Every network has its own manager and handles.
    """
    _require_run(trial)
    yield from dict.fromkeys(error for error in trial.recording.problems if " wrote to " not in error)
    yield from order_problems(trial.recording)


def _require_taken(trial: Trial) -> None:
    if trial.reasons:
        raise Refused("; ".join(trial.reasons))


def _require_run(trial: Trial) -> None:
    _require_taken(trial)
    if trial.failure:
        raise Skipped("it did not run; the check 'results' says why")


def _kind_problems(key: int, array: Array, info: TensorInfo) -> Iterator[str]:
    if array.dtype != info.dtype.numpy or not info.shape.accepts(info.with_shape(array.shape).shape):
        yield f"output {key} is {DataType.of(array.dtype)}{list(array.shape)}; expected {info}"
