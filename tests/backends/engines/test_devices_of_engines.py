"""Devices that engines refuse or query differently, and the threads that remain after a run."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, Runtime, TensorInfo
from interposer.core.errors import BackendUnavailableError, InterposerError, OptionError
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


ADDRESSES = {"Torch:cpu": "Torch", "OpenVino:cpu": "OpenVino", "OnnxRuntime:cpu": "OnnxRuntime"}


def runtime_with(engine: str) -> Runtime:
    if engine not in installed():
        pytest.skip(f"{engine} is not installed")
    return runtime_with_engines()


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_address_of_a_device_is_a_backend_of_its_own(address: str) -> None:
    with runtime_with(ADDRESSES[address]) as runtime:
        model = ip.load(doubled(), [address], runtime=runtime)
        assert model.explain().counts() == {address: 1}
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(model(x), 2 * x)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("Torch:cuda:99", "torch has no device 'cuda:99'"),
        ("Torch:meta", "has no data"),
        ("OpenVino:NPU.7", "OpenVINO finds no device 'NPU.7'"),
        ("OnnxRuntime:Tensor", "ONNX Runtime here has no 'Tensor'"),
        ("OnnxRuntime:cpu:one", "the number of a device is 'one'"),
    ],
)
def test_the_address_of_an_absent_device_is_refused_with_the_reason(address: str, reason: str) -> None:
    engine = address.partition(":")[0]
    with runtime_with(engine) as runtime, pytest.raises(BackendUnavailableError, match=reason) as raised:
        ip.load(doubled(), [address], runtime=runtime)
    assert raised.value.backend == address


def test_one_network_runs_on_two_addresses_of_an_engine() -> None:
    network = Network("two")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    first = network.add_layer(Addition(), x, x, name="first")
    network.add_output_layer(0, network.add_layer(Addition(), first, x, name="second"), name="y")
    options = OptimizerOptions(rewrite=False, hints={"first": "Torch:cpu", "second": "Torch:cpu:0"})
    with runtime_with("Torch") as runtime:
        model = ip.load(network, ["Torch:cpu", "Torch:cpu:0"], runtime=runtime, options=options)
        assert model.explain().counts() == {"Torch:cpu": 1, "Torch:cpu:0": 1}
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(model(array), 3 * array)


def test_an_option_that_an_address_sets_cannot_be_given_to_it() -> None:
    options = OptimizerOptions(model_options={"Torch:cpu": {"device": "cuda"}})
    with runtime_with("Torch") as runtime, pytest.raises(OptionError, match="'device' of backend Torch:cpu is 'cpu'"):
        ip.load(doubled(), ["Torch:cpu"], runtime=runtime, options=options)
