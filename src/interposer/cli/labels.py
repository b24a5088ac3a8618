"""Label files: one class name on each line."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

from interposer.cli.tables import counted
from interposer.core.errors import InvalidArgumentError
from interposer.core.files import check_regular

__all__ = ["Labels", "check_count", "read_labels"]

Labels = dict[int, str]
_NUMBERED: Final = re.compile(r"\s*(\d{1,9})(?:\s*[:,]\s*|\s+)(\S.*)")


def read_labels(path: str) -> Labels:
    """Return the labels in a text file by class number, counted from zero.

    Either each line is the label of the next class, or all lines begin with their class number.

    Raises:
        InvalidArgumentError: the file is not text, is empty, or repeats a number.
        OSError: the file cannot be read.
    """
    check_regular(path)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").rstrip().split("\n")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{path}: labels must be a text file in UTF-8, a label on each line") from error
    if lines == [""]:
        raise InvalidArgumentError(f"{path}: there are no labels in this file")
    line_matches = [_NUMBERED.fullmatch(line) for line in lines if line.strip()]
    numbered_labels = [(int(line_match[1]), line_match[2].strip()) for line_match in line_matches if line_match]
    if len(numbered_labels) < len(line_matches):
        return {index: line.strip() for index, line in enumerate(lines)}
    [(number, count)] = Counter(number for number, _ in numbered_labels).most_common(1)
    if count > 1:
        raise InvalidArgumentError(f"{path}: {number} is the number of {count} labels")
    return dict(numbered_labels)


def check_count(labels: Labels, classes: int, path: str) -> None:
    """Raise `InvalidArgumentError` if there are fewer labels (from the file `path`) than classes."""
    count = max(labels) + 1
    if count < classes:
        raise InvalidArgumentError(
            f"{path}: {counted(count, 'label')} for {classes} classes; there must be one for each"
        )
