"""The reference pages: operators, exceptions and environment variables."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from functools import cache, reduce
from itertools import pairwise
from operator import and_, or_
from pathlib import Path
from typing import Any, Final

import interposer
from interposer import ops
from interposer.core import config, errors
from interposer.core.schema import Attribute, Op, Operand, Result, Role, annotation
from interposer.core.types import ANY_TYPE, FLOATS, DataLayout, DataType, TensorInfo
from interposer.ir.signatures import WITHOUT_BUILDER, builder_name, type_text
from interposer.kernels import KernelInfo, reference
from interposer.testing.known_samples import samples_of
from interposer.testing.sample import Sample
from tools.declarations import WIDTH, docstring_sections, first_line, import_key

ROOT: Final = Path(__file__).resolve().parent.parent
NOTE: Final = "<!-- Written by tools/generate.py; do not edit. -->\n"


def operators_index(families: dict[str, list[type[Op]]]) -> str:
    """Return the page in Markdown that lists all operators by family; `families` has the operators of each."""
    lines = ["# Operators", "", NOTE, "One page for each family, which is one module of `interposer.ops`.", ""]
    for family, group in families.items():
        lines += [f"## [{family}]({family}.md)", "", module_line(group[0]), ""]
        lines += [f"- [{op.op_name()}]({family}.md#{op.op_name().lower()}): {first_line(op)}" for op in group]
        lines.append("")
    return "\n".join(lines)


def family_page(family: str, group: list[type[Op]]) -> str:
    """Return the reference page in Markdown of one family, whose operators are `group`."""
    head = [f"# Operators: {family}", "", NOTE, module_line(group[0]), "", _files(family), ""]
    imports = list(_example_imports("\n".join(docstring_sections(op).get("Example", "") for op in group)))
    if imports:
        head += ["The examples begin with", "", *_python(imports), ""]
    lines = [line for op in group for line in _operator(op)]
    return "\n".join(
        [*head, *lines, *(line for enumeration in _enumerations(family) for line in _enumeration(enumeration))]
    )


def _files(family: str) -> str:
    places = {"Declarations": "ops", "reference kernels": "kernels", "samples": "testing/samples"}
    paths = {title: f"src/interposer/{place}/{family}.py" for title, place in places.items()}
    links = [f"[{title}](../../../{path})" for title, path in paths.items() if (ROOT / path).exists()]
    return f"{' · '.join(links)}"


def _operator(op: type[Op]) -> Iterator[str]:
    sections = docstring_sections(op)
    yield from (f"## {op.op_name()}", "", prose(sections[""]), "")
    if "Example" in sections:
        yield from (*_python(sections["Example"].splitlines(), "continued"), "")
    if op.op_name() not in WITHOUT_BUILDER:
        yield from (f"Added by `Network.{builder_name(op)}`.", "")
    yield from _traits(op)
    yield from _table(("Operand", "Role", "Rank", "Types", "", "Meaning"), map(_operand_row, op.operands))
    yield from _table(("Result", "Rank", "Types", "", "Meaning"), map(_result_row, op.results))
    yield from _table(("Attribute", "Type", "Default", "Allowed", "Meaning"), _attribute_rows(op))
    for title, text in sections.items():
        if title.startswith("Shapes"):
            yield from (f"**{title}**", "", "```text", text, "```", "")
    yield from _data_types(op)
    if "Source" in sections:
        yield from ("**Source**", "", prose(sections["Source"]), "")


def _python(lines: Iterable[str], *words: str) -> list[str]:
    """Return examples as a block of Python code in Markdown, with `words` for the tests (tests/documents.py).

    The empty line at its end is for doctest, which otherwise takes the end of the block as part of the last result.
    """
    return [" ".join(["```python", *words]), *lines, "", "```"]


def _example_imports(text: str) -> Iterator[str]:
    """Yield the import statements for the names that the examples in `text` use, one for each module."""
    trees = [ast.parse(example.source) for example in doctest.DocTestParser().get_examples(text)]
    names = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {node.id for node in names} - {node.id for node in names if isinstance(node.ctx, ast.Store)}
    if "np" in used:
        yield ">>> import numpy as np"
    used -= {"np", *dir(builtins)}
    for module in (interposer, ops):
        exported = {name for name in dir(module) if not inspect.ismodule(getattr(module, name))}
        imports = sorted(used & exported, key=import_key)
        used -= set(imports)
        for line in textwrap.wrap(", ".join(imports), WIDTH - 40):
            yield f">>> from {module.__name__} import {line.rstrip(',')}"
    for name in sorted(used):
        raise SystemExit(f"an example uses {name}, which neither interposer nor interposer.ops exports")


def prose(text: str) -> str:
    """Return a docstring as Markdown: a table of reStructuredText becomes a block of text without its rulers."""
    blocks = text.replace("::\n", ":\n").split("\n\n")
    return "\n\n".join(_table_block(block) if block.startswith("==") else block for block in blocks)


def _table_block(block: str) -> str:
    return "\n".join(["```text", *(line for line in block.splitlines() if not line.startswith("==")), "```"])


def module_line(op: type[Op]) -> str:
    """Return the first line of the docstring of the module that defines an operator, which describes its family."""
    return (sys.modules[op.__module__].__doc__ or "").strip().partition("\n")[0]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    rows = list(rows)
    if not rows:
        return
    filled = [index for index in range(len(head)) if any(row[index] for row in rows)]
    for row in (head, ("---",) * len(head), *rows):
        cells = [row[index].replace("|", "\\|") for index in filled]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _traits(op: type[Op]) -> Iterator[str]:
    """Yield the traits that all samples of an operator have, and those that only some have, as the attributes vary."""
    combinations = {sample.op.traits for sample in samples_of(op)} or {op.declared_traits}
    always, ever = reduce(and_, combinations), reduce(or_, combinations)
    names = [f"`{trait.name}`" for trait in always]
    names += [f"`{trait.name}` (depending on the attributes)" for trait in ever & ~always]
    if names:
        yield from (f"[Traits](../../adding-an-operator.md#traits): {', '.join(names)}.", "")


def _operand_row(operand: Operand) -> tuple[str, ...]:
    types = f"that of `{operand.same_dtype_as}`" if operand.same_dtype_as else _types_cell(operand.dtypes)
    role = "" if operand.role is Role.DATA else operand.role.value
    return (f"`{operand.name}`", role, _rank(operand.rank), types, _count(operand), operand.doc)


def _result_row(result: Result) -> tuple[str, ...]:
    types = _types_cell(result.dtypes)
    if result.dtypes is None and result.dtype_of:
        types = f"that of `{result.dtype_of}`"
    notes = ["any number"] * result.variadic + ["shape may depend on data"] * result.dynamic
    return (f"`{result.name}`", _rank(result.rank), types, ", ".join(notes), result.doc)


def _types_cell(types: Iterable[DataType] | None) -> str:
    return "" if types is None else types_text(types)


def _count(operand: Operand) -> str:
    if operand.variadic:
        return "any number" if operand.optional else "one or more"
    return "optional" if operand.optional else ""


def _rank(rank: Any) -> str:
    return "any" if rank is None else f"{rank[0]} to {rank[1]}" if isinstance(rank, tuple) else str(rank)


def _attribute_rows(op: type[Op]) -> Iterator[tuple[str, ...]]:
    for attribute in op.attributes.values():
        default = _default_cell(attribute)
        hint = annotation(op, attribute.name)
        yield (f"`{attribute.name}`", _type_cell(hint, op.family), default, _allowed(attribute, hint), attribute.doc)


def _default_cell(attribute: Attribute) -> str:
    if attribute.required:
        return "required"
    return f"by `{attribute.by}`" if attribute.by else f"`{_plain(attribute.default)}`"


def _type_cell(hint: Any, family: str) -> str:
    home = _family_of(hint)
    if home is None:
        return f"`{type_text(hint)}`"
    return f"[`{type_text(hint)}`]({'' if home == family else f'{home}.md'}#{hint.__name__.lower()})"


def _family_of(hint: Any) -> str | None:
    """Return the operator family that defines an attribute's type, if that is an enumeration; else None."""
    is_enumeration = (
        isinstance(hint, type) and issubclass(hint, Enum) and hint.__module__.startswith(f"{ops.__name__}.")
    )
    return hint.__module__.rpartition(".")[2] if is_enumeration else None


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, DataType) else value.name if isinstance(value, Enum) else repr(value)


