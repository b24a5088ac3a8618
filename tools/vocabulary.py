"""The names that plug-ins receive through the C interface, each with the revision in which it was added.

Known names keep their number; new names get `NEXT`. Names of revisions before `NEXT` are frozen: they must not be
removed, and attributes must not change their kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from interposer._version import API_VERSION, VOCABULARY_REVISION
from interposer.core.schema import Op, annotation
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.attribute_kinds import kind_of
from tools.declarations import shipped

NEXT: Final = VOCABULARY_REVISION + 1
"""The revision that new names get. Names of `VOCABULARY_REVISION` and before are frozen; a release freezes new names by
raising `VOCABULARY_REVISION`.
"""

HEADERS: Final = ("src/interposer/include/interposer/backend.h", "src/interposer/include/interposer/backend.rs")

Layer = tuple[int, dict[str, int], dict[str, tuple[str, int]]]
Vocabulary = dict[str, dict[str, Any]]


def known() -> Vocabulary:
    """Return the vocabulary in the generated module: the names that plug-ins can receive, each with its revision.

    The result is empty if there is no module yet.
    """
    try:
        from interposer.plugins.capi.abi import vocabulary as module  # noqa: PLC0415 - it is made here
    except ImportError:
        return {"DTYPES": {}, "CHOICES": {}, "LAYERS": {}}
    return {"DTYPES": module.DTYPES, "CHOICES": module.CHOICES, "LAYERS": module.LAYERS}


def wanted(before: Vocabulary) -> Vocabulary:
    """Return the vocabulary for the current operators; names in `before` keep their revision, new ones get the next."""
    shown = [op for op in shipped() if is_shown(op)]
    choices = {kind.choices for op in shown for kind in kinds_of(op).values() if kind.choices}
    return {
        "DTYPES": {str(dtype): before["DTYPES"].get(str(dtype), NEXT) for dtype in abi.DTYPES},
        "CHOICES": {
            choice.__name__: _choices(choice, before["CHOICES"].get(choice.__name__, {}))
            for choice in sorted(choices, key=lambda each: each.__name__)
        },
        "LAYERS": {
            op.op_name(): _layer(op, before["LAYERS"].get(op.op_name()))
            for op in sorted(shown, key=lambda op: op.op_name())
        },
    }


def is_shown(op: type[Op]) -> bool:
    """Return True if plug-ins can receive layers of an operator, which needs a kernel and supported types."""
    if not all(slot.dtypes is None or slot.dtypes & abi.DTYPES.keys() for slot in (*op.operands, *op.results)):
        return False
    return op.executable and all(kind_of(annotation(op, name)) for name in op.attributes)


def kinds_of(op: type[Op]) -> dict[str, Any]:
    """Return for each attribute of an operator how the C interface represents its value."""
    return {name: kind_of(annotation(op, name)) for name in op.attributes}


def _choices(kind: type[Enum], before: dict[str, int]) -> dict[str, int]:
    return {member.name: before.get(member.name, NEXT) for member in kind}


def _layer(op: type[Op], before: Layer | None) -> Layer:
    since, operands, attributes = before or (NEXT, {}, {})
    return (
        since,
        {operand.name: operands.get(operand.name, NEXT) for operand in op.operands},
        {name: (str(kind), attributes.get(name, ("", NEXT))[1]) for name, kind in kinds_of(op).items()},
    )


def vocabulary_module() -> str:
    """Return the text of ``interposer/plugins/capi/abi/vocabulary.py``."""
    tables = wanted(known())
    return "\n".join([_HEAD, *(_table(name, tables[name]) for name in tables)])


def _table(name: str, content: dict[str, Any]) -> str:
    types = {"DTYPES": "dict[str, int]", "CHOICES": "dict[str, dict[str, int]]", "LAYERS": _LAYERS_TYPE}
    rows = [f"    {json.dumps(key)}: {_written(value)}," for key, value in content.items()]
    return "\n".join([f"{name}: Final[{types[name]}] = {{", *rows, "}", ""])


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_written, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {_written(element)}' for key, element in value.items())}}}"
    return json.dumps(value)


def headers(texts: dict[str, str]) -> dict[str, str]:
    """Return the texts of the C headers, by path, with the current numbers of the interface and the vocabulary.

    These are the version of the interface and the revision of the vocabulary.
    """
    numbers = {"API_MAJOR": API_VERSION[0], "API_MINOR": API_VERSION[1], "VOCABULARY_REVISION": VOCABULARY_REVISION}
    return {path: _with_numbers(text, numbers) for path, text in texts.items()}


def _with_numbers(text: str, numbers: dict[str, int]) -> str:
    for name, number in numbers.items():
        text = re.sub(rf"(?m)^(#define IPR_{name}|    pub const {name}: u32 =) \d+", rf"\g<1> {number}", text)
    return text


def frozen_problems() -> Iterator[str]:
    """Yield a message for each name of a released revision that has changed in the operators or was removed."""
    before = known()
    after = wanted(before)
    for name, (since, operands, attributes) in before["LAYERS"].items():
        now = after["LAYERS"].get(name)
        if since < NEXT and now is None:
            yield f"the layer {name} has gone from the C interface; it is frozen since revision {since}"
        elif now is not None:
            yield from _gone(f"{name}: the operand", operands, list(now[1]))
            frozen = {key: number for key, (kind, number) in attributes.items() if now[2].get(key, ("",))[0] != kind}
            yield from _gone(f"{name}: the attribute", frozen, ())
    for name, texts in before["CHOICES"].items():
        yield from _gone(f"{name}: the choice", texts, after["CHOICES"].get(name, ()))
    yield from _gone("the type", before["DTYPES"], after["DTYPES"])


def _gone(kind: str, frozen: dict[str, int], still: Any) -> Iterator[str]:
    for name, since in frozen.items():
        if since < NEXT and name not in still:
            yield f"{kind} {name} has changed in the C interface; it is frozen since revision {since}"


_LAYERS_TYPE: Final = "dict[str, tuple[int, dict[str, int], dict[str, tuple[str, int]]]]"
_HEAD: Final = '''\
"""What plug-ins are shown through the C interface, each name with the revision that it came with.

Written by tools/generate.py; do not edit. `LAYERS` gives for each type of layer its revision, its operands in their
order, and its attributes with their kinds; `CHOICES` the texts of attributes of the kind ``enum``.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

from typing import Final
'''
