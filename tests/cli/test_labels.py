"""Files of labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from interposer.cli.labels import check_count, read_labels
from interposer.core.errors import InvalidArgumentError


def written(folder: Path, content: bytes | str) -> str:
    path = folder / "labels.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("cat\ndog\n", {0: "cat", 1: "dog"}),
        ("cat\r\ndog\r\n\r\n", {0: "cat", 1: "dog"}),
        ("\ufeffcat\ndog", {0: "cat", 1: "dog"}),
        ("\ncat\n\ndog", {0: "", 1: "cat", 2: "", 3: "dog"}),
        ("0  background\n1  tench, Tinca tinca\n", {0: "background", 1: "tench, Tinca tinca"}),
        ("0: cat\n2: dog\n\n", {0: "cat", 2: "dog"}),
        (" 10 cat\n 11 dog", {10: "cat", 11: "dog"}),
        ("7up\n8 ball\ncola", {0: "7up", 1: "8 ball", 2: "cola"}),
        ("0\n1\n2\n", {0: "0", 1: "1", 2: "2"}),
        ("Katze, gr\u00fcn\n", {0: "Katze, gr\u00fcn"}),
    ],
)
def test_labels_are_lines_or_lines_with_numbers(tmp_path, content, labels):
    assert read_labels(written(tmp_path, content)) == labels


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xff\xfe\x00c\x00a", "labels must be a text file in UTF-8, a label on each line"),
        (b" \n\n", "there are no labels in this file"),
        (b"0 cat\n1 dog\n1 cow", "1 is the number of 2 labels"),
    ],
)
def test_what_cannot_be_labels_is_refused(tmp_path, content, text):
    path = written(tmp_path, content)
    with pytest.raises(InvalidArgumentError) as caught:
        read_labels(path)
    assert str(caught.value) == f"{path}: {text}"


def test_there_may_be_more_labels_than_classes_but_not_fewer():
    check_count({0: "a", 1: "b"}, 2, "labels.txt")
    check_count({0: "a", 89: "b"}, 90, "labels.txt")
    with pytest.raises(InvalidArgumentError) as caught:
        check_count({0: "a", 1: "b"}, 3, "labels.txt")
    assert str(caught.value) == "labels.txt: 2 labels for 3 classes; there must be one for each"
