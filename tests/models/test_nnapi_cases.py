"""The operator cases that NNAPI publishes: every one is computed on CpuRef, or refused where it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer import Runtime, optimize
from interposer.core.errors import InvalidNetworkError, ParseError
from interposer.frontends import nnapi
from tests.published_cases import SAMPLE, nnapi_cases

pytestmark = pytest.mark.needs_cpuref

DTYPES = {
    "BOOL": "bool", "INT32": "int32", "FLOAT16": "float16", "FLOAT32": "float32", "TENSOR_BOOL8": "bool",
    "TENSOR_INT32": "int32", "TENSOR_FLOAT16": "float16", "TENSOR_FLOAT32": "float32", "TENSOR_QUANT8_ASYMM": "uint8",
    "TENSOR_QUANT8_ASYMM_SIGNED": "int8", "TENSOR_QUANT8_SYMM": "int8", "TENSOR_QUANT16_SYMM": "int16",
    "TENSOR_QUANT16_ASYMM": "uint16",
}  # fmt: skip


def cases() -> list[Any]:
    if not nnapi_cases():
        reason = f"no NNAPI cases in {SAMPLE.parent.parent.name}/{SAMPLE.parent.name}"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(document, id=f"{document['spec']}-{document['test']}") for document in nnapi_cases()]


def array_of(operand: dict[str, Any]) -> np.ndarray:
    """Return the data as an array; a dimension of 0 is computed from the number of elements."""
    flat = np.array(operand["data"], DTYPES[operand["type"]])
    shape = operand["dims"]
    return flat.reshape(shape) if 0 not in shape or not flat.size else flat


def compute(document: dict[str, Any]) -> dict[int, np.ndarray]:
    network = nnapi.build(document)
    optimized = optimize(network, ["CpuRef"])
    operands = [document["operands"][index] for index in document["inputs"]]
    feeds = {number: array_of(operand) for number, operand in enumerate(operands) if operand["data"]}
    with Runtime() as runtime:
        return runtime.enqueue_workload(runtime.load_network(optimized), feeds)


def tolerance(document: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, float]:
    """As the suite's own comparison has it."""
    if dtype.kind in "iu":
        return {"rtol": 0, "atol": 1}
    if document["relaxed"] or any("FLOAT16" in operand["type"] for operand in document["operands"]):
        return {"rtol": 5 * 2.0**-10, "atol": 5 * 2.0**-10}
    return {"rtol": 5 * 2.0**-23, "atol": 1e-5}


def frequencies(drawn: np.ndarray, classes: int) -> np.ndarray:
    """How often every class was drawn, in each row."""
    return np.stack([np.bincount(row, minlength=classes) / row.size for row in drawn])


def probabilities(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def check(document: dict[str, Any], operand: dict[str, Any], found: np.ndarray) -> None:
    expected = array_of(operand)
    assert found.dtype == expected.dtype
    assert not expected.size or found.shape == expected.shape
    if expected.dtype.kind == "b":
        np.testing.assert_array_equal(found, expected)
    else:
        wide = np.float64 if expected.dtype.kind == "f" else np.int64
        limits = tolerance(document, expected.dtype)
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), **limits)


@pytest.mark.parametrize("document", cases())
def test_a_published_case_is_computed_or_refused(document):
    if document["fail"]:
        with pytest.raises((ParseError, InvalidNetworkError), match=document["operations"][0]["op"]):
            compute(document)
        return
    result = compute(document)
    assert set(result) == set(range(len(document["outputs"])))
    for number, index in enumerate(document["outputs"]):
        if not document["operands"][index].get("ignored"):
            check(document, document["operands"][index], result[number])
    if document["multinomial_tol"]:
        logits = array_of(document["operands"][document["inputs"][0]])
        difference = np.abs(frequencies(result[0], logits.shape[1]) - probabilities(logits))
        assert difference.max() <= document["multinomial_tol"]


@pytest.mark.parametrize("document", cases())
def test_a_published_case_is_supported_unless_it_must_be_refused(document):
    answers = nnapi.supported(document, ["CpuRef"])
    assert len(answers) == len(document["operations"])
    assert all(answers) is not document["fail"], [answer.problem for answer in answers]
