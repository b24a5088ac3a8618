"""LiteRT passes to a delegate the graphs of model files: operators, options, tensors and constants."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from interposer.bridges.litert import abi
from interposer.bridges.litert.graph import read_graph
from interposer.bridges.litert.host import Host
from interposer.formats.tflite.schema import OPTIONS, defaults
from interposer.frontends.tflite.container import read_model
from tests.bridges.litert.probe import looked
from tests.frontends.tflite.build import convolution_model, encode
from tests.frontends.tflite.cases.all_cases import CASES
from tests.frontends.tflite.one_operator import T, one_operator
from tests.parameters import divided

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT.parent / "shared" / "models").glob("*.tflite"))
IN_EVERY_RUN, GROUPS = divided(6, CASES)


def described(content):
    """What the host passes for a file, as far as it lives on after the interpreter."""

    def look(address):
        graph = read_graph(Host(address))
        constants = [graph.model.buffer_data(tensor.buffer) for tensor in graph.subgraph.tensors]
        return graph.subgraph, [None if data is None else bytes(data) for data in constants], dict(graph.left)

    return looked(content, look)


def check_tensor(found, wanted):
    assert (found.name, found.dtype, found.shape, found.is_variable) == (
        wanted.name, wanted.dtype, wanted.shape, wanted.is_variable,
    )  # fmt: skip
    if wanted.quantization is not None and wanted.quantization.details is None:
        assert found.quantization == wanted.quantization


def check(content):
    model = read_model(content)
    found, constants, left = described(content)
    wanted = model.subgraphs[0]
    for position, (read, written) in enumerate(zip(found.operators, wanted.operators, strict=True)):
        assert (read.name, read.inputs, read.outputs, read.version, read.is_custom, read.intermediates) == (
            written.name, written.inputs, written.outputs, written.version, written.is_custom, written.intermediates,
        )  # fmt: skip
        assert bytes(read.custom_options or b"") == bytes(written.custom_options or b"")
        if position not in left and written.name in OPTIONS:
            check_options(read, written)
    for index in {i for operator in found.operators for i in (*operator.inputs, *operator.outputs) if i >= 0}:
        check_tensor(found.tensors[index], wanted.tensors[index])
        data = model.buffer_data(wanted.tensors[index].buffer)
        assert constants[index] == (None if data is None else bytes(data))


def check_options(read, written):
    table = OPTIONS[written.name]
    wanted = dict(written.attributes_as(table))
    for name, value in read.attributes.items():
        assert value == (wanted[name] or () if isinstance(value, tuple) else wanted[name]), (table, name)


@pytest.mark.parametrize("case", IN_EVERY_RUN, ids=lambda case: case.id)
def test_a_host_passes_what_the_file_has(case):
    try:
        check(case.file())
    except (ValueError, RuntimeError) as error:  # of LiteRT, which does not accept every file
        pytest.skip(f"LiteRT refuses the file: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("cases", GROUPS)
def test_a_host_passes_what_every_file_has(cases):
    for case in cases:
        with contextlib.suppress(ValueError, RuntimeError):  # of LiteRT, which does not accept every file
            check(case.file())


# --- options ----------------------------------------------------------------------------------------------------------

LINES = dict(line.split(": ", 1) for line in abi.OPTION_LINES.strip().splitlines())
OPERATORS_OF = {table: [name for name, of in OPTIONS.items() if of == table] for table in LINES}
ODD = {
    "int": 7, "i64": 11, "float": 0.375, "bool": True, "from_one": 1, "type": 4, "dims": [3, 5, 2], "dims64": [9, 4],
    "ranked": [6, 8, 1], "floats": [0.5, 2.5],
}  # fmt: skip
ENUMERATED = {
    "fused_activation_function": 3, "weights_format": 1, "kernel_type": 1, "combiner": 2, "type": 2,
    "reduce_function": 4, "idx_out_type": 4,
}  # fmt: skip


def odd_options(table):
    """A value for each field that is neither its default nor that of the field beside it, and the version it needs."""
    options, version = {}, 1
    for number, member in enumerate(LINES[table].split()):
        name, kind = member.split(":")
        kind, _, since = kind.partition("@")
        version = max(version, int(since or 1))
        options[name] = ENUMERATED.get(name, ODD[kind])
        if kind in {"int", "i64", "float"} and name not in ENUMERATED:
            options[name] += number
        if kind == "bool":
            options[name] = not defaults(table)[name]
    return options, version


def file_of(name, table, options, version):
    inputs = [T((1, 2, 3)) for _ in range(3)]
    return one_operator(name, inputs, [T((1, 2, 3))], (table, options), version)


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, names in OPERATORS_OF.items() for name in names])
def test_every_option_is_read_as_the_file_has_it(table, name):
    options, version = odd_options(table)
    subgraph, _, left = described(file_of(name, table, options, version))
    assert left == {}
    wanted = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    found = {key: subgraph.operators[0].attributes[key] for key in wanted}
    assert found == wanted


@pytest.mark.parametrize("table", LINES)
def test_every_struct_is_that_of_an_operator(table):
    assert OPERATORS_OF[table]
    assert {member.split(":")[0] for member in LINES[table].split()} <= set(defaults(table))


def test_members_that_a_later_version_of_an_operator_added_are_left_out():
    options, version = odd_options("StridedSliceOptions")
    subgraph, _, _ = described(
        file_of("STRIDED_SLICE", "StridedSliceOptions", {**options, "offset": True}, version - 1)
    )
    assert subgraph.operators[0].attributes["offset"] is False


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_host_passes_what_a_real_model_has(path):
    check(path.read_bytes())


def test_dynamic_dimensions_are_passed():
    subgraph, _, _ = described(encode(convolution_model()))
    assert (subgraph.tensors[0].shape, subgraph.tensors[0].shape_signature) == ((1, 8, 8, 3), (-1, 8, 8, 3))
