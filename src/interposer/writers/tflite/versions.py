"""Since which version TFLite's operators are what a step asks for, so that older runtimes say that they lack it."""

from __future__ import annotations

from interposer.writers.tflite.sheet import Step

__all__ = ["version_of"]


def version_of(step: Step) -> int:
    """The version of the operator."""
    return 1
