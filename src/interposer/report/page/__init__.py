"""The page that draws an explanation: one HTML file that loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

__all__ = ["COLOURS", "html"]

_FOLDER: Final = Path(__file__).parent
COLOURS: Final = (_FOLDER / "colours.css").read_text(encoding="utf-8")
"""The style sheet that defines the colours of all pages, light and dark."""
SCRIPTS: Final = ("layout.js", "view.js", "panels.js", "page.js")
_ESCAPED: Final = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def html(data: Mapping[str, Any]) -> str:
    """Return a self-contained HTML page that shows an explanation; `data` is that of `Explanation.to_dict`.

    Nothing in the data can become markup or code: the page inserts it as text only. Its content security policy forbids
    other scripts and all network access.
    """
    script = "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "POLICY": f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "TITLE": escape("".join(item if item.isprintable() else "?" for item in str(data["network"]))),
        "STYLE": COLOURS + (_FOLDER / "page.css").read_text(encoding="utf-8"),
        "SCRIPT": script,
        "DATA": json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPED),
    }
    pieces = (_FOLDER / "page.html").read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))