def _allowed(attribute: Attribute, hint: Any) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [f"{signs[name]} {bound:g}" for name, bound in attribute.bounds.items()]
    choices = attribute.choices or (hint if hint is DataLayout else ())
    if hint is DataType:
        return types_text(choices) if choices else ""
    return ", ".join([*bounds, *(f"`{_plain(choice)}`" for choice in choices)])


INDEX_TYPES: Final = frozenset({DataType.INT32, DataType.INT64})
SMALL_FLOATS: Final = FLOATS & {item for item in DataType if item.bits == 8}
RUNS: Final = (
    (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64),
    (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64),
    (DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64),
)


def types_text(types: Iterable[DataType] | None) -> str:
    """Return a set of data types as text, such as "float32, int8 to int64", in the order of their declaration."""
    chosen = ANY_TYPE if types is None else frozenset(types)
    if chosen >= ANY_TYPE:
        return ", ".join(["any", *(str(dtype) for dtype in DataType if dtype in chosen - ANY_TYPE)])
    text = _listed(dtype for dtype in DataType if dtype in chosen)
    for run in RUNS:
        text = text.replace(_listed(run), f"{run[0]} to {run[-1]}")
    return text.replace(_listed(dtype for dtype in DataType if dtype in SMALL_FLOATS), "float8")


