"""Each layer computes what Arm NN 20.08 computes.

``layer_outputs.json`` has the outputs of Arm NN 20.08 for the cases of ``layer_cases.py``. If Arm NN is installed for
the system's Python, its outputs are compared as well.
"""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent
SYSTEM = "/usr/bin/python3"
RECORDED = json.loads((FOLDER / "layer_outputs.json").read_text())

_spec = importlib.util.spec_from_file_location("layer_cases", FOLDER / "layer_cases.py")
layer_cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(layer_cases)


def assert_equal(results, expected, name):
    assert len(results) == len(expected)
    for result, numbers in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.ravel(), numbers, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("name", layer_cases.CASES)
def test_a_layer_computes_what_arm_nn_computes(name):
    assert_equal(layer_cases.CASES[name].run(), RECORDED[name], name)


@pytest.fixture(scope="module")
def arm_nn(tmp_path_factory):
    path = tmp_path_factory.mktemp("arm_nn") / "outputs.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [SYSTEM, str(FOLDER / "layer_cases.py"), str(path)]
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if completed.returncode:
        pytest.skip(f"Arm NN is not installed for {SYSTEM}: {completed.stderr.strip().splitlines()[-1:]}")
    return json.loads(path.read_text())


def test_the_recorded_outputs_are_those_of_the_installed_arm_nn(arm_nn):
    assert arm_nn.keys() == RECORDED.keys()
    for name, expected in arm_nn.items():
        assert_equal(list(map(np.array, RECORDED[name])), expected, name)
