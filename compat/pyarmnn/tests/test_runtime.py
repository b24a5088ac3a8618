"""`IRuntime`: loading, running and unloading of networks, and the backends of a runtime."""

import re

import numpy as np
import pyarmnn as ann
import pytest


def floats(*shape):
    return ann.TensorInfo(ann.TensorShape(shape), ann.DataType_Float32)


def constant(*values):
    return ann.ConstTensor(floats(len(values)), np.array(values, np.float32))


@pytest.fixture
def runtime():
    return ann.IRuntime(ann.CreationOptions())


@pytest.fixture
def optimized(runtime):
    """Return a network that takes absolute values: input 0 and output 7 have 3 elements."""
    network, descriptor = ann.INetwork(), ann.ElementwiseUnaryDescriptor(ann.UnaryOperation_Abs)
    layers = network.AddInputLayer(0), network.AddElementwiseUnaryLayer(descriptor), network.AddOutputLayer(7)
    for first, second in zip(layers, layers[1:], strict=False):
        first.GetOutputSlot(0).SetTensorInfo(floats(3))
        first.GetOutputSlot(0).Connect(second.GetInputSlot(0))
    backends = [ann.BackendId("CpuRef")]
    return ann.Optimize(network, backends, runtime.GetDeviceSpec(), ann.OptimizerOptions())[0]


# --- loading ----------------------------------------------------------------------------------------------------------


def test_a_runtime_owns_a_loaded_network_and_returns_its_id(runtime, optimized):
    assert runtime.thisown
    assert optimized.thisown
    assert runtime.LoadNetwork(optimized) == (0, "")
    assert not optimized.thisown


@pytest.mark.parametrize("properties", [None, ann.INetworkProperties(), ann.INetworkProperties(True, True)])
def test_a_network_is_loaded_with_properties(runtime, optimized, properties):
    assert runtime.LoadNetwork(optimized, properties) == (0, "")


def test_properties_are_read_only():
    properties = ann.INetworkProperties(importEnabled=True)
    assert (properties.m_ImportEnabled, properties.m_ExportEnabled) == (True, False)
    with pytest.raises(AttributeError):
        properties.m_ImportEnabled = False
    with pytest.raises(TypeError):
        ann.INetworkProperties(1)


def test_only_optimized_networks_are_loaded(runtime, optimized):
    for arguments in ((3,), (None,), (ann.INetwork(),), (optimized, 3)):
        with pytest.raises(TypeError, match="^Wrong number or type of arguments for overloaded function"):
            runtime.LoadNetwork(*arguments)


def test_a_network_is_unloaded_once(runtime, optimized):
    number, _ = runtime.LoadNetwork(optimized)
    runtime.UnloadNetwork(number)
    for unknown in (number, 9):
        with pytest.raises(RuntimeError, match=r"^Failed to unload network\.$"):
            runtime.UnloadNetwork(unknown)


def test_a_loaded_network_has_the_infos_of_its_inputs_and_outputs(runtime, optimized):
    number, _ = runtime.LoadNetwork(optimized)
    assert str(runtime.GetInputTensorInfo(number, 0)) == str(floats(3))
    assert str(runtime.GetOutputTensorInfo(number, 7)) == str(floats(3))
    with pytest.raises(RuntimeError, match="^No input layer is associated with id 7$"):
        runtime.GetInputTensorInfo(number, 7)
    with pytest.raises(RuntimeError, match="^No output layer is associated with id 0$"):
        runtime.GetOutputTensorInfo(number, 0)
    with pytest.raises(RuntimeError, match=r"^No network with id 5 is loaded\.$"):
        runtime.GetInputTensorInfo(5, 0)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_writes_to_the_memory_of_the_outputs(runtime, optimized):
    number, _ = runtime.LoadNetwork(optimized)
    output = ann.Tensor(floats(3))
    memory = output.get_memory_area()
    for values in ((1, -2, 3), (-4, 5, -6)):
        runtime.EnqueueWorkload(number, [(0, constant(*values))], [(7, output)])
        assert memory.tolist() == list(map(abs, values))


@pytest.mark.parametrize("inputs", [[(0, 0)], ((0, 0),), [[0, 0]]])
def test_tensors_are_pairs_in_a_list_or_tuple(runtime, optimized, inputs):
    number, _ = runtime.LoadNetwork(optimized)
    output = ann.Tensor(floats(3))
    pairs = type(inputs)(type(pair)((pair[0], constant(1, -2, 3))) for pair in inputs)
    runtime.EnqueueWorkload(number, pairs, ((7, output),))
    assert output.get_memory_area().tolist() == [1, 2, 3]


def test_a_tensor_of_another_shape_with_as_many_elements_is_accepted(runtime, optimized):
    number, _ = runtime.LoadNetwork(optimized)
    output = ann.Tensor(floats(3, 1))
    source = ann.ConstTensor(floats(1, 3), np.array([[1, -2, 3]], np.float32))
    runtime.EnqueueWorkload(number, [(0, source)], [(7, output)])
    assert output.get_memory_area().tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ([], [7], "Number of inputs provided does not match network."),
        ([0, 0], [7], "Number of inputs provided does not match network."),
        ([5], [7], "No tensor supplied for input 0"),
        ([0], [], "No tensor supplied for output 7"),
        ([0], [5], "No tensor supplied for output 7"),
    ],
)
def test_tensors_that_are_absent_are_named(runtime, optimized, inputs, outputs, text):
    number, _ = runtime.LoadNetwork(optimized)
    sources = [(each, constant(1, 2, 3)) for each in inputs]
    targets = [(each, ann.Tensor(floats(3))) for each in outputs]
    with pytest.raises(RuntimeError, match=f"^{re.escape(text)}$"):
        runtime.EnqueueWorkload(number, sources, targets)


