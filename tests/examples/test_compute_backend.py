"""The example of a backend in forty lines."""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from interposer import Network, Runtime, TensorInfo, optimize
from interposer.core.errors import UnsupportedLayerError
from interposer.ops import Activation, ActivationFunction, BatchMatMul

FILE = Path(__file__).parents[2] / "examples" / "compute_backend.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compute_backend", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_session_in_its_docstring_shows_what_really_happens(example: ModuleType) -> None:
    failed, attempted = doctest.testmod(example, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert attempted > 5
    assert failed == 0


def test_what_it_has_no_kernel_for_is_refused_with_the_reasons_of_its_rules(example: ModuleType) -> None:
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2, 2)), name="x")
    product = network.add_layer(BatchMatMul(transpose_y=True), x, x, name="product")
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.TANH), product, name="tanh"))
    runtime = Runtime()
    runtime.registry.register("Tiny", example.TinyBackend)
    with pytest.raises(UnsupportedLayerError) as caught:
        optimize(network, ["Tiny"], runtime.device_spec)
    assert str(caught.value) == (
        "2 layers cannot be run\n"
        "no backend in ['Tiny'] can run layer 'product' (BatchMatMul)\n"
        "  a: float32[2, 2]\n"
        "  b: float32[2, 2]\n"
        "  Tiny says: matrices are not transposed here\n"
        "no backend in ['Tiny'] can run layer 'tanh' (Activation)\n"
        "  input: float32[2, 2]\n"
        "  Tiny says: TANH is not RELU"
    )
