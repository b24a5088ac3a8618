"""Numbers in the sentences of README.md and of pages agree with what they count, and with each other."""

import ast
import re
from pathlib import Path

from interposer.testing.conformance import all_cases
from tests import documents

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def stated(pattern):
    """Yield each page whose text matches the pattern, with the groups of the match."""
    for page in PAGES:
        for match in re.finditer(pattern, " ".join(page.read_text(encoding="utf-8").split())):
            yield page.relative_to(ROOT).as_posix(), match.groups()


def code_lines(text):
    """Count the lines of a module that are neither empty nor part of its docstring."""
    docstring = ast.parse(text).body[0]
    return sum(bool(line.strip()) for line in text.splitlines()[docstring.end_lineno :])


def test_the_number_of_conformance_cases_is_what_pages_say():
    count = len(all_cases("", "*"))
    sentences = list(stated(r"more than ([\d,]+) (?:\[?conformance )?cases"))
    assert {page for page, _ in sentences} >= {"README.md", "docs/why.md"}
    for page, [number] in sentences:
        assert count * 0.8 < int(number.replace(",", "")) < count, page


def test_the_backend_in_forty_lines_has_no_more():
    assert code_lines((ROOT / "examples/compute_backend.py").read_text("utf-8")) <= 40
    guide = (ROOT / "docs/backend-guide.md").read_text("utf-8").partition("## A backend in forty lines")[2]
    assert sum(bool(line.strip()) for line in documents.blocks_of(guide)[0].text.splitlines()) <= 40


def test_pages_that_count_the_builtin_operators_of_tflite_agree():
    sentences = [
        *stated(r"(\d+) of (?:the )?(\d+) builtin operators"),
        *((page, groups[::-1]) for page, groups in stated(r"Of the (\d+) builtin operators, (\d+) are supported")),
    ]
    assert {page for page, _ in sentences} >= {"docs/reference/tflite.md", "docs/reference/tflite-cases.md"}
    assert len({groups for _, groups in sentences}) == 1, sentences
