"""Methods that add one layer each. Generated from the operators' declarations; do not edit."""

from __future__ import annotations

__all__ = ["Builders"]


class Builders:
    """A method for every operator."""
