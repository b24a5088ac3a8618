"""What is known of engines without a trial, and their options."""

from __future__ import annotations

import json
from fnmatch import filter as matching
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.backends.engines import onnxruntime_rules, openvino_rules
from interposer.backends.engines.engine_options import Option, chosen
from interposer.backends.engines.memory import shareable
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType
from interposer.ops import BatchMatMul, BidirectionalSequenceLstm, Cast, Convolution2d, Floor, OneHot, Reshape
from interposer.testing.conformance import all_cases
from interposer.testing.known_samples import samples_of
from tests.backends.engines.adapters import PLACES

EXPECTED = Path(__file__).parent / "expected"


def layer_of(op, info):
    network = ip.Network()
    x = network.add_input_layer(0, info, name="x")
    return network.add_layer(op, x, name="layer")


def test_a_rule_gives_its_reason_where_it_holds_and_nothing_elsewhere():
    rules = onnxruntime_rules.RULES
    wrapped = layer_of(Cast(dtype=DataType.UINT8), ip.TensorInfo((2,)))
    assert rules.reasons(wrapped) == ["ONNX Runtime wraps floats that do not fit into uint8"]
    assert rules.reasons(layer_of(Cast(dtype=DataType.FLOAT16), ip.TensorInfo((2,)))) == []


@pytest.mark.parametrize(("depth", "expected"), [(0, ["ONNX Runtime fails on a depth of 0"]), (1, [])])
def test_onnx_runtime_is_not_asked_for_vectors_without_elements(depth, expected):
    layer = layer_of(OneHot(depth=depth), ip.TensorInfo((2,), "int64"))
    assert onnxruntime_rules.RULES.reasons(layer) == expected


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "int32"])
@pytest.mark.parametrize("depth", [0, 3])
def test_onnx_runtime_is_not_asked_for_empty_sums_of_unsigned_integers(dtype, depth):
    network = ip.Network()
    operands = [
        network.add_input_layer(n, ip.TensorInfo(shape, dtype)) for n, shape in enumerate([(2, depth), (depth, 4)])
    ]
    layer = network.add_layer(BatchMatMul(), *operands)
    refused = dtype.startswith("u") and depth == 0
    expected = ["ONNX Runtime fails on empty sums of uint32 and uint64"] if refused else []
    assert onnxruntime_rules.RULES.reasons(layer) == expected


def test_a_rule_of_no_operator_holds_for_all():
    [reason] = openvino_rules.RULES.reasons(layer_of(Floor(), ip.TensorInfo((0, 2))))
    assert reason == "OpenVINO crashes on some empty tensors, so all of them are refused"


def test_openvino_is_not_asked_for_quantized_integers_of_64_bits():
    for dtype, expected in (("int64", ["OpenVINO computes quantized int64 in 32 bits"]), ("int32", [])):
        info = ip.TensorInfo((2,), dtype, ip.Quantization(0.5))
        layer = layer_of(Reshape((1, 2)), info)
        assert openvino_rules.RULES.reasons(layer) == expected


def test_openvino_is_not_asked_for_bidirectional_layers_whose_states_it_keeps():
    network, _ = samples_of(BidirectionalSequenceLstm)[0].network()
    [layer] = [layer for layer in network if isinstance(layer.op, BidirectionalSequenceLstm)]
    expected = "OpenVINO begins later runs of some layers BidirectionalSequenceLstm with the states of the run before"
    assert openvino_rules.RULES.reasons(layer) == [expected]


@pytest.mark.parametrize(("shape", "refused"), [((), True), ((1,), False)])
def test_openvino_is_not_asked_to_reshape_to_scalars(shape, refused):
    network = ip.Network()
    layer = network.add_layer(Reshape(shape), network.add_input_layer(0, ip.TensorInfo((1, 1))))
    expected = "OpenVINO crashes if the product of two matrices is reshaped to a scalar"
    assert openvino_rules.RULES.reasons(layer) == ([expected] if refused else [])


@pytest.mark.parametrize(("size", "pad", "refused"), [(1, 1, True), (1, 0, False), (3, 1, False)])
def test_openvino_is_not_asked_for_quantized_points_with_padding(size, pad, refused):
    network, q = ip.Network(), ip.Quantization(0.5)
    x = network.add_input_layer(0, ip.TensorInfo((1, 2, 5, 5), "int8", q))
    w = network.add_constant_layer(np.zeros((3, 2, size, size), np.int8), q)
    layer = network.add_layer(Convolution2d(pad_left=pad), x, w, outputs=[ip.TensorInfo([None] * 4, "int8", q)])
    reasons = openvino_rules.RULES.reasons(layer)
    expected = "OpenVINO crashes on quantized 1x1 convolutions with padding, or gives another shape"
    assert reasons == ([expected] if refused else [])


def test_every_expected_failure_is_one_of_a_known_engine_and_case():
    ids = [case.id for case in all_cases()]
    for path in EXPECTED.glob("*.json"):
        assert path.stem in PLACES
        patterns = json.loads(path.read_text(encoding="utf-8"))
        assert [pattern for pattern in patterns if not matching(ids, pattern)] == []


def test_options_have_defaults_and_are_read():
    declared = (Option("threads", 0, "threads"), Option("level", "all", "a level", ("all", "none")))
    assert chosen("Here", declared, {"threads": 2}) == (("threads", 2), ("level", "all"))
    with pytest.raises(InvalidArgumentError) as caught:
        chosen("Here", declared, {"level": "al"})
    text = "the option 'level' of backend Here is 'al'; expected one of all, none; did you mean 'all'?"
    assert str(caught.value) == text


def test_read_only_memory_can_be_shared_and_is_the_same():
    array = np.arange(4, dtype=np.float32)
    array.flags.writeable = False
    seen = shareable(array)
    assert seen.flags.writeable
    assert np.shares_memory(seen, array)
