"""Whole networks on several engines, interleaved: `python benchmarks/run.py engines`; see docs/benchmarks.md."""

from __future__ import annotations

import re
from typing import Final

from .engine import Engine
from .ours import Interposer
from .peers import LiteRT, OnnxRuntime, OpenVINO

__all__ = ["DEFAULT", "PEERS", "engine"]

PEERS: Final[dict[str, type[Engine]]] = {one.name: one for one in (OnnxRuntime, OpenVINO, LiteRT)}
DEFAULT: Final = ("CpuAcc", *PEERS)
"""The engines that are measured unless others are named; the first is compared with the rest."""


def engine(name: str) -> Engine:
    """The engine of that name: a peer, a backend of Interposer, or several of these as `Interposer[A,B]`."""
    plain = {_plain(known): kind for known, kind in PEERS.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]()
    listed = re.fullmatch(r"Interposer\[(.+)\]", name)
    return Interposer([one.strip() for one in (listed[1] if listed else name).split(",")])


def _plain(name: str) -> str:
    return name.lower().replace(" ", "")
