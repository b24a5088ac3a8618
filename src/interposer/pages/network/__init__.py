"""The page that draws an explanation: one HTML file that loads nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from interposer.pages import filled, script_of

__all__ = ["SCRIPT", "html"]

_FOLDER: Final = Path(__file__).parent
SCRIPT: Final = script_of(_FOLDER, ("layout.js", "view.js", "panels.js", "page.js"))
"""The script of the page."""


def html(data: Mapping[str, Any]) -> str:
    """Return a self-contained HTML page that shows an explanation; `data` is that of `Explanation.to_dict`.

    The layers are shaded by time at first if `data` has the item "shade" with the value "time".
    """
    return filled(_FOLDER, str(data["network"]), SCRIPT, data)
