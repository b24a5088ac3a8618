"""Write what follows from declarations: the builders, and the reference pages of operators and exceptions.

``python tools/generate.py`` writes the files anew; with ``--check`` it changes nothing, names the stale ones and exits
with status 1 where there are any. In both cases it lists what is declared badly.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, get_args, get_origin

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from interposer import config, errors, ops  # noqa: E402, F401 - the operators register themselves
from interposer.kernels.reference import reference  # noqa: E402
from interposer.kernels.table import Kernel  # noqa: E402
from interposer.schema import Attribute, Op, Operand, Result, annotation, registered_ops  # noqa: E402
from interposer.types import Array, DataType  # noqa: E402

WIDTH: Final = 120
BY_HAND: Final = frozenset({"Input", "Output", "Constant"})
TAKEN: Final = frozenset({"self", "name", "outputs", "op"})


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Write what follows from declarations.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a file is stale")
    check = parser.parse_args(arguments).check
    for complaint in complaints():
        print(f"declared badly: {complaint}", file=sys.stderr)
    stale = stale_files()
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path}")
    if check:
        return 1 if stale else 0
    write(stale)
    return 0


def stale_files() -> list[str]:
    """The generated files that are not as they should be, by their paths from the root."""
    wanted = generated()
    pages = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/reference/operators").glob("*.md"))
    wrong = {path for path, text in wanted.items() if _read(path) != text}
    return sorted(wrong | set(pages) - wanted.keys())


def write(paths: Iterable[str]) -> None:
    """Write these files, and remove those of them that nothing is generated for any more."""
    wanted = generated()
    for path in paths:
        target = ROOT / path
        if path not in wanted:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(wanted[path], encoding="utf-8")


def generated() -> dict[str, str]:
    """All generated files: their texts by their paths from the root."""
    files = {
        "src/interposer/ir/builders.py": builders(),
        "docs/reference/errors.md": errors_page(),
        "docs/reference/environment.md": environment_page(),
    }
    families = [(family, list(group)) for family, group in groupby(shipped(), key=lambda op: op.family)]
    files |= {f"docs/reference/operators/{family}.md": family_page(family, group) for family, group in families}
    files["docs/reference/operators/README.md"] = operators_index(dict(families))
    return {path: text.rstrip() + "\n" for path, text in files.items()}


def _read(path: str) -> str | None:
    target = ROOT / path
    return target.read_text(encoding="utf-8") if target.exists() else None


def shipped() -> list[type[Op]]:
    """The operators of this package, by family and name."""
    own = [op for op in registered_ops().values() if op.__module__.startswith("interposer.ops.")]
    return sorted(own, key=lambda op: (op.family, op.op_name()))


# --- builders ---------------------------------------------------------------------------------------------------------

HEADER: Final = '''\
"""Methods that add one layer each. Written by tools/generate.py from the operators' declarations; do not edit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

{imports}

if TYPE_CHECKING:
    from interposer.ir.graph import Layer, Value
    from interposer.schema import Op
    from interposer.types import TensorInfo

__all__ = ["Builders"]


class Builders(ABC):
    """A method for every operator: operands by position, None for one that is absent, and attributes by name."""

    @abstractmethod
    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
    ) -> Layer:
        """Add a layer that runs `op` on `values`."""
