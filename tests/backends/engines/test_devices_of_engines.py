"""Devices that engines refuse or query differently, and the threads that remain after a run."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, TensorInfo
from interposer.core.errors import InterposerError
from interposer.ops import Addition
from tests.backends.engines.adapters import installed, runtime_with_engines


def doubled() -> Network:
    network = Network("doubled")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x), name="y")
    return network


def test_torch_refuses_a_device_without_data() -> None:
    pytest.importorskip("torch")
    options = OptimizerOptions(model_options={"Torch": {"device": "meta"}})
    with runtime_with_engines() as runtime, pytest.raises(InterposerError, match="torch's device 'meta' has no data"):
        ip.load(doubled(), ["Torch"], runtime=runtime, options=options)


def test_torch_has_as_many_threads_after_runs_that_overlap_as_before() -> None:
    torch = pytest.importorskip("torch")
    from interposer.backends.engines.torch.backend import _threads

    before = torch.get_num_threads()
    first, second = _threads.set(before + 1), _threads.set(before + 2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == before + 2
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("device", ["AUTO", "AUTO:CPU", "HETERO:CPU", "MULTI:CPU", "BATCH:CPU"])
def test_devices_of_openvino_that_stand_for_others_run_layers(device: str) -> None:
    if "OpenVino" not in installed():
        pytest.skip("openvino is not installed")
    options = OptimizerOptions(model_options={"OpenVino": {"device": device}})
    with runtime_with_engines() as runtime:
        model = ip.load(doubled(), ["OpenVino"], runtime=runtime, options=options)
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(model(x), 2 * x)
