"""Shapes and types that are inferred here are those that the package onnx infers, where both know them."""

import numpy as np
import onnx
import pytest
from onnx import helper, shape_inference

import interposer as ip
from interposer.core.errors import InterposerError
from interposer.core.types import Dim
from interposer.frontends.onnx import load
from interposer.frontends.onnx.tensors import data_type

EVERY = 17
"""One of how many cases is looked at unless all are."""


def cases():
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    models = [(case.name, case.model) for case in collect_testcases(None)]
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        models += [(case.name, onnx.load(f"{case.model_dir}/model.onnx")) for case in load_model_tests(kind=kind)]
    return models


def with_all_results(model):
    """Return the model with every result of a node as an output, so that its shape is reported."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    for name in (name for node in model.graph.node for name in node.output):
        if name and name not in known:
            wide.graph.output.add().name = name
            known.add(name)
    return wide


def with_named_dimensions(model):
    """The model with a name for every dimension of its inputs, one name for dimensions that are the same and not 1."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    for number, value in enumerate(named.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ()):
            dim.dim_param = f"same{dim.dim_value}" if dim.dim_value > 1 else f"input{number}axis{axis}"
    return named


def theirs(model):
    """What onnx infers of every value, without what the file says of its outputs."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.output[:]
    for output in model.graph.output:
        bare.graph.output.add().name = output.name
    try:
        inferred = shape_inference.infer_shapes(bare, strict_mode=False, data_prop=True)
    except Exception:  # it gives up on some models whose dimensions are not known
        return {}
    return {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.output)}


def ours(model):
    try:
        network = load(with_all_results(model))
    except InterposerError:
        return {}
    return {layer.name: layer.values[0].known for layer in network.graph.outputs}


def differences(model):
    params = (dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim)
    names = {name for name in params if name.startswith("same")}
    known = theirs(model)
    for name, info in ours(model).items():
        kind = known[name].tensor_type if name in known and known[name].HasField("tensor_type") else None
        if kind is None or not kind.elem_type:
            continue
        if data_type(kind.elem_type) is not info.dtype:
            yield f"{name}: {info}, but onnx has {data_type(kind.elem_type)}"
        elif kind.HasField("shape") and not agree(info.shape, kind.shape.dim, names):
            yield f"{name}: {info}, but onnx has {[dim.dim_value or dim.dim_param for dim in kind.shape.dim]}"


def agree(shape, dims, names):
    return len(shape) == len(dims) and all(same(size, dim, names) for size, dim in zip(shape, dims, strict=True))


def same(extent, dim, names):
    if isinstance(extent, Dim):
        both = extent.name in names and dim.dim_param in names
        return not both or extent.name == dim.dim_param
    return not dim.HasField("dim_value") or extent == dim.dim_value


def check(models, enough):
    answered = 0
    for name, model in models:
        result = list(differences(model))
        assert result == [], name
        answered += bool(ours(model))
    assert answered >= enough * len(models)


@pytest.mark.filterwarnings("ignore")
def test_types_and_shapes_are_those_that_onnx_infers():
    check(cases()[::EVERY], 0.75)


@pytest.mark.filterwarnings("ignore")
def test_so_they_are_where_extents_are_known_by_name_only():
    check([(name, with_named_dimensions(model)) for name, model in cases()[::EVERY]], 0.55)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_so_they_are_in_all_cases():
    check(cases(), 0.75)
    check([(name, with_named_dimensions(model)) for name, model in cases()], 0.55)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten_multiplies_dimensions_that_have_no_name(axis):
    """The dimensions of the sum of two tensors whose dimensions have other names are unknown and have no name."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Flatten", ["s"], ["z"], axis=axis)],
        "g",
        [helper.make_tensor_value_info(name, 1, [f"{name}0", f"{name}1", 4, f"{name}3"]) for name in "xy"],
        [helper.make_tensor_value_info("z", 1, None)],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    model = ip.load(file, shapes={"x": x.shape, "y": x.shape} if axis in (2, 3, -1) else None)
    (z,) = model.run({"x": x, "y": x})
    expected = (2 * x).reshape(int(np.prod(x.shape[:axis])), -1)
    np.testing.assert_array_equal(z, expected)
