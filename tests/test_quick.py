"""The tests of ``make quick``: their list, how they are chosen, and the defects that are planted to try them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import quick
from tools.plant import Defect, defects_in
from tools.quick import Measurement, Record, choose, listed

HERE = Path("src/interposer/core/shape.py")


def functions_in(path: str) -> set[str]:
    """Return the names of all functions in a test file, those of classes included."""
    nodes = ast.walk(ast.parse((quick.ROOT / path).read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_on_the_list_exists():
    """If this fails: ``python tools/quick.py choose``, or mend the lines of tests that got other names."""
    listed_files = {line.partition("::")[0] for line in quick.LIST.read_text(encoding="utf-8").splitlines()}
    missing = [path for path in listed_files if not (quick.ROOT / path).is_file()]
    for path in listed_files.difference(missing):
        missing += [f"{path}::{name}" for name in quick.chosen()[path] - functions_in(path)]
    assert missing == []


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/interposer/core/shape.py", "tests/core/test_shape.py"),
        ("src/interposer/kernels/_pooling.py", "tests/kernels/test_pooling_kernels.py"),
        ("tests/test_tiny.py", "tests/test_tiny.py"),
    ],
)
def test_a_changed_file_is_tested_by_the_tests_with_its_name(changed, tests):
    assert list(quick.mirrored([changed])) == [tests]


def test_pages_and_modules_that_are_in_no_package_have_no_tests_with_their_name():
    assert list(quick.mirrored(["README.md", "docs/models.md", "src/interposer/__main__.py"])) == []


def executing(seconds: float, *lines: int) -> Record:
    return Record(seconds, {str(HERE): set(lines)})


def test_the_test_that_executes_most_lines_in_a_second_is_chosen_first():
    tests = {"tests/core/a.py::slow": executing(3, 1, 2, 3), "tests/core/a.py::quick": executing(1, 1, 2)}
    assert choose(Measurement(tests), budget=9) == ["tests/core/a.py::quick", "tests/core/a.py::slow"]
    assert choose(Measurement(tests), budget=2) == ["tests/core/a.py::quick"]


def test_a_test_of_other_lines_is_chosen_before_one_of_the_same_lines():
    lines = {"tests/core/a": (1, 2, 3, 4), "tests/core/b": (1, 2, 3), "tests/core/c": (5, 6, 7)}
    tests = {name: executing(1, *numbers) for name, numbers in lines.items()}
    assert choose(Measurement(tests), budget=2) == ["tests/core/a", "tests/core/c"]


def test_a_test_in_the_folder_of_the_package_is_chosen_before_another_one():
    tests = {"tests/cli/a": executing(1, 1, 2), "tests/core/b": executing(1, 1, 2)}
    assert choose(Measurement(tests), budget=1) == ["tests/core/b"]


def test_a_file_is_listed_instead_of_all_of_its_tests():
    every_name = ["tests/a.py::x", "tests/a.py::y", "tests/b.py::x", "tests/b.py::y"]
    assert listed(every_name[:3], every_name) == ["tests/a.py", "tests/b.py::x"]


def defects(line: str) -> list[tuple[str, str]]:
    """Return the kinds of the defects in a line, each with the line that has the defect."""
    return [(defect.kind, defect.applied(line)) for defect in defects_in(line, HERE)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b", [("comparison", "x = (a <= b)"), ("swapped operands", "x = (b < a)")]),
        ("x = a - b", [("arithmetic", "x = (a + b)"), ("swapped operands", "x = (b - a)")]),
        ("x = a and b", [("and/or", "x = (a or b)")]),
        ("x = not a", [("sign or `not` left out", "x = a")]),
        ("x = f(a, b)", [("swapped arguments", "x = f(b, a)")]),
        ("x = f(a, key=b)", [("argument left out", "x = f(a)")]),
        ("f(a)", [("call left out", "pass")]),
        ("def f(a=3): return a", [("off by one", "def f(a=4): return a"), ("returns None", "def f(a=3): return None")]),
        ("x = a if b else c", [("negated condition", "x = (a if not b else c)")]),
        ("x = True", [("constant", "x = False")]),
    ],
)
def test_a_line_has_the_defects_that_fit_on_it(line, expected):
    assert sorted(defects(line)) == sorted(expected)


@pytest.mark.parametrize(
    "line",
    [
        '"""A text of 3 words."""',
        "def f(a: Literal[3]) -> Literal[4]: pass",
        "raise ValueError(f'{a + 1} is wrong', 1)",
        "_log.debug('%d', a + 1)",
        "x = f'{a + 1}'",
        "def __repr__(self): return 'A' + 'B'",
        "x = zip(strict=True)",
        "@cache(maxsize=3)\ndef f(): pass",
    ],
)
def test_texts_annotations_and_decorators_get_no_defects(line):
    assert defects(line) == []


def test_a_fault_is_shown_with_its_place_and_both_lines():
    defect = Defect(HERE, 2, 4, 9, "(a - b)", "arithmetic")
    assert defect.package == "core"
    assert defect.shown("é = 1\nx = a + b\n") == f"{HERE}:2  arithmetic\n    - x = a + b\n    + x = (a - b)"
