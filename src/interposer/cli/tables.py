"""Output of commands: tables, drawn by rich on a terminal and as aligned text otherwise, and JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interposer.cli.streams import printable

__all__ = ["Table", "counted", "plain_lines", "say", "show", "without_empty_columns", "wrapped", "write_json"]


@dataclass(frozen=True)
class Table:
    """A table of text with a title for each column; `right` has the titles of the right-aligned columns."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[str] = ()


def without_empty_columns(table: Table) -> Table:
    """Return the table without those columns that have no text in any row."""
    cached = [column for column, cells in enumerate(zip(*table.rows, strict=True)) if any(cells)]
    rows = [[row[column] for column in cached] for row in table.rows]
    return Table([table.titles[column] for column in cached], rows, table.right)


def show(table: Table) -> None:
    """Print a table: with rich on a terminal if rich is installed, otherwise as `plain_lines`."""
    if not (sys.stdout.isatty() and _show_rich(table)):
        for line in plain_lines(table):
            print(line)


def plain_lines(table: Table) -> Iterator[str]:
    """Yield the table as lines of text, two blanks between columns."""
    rows = [[printable(cell) for cell in row] for row in (table.titles, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, table.titles, strict=True)
        yield "  ".join(_aligned(text, width, title in table.right) for text, width, title in cells).rstrip()


def _aligned(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _show_rich(table: Table) -> bool:
    try:
        from rich import box, console, text  # noqa: PLC0415 - optional
        from rich import table as tables  # noqa: PLC0415
    except ImportError:
        return False
    plain = bool(os.environ.get("NO_COLOR"))  # NO_COLOR also disables bold text
    drawn = tables.Table(box=box.SIMPLE_HEAD, header_style="" if plain else "bold", pad_edge=False, show_edge=False)
    for title in table.titles:
        drawn.add_column(title, justify="right" if title in table.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(text.Text(printable(cell)) for cell in row))
    console.Console().print(drawn)
    return True


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text as lines of at most `width` characters, wrapped at word boundaries and indented by `indent`.

    A ``pip install`` command at the end of the text gets a line of its own, which is not wrapped, so that it can be
    copied.
    """
    said, command, arguments = text.partition("pip install ")
    lines = textwrap.wrap(
        said.rstrip(), width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [*lines, f"{indent}{command}{arguments}"] if command else lines


def say(line: str) -> None:
    """Print a line that may contain text from files, with control characters removed."""
    print(printable(line))


def counted(count: int, text: str, many: str = "") -> str:
    """Return a count with its noun, such as "2 layers"; `many` is the plural if it is not `text` plus "s"."""
    return f"{count} {text if count == 1 else many or f'{text}s'}"


def write_json(data: Any) -> None:
    """Print data as JSON; numbers that JSON lacks (infinities and NaN) as null."""
    print(json.dumps(_finite(data), indent=2, allow_nan=False))


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
