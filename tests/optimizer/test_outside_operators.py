"""Operators that another package declares: their traits are enough for the optimizer, the quantizer and the kit."""

import numpy as np
import pytest

from interposer import Network, Quantization, TensorInfo
from interposer.ir.continuity import is_discontinuous
from interposer.kernels.reference import kernel
from interposer.ops import BroadcastTo, Dequantize, FullyConnected, Quantize, Transpose
from interposer.optimizer import simplified
from interposer.quantization import quantize
from interposer.rewriting.sinking import Sinking
from interposer.schema import Op, ResultQuantization, Role, Trait, attribute, op, operand, result
from interposer.testing import Sample, check_backend, given, of, trait_errors
from interposer.types import Array, DataType
from tests.optimizer.rewriting import assert_same_results

TO_NCHW, TO_NHWC = Transpose((0, 3, 1, 2)), Transpose((0, 2, 3, 1))
CODES = TensorInfo((2, 6), DataType.INT8, Quantization(0.5, 3))


@op(register=False, traits=Trait.MOVES)
class Shift(Op):
    """Shift elements along the last axis."""

    input = operand(rank=(1, 8))
    places = operand(role=Role.SIZES, rank=0, dtypes=[DataType.INT32], optional=True)
    output = result(like="input")

    reverse: bool = attribute(default=False)


@op(register=False, traits=Trait.CHOOSES)
class Middle(Op):
    """Return the median of each row with an odd number of elements."""

    input = operand(rank=2)
    output = result(dtype_of="input")

    def infer(self, input: TensorInfo) -> TensorInfo:
        return input.with_constant(None).with_shape(input.shape[:1])


@op(register=False, traits=Trait.POINTWISE)
class Cube(Op):
    """Multiply each element by itself twice."""

    in_place = ("input",)
    input = operand()
    output = result(like="input")


@op(register=False, traits=Trait.POINTWISE | Trait.COMMUTATIVE)
class Hypotenuse(Op):
    """Return the square root of the sum of two squares."""

    a = operand()
    b = operand(same_dtype_as="a")
    output = result(dtype_of="a")

    def infer(self, a: TensorInfo, b: TensorInfo) -> TensorInfo:
        return a.with_constant(None).with_shape(np.broadcast_shapes(tuple(a.shape), tuple(b.shape)))


@op(register=False, traits=Trait.POINTWISE | Trait.DISCONTINUOUS)
class Steps(Op):
    """Round down to multiples of 2."""

    input = operand()
    output = result(like="input")


@op(register=False, traits=Trait.POINTWISE, quantized=ResultQuantization.OBSERVED)
class Opposite(Op):
    """Change the sign of each element."""

    input = operand(dtypes=[DataType.FLOAT32, DataType.INT8])
    output = result(like="input")


@kernel(Shift)
def shift(op: Shift, x: Array, places: Array | None) -> Array:
    count = 1 if places is None else int(places)
    return np.roll(x, -count if op.reverse else count, -1)


