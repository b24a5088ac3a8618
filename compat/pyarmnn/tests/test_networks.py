"""The graph with slots, and what `Optimize` makes of it."""

import re

import numpy as np
import pyarmnn as ann
import pytest

METHODS = [
    "Activation", "Addition", "ArgMinMax", "BatchNormalization", "BatchToSpaceNd", "Comparison", "Concat",
    "Constant", "Convolution2d", "DepthToSpace", "DepthwiseConvolution2d", "Dequantize", "DetectionPostProcess",
    "Division", "ElementwiseUnary", "Floor", "Fill", "FullyConnected", "Gather", "Input", "InstanceNormalization",
    "LogSoftmax", "L2Normalization", "Lstm", "Maximum", "Mean", "Merge", "Minimum", "Multiplication",
    "Normalization", "Output", "Pad", "Permute", "Pooling2d", "Prelu", "Quantize", "QuantizedLstm", "Rank",
    "Reshape", "Resize", "Slice", "Softmax", "SpaceToBatchNd", "SpaceToDepth", "Splitter", "Stack", "StandIn",
    "StridedSlice", "Subtraction", "Switch", "TransposeConvolution2d",
]  # fmt: skip


@pytest.fixture
def network():
    return ann.INetwork()


@pytest.fixture(scope="module")
def runtime():
    return ann.IRuntime(ann.CreationOptions())


def floats(*shape):
    return ann.TensorInfo(ann.TensorShape(shape), ann.DataType_Float32)


def constant(*shape):
    return ann.ConstTensor(floats(*shape), np.ones(shape, np.float32))


def relu(function=ann.ActivationFunction_ReLu):
    descriptor = ann.ActivationDescriptor()
    descriptor.m_Function = function
    return descriptor


def chain(source, output, function=ann.ActivationFunction_ReLu):
    """Return a network of an activation, whose slots have these infos unless they are None."""
    network = ann.INetwork()
    first, layer = network.AddInputLayer(0, "in"), network.AddActivationLayer(relu(function), "act")
    last = network.AddOutputLayer(7, "out")
    first.GetOutputSlot(0).Connect(layer.GetInputSlot(0))
    layer.GetOutputSlot(0).Connect(last.GetInputSlot(0))
    for slot, info in ((first.GetOutputSlot(0), source), (layer.GetOutputSlot(0), output)):
        if info is not None:
            slot.SetTensorInfo(info)
    return network


def optimize(runtime, network, *backends, options=None):
    ids = [ann.BackendId(backend) for backend in backends or ("CpuRef",)]
    return ann.Optimize(network, ids, runtime.GetDeviceSpec(), options or ann.OptimizerOptions())


@pytest.mark.parametrize("dtype", [ann.DataType_Float32, ann.DataType_Float16, ann.DataType_QAsymmU8])
def test_an_output_without_an_info_is_refused_with_the_shape_that_it_should_have(runtime, dtype):
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, chain(ann.TensorInfo(ann.TensorShape((2, 3)), dtype, 0.5, 0), None))
    text = "ActivationLayer: TensorShape set on OutputSlot[0] does not match the inferred shape. : [] != [2,3]"
    assert str(caught.value) == text


@pytest.mark.parametrize(("kind", "inputs"), [("ArgMinMax", 1), ("Comparison", 2), ("Dequantize", 1), ("Rank", 1)])
def test_layers_that_change_the_type_are_refused_alike_without_an_info(runtime, network, kind, inputs):
    info = ann.TensorInfo(ann.TensorShape((1,)), ann.DataType_QAsymmU8, 0.5, 0)
    descriptor = getattr(ann, f"{kind}Descriptor", None)
    layer = getattr(network, f"Add{kind}Layer")(*([] if descriptor is None else [descriptor()]))
    for number in range(inputs):
        source = network.AddInputLayer(number)
        source.GetOutputSlot(0).SetTensorInfo(info)
        source.GetOutputSlot(0).Connect(layer.GetInputSlot(number))
    layer.GetOutputSlot(0).Connect(network.AddOutputLayer(0).GetInputSlot(0))
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, network)
    text = f"{kind}Layer: TensorShape set on OutputSlot[0] does not match the inferred shape. : [] != [1]"
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ann.BackendId(None), "'new_BackendId', argument 1 of type 'std::string const &'"),
        (lambda: ann.IRuntime(None), "'new_IRuntime', argument 1 of type 'CreationOptions const &'"),
        (
            lambda: ann.INetwork().AddInputLayer(0).GetOutputSlot(0).SetTensorInfo(None),
            "'IOutputSlot_SetTensorInfo', argument 2 of type 'armnn::TensorInfo const &'",
        ),
    ],
)
def test_none_is_refused_as_a_null_reference(call, text):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == f"invalid null reference in method {text}"


