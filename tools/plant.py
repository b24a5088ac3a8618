"""Plant one-line defects in the package, one at a time, and count those that a test command finds.

``python tools/plant.py --seed 7 --count 100`` draws defects spread evenly over `PACKAGES`: a swapped operator, swapped
operands, a constant that is off by one, a negated condition, a missing argument, a function that returns None, a call
that is left out. It writes each into a private copy of the tree, runs the tests of ``make quick`` there, and prints a
row: the seconds, the first test that failed, and the line without and with the defect. The tests that execute the line
run first, and all others only if these pass. Another test command may follow ``--``. With ``--wide``, a defect that was
not found is tried with all tests that execute the line, whether they are quick or not.

``python tools/quick.py measure`` must have run before: only lines that some test executes get defects. Docstrings,
annotations, messages, logging and `__repr__` get none, and neither do changes that leave the bytecode as it was.
"""

from __future__ import annotations

import argparse
import ast
import marshal
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.quick import on_the_list  # noqa: E402 - the import needs the path
from tools.quick import ALWAYS, PACKAGES, Measurement  # noqa: E402

ALL: Final = f"{sys.executable} -m pytest -q -x -p no:cacheprovider -m 'not slow'"
QUICK: Final = f"{ALL} -p tests.quick"
NO_TESTS: Final = 5
"""The exit status of pytest if it has run no test."""

MOST_TESTS: Final = 400
"""How many tests of a line are tried before all others, the quickest ones."""

TREE: Final = ("src", "tests", "compat", "tools", "docs", "examples", "benchmarks", "native", "deploy")
"""The folders that are copied; the tests read all of them."""

COMPARISONS: Final = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: Final = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
}  # fmt: skip
ONE_SIDED: Final = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.Pow)
"""Operators whose operands cannot be exchanged without a change of the result."""

WITHOUT_EFFECT: Final = {"doc", "repr", "stacklevel", "strict", "check", "copy", "maxsize"}
"""Keyword arguments that change texts, speed, or what happens to callers that are wrong."""

COMMUTATIVE: Final = re.compile(
    r"\b(add|multiply|maximum|minimum|max|min|gcd|lcm|suppress|(not_)?equal|(logical|bitwise)_\w+)$"
)
"""Functions whose arguments can be exchanged without a change of the result."""

TEXTS: Final = {"__repr__", "__str__", "_repr_html_", "__rich__"}
TEXT_CALLS: Final = re.compile(r"\b(_?log|_?logger|logging|warnings)\.|\w*(Error|Warning)\(")


@dataclass(frozen=True)
class Defect:
    """A changed line: `text` replaces the columns from `start` to `end` (in bytes) of a line of the file at `path`."""

    path: Path
    line: int
    start: int
    end: int
    text: str
    kind: str

    @property
    def package(self) -> str:
        """Return the name of the package below `interposer`."""
        return self.path.parts[2]

    def applied(self, source: str) -> str:
        """Return the source text of the file with the defect."""
        lines = source.encode().splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.text.encode() + line[self.end :]
        return b"".join(lines).decode()

    def shown(self, source: str) -> str:
        """Return the line as it was and the line with the defect."""
        old, new = (text.splitlines()[self.line - 1].strip() for text in (source, self.applied(source)))
        return f"{self.path}:{self.line}  {self.kind}\n    - {old}\n    + {new}"


@dataclass(frozen=True)
class Outcome:
    """What a test command made of a defect: the first test that failed, or None, and the seconds that it took."""

    found_by: str | None
    seconds: float


# --- which defects there are ------------------------------------------------------------------------------------------


def draw(measurement: Measurement, packages: list[str], count: int, seed: int) -> list[Defect]:
    """Return `count` defects, of each package as many as of the others, each on another line."""
    draws = random.Random(seed)
    defects = []
    for index, package in enumerate(packages):
        share = count // len(packages) + (index < count % len(packages))
        defects += _drawn_in(package, measurement, share, draws)
    return defects


def _drawn_in(package: str, measurement: Measurement, count: int, draws: random.Random) -> list[Defect]:
    """Draw lines, each with the same probability, and of each line one of the defects that fit on it."""
    by_line: dict[tuple[Path, int], list[Defect]] = {}
    for path in sorted((ROOT / "src" / "interposer" / package).rglob("*.py")):
        relative = path.relative_to(ROOT)
        executed = measurement.executed_lines(str(relative))
        for defect in defects_in(path.read_text(encoding="utf-8"), relative):
            if defect.line in executed:
                by_line.setdefault((relative, defect.line), []).append(defect)
    lines = draws.sample(sorted(by_line), len(by_line))
    drawn = (draws.choice(by_line[line]) for line in lines)
    return list(islice(filter(_changes_bytecode, drawn), count))


