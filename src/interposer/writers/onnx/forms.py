"""The signatures of ONNX operators per opset: accepted and returned types, from the schemas of the package onnx."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from interposer.core.types import COLLECTIONS, DataType
from interposer.writers.onnx.protos import schema, type_name
from interposer.writers.widening import WIDER

__all__ = ["Form", "form", "has_type", "widened"]


_WIDER: Final = {
    **WIDER,
    DataType.INT2: (DataType.INT8, DataType.INT32, DataType.INT64),
    DataType.UINT2: (DataType.UINT8, DataType.INT32, DataType.INT64),
    DataType.INT4: (DataType.INT8, DataType.INT32, DataType.INT64),
    DataType.UINT4: (DataType.UINT8, DataType.INT32, DataType.INT64),
    **{dtype: (DataType.FLOAT32,) for dtype in DataType if dtype.is_float and dtype.bits <= 8},
}
"""Types that hold every value of a type, the narrowest first."""


class Form(NamedTuple):
    """What an ONNX operator accepts in an opset, from its schema, to decide which operands must be cast.

    `inputs` and `outputs` are types such as ``tensor(float)``, or type variables such as ``T``, whose types are in
    `allowed`. `since` is the opset that introduced this form, and `attributes` has the names of its attributes.
    """

    since: int
    inputs: tuple[str, ...]
    variadic: bool
    outputs: tuple[str, ...]
    allowed: dict[str, frozenset[str]]
    attributes: frozenset[str]
    optional: frozenset[int]
    """The numbers of the results that may be left out."""

    def has_operand(self, index: int) -> bool:
        """Return True if the operator can have an operand number `index`, counted from 0."""
        return self.variadic or index < len(self.inputs)

    def operand(self, index: int) -> str:
        """Return the type of operand number `index`, or the name of its type variable, such as ``T``."""
        return self.inputs[min(index, len(self.inputs) - 1) if self.variadic else index]

    def result(self, index: int) -> str:
        """Return the type of result number `index`, or the name of its type variable, such as ``T``."""
        return self.outputs[min(index, len(self.outputs) - 1)]

    def takes(self, name: str, dtype: DataType) -> bool:
        """Return True if `name`, a type or a type variable, accepts tensors of type `dtype`.

        It is always True for sequences and optionals, whose elements are not checked here.
        """
        return dtype in COLLECTIONS or type_name(dtype) in self.allowed.get(name, {name})


@cache
def form(kind: str, opset: int) -> Form | None:
    """Return what the ONNX operator `kind` accepts in an opset; None if the opset does not have it."""
    declaration = schema(kind, opset)
    if declaration is None:
        return None
    allowed_types = {
        type_constraint.type_param_str: frozenset(type_constraint.allowed_type_strs)
        for type_constraint in declaration.type_constraints
    }
    is_variadic = bool(declaration.inputs) and declaration.inputs[-1].option.name == "Variadic"
    optional = frozenset(index for index, output in enumerate(declaration.outputs) if output.option.name == "Optional")
    attributes = frozenset(declaration.attributes)
    return Form(
        declaration.since_version,
        _types(declaration.inputs),
        is_variadic,
        _types(declaration.outputs),
        allowed_types,
        attributes,
        optional,
    )


def _types(formals: Sequence[object]) -> tuple[str, ...]:
    return tuple(str(formal_parameter.type_str) for formal_parameter in formals)  # type: ignore[attr-defined]


def has_type(dtype: DataType, opset: int) -> bool:
    """Return True if an opset has tensors of type `dtype`: its Cast then accepts the type."""
    cast_form = form("Cast", opset)
    return cast_form is not None and cast_form.takes(cast_form.operand(0), dtype)


def widened(form: Form, name: str, dtype: DataType) -> DataType | None:
    """Return a type that an operand or result accepts and that holds all values of `dtype`; None if there is none.

    `name` is its type or type variable in the form. The result is `dtype` itself if possible, else the narrowest type.
    """
    return next((candidate for candidate in (dtype, *_WIDER.get(dtype, ())) if form.takes(name, candidate)), None)
