"""Whole networks on several engines, interleaved: `python benchmarks/run.py engines`; see docs/benchmarks.md."""

from __future__ import annotations

import re
from typing import Final

from .engine import Engine
from .ours import FAST_MATH, Interposer
from .peers import LiteRT, OnnxRuntime, OpenVINO, Tinygrad

__all__ = ["DEFAULT", "ENGINES", "PEERS", "engine"]

PEERS: Final[dict[str, type[Engine]]] = {item.name: item for item in (OnnxRuntime, OpenVINO, LiteRT)}
"""The engines that every benchmark compares with."""
ENGINES: Final[dict[str, type[Engine]]] = {**PEERS, Tinygrad.name: Tinygrad}
"""All engines that can be named."""
DEFAULT: Final = ("CpuAcc", *PEERS)
"""The engines that are measured unless others are named; the first is compared with the rest."""


def engine(name: str) -> Engine:
    """Return the engine with this name: another engine, a backend of Interposer, or several as `Interposer[A,B]`.

    A name may end in ` (fast math)`.
    """
    plain = {_plain(name_of_engine): kind for name_of_engine, kind in ENGINES.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]()
    own = name.removesuffix(FAST_MATH)
    listed = re.fullmatch(r"Interposer\[(.+)\]", own)
    return Interposer([word.strip() for word in (listed[1] if listed else own).split(",")], fast=own != name)


def _plain(name: str) -> str:
    return name.lower().replace(" ", "")
