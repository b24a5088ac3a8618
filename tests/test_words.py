"""The checker of the project's words, on sentences: which complaints it makes, and on which lines it makes none."""

from __future__ import annotations

import pytest

from tools import words


def complaints(source: str, suffix: str = ".md", path: str = "docs/page.md") -> list[str]:
    return [f"{line}: {text}" for line, text in sorted(words.complaints_in(source, suffix, path))]


@pytest.mark.parametrize(
    ("sentence", "complaint"),
    [
        ("The extents of the tensor are unknown.", "'extents': write dimension, size"),
        ("Kept networks load faster.", "'Kept': write cached, stored, retained"),
        ("The layers are joined.", "'joined': write fused, merged, combined"),
        ("This is a fault of the backend.", "'fault': write error, failure, defect"),
        ("The backend is put aside.", "'put aside': write disable, quarantine"),
    ],
)
def test_a_phrase_of_the_table_is_named_with_what_to_write_instead(sentence, complaint):
    assert f"1: {complaint}" in complaints(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The dimensions of the tensor are unknown.",
        "The backend ends with a segmentation fault.",
        "The command ends with an exit code.",
        "A well-kept secret is one word.",
        "",
    ],
)
def test_plain_words_and_exempt_phrases_have_no_complaints(sentence):
    assert complaints(sentence) == []


def test_a_complaint_has_the_line_of_the_word():
    assert complaints("One.\n\nThe layers are joined.") == ["3: 'joined': write fused, merged, combined"]


def test_of_python_comments_and_texts_are_read_and_code_is_not():
    source = "x = kept.joined  # joined\ny = 'layers that are joined'\n"
    joined = "'joined': write fused, merged, combined"
    assert complaints(source, ".py", "src/a.py") == [f"1: {joined}", f"2: {joined}"]


def test_of_c_comments_are_read():
    source = "int joined;\n// joined\n/* first\n   joined */\n"
    joined = "'joined': write fused, merged, combined"
    assert complaints(source, ".cpp", "native/a.cpp") == [f"2: {joined}", f"4: {joined}"]


def test_a_docstring_of_a_function_needs_a_verb_and_that_of_a_property_does_not():
    source = 'def f():\n    """The size of the tensor."""\n'
    assert complaints(source, ".py", "src/a.py") == ["1: the docstring of 'f' has no verb: 'The size of the tensor.'"]
    assert complaints(source.replace("The", "Return the"), ".py", "src/a.py") == []
    assert complaints("class A:\n    @property\n    " + source.replace("\n    ", "\n        "), ".py", "src/a.py") == []


def test_the_command_prints_one_line_for_each_complaint_and_has_status_1(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("The layers are joined.\n")
    assert words.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{page}:1: 'joined': write fused, merged, combined\n"


def test_the_command_has_status_0_and_prints_nothing_if_all_words_are_right(tmp_path, capsys):
    (tmp_path / "page.md").write_text("The layers are fused.\n")
    assert words.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
