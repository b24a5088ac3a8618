"""Output of commands: tables, drawn by rich on a terminal and as aligned text otherwise, and JSON."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from interposer.cli.streams import printable
from interposer.core.records import dataclass

__all__ = ["Table", "counted", "plain_lines", "say", "show", "without_empty_columns", "wrapped", "write_json"]

_GAP: Final = "  "
_NO_BREAK: Final = "\xa0"
_BROKEN: Final = 16
"""The width from which on words of left-aligned columns, such as names of layers, may be broken on a terminal."""


@dataclass(frozen=True)
class Table:
    """A table of text with a title for each column; `right` has the titles of the right-aligned columns."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[str] = ()


def without_empty_columns(table: Table) -> Table:
    """Return the table without those columns that have no text in any row."""
    nonempty_columns = [column for column, cells in enumerate(zip(*table.rows, strict=True)) if any(cells)]
    rows = [[row[column] for column in nonempty_columns] for row in table.rows]
    return Table([table.titles[column] for column in nonempty_columns], rows, table.right)


def show(table: Table) -> None:
    """Print a table: with rich on a terminal if rich is installed, otherwise as `plain_lines`.

    If a terminal is so narrow that numbers would be broken, each row is a paragraph.
    """
    columns = shutil.get_terminal_size().columns
    if not sys.stdout.isatty():
        lines = plain_lines(table)
    elif _total(_least_widths(table)) > columns:
        lines = _paragraphs(table, columns)
    elif _show_rich(table, columns):
        return
    else:
        lines = plain_lines(table)
    for line in lines:
        print(line)


def plain_lines(table: Table) -> Iterator[str]:
    """Yield the table as lines of text, two blanks between columns."""
    rows = [[printable(cell) for cell in row] for row in (table.titles, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = zip(row, widths, table.titles, strict=True)
        yield _GAP.join(_aligned(cell, width, title in table.right) for cell, width, title in padded).rstrip()


def _aligned(text: str, width: int, is_right_aligned: bool) -> str:
    return text.rjust(width) if is_right_aligned else text.ljust(width)


def _paragraphs(table: Table, columns: int) -> Iterator[str]:
    """Yield each row as its first cell, and indented below it the other cells that have text, after their titles."""
    for row in table.rows:
        first, *cells = map(printable, row)
        yield from textwrap.wrap(first, columns)
        titled_cells = [
            f"{title} {cell}".replace(" ", _NO_BREAK if title in table.right else " ")
            for title, cell in zip(table.titles[1:], cells, strict=True)
            if cell
        ]
        yield from (line.replace(_NO_BREAK, " ") for line in wrapped(", ".join(titled_cells), columns, "  "))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _columns(table: Table) -> list[list[str]]:
    """Return the cells of each column, its title first."""
    return [list(map(printable, column)) for column in zip(table.titles, *table.rows, strict=True)]


def _least_widths(table: Table) -> list[int]:
    """Return for each column the width at which its words still fit; long words of left-aligned columns are broken."""
    longest = [max(len(word) for cell in column for word in cell.split() or [""]) for column in _columns(table)]
    return [
        width if title in table.right else min(width, _BROKEN)
        for title, width in zip(table.titles, longest, strict=True)
    ]


def _widths(table: Table, columns: int) -> list[int]:
    """Return the width of each column, so that the table fits: the widest are made narrower until it does."""
    widths = [max(map(len, column)) for column in _columns(table)]
    least_widths = _least_widths(table)
    while _total(widths) > columns and widths != least_widths:
        widest_column = max(
            range(len(widths)), key=lambda column: (widths[column] > least_widths[column], widths[column])
        )
        widths[widest_column] -= 1
    return widths


def _show_rich(table: Table, columns: int) -> bool:
    try:
        from rich import box, console, text  # noqa: PLC0415 - optional
        from rich import table as tables  # noqa: PLC0415
    except ImportError:
        return False
    is_plain = bool(os.environ.get("NO_COLOR"))  # NO_COLOR also disables bold text
    rich_table = tables.Table(
        box=box.SIMPLE_HEAD,
        header_style="" if is_plain else "bold",
        padding=(0, len(_GAP) - 1, 0, 0),  # the box itself has a blank between columns
        pad_edge=False,
        show_edge=False,
    )
    for title, width in zip(table.titles, _widths(table, columns), strict=True):
        side: Literal["left", "right"] = "right" if title in table.right else "left"
        rich_table.add_column(title, justify=side, overflow="fold", width=width)
    for row in table.rows:
        rich_table.add_row(*(text.Text(printable(cell)) for cell in row))
    console.Console().print(rich_table)
    return True


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text as lines of at most `width` characters, wrapped at word boundaries and indented by `indent`.

    A ``pip install`` command at the end of the text gets a line of its own, which is not wrapped, so that it can be
    copied.
    """
    prose, command, arguments = text.partition("pip install ")
    lines = textwrap.wrap(
        prose.rstrip(), width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [*lines, f"{indent}{command}{arguments}"] if command else lines


def say(line: str) -> None:
    """Print a line that may contain text from files, with control characters removed."""
    print(printable(line))


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as "2 layers"; `plural` is the plural if it is not `noun` plus "s"."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def write_json(data: Any) -> None:
    """Print data as JSON; numbers that JSON lacks (infinities and NaN) as null."""
    print(json.dumps(_finite(data), indent=2, allow_nan=False))


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _finite(element) for key, element in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(element) for element in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
