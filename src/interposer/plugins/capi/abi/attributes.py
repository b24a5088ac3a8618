"""Operator attributes as C tables, and the attributes that plug-ins of older revisions must not receive."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, annotation
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.attribute_kinds import Kind, kind_of
from interposer.plugins.capi.abi.vocabulary import CHOICES, LAYERS

__all__ = ["AttributeTable", "Shown", "shown"]

MOST_CACHED: Final = 2048
"""The number of cached tables per operator; networks use the same attributes repeatedly."""
_FLOATS: Final = (abi.KIND_FLOAT, abi.KIND_FLOATS)
NEVER: Final = 1 << 30
"""The version of names that no revision of the vocabulary has yet."""
OWN: Final = "interposer."


class AttributeTable(NamedTuple):
    """The attributes of a layer as an array of ``ipr_attribute``, with the memory that it points to."""

    address: int
    length: int
    memory: Any


class _Text:
    """A string as an ``ipr_string``, whose bytes stay at a fixed address as long as this object lives."""

    def __init__(self, text: str) -> None:
        self._buffer = ctypes.create_string_buffer(text.encode("utf-8", "replace"))
        self.struct = abi.String(ctypes.addressof(self._buffer), len(self._buffer) - 1)


@cache
def text_of(text: str) -> abi.String:
    """Return an ``ipr_string`` that is never freed: for names of types, attributes and choices."""
    buffer = _Text(text)
    _retained_texts.append(buffer)
    return buffer.struct


_retained_texts: list[_Text] = []


class Shown:
    """How layers of one operator are shown to plug-ins of one revision of the vocabulary.

    Created and cached by `shown`. The vocabulary is the set of operators, operands and attributes in the C interface;
    each has the revision that added it. A plug-in that was written to an earlier revision must not get what it does not
    know. `refusal` is the reason why no layer of the operator is passed to such plug-ins, or None.
    """

    def __init__(self, op: type[Op], revision: int) -> None:
        self.op, self.revision = op, revision
        self.type = text_of(op.op_name())
        since, operands, attributes = _versions(op)
        kinds = {name: kind_of(annotation(op, name)) for name in op.attributes}
        self.refusal = self._refusal(since, kinds)
        self.most_operands = NEVER
        self._tables: dict[Hashable, AttributeTable] = {}
        self._kinds: dict[str, Kind] = {}
        self._hidden: list[str] = []
        self._newer_choices: list[tuple[str, frozenset[str]]] = []
        if self.refusal is None:
            self._plan({name: kind for name, kind in kinds.items() if kind}, operands, attributes)

    def _refusal(self, since: int, kinds: dict[str, Kind | None]) -> str | None:
        if not self.op.executable:
            return f"layers of type {self.op.op_name()} are not shown to plug-ins"
        if since > self.revision:
            return f"layer type {self._newer_than()}"
        unrepresentable = [name for name, kind in kinds.items() if kind is None]
        return f"the attribute {unrepresentable[0]!r} cannot be shown to plug-ins" if unrepresentable else None

    def _plan(self, kinds: dict[str, Kind], operands: dict[str, int], attributes: dict[str, tuple[str, int]]) -> None:
        newer_indices = [index for index, name in enumerate(operands) if operands[name] > self.revision]
        self.most_operands = min(newer_indices, default=NEVER)
        self._hidden = [name for name in kinds if attributes.get(name, ("", NEVER))[1] > self.revision]
        self._kinds = {name: kind for name, kind in kinds.items() if name not in self._hidden}
        for name, kind in self._kinds.items():
            texts = CHOICES.get(kind.choices.__name__, {}) if kind.choices and _is_ours(kind.choices) else {}
            newer_choices = frozenset(text for text, since in texts.items() if since > self.revision)
            if newer_choices:
                self._newer_choices.append((name, newer_choices))
        self._values = _getter(tuple(self._kinds))
        self._dependent = {index for index, name in enumerate(self._kinds) if self.op.attributes[name].by}
        self._floats = [index for index, kind in enumerate(self._kinds.values()) if kind.number in _FLOATS]
        codecs = self.op.codecs()
        self._defaults = [
            None if self.op.attributes[name].required else codecs[name].coerce(self.op.attributes[name].default)
            for name in self._kinds
        ]
        self._template = (abi.Attribute * len(self._kinds))()
        for attribute, (name, kind), default in zip(self._template, self._kinds.items(), self._defaults, strict=True):
            attribute.name, attribute.kind = text_of(name), kind.number
            if not self.op.attributes[name].required:
                attribute.flags = abi.ATTRIBUTE_IS_DEFAULT
                _fill(attribute, kind, default, _retained_values)

    def fault(self, op: Op, operands: int) -> str | None:
        """Return why a layer of this operator must not be passed to plug-ins of this revision, or None if it may be.

        `operands` is the layer's number of operands.
        """
        if self.refusal is not None:
            return self.refusal
        if operands > self.most_operands:
            return f"operand {op.operand_name(self.most_operands)} {self._newer_than()}"
        for name in self._hidden:
            if name in op.changed_attributes():
                return f"attribute {name} {self._newer_than()}"
        for name, newer_choices in self._newer_choices:
            newer_choice = next((text for text in _choices(getattr(op, name)) if text in newer_choices), None)
            if newer_choice is not None:
                return f"{name} {newer_choice} {self._newer_than()}"
        return None

    def _newer_than(self) -> str:
        return f"newer than revision {self.revision} of the vocabulary"

    @property
    def always(self) -> bool:
        """True if every layer of this operator can be passed to plug-ins of this revision."""
        return self.refusal is None and not self._hidden and not self._newer_choices and self.most_operands == NEVER

    def table(self, op: Op) -> AttributeTable:
        """Return the attribute table of one operator."""
        values = self._values(op)
        key: Hashable = values
        if self._floats:  # 0.0 and -0.0 are equal, but not the same
            key = values, repr([values[index] for index in self._floats])
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) >= MOST_CACHED:
                self._tables.clear()
            table = self._tables[key] = self._new_table(values)
        return table

    def _new_table(self, values: tuple[Any, ...]) -> AttributeTable:
        attributes = type(self._template).from_buffer_copy(self._template)
        memory: list[Any] = [attributes]
        for index, (kind, value) in enumerate(zip(self._kinds.values(), values, strict=True)):
            default = self._defaults[index]
            is_fixed = attributes[index].flags and index not in self._dependent
            if is_fixed and (value is default or repr(value) == repr(default)):
                continue
            is_default = index in self._dependent and repr(value) == repr(self._dependent_default(index, values))
            attributes[index].flags = abi.ATTRIBUTE_IS_DEFAULT if is_default else 0
            _fill(attributes[index], kind, value, memory)
        return AttributeTable(ctypes.addressof(attributes), len(attributes), memory)

    def _dependent_default(self, index: int, values: tuple[Any, ...]) -> Any:
        """Return the default of an attribute that depends on another one, if the attributes have these values."""
        name = [*self._kinds][index]
        default = self.op.attributes[name].default_with(dict(zip(self._kinds, values, strict=True)))
        return self.op.codecs()[name].coerce(default)


_retained_values: list[Any] = []


def _getter(names: tuple[str, ...]) -> Callable[[Op], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda op: (get(op),)


def _choices(value: Any) -> Iterator[str]:
    for choice in value if isinstance(value, tuple) else (value,):
        if isinstance(choice, Enum):
            yield choice.name


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith(OWN)


def _versions(op: type[Op]) -> tuple[int, dict[str, int], dict[str, tuple[str, int]]]:
    """Return the revisions of the vocabulary in which an operator, its operands and its attributes were added.

    The second element maps operands to revisions. The third one maps attributes to pairs of the kind, such as "float",
    and the revision. Operators of other packages are not in the vocabulary, and have revision 0.
    """
    if op.__module__.startswith(OWN):
        return LAYERS.get(op.op_name(), (NEVER, {}, {}))
    return 0, {operand.name: 0 for operand in op.operands}, {name: ("", 0) for name in op.attributes}


def _fill(attribute: abi.Attribute, kind: Kind, value: Any, memory: list[Any]) -> None:
    if value is None:
        attribute.kind = abi.KIND_NONE
        return
    attribute.kind = kind.number
    if kind.number in (abi.KIND_BOOL, abi.KIND_INT):
        attribute.i = _checked_int64(value)
    elif kind.number == abi.KIND_FLOAT:
        attribute.f = value
    elif kind.number == abi.KIND_DTYPE:
        attribute.i = abi.DTYPES.get(value, 0)
    elif kind.number in (abi.KIND_TEXT, abi.KIND_ENUM):
        text = _Text(value) if isinstance(value, str) else None
        memory.append(text)
        attribute.text = text.struct if text else text_of(value.name)
    else:
        _fill_list(attribute, kind, value, memory)


def _checked_int64(number: int) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgumentError(f"{number} does not fit into the 64 bits that an attribute has for plug-ins")
    return number


def _fill_list(attribute: abi.Attribute, kind: Kind, value: Any, memory: list[Any]) -> None:
    elements = [number for row in value for number in row] if kind.columns else list(value)
    attribute.count, attribute.columns = len(elements), kind.columns
    array: Any
    if kind.number == abi.KIND_INTS:
        array = (ctypes.c_int64 * len(elements))(*map(_checked_int64, elements))
        attribute.ints = ctypes.addressof(array)
    elif kind.number == abi.KIND_FLOATS:
        array = (ctypes.c_double * len(elements))(*elements)
        attribute.floats = ctypes.addressof(array)
    else:
        array = (abi.String * len(elements))(*(text_of(member.name) for member in elements))
        attribute.texts = ctypes.addressof(array)
    memory.append(array)


_shown: dict[tuple[type[Op], int], Shown] = {}


def shown(op: type[Op], revision: int) -> Shown:
    """Return the description of an operator for plug-ins of this revision of the vocabulary."""
    description = _shown.get((op, revision))
    if description is None:
        description = _shown.setdefault((op, revision), Shown(op, revision))
    return description
