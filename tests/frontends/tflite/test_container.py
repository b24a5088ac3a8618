from __future__ import annotations

import mmap
import random
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import ParseError
from interposer.formats.tflite.schema import SCHEMA
from interposer.frontends import flatbuffer
from interposer.frontends.tflite.container import Model, read_model
from interposer.frontends.tflite.contents import QuantizationParameters
from tests.damage import EXTREMES, damaged_variants

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.build import Shared, code, convolution_model, encode, operator, tensor

MODELS = Path(__file__).parents[4] / "shared" / "models"
REAL_FILES: list[Any] = sorted(MODELS.glob("*.tflite")) or [
    pytest.param(MODELS, marks=pytest.mark.skip(reason=f"no real models in {MODELS.parent.name}/{MODELS.name}"))
]

Change = Callable[[dict[str, Any]], Any]

DAMAGED = "the file is truncated or damaged: "


def refusal(data: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        read_model(data)
    return caught.value


def read(model: dict[str, Any]) -> Model:
    return read_model(encode(model))


def elementwise_model(**more: Any) -> dict[str, Any]:
    """One RELU from tensor 0 to tensor 1, to be changed."""
    graph = {
        "tensors": [tensor("x", [2]), tensor("y", [2])],
        "operators": [operator([0], [1])],
        "inputs": [0],
        "outputs": [1],
    }
    return {"version": 3, "operator_codes": [code("RELU")], "buffers": [{}], "subgraphs": [graph]} | more


def positions(record: Any) -> Iterator[int]:
    """Yield the positions of a table and of all tables in it."""
    if isinstance(record, flatbuffer.Record):
        yield record.position
        for value in record.fields.values():
            yield from positions(value)
    elif isinstance(record, tuple | list):
        for value in record:
            yield from positions(value)


class TestReading:
    def test_a_model_comes_back_as_it_was_written(self) -> None:
        model = read(convolution_model())
        [graph] = model.subgraphs
        assert (model.version, model.description) == (3, "made by hand")
        assert (graph.name, graph.inputs, graph.outputs) == ("main", (0,), (4,))
        assert [t.dtype for t in graph.tensors] == ["int8", "int8", "int32", "int8", "int8"]
        assert graph.tensors[0].shape == (1, 8, 8, 3)
        assert graph.tensors[0].shape_signature == (-1, 8, 8, 3)
        assert graph.tensors[1].quantization == QuantizationParameters((0.25, 0.125), (0, 0), axis=0)
        assert graph.tensors[3].quantization == QuantizationParameters((2.0,), (7,))
        assert [(o.name, o.version, o.inputs, o.outputs) for o in graph.operators] == [
            ("CONV_2D", 3, (0, 1, 2), (3,)),
            ("RESHAPE", 1, (3, -1), (4,)),
        ]
        assert [(m.name, m.buffer) for m in model.metadata] == [("min_runtime_version", 3)]
        [signature] = model.signatures
        assert (signature.key, dict(signature.inputs), dict(signature.outputs)) == (
            "serving_default",
            {"image": 0},
            {"scores": 4},
        )

    @pytest.mark.parametrize("size", [4, 8, 0xFFFF])
    def test_the_sizes_of_tables_do_not_matter(self, size: int) -> None:
        """Writers in Python share a vtable, with one size in it, among tables of different sizes."""
        data = bytearray(encode(convolution_model()))
        for position in positions(flatbuffer.Reader(memoryview(bytes(data)), SCHEMA).root("Model")):
            [offset] = struct.unpack_from("<i", data, position)
            struct.pack_into("<H", data, position - offset + 2, size)
        assert read_model(bytes(data)).subgraphs == read(convolution_model()).subgraphs

    def test_constants_are_views_of_the_file(self) -> None:
        data = encode(convolution_model())
        model = read_model(data)
        weights = model.constant(model.subgraphs[0].tensors[1])
        assert weights is not None
        assert np.array_equal(weights, np.arange(54, dtype=np.int8).reshape(2, 3, 3, 3))
        assert np.shares_memory(weights, np.frombuffer(data, np.uint8))
        assert not weights.flags.writeable
        assert model.buffer_data(0) is None
        assert model.constant(model.subgraphs[0].tensors[0]) is None
        assert list(model.constants(model.subgraphs[0])) == [1, 2]

    def test_a_mapped_file_is_read_without_a_copy(self, tmp_path: Path) -> None:
        (tmp_path / "net.tflite").write_bytes(encode(convolution_model()))
        with (tmp_path / "net.tflite").open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        bias = read_model(mapped).constants(read_model(mapped).subgraphs[0])[2]
        assert bias.tolist() == [100, -100]
        assert np.shares_memory(bias, np.frombuffer(mapped, np.uint8))

    def test_options_are_attributes_with_the_defaults_of_the_schema(self) -> None:
        convolution, reshape = read(convolution_model()).subgraphs[0].operators
        assert convolution.options_type == "Conv2DOptions"
        assert dict(convolution.attributes) == {
            "padding": 0,
            "stride_w": 2,
            "stride_h": 1,
            "fused_activation_function": 3,
            "dilation_w_factor": 1,
            "dilation_h_factor": 1,
            "quantized_bias_type": 0,
        }
        assert reshape.attributes["new_shape"] == (64,)
        assert reshape.attributes_as("ReshapeOptions") is reshape.attributes

    def test_an_operator_without_options_has_those_of_the_schema(self) -> None:
        [relu] = read(elementwise_model()).subgraphs[0].operators
        assert (relu.options_type, dict(relu.attributes)) == (None, {})
        assert relu.attributes_as("Conv2DOptions")["dilation_w_factor"] == 1

    def test_options_of_another_type_are_refused_by_name(self) -> None:
        convolution = read(convolution_model()).subgraphs[0].operators[0]
        with pytest.raises(ParseError) as caught:
            convolution.attributes_as("Pool2DOptions")
        assert str(caught.value) == "subgraphs[0].operators[0]: CONV_2D has Conv2DOptions instead of Pool2DOptions"

    def test_the_operator_code_is_the_larger_one_of_the_two_fields(self) -> None:
        old = {"deprecated_builtin_code": 19}
        both = {"deprecated_builtin_code": 127, "builtin_code": 150}
        for given_code, name in ((old, "RELU"), (both, "GELU"), ({"builtin_code": 19}, "RELU")):
            model = elementwise_model(operator_codes=[given_code])
            assert read(model).subgraphs[0].operators[0].name == name

    def test_a_custom_operator_has_the_name_and_the_bytes_it_came_with(self) -> None:
        model = elementwise_model(operator_codes=[code("CUSTOM", custom_code="MyRelu")])
        model["subgraphs"][0]["operators"][0]["custom_options"] = b"abc"
        [custom] = read(model).subgraphs[0].operators
        assert (custom.name, custom.is_custom) == ("MyRelu", True)
        assert bytes(custom.custom_options or b"") == b"abc"

    def test_data_behind_the_tables_of_a_large_file_are_found(self) -> None:
        model = elementwise_model(buffers=[{}, {"offset": 4096, "size": 8}, {"offset": 4096, "size": 8}])
        for which in (0, 1):
            model["subgraphs"][0]["tensors"].append(tensor(f"w{which}", [2], buffer=1 + which))
        data = encode(model).ljust(4096, b"\0") + np.array([1.5, -2.5], "<f4").tobytes()
        result = read_model(data)
        assert {i: v.tolist() for i, v in result.constants(result.subgraphs[0]).items()} == {
            2: [1.5, -2.5],
            3: [1.5, -2.5],
        }
        assert refusal(data[:-1]).where == "buffers[1]"

    def test_types_that_numpy_lacks_give_their_bytes(self) -> None:
        model = elementwise_model(buffers=[{}, {"data": b"\x21\x03"}, {"data": b"\x01\x00\x05"}, {"data": b"anything"}])
        model["subgraphs"][0]["tensors"] += [
            tensor("a", [3], "int4", buffer=1),
            tensor("b", [3], "bool", buffer=2),
            tensor("c", [1], "string", buffer=3),
        ]
        result = read(model)
        matches = result.constants(result.subgraphs[0])
        assert matches[2].tolist() == [0x21, 0x03]
        assert matches[3].tolist() == [True, False, True]
        assert matches[4].tobytes() == b"anything"

    def test_a_tensor_without_elements_is_a_constant_where_nothing_else_gives_it(self) -> None:
        model = elementwise_model()
        model["subgraphs"][0]["tensors"] += [tensor("empty", [0], "int32"), tensor("result", [0])]
        model["subgraphs"][0]["operators"] = [operator([0, 2], [1, 3])]
        result = read(model)
        assert {i: v.shape for i, v in result.constants(result.subgraphs[0]).items()} == {2: (0,)}

    def test_variables_and_absent_inputs_need_no_origin(self) -> None:
        model = elementwise_model()
        model["subgraphs"][0]["tensors"].append(tensor("state", [2], is_variable=True))
        model["subgraphs"][0]["operators"] = [operator([0, -1, 2], [1])]
        assert read(model).subgraphs[0].operators[0].inputs == (0, -1, 2)

    def test_quantization_in_words_of_its_own_is_named(self) -> None:
        model = elementwise_model()
        details = ("CustomQuantization", {"custom": b"\1"})
        model["subgraphs"][0]["tensors"][0]["quantization"] = {"details": details}
        assert read(model).subgraphs[0].tensors[0].quantization == QuantizationParameters(
            (), (), None, "CustomQuantization"
        )

    def test_bytes_after_the_file_do_not_matter(self) -> None:
        assert read_model(encode(elementwise_model()) + b"appended files").subgraphs[0].operators


def set_in(*path: Any) -> Change:
    """A change that puts the path's last part where the others lead."""

    def change(model: dict[str, Any]) -> None:
        inner: Any = model
        for step in path[:-2]:
            inner = inner[step]
        inner[path[-2]] = path[-1]

    return change


def in_graph(*path: Any) -> Change:
    return set_in("subgraphs", 0, *path)


def quantization(**fields: Any) -> Change:
    return in_graph("tensors", 1, "quantization", fields)


IN_MODEL: list[tuple[Change, str]] = [
    (set_in("version", 2), "version: version 2 of the format; only 3 is known"),
    (set_in("subgraphs", []), "subgraphs: the model has no subgraph"),
    (set_in("operator_codes", [{"builtin_code": 4711}]), "operator_codes[0]: builtin operator 4711 is not known"),
    (
        set_in("operator_codes", [{"deprecated_builtin_code": 127}]),
        "operator_codes[0]: builtin operator 127 is not known",
    ),
    (set_in("operator_codes", [code("CUSTOM")]), "operator_codes[0]: a custom operator without a name"),
    (set_in("metadata", [{"name": "a", "buffer": 9}]), "metadata[0].buffer: buffer 9 does not exist; there are 4"),
    (set_in("signature_defs", 0, "subgraph_index", 1), "signature_defs[0].subgraph_index: subgraph 1 does not exist"),
    (set_in("signature_defs", 0, "inputs", 0, "tensor_index", 5), "signature_defs[0].inputs[0]: tensor 5 does not"),
]

IN_GRAPH: list[tuple[Change, str]] = [
    (in_graph("inputs", [5]), "inputs[0]: tensor 5 does not exist; there are 5"),
    (in_graph("outputs", [-1]), "outputs[0]: tensor -1 does not exist; there are 5"),
    (
        in_graph("operators", []),
        "outputs[0]: tensor 4 has no value: it is no constant, variable, input or earlier result",
    ),
    (in_graph("operators", 0, "opcode_index", 2), "operators[0].opcode_index: operator code 2 of 2"),
    (in_graph("operators", 0, "inputs", [0, 1, -2]), "operators[0].inputs[2]: tensor -2 does not exist; there are 5"),
    (in_graph("operators", 0, "inputs", [4, 1, 2]), "operators[0].inputs[0]: tensor 4 has no value: it is no constant"),
    (in_graph("operators", 0, "outputs", [-1]), "operators[0].outputs[0]: tensor -1 does not exist; there are 5"),
    (in_graph("operators", 0, "intermediates", [7]), "operators[0].intermediates[0]: tensor 7 does not exist"),
    (
        in_graph("operators", 1, "outputs", [3]),
        "operators[1].outputs[0]: tensor 3 has its value from elsewhere already",
    ),
    (
        in_graph("operators", 1, "outputs", [0]),
        "operators[1].outputs[0]: tensor 0 has its value from elsewhere already",
    ),
    (
        in_graph("operators", 1, "outputs", [1]),
        "operators[1].outputs[0]: tensor 1 has its value from elsewhere already",
    ),
    (in_graph("tensors", 0, "type", 99), "tensors[0].type: tensor type 99 is not known"),
    (in_graph("tensors", 0, "shape", [1, -2]), "tensors[0].shape: negative size in [1, -2]"),
    (in_graph("tensors", 0, "shape", [1] * 9), "tensors[0].shape: rank 9; at most 8 is possible"),
    (in_graph("tensors", 0, "shape", [2**30, 0, 2**10]), "tensors[0].shape: [1073741824, 0, 1024] has more elements"),
    (in_graph("tensors", 1, "buffer", 4), "tensors[1].buffer: buffer 4 does not exist; there are 4"),
    (in_graph("tensors", 1, "shape", [53]), "tensors[1].buffer: 54 bytes of data; int8 [53] takes 53"),
    (in_graph("tensors", 1, "is_variable", True), "tensors[1].buffer: a variable with constant data"),
    (quantization(scale=[1.0, float("nan")]), "tensors[1].quantization.scale: a scale that is negative or not finite"),
    (quantization(scale=[1.0, -1.0]), "tensors[1].quantization.scale: a scale that is negative or not finite"),
    (quantization(scale=[1.0] * 3), "tensors[1].quantization.scale: 3 scales for 2 slices"),
    (quantization(scale=[1.0], zero_point=[0, 0]), "tensors[1].quantization.zero_point: 2 zero points for 1 scales"),
    (quantization(scale=[1.0], zero_point=[128]), "tensors[1].quantization.zero_point: a zero point outside of int8"),
    (
        quantization(scale=[1.0] * 2, quantized_dimension=4),
        "tensors[1].quantization.quantized_dimension: dimension 4 does not exist; there are 4",
    ),
]

REFUSED = IN_MODEL + [(change, f"subgraphs[0].{text}") for change, text in IN_GRAPH]


class TestRefusing:
    @pytest.mark.parametrize(("change", "text"), REFUSED, ids=[text for _, text in REFUSED])
    def test_a_model_that_makes_no_sense_is_refused_saying_where(self, change: Change, text: str) -> None:
        model = convolution_model()
        change(model)
        assert str(refusal(encode(model))).startswith(text)

    def test_subgraphs_that_call_each_other_in_circles_are_refused(self) -> None:
        def calling(index: int) -> dict[str, Any]:
            options = ("WhileOptions", {"cond_subgraph_index": 2, "body_subgraph_index": index})
            graph: dict[str, Any] = elementwise_model()["subgraphs"][0]
            graph["operators"] = [operator([0], [1], builtin_options=options)]
            return graph

        leaf = elementwise_model()["subgraphs"][0]
        model = elementwise_model(operator_codes=[code("WHILE")], subgraphs=[calling(1), calling(2), leaf])
        leaf["operators"] = []
        leaf["outputs"] = [0]
        assert len(read(model).subgraphs) == 3
        model["subgraphs"][1] = calling(0)
        assert "calls itself" in str(refusal(encode(model)))
        model["subgraphs"][1] = calling(3)
        assert refusal(encode(model)).where == "subgraphs[1].operators[0].body_subgraph_index"

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"", DAMAGED + "it has 0 bytes, and the head of a TFLite file has 8"),
            (b"\x1c\0\0\0TFL", DAMAGED + "it has 7 bytes, and the head of a TFLite file has 8"),
            (
                b"PK\3\4 an archive",
                "byte 0x4: not a TFLite file: b'TFL3' is missing, there is b' an '; "
                "if the file has another format, give it the suffix of that format, or name the format",
            ),
            (b"\x10\0\0\0TFL3", DAMAGED + "the offset 0x10 at byte 0x0 leads nowhere"),
            (
                b"\xff\xff\xff\xffTFL3" + bytes(64),
                DAMAGED + "the offset 0xffffffff at byte 0x0 leads nowhere",
            ),
            (
                b"\x08\0\0\0TFL3" + bytes(64),
                DAMAGED + "the table's description at byte 0x8 has the sizes 0 and 0",
            ),
        ],
    )
    def test_what_is_no_model_at_all_is_refused(self, data: bytes, text: str) -> None:
        assert str(refusal(data)) == text

    def test_the_error_names_the_file(self) -> None:
        with pytest.raises(ParseError) as caught:
            read_model(b"\0" * 100, path="net.tflite")
        assert caught.value.path == "net.tflite"
        assert str(caught.value).startswith("net.tflite: byte 0x4: not a TFLite file")

    def test_an_unknown_kind_of_options_is_refused(self) -> None:
        model = convolution_model()
        model["subgraphs"][0]["operators"][1]["builtin_options_type"] = 200
        expected = "subgraphs[0].operators[1].builtin_options: BuiltinOptions 200 is not known (1 to 126 are)"
        assert str(refusal(encode(model))) == expected

    def test_a_text_that_is_not_utf_8_is_refused(self) -> None:
        error = refusal(encode(convolution_model()).replace(b"serving_default", b"serving\xff\xfedefaul"))
        assert "is not UTF-8" in str(error)
        assert error.where == "signature_defs[0].signature_key"

    def test_parts_that_overlap_are_refused(self) -> None:
        model = {"description": "\4\0\0\0abcd\0\0\0\0"} | elementwise_model()
        model["subgraphs"][0]["name"] = "main"
        data = encode(model)
        assert read_model(data).subgraphs[0].name == "main"
        within = point_elsewhere(data, data.index(b"main") - 4, data.index(b"abcd") - 4)
        assert refusal(within).message == "two parts of the file overlap"

    def test_parts_that_are_shared_are_read(self) -> None:
        model = elementwise_model()
        both = Shared([2])
        for given_tensor in model["subgraphs"][0]["tensors"]:
            given_tensor["shape"] = both
        assert [t.shape for t in read(model).subgraphs[0].tensors] == [(2,), (2,)]


