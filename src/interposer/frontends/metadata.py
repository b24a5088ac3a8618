"""What a model file says about itself, and the files that are stored inside of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Metadata"]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Texts and files inside a model file.

    Args:
        description: the description of the model, or an empty text.
        entries: the content of each named entry, such as ``min_runtime_version``.
        files: the content of each file that is stored in the model file, such as lists of labels, by file name.
    """

    description: str = ""
    entries: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
