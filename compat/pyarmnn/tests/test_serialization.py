"""`IDeserializer` and `ISerializer`, for Arm NN's own files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarmnn as ann
import pytest

from compat.pyarmnn.tests import small_models
from compat.pyarmnn.tests.running import run

NUMBERS = np.float32([[-1, 2, -3, 4]])


def built() -> Any:
    """Return a network that a program built: ``relu(x + x)``."""
    network, info = ann.INetwork(), ann.TensorInfo(ann.TensorShape((1, 4)), ann.DataType_Float32)
    source, addition = network.AddInputLayer(7, "x"), network.AddAdditionLayer("twice")
    descriptor = ann.ActivationDescriptor()
    descriptor.m_Function = ann.ActivationFunction_ReLu
    activation, output = network.AddActivationLayer(descriptor, "relu"), network.AddOutputLayer(9, "y")
    for slot in range(2):
        source.GetOutputSlot(0).Connect(addition.GetInputSlot(slot))
    addition.GetOutputSlot(0).Connect(activation.GetInputSlot(0))
    activation.GetOutputSlot(0).Connect(output.GetInputSlot(0))
    for layer in (source, addition, activation):
        layer.GetOutputSlot(0).SetTensorInfo(info)
    return network


def serialized(network: Any) -> bytes:
    serializer, stream = ann.ISerializer(), io.BytesIO()
    serializer.Serialize(network)
    assert serializer.SaveSerializedToStream(stream) is True
    return stream.getvalue()


def test_a_network_that_was_built_comes_back_from_its_file(tmp_path: Path):
    serializer, path = ann.ISerializer(), tmp_path / "net.armnn"
    serializer.Serialize(built())
    assert serializer.SaveSerializedToFile(path)
    deserializer = ann.IDeserializer()
    network = deserializer.CreateNetworkFromBinaryFile(str(path))
    source, output = deserializer.GetNetworkInputBindingInfo(0, "x"), deserializer.GetNetworkOutputBindingInfo(0, "y")
    assert (source[0], output[0], source[1].GetNumElements()) == (7, 9, 4)
    [array] = run(network, [source], [output], [NUMBERS.copy()])
    assert array.tolist() == [[0, 4, 0, 8]]


def test_a_parsed_network_comes_back_from_the_content_of_its_file(tmp_path: Path):
    parsed = ann.ITfLiteParser().CreateNetworkFromBinaryFile(small_models.tflite(tmp_path / "mock.tflite"))
    deserializer = ann.IDeserializer()
    network = deserializer.CreateNetworkFromBinary(serialized(parsed))
    source = deserializer.GetNetworkInputBindingInfo(0, "input_1")
    output = deserializer.GetNetworkOutputBindingInfo(0, "dense/Softmax")
    [array] = run(network, [source], [output], [small_models.IMAGE.copy()])
    assert array.tolist() == small_models.QUANTIZED_SCORES


def test_a_missing_file_and_a_damaged_content_are_refused():
    with pytest.raises(RuntimeError) as caught:
        ann.IDeserializer().CreateNetworkFromBinaryFile("unknown.armnn")
    assert str(caught.value) == "Cannot find the file (unknown.armnn) errorCode: No such file or directory"
    content = serialized(built())
    with pytest.raises(RuntimeError):
        ann.IDeserializer().CreateNetworkFromBinary(content[: len(content) // 2])
    with pytest.raises(TypeError, match="'IDeserializer_CreateNetworkFromBinary', argument 2"):
        ann.IDeserializer().CreateNetworkFromBinary("text")


def test_an_unknown_binding_is_refused_with_the_known_names():
    deserializer = ann.IDeserializer()
    deserializer.CreateNetworkFromBinary(serialized(built()))
    with pytest.raises(RuntimeError) as caught:
        deserializer.GetNetworkInputBindingInfo(0, "z")
    assert str(caught.value) == "No input binding found for name:z. Possible inputs are: ['x' ]"
    with pytest.raises(RuntimeError) as caught:
        deserializer.GetNetworkOutputBindingInfo(0, "z")
    assert str(caught.value) == "No output binding found for name:z. Possible outputs are: ['y' ]"


def test_a_serializer_without_a_network_says_what_to_call_first(tmp_path: Path):
    with pytest.raises(RuntimeError) as caught:
        ann.ISerializer().SaveSerializedToFile(tmp_path / "net.armnn")
    assert str(caught.value) == "No network was serialized; call Serialize first"


def test_a_serializer_takes_a_network():
    with pytest.raises(TypeError) as caught:
        ann.ISerializer().Serialize("network")
    assert str(caught.value) == "in method 'ISerializer_Serialize', argument 2 of type 'armnn::INetwork const &'"