def point_elsewhere(data: bytes, old: int, new: int) -> bytes:
    """Let the one offset that leads to `old` lead to `new`."""
    changed = bytearray(data)
    [place] = [at for at in range(8, old, 4) if at + struct.unpack_from("<I", data, at)[0] == old]
    struct.pack_into("<I", changed, place, new - place)
    return bytes(changed)


class TestLies:
    """What a file says of its sizes costs nothing until it is found true."""

    def test_a_huge_vector_is_refused_before_anything_is_allocated(self) -> None:
        data = bytearray(encode(convolution_model()))
        at = data.index(bytes(range(54))) - 4
        struct.pack_into("<I", data, at, 0x7FFFFFFF)
        tracemalloc.start()
        error = refusal(bytes(data))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert str(error).startswith(
            "the file is truncated or damaged: buffers[1].data: 2147483647 elements of 1 bytes"
        )
        assert peak < 200_000

    def test_a_vector_shared_by_many_operators_does_not_multiply(self) -> None:
        model, many = elementwise_model(), Shared([0] * 2000)
        model["subgraphs"][0]["operators"] = [operator(many, []) for _ in range(2000)]
        assert refusal(encode(model)).message == "the same elements are used too often"

    def test_more_tables_than_any_model_has_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flatbuffer, "MAX_TABLES", 4)
        error = refusal(encode(elementwise_model()))
        assert str(error) == "subgraphs[0].operators: the file has more than 4 tables"


