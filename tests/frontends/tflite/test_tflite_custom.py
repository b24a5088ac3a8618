"""Custom operators of TFLite files: built-in ones, those of users, stand-ins, and their options."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from interposer import load, ops
from interposer.core.errors import (
    DamagedFileError,
    InvalidArgumentError,
    ParseError,
    UnsupportedLayerError,
    UnsupportedOperatorError,
)
from interposer.frontends import tflite
from interposer.frontends.tflite.flexbuffer import decoded

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from flatbuffers import flexbuffers

from tests.frontends.tflite.build import code, encode, operator, tensor

DETECTION = {
    "max_detections": 3, "max_classes_per_detection": 1, "detections_per_class": 2, "use_regular_nms": False,
    "nms_score_threshold": 0.1, "nms_iou_threshold": 0.5, "num_classes": 2, "y_scale": 10.0, "x_scale": 10.0,
    "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip


def custom(
    name: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], options: Any = None, count: int = 1
) -> bytes:
    """Return a file with `count` custom operators of the same name, all with the same inputs and outputs of their own.

    Options are bytes, or values that are encoded as a FlexBuffer.
    """
    raw = options if isinstance(options, bytes) else b"" if options is None else bytes(flexbuffers.Dumps(options))
    places, tensors, operators = list(range(len(inputs))), list(inputs), []
    for _ in range(count):
        results = list(range(len(tensors), len(tensors) + len(outputs)))
        tensors += outputs
        operators.append(operator(places, results, opcode_index=0, custom_options=raw))
    graph = {"tensors": tensors, "inputs": places, "outputs": results, "operators": operators}
    codes = [code("CUSTOM", custom_code=name)]
    return encode({"version": 3, "operator_codes": codes, "buffers": [{}], "subgraphs": [graph]})


def detection(options: dict[str, Any], dtype: str = "float32") -> bytes:
    scaled = {} if dtype == "float32" else {"quantization": {"scale": [0.0625], "zero_point": [16]}}
    shapes = {"boxes": [1, 4, 4], "scores": [1, 4, 3], "anchors": [4, 4]}
    inputs = [tensor(name, shape, dtype, **scaled) for name, shape in shapes.items()]
    rows = options["max_detections"] * options["max_classes_per_detection"]
    outputs = [tensor("b", [1, rows, 4]), tensor("c", [1, rows]), tensor("s", [1, rows]), tensor("n", [1])]
    return custom("TFLite_Detection_PostProcess", inputs, outputs, options)


ANCHORS = np.float32([[0.5, 0.5, 1, 1], [0.5, 0.5, 1, 0.75], [2, 2, 1, 1], [4, 4, 1, 1]])
SCORES = np.float32([[[0, 0.25, 0.5], [0, 0.75, 0.5], [0, 0.5, 0.25], [0, 0, 0]]])


def test_detections_are_selected_from_boxes_and_anchors():
    boxes, classes, scores, count = load(detection(DETECTION), ["CpuRef"]).run([np.zeros((1, 4, 4)), SCORES, ANCHORS])
    assert boxes[0].tolist() == [[0, 0.125, 1, 0.875], [1.5, 1.5, 2.5, 2.5], [0, 0, 0, 0]]
    assert (classes.tolist(), scores.tolist(), count.tolist()) == ([[0, 0, 0]], [[0.75, 0.5, 0]], [2])


def test_quantized_boxes_scores_and_anchors_are_dequantized():
    quantized = [np.uint8(array / 0.0625 + 16) for array in (np.zeros((1, 4, 4)), SCORES, ANCHORS)]
    boxes, _, scores, count = load(detection(DETECTION, "uint8"), ["CpuRef"]).run(quantized)
    assert boxes[0, :2].tolist() == [[0, 0.125, 1, 0.875], [1.5, 1.5, 2.5, 2.5]]
    assert (scores.tolist(), count.tolist()) == ([[0.75, 0.5, 0]], [2])


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("most_classes", [1, 2])
def test_detections_are_those_of_litert(regular, most_classes):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    options = DETECTION | {"use_regular_nms": regular, "max_classes_per_detection": 1 if regular else most_classes}
    data, numbers = detection(options), np.random.default_rng(1)
    for _ in range(5):
        inputs = [
            numbers.normal(size=(1, 4, 4)), numbers.uniform(size=(1, 4, 3)), numbers.uniform(0.5, 2, size=(4, 4)),
        ]  # fmt: skip
        arrays = [np.float32(array) for array in inputs]
        interpreter = litert.Interpreter(model_content=data)
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        expected = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
        result = load(data, ["CpuRef"]).run(arrays)
        count = int(expected[3][0])
        for actual, reference in zip(result[:3], expected[:3], strict=True):
            np.testing.assert_allclose(actual[:, :count], reference[:, :count], rtol=1e-5, atol=1e-6)
        assert result[3].tolist() == expected[3].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_classes": 7}, "input 1 has 3 classes; expected 7, or 8 with the background"),
        ({"max_detections": "many"}, "the option max_detections is 'many'; expected a number"),
        ({"y_scale": None}, "the option y_scale is missing"),
    ],
)
def test_options_that_do_not_fit_are_named(change, message):
    data = detection(DETECTION)
    raw = bytes(flexbuffers.Dumps(DETECTION | change))
    inputs = [tensor("boxes", [1, 4, 4]), tensor("scores", [1, 4, 3]), tensor("anchors", [4, 4])]
    outputs = [tensor(name, [1]) for name in "bcsn"]
    data = custom("TFLite_Detection_PostProcess", inputs, outputs, raw)
    with pytest.raises(ParseError) as caught:
        tflite.load(data)
    assert str(caught.value) == f"operators[0] TFLite_Detection_PostProcess: {message}"


def test_a_spectrogram_has_the_energy_of_each_frequency():
    outputs = [tensor("y", [1, 3, 5])]
    data = custom("AudioSpectrogram", [tensor("x", [14, 1])], outputs, {"window_size": 6, "stride": 4})
    x = np.sin(np.arange(14)).astype(np.float32).reshape(14, 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(6) / 6)
    expected = [np.abs(np.fft.rfft(x[start : start + 6, 0] * window, 8)) for start in (0, 4, 8)]
    np.testing.assert_allclose(load(data, ["CpuRef"])(x), [expected], rtol=1e-4, atol=1e-6)


@tflite.operator("TimesOption")
def times_option(node: tflite.Node) -> Any:
    """Multiply by the option factor."""
    if node.options.get("fail"):
        raise KeyError("nothing")
    factor = node.constant(np.float32(node.option("factor", float)))
    return None if node.options.get("nothing") else node.result(ops.Multiplication(), node.input(0), factor)


def times(options: Any) -> bytes:
    return custom("TimesOption", [tensor("x", [2])], [tensor("y", [2])], options)


def test_a_user_s_operator_is_converted_with_its_options():
    assert load(times({"factor": 3}), ["CpuRef"])(np.float32([1, 2])).tolist() == [3, 6]


@tflite.operator("Halves")
def halves(node: tflite.Node) -> Any:
    """Split into two halves by the shared words, or by those of earlier versions."""
    if node.options.get("earlier"):
        return node.result(ops.Splitter(0, (1, 1)), node.input(0))
    return node.results(ops.Splitter(0, (1, 1)), node.value(0))


@pytest.mark.parametrize("options", [{}, {"earlier": True}])
def test_a_user_s_operator_may_have_several_outputs(options):
    data = custom("Halves", [tensor("x", [2])], [tensor("y", [1]), tensor("z", [1])], options)
    halves_of_x = load(data, ["CpuRef"])(np.float32([1, 2]))
    assert {name: half.tolist() for name, half in halves_of_x.items()} == {"y": [1], "z": [2]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "operators[0] TimesOption: the option factor is missing"),
        ({"fail": True}, "operators[0] TimesOption: its function failed (KeyError: 'nothing')"),
        (
            {"factor": 1, "nothing": True},
            "operators[0] TimesOption: its function returned None; expected a Value, or a sequence of such",
        ),
        (b"\x01\x02", "the file is truncated or damaged: 2 bytes are no FlexBuffer"),
    ],
)
def test_an_error_in_a_user_s_operator_names_the_place(options, message):
    with pytest.raises(ParseError) as caught:
        tflite.load(times(options))
    assert str(caught.value) == message


def test_an_operator_is_not_registered_twice():
    with pytest.raises(InvalidArgumentError, match="the custom operator TimesOption has two functions"):
        tflite.operator("TimesOption")(lambda node: node.input(0))
    with pytest.raises(InvalidArgumentError, match="the custom operator Mfcc is known already"):
        tflite.operator("Mfcc")(times_option)
    with pytest.raises(InvalidArgumentError, match="an operator's function must be callable, not 3"):
        tflite.operator("Other")(3)  # type: ignore[arg-type]


def test_missing_operators_are_listed_with_their_places():
    data = custom("Unheard", [tensor("x", [2])], [tensor("y", [2])], count=5)
    with pytest.raises(UnsupportedOperatorError) as caught:
        tflite.load(data)
    assert str(caught.value) == (
        "operators that are not supported:\n"
        "  - 5 x CUSTOM Unheard (operators[0], operators[1], operators[2] and 2 more)"
    )


def test_a_stand_in_takes_the_place_of_an_unknown_operator():
    data = custom("Unheard", [tensor("x", [2])], [tensor("y", [3], "int32")], {"size": 3, "mode": "a"})
    network = tflite.load(data, stand_in=True)
    expected = '%"Unheard:0:0" = StandIn(description="Unheard(mode=\'a\', size=3)") %x : int32[3] declared'
    assert str(network).splitlines()[2].strip() == f'{expected} from "operators[0] Unheard"'
    with pytest.raises(UnsupportedLayerError, match=r"can run layer 'Unheard:0:0' \(StandIn\)"):
        load(data, ["CpuRef"], stand_in=True)


@pytest.mark.parametrize(
    "value",
    [
        {}, {"a": 1, "b": [1, 2.5, "x", None, True], "c": {"d": -5}}, [1, 2, 3], ["a", "b"], [[1], [2]], 7, -300, 2.5,
        "text", True, None, b"\x00\x01", {"long": "x" * 300, "big": 1 << 40, "list": list(range(300))},
    ],
)  # fmt: skip
def test_a_flexbuffer_is_decoded(value):
    assert decoded(bytes(flexbuffers.Dumps(value))) == value


def test_damaged_flexbuffers_are_refused_without_another_exception():
    whole = bytes(flexbuffers.Dumps({"a": [1, 2.5, "x"], "b": {"c": b"yz", "d": [[1], [2]]}}))
    numbers = random.Random(0)
    for _ in range(2000):
        data = bytearray(whole[: numbers.randrange(3, len(whole) + 1)])
        for _ in range(numbers.randrange(1, 4)):
            data[numbers.randrange(len(data))] = numbers.randrange(256)
        try:
            decoded(bytes(data))
        except DamagedFileError:
            continue
