"""`load` and `Model`: names and orders, conversions, open shapes, limits, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import DataType, Limits, Network, Quantization, TensorInfo
from interposer.core.errors import (
    BackendUnavailableError,
    BindingError,
    InvalidArgumentError,
    LimitExceededError,
    ParseError,
    UnknownBackendError,
)

pytestmark = pytest.mark.needs_cpuref

X = np.float32([[1, 2, 3]])


def two_of_each() -> Network:
    network = Network("two")
    a = network.add_input_layer(0, TensorInfo((1, 3)), name="a")
    b = network.add_input_layer(1, TensorInfo((1, 3)), name="b")
    network.add_output_layer(0, network.add_addition_layer(a, b), name="sum")
    network.add_output_layer(1, network.add_subtraction_layer(a, b), name="difference")
    return network


def doubled(info: TensorInfo) -> Network:
    network = Network("doubled")
    x = network.add_input_layer(0, info, name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    return network


@pytest.fixture
def model() -> ip.Model:
    return ip.load(two_of_each(), ["CpuRef"])


def test_run_takes_and_gives_lists_in_the_models_order(model: ip.Model) -> None:
    total, difference = model.run([X, X * 2])
    np.testing.assert_array_equal(total, X * 3)
    np.testing.assert_array_equal(difference, -X)


def test_a_call_takes_and_gives_names(model: ip.Model) -> None:
    result = model({"b": X * 2, "a": X})
    assert list(result) == ["sum", "difference"]
    np.testing.assert_array_equal(result["difference"], -X)


def test_a_bare_array_stands_for_the_only_input_and_output() -> None:
    np.testing.assert_array_equal(ip.load(doubled(TensorInfo((1, 3))), ["CpuRef"])(X), X * 2)


def test_inputs_and_outputs_are_infos_by_name(model: ip.Model) -> None:
    assert model.inputs == {"a": TensorInfo((1, 3)), "b": TensorInfo((1, 3))}
    assert list(model.outputs) == ["sum", "difference"]


def test_lists_and_wider_floats_are_converted(model: ip.Model) -> None:
    np.testing.assert_array_equal(model.run([[[1, 2, 3]], X.astype(np.float64)])[0], X * 2)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([X], "1 inputs were given; the model has 2 ('a', 'b')"),
        ({"a": X}, "no array was given for 'b'"),
        ({"a": X, "bb": X}, "the model has no input 'bb'; did you mean 'b'?"),
        ([X, X[0]], "input 'b' has shape [3]; expected [1, 3]"),
        ([X, X.astype(complex)], "input 'b' is complex128; expected float32; convert it explicitly"),
        (X, "run takes a list of arrays or a mapping by name, not ndarray"),
    ],
)
def test_inputs_that_do_not_fit_are_named(model: ip.Model, inputs: object, text: str) -> None:
    with pytest.raises(BindingError) as caught:
        model.run(inputs)  # type: ignore[arg-type]
    assert str(caught.value) == text


def test_a_bare_array_for_the_only_input_is_answered_with_how_to_write_the_call() -> None:
    with pytest.raises(BindingError) as caught:
        ip.load(doubled(TensorInfo((1, 3))), ["CpuRef"]).run(X)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "run takes a list of arrays or a mapping by name, not ndarray; write run([array]), or call the model with the "
        "array"
    )


def test_floats_are_not_made_into_codes_silently() -> None:
    info = TensorInfo((2,), DataType.UINT8, Quantization(0.5, 3))
    network = Network("codes")
    network.add_output_layer(0, network.add_input_layer(0, info, name="x"))
    model = ip.load(network, ["CpuRef"])
    with pytest.raises(BindingError, match="input 'x' is float32; expected uint8"):
        model(np.float32([1, 2]))
    np.testing.assert_array_equal(model([1, 255]), np.uint8([1, 255]))
    with pytest.raises(
        BindingError, match=r"^input 'x' is int64 and holds 256 at \[1\]; expected uint8, whole numbers"
    ):
        model([1, 256])


def test_open_shapes_are_specialised_for_each_call_and_eight_variants_are_kept() -> None:
    model = ip.load(doubled(TensorInfo((None, 3))), ["CpuRef"], runtime=ip.Runtime())
    with pytest.raises(InvalidArgumentError, match=r"the shapes of 'x' \[\?, 3\] are not known yet"):
        model.explain()
    for rows in (*range(1, 11), 1):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(model(x), x * 2)
    assert len(model.runtime.loaded_networks) == 8
    assert len(model.explain().rows) == 1
    with pytest.raises(BindingError, match=r"input 'x' has shape \[2, 4\]; expected \[\?, 3\]"):
        model(np.ones((2, 4), np.float32))


def test_a_closed_model_says_so() -> None:
    with ip.load(doubled(TensorInfo((1, 3))), ["CpuRef"]) as model:
        model(X)
    with pytest.raises(InvalidArgumentError, match="the model 'doubled' is closed"):
        model(X)


def test_a_network_of_open_shapes_may_be_changed_after_it_was_loaded() -> None:
    network = doubled(TensorInfo((None, 3)))
    model = ip.load(network, ["CpuRef"])
    network.add_output_layer(1, network.add_input_layer(1, TensorInfo((2,)), name="later"))
    np.testing.assert_array_equal(model(X), X * 2)


def test_a_closed_model_cannot_explain_itself_either() -> None:
    model = ip.load(two_of_each(), ["CpuRef"])
    model.close()
    with pytest.raises(InvalidArgumentError, match="^the model 'two' is closed$"):
        model.explain()


def test_a_model_can_be_closed_again_and_after_its_runtime() -> None:
    runtime = ip.Runtime()
    model = ip.load(two_of_each(), ["CpuRef"], runtime=runtime)
    other = ip.load(two_of_each(), ["CpuRef"], runtime=runtime)
    model.close()
    model.close()
    runtime.close()
    other.close()
    assert runtime.loaded_networks == ()


def test_a_model_that_nobody_refers_to_is_unloaded_when_the_next_network_is_loaded() -> None:
    runtime = ip.Runtime()
    for _ in range(3):
        ip.load(two_of_each(), ["CpuRef"], runtime=runtime)
    model = ip.load(two_of_each(), ["CpuRef"], runtime=runtime)
    assert len(runtime.loaded_networks) == 1
    assert len(model.run([X, X])) == 2


def test_a_network_beyond_the_limits_is_refused_before_anything_runs() -> None:
    network = doubled(TensorInfo((1 << 20, 1 << 20)))
    with pytest.raises(LimitExceededError) as caught:
        ip.load(network, ["CpuRef"])
    assert str(caught.value) == (
        "the network needs 8,796,093,022,208 bytes of memory, but the limit is 17,179,869,184; "
        "raise it with load(..., limits=Limits(...)) if the file is trusted"
    )
    with pytest.raises(LimitExceededError, match="operations of arithmetic"):
        ip.load(doubled(TensorInfo((100,))), ["CpuRef"], limits=Limits(max_operations=10))


def test_unknown_and_absent_backends_are_told_apart() -> None:
    with pytest.raises(UnknownBackendError, match="unknown backend 'CpuReff'; did you mean 'CpuRef'?"):
        ip.load(two_of_each(), ["CpuReff"])
    runtime = ip.Runtime(ip.CreationOptions(disabled_backends=["CpuRef"]))
    with pytest.raises(BackendUnavailableError, match="CpuRef: it is disabled"):
        ip.load(two_of_each(), ["CpuRef"], runtime=runtime)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is empty"),
        (b"\x89PNG\r\n\x1a\n........", "the file is an image, not a model"),
    ],
)
def test_content_of_no_known_format_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(ParseError, match=text):
        ip.load(content)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ParseError, match=r"absent\.tflite: the file cannot be read: No such file"):
        ip.load(tmp_path / "absent.tflite")
    with pytest.raises(ParseError, match="the folder is empty"):
        ip.load(tmp_path)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"runtime": "mine"}, "the runtime must be a Runtime, not 'mine'"),
    ({"limits": 5}, "the limits must be Limits(...), not 5"),
    ({"shapes": [1, 3]}, "shapes must be a mapping from input's name to shape, not [1, 3]"),
    ({"backends": 5}, "backends are named by their ids, such as 'CpuRef', not by 5"),
    ({"format": 5}, "the format must be the name of one, not 5"),
    ({"options": True}, "the options must be OptimizerOptions(...), not True"),
])  # fmt: skip
def test_arguments_of_the_wrong_kind_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(two_of_each(), **arguments)
    assert str(caught.value) == message


def test_limits_are_numbers() -> None:
    with pytest.raises(InvalidArgumentError, match="max_bytes must be a number or None, not '16G'"):
        Limits(max_bytes="16G")  # type: ignore[arg-type]


def test_a_path_may_be_made_of_bytes(tmp_path: Path) -> None:
    class Place(os.PathLike[bytes]):
        def __fspath__(self) -> bytes:
            return os.fsencode(tmp_path / "net.onnx")

    with pytest.raises(ParseError, match="net.onnx: the file cannot be read: No such file or directory"):
        ip.load(Place())  # type: ignore[arg-type]


def test_a_path_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(ParseError, match="the file cannot be read: .*embedded null"):
        ip.load("a\0b.onnx")


# --- shapes for a network ---------------------------------------------------------------------------------------------


def named_rows() -> Network:
    network = Network("rows")
    a = network.add_input_layer(0, TensorInfo(("rows", 3)), name="a")
    b = network.add_input_layer(1, TensorInfo(("rows", 3)), name="b")
    network.add_output_layer(0, network.add_addition_layer(a, b), name="y")
    return network


@pytest.mark.parametrize("shapes", [{"rows": 2}, {"a": (2, 3)}, {"a": (None, 3), "rows": 2}])
def test_open_extents_of_a_network_are_bound_by_name_or_by_shape(shapes: dict[str, Any]) -> None:
    with ip.load(named_rows(), ["CpuRef"], shapes=shapes) as model:
        assert {name: info.shape for name, info in model.inputs.items()} == {"a": (2, 3), "b": (2, 3)}
        assert len(model.explain().rows) == 1


@pytest.mark.parametrize(("shapes", "message"), [
    ({"c": (2, 3)}, "shapes: the network has no input 'c' (it has: a, b)"),
    ({"row": 2}, "shapes: the network has no dimension 'row'; did you mean 'rows'? (it has: rows)"),
    ({"a": (2, 4, 1)}, "shapes: 'a' has the shape [rows, 3]; [2, 4, 1] was given, which has another rank"),
    ({"a": 2}, "shapes: 'a' is an input of the shape [rows, 3]; give all its dimensions, not 2"),
    ({"rows": -2}, "shapes: 'rows' is -2; expected 0 to 2147483647"),
    ({"a": (2, 3), "b": (4, 3)}, "shapes: 'rows' is both 2 and 4"),
    ({"a": "2x3"}, "shapes: 'a' is '2x3'; expected a shape, such as (1, 3, 8)"),
])  # fmt: skip
def test_shapes_that_a_network_cannot_have_are_refused(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(named_rows(), ["CpuRef"], shapes=shapes)
    assert str(caught.value) == message


def test_a_format_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown format 'onx'; did you mean 'onnx'?"):
        ip.load(b"abc", format="onx")
