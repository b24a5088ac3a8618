"""ONNX Runtime with the provider registered, for tests that create sessions in their own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from interposer.bridges.files import library


@pytest.fixture(scope="session")
def host():
    """The module onnxruntime, in which the library is registered as "Interposer"."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    if not Path(library(check=False)).is_file():
        pytest.skip("the library of the bridges was not built")
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} cannot register libraries; 1.23 or later can")
    onnxruntime.set_default_logger_severity(4)
    onnxruntime.register_execution_provider_library("Interposer", library())
    return onnxruntime
