"""Constants have the values of Arm NN 20.08, and the version is that of its interface."""

import importlib

import pyarmnn as ann
import pytest
from pyarmnn import _version


def test_activation_functions_are_numbered_as_in_arm_nn():
    names = ["Sigmoid", "TanH", "Linear", "ReLu", "BoundedReLu", "SoftReLu", "LeakyReLu", "Abs", "Sqrt", "Square"]
    assert [getattr(ann, f"ActivationFunction_{name}") for name in names] == list(range(10))


def test_newer_activation_functions_are_not_public_names():
    assert not hasattr(ann, "ActivationFunction_Elu")
    assert ann._generated.pyarmnn.ActivationFunction_Elu == 10
    assert ann._generated.pyarmnn.ActivationFunction_HardSwish == 11


@pytest.mark.parametrize(
    ("number", "name", "size"),
    [(0, "Float16", 2), (1, "Float32", 4), (2, "QAsymmU8", 1), (3, "Signed32", 4), (4, "Boolean", 1)]
    + [(5, "QSymm16", 2), (6, "QSymm8PerAxis", 1), (7, "QSymmS8", 1), (8, "QAsymmS8", 1), (9, "BFloat16", 2)]
    + [(77, "Unknown", 0), (-1, "Unknown", 0)],
)
def test_data_types_have_names_and_sizes(number, name, size):
    generated = ann._generated.pyarmnn
    assert (generated.GetDataTypeName(number), generated.GetDataTypeSize(number)) == (name, size)


def test_the_version_is_that_of_arm_nn_20_08():
    assert (ann.__version__, ann.__arm_ml_version__, ann.ARMNN_VERSION) == ("22.0.0", "22.0.0", "22.0.0")
    assert (ann.GetVersion(), ann.GetMajorVersion(), ann.GetMinorVersion()) == ("22.0.0", "22", "0")


@pytest.fixture
def reloaded():
    yield lambda: importlib.reload(_version)
    importlib.reload(_version)


def test_the_environment_names_a_development_version(monkeypatch, reloaded):
    monkeypatch.setenv("PYARMNN_DEV_VER", "1")
    module = reloaded()
    assert module.__version__ == "22.0.0.dev1"
    assert module.__arm_ml_version__ == "22.0.0"
    monkeypatch.delenv("PYARMNN_DEV_VER")
    assert "dev" not in reloaded().__version__


def test_versions_match_if_major_and_minor_number_are_equal():
    _version.check_armnn_version("22.0.5", "22.0.0")
    with pytest.raises(AssertionError) as caught:
        _version.check_armnn_version("19.8.0", "20.2.0")
    assert str(caught.value) == "Expected ArmNN version is 20.2.0 but installed ArmNN version is 19.8.0"


def test_all_public_names_exist():
    assert [name for name in ann.__all__ if not hasattr(ann, name)] == []
