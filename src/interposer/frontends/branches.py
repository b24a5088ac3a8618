"""Branches of conditionals that do not fit the shapes of the inputs, but that need not be taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from interposer.core.errors import DamagedFileError, InterposerError, ParseError, UnsupportedOperatorError
from interposer.frontends.refusals import Refusals

__all__ = ["branch", "reasons"]

R = TypeVar("R")


def branch(refusals: Refusals, convert: Callable[[bool], R]) -> R | ParseError:
    """Return a converted branch, or the error why it cannot be computed for the shapes of the values that it uses.

    The error is returned only if the branch may be computed for other shapes. While a branch around this one is tried
    without shapes, every error is raised, so that nested branches are not tried again and again.

    Args:
        refusals: the refusals of the import.
        convert: converts the branch; its argument is False if nothing is to be known of the shapes of captured values.

    Raises:
        ParseError: the branch violates the format, whatever the shapes are.
    """
    try:
        return convert(True)
    except (DamagedFileError, UnsupportedOperatorError):
        raise
    except ParseError as error:
        if refusals.are_discarded or not _fits_other_shapes(refusals, convert):
            raise
        return error


def reasons(branches: Sequence[object]) -> list[str]:
    """Return for each branch the text of its error, or an empty text if it has none; raise the first if all have one.

    `branches` are the results of `branch`.
    """
    errors = [branch for branch in branches if isinstance(branch, ParseError)]
    if errors and len(errors) == len(branches):
        raise errors[0]
    return [str(branch) if isinstance(branch, ParseError) else "" for branch in branches]


def _fits_other_shapes(refusals: Refusals, convert: Callable[[bool], R]) -> bool:
    """Return True if a branch has no errors as long as the shapes of the values that it uses are not known."""
    with refusals.discarded():
        try:
            convert(False)
        except InterposerError:
            return False
    return True