def test_tensors_that_do_not_fit_are_refused(runtime, optimized):
    number, _ = runtime.LoadNetwork(optimized)
    size = "MemCopyQueueDescriptor: input & output must have the same number of elements."
    kind = "MemCopyQueueDescriptor: input & output must have identical data types."
    integers = ann.TensorInfo(ann.TensorShape((3,)), ann.DataType_Signed32)
    for source, target, text in (
        (constant(1, 2), ann.Tensor(floats(3)), size),
        (constant(1, 2, 3), ann.Tensor(floats(4)), size),
        (constant(1, 2, 3), ann.Tensor(), size),
        (ann.ConstTensor(integers, np.zeros(3, np.int32)), ann.Tensor(floats(3)), kind),
    ):
        with pytest.raises(RuntimeError, match=f"^{re.escape(text)}$"):
            runtime.EnqueueWorkload(number, [(0, source)], [(7, target)])


def test_tensors_of_the_wrong_kind_are_refused(runtime, optimized):
    number, _ = runtime.LoadNetwork(optimized)
    target = [(7, ann.Tensor(floats(3)))]
    for inputs in ([(0, ann.Tensor(floats(3)))], [constant(1, 2, 3)], 3):
        with pytest.raises(TypeError, match="^in method 'IRuntime_EnqueueWorkload', argument 3 of type"):
            runtime.EnqueueWorkload(number, inputs, target)


def test_a_network_that_is_not_loaded_is_not_run(runtime):
    with pytest.raises(RuntimeError, match=r"^No network with id 4 is loaded\.$"):
        runtime.EnqueueWorkload(4, [], [])


# --- options and backends ---------------------------------------------------------------------------------------------


def test_options_of_a_runtime_have_the_defaults_of_arm_nn():
    options = ann.CreationOptions()
    assert (options.m_DynamicBackendsPath, options.m_EnableGpuProfiling) == ("", False)
    profiling = options.m_ProfilingOptions
    assert (profiling.m_EnableProfiling, profiling.m_TimelineEnabled, profiling.m_FileOnly) == (False, False, False)
    assert (profiling.m_CapturePeriod, profiling.m_FileFormat) == (10000, "binary")
    profiling.m_CapturePeriod = 5
    assert options.m_ProfilingOptions.m_CapturePeriod == 5


def test_a_runtime_is_created_with_profiling_of_any_file_format(tmp_path):
    options = ann.CreationOptions()
    profiling = options.m_ProfilingOptions
    profiling.m_EnableProfiling = profiling.m_TimelineEnabled = profiling.m_FileOnly = True
    profiling.m_OutgoingCaptureFile = str(tmp_path / "outgoing")
    profiling.m_IncomingCaptureFile = str(tmp_path / "incoming")
    profiling.m_CapturePeriod = 1000
    profiling.m_FileFormat = "JSON"
    assert ann.IRuntime(options).thisown


def test_a_profile_is_written_to_a_file(tmp_path):
    options = ann.CreationOptions()
    profiling = options.m_ProfilingOptions
    profiling.m_EnableProfiling = profiling.m_FileOnly = True
    profiling.m_OutgoingCaptureFile = str(tmp_path / "outgoing")
    runtime = ann.IRuntime(options)
    del runtime
    data = (tmp_path / "outgoing").read_bytes()
    assert data[8:12] == (0x45495434).to_bytes(4, "little")
    assert b"ArmNN_Runtime" in data


def test_a_timeline_needs_profiling():
    options = ann.CreationOptions()
    options.m_ProfilingOptions.m_TimelineEnabled = True
    text = "It is not possible to enable timeline reporting without profiling being enabled"
    with pytest.raises(RuntimeError, match=f"^{text}$"):
        ann.IRuntime(options)


def test_a_folder_for_backends_that_does_not_exist_is_ignored(tmp_path):
    options = ann.CreationOptions()
    options.m_DynamicBackendsPath = str(tmp_path / "no")
    assert "CpuRef" in map(str, ann.IRuntime(options).GetDeviceSpec().GetSupportedBackends())


def test_a_runtime_is_created_from_options_only():
    with pytest.raises(TypeError, match="^in method 'new_IRuntime', argument 1 of type 'CreationOptions const &'$"):
        ann.IRuntime(3)


def test_the_backends_of_a_runtime_are_listed(runtime):
    spec = runtime.GetDeviceSpec()
    backends = spec.GetSupportedBackends()
    assert not spec.thisown
    assert isinstance(backends, tuple)
    assert all(isinstance(backend, ann.BackendId) for backend in backends)
    assert "CpuRef" in map(str, backends)
    assert str(spec) == f"IDeviceSpec {{ supportedBackends: [{', '.join(map(str, backends))}]}}"


def test_a_backend_id_has_a_name():
    backend = ann.BackendId("CpuRef")
    assert (str(backend), backend.Get(), backend.IsCpuRef()) == ("CpuRef", "CpuRef", True)
    assert not ann.BackendId("CpuAcc").IsCpuRef()
    assert backend == ann.BackendId("CpuRef") != ann.BackendId("CpuAcc")
    with pytest.raises(TypeError):
        ann.BackendId(3)
