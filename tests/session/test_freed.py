"""A closed model leaves nothing to a later garbage collection, since devices have little memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.ir.network import Network
from interposer.ops.control import Constant, PreCompiled
from interposer.session.model import Model
from interposer.session.variants import Blueprint

WEIGHTS = ", ".join(["0.5"] * 16)


def text(rows: str) -> bytes:
    """Return a network with weights, for a fixed number of rows or the name of an open dimension."""
    return f"""graph "layers" {{
      %x = Input : float32[{rows}, 4]
      %w = Constant(value=float32[4, 4]{{{WEIGHTS}}})
      %product = BatchMatMul %x, %w
      %softmax = Softmax %product
      Output %softmax as "y"
    }}""".encode()


@pytest.fixture(params=["CpuRef", "CpuAcc", "GpuAcc", "OnnxRuntime"])
def backend(request: pytest.FixtureRequest) -> str:
    """The id of a backend that is available here."""
    if request.param == "OnnxRuntime":
        pytest.importorskip("onnxruntime")
    elif request.param != "CpuRef":
        request.getfixturevalue(request.param.lower())
    return str(request.param)


@pytest.fixture
def without_collection(backend: str) -> Iterator[None]:
    """Keeps the garbage collector from running during a test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held(model: Model) -> list[weakref.ref[object]]:
    """Return references to what a model has loaded: networks, compiled parts and constants."""
    loaded = model._loaded.by_key.values()
    networks = [variant.optimized for variant in loaded]
    layers = [layer for network in networks for graph in (network.graph, network.divided()) for layer in graph]
    return [
        *map(weakref.ref, networks),
        *(weakref.ref(network.graph) for network in networks),
        *(weakref.ref(model.runtime._networks[variant.network_id]) for variant in loaded),
        *(weakref.ref(layer.op.object) for layer in layers if isinstance(layer.op, PreCompiled)),
        *(weakref.ref(layer.op.value) for layer in layers if isinstance(layer.op, Constant)),
    ]


def alive(references: list[weakref.ref[object]]) -> list[str]:
    return [type(reference()).__name__ for reference in references if reference() is not None]


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("rows", ["2", "n"])
def test_a_closed_model_holds_no_compiled_part_of_a_backend(backend: str, rows: str) -> None:
    model = ip.load(text(rows), backends=[backend, "CpuRef"])
    for count in (2,) if rows == "2" else (1, 2):
        model(np.zeros((count, 4), np.float32))
    references = [reference for reference in held(model) if not isinstance(reference(), np.ndarray)]
    model.close()
    assert not alive(references)


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("rows", ["2", "n"])
@pytest.mark.parametrize("backend", ["CpuRef"])
def test_the_constants_of_a_closed_model_go_with_its_last_reference(backend: str, rows: str) -> None:
    model = ip.load(text(rows), backends=[backend])
    model(np.zeros((2, 4), np.float32))
    references = held(model)
    model.close()
    del model
    assert not alive(references)


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("backend", ["CpuRef"])
def test_the_constants_before_a_change_of_weights_are_freed(backend: str) -> None:
    with ip.load(text("2"), backends=[backend]) as model:
        references = held(model)
        model._loaded.prepare_again(Blueprint(Network.parse(text("2").decode())))
        model(np.zeros((2, 4), np.float32))
        assert not alive(references)


@pytest.mark.usefixtures("without_collection")
def test_a_closed_model_of_a_saved_network_holds_no_compiled_part(tmp_path: Path, backend: str) -> None:
    with ip.load(text("2"), backends=[backend, "CpuRef"]) as model:
        model.save(tmp_path / "layers.ipn")
    restored = ip.load(tmp_path / "layers.ipn")
    restored(np.zeros((2, 4), np.float32))
    references = [reference for reference in held(restored) if not isinstance(reference(), np.ndarray)]
    restored.close()
    assert not alive(references)


def test_the_graph_of_a_closed_model_is_complete_while_somebody_refers_to_it() -> None:
    with ip.load(text("2"), backends=["CpuRef"]) as model:
        model(np.zeros((2, 4), np.float32))
        graph = model.optimized.graph
    [output] = graph.outputs
    assert output.values[0].producer.values[0].producer.kind == "BatchMatMul"


def test_a_network_that_the_caller_built_is_complete_after_its_model_is_closed() -> None:
    network = Network.parse(text("2").decode())
    with ip.load(network, backends=["CpuRef"]) as model:
        model(np.zeros((2, 4), np.float32))
    with ip.load(network, backends=["CpuRef"]) as model:
        assert model(np.zeros((2, 4), np.float32)).shape == (2, 4)


@pytest.mark.needs_cpuref
def test_weights_that_a_network_quantizes_are_released_with_its_model() -> None:
    weights = np.random.default_rng(0).random((256, 256), np.float32)
    network = Network("fake quantized weights")
    info = ip.TensorInfo((256, 256), ip.DataType.INT8, ip.Quantization(0.01, 0))
    quantized = network.add_quantize_layer(network.add_constant_layer(weights), dtype=info.dtype, outputs=info)
    x = network.add_input_layer(0, ip.TensorInfo((256, 256)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, network.add_dequantize_layer(quantized)), name="y")
    with ip.load(network, ["CpuRef"]):
        reference = weakref.ref(weights)
    del network, quantized, x, weights
    gc.collect()
    assert reference() is None
