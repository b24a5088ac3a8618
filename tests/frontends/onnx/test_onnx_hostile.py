"""Models that lie: about sizes, about what they are, and about how much there is to compute."""

import random
import tracemalloc

import numpy as np
import pytest
from onnx import helper, numpy_helper

from interposer.core.errors import InterposerError, ParseError
from interposer.frontends.onnx import load
from tests.damage import damaged_variants
from tests.frontends.onnx.models import model, single

RNG = np.random.default_rng(12)
EXTREMES = [0, 1, -1, 3, -7, 65536, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
X = RNG.random((1, 4, 6, 6), np.float32)
SUBJECTS = [
    single(
        "Conv", X, RNG.random((8, 4, 3, 3), np.float32), strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], group=1
    ),
    single("ConvTranspose", X, RNG.random((4, 2, 3, 3), np.float32), output_padding=[0, 0], strides=[1, 1]),
    single("MaxPool", X, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 0, 0]),
    single("Resize", X, None, None, np.array([1, 4, 3, 9]), mode="linear"),
    single("Resize", X, None, np.float32([1, 1, 2, 2])),
    single("Slice", X, np.array([0, 1]), np.array([9, 5]), np.array([1, 3]), np.array([1, 2])),
    single("Pad", X, np.array([0, 0, 1, 1, 0, 0, 2, 2])),
    single("Reshape", X, np.array([0, -1, 9])),
    single("Expand", X, np.array([2, 1, 1, 1, 1])),
    single("Tile", X, np.array([1, 2, 1, 1])),
    single("Gather", X, np.array([[0, 1]]), axis=2),
    single("GatherND", X, np.array([[0, 1]])),
    single("Split", X, np.array([1, 3]), outputs=2, axis=1),
    single("Unsqueeze", X, np.array([0, 5])),
    single("Squeeze", X, np.array([0])),
    single("ReduceSum", X, np.array([1, 2])),
    single("Softmax", X, opset=11, axis=2),
    single("Gemm", X[0, 0], RNG.random((6, 3), np.float32), transB=0, alpha=1.0),
    single("QuantizeLinear", X, np.float32([0.1] * 4), np.uint8([1] * 4), axis=1),
    single("DepthToSpace", X, blocksize=2),
    single("LRN", X, size=3),
    model([helper.make_node("ConstantOfShape", ["s"], ["y"])], {}, constants={"s": np.array([2, 3])}),
    model([helper.make_node("Range", ["a", "b", "c"], ["y"])], {}, constants={"a": 1, "b": 9, "c": 2}),
]


def attempt(given):
    """Load a model; only our own errors may come out, and none that only says that something else went wrong."""
    try:
        load(given)
    except InterposerError as error:
        assert "cannot be converted" not in str(error), str(error)


def mutated(given, rng):
    """Return the model with an extreme number in an attribute, a constant, or a shape."""
    changed = type(given).FromString(given.SerializeToString())
    graph, number = changed.graph, rng.choice(EXTREMES)
    places = [("attribute", a) for a in graph.node[0].attribute] + [("constant", t) for t in graph.initializer]
    places += [("dims", t) for t in graph.initializer if t.dims]
    places += [("extent", d) for v in graph.input for d in v.type.tensor_type.shape.dim]
    kind, place = rng.choice(places)
    if kind == "attribute" and len(place.ints):
        place.ints[rng.randrange(len(place.ints))] = number
    elif kind == "attribute":
        place.i, place.f = number, rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e30])
    elif kind == "constant":
        array = np.array(numpy_helper.to_array(place))
        array.reshape(-1)[rng.randrange(array.size)] = np.array(number).astype(array.dtype)
        place.raw_data = array.tobytes()
    elif kind == "dims":
        place.dims[rng.randrange(len(place.dims))] = number
    else:
        place.dim_value = number
    return changed


@pytest.mark.parametrize("number", range(len(SUBJECTS)))
def test_extreme_numbers_are_taken_or_refused(number):
    rng = random.Random(number)
    load(SUBJECTS[number])
    for _ in range(60):
        attempt(mutated(SUBJECTS[number], rng))


@pytest.mark.parametrize("number", [0, 3, 5])
def test_damaged_bytes_are_taken_or_refused(number):
    for _, data in damaged_variants(SUBJECTS[number].SerializeToString(), 120, seed=5):
        attempt(data)


@pytest.mark.parametrize(
    "given",
    [
        model([helper.make_node("ConstantOfShape", ["s"], ["y"])], {}, constants={"s": np.array([1 << 20, 1 << 20])}),
        model(
            [helper.make_node("Expand", ["c", "s"], ["e"]), helper.make_node("Neg", ["e"], ["y"])],
            {},
            constants={"c": np.ones(1, np.float32), "s": np.array([1 << 16, 1 << 16])},
        ),
        model([helper.make_node("Tile", ["c", "s"], ["y"])], {}, constants={"c": np.ones(4), "s": np.array([1 << 30])}),
        model(
            [helper.make_node("Add", ["a", "b"], ["y"])],
            {},
            constants={"a": np.ones((30000, 1)), "b": np.ones((1, 30000))},
        ),
        model(
            [helper.make_node("Pad", ["c", "p"], ["y"])], {}, constants={"c": np.ones(4), "p": np.array([1 << 40, 0])}
        ),
    ],
)
def test_a_small_file_does_not_make_a_large_constant(given):
    tracemalloc.start()
    load(given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_many_constants_do_not_add_up():
    """Each one would be allowed by itself."""
    nodes = [helper.make_node("Tile", ["c", "s"], [f"t{i}"]) for i in range(40)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(40)], ["y"]))
    network = load(model(nodes, {}, constants={"c": np.ones(1, np.float32), "s": np.array([4 << 20])}))
    folded = [layer for layer in network if layer.kind == "Constant"]
    assert sum(layer.op.value.nbytes for layer in folded) < 80 << 20


def test_a_range_of_too_many_numbers_is_not_counted():
    constants = {"a": np.array(0), "b": np.array(2**60), "c": np.array(1)}
    with pytest.raises(ParseError, match=r"it counts 1.15292e\+18 numbers; 16777216 are the most"):
        load(model([helper.make_node("Range", ["a", "b", "c"], ["y"])], {}, constants=constants))


def test_a_long_chain_of_nodes_takes_no_recursion():
    nodes = [helper.make_node("Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(3000)]
    assert len(load(model(nodes, {"t0": (2,)}, ["t3000"]))) == 3002
    assert len(load(model(nodes[::-1], {"t0": (2,)}, ["t3000"]))) == 3002
