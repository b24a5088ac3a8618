"""Attention, normalizations, rotary embeddings and gates in several layers are fused, and give what the layers give."""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, TensorInfo
from interposer.ops import (
    Activation,
    Addition,
    BatchMatMul,
    BroadcastTo,
    Cast,
    Concat,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    FullyConnected,
    LayerNormalization,
    Mean,
    Multiplication,
    Reshape,
    RmsNormalization,
    RotaryEmbedding,
    Slice,
    Softmax,
    Splitter,
    StridedSlice,
    Subtraction,
    Tile,
    Transpose,
    Where,
)
from interposer.ops.activation import ActivationFunction
from interposer.ops.elementwise import BinaryOperation, UnaryOperation
from tests.backends.cpuacc.single import reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

LOWEST = float(np.finfo(np.float32).min)


class Sketch:
    """A network under construction, with random inputs."""

    def __init__(self, seed: int = 0) -> None:
        self.network = ip.Network("pattern")
        self.rng = np.random.default_rng(seed)
        self.arrays: list[Array] = []

    def input(self, *shape: int, bools: bool = False) -> object:
        array = self.rng.random(shape) < 0.6 if bools else self.rng.standard_normal(shape).astype(np.float32)
        self.arrays.append(array)
        info = TensorInfo(shape, ip.DataType.BOOL if bools else ip.DataType.FLOAT32)
        return self.network.add_input_layer(len(self.arrays) - 1, info, name=f"x{len(self.arrays)}")

    def constant(self, value: object) -> object:
        return self.network.add_constant_layer(np.asarray(value))

    def number(self, value: float) -> object:
        return self.constant(np.float32(value))

    def add(self, op: object, *operands: object) -> object:
        return self.network.add_layer(op, *operands)

    def unary(self, operation: UnaryOperation, x: object) -> object:
        return self.add(ElementwiseUnary(operation=operation), x)

    def output(self, *values: object) -> None:
        for n, value in enumerate(values):
            self.network.add_output_layer(n, value)

    def check(self, tolerance: float = 1e-5) -> None:
        """Compare CpuAcc with the reference."""
        results = [ip.load(self.network, ["CpuAcc"]).run(self.arrays), reference_results(self.network, self.arrays)]
        for result, expected in zip(*results, strict=True):
            finite = np.abs(expected[np.isfinite(expected)])
            np.testing.assert_allclose(
                result, expected, rtol=0, atol=tolerance * max(1e-30, float(finite.max(initial=0)))
            )

    def steps(self, profile: Callable[[ip.Network], str]) -> str:
        return profile(self.network)


def run_on_ones(network: ip.Network) -> None:
    """Run a network on CpuAcc, which unloads it afterwards."""
    infos = [layer.output.known for layer in network.graph.inputs]
    with ip.load(network, ["CpuAcc"]) as model:
        model.run([np.ones(tuple(info.shape), info.dtype.numpy) for info in infos])


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[ip.Network], str]:
    """What CpuAcc reports about the steps of a network."""

    def steps(network: ip.Network) -> str:
        monkeypatch.setenv("INTERPOSER_CPUACC_PROFILE", "1")
        gc.collect()
        capfd.readouterr()
        run_on_ones(network)
        captured = capfd.readouterr()
        return captured.out + captured.err

    return steps


# ---- Normalizations -------------------------------------------------------------------------------------------------


def square(sketch: Sketch, x: object, form: str) -> object:
    if form == "power":
        return sketch.add(ElementwiseBinary(operation=BinaryOperation.POWER), x, sketch.number(2))
    if form == "product":
        return sketch.add(Multiplication(), x, x)
    return sketch.unary(UnaryOperation.SQUARE, x)


def normalized(sketch: Sketch, x: object, variance: object, form: str) -> object:
    """x / sqrt(variance) in several forms."""
    if form == "rsqrt":
        return sketch.add(Multiplication(), sketch.unary(UnaryOperation.RSQRT, variance), x)
    if form == "power":
        power = ElementwiseBinary(operation=BinaryOperation.POWER)
        return sketch.add(Multiplication(), x, sketch.add(power, variance, sketch.number(-0.5)))
    root = sketch.unary(UnaryOperation.SQRT, variance)
    if form == "division":
        return sketch.add(Division(), x, root)
    if form == "reciprocal":
        return sketch.add(Multiplication(), x, sketch.unary(UnaryOperation.RECIPROCAL, root))
    return sketch.add(Multiplication(), x, sketch.add(Division(), sketch.number(1), root))


