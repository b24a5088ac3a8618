"""A plug-in for pytest that runs the tests of ``make quick``: ``python -m pytest -p tests.quick``.

These are the tests in `quick.txt` and those that mirror the files that differ from the last commit. A line of
`quick.txt` is a test file, or one test function in a file of which not all are chosen; `tools/quick.py` writes it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".txt")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore files of which no test is chosen."""
    is_other = collection_path.suffix == ".py" and _path(collection_path) not in chosen()
    return True if is_other else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Make no items of functions that are not chosen, so that their cases cost nothing."""
    names = chosen().get(_path(collector.path), frozenset())
    return [] if names and callable(obj) and not isinstance(obj, type) and name not in names else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the whole package first: they take longest, and one that comes last keeps others waiting."""
    items.sort(key=lambda item: item.path.parent != LIST.parent)


@cache
def chosen() -> dict[str, frozenset[str]]:
    """Return the names of the chosen functions by file; an empty set stands for all functions of a file."""
    return on_the_list() | dict.fromkeys(mirrored(changed_files()), frozenset())


def on_the_list() -> dict[str, frozenset[str]]:
    """Return the functions on the list by file, without those of changed files."""
    files: dict[str, frozenset[str]] = {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        path, _, name = line.partition("::")
        files[path] = files.get(path, frozenset()) | ({name.rpartition("::")[2]} if name else set())
    return files


def changed_files() -> list[str]:
    """Return the files that differ from the last commit, as git names them; none outside of a repository."""
    command = ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [line[3:].strip('"') for line in done.stdout.splitlines()]


def mirrored(files: list[str]) -> Iterator[str]:
    """Yield the test files among `files`, and those in the folder of a module's package that have its name."""
    for path in map(Path, files):
        if path.parts[0] == "tests":
            yield path.as_posix()
        elif path.parts[:2] == ("src", "interposer") and len(path.parts) > 3:
            for found in (ROOT / "tests" / path.parts[2]).rglob(f"test_*{path.stem.strip('_')}*.py"):
                yield _path(found)


def _path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
