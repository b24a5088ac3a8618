"""Runs cases with the backends of this package, and with ONNX Runtime if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import interposer as ip
from tests.frontends.onnx.contrib.case import Case

BACKENDS = (("CpuRef",), ("CpuAcc", "CpuRef"))


class Outcome(NamedTuple):
    """The result of a case: "agrees", "differs", "crashes", or that it is refused here, by ONNX Runtime, or by both."""

    status: str
    reason: str = ""


def run_here(case: Case, backends: Sequence[str]) -> list[np.ndarray]:
    """Return the results of the backends in `backends` for the case."""
    model = ip.load(case.file(), backends=list(backends))
    result = model.run(case.feeds())
    return list(result.values()) if isinstance(result, dict) else list(result)


def run_onnxruntime(case: Case) -> list[np.ndarray]:
    """Return ONNX Runtime's results for the case, without its optimizations of the graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(case.file(), options, providers=["CPUExecutionProvider"])
    return session.run(None, case.feeds())


def compared(case: Case, backends: Sequence[Sequence[str]] = BACKENDS) -> Outcome:
    """Run the case here and by ONNX Runtime, and return whether the results agree."""
    there = _attempt(run_onnxruntime, case)
    for names in backends:
        outcome = _outcome(case, _attempt(run_here, case, names), there, names)
        if outcome.status != "agrees":
            return outcome
    return Outcome("agrees")


def _outcome(case: Case, here: list | Exception, there: list | Exception, names: Sequence[str]) -> Outcome:
    if isinstance(here, Exception) and not isinstance(here, ip.InterposerError):
        return Outcome("crashes", f"{names[0]}: {type(here).__name__}: {here}")
    if isinstance(here, Exception):
        return Outcome("refused by both" if isinstance(there, Exception) else "refused here", str(here))
    if isinstance(there, Exception):
        return Outcome("refused by ONNX Runtime", str(there))
    reason = difference(here, there, case)
    return Outcome("differs", f"{names[0]}: {reason}") if reason else Outcome("agrees")


def _attempt(run, case, *arguments):
    try:
        with np.errstate(all="ignore"):
            return run(case, *arguments)
    except Exception as error:
        return error


def difference(here: Sequence[np.ndarray], there: Sequence[np.ndarray], case: Case) -> str:
    """Return how the results differ, or an empty text; see the case for the tolerance."""
    if len(here) != len(there):
        return f"{len(here)} results instead of {len(there)}"
    if case.defined is not None and [np.shape(a) for a in here] == [np.shape(b) for b in there]:
        here, there = case.defined(here), case.defined(there)
    for number, (a, b) in enumerate(zip(map(np.asarray, here), map(np.asarray, there), strict=True)):
        text = _different(a, b, case)
        if text:
            return f"output {number}: {text}"
    return ""


def _different(here: np.ndarray, there: np.ndarray, case: Case) -> str:
    if here.dtype.kind in "OSU":
        here, there = (np.vectorize(_text, otypes="O")(array) for array in (here, there))
    if (here.shape, here.dtype) != (there.shape, there.dtype):
        return f"{here.dtype}{list(here.shape)} instead of {there.dtype}{list(there.shape)}"
    if here.dtype.kind == "f":
        bound = max(case.tolerance, 2e-3 if here.dtype == np.float16 else 0)
        if np.allclose(here, there, bound, bound, equal_nan=True):
            return ""
    elif here.dtype.kind in "iu" and here.size and case.steps:
        if np.abs(here.astype(np.int64) - there.astype(np.int64)).max() <= case.steps:
            return ""
    elif np.array_equal(here, there):
        return ""
    wrong = (
        np.flatnonzero(~np.isclose(here, there, case.tolerance, case.tolerance, equal_nan=True))
        if here.dtype.kind != "O"
        else []
    )
    places = f" in {len(wrong)} of {here.size}" if len(wrong) else ""
    first = wrong[:6] if len(wrong) else slice(6)
    return f"{here.ravel()[first]} instead of {there.ravel()[first]}{places}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