# --- layers and slots -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", METHODS)
def test_a_network_has_a_method_for_each_kind_of_layer(network, kind):
    assert callable(getattr(network, f"Add{kind}Layer"))


def test_a_layer_has_a_name_slots_and_a_guid_of_its_own(network):
    first, second = network.AddInputLayer(0, "in"), network.AddAdditionLayer("sum")
    assert (first.GetName(), first.GetNumInputSlots(), first.GetNumOutputSlots()) == ("in", 0, 1)
    assert (second.GetName(), second.GetNumInputSlots(), second.GetNumOutputSlots()) == ("sum", 2, 1)
    assert first.GetGuid() != second.GetGuid()
    assert not first.thisown
    assert network.thisown


def test_a_layer_without_a_name_has_an_empty_one(network):
    assert network.AddFloorLayer().GetName() == ""


def test_slots_are_connected_and_disconnected(network):
    source, target = network.AddInputLayer(0), network.AddAdditionLayer()
    output, slot = source.GetOutputSlot(0), target.GetInputSlot(1)
    assert slot.GetConnection() is None
    assert output.Connect(slot) == 0
    assert isinstance(slot.GetConnection(), ann.IOutputSlot)
    assert isinstance(output.GetConnection(0), ann.IInputSlot)
    assert isinstance(output[0], ann.IInputSlot)
    assert output.Connect(target.GetInputSlot(0)) == 1
    assert (len(output), output.GetNumConnections()) == (2, 2)
    output.Disconnect(slot)
    assert (len(output), slot.GetConnection()) == (1, None)
    output.Disconnect(slot)
    assert len(output) == 1


def test_a_slot_knows_its_index_and_its_layer(network):
    layer = network.AddSplitterLayer(ann.SplitterDescriptor(3, 2))
    assert [layer.GetOutputSlot(index).CalculateIndexOnOwner() for index in range(3)] == [0, 1, 2]
    assert layer.GetOutputSlot(2).GetOwningLayerGuid() == layer.GetGuid()


def test_the_info_of_a_slot_is_a_copy_that_can_be_changed_in_place(network):
    slot, info = network.AddInputLayer(0).GetOutputSlot(0), floats(2, 3)
    assert not slot.IsTensorInfoSet()
    slot.SetTensorInfo(info)
    info.SetDataType(ann.DataType_Signed32)
    assert slot.IsTensorInfoSet()
    assert slot.GetTensorInfo().GetDataType() == ann.DataType_Float32
    slot.GetTensorInfo().SetDataType(ann.DataType_Float16)
    assert slot.GetTensorInfo().GetDataType() == ann.DataType_Float16


def test_an_input_has_one_connection_only(network):
    first, second, target = network.AddInputLayer(0), network.AddInputLayer(1), network.AddFloorLayer()
    first.GetOutputSlot(0).Connect(target.GetInputSlot(0))
    with pytest.raises(RuntimeError, match="the latter already has a connection"):
        second.GetOutputSlot(0).Connect(target.GetInputSlot(0))


def test_connections_that_do_not_exist_are_refused(network):
    slot = network.AddInputLayer(0).GetOutputSlot(0)
    with pytest.raises(ValueError, match="Invalid index 1 provided"):
        slot[1]
    with pytest.raises(RuntimeError, match="Invalid index 1 provided"):
        slot.GetConnection(1)


def test_slots_that_do_not_exist_are_refused(network):
    layer = network.AddInputLayer(0, "in")
    with pytest.raises(RuntimeError, match=r'^Input layer "in" has no output slot 1; the number of its slots is 1$'):
        layer.GetOutputSlot(1)
    with pytest.raises(RuntimeError, match="has no input slot 0"):
        layer.GetInputSlot(0)