def defects_in(source: str, path: Path) -> Iterator[Defect]:
    """Yield all defects that fit into a module."""
    for node in _planted_nodes(ast.parse(source)):
        for kind, text in _changes(node):
            yield Defect(path, node.lineno, node.col_offset, node.end_col_offset or 0, text, kind)


def _changes_bytecode(defect: Defect) -> bool:
    source = (ROOT / defect.path).read_text(encoding="utf-8")
    return _bytecode(defect.applied(source)) not in (None, _bytecode(source))


def _bytecode(source: str) -> bytes | None:
    """Return a module compiled without docstrings, as bytes; None if the text is not Python."""
    try:
        return marshal.dumps(compile(source, "", "exec", optimize=2))
    except SyntaxError:
        return None


def _planted_nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the expressions and statements, each on one line, whose value matters to what the program does."""
    for child in _children(node):
        if isinstance(child, ast.expr | ast.stmt) and child.lineno == child.end_lineno:
            yield child
        yield from _planted_nodes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node without annotations, decorators, messages, docstrings and texts for readers."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_comment"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not _is_for_readers(child):
                yield child


def _is_for_readers(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name in TEXTS
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.keyword(arg=name):
            return name in WITHOUT_EFFECT
        case ast.Call(func=function) | ast.Expr(value=ast.Call(func=function)):
            return bool(TEXT_CALLS.match(f"{ast.unparse(function)}("))
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each defect that can stand in place of a node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from _changed_comparison(left, operator, right)
        case ast.BinOp(left=left, op=operator, right=right):
            yield from _changed_arithmetic(left, operator, right)
        case ast.Call(func=function, args=arguments, keywords=keywords):
            yield from _changed_call(function, arguments, keywords)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "returns None", "return None"
        case ast.Expr(value=ast.Call()):
            yield "call left out", "pass"
        case ast.Continue():
            yield "break for continue", "break"
        case _:
            yield from _changed_value(node)


def _changed_value(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", _text(ast.BoolOp(other, values))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign or `not` left out", _text(operand)
        case ast.Constant(value=bool() as value):
            yield "constant", repr(not value)
        case ast.Constant(value=int() as value):
            yield "off by one", repr(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "negated condition", _text(ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse))


def _changed_comparison(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Iterator[tuple[str, str]]:
    yield "comparison", _text(ast.Compare(left, [COMPARISONS[type(operator)]()], [right]))
    if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        yield "swapped operands", _text(ast.Compare(right, [operator], [left]))


def _changed_arithmetic(left: ast.expr, operator: ast.operator, right: ast.expr) -> Iterator[tuple[str, str]]:
    if type(operator) in ARITHMETIC:
        yield "arithmetic", _text(ast.BinOp(left, ARITHMETIC[type(operator)](), right))
    if isinstance(operator, ONE_SIDED):
        yield "swapped operands", _text(ast.BinOp(right, operator, left))


def _changed_call(
    function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]
) -> Iterator[tuple[str, str]]:
    for index, keyword in enumerate(keywords):
        if keyword.arg not in WITHOUT_EFFECT:
            yield "argument left out", _text(ast.Call(function, arguments, keywords[:index] + keywords[index + 1 :]))
    match arguments:
        case [first, second, *rest] if not COMMUTATIVE.search(ast.unparse(function)) and not _any_starred(
            first, second
        ):
            yield "swapped arguments", _text(ast.Call(function, [second, first, *rest], keywords))


def _any_starred(*arguments: ast.expr) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in arguments)


def _text(expression: ast.expr) -> str:
    """Return an expression as text, in parentheses if a neighbouring operator could take its operands."""
    text = ast.unparse(ast.fix_missing_locations(expression))
    return text if isinstance(expression, ast.Call | ast.Name | ast.Constant | ast.Attribute) else f"({text})"


# --- trying them ------------------------------------------------------------------------------------------------------


class Copy:
    """A private copy of the tree, in which one file at a time has a defect."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for name in TREE:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("build", "target"))
        for path in ROOT.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy2(path, folder)
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder / "compat" / "pyarmnn" / "src")])
        }

    def outcome(self, defect: Defect, commands: Iterable[str], limit: float) -> Outcome:
        """Run commands on the tree with a defect, until one fails; one that needs over `limit` seconds fails."""
        path = self.root / defect.path
        sound = path.read_text(encoding="utf-8")
        start = time.monotonic()
        _replace(path, defect.applied(sound))
        try:
            found_by = next(filter(None, (self._failure(command, limit) for command in commands)), None)
        finally:
            _replace(path, sound)
        return Outcome(found_by, time.monotonic() - start)

    def _failure(self, command: str, limit: float) -> str | None:
        """Run a command; return the first test that failed, or None."""
        with subprocess.Popen(
            shlex.split(command), cwd=self.root, env=self._environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return "(out of time)"
        if "ERROR: not found: " in output:
            raise ValueError(f"tests have other names than those that were recorded; measure again\n{output}")
        return _first_failure(output) if process.returncode not in (0, NO_TESTS) else None


def _replace(path: Path, source: str) -> None:
    """Write a module, without the compiled one, which Python reads if the two were written in the same second."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
    path.write_text(source, encoding="utf-8")


def _first_failure(output: str) -> str:
    failure = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failure[1] if failure else (output.strip().splitlines() or ["(no output)"])[-1]


# --- the command ------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return 1 if a defect was not found."""
    options = _options(arguments)
    measurement = Measurement.read()
    defects = draw(measurement, options.packages, options.count, options.seed)
    if options.list:
        print(*(defect.shown((ROOT / defect.path).read_text(encoding="utf-8")) for defect in defects), sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        trial = Trial(Copy(Path(folder)), measurement, options.limit, shlex.join(options.command), options.wide)
        missed = [defect for number, defect in enumerate(defects, 1) if not trial.finds(number, defect)]
    print(f"{len(defects) - len(missed)} of {len(defects)} found")
    return int(bool(missed))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the draws (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100, help="number of defects (default: %(default)s)")
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES), help=f"(default: {' '.join(PACKAGES)})")
    parser.add_argument("--limit", type=float, default=180, help="seconds for a run of the tests")
    parser.add_argument("--wide", action="store_true", help="try what was not found with all tests of the line")
    parser.add_argument("--list", action="store_true", help="list the defects, and try none")
    parser.add_argument("command", nargs="*", help="after --, instead of the quick tests")
    return parser.parse_args(arguments)