'''


def builders() -> str:
    """The module of builders."""
    built = [op for op in shipped() if op.op_name() not in BY_HAND]
    imports = "\n".join(_imports(built))
    return "\n".join([HEADER.format(imports=imports), *("\n".join(_method(op)) + "\n" for op in built)])


def _imports(built: list[type[Op]]) -> Iterator[str]:
    names: dict[str, set[str]] = {}
    for op in built:
        classes = [op, *(found for attribute in _settable(op) for found in _classes(annotation(op, attribute.name)))]
        for found in classes:
            names.setdefault(found.__module__, set()).add(found.__name__)
    for module in sorted(names):
        if module.startswith("interposer."):
            yield from _wrapped(f"from {module} import ", sorted(names[module], key=_import_key), "", brackets="()")


def _import_key(name: str) -> tuple[bool, str]:
    return not name.isupper(), name


def _classes(hint: Any) -> Iterator[type]:
    """The classes that an annotation speaks of."""
    if get_args(hint) and hint is not Array:
        for part in get_args(hint):
            yield from _classes(part)
    elif isinstance(hint, type):
        yield hint


def _settable(op: type[Op]) -> list[Attribute]:
    """The attributes that have more than one allowed value."""
    return [attribute for attribute in op.attributes.values() if len(attribute.choices or (1, 2)) > 1]


def _method(op: type[Op]) -> Iterator[str]:
    attributes = _settable(op)
    yield from _wrapped(f"    def add_{snake_case(op.op_name())}_layer(", _parameters(op), ") -> Layer:")
    yield f'        """{_summary(op)}"""'
    made = f"{op.op_name()}()"
    if attributes:
        made = "op"
        given = [f"{attribute.name}={attribute.name}" for attribute in attributes]
        yield from _wrapped(f"        op = {op.op_name()}(", given, ")")
    values = [f"*{operand.name}" if operand.variadic else operand.name for operand in op.operands]
    yield from _wrapped("        return self.add_layer(", [made, *values, "name=name", "outputs=outputs"], ")")


def _summary(op: type[Op]) -> str:
    """The first sentence, or as many of its parts as fit on a line."""
    sentence = first_line(op).partition(". ")[0].rstrip(".")
    ends = [found.start() for found in re.finditer(r"[:;,]? (?=\()|[:;,] ", sentence)]
    fitting = [end for end in (*ends, len(sentence)) if end <= WIDTH - len('        """."""')]
    return f"{sentence[: max(fitting, default=0)]}."


def _parameters(op: type[Op]) -> list[str]:
    operands = [_operand_parameter(op, index) for index in range(len(op.operands))]
    attributes = [_attribute_parameter(op, attribute) for attribute in _settable(op)]
    star = [] if op.operands and op.operands[-1].variadic else ["*"]
    last = ["name: str | None = None", "outputs: Sequence[TensorInfo | None] | TensorInfo | None = None"]
    return ["self", *operands, *star, *attributes, *last]


def _operand_parameter(op: type[Op], index: int) -> str:
    operand = op.operands[index]
    if operand.variadic:
        return f"*{operand.name}: Value | Layer | None"
    followers = [other for other in op.operands[index:] if not other.variadic]
    default = " = None" if all(other.optional for other in followers) else ""
    return f"{operand.name}: Value | Layer | None{default}"


def _attribute_parameter(op: type[Op], attribute: Attribute) -> str:
    default = "" if attribute.required else f" = {_source_text(attribute.default)}"
    return f"{attribute.name}: {type_text(annotation(op, attribute.name))}{default}"


def _source_text(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, float) and not abs(value) < float("inf"):
        return f'float("{value}")'
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _wrapped(prefix: str, items: list[str], suffix: str, brackets: str = "") -> Iterator[str]:
    """A call or a list of names, laid out as the formatter does it."""
    one, indent = f"{prefix}{', '.join(items)}{suffix}", " " * (len(prefix) - len(prefix.lstrip()) + 4)
    if len(one) <= WIDTH:
        yield one
        return
    yield prefix + brackets[:1]
    if not brackets and len(f"{indent}{', '.join(items)}") <= WIDTH:
        yield f"{indent}{', '.join(items)}"
    else:
        yield from (f"{indent}{item}," for item in items)
    yield f"{indent[4:]}{brackets[1:]}{suffix}"


def snake_case(name: str) -> str:
    """``SpaceToBatchNd`` as ``space_to_batch_nd``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def type_text(hint: Any) -> str:
    """An annotation as it is written."""
    if hint is Array:
        return "Array"
    if hint is type(None) or hint is Ellipsis:
        return "None" if hint is not Ellipsis else "..."
    parts = [type_text(part) for part in get_args(hint)]
    if get_origin(hint) is tuple:
        return f"tuple[{', '.join(parts)}]"
    if parts:
        return " | ".join(parts)
    return str(getattr(hint, "__name__", hint))


# --- reference pages --------------------------------------------------------------------------------------------------

NOTE: Final = "<!-- Written by tools/generate.py; do not edit. -->\n"


def operators_index(families: dict[str, list[type[Op]]]) -> str:
    """The list of all operators."""
    lines = ["# Operators", "", NOTE, "One page for each family, which is one module of `interposer.ops`.", ""]
    for family, group in families.items():
        lines += [f"## [{family}]({family}.md)", "", module_line(group[0]), ""]
        lines += [f"- [{op.op_name()}]({family}.md#{op.op_name().lower()}): {first_line(op)}" for op in group]
        lines.append("")
    return "\n".join(lines)


def family_page(family: str, group: list[type[Op]]) -> str:
    """The reference page of one family of operators."""
    head = [f"# Operators: {family}", "", NOTE, module_line(group[0]), ""]
    return "\n".join([*head, *(line for op in group for line in _operator(op))])


def _operator(op: type[Op]) -> Iterator[str]:
    sections = docstring_sections(op)
    yield from (f"## {op.op_name()}", "", prose(sections[""]), "")
    if op.op_name() not in BY_HAND:
        yield from (f"Added by `Network.add_{snake_case(op.op_name())}_layer`.", "")
    yield from _table(("Operand", "Rank", "Types", "", "Meaning"), map(_operand_row, op.operands))
    yield from _table(("Result", "Rank", "Types", "", "Meaning"), map(_result_row, op.results))
    yield from _table(("Attribute", "Type", "Default", "Allowed", "Meaning"), _attribute_rows(op))
    for title, text in sections.items():
        if title:
            yield from (f"**{title}**", "", *_block(title, text), "")
    yield from (*_kernels(op), "")


def docstring_sections(op: type[Op]) -> dict[str, str]:
    """The parts of an operator's docstring by their titles; what stands before the first title has none."""
    found, title = {"": [""]}, ""
    for line in (inspect.getdoc(op) or "").splitlines():
        heading = re.fullmatch(r"((?:Shapes|Source)\b.*):", line)
        title = heading[1] if heading else title
        found.setdefault(title, [])
        if not heading:
            found[title].append(line)
    return {title: inspect.cleandoc("\n".join(["", *lines])) for title, lines in found.items()}


def _block(title: str, text: str) -> list[str]:
    return ["```text", text, "```"] if title.startswith("Shapes") else [prose(text)]


def prose(text: str) -> str:
    """A docstring's text as Markdown: its tables stand as they are."""
    blocks = text.split("\n\n")
    return "\n\n".join(f"```text\n{block}\n```" if block.startswith("==") else block for block in blocks)


def first_line(op: type[Op]) -> str:
    """The first sentence of an operator's docstring."""
    return (inspect.getdoc(op) or "").partition("\n")[0]


def module_line(op: type[Op]) -> str:
    """The first line of the docstring of an operator's module."""
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


def _operand_row(operand: Operand) -> tuple[str, ...]:
    types = f"that of `{operand.same_dtype_as}`" if operand.same_dtype_as else types_text(operand.dtypes)
    return (f"`{operand.name}`", _rank(operand.rank), types, _count(operand), operand.doc)


def _result_row(result: Result) -> tuple[str, ...]:
    types = types_text(result.dtypes)
    if result.dtypes is None and result.dtype_of:
        types = f"that of `{result.dtype_of}`"
    notes = ["any number"] * result.variadic + ["shape may depend on data"] * result.dynamic
    return (f"`{result.name}`", _rank(result.rank), types, ", ".join(notes), result.doc)


def _count(operand: Operand) -> str:
    if operand.variadic:
        return "any number" if operand.optional else "one or more"
    return "optional" if operand.optional else ""


def _rank(rank: Any) -> str:
    return "any" if rank is None else f"{rank[0]} to {rank[1]}" if isinstance(rank, tuple) else str(rank)


def _attribute_rows(op: type[Op]) -> Iterator[tuple[str, ...]]:
    for attribute in op.attributes.values():
        default = "required" if attribute.required else f"`{_plain(attribute.default)}`"
        kind = type_text(annotation(op, attribute.name))
        yield (
            f"`{attribute.name}`",
            f"`{kind}`",
            default,
            _allowed(attribute, annotation(op, attribute.name)),
            attribute.doc,
        )


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, DataType) else value.name if isinstance(value, Enum) else repr(value)


def _allowed(attribute: Attribute, hint: Any) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [f"{signs[name]} {bound:g}" for name, bound in attribute.bounds.items()]
    choices = attribute.choices
    if choices is None and isinstance(hint, type) and issubclass(hint, Enum) and hint is not DataType:
        choices = tuple(hint)
    named = ", ".join(f"`{_plain(choice)}`" for choice in choices or ())
    return ", ".join(filter(None, [*bounds, named]))


def types_text(types: Iterable[DataType] | None) -> str:
    """A set of types in words, in the order of their declaration."""
    if types is None or set(types) == set(DataType):
        return "any"
    return ", ".join(str(one) for one in DataType if one in set(types))


def _kernels(op: type[Op]) -> Iterator[str]:
    kernels = reference().kernels(op)
    if not op.executable:
        yield "No kernel runs it."
        return
    yield from ("**Reference kernels take**" if kernels else "There is no reference kernel yet.", "")
    for kernel in kernels:
        yield f"- {_kernel(kernel)}"


def _kernel(kernel: Kernel) -> str:
    names = {"*": "every operand and result" if len(kernel.types) == 1 else "the others"}
    types = [f"{names.get(name, f'`{name}`')}: {types_text(found)}" for name, found in kernel.types.items()]
    only = {True: "quantized only", False: "not quantized", None: ""}[kernel.quantized]
    rules = "with further rules" if kernel.rules else ""
    return "; ".join(filter(None, [*(types or ["all that the operator allows"]), only, rules]))


def errors_page() -> str:
    """The reference page of exceptions."""
    lines = ["# Exceptions", "", NOTE, "All in `interposer.errors`.", "", "```text", _tree(), "```", ""]
    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type):
            bases = ", ".join(f"`{base.__name__}`" for base in found.__bases__)
            lines += [f"## {name}", "", f"Derives from {bases}.", "", inspect.getdoc(found) or "", ""]
    return "\n".join(lines)


def environment_page() -> str:
    """The reference page of the environment variables, which are the constants of `interposer.config`."""
    lines = ["# Environment variables", "", NOTE, "| Variable | Meaning |", "| --- | --- |"]
    for name, meaning in environment_variables(inspect.getsource(config)):
        lines.append(f"| `{name}` | {meaning} |")
    return "\n".join(lines)


def environment_variables(source: str) -> list[tuple[str, str]]:
    """The texts that a module's constants hold, with the docstrings behind them."""
    found = []
    for first, second in pairwise(ast.parse(source).body):
        match first, second:
            case (
                ast.AnnAssign(value=ast.Constant(value=str(name))),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ) if name.startswith("INTERPOSER_"):
                found.append((name, meaning.removeprefix("Environment variable: ")))
    return found


def _tree() -> str:
    lines = (errors.__doc__ or "").splitlines()
    return inspect.cleandoc("\n".join(["", *(line for line in lines if line.startswith("    "))]))


# --- what is declared badly -------------------------------------------------------------------------------------------


def complaints() -> list[str]:
    """What the declarations of operators lack, a line each."""
    return [f"{op.op_name()} ({op.family}): {fault}" for op in shipped() for fault in _faults(op)]


def _faults(op: type[Op]) -> Iterator[str]:
    titles = docstring_sections(op)
    for wanted in ("Shapes", "Source"):
        if not any(title.startswith(wanted) for title in titles):
            yield f"its docstring has no {wanted} section"
    if not first_line(op).endswith("."):
        yield f"the first line of its docstring is no sentence: {first_line(op)!r}"
    yield from (f"the attribute {a.name!r} has no doc" for a in _settable(op) if not a.doc)
    if op.executable and not reference().kernels(op):
        yield "it has no reference kernel"
    for name in [*op.attributes, *(operand.name for operand in op.operands)]:
        if name in TAKEN:
            yield f"{name!r} cannot be a parameter of its builder"


if __name__ == "__main__":
    sys.exit(main())
