"""The page that shows a profile: one HTML file that loads nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from interposer.pages import filled, network, script_of, source

__all__ = ["html"]

_FOLDER: Final = Path(__file__).parent
SCRIPT: Final = script_of(_FOLDER, ("shared.js", "timeline.js", "flame.js", "tables.js", "page.js"))


def html(data: Mapping[str, Any], drawings: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a self-contained HTML page that shows a profile.

    Args:
        data: what `interposer.profiling.page` has prepared.
        drawings: the networks, as data of `Explanation.to_dict`; each is drawn in a frame, shaded by time.
    """
    frames = [
        {"name": str(drawing["network"]), "html": network.html({**drawing, "shade": "time"})} for drawing in drawings
    ]
    frame_sources = [source(network.SCRIPT)] if frames else []
    return filled(_FOLDER, str(data["title"]), SCRIPT, {**data, "drawings": frames}, frame_sources)
