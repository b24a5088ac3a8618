"""Placement by measurement: which backend runs which part of a network, chosen by timing."""

from interposer.session.placement.measured import Search, place
from interposer.session.placement.plan import Plan

__all__ = ["Plan", "Search", "place"]
