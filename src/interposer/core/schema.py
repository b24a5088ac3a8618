"""The declaration of operators: one class defines attributes, validation, shape inference, serialization and docs.

A class decorated with `@op` names its operands and results with `operand` and `result`, and its attributes with
annotations. It may define `check`, an iterator of error messages, and `infer`, which returns the infos of the results.
Everything else is derived::

    @op
    class DepthToSpace(Op):
        input = operand(rank=4)
        output = result(rank=4, dtype_of="input")
        block_size: int = attribute(ge=1)

        def check(self, input: TensorInfo) -> Iterator[str]: ...
        def infer(self, input: TensorInfo) -> TensorInfo: ...

`check` and `infer` take one argument per operand: a `TensorInfo`, None if an optional operand is absent, and a tuple
for a variadic operand. The infos include constants, and unknown dimensions of their shapes are `Dim` objects.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, dataclass_transform, overload

from interposer.core.declarations import MISSING, Attribute, Operand, Result, attribute, operand, result
from interposer.core.errors import InvalidArgumentError
from interposer.core.operator import Op, annotation, op_class, register_op, registered_ops
from interposer.core.traits import ResultQuantization, Role, Trait

__all__ = [
    "Attribute",
    "Op",
    "Operand",
    "Result",
    "ResultQuantization",
    "Role",
    "Trait",
    "annotation",
    "attribute",
    "op",
    "op_class",
    "operand",
    "registered_ops",
    "result",
]

_T = TypeVar("_T")
_COMMON_BASES: Final = frozenset(Op.__mro__)
"""The bases that all operators have, which declare no operands and no results."""
_RESERVED: Final = frozenset(name for name in dir(Op) if not name.startswith("__")) | {"op"}


@overload
def op(cls: type[_T], /) -> type[_T]: ...
@overload
def op(
    *,
    executable: bool | None = None,
    pure: bool | None = None,
    traits: Trait | None = None,
    quantized: ResultQuantization | None = None,
    register: bool = True,
) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(attribute,))
def op(
    cls: Any = None,
    /,
    *,
    executable: bool | None = None,
    pure: bool | None = None,
    traits: Trait | None = None,
    quantized: ResultQuantization | None = None,
    register: bool = True,
) -> Any:
    """Turn a class into an operator and register its name.

    Args:
        cls: the class to decorate.
        executable: value of `Op.executable`; None to inherit it.
        pure: value of `Op.pure`; None to inherit it.
        traits: the traits of all instances; None to inherit them. A class whose traits depend on attributes overrides
            the property `Op.traits` instead.
        quantized: how the results are quantized if the operator computes on quantized values; None to inherit it. A
            class for which it depends on attributes overrides `Op.result_quantization` instead.
        register: whether files and `op_class` can name the operator.

    Raises:
        InvalidArgumentError: the declaration is not valid, or another operator has the name.
    """
    classvars = {
        "executable": executable, "pure": pure, "declared_traits": traits, "declared_quantization": quantized
    }  # fmt: skip
    declared_classvars = {name: value for name, value in classvars.items() if value is not None}
    if cls is None:
        return lambda decorated_class: _declare(decorated_class, declared_classvars, register)
    return _declare(cls, declared_classvars, register)


def _declare(cls: Any, classvars: Mapping[str, object], register: bool) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise InvalidArgumentError(f"@op needs a subclass of Op, but {getattr(cls, '__name__', cls)} is not one")
    cls.operands = _declared(cls, Operand)
    cls.results = _declared(cls, Result)
    cls.attributes = _declared_attributes(cls)
    for name, value in classvars.items():
        setattr(cls, name, value)
    cls.family = cls.__module__.rpartition(".")[2]
    for error in _declaration_problems(cls):
        raise InvalidArgumentError(f"{cls.__name__}: {error}")
    for name in cls.attributes:
        if name in cls.__dict__:
            delattr(cls, name)
    if register:
        register_op(cls)
    return cls


def _declaration_problems(cls: type[Op]) -> Iterator[str]:
    operands = {declared_operand.name: declared_operand for declared_operand in cls.operands}
    yield from (f"the name {name!r} is reserved: every operator has it" for name in _own_names(cls) & _RESERVED)
    for slots in (cls.operands, cls.results):
        yield from (f"{slot.name!r} is variadic and must come last" for slot in slots[:-1] if slot.variadic)
    yield from _attribute_problems(cls)
    for name in (
        declared_operand.same_dtype_as
        for declared_operand in cls.operands
        if declared_operand.same_dtype_as is not None
    ):
        if name not in operands:
            yield f"same_dtype_as names {name!r}, which is not an operand"
    for name in (declared_operand.like for declared_operand in cls.results if declared_operand.like is not None):
        if name not in operands or operands[name].optional:
            yield f"like names {name!r}, which is not a required operand"
    if cls.pure and Trait.RANDOM in cls.declared_traits:
        yield "an operator with random results needs pure=False"
    if Trait.FILLS in cls.declared_traits and Trait.MOVES not in cls.declared_traits:
        yield "the trait FILLS is for operators with the trait MOVES"
    yield from (error for method in ("check", "infer") for error in _parameter_problems(cls, method))


def _attribute_problems(cls: type[Op]) -> Iterator[str]:
    for name, member in cls.__dict__.items():
        if isinstance(member, Attribute) and name not in cls.attributes:
            yield f"the attribute {name!r} has no annotation"
    for number, declared_attribute in enumerate(cls.attributes.values()):
        name, source = declared_attribute.name, declared_attribute.by
        if source and source not in [*cls.attributes][:number]:
            yield f"the default of {name!r} depends on {source!r}, which is not an attribute before it"


def _own_names(cls: type[Op]) -> set[str]:
    return {*cls.attributes, *(slot.name for slot in (*cls.operands, *cls.results))}


def _parameter_problems(cls: type[Op], method: str) -> Iterator[str]:
    code = getattr(cls.__dict__.get(method), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return
    if code.co_argcount != len(cls.operands) + 1:
        expected_parameters = ", ".join(["self", *(declared_operand.name for declared_operand in cls.operands)])
        yield f"{method} takes {code.co_argcount} arguments; expected {method}({expected_parameters})"


def _declared(cls: type[Op], kind: type[Any]) -> tuple[Any, ...]:
    declarations: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base not in _COMMON_BASES:
            declarations.update({name: member for name, member in vars(base).items() if isinstance(member, kind)})
    return tuple(declarations.values())


def _declared_attributes(cls: type[Op]) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    for base in cls.__mro__[1:]:
        attributes = dict(getattr(base, "attributes", {})) | attributes
    for name, hint in cls.__annotations__.items():
        if not str(hint).startswith(("ClassVar", "typing.ClassVar")):
            attributes[name] = _attribute_from(cls.__dict__.get(name, MISSING))
            attributes[name].name = name
    return attributes


def _attribute_from(declaration: Any) -> Attribute:
    return declaration if isinstance(declaration, Attribute) else Attribute(declaration, {}, None, "")
