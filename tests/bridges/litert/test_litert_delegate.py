"""LiteRT's interpreter with the delegate: what backends take, and that it computes what `load` computes."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import interposer as ip
from examples.compute_backend import TinyBackend
from interposer.frontends import tflite
from interposer.writers import tflite as writer
from tests.bridges.litert.hosting import (
    FILES,
    Interpreter,
    delegate,
    interpreter,
    last_report,
    library,
    load_delegate,
    perceptron,
    random_feeds,
    registered,
    reports,
    run,
)  # fmt: skip
from tests.frontends.tflite.build import convolution_model, encode
from tests.frontends.tflite.cases.all_cases import CASES
from tests.frontends.tflite.cases.comparison import difference, parts
from tests.frontends.tflite.one_operator import T, one_model, one_operator
from tests.parameters import one_in

LARGE = 1_000_000


# --- the same results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [
    pytest.param(file, marks=[pytest.mark.slow] if file.stat().st_size > LARGE else []) for file in FILES
], ids=lambda path: path.stem)  # fmt: skip
def test_a_real_model_gives_what_load_gives_and_runs_without_python(path):
    hosted = interpreter(path, [delegate(backends="CpuAcc")])
    feeds = random_feeds(hosted)
    found, wanted = run(hosted, feeds), ip.load(path, ["CpuAcc", "CpuRef"]).run(feeds)
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    report = last_report()
    assert len(report.taken) == len(report.nodes)
    assert [part.counters()[:2] for part in report.parts] == [(1, 1)]


EVERYTHING = {"backends": "CpuAcc,CpuRef", "min_nodes": "1"}


def outcome(case, taker):
    """Return what is wrong with a case in the interpreter with a delegate; an empty text if nothing is."""
    try:
        hosted = interpreter(case.file(), [taker])
    except (ValueError, RuntimeError) as error:  # LiteRT has not all operators
        return "" if "Interposer" not in str(error) else str(error)
    found = run(hosted, case.feeds())
    if not last_report().taken:
        return ""
    wanted = ip.load(case.file(), ["CpuAcc", "CpuRef"]).run([parts(feed) for feed in case.feeds()])
    return difference(wanted, [parts(output) for output in found], 0)


@pytest.mark.needs_cpuref
@pytest.mark.parametrize(
    "case",
    one_in(12, [case for case in CASES if not case.crashes_litert and case.operator != "WHERE"]),
    ids=lambda case: case.id,
)
def test_an_operator_gives_what_load_gives(case):
    assert outcome(case, delegate(**EVERYTHING)) == ""


# --- parts ------------------------------------------------------------------------------------------------------------


def test_what_a_backend_refuses_is_left_to_the_host_between_two_parts():
    content = perceptron()
    with registered("Tiny", TinyBackend):
        hosted = interpreter(content, [delegate(backends="Tiny", min_nodes="1")])
        feeds = random_feeds(hosted)
        np.testing.assert_allclose(run(hosted, feeds)[0], run(interpreter(content), feeds)[0], rtol=1e-5, atol=1e-6)
        report = last_report()
        assert [node.kind for node in report.refused] == ["SOFTMAX"]
        assert report.refused[0].reasons == ("Tiny: no kernel for Softmax",)
        assert [(part.count, part.backends, part.counters()[0]) for part in report.parts] == [
            (2, ("Tiny",), 1), (1, ("Tiny",), 1),
        ]  # fmt: skip


def test_small_parts_without_arithmetic_are_left_to_the_host():
    file = one_operator("SOFTMAX", [T((2, 3))], [T((2, 3))], ("SoftmaxOptions", {"beta": 1.0}))
    interpreter(file, [delegate(backends="CpuAcc", min_nodes="2")])
    assert last_report().refused[0].reasons == ("its group has 1 node, fewer than min-nodes=2",)


def test_a_report_names_the_nodes_and_tensors_of_the_host():
    interpreter(encode(convolution_model()), [delegate(backends="CpuAcc")])
    assert [node.name for node in last_report().nodes] == ["CONV_2D 0 (y)", "RESHAPE 1 (z)"]


def test_strict_refuses_a_model_of_which_a_node_is_left():
    with registered("Tiny", TinyBackend):
        taker = delegate(backends="Tiny", strict="true")
        with pytest.raises(RuntimeError, match="the option 'strict' is set, and 1 of 4 nodes are not taken"):
            interpreter(perceptron(), [taker])


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_inputs_can_be_resized_forth_and_back():
    content = perceptron(softmax=False)
    hosted, plain = interpreter(content, [delegate(backends="CpuAcc")]), interpreter(content)
    for batch in (5, 1, 2, 5):
        for each in (hosted, plain):
            each.resize_tensor_input(each.get_input_details()[0]["index"], [batch, 8])
            each.allocate_tensors()
        feeds = random_feeds(plain, batch)
        np.testing.assert_allclose(run(hosted, feeds)[0], run(plain, feeds)[0], rtol=1e-5, atol=1e-6)
    assert last_report().parts[0].counters()[:2] == (4, 4)


@pytest.mark.needs_cpuref
def test_a_result_whose_shape_depends_on_data_gets_its_memory_in_the_run():
    file = one_operator("UNIQUE", [T((6,))], [T((0,)), T((6,), "int32")], ("UniqueOptions", {"idx_out_type": 2}))
    hosted = interpreter(file, [delegate(**EVERYTHING)])
    assert len(last_report().taken) == 1
    for values in ([1, 2, 1, 1, 2, 3], [4, 4, 4, 4, 4, 4]):
        found = run(hosted, [np.float32(values)])
        assert found[0].tolist() == list(dict.fromkeys(map(float, values)))


# --- lives ------------------------------------------------------------------------------------------------------------


def test_one_delegate_serves_two_interpreters_and_may_be_dropped_before_them():
    taker = delegate(backends="CpuAcc")
    first, second = (interpreter(perceptron(widths), [taker]) for widths in ((8, 16, 16, 4), (4, 32, 32, 2)))
    del taker
    gc.collect()
    assert run(first, random_feeds(first))[0].shape == (2, 4)
    del first
    gc.collect()
    assert run(second, random_feeds(second))[0].shape == (2, 2)


def test_views_of_tensors_stay_valid_from_run_to_run():
    content = perceptron()
    hosted, plain = interpreter(content, [delegate(backends="CpuAcc")]), interpreter(content)
    feed = hosted.tensor(hosted.get_input_details()[0]["index"])
    for seed in range(3):
        feeds = random_feeds(plain, seed)
        feed()[...] = feeds[0]
        hosted.invoke()
        found = hosted.get_tensor(hosted.get_output_details()[0]["index"])
        np.testing.assert_allclose(found, run(plain, feeds)[0], rtol=1e-5, atol=1e-6)


def test_a_signature_runs_with_the_delegate():
    hosted = interpreter(perceptron(), [delegate(backends="CpuAcc")])
    feeds = random_feeds(hosted)
    (name,) = hosted.get_signature_list()["serving_default"]["inputs"]
    (found,) = hosted.get_signature_runner()(**{name: feeds[0]}).values()
    assert np.array_equal(found, run(hosted, feeds)[0])


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="there is no option 'backend'; did you mean 'backends'"):
        load_delegate(library(), {"backend": "CpuAcc"})


def test_an_unknown_backend_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="CpuAc.*did you mean 'CpuAcc'"):
        delegate(backends="CpuAc")


@pytest.mark.needs_cpuref
def test_a_wrong_value_is_an_error_of_the_caller_and_the_next_run_is_right():
    table = T((3, 2), value=np.arange(6, dtype=np.float32).reshape(3, 2))
    file = one_operator("GATHER", [table, T((2,), "int32")], [T((2, 2))], ("GatherOptions", {}))
    hosted = interpreter(file, [delegate(**EVERYTHING)])
    with pytest.raises(RuntimeError, match="Interposer: .*7"):
        run(hosted, [np.int32([0, 7])])
    assert run(hosted, [np.int32([2, 0])])[0].tolist() == [[4, 5], [0, 1]]


def broken_custom_operator():
    """The file of a custom operator whose converter, which a user has written, has an error."""

    @tflite.operator("BridgesBroken")
    def broken(node):
        raise RuntimeError("this converter is broken")

    model = one_model("CUSTOM", [T((2,))], [T((2,))])
    model["operator_codes"][0]["custom_code"] = "BridgesBroken"
    return encode(model)


def test_an_operator_whose_converter_fails_is_left_to_the_host():
    content = broken_custom_operator()
    Interpreter(model_content=content, experimental_delegates=[delegate(backends="CpuAcc")])
    (node,) = last_report().refused
    assert node.reasons == (f"{node.name}: its function failed (RuntimeError: this converter is broken)",)
    with pytest.raises(RuntimeError, match="this converter is broken"):
        Interpreter(model_content=content, experimental_delegates=[delegate(backends="CpuAcc", strict="true")])


# --- beside other features of the host --------------------------------------------------------------------------------


def test_xnnpack_takes_what_is_left():
    content = perceptron()
    with registered("Tiny", TinyBackend):
        hosted = Interpreter(model_content=content, experimental_delegates=[delegate(backends="Tiny", min_nodes="1")])
        hosted.allocate_tensors()
        feeds = random_feeds(hosted)
        np.testing.assert_allclose(run(hosted, feeds)[0], run(interpreter(content), feeds)[0], rtol=1e-5, atol=1e-6)
        assert len(last_report().taken) == 3


def test_all_tensors_can_be_preserved():
    content = perceptron()
    hosted = interpreter(content, [delegate(backends="CpuAcc")], experimental_preserve_all_tensors=True)
    plain = interpreter(content, experimental_preserve_all_tensors=True)
    feeds = random_feeds(plain)
    np.testing.assert_allclose(run(hosted, feeds)[0], run(plain, feeds)[0], rtol=1e-5, atol=1e-6)


def test_two_delegates_share_a_graph():
    content = perceptron()
    with registered("Tiny", TinyBackend):
        takers = [delegate(backends="Tiny", min_nodes="1"), delegate(backends="CpuAcc", min_nodes="1")]
        hosted, plain = interpreter(content, takers), interpreter(content)
        feeds = random_feeds(plain)
        np.testing.assert_allclose(run(hosted, feeds)[0], run(plain, feeds)[0], rtol=1e-5, atol=1e-6)
        first, second = reports()[-2:]
        assert [node.kind for node in first.taken] == ["BATCH_MATMUL"] * 3
        assert [node.kind for node in second.taken] == ["SOFTMAX"]
        assert {node.reasons for node in second.refused} == {("another delegate has taken it",)}


def test_results_inside_a_part_and_repeated_outputs_can_be_outputs_of_the_graph():
    network = ip.Network("ends")
    x = network.add_input_layer(0, ip.TensorInfo((2, 4)), name="x")
    weights = network.add_constant_layer(np.eye(4, dtype=np.float32) * 3, name="w")
    product = network.add_batch_mat_mul_layer(x, weights, name="product")
    again = network.add_batch_mat_mul_layer(product, weights, name="again")
    for number, value in enumerate((product, again, product)):
        network.add_output_layer(number, value, name=f"y{number}")
    content = writer.write(network)
    hosted, plain = interpreter(content, [delegate(backends="CpuAcc")]), interpreter(content)
    feeds = random_feeds(plain)
    for found, wanted in zip(run(hosted, feeds), run(plain, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