@pytest.mark.parametrize("method", ["AddInputLayer", "AddOutputLayer"])
def test_a_binding_id_is_used_once(network, method):
    getattr(network, method)(3)
    with pytest.raises(RuntimeError, match="^A layer already exists with the specified id$"):
        getattr(network, method)(3)


@pytest.mark.parametrize(
    "kind", ["FullyConnected", "Convolution2d", "DepthwiseConvolution2d", "TransposeConvolution2d"]
)
def test_biases_and_name_are_optional(network, kind):
    method, descriptor = getattr(network, f"Add{kind}Layer"), getattr(ann, f"{kind}Descriptor")()
    assert method(descriptor, ann.ConstTensor()).GetName() == ""
    assert method(descriptor, ann.ConstTensor(), ann.ConstTensor()).GetName() == ""
    assert method(descriptor, weights=ann.ConstTensor(), biases=None, name="a").GetName() == "a"
    assert method(descriptor, ann.ConstTensor(), ann.ConstTensor(), "b").GetName() == "b"


def test_biases_are_needed_where_the_descriptor_enables_them(network):
    descriptor = ann.FullyConnectedDescriptor()
    descriptor.m_BiasEnabled = True
    with pytest.raises(RuntimeError, match="^AddFullyConnectedLayer: biases cannot be empty$"):
        network.AddFullyConnectedLayer(descriptor, constant(3, 2))


def test_a_wrong_argument_is_refused_with_the_prototypes(network):
    with pytest.raises(TypeError) as caught:
        network.AddActivationLayer(ann.SoftmaxDescriptor())
    assert str(caught.value) == (
        "Wrong number or type of arguments for overloaded function 'INetwork_AddActivationLayer'.\n"
        "  Possible C/C++ prototypes are:\n"
        "    armnn::INetwork::AddActivationLayer(armnn::ActivationDescriptor const &,char const *)\n"
        "    armnn::INetwork::AddActivationLayer(armnn::ActivationDescriptor const &)\n"
    )


@pytest.mark.parametrize(
    ("features", "text"),
    [
        ({"Cifg": False}, "Input To Input Weights cannot be NULL when CIFG is disabled."),
        ({"Projection": True}, "Projection Weights cannot be NULL when projection is enabled."),
        ({"Peephole": True}, "Cell To Forget Weights cannot be NULL when Peephole is enabled."),
        (
            {"LayerNorm": True},
            "Forget layer normalization weights cannot be NULL when layer normalization is enabled.",
        ),
    ],
)
def test_an_lstm_needs_the_weights_of_its_features(network, features, text):
    descriptor, weights = ann.LstmDescriptor(), ann.LstmInputParams()
    for feature, is_enabled in features.items():
        setattr(descriptor, f"m_{feature}Enabled", is_enabled)
    for gate in ("Forget", "Cell", "Output"):
        setattr(weights, f"m_InputTo{gate}Weights", constant(4, 3))
        setattr(weights, f"m_RecurrentTo{gate}Weights", constant(4, 4))
        setattr(weights, "m_CellBias" if gate == "Cell" else f"m_{gate}GateBias", constant(4))
    with pytest.raises(RuntimeError, match=f"^AddLstmLayer: {re.escape(text)}$"):
        network.AddLstmLayer(descriptor, weights)


def test_a_descriptor_and_constants_are_copied_when_a_layer_is_added(runtime):
    network, descriptor, tensor = ann.INetwork(), relu(), ann.Tensor(floats(2))
    tensor.get_memory_area()[:] = [-1, 2]
    source, layer = network.AddConstantLayer(ann.ConstTensor(tensor)), network.AddActivationLayer(descriptor)
    descriptor.m_Function = ann.ActivationFunction_Abs
    tensor.get_memory_area()[:] = 9
    sink = network.AddOutputLayer(0)
    source.GetOutputSlot(0).Connect(layer.GetInputSlot(0))
    layer.GetOutputSlot(0).Connect(sink.GetInputSlot(0))
    for each in (source, layer):
        each.GetOutputSlot(0).SetTensorInfo(floats(2))
    number, _ = runtime.LoadNetwork(optimize(runtime, network)[0])
    output = ann.Tensor(floats(2))
    runtime.EnqueueWorkload(number, [], [(0, output)])
    assert output.get_memory_area().tolist() == [0, 2]


