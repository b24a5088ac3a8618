"""Operator forms that are supported once more is known of a model's inputs."""

from __future__ import annotations

from interposer.frontends.needs import Needs
from interposer.frontends.onnx.onnx_converters import UnsupportedFormError

__all__ = ["UnboundFormError"]


class UnboundFormError(UnsupportedFormError):
    """A form that is supported once `needs`, values or shapes of the model's inputs, are given."""

    def __init__(self, reason: str, needs: Needs) -> None:
        self.reason, self.needs = reason, needs
        super().__init__(f"{reason}; give {needs}")