@dataclass(frozen=True)
class Trial:
    """How defects are tried: in which copy of the tree, with which command, and for how many seconds."""

    copy: Copy
    measurement: Measurement
    limit: float
    command: str
    is_wide: bool

    def finds(self, number: int, defect: Defect) -> bool:
        """Try a defect, print its row, and return True if a test found it."""
        outcome = self.copy.outcome(defect, [self.command] if self.command else self._quick(defect), self.limit)
        print(f"{number:3} {outcome.seconds:6.1f} s  {outcome.found_by or 'NOT FOUND'}")
        print(defect.shown((self.copy.root / defect.path).read_text(encoding="utf-8")), flush=True)
        if self.is_wide and not outcome.found_by:
            others = self.copy.outcome(defect, [self._of_the_line(defect, ALL, bool)], self.limit * 5)
            print(f"    all tests of the line: {others.found_by or 'NOT FOUND'}", flush=True)
        return outcome.found_by is not None

    def _quick(self, defect: Defect) -> list[str]:
        """Return the commands that run the quick tests of the line, those of the whole package, and all."""
        return [
            self._of_the_line(defect, QUICK, _is_quick),
            shlex.join([*shlex.split(QUICK), *ALWAYS]),
            f"{QUICK} -n 2",
        ]

    def _of_the_line(self, defect: Defect, command: str, is_tried: Callable[[str], bool]) -> str:
        recorded = self.measurement.tests_of(str(defect.path), defect.line)
        names = [name for name in recorded if is_tried(name) and _exists(name)]
        return f"{command} {shlex.join(names[:MOST_TESTS] or [f'tests/{defect.package}'])}"


def _is_quick(name: str) -> bool:
    path, *_, function = name.split("::")
    return path in _on_the_list() and function in (_on_the_list()[path] or {function})


_on_the_list: Final = cache(on_the_list)


def _exists(name: str) -> bool:
    path, *_, function = name.split("::")
    return f"def {function}(" in _text_of(path)


@cache
def _text_of(path: str) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