def outcome(data: bytes) -> str:
    """Read it, use all of it, and say whether it was read or refused; anything but a ParseError gets through."""
    try:
        model = read_model(data)
        for graph in model.subgraphs:
            model.constants(graph)
    except ParseError:
        return "refused"
    return "read"


class TestDamage:
    def test_300_damaged_variants_are_read_or_refused_within_bounds(self) -> None:
        data = encode(convolution_model())
        outcomes = []
        tracemalloc.start()
        for name, damaged in damaged_variants(data, 300, seed=2024):
            tracemalloc.reset_peak()
            before, start = tracemalloc.get_traced_memory()[0], time.process_time()
            outcomes.append(outcome(damaged))
            assert time.process_time() - start < 1, name
            assert tracemalloc.get_traced_memory()[1] - before < 1_000_000, name
        tracemalloc.stop()
        assert outcomes.count("refused") > 200
        assert outcomes.count("read") > 5

    @pytest.mark.parametrize("file", REAL_FILES, ids=lambda path: path.stem)
    def test_damaged_real_files_are_read_or_refused(self, file: Path) -> None:
        outcomes = [outcome(damaged) for _, damaged in damaged_variants(file.read_bytes(), 44, seed=7)]
        assert "refused" in outcomes

    def test_every_truncation_is_refused_or_lost_nothing_but_the_end(self) -> None:
        data = encode(convolution_model())
        assert {outcome(data[:length]) for length in range(len(data) - 8)} == {"refused"}

    def test_every_word_may_be_extreme(self) -> None:
        data = encode(convolution_model())
        for place in range(0, len(data), 4):
            for value in EXTREMES:
                outcome(data[:place] + struct.pack("<I", value) + data[place + 4 :])

    def test_every_byte_may_be_another(self) -> None:
        data, rng = encode(convolution_model()), random.Random(1)
        for place in range(len(data)):
            outcome(data[:place] + bytes([data[place] ^ rng.randint(1, 255)]) + data[place + 1 :])

    @settings(deadline=None, max_examples=200)
    @given(st.binary(max_size=400))
    def test_noise_behind_the_identifier_is_refused(self, noise: bytes) -> None:
        assert outcome(struct.pack("<I", 8) + b"TFL3" + noise) == "refused"

    def test_the_same_seed_gives_the_same_variants(self) -> None:
        data = encode(convolution_model())
        first, again = (list(damaged_variants(data, n, seed=3)) for n in (40, 50))
        assert first == again[:40]
        assert len({name for name, _ in again}) == 50
        assert first != list(damaged_variants(data, 40, seed=4))


