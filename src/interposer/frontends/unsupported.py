"""Errors for operators in a form that is not supported, or that is supported once more is known of the inputs."""

from __future__ import annotations

from interposer.core.errors import InterposerError
from interposer.frontends.needs import Needs

__all__ = ["UnboundFormError", "UnsupportedFormError"]


class UnsupportedFormError(InterposerError):
    """An operator is known, but the node has a form that is not supported, such as an attribute's value.

    The importer catches and collects these errors, so that a user sees all of them at once.
    """


class UnboundFormError(UnsupportedFormError):
    """A node has a form that is supported once `needs` (values or shapes of the model's inputs) are given."""

    def __init__(self, reason: str, needs: Needs) -> None:
        self.reason, self.needs = reason, needs
        super().__init__(f"{reason}; give {needs}")