def test_an_absent_argument_is_named_as_python_does(network):
    with pytest.raises(TypeError, match=r"^INetwork\.AddInputLayer\(\) missing 1 required positional argument: 'id'$"):
        network.AddInputLayer()


def run(runtime, network, inputs, outputs):
    """Run a network on CpuRef with arrays for the inputs, and return arrays of the infos of the outputs."""
    number, _ = runtime.LoadNetwork(optimize(runtime, network)[0])
    bindings = [(index, runtime.GetInputTensorInfo(number, index)) for index in range(len(inputs))]
    results = ann.make_output_tensors(list(enumerate(outputs)))
    runtime.EnqueueWorkload(number, ann.make_input_tensors(bindings, inputs), results)
    return ann.workload_tensors_to_ndarray(results)


def layer_network(network, layer, inputs, outputs):
    """Connect a layer with inputs and outputs of these infos, and return the network."""
    for number, info in enumerate(inputs):
        source = network.AddInputLayer(number).GetOutputSlot(0)
        source.SetTensorInfo(info)
        source.Connect(layer.GetInputSlot(number))
    for number, info in enumerate(outputs):
        layer.GetOutputSlot(number).SetTensorInfo(info)
        layer.GetOutputSlot(number).Connect(network.AddOutputLayer(number).GetInputSlot(0))
    return network


def test_the_rank_of_a_tensor_is_an_integer(runtime, network):
    integer = ann.TensorInfo(ann.TensorShape((1,)), ann.DataType_Signed32)
    built = layer_network(network, network.AddRankLayer(), [floats(2, 3)], [integer])
    [rank] = run(runtime, built, [np.zeros((2, 3), np.float32)], [integer])
    assert rank.tolist() == [2]


def test_a_quantized_lstm_keeps_its_state(runtime, network):
    state = ann.TensorInfo(ann.TensorShape((1, 2)), ann.DataType_QSymmS16, 16 / 32768, 0)
    values = ann.TensorInfo(ann.TensorShape((1, 2)), ann.DataType_QAsymmU8, 1 / 128, 128)
    weights = ann.TensorInfo(ann.TensorShape((2, 2)), ann.DataType_QAsymmU8, 1 / 128, 128)
    bias = ann.TensorInfo(ann.TensorShape((2,)), ann.DataType_Signed32, 1 / 128 / 128, 0)
    parameters, tensors = ann.QuantizedLstmInputParams(), []
    for field in [name for name in dir(parameters) if name.startswith("m_")]:
        info, array = (
            (bias, np.zeros(2, np.int32)) if field.endswith("Bias") else (weights, np.full((2, 2), 128, np.uint8))
        )
        tensors.append(ann.ConstTensor(info, array))
        setattr(parameters, field, tensors[-1])
    built = layer_network(network, network.AddQuantizedLstmLayer(parameters), [values, state, values], [state, values])
    inputs = [np.full((1, 2), 128, np.uint8), np.int16([[2048, -2048]]), np.full((1, 2), 128, np.uint8)]
    cell, output = run(runtime, built, inputs, [state, values])
    assert cell.tolist() == [[1024, -1024]]
    assert output.tolist() == [[158, 98]]


def test_a_stand_in_is_run_by_no_backend(runtime, network):
    built = layer_network(network, network.AddStandInLayer(ann.StandInDescriptor(1, 1)), [floats(2)], [floats(2)])
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, built)
    assert str(caught.value).endswith(
        "ERROR: Layer of type StandIn is not supported on any preferred backend [CpuRef ]"
    )


def test_layers_that_a_program_adds_compute_in_floats_if_it_says_so(runtime, network):
    info = ann.TensorInfo(ann.TensorShape((3,)), ann.DataType_QAsymmU8, 0.1, 0)
    first, layer, last = network.AddDequantizeLayer(), network.AddActivationLayer(relu()), network.AddQuantizeLayer()
    source, sink = network.AddInputLayer(0), network.AddOutputLayer(0)
    layers = [source, first, layer, last, sink]
    for before, after in zip(layers, layers[1:], strict=False):
        before.GetOutputSlot(0).Connect(after.GetInputSlot(0))
    for each, each_info in zip(layers, [info, floats(3), floats(3), info], strict=False):
        each.GetOutputSlot(0).SetTensorInfo(each_info)
    optimized, _ = optimize(runtime, network)
    kinds = [each.kind for each in optimized._optimized.graph]
    assert kinds == ["Input", "Dequantize", "Activation", "Quantize", "Output"]


