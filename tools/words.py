"""Check the project's words: no phrases that readers stumbled over, and no docstring of a function without a verb.

``python tools/words.py [PATH...]`` reads Python, C++, C, Rust and Markdown files (without arguments: those of
`FOLDERS` and `TOP`) and prints one line for each place that needs another word, with the word to write instead. It
exits with status 1 if there is such a place. ``tools/words.txt`` has the table of words, and the places where a word of
the table is right.
"""

from __future__ import annotations

import argparse
import ast
import gc
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".txt")
FOLDERS = ("src", "compat", "docs", "native", "benchmarks", "examples", "tools", "tests")
"""The folders that are read by default."""
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SUFFIXES = {".py", ".md", ".cpp", ".h", ".hpp", ".c", ".rs"}


class Word(NamedTuple):
    """A pattern that prose must not match, and the text to write instead."""

    pattern: re.Pattern[str]
    instead: str


class Exemption(NamedTuple):
    """A phrase that is allowed in files whose paths match `path`, although it matches a pattern of the table."""

    path: str
    phrase: re.Pattern[str]


class Table(NamedTuple):
    """The rules in `tools/words.txt`: patterns not to use, exemptions, and known verbs.

    `any_word` matches if any of the patterns does, to skip most lines quickly.
    """

    words: list[Word]
    any_word: re.Pattern[str]
    exemptions: list[Exemption]
    verbs: frozenset[str]


class Line(NamedTuple):
    """A piece of prose, and the number of its line in the file."""

    number: int
    text: str


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description="Check the project's words.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: the project)")
    paths = parser.parse_args(arguments).paths
    with ProcessPoolExecutor(initializer=gc.disable) as pool:  # syntax trees are no cycles
        complaints = [text for texts in pool.map(check, _files(paths), chunksize=25) for text in texts]
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


def check(path: Path) -> list[str]:
    """Return one complaint, ``path:line: ...``, for each word and docstring in a file that needs another."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    complaints = sorted(complaints_in(path.read_text(encoding="utf-8"), path.suffix, str(shown)))
    return [f"{shown}:{number}: {complaint}" for number, complaint in complaints]


def complaints_in(source: str, suffix: str, path: str = "") -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each complaint about a source text of the kind that `suffix` names."""
    any_word = table().any_word
    for line in _prose(source, suffix) if any_word.search(source) else ():
        text = _without_exemptions(line.text, path) if any_word.search(line.text) else ""
        for word in table().words:
            for match in word.pattern.finditer(text):
                yield line.number, f"{match[0]!r}: write {word.instead}"
    if suffix == ".py":
        yield from _docstrings_without_verb(ast.parse(source))


# --- the table --------------------------------------------------------------------------------------------------------


@cache
def table() -> Table:
    """Read `tools/words.txt`: sections in brackets, lines of two columns separated by ``|``, comments after ``#``."""
    sections: dict[str, list[tuple[str, str]]] = {"words": [], "allowed": [], "verbs": []}
    section = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            section = text.strip("[]")
        elif text:
            left, _, right = text.partition(" | ")
            sections[section].append((left.strip(), right.strip()))
    return Table(
        [Word(_whole_words(left), right) for left, right in sections["words"]],
        _whole_words("|".join(left for left, _ in sections["words"])),
        [Exemption(left, re.compile(right, re.IGNORECASE)) for left, right in sections["allowed"]],
        frozenset(verb for left, _ in sections["verbs"] for verb in left.split()),
    )


def _whole_words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE)


def _without_exemptions(text: str, path: str) -> str:
    for exemption in table().exemptions:
        if Path(path).match(exemption.path) or exemption.path == "*":
            text = exemption.phrase.sub("", text)
    return text


# --- prose ------------------------------------------------------------------------------------------------------------


def _prose(source: str, suffix: str) -> Iterator[Line]:
    if suffix == ".py":
        yield from _python_prose(source)
    elif suffix == ".md":
        yield from (Line(number, text) for number, text in enumerate(source.splitlines(), 1))
    else:
        yield from _comments(source)


def _python_prose(source: str) -> Iterator[Line]:
    """Yield the lines of comments and of strings that have at least two words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        prose = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string)
        if prose or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            yield from (Line(token.start[0] + index, text) for index, text in enumerate(token.string.splitlines()))


def _comments(source: str) -> Iterator[Line]:
    """Yield the comments of C, C++ and Rust; ``//`` within strings is rare enough to be read as one."""
    for match in re.finditer(r"//[^\n]*|/\*.*?\*/", source, re.DOTALL):
        first = source.count("\n", 0, match.start()) + 1
        yield from (Line(first + index, text) for index, text in enumerate(match[0].splitlines()))


# --- docstrings -------------------------------------------------------------------------------------------------------


def _docstrings_without_verb(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in _functions(tree):
        docstring = None if _is_property(node) else ast.get_docstring(node)
        if docstring and not has_verb(docstring):
            yield node.lineno, f"the docstring of {node.name!r} has no verb: {docstring.splitlines()[0]!r}"


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions in a statement and in its nested statements.

    Expressions are not searched, since that takes most of the time.
    """
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        children = getattr(node, name, ())
        for child in children if isinstance(children, list) else ():
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child
            yield from _functions(child)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True for a property or a setter, whose docstring may be a noun phrase without a verb."""
    return any(ast.unparse(decorator).endswith(("property", ".setter")) for decorator in node.decorator_list)


def has_verb(docstring: str) -> bool:
    """Return True if the first sentence of a docstring has a verb that `tools/words.txt` knows, in a finite form."""
    sentence = re.split(r"(?<=[.:;!?])\s", docstring, maxsplit=1)[0]
    return any(_is_verb(word) for word in re.findall(r"[a-z']+", sentence.lower()))


def _is_verb(word: str) -> bool:
    verbs = table().verbs
    stems = (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y")
    return any(stem in verbs for stem in stems)


def _files(paths: list[Path]) -> Iterator[Path]:
    value = paths or [ROOT / name for name in (*FOLDERS, *TOP)]
    for path in value:
        if path.is_file():
            yield path.resolve()
            continue
        for file in sorted(path.rglob("*")):
            if file.suffix in SUFFIXES and not {"build", "__pycache__", "schemas", "target"} & set(file.parts):
                yield file.resolve()


if __name__ == "__main__":
    sys.exit(main())
