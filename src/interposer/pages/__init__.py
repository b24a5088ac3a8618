"""Self-contained HTML pages that are drawn from plain data: a network, and a profile."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

__all__ = ["COLOURS", "filled", "script_of", "source"]

COLOURS: Final = (Path(__file__).parent / "colours.css").read_text(encoding="utf-8")
"""The style sheet that defines the colours of all pages, light and dark."""
_ESCAPED: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def script_of(folder: Path, names: Sequence[str]) -> str:
    """Return the scripts with these names in a folder, as one script."""
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def source(script: str) -> str:
    """Return the expression of a content security policy that allows this script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def filled(folder: Path, title: str, script: str, data: Mapping[str, Any], frame_sources: Iterable[str] = ()) -> str:
    """Return the page in a folder, which has `page.html` and `page.css`, with its title, script and data.

    Nothing in the data can become markup or code: the page inserts it as text only. Its content security policy forbids
    all network access, and all other scripts but those that the expressions `frame_sources` allow in its frames.
    """
    sources = " ".join([source(script), *frame_sources])
    replacements = {
        "POLICY": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {sources}",
        "TITLE": escape("".join(character if character.isprintable() else "?" for character in title)),
        "STYLE": COLOURS + (folder / "page.css").read_text(encoding="utf-8"),
        "SCRIPT": script,
        "DATA": json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPED),
    }
    fragments = (folder / "page.html").read_text(encoding="utf-8").split("@@")
    return "".join(replacements[fragment] if position % 2 else fragment for position, fragment in enumerate(fragments))