class TestRealFiles:
    @pytest.mark.parametrize("file", REAL_FILES, ids=lambda path: path.stem)
    def test_all_is_read_as_the_generated_classes_read_it(self, file: Path) -> None:
        tflite = pytest.importorskip("tflite", reason="the package tflite is not installed")
        data = file.read_bytes()
        theirs, ours = tflite.Model.GetRootAs(data, 0), read_model(data)
        assert theirs.SubgraphsLength() == len(ours.subgraphs)
        graph, ours_graph = theirs.Subgraphs(0), ours.subgraphs[0]
        assert ours_graph.inputs == tuple(graph.InputsAsNumpy())
        assert graph.TensorsLength() == len(ours_graph.tensors)
        for i, ours_tensor in enumerate(ours_graph.tensors):
            assert_same_tensor(theirs, graph.Tensors(i), ours, ours_tensor)
        assert graph.OperatorsLength() == len(ours_graph.operators)
        for i, ours_operator in enumerate(ours_graph.operators):
            assert_same_operator(theirs, graph.Operators(i), ours_operator)


def assert_same_tensor(theirs: Any, their_tensor: Any, ours: Model, our_tensor: Any) -> None:
    assert our_tensor.name == their_tensor.Name().decode()
    assert our_tensor.shape == tuple(np.atleast_1d(their_tensor.ShapeAsNumpy())[: their_tensor.ShapeLength()])
    assert our_tensor.buffer == their_tensor.Buffer()
    data = ours.buffer_data(our_tensor.buffer)
    assert (0 if data is None else len(data)) == theirs.Buffers(their_tensor.Buffer()).DataLength()
    quantized = their_tensor.Quantization()
    if quantized is None or not quantized.ScaleLength():
        assert our_tensor.quantization is None
    else:
        assert our_tensor.quantization.scales == tuple(quantized.ScaleAsNumpy().tolist())
        assert our_tensor.quantization.zero_points == tuple(quantized.ZeroPointAsNumpy().tolist())


def assert_same_operator(theirs: Any, their_operator: Any, ours: Any) -> None:
    tflite = pytest.importorskip("tflite")
    given_code = theirs.OperatorCodes(their_operator.OpcodeIndex())
    number = max(given_code.BuiltinCode(), given_code.DeprecatedBuiltinCode())
    assert ours.name == tflite.opcode2name(number)
    assert ours.inputs == tuple(their_operator.InputsAsNumpy().tolist())
    assert ours.outputs == tuple(their_operator.OutputsAsNumpy().tolist())
    if ours.options_type is None:
        return
    options, table = getattr(tflite, ours.options_type)(), their_operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    for name, value in ours.attributes.items():
        accessor = "".join(part.capitalize() for part in name.split("_"))
        if isinstance(value, tuple):
            assert tuple(getattr(options, f"{accessor}AsNumpy")().tolist()) == value
        elif value is not None:
            assert getattr(options, accessor)() == value