@kernel(Middle)
def middle(op: Middle, x: Array) -> Array:
    return np.sort(x, -1)[:, x.shape[-1] // 2]


@kernel(Cube, dtypes={DataType.FLOAT32})
def cube(op: Cube, x: Array) -> Array:
    return x * x * x


@kernel(Hypotenuse, dtypes={DataType.FLOAT32})
def hypotenuse(op: Hypotenuse, a: Array, b: Array) -> Array:
    return np.hypot(a, b)


@kernel(Steps, dtypes={DataType.FLOAT32})
def steps(op: Steps, x: Array) -> Array:
    return np.floor(x / 2) * 2


@kernel(Opposite, dtypes={DataType.FLOAT32})
def opposite(op: Opposite, x: Array) -> Array:
    return -x


@kernel(Opposite, dtypes={DataType.INT8})
def opposite_of_bytes(op: Opposite, x: Array, *, info) -> Array:
    real = (x.astype(np.float64) - info.inputs[0].zero_point) * info.inputs[0].scale
    return np.clip(np.rint(-real / info.outputs[0].scale) + info.outputs[0].zero_point, -128, 127).astype(np.int8)


SAMPLES = [
    Sample(Shift(), [given((2, 5))], name="float32"),
    Sample(Shift(), [given((2, 5), DataType.INT8), of(2, DataType.INT32)], name="int8"),
    Sample(Shift(reverse=True), [given((4,))], name="reverse"),
    Sample(Middle(), [given((3, 5))]),
    Sample(Cube(), [given((2, 3))]),
    Sample(Hypotenuse(), [given((2, 3)), given((3,))]),
    Sample(Steps(), [given((2, 3))]),
    Sample(Opposite(), [given((2, 3))]),
]


def network_of(*operators: Op, info: TensorInfo | None = None) -> Network:
    """Return a network with one layer after the other, on an input of this info."""
    network = Network()
    value = network.add_input_layer(0, info or TensorInfo((1, 2, 3, 4)))
    for index, operator in enumerate(operators):
        value = network.add_layer(operator, value, name=f"layer{index}")
    network.add_output_layer(0, value)
    return network


def kinds(network: Network) -> list[str]:
    return [layer.kind for layer in network.graph.topological() if layer.op.executable]


def simplified_kinds(network: Network) -> list[str]:
    after = simplified(network, ["CpuRef"])
    assert_same_results(network.graph, after.graph)
    return kinds(after)


# --- the optimizer ----------------------------------------------------------------------------------------------------


def test_transposes_meet_across_a_pointwise_operator():
    assert simplified_kinds(network_of(TO_NCHW, Cube(), TO_NHWC)) == ["Cube"]


def test_transposes_stay_around_an_operator_that_is_not_pointwise():
    assert simplified_kinds(network_of(TO_NCHW, Shift(), TO_NHWC)) == ["Transpose", "Shift", "Transpose"]


def test_an_operator_that_moves_elements_works_on_quantized_values():
    assert simplified_kinds(network_of(Dequantize(), Shift(), info=CODES)) == ["Shift", "Dequantize"]


def test_an_operator_that_chooses_elements_works_on_quantized_values():
    info = TensorInfo((2, 5), DataType.INT8, Quantization(0.5, 3))
    assert simplified_kinds(network_of(Dequantize(), Middle(), info=info)) == ["Middle", "Dequantize"]


@pytest.mark.parametrize("operator", [Cube(), Steps(), Opposite()])
def test_an_operator_that_computes_gets_floats(operator):
    assert simplified_kinds(network_of(Dequantize(), operator, info=CODES)) == ["Dequantize", type(operator).__name__]


def test_a_value_is_quantized_before_it_is_moved():
    network = Network()
    x = network.add_input_layer(0, CODES)
    weights = network.add_constant_layer(np.ones((6, 6), np.int8), Quantization(0.25))
    floats = [network.add_layer(Dequantize(), value) for value in (x, weights)]
    moved = network.add_layer(Shift(), network.add_layer(FullyConnected(), *floats))
    info = TensorInfo((2, 6), DataType.INT8, Quantization(1.0))
    network.add_output_layer(0, network.add_layer(Quantize(DataType.INT8), moved, outputs=info))
    assert kinds(simplified(network, ["CpuRef"]))[-1] == "Shift"


def test_equal_layers_merge_and_commutative_operands_may_be_swapped():
    network = Network()
    x, y = (network.add_input_layer(index, TensorInfo((3,))) for index in range(2))
    pairs = [(x, y), (y, x), (x, y)]
    for index, pair in enumerate(pairs):
        network.add_output_layer(index, network.add_layer(Hypotenuse(), *pair))
    assert simplified_kinds(network) == ["Hypotenuse"]


def test_a_broadcast_before_a_pointwise_operator_is_dropped():
    network = Network()
    x, y = network.add_input_layer(0, TensorInfo((2, 3))), network.add_input_layer(1, TensorInfo((3,)))
    wide = network.add_layer(BroadcastTo((2, 3)), y)
    network.add_output_layer(0, network.add_layer(Hypotenuse(), x, wide))
    assert simplified_kinds(network) == ["Hypotenuse"]


def test_a_discontinuous_operator_is_known_as_one():
    assert is_discontinuous(network_of(Steps()).graph.layer("layer0"))
    assert not is_discontinuous(network_of(Cube()).graph.layer("layer0"))


# --- the quantizer ----------------------------------------------------------------------------------------------------


def dense_network(middle: Op) -> Network:
    """Return a network of a dense layer, the operator in the middle, and another dense layer."""
    draw = np.random.default_rng(0)
    network = Network()
    value = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    for index in range(2):
        weights = network.add_constant_layer(draw.standard_normal((4, 4)).astype(np.float32))
        value = network.add_layer(FullyConnected(), value, weights, name=f"dense{index}")
        value = value if index else network.add_layer(middle, value, name="middle")
    network.add_output_layer(0, value, name="y")
    return network


def quantized_middle(operator: Op) -> tuple[TensorInfo, TensorInfo]:
    """Return the infos of operand and result of an operator between dense layers after quantization."""
    data = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    quantized = quantize(dense_network(operator), data)
    layer = quantized.graph.layer("middle")
    return layer.values[0].known, layer.output.known


def test_an_operator_that_moves_elements_keeps_their_quantization():
    before, after = quantized_middle(Shift())
    assert after.dtype is DataType.INT8
    assert before.quantization == after.quantization


def test_an_operator_that_computes_on_integers_gets_a_quantization_of_its_own():
    before, after = quantized_middle(Opposite())
    assert after.dtype is DataType.INT8
    assert before.quantization != after.quantization


def test_an_operator_without_a_quantized_form_stays_in_float():
    data = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    report = quantize(dense_network(Cube()), data).report
    assert [(entry.name, entry.reason) for entry in report.left] == [("middle", "Cube has no form in integers")]


def test_an_operator_that_only_moves_float_values_is_not_quantized():
    data = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)
    network = network_of(Shift(), info=TensorInfo((1, 6)))
    report = quantize(network, data).report
    assert [entry.reason for entry in report.left] == ["no layer beside it computes in integers"]


# --- the writers ------------------------------------------------------------------------------------------------------


def test_the_layouts_of_all_writers_sink_transposes_past_a_pointwise_operator():
    network = network_of(TO_NCHW, Cube(), Steps(), TO_NHWC)
    graph = Sinking()(network.graph)
    assert [layer.kind for layer in graph.topological() if layer.op.executable] == ["Cube", "Steps"]


def test_the_layouts_of_all_writers_leave_transposes_before_other_operators():
    graph = Sinking()(network_of(TO_NCHW, Shift(), TO_NHWC).graph)
    assert [layer.kind for layer in graph.topological() if layer.op.executable] == ["Transpose", "Shift", "Transpose"]


# --- the kit ----------------------------------------------------------------------------------------------------------


def test_the_declarations_hold_on_the_samples():
    assert trait_errors(SAMPLES) == []


def test_the_conformance_kit_judges_layers_of_the_operators():
    report = check_backend("CpuRef", samples=SAMPLES, only="results/*")
    assert report.ok
    assert report.counts["pass"] == len(SAMPLES)
