"""The test cases that come with the package onnx: one small model with data for every operator and attribute."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import interposer
from interposer.errors import ParseError

TOLERANCES = {"bfloat16": 2**-6, "float16": 2e-3}


def cases():
    from onnx.backend.test.case.node import collect_testcases

    return collect_testcases(None)


def plain(value):
    """Data of a case as a model takes and gives it: arrays, lists of them for sequences, None for an empty optional."""
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if isinstance(value, list | None) else np.asarray(value)


def check(case, model):
    for feeds, results in case.data_sets:
        found = model.run([plain(value) for value in feeds])
        for one, expected in zip(found, map(plain, results), strict=True):
            same(one, expected, case)


def same(found, expected, case):
    if isinstance(expected, list):
        assert isinstance(found, list), case.name
        for one, wanted in zip(found, expected, strict=True):
            same(one, wanted, case)
    elif expected is None:
        assert found is None, case.name
    else:
        same_array(found, np.asarray(expected), case)


def same_array(found, expected, case):
    assert found.shape == expected.shape, case.name
    if found.dtype.kind == "O":
        assert found.tolist() == expected.tolist(), case.name
        return
    assert found.dtype == expected.dtype, case.name
    rtol = TOLERANCES.get(expected.dtype.name, max(case.rtol, 1e-3))
    wide = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(*wide, rtol=rtol, atol=max(case.atol, 1e-6), err_msg=case.name)


@pytest.mark.filterwarnings("ignore")
def test_the_cases_of_all_supported_operators_pass():
    passed, refused = 0, []
    for case in cases():
        try:
            with interposer.load(case.model.SerializeToString(), ["CpuRef"], format="onnx") as model:
                check(case, model)
        except ParseError as error:
            assert "supported" in str(error), case.name
            refused.append(case.name)
            continue
        passed += 1
    assert passed >= 1812, f"{passed} cases passed, and these were refused: {', '.join(refused)}"
