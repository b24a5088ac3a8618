"""The stub file of the builders, for type checkers and editors: a method of `Network` for every operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from interposer.core.schema import Op
from interposer.ir.signatures import (
    attribute_classes,
    builder_name,
    builder_parameters,
    builder_summary,
    built_operators,
)
from tools.declarations import WIDTH, import_key

HEADER: Final = '''\
"""The methods of `Network` that add one layer each. Written by tools/generate.py; do not edit."""

# fmt: off
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from interposer.core.schema import Op
from interposer.core.types import Array, {types}
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
{imports}

__all__ = ["Builders"]

class Builders(ABC):
    @abstractmethod
    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
        regions: Sequence[Network | Graph] = (),
    ) -> Layer: ...
'''


def builders_stub() -> str:
    """Return the text of ``interposer/ir/builders.pyi``."""
    imports = _imported_names()
    types = ", ".join(sorted(imports.pop("interposer.core.types", set()) | {"TensorInfo"}, key=import_key))
    lines = [line for module in sorted(imports) for line in _import(module, imports[module])]
    methods = [line for op in built_operators() for line in _method(op)]
    return "\n".join([HEADER.format(imports="\n".join(lines), types=types) + "\n".join(methods), ""])


def _imported_names() -> dict[str, set[str]]:
    """Return the names of the package's classes that are types of operators' attributes, by module."""
    names: dict[str, set[str]] = {}
    for kind in (kind for op in built_operators() for kind in attribute_classes(op)):
        if kind.__module__.startswith("interposer."):
            names.setdefault(kind.__module__, set()).add(kind.__name__)
    return names


def _import(module: str, names: set[str]) -> Iterator[str]:
    return _wrapped(f"from {module} import ", sorted(names, key=import_key), "", brackets="()")


def _method(op: type[Op]) -> Iterator[str]:
    yield from _wrapped(f"    def {builder_name(op)}(", builder_parameters(op), ") -> Layer:")
    yield f'        """{_summary(op)}"""'


def _summary(op: type[Op]) -> str:
    """Return the first sentence of an operator's docstring, or as many of its clauses as fit on a line."""
    sentence = builder_summary(op).rstrip(".")
    ends = [boundary.start() for boundary in re.finditer(r"[:;,]? (?=\()|[:;,] ", sentence)]
    fitting = [end for end in (*ends, len(sentence)) if end <= WIDTH - len('        """."""')]
    return f"{sentence[: max(fitting, default=0)]}."


def _wrapped(prefix: str, parameters: list[str], suffix: str, brackets: str = "") -> Iterator[str]:
    """Yield the lines of a signature or an import, wrapped like the formatter does it.

    `parameters` are separated by commas between `prefix` and `suffix`. `brackets` is "()" if brackets are only required
    around wrapped items, as for an import.
    """
    line, indent = f"{prefix}{', '.join(parameters)}{suffix}", " " * (len(prefix) - len(prefix.lstrip()) + 4)
    if len(line) <= WIDTH:
        yield line
        return
    yield prefix + brackets[:1]
    if not brackets and len(f"{indent}{', '.join(parameters)}") <= WIDTH:
        yield f"{indent}{', '.join(parameters)}"
    else:
        yield from (f"{indent}{parameter}," for parameter in parameters)
    yield f"{indent[4:]}{brackets[1:]}{suffix}"
