"""Placement by measurement: which backend runs which part of a network, chosen by timing.

Public names are imported on first use: a plan is followed without the modules that measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interposer.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from interposer.session.placement.measured import place
    from interposer.session.placement.objective import Search
    from interposer.session.placement.plan import Plan

__all__ = ["Plan", "Search", "place"]

__getattr__, __dir__ = lazy_names(__name__, {"measured": ("place",), "objective": ("Search",), "plan": ("Plan",)})
