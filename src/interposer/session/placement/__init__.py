"""Placement by measurement: which backend runs which part of a network, chosen by timing."""

from interposer.session.placement.measured import place
from interposer.session.placement.objective import Search
from interposer.session.placement.plan import Plan

__all__ = ["Plan", "Search", "place"]
