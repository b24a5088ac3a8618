"""`run(..., outputs=[names])`: any value of a network by name, on every path that a run can take."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Network, Runtime, TensorInfo
from interposer.backends.reference import ReferenceBackend
from interposer.core.errors import BindingError, ExecutionError, InvalidArgumentError
from interposer.ir.text import parse_graph
from interposer.session.placement import Plan
from tests.failing import Failing

pytestmark = pytest.mark.needs_cpuref

X = np.float32([[1, -2, 3, -4]])
W = np.arange(8, dtype=np.float32).reshape(4, 2) - 3


def chain(batch: Any = 1) -> Network:
    """x -> product -> shifted -> relu -> y, followed by a split."""
    return Network(
        graph=parse_graph(f"""graph "chain" {{
          %x = Input : float32[{batch}, 4]
          %w = Constant(value=float32[4, 2]{{-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0}})
          %product = BatchMatMul %x, %w
          %b = Constant(value=float32[2]{{0.5, -0.5}})
          %shifted = Addition %product, %b
          %relu = Activation(function=RELU) %shifted
          %halves:0, %halves:1 = Splitter(axis=1, sizes=(1, 1)) %relu
          Output %relu as "y"
          Output(binding_id=1) %halves:1 as "right"
        }}""")
    )


def expected(x: Any = X) -> dict[str, Any]:
    shifted = x @ W + np.float32([0.5, -0.5])
    relu = np.maximum(shifted, 0)
    return {
        "x": x, "w": W, "product": x @ W, "b": np.float32([0.5, -0.5]), "shifted": shifted, "relu": relu,
        "halves:0": relu[:, :1], "halves:1": relu[:, 1:], "y": relu, "right": relu[:, 1:],
    }  # fmt: skip


@pytest.fixture(params=[["CpuRef"], ["CpuAcc", "CpuRef"]], ids=["CpuRef", "CpuAcc"])
def backends(request: pytest.FixtureRequest) -> list[str]:
    if "CpuAcc" in request.param:
        request.getfixturevalue("cpuacc")
    ids: list[str] = request.param
    return ids


def test_every_value_of_a_network_can_be_asked_for(backends: list[str]) -> None:
    model = ip.load(chain(), backends)
    for name, value in expected().items():
        [output] = model.run([X], outputs=[name])
        np.testing.assert_allclose(output, value, rtol=1e-6, err_msg=name)


def test_several_values_come_in_the_order_of_their_names(backends: list[str]) -> None:
    model, names = ip.load(chain(), backends), ["right", "halves:0", "x", "w", "shifted", "y"]
    outputs = model.run([X], outputs=names)
    for name, array in zip(names, outputs, strict=True):
        np.testing.assert_allclose(array, expected()[name], rtol=1e-6, err_msg=name)


def test_values_lists_every_name_that_a_run_can_be_asked_for() -> None:
    model = ip.load(chain(), ["CpuRef"])
    assert list(model.values) == ["x", "w", "product", "b", "shifted", "relu", "halves:0", "halves:1", "y", "right"]
    assert model.values["product"] == TensorInfo((1, 2))
    outputs = model.run([X], outputs=list(model.values))
    assert [array.shape for array in outputs] == [tuple(info.shape) for info in model.values.values()]


def test_a_call_gives_a_mapping_for_a_list_of_names_and_an_array_for_one() -> None:
    model = ip.load(chain(), ["CpuRef"])
    result = model(X, outputs=["shifted", "product"])
    assert list(result) == ["shifted", "product"]
    np.testing.assert_array_equal(model(X, outputs="product"), X @ W)
    np.testing.assert_array_equal(model({"x": X}, outputs=("product",))["product"], X @ W)


def test_one_text_stands_for_a_list_of_one_name() -> None:
    [output] = ip.load(chain(), ["CpuRef"]).run([X], "shifted")
    np.testing.assert_allclose(output, expected()["shifted"])


def test_the_models_own_plan_is_not_changed(backends: list[str]) -> None:
    model = ip.load(chain(), backends)
    before, text = model.optimized, str(model.optimized)
    model.run([X], outputs=["product"])
    assert model.optimized is before
    assert str(model.optimized) == text
    np.testing.assert_allclose(model.run([X])[0], expected()["y"], rtol=1e-6)


def test_layers_that_are_not_needed_do_not_run() -> None:
    network = chain()
    model = ip.load(network, ["CpuRef"])
    model.run([X], outputs=["product"])
    [other] = model._relatives
    assert [layer.kind for layer in other.optimized.graph] == ["Input", "Constant", "BatchMatMul", "Output"]


def test_the_variant_for_a_set_of_names_is_made_once() -> None:
    model = ip.load(chain(), ["CpuRef"])
    for _ in range(3):
        model.run([X], outputs=["product"])
        model.run([X], outputs=["shifted"])
    assert len(list(model._relatives)) == 2


def test_only_the_last_eight_variants_are_kept_and_the_others_still_run() -> None:
    model = ip.load(chain(), ["CpuRef"])
    for name, value in [*expected().items()] * 2:
        np.testing.assert_allclose(
            model.run([X], outputs=["product", name] if name != "product" else [name])[-1], value
        )
    assert len(list(model._relatives)) == 8


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (["shiftet"], "outputs: the model has no value 'shiftet'; did you mean 'shifted'?"),
        (["zzz"], "outputs: the model has no value 'zzz'; Model.values lists all of them"),
        (["halves"], "outputs: layer 'halves' has 2 results; name one of them: 'halves:0', 'halves:1'"),
        (["halves:2"], "outputs: the model has no value 'halves:2'; did you mean 'halves:1'?"),
        (["product", "product"], "outputs: 'product' is named twice; name each value once"),
        (["product", X], "outputs are names of values or arrays to write to, not both: ndarray stands among names"),
        ([], "0 outputs were given; the model has 2 ('y', 'right')"),
        ({"product": X}, "the model has no output 'product'"),
    ],
)
def test_names_that_no_value_has_are_refused(outputs: Any, text: str) -> None:
    with pytest.raises(BindingError) as caught:
        ip.load(chain(), ["CpuRef"]).run([X], outputs=outputs)
    assert str(caught.value) == text


def test_a_call_refuses_arrays_as_outputs() -> None:
    with pytest.raises(BindingError) as caught:
        ip.load(chain(), ["CpuRef"])(X, outputs=[X])  # type: ignore[list-item]
    assert str(caught.value) == "a call takes names of values as outputs, not list; see Model.run"


def test_a_layer_with_one_result_may_be_numbered() -> None:
    [output] = ip.load(chain(), ["CpuRef"]).run([X], ["product:0"])
    np.testing.assert_array_equal(output, X @ W)


def test_shapes_that_differ_by_call_give_values_of_their_shapes(backends: list[str]) -> None:
    model = ip.load(chain("batch"), backends)
    assert model.values["product"].shape.rank == 2
    for count in (1, 5, 2, 5):
        x = np.resize(X, (count, 4)).astype(np.float32)
        shifted, right = model.run([x], outputs=["shifted", "right"])
        np.testing.assert_allclose(shifted, expected(x)["shifted"], rtol=1e-6)
        np.testing.assert_allclose(right, expected(x)["right"], rtol=1e-6)


def test_a_future_of_some_outputs_loads_no_other_network(backends: list[str]) -> None:
    model = ip.load(chain(), backends)
    loaded = model.runtime.loaded_networks
    for names in (["right"], ["right", "y"]):
        result = model.submit([X], names).result()
        for name, array in zip(names, result, strict=True):
            np.testing.assert_allclose(array, expected()[name], rtol=1e-6)
    assert model.runtime.loaded_networks == loaded


def test_inputs_may_be_named_imported_or_submitted(backends: list[str]) -> None:
    model = ip.load(chain(), backends)
    requested = expected()["shifted"]
    np.testing.assert_allclose(model.run(x=X, outputs=["shifted"])[0], requested, rtol=1e-6)
    np.testing.assert_allclose(model.submit([X], ["shifted"]).result()[0], requested, rtol=1e-6)
    np.testing.assert_allclose(asyncio.run(model.run_async(x=X, outputs="shifted"))[0], requested, rtol=1e-6)
    with model.import_inputs([X.copy()]) as taken:
        np.testing.assert_allclose(model.run(taken, ["shifted"])[0], requested, rtol=1e-6)
    np.testing.assert_allclose(model.run([X], ["shifted"], deadline=60.0)[0], requested, rtol=1e-6)


def test_threads_may_ask_for_different_values_at_the_same_time(backends: list[str]) -> None:
    model, errors = ip.load(chain("n"), backends), list[str]()

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(30):
            x = random.normal(size=(int(random.integers(1, 4)), 4)).astype(np.float32)
            names = list(random.permutation(list(expected()))[: int(random.integers(1, 4))])
            for name, result in zip(names, model.run([x], [*map(str, names)]), strict=True):
                if not np.allclose(result, expected(x)[str(name)], rtol=1e-4, atol=1e-5):
                    errors.append(str(name))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_closed_model_gives_no_values() -> None:
    model = ip.load(chain(), ["CpuRef"])
    model.run([X], ["product"])
    [other] = model._relatives
    model.close()
    for closed in (model, other):
        with pytest.raises(InvalidArgumentError, match="is closed"):
            closed.run([X], ["product"])


def test_values_inside_a_region_are_refused() -> None:
    network = Network(
        graph=parse_graph("""graph "choice" {
          %c = Input : bool[]
          %x = Input(binding_id=1) : float32[2]
          %if = If %c, %x {
            graph {
              %a = Input
              %inner = Addition %a, %a
              Output %inner as "twice"
            }
            graph {
              %a = Input
              Output %a as "same"
            }
          }
          %more = Addition %if, %x
          Output %more as "y"
        }""")
    )
    model = ip.load(network, ["CpuRef"])
    assert "inner" not in model.values
    np.testing.assert_array_equal(model.run([np.True_, np.float32([1, 2])], ["if"])[0], [2, 4])
    with pytest.raises(BindingError) as caught:
        model.run([np.True_, np.float32([1, 2])], ["inner"])
    assert str(caught.value) == (
        "outputs: the value 'inner' is inside the region 'then' of layer 'if' (If), where it may exist many times or "
        "not at all in a run; only values outside of regions can be asked for"
    )


def test_a_measured_plan_is_followed_for_values_too() -> None:
    plan = Plan("chain", ("CpuRef",), {"product": "CpuRef", "relu": "CpuRef"})
    model = ip.load(chain(), plan=plan)
    np.testing.assert_allclose(model.run([X], ["shifted"])[0], expected()["shifted"])
    [other] = model._relatives
    assert other.plan == plan


def test_auto_measures_once_and_gives_values() -> None:
    model = ip.load(chain(), "auto", options=ip.OptimizerOptions(budget_seconds=0.1))
    np.testing.assert_allclose(model.run([X], ["shifted"])[0], expected()["shifted"], rtol=1e-5)
    [other] = model._relatives
    assert other.plan is not None
    assert model.plan is not None
    assert other.plan.chosen == model.plan.chosen


def test_a_backend_that_fails_on_the_way_to_a_value_is_done_without() -> None:
    with Runtime() as runtime:
        failing = Failing(ReferenceBackend, "F", 2)
        runtime.registry.register("F", lambda: failing)
        model = ip.load(chain("n"), ["F", "CpuRef"], runtime=runtime)
        for _ in range(6):
            np.testing.assert_allclose(model.run([X], ["shifted"])[0], expected()["shifted"])
        assert [event.backend for event in model.events] == ["F"]
        np.testing.assert_allclose(model.run([X])[0], expected()["y"])


def test_what_a_model_does_without_its_values_do_without_too() -> None:
    with Runtime() as runtime:
        failing = Failing(ReferenceBackend, "F", 1)
        runtime.registry.register("F", lambda: failing)
        model = ip.load(chain(), ["F", "CpuRef"], runtime=runtime)
        model.run([X])
        assert [event.backend for event in model.events] == ["F"]
        np.testing.assert_allclose(model.run([X], ["shifted"])[0], expected()["shifted"])
        assert [event.backend for event in model.events] == ["F"]


def test_without_fallback_a_failure_is_raised_for_values_too() -> None:
    with Runtime() as runtime:
        failing = Failing(ReferenceBackend, "F", 1)
        runtime.registry.register("F", lambda: failing)
        model = ip.load(chain(), ["F", "CpuRef"], runtime=runtime, fallback=False)
        with pytest.raises(ExecutionError, match="out of sorts"):
            model.run([X], ["shifted"])


@pytest.mark.slow
def test_a_backend_in_a_process_of_its_own_gives_values_too() -> None:
    with Runtime(CreationOptions(isolate={"CpuRef"})) as runtime:
        model = ip.load(chain(), ["CpuRef"], runtime=runtime)
        for name, array in zip(expected(), model.run([X], list(expected())), strict=True):
            np.testing.assert_allclose(array, expected()[name], err_msg=name)


# --- names of files ---------------------------------------------------------------------------------------------------


def onnx_chain() -> Any:
    helper = pytest.importorskip("onnx.helper")
    from onnx import TensorProto, numpy_helper

    nodes = [
        helper.make_node("Shape", ["image"], ["size"], name="asks"),
        helper.make_node("Conv", ["image", "kernel"], ["features"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["active"]),
        helper.make_node("Identity", ["active"], ["same"]),
        helper.make_node("Split", ["same"], ["low", "high"], name="divide", axis=1, num_outputs=2),
        helper.make_node("Concat", ["one", "minus"], ["size2"], axis=0),
        helper.make_node("Reshape", ["low", "size2"], ["flat"]),
        helper.make_node("Add", ["flat", "flat"], ["y"], name="features"),
    ]
    kernel = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    constants = {"kernel": kernel, "one": np.int64([1]), "minus": np.int64([-1])}
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


IMAGE = np.random.default_rng(1).normal(size=(1, 3, 5, 5)).astype(np.float32)


def test_values_of_onnx_models_have_the_names_of_the_file(backends: list[str]) -> None:
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    proto = onnx_chain()
    names = ["features", "active", "same", "low", "high", "size2", "flat", "y", "kernel", "image"]
    requested = evaluator(proto).run(names[:-2], {"image": IMAGE})
    model = ip.load(proto, backends)
    assert set(names) <= model.values.keys()
    for name, result, value in zip(names, model.run([IMAGE], names), [*requested, None, None], strict=True):
        if value is not None:
            np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(model.run([IMAGE], ["conv"])[0], requested[0], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("cpuacc")
def test_values_of_a_network_from_the_cache_have_the_names_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_chain().SerializeToString())
    first = ip.load(path).run([IMAGE], ["features", "y"])
    for _ in range(2):
        for result, again in zip(first, ip.load(path).run([IMAGE], ["features", "y"]), strict=True):
            np.testing.assert_array_equal(again, result)


def test_a_model_that_depends_on_values_of_inputs_gives_inner_values() -> None:
    helper = pytest.importorskip("onnx.helper")
    from onnx import TensorProto

    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["shaped"]),
        helper.make_node("ReduceSum", ["shaped", "axes"], ["sums"], keepdims=0),
        helper.make_node("Neg", ["sums"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("axes", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = ip.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), ["CpuRef"])
    x = np.arange(12, dtype=np.float32)
    with pytest.raises(InvalidArgumentError, match="run the model once, or load it with values"):
        model.values  # noqa: B018
    for shape, axis in (([3, 4], 0), ([2, 6], 1), ([3, 4], 1)):
        inputs = [x, np.int64(shape), np.int64([axis])]
        shaped, sums = model.run(inputs, ["shaped", "sums"])
        np.testing.assert_array_equal(shaped, x.reshape(shape))
        np.testing.assert_array_equal(sums, x.reshape(shape).sum(axis))
    model.run(inputs)
    assert "shaped" in model.values
    with pytest.raises(BindingError, match="the model has no value 'sumz'; did you mean 'sums'"):
        model.run(inputs, ["sumz"])
