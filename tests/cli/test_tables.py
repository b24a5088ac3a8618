"""Tables as text, texts out of files, and JSON."""

from __future__ import annotations

import json

import pytest

from interposer.cli.streams import printable
from interposer.cli.tables import Table, counted, plain_lines, show, without_empty_columns, write_json

TABLE = Table(("class", "score", "label"), [("7", "0.5", "seven"), ("10", "0.25", "")], right=("class", "score"))


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_end_together():
    assert list(plain_lines(TABLE)) == [
        "class  score  label",
        "    7    0.5  seven",
        "   10   0.25",
    ]


def test_a_table_that_is_no_longer_than_its_titles_is_shown_plainly_where_there_is_no_terminal(capsys):
    show(Table(("a", "b"), []))
    assert capsys.readouterr().out == "a  b\n"


def test_columns_without_anything_can_be_left_out():
    table = without_empty_columns(Table(("a", "b", "c"), [("1", "", ""), ("2", "", "x")], right=("a", "b")))
    assert list(plain_lines(table)) == ["a  c", "1", "2  x"]


@pytest.fixture
def on_terminal(monkeypatch, capsys):
    def shown(table: Table, columns: int) -> str:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        show(table)
        return capsys.readouterr().out

    return shown


TIMES = Table(
    ("backends", "median ms", "times the quickest", "note"),
    [("OnnxRuntime", "0.08674", "8.27", ""), ("auto", "0.01049", "1.00", "same placement as CpuAcc")],
    right=("median ms", "times the quickest"),
)


@pytest.mark.parametrize("columns", range(39, 80, 4))
def test_a_terminal_never_shows_a_number_or_a_short_word_in_two_pieces(on_terminal, columns):
    words = on_terminal(TIMES, columns).replace(",", "").split()
    assert {"OnnxRuntime", "0.08674", "8.27", "auto", "0.01049", "1.00", "placement", "quickest"} <= set(words)


def test_on_a_narrow_terminal_each_row_is_a_paragraph(on_terminal):
    assert on_terminal(TIMES, 38) == (
        "OnnxRuntime\n  median ms 0.08674,\n  times the quickest 8.27\n"
        "auto\n  median ms 0.01049,\n  times the quickest 1.00, note same\n  placement as CpuAcc\n"
    )


def test_a_terminal_breaks_only_long_names_so_that_a_table_fits(on_terminal):
    table = Table(("layer", "ms"), [("MobilenetV1/Conv2d_0/Relu6/activation", "0.12345")], right=("ms",))
    lines = on_terminal(table, 28).splitlines()
    assert [line.rstrip() for line in lines[2:]] == ["MobilenetV1/Conv2d_  0.12345", "0/Relu6/activation"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv_1/Relu6", "conv_1/Relu6"),
        ("grün 猫", "grün 猫"),
        ("two\nlines\tand \x1b[31mred", r"two\nlines\tand \x1b[31mred"),
        ("turned \u202e round", r"turned \u202e round"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_as_escapes(text, shown):
    assert printable(text) == shown


def test_a_number_and_its_noun_agree():
    assert [counted(n, "copy", "copies") for n in (0, 1, 2)] == ["0 copies", "1 copy", "2 copies"]
    assert counted(3, "layer") == "3 layers"


def test_json_has_null_for_numbers_that_it_lacks(capsys):
    write_json({"a": float("nan"), "b": [float("inf"), 1.5, (2, "x")], 3: None})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5, [2, "x"]], "3": None}
