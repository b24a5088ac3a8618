"""One backend without changes gives equal results in Interposer, ONNX Runtime, LiteRT and PyTorch.

The backends are those of the folder ``examples``: one in Python, and one in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.backend import Backend
from interposer.bridges import reports
from interposer.core.errors import BackendUnavailableError
from interposer.testing.replay import backend_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPE = (4, 4)
X, Y = np.random.default_rng(5).random((2, *SHAPE), np.float32) - 0.5


@pytest.fixture(params=["Tiny", "Custom"])
def backend(request: Any, natives: Any, tmp_path: Path) -> Iterator[Backend]:
    """The backend of an example, which is registered in this process."""
    made = _tiny() if request.param == "Tiny" else _custom(natives, tmp_path)
    ip.process_registry().register(made.id, lambda: made)
    yield made
    ip.process_registry().deregister(made.id)


def _tiny() -> Backend:
    return backend_of("examples.compute_backend:TinyBackend")


def _custom(natives: Any, folder: Path) -> Backend:
    source = (EXAMPLES / "custom_native" / "c" / "custom.c").read_text(encoding="utf-8")
    return backend_of(str(natives.install(folder, "Example_Custom_backend.so", source)))


def network_for(backend: Backend) -> ip.Network:
    """Return ``relu(x @ y) + x`` for the backend in Python, and ``(x + y) + x`` for the one in C, which only adds."""
    network = ip.Network("sums")
    x, y = (network.add_input_layer(n, ip.TensorInfo(SHAPE), name=name) for n, name in enumerate("xy"))
    if backend.id == "Custom":
        result = network.add_addition_layer(network.add_addition_layer(x, y, name="first"), x, name="second")
    else:
        product = network.add_batch_mat_mul_layer(x, y, name="product")
        positive = network.add_activation_layer(product, function=ip.ops.ActivationFunction.RELU, name="relu")
        result = network.add_addition_layer(positive, x, name="sum")
    network.add_output_layer(0, result, name="z")
    return network


def in_interposer(backend: Backend) -> np.ndarray:
    model = ip.load(network_for(backend), backends=[backend.id])
    assert {placement.backend for placement in model.optimized.placements} == {backend.id}
    [z] = model.run([X, Y])
    return z


def in_host(host_type: Callable[[], Any], backend: Backend) -> np.ndarray:
    """Run the network in a host, and check that the backend took all of its nodes."""
    try:
        host = host_type()(backend.id, {}, RuntimeError)
    except (BackendUnavailableError, ImportError) as error:
        pytest.skip(str(error))
    outputs, refusals = host.run(host.express(network_for(backend)), [X, Y])
    assert refusals == []
    assert [part.backends for part in reports()[-1].parts] == [(backend.id,)]
    return outputs[0]


def onnx_runtime() -> Any:
    pytest.importorskip("onnx", reason="onnx is not installed")
    from interposer.bridges.onnxruntime.hosted import OnnxRuntimeHost

    return OnnxRuntimeHost


def lite_rt() -> Any:
    pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")
    from interposer.bridges.litert.hosted import LiteRtHost

    return LiteRtHost


def in_torch(backend: Backend) -> np.ndarray:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    function = torch.compile(
        (lambda x, y: (x + y) + x) if backend.id == "Custom" else (lambda x, y: torch.relu(x @ y) + x),
        backend="interposer",
        options={"backends": [backend.id]},
    )
    with ip.profile() as profile:
        result = function(torch.from_numpy(X), torch.from_numpy(Y))
    assert {layer.site.backend for layer in profile.layers()} == {backend.id}
    return result.numpy()


@pytest.mark.parametrize(
    "host_type", [pytest.param(onnx_runtime, id="ONNX Runtime"), pytest.param(lite_rt, id="LiteRT")]
)
def test_a_backend_gives_the_same_result_in_a_host_as_in_interposer(backend, host_type):
    np.testing.assert_array_equal(in_host(host_type, backend), in_interposer(backend))


@pytest.mark.slow
def test_a_backend_gives_the_same_result_in_torch_compile_as_in_interposer(backend):
    np.testing.assert_array_equal(in_torch(backend), in_interposer(backend))
