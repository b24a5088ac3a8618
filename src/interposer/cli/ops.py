"""``interposer ops``: list the catalog of operators, one operator, or the operators that a backend has kernels for."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import interposer.ops  # noqa: F401 - declares the operators
from interposer.backend import Backend
from interposer.cli.arguments.ops import configure
from interposer.cli.foreign import foreign_names, format_that_reads, ops_named
from interposer.cli.progress import progress_line
from interposer.cli.running import registered, runtime_of_folders
from interposer.cli.tables import Table, say, show, without_empty_columns, write_json
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.schema import Op, Operand, Result, op_class, registered_ops
from interposer.core.types import (
    ANY_TYPE,
    FLOATS,
    INTEGERS,
    SIGNED_INTEGERS,
    STORED_FLOATS,
    UNSIGNED_INTEGERS,
    DataType,
)
from interposer.kernels.table import Kernel, KernelTable
from interposer.runtime import Runtime

if TYPE_CHECKING:
    from interposer.testing.coverage import Coverage

__all__ = ["configure", "execute"]

Slot: TypeAlias = Operand | Result
SHOWN: Final = 3
"""The number of operands or attributes that the catalog lists; ``interposer ops NAME`` lists all."""
_SIGNS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def execute(args: argparse.Namespace) -> None:
    """Print operators or kernels."""
    if args.backend is not None:
        with runtime_of_folders(args) as runtime:
            _print_kernels(registered(args.backend), runtime, args.json)
    elif args.operator is not None:
        _print_named(args.operator, args.json)
    else:
        _print_catalogue(args.json)


# --- operators --------------------------------------------------------------------------------------------------------


def _print_catalogue(as_json: bool) -> None:
    ops = registered_ops().values()
    if as_json:
        write_json([_described(op) for op in ops])
    else:
        show(Table(("operator", "family", "operands", "attributes"), [_row(op) for op in ops]))


def _row(op: type[Op]) -> tuple[str, ...]:
    attributes = [_with_default(op, name) for name in op.attributes if not _is_pinned(op, name)]
    return op.op_name(), op.family, _listed([_signature(operand) for operand in op.operands]), _listed(attributes)


def _listed(names: list[str]) -> str:
    """Return names separated by commas: the first ones, then the number of the others, as in "a, b, c and 4 more"."""
    left_out = len(names) - SHOWN
    return ", ".join(names) if left_out <= 1 else f"{', '.join(names[:SHOWN])} and {left_out} more"


def _signature(slot: Slot) -> str:
    return f"{slot.name}{'...' if slot.variadic else ''}{'?' if slot.optional else ''}"


def _with_default(op: type[Op], name: str) -> str:
    if op.attributes[name].required:
        return name
    default = _default(op, name)
    return f"{name}={default if default != '' else repr(default)}"


def _is_pinned(op: type[Op], name: str) -> bool:
    """Return True if the operator class fixes the value of attribute `name`, as Addition fixes `operation`."""
    choices = op.attributes[name].choices
    return choices is not None and len(choices) == 1


def _default(op: type[Op], name: str) -> Any:
    codec = op.codecs()[name]
    return codec.to_plain(codec.coerce(op.attributes[name].default))


def _print_named(name: str, as_json: bool) -> None:
    """Print the operator with this name, or the operators that have this name in other formats, as text or as JSON.

    `InvalidArgumentError` is raised for an unknown name, with a similar one as a hint.
    """
    if name in registered_ops():
        _print_operator(op_class(name), as_json)
        return
    foreign_matches = ops_named(name)
    ops = list({foreign_match.op.op_name(): foreign_match.op for foreign_match in foreign_matches}.values())
    if not ops and (format := format_that_reads(name)):
        raise InvalidArgumentError(
            f"{name!r} of {format} is read, but has no operator of its own here: others replace it"
        )
    if not ops:
        known_names = [*registered_ops(), *(foreign_name.name for foreign_name in foreign_names())]
        hint = did_you_mean(name, known_names) or "; interposer ops lists all operators"
        raise InvalidArgumentError(f"unknown operator {name!r}{hint}")
    if not as_json:
        formats = ", ".join(dict.fromkeys(foreign_match.format for foreign_match in foreign_matches))
        say(f"{foreign_matches[0].name} of {formats} is here: {', '.join(op.op_name() for op in ops)}\n".strip())
        print()
    if len(ops) == 1:
        _print_operator(ops[0], as_json)
    elif as_json:
        write_json([_described(op) for op in ops])
    else:
        show(Table(("operator", "family", "operands", "attributes"), [_row(op) for op in ops]))


def _print_operator(op: type[Op], as_json: bool) -> None:
    if as_json:
        write_json(_described(op))
        return
    print(f"{op.op_name()} ({op.family})\n\n{inspect.getdoc(op)}\n")
    slots: list[tuple[str, Slot]] = [
        *(("operand", slot) for slot in op.operands),
        *(("result", slot) for slot in op.results),
    ]
    rows = [(kind, _signature(slot), _rank(slot), _types(slot.dtypes), slot.doc) for kind, slot in slots]
    rows += [
        ("attribute", _with_default(op, name), "", _kind(op, name), attribute.doc)
        for name, attribute in op.attributes.items()
    ]
    show(without_empty_columns(Table(("part", "name", "rank", "type", "about"), rows)))


def _rank(slot: Slot) -> str:
    if slot.rank is None:
        return ""
    return "{} to {}".format(*slot.rank) if isinstance(slot.rank, tuple) else str(slot.rank)


def _kind(op: type[Op], name: str) -> str:
    attribute, codec = op.attributes[name], op.codecs()[name]
    if attribute.choices is not None:
        return f"one of {', '.join(str(codec.to_plain(choice)) for choice in attribute.choices)}"
    bounds = [f"{_SIGNS[bound]} {limit:g}" for bound, limit in attribute.bounds.items()]
    return " ".join([codec.title, *bounds])


def _described(op: type[Op]) -> dict[str, Any]:
    return {
        "op": op.op_name(),
        "family": op.family,
        "summary": (inspect.getdoc(op) or "").partition("\n")[0],
        "executable": op.executable,
        "operands": [_slot(slot) for slot in op.operands],
        "results": [_slot(slot) for slot in op.results],
        "attributes": [_attribute(op, name) for name in op.attributes],
    }


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        "name": slot.name,
        "optional": slot.optional,
        "variadic": slot.variadic,
        "rank": list(slot.rank) if isinstance(slot.rank, tuple) else slot.rank,
        "types": None if slot.dtypes is None else _sorted(slot.dtypes),
        "about": slot.doc,
    }


def _attribute(op: type[Op], name: str) -> dict[str, Any]:
    attribute = op.attributes[name]
    default = {} if attribute.required else {"default": _default(op, name)}
    return {"name": name, "type": _kind(op, name), "required": attribute.required, **default, "about": attribute.doc}


# --- kernels ----------------------------------------------------------------------------------------------------------


def _print_kernels(backend_id: str, runtime: Runtime, as_json: bool) -> None:
    backend = runtime.registry.get(backend_id)
    table = backend.kernels
    kernels = [(op, kernel) for op in _served(table) for kernel in table.kernels(op)]
    if not kernels:
        _print_coverage(backend, as_json)
    elif as_json:
        write_json([_described_kernel(op, kernel) for op, kernel in kernels])
    else:
        rows = [(op.op_name(), _tensors(kernel), _takes(op, kernel), _conditions(kernel)) for op, kernel in kernels]
        show(without_empty_columns(Table(("operator", "tensors", "types", "conditions"), rows)))


def _print_coverage(backend: Backend, as_json: bool) -> None:
    """Print what a backend without a table of kernels answers when it is asked about every sample of the kit."""
    from interposer.testing.coverage import coverage_of  # noqa: PLC0415 - imports the whole kit

    with progress_line() as progress:
        coverages = coverage_of(backend, progress)
    if as_json:
        write_json([_described_coverage(coverage) for coverage in coverages])
        return
    say(f"{backend.id} has no table of kernels; it was asked about every sample of the conformance kit")
    rows = [
        (coverage.op.op_name(), _kind_of_tensors(coverage.quantized), _types(coverage.types), _share(coverage))
        for coverage in coverages
    ]
    show(Table(("operator", "tensors", "types", "samples"), rows))


def _share(coverage: Coverage) -> str:
    return "all" if coverage.taken == coverage.asked else f"{coverage.taken} of {coverage.asked}"


def _described_coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "op": coverage.op.op_name(),
        "quantized": coverage.quantized,
        "types": {"*": _sorted(coverage.types)},
        "taken": coverage.taken,
        "asked": coverage.asked,
    }


def _served(table: KernelTable) -> Iterable[type[Op]]:
    ops = {op.op_name(): op for op in (*registered_ops().values(), *table) if op in table}
    return (ops[name] for name in sorted(ops))


def _tensors(kernel: Kernel) -> str:
    return "" if kernel.quantized is None else _kind_of_tensors(kernel.quantized)


def _kind_of_tensors(is_quantized: bool) -> str:
    return "quantized" if is_quantized else "not quantized"


def _takes(op: type[Op], kernel: Kernel) -> str:
    """Return the types that a kernel accepts, as one text.

    If the kernel restricts operands by name, the text lists these first and then all others, as in ``weights: int8;
    others: float32``. If it restricts nothing, the types are those of the operator's first operand.
    """
    allowed_types = op.operands[0].dtypes if op.operands else None
    named_operands = [f"{name}: {_types(types)}" for name, types in kernel.types.items() if name != "*"]
    other_operands = _types(kernel.types.get("*", allowed_types))
    return "; ".join([*named_operands, f"others: {other_operands}"]) if named_operands else other_operands


def _conditions(kernel: Kernel) -> str:
    return ", ".join(_rules(kernel))


def _rules(kernel: Kernel) -> list[str]:
    """Return a readable name for each condition that the kernel checks in addition to the types of the operands."""
    names = (getattr(rule, "__name__", type(rule).__name__) for rule in kernel.rules)
    return ["a condition" if name == "<lambda>" else name.strip("_").replace("_", " ") for name in names]


def _described_kernel(op: type[Op], kernel: Kernel) -> dict[str, Any]:
    return {
        "op": op.op_name(),
        "quantized": kernel.quantized,
        "types": {name: _sorted(types) for name, types in kernel.types.items()},
        "conditions": _rules(kernel),
    }


# --- types ------------------------------------------------------------------------------------------------------------


def _types(types: Collection[DataType] | None) -> str:
    """Return a set of data types as a short text, in which names such as "floats" stand for whole groups."""
    remaining_types, type_words = set(ANY_TYPE if types is None else types), []
    for word, group in _GROUPS.items():
        if group <= remaining_types:
            type_words.append(word)
            remaining_types -= group
    return ", ".join([*type_words, *_sorted(remaining_types)])


_GROUPS: Final[dict[str, frozenset[DataType]]] = {
    "any": ANY_TYPE,
    "numbers": FLOATS | INTEGERS,
    "floats": FLOATS,
    "stored floats": STORED_FLOATS,
    "integers": INTEGERS,
    "signed integers": SIGNED_INTEGERS,
    "unsigned integers": UNSIGNED_INTEGERS,
}


def _sorted(types: Iterable[DataType]) -> list[str]:
    order = list(DataType)
    return [str(dtype) for dtype in sorted(types, key=order.index)]
