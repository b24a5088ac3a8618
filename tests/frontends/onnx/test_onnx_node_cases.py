"""The test cases that come with the package onnx: one small model with data for every operator and attribute."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from interposer.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from tests.evaluation import run_network

TOLERANCES = {"bfloat16": 2**-6, "float16": 2e-3}


def cases():
    from onnx.backend.test.case.node import collect_testcases

    return [case for case in collect_testcases(None) if all(_is_tensor(value) for value in case.model.graph.input)]


def _is_tensor(value):
    return value.type.WhichOneof("value") == "tensor_type"


def arrays(values):
    return [numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else np.asarray(v) for v in values]


def loaded(case):
    """The network; where operands must be constants, those of the case are, all but the first one."""
    try:
        return load(case.model)
    except UnsupportedOperatorError as error:
        if not any("no constant" in note or "from data" in note for note in error.notes.values()):
            raise
    frozen = onnx.ModelProto()
    frozen.CopyFrom(case.model)
    for value, array in list(zip(frozen.graph.input, arrays(case.data_sets[0][0]), strict=True))[1:]:
        frozen.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return load(frozen)


def check(case, network):
    names = [value.name for value in case.model.graph.input]
    for feeds, results in case.data_sets:
        found = run_network(network, dict(zip(names, arrays(feeds), strict=True)))
        for value, expected in zip(case.model.graph.output, arrays(results), strict=True):
            same(found[value.name], expected, case)


def same(found, expected, case):
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
    passed, refused = 0, 0
    for case in cases():
        try:
            network = loaded(case)
        except ParseError as error:
            assert "supported" in str(error), case.name
            refused += 1
            continue
        check(case, network)
        passed += 1
    assert passed >= 1680, f"{passed} cases passed, {refused} were refused"
