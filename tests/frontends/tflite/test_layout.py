"""The hand-written layout agrees with the classes that the FlatBuffers compiler generated from the schema."""

from __future__ import annotations

import importlib
import inspect
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from interposer.formats.tflite.schema import (
    OPERATORS,
    OPTIONS,
    SCALARS,
    TENSOR_TYPES,
    UNIONS,
    defaults,
    slots,
    table_names,
)

tflite = pytest.importorskip("tflite", reason="the package tflite is not installed")

SAME_SCHEMA = tflite.__version__.startswith("2.18")
METHODS = dict(bool="Bool", i8="Int8", u8="Uint8", u16="Uint16", i32="Int32", u32="Uint32", i64="Int64", f32="Float32")
METHODS["u64"] = "Uint64"
NEWER = {
    "BlockwiseQuantization": ["Scales", "ZeroPoints", "BlockSize", "BlockShape"],
    "ExternalBuffer": ["Id", "Group", "Offset", "Length", "Packing"],
    "ExternalBufferGroup": ["Name"],
    "MultiAxisQuantization": ["Scales", "ZeroPoints", "BlockSize", "QuantizedDimensions"],
    "StablehloCaseOptions": ["BranchSubgraphIndices"],
}
"""The tables that version 2.18 of the schema lacks, with their fields."""
NEWER_FIELDS = {"ExternalBuffer", "ExternalBufferGroups", "ExternalBuffers"}
"""The fields of other tables that version 2.18 of the schema lacks."""


class RecordingBuilder:
    """Stands in for the FlatBuffers builder and notes what it is asked to write, and to which slot."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, args))


def generated_fields(table: str) -> Iterator[tuple[str, int, str, Any]]:
    """Name, slot, builder method and default of each field, as generated."""
    module = importlib.import_module(f"tflite.{table}")
    for function in [name for name in vars(module) if name.startswith(f"{table}Add")]:
        builder = RecordingBuilder()
        getattr(module, function)(builder, 0)
        [(method, (slot, _, default))] = builder.calls
        yield function.removeprefix(f"{table}Add"), slot, method, default


def element_width(table: str, field: str) -> int | None:
    """Return the size of a vector's elements, as generated; None if the field is no vector."""
    start = getattr(importlib.import_module(f"tflite.{table}"), f"{table}Start{field}Vector", None)
    if start is None:
        return None
    builder = RecordingBuilder()
    start(builder, 1)
    width: int = builder.calls[0][1][0]
    return width


def known_tables() -> list[str]:
    return sorted(name for name in table_names() if hasattr(tflite, name))


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


@pytest.mark.parametrize("table", known_tables())
def test_every_field_is_where_the_generated_classes_write_it(table: str) -> None:
    ours = {camel(field.name): (slot, field) for slot, field in enumerate(slots(table)) if field}
    for name, slot, method, default in generated_fields(table):
        our_slot, field = ours[name]
        assert our_slot == slot
        if field.kind == "scalar":
            assert method == f"Prepend{METHODS[field.type]}Slot"
            assert defaults(table)[field.name] == default
        else:
            assert method == "PrependUOffsetTRelativeSlot"
            widths = {"vector": struct.calcsize("<" + SCALARS.get(field.type, "I")), "tables": 4}
            assert element_width(table, name) == widths.get(field.kind)


@pytest.mark.skipif(not SAME_SCHEMA, reason=f"tflite {tflite.__version__} has another schema than 2.18")
def test_nothing_of_the_schema_is_left_out() -> None:
    generated = {name for name in vars(tflite) if hasattr(tflite, f"{name}Start")}
    assert generated == table_names() - NEWER.keys()
    for table in generated:
        names = {name for name, *_ in generated_fields(table)}
        assert names == {camel(field.name) for field in slots(table) if field} - NEWER_FIELDS


def test_tables_that_are_newer_have_the_fields_of_litert() -> None:
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="ai-edge-litert is not installed")
    for table, names in NEWER.items():
        fields = inspect.signature(getattr(schema, f"{table}T")).parameters
        assert [camel(field.name) for field in slots(table) if field] == names
        assert [name[0].upper() + name[1:] for name in fields] == names
    assert [name for name, number in vars(schema.QuantizationDetails).items() if isinstance(number, int)] == [
        "NONE", *UNIONS["QuantizationDetails"]
    ]  # fmt: skip
    assert OPERATORS.index("STABLEHLO_CASE") == schema.BuiltinOperator.STABLEHLO_CASE
    assert TENSOR_TYPES.index("float8_e5m2") == schema.TensorType.FLOAT8_E5M2


@pytest.mark.parametrize("union", sorted(UNIONS))
def test_unions_number_their_members_as_generated(union: str) -> None:
    if not hasattr(tflite, union):
        pytest.skip(f"tflite {tflite.__version__} does not have {union}")
    generated = {number: name for name, number in vars(getattr(tflite, union)).items() if isinstance(number, int)}
    assert generated.pop(0) == "NONE"
    assert {number: UNIONS[union][number - 1] for number in generated} == generated


@pytest.mark.parametrize(
    ("ours", "enum"), [(OPERATORS, "BuiltinOperator"), ([t.upper() for t in TENSOR_TYPES], "TensorType")]
)
def test_enumerations_number_their_members_as_generated(ours: list[str], enum: str) -> None:
    generated = {number: name for name, number in vars(getattr(tflite, enum)).items() if isinstance(number, int)}
    assert {number: ours[number] for number in generated} == generated


def depth(table: str) -> int:
    """How many tables lie one in the other; no end where tables recurse, which Python refuses."""
    inner: list[str] = []
    for field in slots(table):
        if field and field.kind in {"table", "tables"}:
            inner.append(field.type)
        elif field and field.kind == "union":
            inner.extend(UNIONS[field.type])
    return 1 + max(map(depth, inner), default=0)


def test_tables_do_not_contain_themselves_so_reading_them_ends() -> None:
    assert depth("Model") == 6


def test_options_belong_to_operators_of_the_schema_and_to_a_union():
    assert OPTIONS.keys() <= set(OPERATORS)
    assert set(OPTIONS.values()) <= {*UNIONS["BuiltinOptions"], *UNIONS["BuiltinOptions2"]}