def _listed(types: Iterable[DataType]) -> str:
    return ", ".join(map(str, types))


def _data_types(op: type[Op]) -> Iterator[str]:
    if not op.executable:
        yield from ("No kernel runs it.", "")
    elif not reference().kernels(op):
        yield from ("There is no reference kernel yet.", "")
    else:
        yield from ("**Data types that CpuRef takes**", "")
        yield from _table(("", "Types", "Quantized types"), _type_rows(op))


def _type_rows(op: type[Op]) -> list[tuple[str, ...]]:
    """Return the rows of the table of supported types: names of operands and results, plain types, quantized types.

    Those with equal types share a row; if that names more than four, they are called "the others".
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, result in _types_of_samples(op).items():
        cells = tuple(types_text(dtype for dtype, quantized in result if quantized is sort) for sort in (False, True))
        groups.setdefault(cells, []).append(f"`{name}`")
    longest = max(groups, key=lambda cells: len(groups[cells]), default=())
    if len(groups) == 1:
        groups = {longest: ["all"]}
    elif len(groups.get(longest, ())) > 4:
        del groups[longest]
        groups[longest] = ["the others"]
    return [(", ".join(names), *cells) for cells, names in groups.items()]


@cache
def _types_of_samples(op: type[Op]) -> dict[str, set[tuple[DataType, bool]]]:
    """Return the types of each operand and result in the samples that CpuRef supports, as pairs (type, is quantized).

    If an operator has optional operands, which not every sample has, each sample also counts in the other types that
    CpuRef supports for it. Operands for indices have every type that the operator allows.
    """
    call_of_form: dict[tuple[Any, ...], tuple[Op, KernelInfo]] = {}
    for sample in samples_of(op):
        form = _form(sample)
        if form not in call_of_form and reference().find(*(call := _call(sample))):
            call_of_form[form] = call
    calls = [*call_of_form.values()]
    if any(declared.optional for declared in op.operands):
        plain = {info.input.dtype for _, info in calls if not info.quantized}
        others = [(created, _retyped(info, dtype)) for created, info in calls if not info.quantized for dtype in plain]
        calls += [call for call in others if reference().find(*call)]
    result: dict[str, set[tuple[DataType, bool]]] = {declared.name: set() for declared in (*op.operands, *op.results)}
    for _, info in calls:
        for declared, value in ((op.operands, info.inputs), (op.results, info.outputs)):
            for index, element in enumerate(value):
                if element is not None:
                    name = declared[min(index, len(declared) - 1)].name
                    result[name].add((element.dtype, element.is_quantized))
    for declared in op.operands:
        if declared.dtypes and declared.dtypes <= INDEX_TYPES:
            result[declared.name] = {(dtype, False) for dtype in declared.dtypes}
    return {name: types for name, types in result.items() if types}


def _form(sample: Sample) -> tuple[Any, ...]:
    """Return what the types of a sample's results depend on: its attributes that are no numbers, and declared types."""
    infos = [*(given and given.info for given in sample.inputs), *sample.outputs]
    types = [info and (info.dtype, info.is_quantized, info.element) for info in infos]
    values = [getattr(value, "dtype", value) for value in sample.op.attribute_values().values()]
    return (*(value for value in values if not _is_numeric(value)), *types)


