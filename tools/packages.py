"""Write the sizes of the packages into docs/architecture.md: files, lines, and the longest function of each package.

``python tools/packages.py`` writes the numbers again. A test accepts numbers that differ from the code by up to a
tenth, so that not every change has to write them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "src" / "interposer"
PAGE: Final = ROOT / "docs" / "architecture.md"
TOP: Final = "top level"
LONGEST_HEAD: Final = "| package | longest function | lines |\n| --- | --- | ---: |\n"
_SIZES: Final = re.compile(r"^\| (`\w+`|top level) \| [\d,]+ \| [\d,]+ \| ([^\d|][^|]*)\|$", re.MULTILINE)
_DIVIDED: Final = re.compile(r"^(\| \S[^|]* \| [\d,]+ \| [\d,]+ \|) ([^|]*) \| [\d,+ ]+ \| [\d,+ ]+ \|$", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d[\d,]*")


class Size(NamedTuple):
    """The number of Python files of a package, and of their lines."""

    files: int
    lines: int


class Function(NamedTuple):
    """A function by its module and name, with the number of its lines; the docstring is not counted."""

    lines: int
    module: str
    name: str


@cache
def sizes() -> dict[str, Size]:
    """Return the size of each package by name; modules that are in no package count together."""
    result: dict[str, Size] = {}
    for path in modules():
        files, lines = result.get(_package(path), Size(0, 0))
        result[_package(path)] = Size(files + 1, lines + _text(path).count("\n"))
    return result


@cache
def longest() -> dict[str, Function]:
    """Return the longest function of each package by the package's name."""
    result: dict[str, Function] = {}
    for path in modules():
        for function in _functions(path):
            result[_package(path)] = max(function, result.get(_package(path), function))
    return result


def written(page: str) -> str:
    """Return the text of a page in Markdown, with the numbers in its tables replaced by the current ones."""
    page = _SIZES.sub(_size_row, page)
    page = _DIVIDED.sub(_divided_row, page)
    before, head, after = page.partition(LONGEST_HEAD)
    rows = "".join(f"| {_shown(name)} | {_title(item)} | {item.lines} |\n" for name, item in _in_order(page))
    return before + head + rows + after[re.match(r"(\|.*\n)*", after).end() :] if head else page  # type: ignore[union-attr]


def differences(page: str, tolerance: float = 0.1) -> list[str]:
    """Return a message for each line of the page whose numbers differ from the current ones by more than `tolerance`.

    `tolerance` is a fraction. Packages without a row are reported too.
    """
    pairs = zip(page.splitlines(), written(page).splitlines(), strict=False)
    wrong = [f"{old}\n  now: {new}" for old, new in pairs if not _is_near(old, new, tolerance)]
    missing = [name for name in sizes() if f"| {_shown(name)} |" not in page]
    return wrong + [f"the page has no row for {name}" for name in missing]


def modules() -> list[Path]:
    """Return all modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def _package(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else TOP


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _functions(path: Path) -> Iterator[Function]:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for name, node in _nested(ast.parse(_text(path)), ""):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            documented = ast.get_docstring(node) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            yield Function((node.end_lineno or 0) - node.lineno + 1 - docstring, module, name)


def _nested(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield all classes and functions with their names, those of their members after a dot."""
    for node in ast.iter_child_nodes(tree):
        name = getattr(node, "name", "")
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{name}", node
            yield from _nested(node, f"{prefix}{name}.")
        else:
            yield from _nested(node, prefix)


def _shown(name: str) -> str:
    return name if name == TOP else f"`{name}`"


def _title(function: Function) -> str:
    return f"`{function.module}.{function.name}`"


def _in_order(page: str) -> list[tuple[str, Function]]:
    """Return the longest function of each package as pairs of package and function, in the order of the page."""
    order = [match[1].strip("`") for match in _SIZES.finditer(page)]
    return [(name, longest()[name]) for name in order if name in longest()]


def _size_row(match: re.Match[str]) -> str:
    size = sizes().get(match[1].strip("`"), Size(0, 0))
    return f"| {match[1]} | {size.files} | {size.lines:,} | {match[2]}|"


def _divided_row(match: re.Match[str]) -> str:
    parts = [sizes().get(name.strip("` "), Size(0, 0)) for name in match[2].split(",")]
    files, lines = (" + ".join(f"{number:,}" for number in column) for column in zip(*parts, strict=True))
    return f"{match[1]} {match[2]} | {files} | {lines} |"


def _is_near(old: str, new: str, tolerance: float) -> bool:
    ours, theirs = ([int(text.replace(",", "")) for text in _NUMBER.findall(line)] for line in (old, new))
    same_text = _NUMBER.sub("", old) == _NUMBER.sub("", new)
    return same_text and all(abs(a - b) <= max(2, tolerance * b) for a, b in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
