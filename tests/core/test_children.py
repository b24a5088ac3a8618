"""Child processes run no code of the working directory."""

from __future__ import annotations

import ast
from pathlib import Path

import interposer

PACKAGE = Path(interposer.__file__).parent


def commands() -> list[tuple[str, ast.List]]:
    """Return the lists in the package that begin with the interpreter, and where they are."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "sys.executable" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.List) and node.elts and "sys.executable" in ast.unparse(node.elts[0]):
                found.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", node))
    return found


def test_children_start_without_the_working_directory_in_their_path():
    assert len(commands()) >= 5
    unsafe = [place for place, node in commands() if ast.unparse(node.elts[1]) not in ("'-P'", "'-I'")]
    assert unsafe == []