# --- Optimize ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), (True, True), (False, False, True), (False, True, True, True)])
def test_options_have_their_values(arguments):
    options = ann.OptimizerOptions(*arguments)
    values = (options.m_ReduceFp32ToFp16, options.m_Debug, options.m_ReduceFp32ToBf16, options.m_ImportEnabled)
    assert values == (arguments + (False,) * 4)[:4]


def test_the_two_reductions_exclude_each_other(runtime):
    text = "^BFloat16 and Float16 optimization cannot be enabled at the same time.$"
    with pytest.raises(RuntimeError, match=text):
        ann.OptimizerOptions(True, False, True)
    options = ann.OptimizerOptions(True, False)
    options.m_ReduceFp32ToBf16 = True
    with pytest.raises(RuntimeError, match=text):
        optimize(runtime, chain(floats(2), floats(2)), options=options)


def test_an_optimized_network_is_owned_and_comes_without_messages(runtime):
    optimized, messages = optimize(runtime, chain(floats(2, 3), floats(2, 3)))
    assert isinstance(optimized, ann.IOptimizedNetwork)
    assert (optimized.thisown, messages) == (True, ())


@pytest.mark.parametrize("backends", [("Unknown", "CpuRef"), ("CpuRef", "CpuRef"), ("GpuAcc", "CpuRef")])
def test_backends_that_do_not_exist_are_ignored_beside_others(runtime, backends):
    assert optimize(runtime, chain(floats(2), floats(2)), *backends)[1] == ()


def test_a_network_without_any_existing_backend_is_refused(runtime):
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, chain(floats(2), floats(2)), "Unknown", "Foo")
    offered = "".join(f"{backend} " for backend in runtime.GetDeviceSpec().GetSupportedBackends())
    assert str(caught.value) == (
        f"ERROR: None of the preferred backends [Unknown Foo ] are supported. Current platform provides [{offered}]"
    )


def test_a_network_without_backends_is_refused(runtime):
    spec = runtime.GetDeviceSpec()
    with pytest.raises(RuntimeError, match="^Invoked Optimize with no backends specified$"):
        ann.Optimize(ann.INetwork(), [], spec, ann.OptimizerOptions())


def test_wrong_arguments_of_optimize_are_refused(runtime):
    spec, ids = runtime.GetDeviceSpec(), [ann.BackendId("CpuRef")]
    for arguments in ((3, ids, spec), (ann.INetwork(), ["CpuRef"], spec), (ann.INetwork(), ids, 3), (), (ids,)):
        with pytest.raises(TypeError, match="^Wrong number or type of arguments for overloaded function 'Optimize'."):
            ann.Optimize(*arguments)


@pytest.mark.parametrize(
    ("source", "result", "shapes"),
    [((2, 3), (2, 4), "[2,4] != [2,3]"), ((2, 3), (6,), "[6] != [2,3]"), ((2, 3), None, "[] != [2,3]")]
    + [(None, (2, 3), "[2,3] != []")],
)
def test_a_shape_that_differs_from_the_inferred_one_is_refused(runtime, source, result, shapes):
    network = chain(*(None if shape is None else floats(*shape) for shape in (source, result)))
    text = f"ActivationLayer: TensorShape set on OutputSlot[0] does not match the inferred shape. : {shapes}"
    with pytest.raises(RuntimeError, match=f"^{re.escape(text)}$"):
        optimize(runtime, network)


def test_an_input_without_a_connection_is_refused(runtime, network):
    network.AddActivationLayer(relu(), "act")
    with pytest.raises(RuntimeError, match='^Input not connected on Activation layer "act"$'):
        optimize(runtime, network)


def test_quantized_outputs_without_a_scale_are_all_listed(runtime):
    info = ann.TensorInfo(ann.TensorShape((2,)), ann.DataType_QAsymmU8)
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, chain(info, info))
    assert str(caught.value) == (
        "ERROR: output 0 of layer Input (in) is of type Quantized 8 bit but its scale parameter has not been set"
        "ERROR: output 0 of layer Activation (act) is of type Quantized 8 bit but its scale parameter has not been set"
    )