def rms(sketch: Sketch, x: object, squares: str, form: str, axis: tuple[int, ...] = (-1,)) -> object:
    mean = sketch.add(Mean(axis=axis, keep_dims=True), square(sketch, x, squares))
    return normalized(sketch, x, sketch.add(Addition(), mean, sketch.number(1e-3)), form)


FORMS = ["rsqrt", "power", "division", "reciprocal", "one over"]


@pytest.mark.parametrize("squares", ["power", "product", "square"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weight", [(20,), (1, 20), (1,), None])
def test_an_rms_normalization_in_layers_is_one_step(
    squares: str, form: str, weight: tuple[int, ...] | None, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    y = rms(sketch, sketch.input(3, 5, 20), squares, form)
    if weight is not None:
        y = sketch.add(Multiplication(), sketch.input(*weight), y)
    sketch.output(y)

    sketch.check()
    assert "RmsNormalization" in sketch.steps(profile)


@pytest.mark.parametrize(("squares", "twice"), [("power", False), ("product", True)])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parameters", ["both", "gamma", "beta", "none"])
def test_a_layer_normalization_in_layers_is_one_step(
    squares: str, twice: bool, form: str, parameters: str, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    x = sketch.input(3, 5, 33)
    deviation = sketch.add(Subtraction(), x, sketch.add(Mean(axis=(2,), keep_dims=True), x))
    other = sketch.add(Subtraction(), x, sketch.add(Mean(axis=(-1,), keep_dims=True), x)) if twice else deviation
    variance = sketch.add(Mean(axis=(-1,), keep_dims=True), square(sketch, other, squares))
    y = normalized(sketch, deviation, sketch.add(Addition(), sketch.number(1e-4), variance), form)
    if parameters in ("both", "gamma"):
        y = sketch.add(Multiplication(), y, sketch.input(33))
    if parameters in ("both", "beta"):
        y = sketch.add(Addition(), y, sketch.input(33))
    sketch.output(y)

    sketch.check()
    assert "LayerNormalization" in sketch.steps(profile)


def test_normalizations_over_several_axes_and_with_results_that_are_read_are_exact() -> None:
    sketch = Sketch()
    x = sketch.input(2, 3, 4, 5)
    y = rms(sketch, x, "product", "rsqrt", axis=(2, 3))
    scaled = sketch.add(Multiplication(), y, sketch.input(4, 5))
    sketch.output(scaled, y, sketch.add(Multiplication(), y, sketch.input(4, 1)))

    sketch.check()


def near_misses() -> dict[str, Callable[[Sketch], object]]:
    def epsilon_outside(sketch: Sketch) -> object:
        x = sketch.input(4, 16)
        root = sketch.unary(
            UnaryOperation.SQRT, sketch.add(Mean(axis=(1,), keep_dims=True), square(sketch, x, "power"))
        )
        return sketch.add(Division(), x, sketch.add(Addition(), root, sketch.number(0.5)))

    def other_axis(sketch: Sketch) -> object:
        return rms(sketch, sketch.input(4, 16), "power", "rsqrt", axis=(0,))

    def other_tensor(sketch: Sketch) -> object:
        x, other = sketch.input(4, 16), sketch.input(4, 16)
        mean = sketch.add(Mean(axis=(1,), keep_dims=True), square(sketch, x, "power"))
        return normalized(sketch, other, sketch.add(Addition(), mean, sketch.number(0.1)), "rsqrt")

    def cube(sketch: Sketch) -> object:
        x = sketch.input(4, 16)
        power = sketch.add(ElementwiseBinary(operation=BinaryOperation.POWER), x, sketch.number(4))
        mean = sketch.add(Mean(axis=(1,), keep_dims=True), power)
        return normalized(sketch, x, sketch.add(Addition(), mean, sketch.number(0.1)), "rsqrt")

    def other_mean(sketch: Sketch) -> object:
        x, other = sketch.input(4, 16), sketch.input(4, 16)
        d = sketch.add(Subtraction(), x, sketch.add(Mean(axis=(1,), keep_dims=True), other))
        variance = sketch.add(Mean(axis=(1,), keep_dims=True), square(sketch, d, "product"))
        return normalized(sketch, x, sketch.add(Addition(), variance, sketch.number(0.1)), "division")

    def column_weight(sketch: Sketch) -> object:
        y = rms(sketch, sketch.input(16, 16), "power", "rsqrt")
        return sketch.add(Multiplication(), y, sketch.input(16, 1))

    cases = (epsilon_outside, other_axis, other_tensor, cube, other_mean, column_weight)
    return {case.__name__: case for case in cases}


@pytest.mark.parametrize("case", near_misses())
def test_what_only_resembles_a_normalization_keeps_its_meaning(case: str) -> None:
    sketch = Sketch()
    sketch.output(near_misses()[case](sketch))

    sketch.check()


# ---- Rotary embeddings ----------------------------------------------------------------------------------------------


def halves(sketch: Sketch, x: object, shape: tuple[int, ...], split: bool) -> tuple[object, object]:
    half = shape[-1] // 2
    if split:
        outputs = sketch.network.graph.add(Splitter(axis=-1, sizes=(half, half)), [x]).outputs
        return outputs[0], outputs[1]
    size = (*shape[:-1], half)
    zeros = (0,) * (len(shape) - 1)
    return sketch.add(Slice(begin=(*zeros, 0), size=size), x), sketch.add(Slice(begin=(*zeros, half), size=size), x)


def heads_of(sketch: Sketch, batch: int, heads: int, length: int, size: int) -> object:
    x = sketch.add(Reshape(target_shape=(batch, length, heads, size)), sketch.input(batch, length, heads * size))
    return sketch.add(Transpose(permutation=(0, 2, 1, 3)), x)


@pytest.mark.parametrize("size", [2, 6, 16, 40])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("table", [(2, 1, 5), (5,), (1, 1, 5)])
def test_halves_that_are_rotated_in_layers_are_one_step(
    size: int, swapped: bool, table: tuple[int, ...], profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    x = heads_of(sketch, 2, 3, 5, size)
    first, second = halves(sketch, x, (2, 3, 5, size), split=False)
    turned = sketch.add(Concat(axis=-1), sketch.unary(UnaryOperation.NEG, second), first)
    cos, sin = sketch.input(*table, size), sketch.input(*table, size)
    a = sketch.add(Multiplication(), *((cos, x) if swapped else (x, cos)))
    b = sketch.add(Multiplication(), *((sin, turned) if swapped else (turned, sin)))
    sketch.output(sketch.add(Addition(), *((b, a) if swapped else (a, b))))

    sketch.check()
    assert "rotary embedding" in sketch.steps(profile)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_pairs_that_are_rotated_apart_are_one_step(
    interleaved: bool, shared: bool, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    shape = (2, 3, 5, 12)
    x = heads_of(sketch, *shape)

    def parts() -> tuple[object, object]:
        if not interleaved:
            return halves(sketch, x, shape, split=False)
        slices = [StridedSlice(begin=(0, 0, 0, n), end=shape, stride=(1, 1, 1, 2)) for n in (0, 1)]
        return sketch.add(slices[0], x), sketch.add(slices[1], x)

    cos, sin = sketch.input(5, 6), sketch.input(5, 6)
    first, second = parts()
    again = (first, second) if shared else parts()
    a = sketch.add(Subtraction(), sketch.add(Multiplication(), first, cos), sketch.add(Multiplication(), sin, second))
    b = sketch.add(Addition(), sketch.add(Multiplication(), again[1], cos), sketch.add(Multiplication(), again[0], sin))
    if interleaved:
        a, b = (sketch.add(Reshape(target_shape=(2, 3, 5, 6, 1)), item) for item in (a, b))
    y = sketch.add(Concat(axis=-1), a, b)
    sketch.output(sketch.add(Reshape(target_shape=shape), y) if interleaved else y)

    sketch.check()
    assert "rotary embedding" in sketch.steps(profile)


ROTARY_MISSES = ["other half negated", "swapped halves", "not negated", "two tensors", "uneven", "other difference"]


@pytest.mark.parametrize("case", ROTARY_MISSES)
def test_what_only_resembles_a_rotation_keeps_its_meaning(case: str) -> None:
    sketch = Sketch()
    shape = (2, 3, 5, 8)
    x = sketch.input(*shape)
    other = sketch.input(*shape) if case == "two tensors" else x
    first, second = halves(sketch, other, shape, split=False)
    cos, sin = sketch.input(5, 8), sketch.input(5, 8)
    if case == "uneven":
        first = sketch.add(Slice(begin=(0, 0, 0, 0), size=(2, 3, 5, 2)), x)
        second = sketch.add(Slice(begin=(0, 0, 0, 2), size=(2, 3, 5, 6)), x)
    minus = [sketch.unary(UnaryOperation.NEG, item) for item in (first, second)]
    operands = {"other half negated": (second, minus[0]), "swapped halves": (minus[0], second)}
    joined = operands.get(case, (second, first) if case == "not negated" else (minus[1], first))
    rotated = sketch.add(Multiplication(), sketch.add(Concat(axis=-1), *joined), sin)
    operation = Subtraction() if case == "other difference" else Addition()
    sketch.output(sketch.add(operation, sketch.add(Multiplication(), x, cos), rotated))

    sketch.check()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("turned", [0, 4, 16])
@pytest.mark.parametrize("flat", [False, True])
def test_the_layer_of_rotary_embeddings_gives_what_the_reference_gives(
    interleaved: bool, positions: bool, turned: int, flat: bool
) -> None:
    sketch = Sketch()
    x = sketch.input(2, 5, 48) if flat else sketch.input(2, 3, 5, 16)
    table = (9, (turned or 16) // 2) if positions else (2, 5, (turned or 16) // 2)
    operands = [x, sketch.input(*table), sketch.input(*table)]
    if positions:
        operands.append(sketch.constant(np.array([[0, 8, 3, 3, 1], [5, 4, 2, 7, 6]])))
    op = RotaryEmbedding(interleaved=interleaved, num_heads=3 if flat else 0, rotary_embedding_dim=turned)
    sketch.output(sketch.add(op, *operands))

    sketch.check()


def test_a_position_outside_of_the_caches_is_an_error() -> None:
    network = ip.Network("positions")
    x = network.add_input_layer(0, TensorInfo((1, 1, 2, 4)), name="x")
    caches = [network.add_constant_layer(np.ones((3, 2), np.float32)) for _ in range(2)]
    positions = network.add_input_layer(1, TensorInfo((1, 2), ip.DataType.INT64), name="positions")
    network.add_output_layer(0, network.add_layer(RotaryEmbedding(), x, *caches, positions))
    message = re.escape("position_ids has 3 at [0, 1]; expected 0 to 2")
    with ip.load(network, ["CpuAcc"]) as model, pytest.raises(ip.InterposerError, match=message):
        model.run([np.ones((1, 1, 2, 4), np.float32), np.array([[0, 3]])])


# ---- Activation functions and gates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["power", "products", "factored"])
@pytest.mark.parametrize("half", ["x", "gate", "result"])
def test_a_gelu_by_a_hyperbolic_tangent_is_one_activation(
    form: str, half: str, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    x = sketch.input(3, 50)
    mul, add, number = Multiplication(), Addition(), sketch.number
    if form == "power":
        cube = sketch.add(ElementwiseBinary(operation=BinaryOperation.POWER), x, number(3))
        inner = sketch.add(
            mul, sketch.add(add, x, sketch.add(mul, cube, number(0.044715))), number(math.sqrt(2 / math.pi))
        )
    elif form == "products":
        cube = sketch.add(mul, sketch.add(mul, x, x), x)
        inner = sketch.add(
            mul, number(math.sqrt(2 / math.pi)), sketch.add(add, sketch.add(mul, cube, number(0.044715)), x)
        )
    else:
        rest = sketch.add(add, number(1), sketch.add(mul, sketch.add(mul, x, number(0.044715)), x))
        inner = sketch.add(mul, sketch.add(mul, x, number(math.sqrt(2 / math.pi))), rest)
    gate = sketch.add(add, sketch.add(Activation(function=ActivationFunction.TANH, a=1.0, b=1.0), inner), number(1))
    parts = [x, gate]
    if half != "result":
        parts[half == "gate"] = sketch.add(mul, parts[half == "gate"], number(0.5))
    y = sketch.add(mul, *parts)
    sketch.output(sketch.add(mul, y, number(0.5)) if half == "result" else y)

    sketch.check()
    assert "Multiplication" not in sketch.steps(profile)


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("columns", [5, 48, 100])
@pytest.mark.parametrize("gate", ["swish", "quick gelu", "gelu", "none"])
def test_the_product_of_two_matrix_products_and_an_activation_is_part_of_one(
    rows: int, columns: int, gate: str, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    x = sketch.input(rows, 24)
    weights = [sketch.constant(sketch.rng.standard_normal((24, columns)).astype(np.float32)) for _ in range(2)]
    a, b = (sketch.add(FullyConnected(keep_dims=True), x, item) for item in weights)
    if gate in ("swish", "quick gelu"):
        inner = sketch.add(Multiplication(), a, sketch.number(1.702)) if gate == "quick gelu" else a
        a = sketch.add(Multiplication(), a, sketch.add(Activation(function=ActivationFunction.SIGMOID), inner))
    elif gate == "gelu":
        a = sketch.add(Activation(function=ActivationFunction.GELU), a)
    sketch.output(sketch.add(Multiplication(), b, a))

    sketch.check()
    steps = sketch.steps(profile)
    assert "Multiplication" not in steps
    assert "Activation" not in steps


def test_a_gate_that_is_read_again_or_broadcast_stays_a_layer() -> None:
    sketch = Sketch()
    x = sketch.input(6, 24)
    weights = [sketch.constant(sketch.rng.standard_normal((24, 20)).astype(np.float32)) for _ in range(3)]
    a, b, c = (sketch.add(FullyConnected(keep_dims=True), x, item) for item in weights)
    sketch.output(
        sketch.add(Multiplication(), a, b),
        sketch.add(Addition(), a, b),
        sketch.add(Multiplication(), c, sketch.input(6, 1)),
    )

    sketch.check()


# ---- Attention ------------------------------------------------------------------------------------------------------


def repeated(sketch: Sketch, x: object, shape: tuple[int, ...], times: int, form: str) -> object:
    """Each of the heads of a tensor (B, G, L, D) `times` times."""
    batch, groups, length, size = shape
    wide = sketch.add(Reshape(target_shape=(batch, groups, 1, length, size)), x)
    if form == "tile":
        wide = sketch.add(Tile(multiples=(1, 1, times, 1, 1)), wide)
    else:
        wide = sketch.add(BroadcastTo(shape=(batch, groups, times, length, size)), wide)
    return sketch.add(Reshape(target_shape=(batch, groups * times, length, size)), wide)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize(("queries", "past"), [(1, 40), (3, 13), (20, 0), (1, 511)])
@pytest.mark.parametrize("mask", ["none", "numbers", "where", "both", "inverted"])
def test_attention_with_a_cache_and_grouped_queries_is_one_step(
    groups: int, queries: int, past: int, mask: str, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    form = "tile" if mask == "none" else "expand"
    keys, size, heads = past + queries, 24, 6
    query = heads_of(sketch, 2, heads, queries, size)
    caches = []
    for _ in range(2):
        new = heads_of(sketch, 2, groups, queries, size)
        caches.append(sketch.add(Concat(axis=2), sketch.input(2, groups, past, size), new) if past else new)
    key, value = (repeated(sketch, x, (2, groups, keys, size), heads // groups, form) for x in caches)
    scores = sketch.add(BatchMatMul(), query, sketch.add(Transpose(permutation=(0, 1, 3, 2)), key))
    scores = sketch.add(Division(), scores, sketch.number(math.sqrt(size)))
    if mask in ("where", "both", "inverted"):
        shown, lowest = sketch.input(1, 1, queries, keys, bools=True), sketch.number(LOWEST)
        scores = sketch.add(Where(), shown, *((lowest, scores) if mask == "inverted" else (scores, lowest)))
    if mask in ("numbers", "both"):
        scores = sketch.add(Addition(), scores, sketch.input(2, 1, 1, keys))
    y = sketch.add(BatchMatMul(), sketch.add(Softmax(), scores), value)
    merged = sketch.add(
        Reshape(target_shape=(2, queries, heads * size)), sketch.add(Transpose(permutation=(0, 2, 1, 3)), y)
    )
    sketch.output(merged, *(caches if past else ()))

    sketch.check()
    steps = sketch.steps(profile)
    assert "attention" in steps
    assert "matrix product" not in steps
    assert "Softmax" not in steps
    assert "BroadcastTo" not in steps
    assert "Tile" not in steps


def test_grouped_queries_may_be_products_of_five_dimensions() -> None:
    sketch = Sketch()
    query, key, value = sketch.input(2, 3, 4, 5, 8), sketch.input(2, 3, 1, 7, 8), sketch.input(2, 3, 1, 7, 8)
    scores = sketch.add(BatchMatMul(transpose_y=True), query, key)
    sketch.output(sketch.add(BatchMatMul(), sketch.add(Softmax(), scores), value))

    sketch.check()


def test_attention_of_windows_with_a_bias_and_a_mask_of_windows_is_one_step(
    profile: Callable[[ip.Network], str],
) -> None:
    """The form of Swin: (B * windows, heads, N, N), with the mask of windows added between two reshapes."""
    sketch = Sketch()
    batch, windows, heads, n, size = 2, 4, 3, 9, 8
    qkv = sketch.add(
        Reshape(target_shape=(batch * windows, n, 3, heads, size)), sketch.input(batch * windows, n, 3 * heads * size)
    )
    qkv = sketch.add(Transpose(permutation=(2, 0, 3, 1, 4)), qkv)
    shape = (1, batch * windows, heads, n, size)
    slices = (sketch.add(Slice(begin=(i, 0, 0, 0, 0), size=shape), qkv) for i in range(3))
    query, key, value = (sketch.add(Reshape(target_shape=shape[1:]), item) for item in slices)
    query = sketch.add(Multiplication(), query, sketch.number(size**-0.5))
    scores = sketch.add(BatchMatMul(), query, sketch.add(Transpose(permutation=(0, 1, 3, 2)), key))
    scores = sketch.add(Addition(), scores, sketch.input(1, heads, n, n))
    scores = sketch.add(Reshape(target_shape=(batch, windows, heads, n, n)), scores)
    scores = sketch.add(Addition(), scores, sketch.input(1, windows, 1, n, n))
    scores = sketch.add(Reshape(target_shape=(batch * windows, heads, n, n)), scores)
    y = sketch.add(BatchMatMul(), sketch.add(Softmax(), scores), value)
    y = sketch.add(Transpose(permutation=(0, 2, 1, 3)), y)
    sketch.output(sketch.add(Reshape(target_shape=(batch * windows, n, heads * size)), y))

    sketch.check()
    steps = sketch.steps(profile)
    assert "attention" in steps
    assert "Softmax" not in steps


def test_attention_of_merged_batches_and_heads_is_one_step(profile: Callable[[ip.Network], str]) -> None:
    """The form of Whisper and BART: (B * heads, L, D)."""
    sketch = Sketch()
    batch, heads, queries, keys, size = 2, 3, 5, 11, 8
    shapes = [(batch * heads, length, size) for length in (queries, keys, keys)]
    query, key, value = (
        sketch.add(Reshape(target_shape=shape), heads_of(sketch, batch, heads, shape[1], size)) for shape in shapes
    )
    scores = sketch.add(BatchMatMul(), query, sketch.add(Transpose(permutation=(0, 2, 1)), key))
    scores = sketch.add(Reshape(target_shape=(batch, heads, queries, keys)), scores)
    scores = sketch.add(Addition(), sketch.input(batch, 1, queries, keys), scores)
    scores = sketch.add(Reshape(target_shape=(batch * heads, queries, keys)), scores)
    y = sketch.add(BatchMatMul(), sketch.add(Softmax(), scores), value)
    y = sketch.add(Reshape(target_shape=(batch, heads, queries, size)), y)
    y = sketch.add(Transpose(permutation=(0, 2, 1, 3)), y)
    sketch.output(sketch.add(Reshape(target_shape=(batch, queries, heads * size)), y))

    sketch.check()
    steps = sketch.steps(profile)
    assert "attention" in steps
    assert "Transpose" not in steps


def test_a_soft_cap_is_part_of_attention(profile: Callable[[ip.Network], str]) -> None:
    sketch = Sketch()
    query, key, value = (sketch.input(2, 3, 7, 8) for _ in range(3))
    scores = sketch.add(BatchMatMul(transpose_y=True), query, key)
    scores = sketch.add(Division(), sketch.add(Multiplication(), scores, sketch.number(0.3)), sketch.number(2))
    scores = sketch.add(Activation(function=ActivationFunction.TANH, a=1.0, b=1.0), scores)
    scores = sketch.add(Addition(), sketch.add(Multiplication(), scores, sketch.number(2)), sketch.input(7, 7))
    sketch.output(sketch.add(BatchMatMul(), sketch.add(Softmax(), scores), value))

    sketch.check()
    assert "Softmax" not in sketch.steps(profile)


@pytest.mark.parametrize("queries", [2, 20])
@pytest.mark.parametrize("guarded", [False, True])
def test_rows_that_are_masked_out_give_nan_or_zeros_like_their_layers(queries: int, guarded: bool) -> None:
    sketch = Sketch()
    query, key, value = sketch.input(2, 3, queries, 8), sketch.input(2, 3, 9, 8), sketch.input(2, 3, 9, 8)
    shown = sketch.rng.random((2, 1, queries, 9)) < 0.5
    shown[0, 0, 0] = False
    shown[1, 0, 1] = False
    scores = sketch.add(BatchMatMul(transpose_y=True), query, key)
    scores = sketch.add(Where(), sketch.constant(shown), scores, sketch.number(-np.inf))
    soft = sketch.add(Softmax(), scores)
    if guarded:
        soft = sketch.add(Where(), sketch.unary(UnaryOperation.IS_NAN, soft), sketch.number(0), soft)
    sketch.output(sketch.add(BatchMatMul(), soft, value))

    sketch.check()


ATTENTION_MISSES = ["other axis", "scores are read", "scale after mask", "mask per query of scores", "two numbers"]


@pytest.mark.parametrize("case", ATTENTION_MISSES)
def test_what_only_resembles_attention_keeps_its_meaning(case: str) -> None:
    sketch = Sketch()
    query, key, value = (sketch.input(2, 3, 6, 6) for _ in range(3))
    scores = product = sketch.add(BatchMatMul(transpose_y=True), query, key)
    if case == "scale after mask":
        scores = sketch.add(Multiplication(), sketch.add(Addition(), scores, sketch.input(6, 6)), sketch.number(0.5))
    elif case == "mask per query of scores":
        scores = sketch.add(Multiplication(), scores, sketch.input(6, 1))
    elif case == "two numbers":
        scores = sketch.add(
            Where(), sketch.input(6, 6, bools=True), scores, sketch.constant(np.float32([1, 2, 3, 4, 5, 6]))
        )
    soft = sketch.add(Softmax(axis=-2 if case == "other axis" else -1), scores)
    outputs = [sketch.add(BatchMatMul(), soft, value)]
    sketch.output(*outputs, *([product] if case == "scores are read" else ()))

    sketch.check()


def test_a_normalization_with_casts_of_half_precision_gives_what_the_reference_gives() -> None:
    network = ip.Network("halves")
    x = network.add_input_layer(0, TensorInfo((3, 40), ip.DataType.FLOAT16), name="x")
    wide = network.add_layer(Cast(dtype=ip.DataType.FLOAT32), x)
    mean = network.add_layer(Mean(axis=(1,), keep_dims=True), network.add_layer(Multiplication(), wide, wide))
    shifted = network.add_layer(Addition(), mean, network.add_constant_layer(np.float32(1e-5)))
    root = network.add_layer(ElementwiseUnary(operation=UnaryOperation.RSQRT), shifted)
    narrow = network.add_layer(Cast(dtype=ip.DataType.FLOAT16), network.add_layer(Multiplication(), wide, root))
    weight = network.add_constant_layer(np.linspace(0.5, 2, 40).astype(np.float16))
    network.add_output_layer(0, network.add_layer(Multiplication(), weight, narrow))
    array = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float16)
    result, expected = ip.load(network, ["CpuAcc"]).run([array])[0], reference_results(network, [array])[0]
    np.testing.assert_allclose(result.astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=1e-4)


def test_the_layers_of_normalizations_are_exact() -> None:
    sketch = Sketch()
    x = sketch.input(4, 7, 30)
    sketch.output(
        sketch.add(RmsNormalization(eps=1e-3), x, sketch.input(30)),
        sketch.add(LayerNormalization(eps=1e-3), x, sketch.input(30), sketch.input(30)),
    )

    sketch.check()


# ---- Caches ---------------------------------------------------------------------------------------------------------


def attend(sketch: Sketch, query: object, key: object, value: object) -> object:
    scores = sketch.add(Multiplication(), sketch.add(BatchMatMul(transpose_y=True), query, key), sketch.number(0.4))
    return sketch.add(BatchMatMul(), sketch.add(Softmax(), scores), value)


@pytest.mark.parametrize(
    ("batch", "groups", "size", "values"), [(1, 1, 8, 8), (2, 3, 20, 17), (3, 2, 33, 64), (2, 2, 1, 1)]
)
@pytest.mark.parametrize(("past", "new"), [(1, 1), (15, 1), (16, 2), (17, 8), (31, 3), (5, 20)])
def test_present_keys_and_values_are_written_where_they_are_read(
    batch: int, groups: int, size: int, values: int, past: int, new: int, profile: Callable[[ip.Network], str]
) -> None:
    sketch = Sketch()
    key, value = (
        sketch.add(
            Concat(axis=-2), sketch.input(batch, groups, past, width), heads_of(sketch, batch, groups, new, width)
        )
        for width in (size, values)
    )
    sketch.output(attend(sketch, sketch.input(batch, groups, new, size), key, value), key, value)

    sketch.check()
    if new <= 8 and size > 1:
        assert "Concat" not in sketch.steps(profile)


@pytest.mark.parametrize("shared", [(True, True), (True, False)])
@pytest.mark.parametrize("new", [1, 2, 8])
def test_heads_that_share_new_rows_keep_caches_of_their_own(shared: tuple[bool, bool], new: int) -> None:
    sketch = Sketch()
    caches = []
    for is_shared in shared:
        rows = sketch.input(1, 1 if is_shared else 4, new, 8)
        if is_shared:
            rows = sketch.add(BroadcastTo(shape=(1, 4, new, 8)), rows)
        caches.append(sketch.add(Concat(axis=2), sketch.input(1, 4, 6, 8), rows))
    sketch.output(attend(sketch, sketch.input(1, 4, new, 8), *caches), *caches)

    sketch.check()


CACHE_MISSES = [
    "one tensor",
    "query is the cache",
    "read elsewhere",
    "only keys",
    "other axis",
    "reversed",
    "three parts",
]


@pytest.mark.parametrize("case", CACHE_MISSES)
def test_what_only_resembles_a_cache_keeps_its_meaning(case: str) -> None:
    sketch = Sketch()
    past, new = (2, 3, 6, 8), (2, 3, 2, 8)

    def cache() -> object:
        if case == "other axis":
            return sketch.add(Concat(axis=1), sketch.input(2, 1, 8, 8), sketch.input(2, 2, 8, 8))
        parts = [sketch.input(*past), sketch.input(*new)]
        if case == "reversed":
            parts.reverse()
        if case == "three parts":
            parts.append(sketch.input(*new))
        return sketch.add(Concat(axis=2), *parts)

    key = cache()
    value = {"one tensor": key, "only keys": sketch.input(2, 3, 8, 8)}.get(case) or cache()
    query = key if case == "query is the cache" else sketch.input(2, 3, 2, 8)
    y = attend(sketch, query, key, value)
    outputs = [y, key, value]
    if case == "read elsewhere":
        outputs.append(sketch.add(Addition(), key, sketch.number(1)))
    if case == "only keys":
        outputs.pop()
    sketch.output(*outputs)

    sketch.check()


def test_a_query_that_depends_on_the_cache_is_computed_after_it() -> None:
    sketch = Sketch()
    key, value = (sketch.add(Concat(axis=2), sketch.input(1, 2, 6, 8), sketch.input(1, 2, 2, 8)) for _ in range(2))
    first = attend(sketch, sketch.input(1, 2, 2, 8), key, value)
    sketch.output(attend(sketch, sketch.add(Addition(), first, sketch.number(1)), key, value), key, value)

    sketch.check()


def test_a_large_cache_is_copied_without_an_error() -> None:
    sketch = Sketch()
    key, value = (sketch.add(Concat(axis=2), sketch.input(2, 4, 4100, 64), sketch.input(2, 4, 1, 64)) for _ in range(2))
    sketch.output(attend(sketch, sketch.input(2, 4, 1, 64), key, value), key, value)

    sketch.check()
