"""Random networks: the same everywhere, valid, runnable, and with everything in them that can go wrong together."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ops import Activation, ActivationFunction, Addition, Constant, Convolution2d, Input, Output, Softmax
from interposer.testing.drawing import Draw
from interposer.testing.known_samples import sampled_ops
from interposer.testing.oracle import reference_outputs
from interposer.testing.random_networks import KINDS, RandomNetwork, random_network
from interposer.testing.random_networks.growth import (
    MAX_ELEMENTS,
    MAX_ELEMENTS_OF_LARGE,
    MAX_OPERATIONS_OF_LARGE,
    Growth,
)


def digest(network: RandomNetwork) -> str:
    """A checksum of everything that a network consists of, and of its feeds."""
    total = hashlib.sha256()
    numbers: dict[Value, int] = {}
    for layer in network.network:
        numbers.update({value: len(numbers) for value in layer.outputs})
        operands = [None if value is None else numbers[value] for value in layer.inputs]
        infos = [f"{value.known} {value.known.quantization!r}" for value in layer.outputs]
        if isinstance(layer.op, Constant):
            total.update(bytes_of(layer.op.value))
        else:
            total.update(f"{layer.op!r} {operands}".encode())
        total.update(f"{infos}".encode())
    for number, array in sorted(network.feeds.items()):
        total.update(f"{number} {array.dtype} {array.shape}".encode())
        total.update(bytes_of(array))
    return total.hexdigest()[:16]


def bytes_of(array: Array) -> bytes:
    return repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def ran(network: RandomNetwork) -> Mapping[int, Array]:
    return reference_outputs(network.network.graph, network.feeds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_and_a_number_always_give_the_same_network(kind: str):
    for number in range(20):
        first, second = (random_network(3, number, kind=kind) for _ in range(2))
        assert digest(first) == digest(second)


def test_a_fresh_process_with_another_hash_seed_draws_the_same_networks():
    code = (
        "from tests.testing.test_random_networks import digest, random_network\n"
        "print(*(digest(random_network(5, number)) for number in range(30)))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == [digest(random_network(5, number)) for number in range(30)]


def test_the_stream_of_random_choices_is_the_same_everywhere():
    draw = Draw(7, "x")
    assert [draw.word() for _ in range(2)] == [5904813277948297418, 1859942631273035852]
    draw = Draw(7, "y")
    assert (draw.size(), draw.order(5)) == (15, (3, 2, 0, 4, 1))
    assert draw.uniform((2,), -1, 1).tolist() == [-0.7998844385147095, 0.5623890161514282]
    assert draw.integers((4,), -9, 9).tolist() == [-4, -9, -5, 5]


GOLDEN = {
    "float": ["26d6a90329d9ebbb", "eb0482982254ff90", "90b787f7866b71fc", "4f2a8eb7abce27d3"],
    "quantized": ["a57fbd11b01e6a2c", "742ab7c18de0838c", "ee51fc8314f68faf", "3bebff535492341f"],
}
"""Networks of seed 7. They change where growers, samples or operators do: then take over what the test says."""


@pytest.mark.parametrize("kind", KINDS)
def test_networks_are_the_same_on_every_machine(kind: str):
    assert [digest(random_network(7, number, kind=kind)) for number in range(4)] == GOLDEN[kind]


def test_other_numbers_and_seeds_give_other_networks():
    digests = {digest(random_network(seed, number)) for seed in range(5) for number in range(20)}
    assert len(digests) == 100


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_is_valid_and_runs_on_the_reference_kernels(kind: str):
    for number in range(150):
        network = random_network(11, number, kind=kind)
        network.network.validate()
        assert sorted(network.feeds) == sorted(network.network.inputs)
        assert sorted(ran(network)) == list(range(len(network.network.outputs)))


DATA_DEPENDENT = {
    "BoxWithNmsLimit",
    "DetectionOutput",
    "GenerateProposals",
    "ImageDecoder",
    "NonZero",
    "SkipGrams",
    "StringSplit",
    "Unique",
}
"""Operators whose results have shapes that depend on data, in every sample."""
AT_RANDOM = {"RandomFill", "RandomMultinomial"}
COMMON = (
    "Convolution2d", "DepthwiseConvolution2d", "TransposeConvolution2d", "Convolution3d", "BatchMatMul",
    "FullyConnected", "Einsum", "Pooling2d", "Pooling3d", "LpPooling", "Resize", "BatchNormalization",
    "LayerNormalization", "GroupNormalization", "InstanceNormalization", "RmsNormalization", "L2Normalization",
    "Normalization", "Attention", "LstmSequence", "GruSequence", "RnnSequence", "Lstm", "Reduce", "Mean", "Transpose",
    "Reshape", "Slice", "StridedSlice", "Concat", "Splitter", "Pad", "Tile", "Gather", "DepthToSpace",
    "BroadcastTo", "Cast", "Comparison", "Where", "ElementwiseUnary", "ElementwiseBinary", "Activation", "Softmax",
    "ArgMinMax", "CumSum", "TopK", "Quantize", "Dequantize", "SequenceAt", "OptionalHasElement",
)  # fmt: skip
SIZES = (0, 1, 7, 8, 9, 11, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65)


def places(layer: Layer, *names: str) -> list[int]:
    return [getattr(layer.op, name) for name in names]


def is_image_layer(layer: Layer) -> bool:
    return hasattr(layer.op, "pad_left")


def is_windowed(layer: Layer) -> bool:
    return is_image_layer(layer) and hasattr(layer.op, "dilation_x")


def shape(value: Value) -> tuple[int, ...]:
    return tuple(value.known.shape)


def is_broadcast(layer: Layer) -> bool:
    return layer.kind in {"Addition", "Multiplication", "Subtraction", "Maximum", "Minimum"}


def is_quantized(layer: Layer) -> bool:
    return bool(layer.values) and layer.values[0].known.is_quantized


LAYERS: dict[str, Callable[[Layer], bool]] = {
    "padding at the end only": lambda item: (
        is_image_layer(item)
        and not any(places(item, "pad_left", "pad_top"))
        and any(places(item, "pad_right", "pad_bottom"))
    ),
    "padding at the start only": lambda item: (
        is_image_layer(item)
        and any(places(item, "pad_left", "pad_top"))
        and not any(places(item, "pad_right", "pad_bottom"))
    ),
    "strides that differ": lambda item: is_image_layer(item) and item.op.stride_x != item.op.stride_y,
    "dilations that differ": lambda item: is_windowed(item) and item.op.dilation_x != item.op.dilation_y,
    "channels first": lambda item: getattr(item.op, "data_layout", None) is DataLayout.NCHW,
    "channels last": lambda item: getattr(item.op, "data_layout", None) is DataLayout.NHWC,
    "groups": lambda item: item.kind == "Convolution2d" and item.op.groups > 1,
    "one output channel before a sigmoid": lambda item: (
        item.op == Activation(ActivationFunction.SIGMOID)
        and item.values[0].producer.kind == "Convolution2d"
        and item.values[0].producer.values[1].known.shape[0] == 1
    ),
    "a linear function with an offset": lambda item: (
        item.kind == "Activation" and item.op.function is ActivationFunction.LINEAR and item.op.b != 0
    ),
    "a transposed convolution with a declared output": lambda item: (
        item.kind == "TransposeConvolution2d" and item.op.output_shape is not None
    ),
    "an 8-bit convolution with one weight for each channel, padded at the end only": lambda item: (
        item.kind == "Convolution2d"
        and is_quantized(item)
        and item.values[1].known.num_elements == item.values[1].known.shape[0] * max(item.values[1].known.shape[1:])
        and places(item, "pad_left", "pad_top", "stride_x", "stride_y") == [0, 0, 1, 1]
        and item.op.pad_right + item.op.pad_bottom > 0
    ),
    "a scalar that is broadcast": lambda item: is_broadcast(item) and () in map(shape, item.values),
    "a broadcast of the first operand": lambda item: (
        is_broadcast(item) and shape(item.values[0]) != shape(item.output) == shape(item.values[1])
    ),
    "a broadcast of both operands": lambda item: (
        is_broadcast(item) and shape(item.values[0]) != shape(item.output) != shape(item.values[1])
    ),
    "a broadcast that adds axes": lambda item: (
        is_broadcast(item) and item.values[0].known.rank < item.output.known.rank
    ),
    "a constant as the first operand": lambda item: (
        is_broadcast(item) and isinstance(item.values[0].producer.op, Constant)
    ),
    "weights that are no constant": lambda item: (
        item.kind == "Convolution2d" and not isinstance(item.values[1].producer.op, Constant)
    ),
    "a layer of constants only": lambda item: (
        bool(item.values) and all(isinstance(value.producer.op, Constant) for value in item.values)
    ),
    "scales for each channel": lambda item: any(
        value.known.quantization is not None and value.known.quantization.per_axis for value in item.values
    ),
    "an addition of two quantized values": lambda item: (
        item.kind == "Addition"
        and is_quantized(item)
        and not any(isinstance(value.producer.op, Constant | Input) for value in item.values)
    ),
    "a concat of different quantizations": lambda item: (
        item.kind == "Concat" and len({value.known.quantization for value in item.values}) > 1
    ),
    "uint8": lambda item: is_quantized(item) and item.values[0].known.dtype is DataType.UINT8,
    "int16": lambda item: is_quantized(item) and item.values[0].known.dtype is DataType.INT16,
    "float16": lambda item: bool(item.values) and item.values[0].known.dtype is DataType.FLOAT16,
    "bfloat16": lambda item: bool(item.values) and item.values[0].known.dtype is DataType.BFLOAT16,
    "float64": lambda item: bool(item.values) and item.values[0].known.dtype is DataType.FLOAT64,
}


VALUES: dict[str, Callable[[Value], bool]] = {
    "a zero point of -128": lambda item: zero_point(item) == ("int8", -128),
    "a zero point of 127": lambda item: zero_point(item) == ("int8", 127),
    "a zero point of 0": lambda item: zero_point(item) == ("uint8", 0),
    "a zero point of 255": lambda item: zero_point(item) == ("uint8", 255),
    "an odd scale": lambda item: (
        item.known.quantization is not None and np.frexp(item.known.quantization.scale)[0] not in {0.5, 0.75}
    ),
    "several readers": lambda item: len(item.uses) > 2,
    "an output of an inner value": lambda item: (
        any(isinstance(use.layer.op, Output) for use in item.uses)
        and not all(isinstance(use.layer.op, Output) for use in item.uses)
    ),
    "several tiles": lambda item: item.known.is_tensor and item.known.num_elements > MAX_ELEMENTS,
}

NETWORKS: dict[str, Callable[[RandomNetwork], bool]] = {
    "one output": lambda item: len(item.network.outputs) == 1,
    "several outputs": lambda item: len(item.network.outputs) > 2,
    "several inputs": lambda item: len(item.network.inputs) > 2,
    "branches that join": lambda item: any(len(inner_operands(layer)) > 1 for layer in item.network),
    "NaN": lambda item: any(np.isnan(array).any() for array in float32_feeds(item)),
    "infinities": lambda item: any(np.isinf(array).any() for array in float32_feeds(item)),
    "denormals": lambda item: any(is_denormal(array).any() for array in float32_feeds(item)),
    "a negative zero": lambda item: any(is_negative_zero(array).any() for array in float32_feeds(item)),
    "one operator": lambda item: sum(layer.op.executable for layer in item.network) == 1,
    "twelve operators": lambda item: sum(layer.op.executable for layer in item.network) >= 12,
}  # fmt: skip


def zero_point(value: Value) -> tuple[str, int] | None:
    q = value.known.quantization
    return None if q is None or q.per_axis else (str(value.known.dtype), q.zero_point)


def inner_operands(layer: Layer) -> set[int]:
    return {id(value) for value in layer.values if not isinstance(value.producer.op, Constant | Input)}


def float32_feeds(network: RandomNetwork) -> list[Array]:
    return [array for array in network.feeds.values() if array.dtype == np.float32]


def is_denormal(array: Array) -> Array:
    return (array != 0) & (np.abs(array) < np.finfo(np.float32).tiny)


def is_negative_zero(array: Array) -> Array:
    return (array == 0) & np.signbit(array)


def features(network: RandomNetwork) -> Iterator[str]:
    """Everything that is remarkable in a network."""
    yield from (name for name, holds in NETWORKS.items() if holds(network))
    for layer in network.network:
        for value in layer.outputs:
            yield from (f"a size of {size}" for size in value.known.shape)
            yield from (name for name, holds in VALUES.items() if holds(value))
        if layer.op.executable:
            yield layer.kind
            yield f"family {layer.op.family}"
            yield from (name for name, holds in LAYERS.items() if holds(layer))


@pytest.mark.slow
def test_two_thousand_networks_have_every_feature_and_keep_within_the_limits():
    counts = Counter[str]()
    for number in range(2000):
        network = random_network(1, number)
        counts.update(features(network))
        assert operations(network) <= MAX_OPERATIONS_OF_LARGE
        assert all(
            layer.output.known.num_elements <= MAX_ELEMENTS_OF_LARGE for layer in network.network.inputs.values()
        )
    families = {op.family for op in sampled_ops()} - {"randomness", "images"}
    expected = {*LAYERS, *VALUES, *NETWORKS, *COMMON, *(f"family {name}" for name in families)}
    expected |= {f"a size of {size}" for size in SIZES}
    assert {name for name in expected if not counts[name]} == set()
    assert not counts.keys() & AT_RANDOM


def operations(network: RandomNetwork) -> int:
    computed = [layer for layer in network.network if layer.op.executable]
    return sum(layer.op.operations(layer.input_infos, layer.output_infos) for layer in computed)


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in sampled_ops() if op.op_name() not in DATA_DEPENDENT | AT_RANDOM])
def test_every_operator_that_is_favoured_occurs(op: type[Op]):
    networks = (random_network(1, number, favoured=[op]) for number in range(120))
    assert any(type(layer.op) is op for network in networks for layer in network.network)


@pytest.mark.parametrize("kind", KINDS)
def test_most_results_are_informative(kind: str):
    results = [array for number in range(100) for array in ran(random_network(2, number, kind=kind)).values()]
    numbers = [array.astype(np.float64) for array in results if array.dtype != object and array.size >= 6]
    assert sum(bool((array == array.flat[0]).all()) for array in numbers) < len(numbers) / 6


def test_special_values_come_in_few_networks_only():
    networks = [random_network(1, number, kind="float") for number in range(200)]
    special = [any(not np.isfinite(array).all() for array in float32_feeds(network)) for network in networks]
    assert 1 <= sum(special) <= 30


def test_the_kind_follows_from_the_number_where_none_is_given():
    assert [random_network(1, number).kind for number in range(4)] == ["float", "quantized", "float", "quantized"]
    assert random_network(7, 123).id == "quantized-7-123"


def test_the_order_of_the_favoured_operators_does_not_matter():
    ops = (Addition, Convolution2d, Softmax)
    assert digest(random_network(1, 1, favoured=ops)) == digest(random_network(1, 1, favoured=ops[::-1]))


def test_favoured_operators_are_most_of_what_comes():
    networks = [random_network(1, number, kind="float", favoured=(Addition, Softmax)) for number in range(100)]
    kinds = [layer.kind for network in networks for layer in network.network if layer.op.executable]
    assert sum(kind in {"Addition", "Softmax"} for kind in kinds) > len(kinds) / 2


@pytest.mark.parametrize("most", [1, 5, 12])
def test_networks_have_at_most_as_many_operators_as_asked_for(most: int):
    for number in range(50):
        layers = random_network(2, number, max_layers=most).network
        assert 1 <= sum(layer.op.executable for layer in layers) <= most


def test_an_unknown_kind_is_refused_with_the_nearest_match():
    with pytest.raises(InvalidArgumentError, match="unknown kind of random networks 'flaot'; did you mean 'float'?"):
        random_network(1, 1, kind="flaot")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seed": "7"}, "seed must be an integer, not '7'"),
        ({"seed": None}, "seed must be an integer, not None"),
        ({"number": 1.5}, "number must be an integer, not 1.5"),
        ({"max_layers": "3"}, "max_layers must be an integer, not '3'"),
        ({"kind": 3}, "the kind of random networks must be a text, not 3"),
        ({"favoured": "Addition"}, "favoured must hold classes of operators, such as ops.Softmax, not 'A'"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused(arguments: dict[str, Any], text: str):
    with pytest.raises(InvalidArgumentError) as caught:
        random_network(**{"seed": 1, "number": 1} | arguments)
    assert str(caught.value) == text


def test_integers_of_numpy_give_the_same_network():
    assert digest(random_network(np.int64(7), np.int32(1))) == digest(random_network(7, 1))


def test_a_negative_number_is_refused():
    with pytest.raises(InvalidArgumentError, match="number is -1 and max_layers 12; expected at least 0 and 1"):
        random_network(1, -1)


def test_weights_that_were_removed_again_are_not_shared() -> None:
    growth = Growth(Draw(1, 1), "float", Network("regrown"))
    for _ in range(40):
        assert growth.weights((2, 3)).producer in growth.network.graph
        growth.undo(0, 0)