def test_a_layer_that_no_backend_supports_is_refused_in_the_words_of_arm_nn(runtime):
    info = ann.TensorInfo(ann.TensorShape((2,)), ann.DataType_Signed32)
    network = chain(info, info, ann.ActivationFunction_Sigmoid)
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, network)
    warning, _, rest = str(caught.value).partition("(reason: ")
    assert warning == (
        "WARNING: Layer of type Activation is not supported on requested backend CpuRef for input data type Signed32 "
        "and output data type Signed32 "
    )
    assert rest.endswith(
        "), falling back to the next backend."
        "ERROR: Layer of type Activation is not supported on any preferred backend [CpuRef ]"
    )


def test_an_offset_outside_the_range_of_its_type_is_refused(runtime):
    info = ann.TensorInfo(ann.TensorShape((2,)), ann.DataType_QAsymmU8, 0.5, 300)
    with pytest.raises(RuntimeError) as caught:
        optimize(runtime, chain(info, info))
    assert str(caught.value) == f"{info} is not supported: a zero point of uint8 must be 0 to 255, not 300"


def test_a_data_type_that_does_not_exist_is_refused(runtime):
    info = ann.TensorInfo(ann.TensorShape((2,)), 77)
    with pytest.raises(RuntimeError, match="^77 is no data type; use one of the constants DataType_...$"):
        optimize(runtime, chain(info, info))


def test_views_of_a_concatenation_that_overlap_are_refused(runtime, network):
    layer, sink = network.AddConcatLayer(ann.ConcatDescriptor(2, 1)), network.AddOutputLayer(0)
    for number in range(2):
        source = network.AddInputLayer(number).GetOutputSlot(0)
        source.SetTensorInfo(floats(3))
        source.Connect(layer.GetInputSlot(number))
    layer.GetOutputSlot(0).SetTensorInfo(floats(6))
    layer.GetOutputSlot(0).Connect(sink.GetInputSlot(0))
    with pytest.raises(RuntimeError, match=r"^ConcatLayer: Some views overlap\.$"):
        optimize(runtime, network)


def test_a_cycle_is_refused(runtime, network):
    first, second = network.AddFloorLayer("a"), network.AddFloorLayer("b")
    first.GetOutputSlot(0).Connect(second.GetInputSlot(0))
    second.GetOutputSlot(0).Connect(first.GetInputSlot(0))
    with pytest.raises(RuntimeError, match="^The network has a cycle, and cannot be ordered: "):
        optimize(runtime, network)


def test_a_layer_of_another_network_is_refused(runtime, network):
    other = ann.INetwork()
    other.AddInputLayer(0).GetOutputSlot(0).Connect(network.AddFloorLayer("floor").GetInputSlot(0))
    with pytest.raises(RuntimeError, match='^Floor layer "floor" reads a layer of another network$'):
        optimize(runtime, network)


def test_a_network_can_be_changed_and_optimized_again(runtime):
    network = chain(floats(2), floats(3))
    with pytest.raises(RuntimeError):
        optimize(runtime, network)
    network = chain(floats(2), floats(2))
    optimize(runtime, network)
    assert optimize(runtime, network)[1] == ()


def test_an_optimized_network_is_written_as_a_graph(runtime, tmp_path):
    optimized, _ = optimize(runtime, chain(floats(2, 3), floats(2, 3)))
    path = tmp_path / "net.dot"
    optimized.SerializeToDot(str(path))
    text = path.read_text()
    assert text.startswith("digraph")
    assert text.count("[label=< [2,3] >]") == 2
    assert "BackendID : CpuRef" in text


def test_a_graph_that_cannot_be_written_is_refused(runtime, tmp_path):
    optimized, _ = optimize(runtime, chain(floats(2, 3), floats(2, 3)))
    path = tmp_path / "net.dot"
    path.write_text("old")
    path.chmod(0o400)
    for name in (str(path), str(tmp_path / "no" / "net.dot")):
        with pytest.raises(RuntimeError, match="^Failed to open dot file$"):
            optimized.SerializeToDot(name)
    assert path.read_text() == "old"
    with pytest.raises(TypeError):
        optimized.SerializeToDot(3)