def _is_numeric(value: object) -> bool:
    elements = value if isinstance(value, tuple) else (value,)
    return all(isinstance(element, int | float) and not isinstance(element, bool) for element in elements)


def _call(sample: Sample) -> tuple[Op, KernelInfo]:
    layer = sample.network()[0].graph.layer("layer")
    return layer.op, KernelInfo.of(layer.op, layer.input_infos, [value.known for value in layer.outputs])


def _retyped(info: KernelInfo, dtype: DataType) -> KernelInfo:
    """Return the infos of a sample with the type `dtype` for all tensors that have the type of the first input."""

    def other(tensor_info: TensorInfo | None) -> TensorInfo | None:
        has_same_type = (
            tensor_info is not None and tensor_info.dtype is info.input.dtype and not tensor_info.is_quantized
        )
        return tensor_info.with_dtype(dtype) if has_same_type else tensor_info

    return replace(info, inputs=tuple(map(other, info.inputs)), outputs=tuple(map(other, info.outputs)))


def _enumerations(family: str) -> list[type[Enum]]:
    module = sys.modules[f"{ops.__name__}.{family}"]
    return [result for name in sorted(module.__all__) if _family_of(result := getattr(module, name)) == family]


def _enumeration(kind: type[Enum]) -> Iterator[str]:
    meanings = member_docs(inspect.getsource(kind))
    yield from (f"## {kind.__name__}", "", inspect.getdoc(kind) or "", "")
    if meanings:
        yield from _table(
            ("Value", "Meaning"), ((f"`{member.name}`", meanings.get(member.name, "")) for member in kind)
        )
    else:
        yield from (", ".join(f"`{member.name}`" for member in kind), "")


def member_docs(source: str) -> dict[str, str]:
    """Return the docstrings that follow the members of an enumeration."""
    docs = {}
    [declared] = ast.parse(source).body
    for first, second in pairwise(declared.body):
        match first, second:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(meaning))):
                docs[name] = " ".join(meaning.split())
    return docs


def errors_page() -> str:
    """Return the reference page of exceptions."""
    lines = ["# Exceptions", "", NOTE, "All in `interposer.errors`.", "", "```text", _tree(), "```", ""]
    for name in errors.__all__:
        error_class = getattr(errors, name)
        if isinstance(error_class, type):
            bases = ", ".join(f"`{base.__name__}`" for base in error_class.__bases__)
            lines += [f"## {name}", "", f"Derives from {bases}.", "", inspect.getdoc(error_class) or "", ""]
    return "\n".join(lines)


def environment_page() -> str:
    """Return the reference page of the environment variables, which are the constants of `interposer.core.config`."""
    lines = ["# Environment variables", "", NOTE, "| Variable | Meaning |", "| --- | --- |"]
    for name, meaning in environment_variables(inspect.getsource(config)):
        lines.append(f"| `{name}` | {meaning} |")
    build = "[how it is built](../cpuacc.md#how-it-is-built)"
    lines += [
        "",
        f"The build of CpuAcc reads `INTERPOSER_NATIVE_SETS`, the instruction sets to compile kernels for: {build}.",
    ]
    return "\n".join(lines)


def environment_variables(source: str) -> list[tuple[str, str]]:
    """Return the texts of a module's constants, with the docstrings that follow them."""
    variables = []
    for first, second in pairwise(ast.parse(source).body):
        match first, second:
            case (
                ast.AnnAssign(value=ast.Constant(value=str(name))),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ) if name.startswith("INTERPOSER_"):
                variables.append((name, meaning.removeprefix("Environment variable: ")))
    return variables


def _tree() -> str:
    lines = (errors.__doc__ or "").splitlines()
    return inspect.cleandoc("\n".join(["", *(line for line in lines if line.startswith("    "))]))
