"""The naming scheme of dynamic backend files: ``<vendor>_<name>_backend.so[<version>]``, or ``.py`` for Python."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["looks_like_a_backend", "name_problem"]

SCHEME: Final = "<vendor>_<name>_backend.so[.<number>...] or <vendor>_<name>_backend.py"
_FILE: Final = re.compile(r"[A-Za-z0-9]+_[A-Za-z0-9]+_backend\.(so(\.[0-9]+)*|py)")
_PIECES: Final = re.compile(r"(?:(?P<vendor>.*?)_)??(?P<name>[^_]*)_backend\.(?:so(?P<version>\..*)?|py)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


def name_problem(file_name: str) -> str | None:
    """Return why a file name does not follow the scheme, or None if it does."""
    if _FILE.fullmatch(file_name):
        return None
    return f"the file name {_problem(file_name)}; expected {SCHEME}"


def _problem(file_name: str) -> str:
    name_match = _PIECES.fullmatch(file_name)
    if name_match is None:
        return _problem_of_ending(file_name)
    for group_name in ("vendor", "name"):
        if not name_match[group_name]:
            return f"has no {group_name}"
    for group_name in ("vendor", "name"):
        if not _WORD.fullmatch(name_match[group_name]):
            return f"has a {group_name} with other characters than letters and digits: {name_match[group_name]!r}"
    return f"has a version that is not made of dots and numbers: {name_match['version']!r}"


def _problem_of_ending(file_name: str) -> str:
    ending_match = re.search(r"\.(so|py)((?<!py)\.[0-9]+)*\Z", file_name)
    if ending_match is not None:
        return f"has no '_backend' before '.{ending_match[1]}'"
    return "does not end in '_backend.so' and a version, or in '_backend.py'"


def looks_like_a_backend(file_name: str) -> bool:
    """Return True if a file is probably meant to be a backend, even if its name does not follow the scheme."""
    return "backend" in file_name.lower()
