"""Runs cases with the reference kernels, and with LiteRT's interpreter if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from interposer.core.errors import InterposerError
from interposer.frontends import tflite
from tests.evaluation import run_network
from tests.frontends.tflite.cases.case import Case

_MISSING = "Didn't find op"
"""The start of LiteRT's message for an operator that its reference kernels lack, or lack in this version."""


class Outcome(NamedTuple):
    """The result of a case: "agrees", "differs", "refused here", "refused by LiteRT" or "refused by both"."""

    status: str
    reason: str = ""


def run_here(case: Case) -> list[np.ndarray]:
    """Return the results of the reference kernels for the case."""
    network = tflite.load(case.file())
    names = [layer.name for layer in network.graph.inputs]
    return list(run_network(network, dict(zip(names, map(parts, case.feeds()), strict=True))).values())


def run_litert(case: Case) -> list[np.ndarray]:
    """Return the results of LiteRT's reference kernels, or of its other kernels if the operator has no others.

    Raises:
        RuntimeError: LiteRT refuses the model.
        ValueError: LiteRT cannot read the model.
    """
    from ai_edge_litert.interpreter import OpResolverType

    if case.optimized:
        return _interpreted(case, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    try:
        return _interpreted(case, OpResolverType.BUILTIN_REF)
    except (RuntimeError, ValueError) as error:
        if _MISSING not in str(error):
            raise
        return _interpreted(case, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)


def _interpreted(case: Case, resolver: object) -> list[np.ndarray]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=case.file(), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), case.feeds(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def compared(case: Case) -> Outcome:
    """Run the case here and by LiteRT, and return whether the results agree."""
    if case.crashes_litert:
        return Outcome("refused by LiteRT", "its interpreter crashes")
    here, there = _attempt(run_here, case, InterposerError), _attempt(run_litert, case, (RuntimeError, ValueError))
    if isinstance(here, str) and isinstance(there, str):
        return Outcome("refused by both", there)
    if isinstance(here, str):
        return Outcome("refused here", here)
    if isinstance(there, str):
        return Outcome("refused by LiteRT", there)
    reason = difference(here, there, case.tolerance)
    return Outcome("differs", reason) if reason else Outcome("agrees")


def _attempt(run, case, errors):
    try:
        return run(case)
    except errors as error:
        return str(error)


def difference_to_example(case: Case) -> str:
    """Return how the results of the reference kernels differ from the worked example, or an empty text."""
    results = run_here(case)
    expected = [np.array(value, result.dtype) for value, result in zip(case.expected or (), results, strict=True)]
    return difference(results, expected, case.tolerance)


def difference(here: Sequence[np.ndarray], there: Sequence[np.ndarray], tolerance: float) -> str:
    """Return how the results differ, or an empty text; integers must be equal."""
    if len(here) != len(there):
        return f"{len(here)} results instead of {len(there)}"
    pairs = [(np.asarray(a), parts(b)) for a, b in zip(here, there, strict=True)]
    return next((text for text in (_different(a, b, tolerance) for a, b in pairs) if text), "")


def _different(here: np.ndarray, there: np.ndarray, tolerance: float) -> str:
    if here.dtype.kind in "OSU":
        here, there = (np.vectorize(_text, otypes="O")(array) for array in (here, there))
    if (here.shape, here.dtype) != (there.shape, there.dtype):
        return f"{here.dtype}{list(here.shape)} instead of {there.dtype}{list(there.shape)}"
    if here.dtype.kind == "f" and np.allclose(here, there, tolerance, tolerance, equal_nan=True):
        return ""
    return "" if np.array_equal(here, there) else f"{here.ravel()[:8]} instead of {there.ravel()[:8]}"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def parts(array: object) -> np.ndarray:
    """Return an array with complex numbers as pairs of real and imaginary part along a last axis."""
    array = np.asarray(array)
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array
