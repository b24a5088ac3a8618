"""The test cases of the package onnx through sessions with the provider: right results from every group."""

from __future__ import annotations

import random
import warnings
from functools import cache

import numpy as np
import pytest

from interposer.bridges import reports

pytestmark = pytest.mark.needs_cpuref
CHUNK = 25
SAMPLE = 8
"""The number of chunks that `make test` runs; `make test-all` runs all."""
CHUNKS = range(76)
RANDOM = ("bernoulli", "random", "dropout", "multinomial")
"""Parts of the names of cases whose results are drawn."""


@cache
def cases():
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sorted(collect_testcases(None), key=lambda case: case.name)
    random.Random(1).shuffle(found)
    return [case for case in found if not any(word in case.name for word in RANDOM)]


def of_tensors(case) -> bool:
    values = (*case.model.graph.input, *case.model.graph.output)
    return all(value.type.WhichOneof("value") == "tensor_type" for value in values)


def results(host, case, providers):
    """Return the outputs of a session, or None if it cannot be created or run."""
    options = host.SessionOptions()
    options.log_severity_level = 4
    feeds = {
        value.name: np.asarray(array)
        for value, array in zip(case.model.graph.input, case.data_sets[0][0], strict=False)
    }
    for provider in providers:
        devices = [device for device in host.get_ep_devices() if device.ep_name == provider]
        options.add_provider_for_devices(devices, {"backends": "CpuRef", "min-nodes": "1"})
    try:
        return host.InferenceSession(case.model.SerializeToString(), options).run(None, feeds)
    except Exception as error:
        return str(error)


def agree(found, expected) -> bool:
    found, expected = np.asarray(found), np.asarray(expected)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if found.dtype.kind in "OSU":
        return bool((found == expected).all())
    numbers = found.astype(np.float64), expected.astype(np.float64)
    tolerance = 2e-3 if found.dtype == np.float16 else 1e-3  # two steps of float16
    return bool(np.allclose(*numbers, rtol=tolerance, atol=1e-5, equal_nan=True))


def all_agree(found, expected) -> bool:
    return not isinstance(found, str) and all(agree(*pair) for pair in zip(found, expected, strict=True))


def problem(host, case) -> str:
    """Return what is wrong with the results of a case, or an empty text."""
    expected = case.data_sets[0][1]
    found = results(host, case, ["InterposerExecutionProvider"])
    if all_agree(found, expected) or not all_agree(results(host, case, []), expected):
        return ""  # if ONNX Runtime alone does not give the expected results, nothing can be said
    return f"{case.name}: {found if isinstance(found, str) else 'wrong results'}"


@pytest.mark.parametrize("chunk", [pytest.param(n, marks=[pytest.mark.slow] * (n >= SAMPLE)) for n in CHUNKS])
def test_all_results_are_those_of_the_case(host, chunk):
    chosen = [case for case in cases()[chunk * CHUNK : (chunk + 1) * CHUNK] if of_tensors(case)]
    assert [text for text in (problem(host, case) for case in chosen) if text] == []


def test_most_cases_are_taken(host):
    taken = 0
    chosen = [case for case in cases()[:40] if of_tensors(case)]
    for case in chosen:
        results(host, case, ["InterposerExecutionProvider"])
        taken += bool(reports()[-1].taken)
    assert taken > len(chosen) / 2


def test_there_are_as_many_chunks_as_cases():
    pytest.importorskip("onnx", reason="onnx is not installed")
    assert len(cases()) <= len(CHUNKS) * CHUNK
