"""Branches of an If that cannot be computed for the shapes at hand fail only when they are taken."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import interposer as ip
from interposer.core.errors import InvalidNetworkError, InvalidValueError, ParseError, UnwritableError
from interposer.core.types import DataType
from interposer.ops import Addition
from interposer.ops.control_flow import If
from interposer.session import read_network
from interposer.writers import onnx as onnx_writer
from interposer.writers import tflite as tflite_writer
from tests.backends.engines.adapters import installed

pytestmark = pytest.mark.needs_cpuref
X3, X5 = np.ones((2, 3), np.float32), np.ones((2, 5), np.float32)
YES, NO = np.array(True), np.array(False)


def graph(nodes, output, constants=(), inputs=(), name="graph"):
    initializers = [numpy_helper.from_array(array, key) for key, array in dict(constants).items()]
    return helper.make_graph(nodes, name, list(inputs), [helper.make_empty_tensor_value_info(output)], initializers)


def product(rows):
    node = helper.make_node("MatMul", ["x", f"w{rows}"], [f"p{rows}"], name=f"product{rows}")
    return graph([node], f"p{rows}", {f"w{rows}": np.ones((rows, 4), np.float32)}, name=f"rows of {rows}")


def chosen(shape, then, other):
    """Return a model that runs one of two branches on x, which is declared with this shape."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph([node], "y", inputs=inputs), opset_imports=imports, ir_version=9).SerializeToString()


def of_one_size(shape):
    """Return a model with one branch for rows of 3 elements, and another one for rows of 5."""
    return chosen(shape, product(3), product(5))


BACKENDS = [["CpuRef"], ["CpuAcc", "CpuRef"], *([engine, "CpuRef"] for engine in installed())]


@pytest.mark.parametrize("backends", BACKENDS, ids="+".join)
@pytest.mark.parametrize("shape", [["n", "k"], None, [None, None]], ids=["named", "unranked", "unnamed"])
def test_a_model_with_a_branch_for_each_size_runs_the_one_that_fits(shape, backends):
    with ip.load(of_one_size(shape), backends) as model:
        for x, condition in ((X3, YES), (X5, NO), (X3, YES)):
            assert model.run([x, condition])[0].tolist() == [[x.shape[1]] * 4] * 2
        with pytest.raises(
            InvalidValueError, match="in region 'else': it cannot be computed for these inputs: .*product5"
        ):
            model.run([X3, NO])
        assert model.run([X3, YES])[0].tolist() == [[3] * 4] * 2
        assert model.events == ()


def test_a_branch_that_never_fits_the_declared_shape_does_not_prevent_the_other_one():
    with ip.load(of_one_size([2, 3])) as model:
        assert model.run([X3, YES])[0].tolist() == [[3] * 4] * 2
        with pytest.raises(InvalidValueError, match=r"node 'product5' \(MatMul\): a of shape \[2, 3\] has rows of 3"):
            model.run([X3, NO])


def test_a_known_condition_leaves_the_branch_that_is_taken():
    with ip.load(of_one_size([2, 3]), values={"c": YES}) as model:
        assert model.run([X3])[0].tolist() == [[3] * 4] * 2
    with pytest.raises(ParseError, match="product5"):
        ip.load(of_one_size([2, 3]), values={"c": NO})


def test_an_if_without_any_branch_that_fits_is_refused():
    with pytest.raises(ParseError, match=r"node 'product5' \(MatMul\)"):
        ip.load(chosen([2, 3], product(5), product(7)))


def test_a_branch_that_violates_the_format_is_refused_for_any_shape():
    broken = graph([helper.make_node("Cast", ["x"], ["t"], name="broken")], "t")
    with pytest.raises(ParseError, match="node 'broken'"):
        ip.load(chosen([2, 3], product(3), broken))


def test_a_branch_in_a_loop_may_fail_in_all_iterations_that_do_not_take_it():
    add = helper.make_node("Add", ["v", "w"], ["a"])
    then = graph([helper.make_node("Add", ["v", "v"], ["d"])], "d")
    node = helper.make_node(
        "If", ["c"], ["o"], then_branch=then, else_branch=graph([add], "a", {"w": np.ones(7, np.float32)})
    )
    passed_on = helper.make_node("Identity", ["k"], ["l"])
    inputs = [helper.make_tensor_value_info(*item) for item in (
        ("i", TensorProto.INT64, []), ("k", TensorProto.BOOL, []), ("v", TensorProto.FLOAT, None)
    )]  # fmt: skip
    outputs = [helper.make_tensor_value_info("l", TensorProto.BOOL, []), helper.make_empty_tensor_value_info("o")]
    loop = helper.make_node(
        "Loop", ["m", "", "x"], ["y"], body=helper.make_graph([node, passed_on], "b", inputs, outputs)
    )
    inputs = [helper.make_tensor_value_info(*item) for item in (
        ("x", TensorProto.FLOAT, ["n", "k"]), ("c", TensorProto.BOOL, []), ("m", TensorProto.INT64, [])
    )]  # fmt: skip
    data = helper.make_model(
        graph([loop], "y", inputs=inputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    with ip.load(data) as model:
        assert model.run([X3, YES, np.array(3)])[0].tolist() == [[8] * 3] * 2
        with pytest.raises(InvalidValueError, match="iteration 0 of region 'body'"):
            model.run([X3, NO, np.array(3)])
        assert model.run([X3, NO, np.array(0)])[0].tolist() == X3.tolist()


def added(amounts):
    """Return a network whose branches add constants of different sizes to x."""
    network = ip.Network("added")
    regions = []
    for size in amounts:
        region = ip.Network(f"plus {size}")
        x = region.add_input_layer(0, None, name="x").output
        constant = region.add_constant_layer(np.ones(size, np.float32)).output
        region.add_output_layer(0, region.add_layer(Addition(), x, constant).output, name="sum")
        regions.append(region.graph)
    condition = network.add_input_layer(0, ip.TensorInfo((), DataType.BOOL), name="c").output
    x = network.add_input_layer(1, ip.TensorInfo(("n",), DataType.FLOAT32), name="x").output
    network.add_output_layer(0, network.add_layer(If(), condition, x, name="if", regions=regions).output, name="y")
    return network


def test_a_network_built_with_open_shapes_may_have_a_branch_for_each():
    with ip.load(added((3, 5))) as model:
        for size, condition in ((3, YES), (5, NO), (3, YES)):
            assert model.run([condition, np.ones(size, np.float32)])[0].tolist() == [2] * size
        with pytest.raises(InvalidNetworkError, match="region 'then'"):
            model.run([YES, np.ones(4, np.float32)])


def test_a_network_with_an_empty_branch_can_be_saved_and_printed_but_not_written(tmp_path):
    with ip.load(of_one_size([2, 3])) as model:
        model.save(tmp_path / "branch.ipn")
    with ip.load(tmp_path / "branch.ipn") as model:
        assert model.run([X3, YES])[0].tolist() == [[3] * 4] * 2
        with pytest.raises(InvalidValueError, match="product5"):
            model.run([X3, NO])
    network = read_network(of_one_size([2, 3]))
    with ip.load(ip.Network.parse(network.text())) as model:
        assert model.run([X3, YES])[0].tolist() == [[3] * 4] * 2
    for writer in (onnx_writer, tflite_writer):
        with pytest.raises(UnwritableError, match="its branch 'else' cannot be computed for the shapes of the network"):
            writer.write(network)
