"""``--input``: files of arrays, their names and order, and what does not fit."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from interposer import InterposerError, TensorInfo
from interposer.cli.inputs import read_inputs
from interposer.session.images import Preprocessing

ONE = {"x": TensorInfo((1, 3))}
TWO = {"a": TensorInfo((1, 3)), "b:0": TensorInfo((2,), "int32")}
A, B = np.float32([[1, 2, 3]]), np.int32([7, 8])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", A)
    np.save("b.npy", B)
    return tmp_path


def read(given: list[str], infos: dict[str, TensorInfo] = TWO) -> dict[str, object]:
    return {name: array.tolist() for name, array in read_inputs(given, infos, Preprocessing()).items()}


def refusal(given: list[str], infos: dict[str, TensorInfo] = TWO) -> str:
    with pytest.raises(InterposerError) as caught:
        read_inputs(given, infos, Preprocessing())
    return str(caught.value)


BOTH = {"a": A.tolist(), "b:0": B.tolist()}


@pytest.mark.parametrize(
    "given",
    [["a.npy", "b.npy"], ["a=a.npy", "b:0=b.npy"], ["b:0=b.npy", "a=a.npy"], ["b:0=b.npy", "a.npy"]],
)
def test_files_are_given_in_order_or_by_name(given):
    assert read(given) == BOTH


def test_an_archive_gives_its_arrays_by_name():
    np.savez("both.npz", **{"b:0": B, "a": A})
    assert read(["both.npz"]) == BOTH


def test_an_archive_may_give_some_and_other_files_the_rest():
    np.savez_compressed("some.npz", **{"b:0": B})
    assert read(["some.npz", "a=a.npy"]) == BOTH


def test_the_name_of_a_sole_array_in_an_archive_is_free():
    np.savez("sole.npz", whatever=A)
    assert read(["sole.npz"], ONE) == {"x": A.tolist()}
    assert read(["x=sole.npz"], ONE) == {"x": A.tolist()}


def test_one_array_of_an_archive_can_be_asked_for():
    np.savez("more.npz", x=A, y=A * 2)
    assert read(["x=more.npz"], ONE) == {"x": A.tolist()}


@pytest.mark.parametrize("suffix", [".bin", ".raw", ".RAW"])
def test_bare_numbers_take_type_and_shape_from_the_input(suffix):
    A.tofile(f"x{suffix}")
    assert read([f"x{suffix}"], ONE) == {"x": A.tolist()}


def test_a_file_whose_name_has_an_equals_sign_is_found():
    np.save("run=1.npy", A)
    assert read(["run=1.npy"], ONE) == {"x": A.tolist()}


def test_a_picture_and_an_array_go_together():
    Image.new("L", (2, 2), 255).save("white.png")
    arrays = read(["white.png", "b.npy"], {"image": TensorInfo((1, 2, 2, 1)), "b": TWO["b:0"]})
    assert arrays == {"image": [[[[1.0], [1.0]], [[1.0], [1.0]]]], "b": [7, 8]}


# --- what does not fit ------------------------------------------------------------------------------------------------


def test_inputs_that_nothing_gives_are_listed():
    assert refusal(["b:0=b.npy"]) == (
        "no --input gives these inputs of the network:\n  - 'a' float32[1, 3]\n"
        "give a file for each with --input NAME=FILE, or use --random"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["a.npy", "b.npy", "a.npy"], "a.npy: the network has no input left for this (it has: a, b:0)"),
        (["a=a.npy", "a=b.npy"], "b.npy: input 'a' is given already"),
        (["bb:0=b.npy"], "the network has no input 'bb:0'; did you mean 'b:0'? (it has: a, b:0)"),
    ],
)
def test_what_is_given_too_often_or_under_a_wrong_name_is_refused(given, text):
    assert refusal(given) == text


def test_a_file_that_is_not_there_is_an_error_of_the_system():
    with pytest.raises(FileNotFoundError):
        read(["nothing.npy"])


def test_an_archive_with_other_names_is_refused():
    np.savez("others.npz", a=A, c=B)
    assert refusal(["others.npz"]) == "others.npz: the network has no input 'c' (it has: a, b:0)"
    assert refusal(["b:0=others.npz"]) == "others.npz: there is no array 'b:0' (there are: a, c)"


def test_bare_numbers_of_another_size_are_refused():
    A.tofile("x.bin")
    text = "x.bin: the file has 12 bytes, but input 'x' float32[1, 4] takes 16"
    assert refusal(["x.bin"], {"x": TensorInfo((1, 4))}) == text


@pytest.mark.parametrize("count", [1, 2])
def test_bare_numbers_say_how_large_the_only_open_dimension_is(count):
    np.tile(A, count).tofile("x.bin")
    assert read(["x.bin"], {"x": TensorInfo(("n", 3))}) == {"x": [A.reshape(-1).tolist()] * count}


def test_bare_numbers_that_are_no_whole_multiple_are_refused():
    A.tofile("x.bin")
    text = "x.bin: the file has 12 bytes, but input 'x' float32[n, 2] takes a multiple of 8"
    assert refusal(["x.bin"], {"x": TensorInfo(("n", 2))}) == text


def test_bare_numbers_need_a_shape_if_several_dimensions_are_open():
    A.tofile("x.bin")
    text = "x.bin: input 'x' float32[n, m] has a shape that is not known; give it with --shape"
    assert refusal(["x.bin"], {"x": TensorInfo(("n", "m"))}) == text


def test_arrays_of_python_objects_are_not_unpickled():
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert refusal(["objects.npy"], ONE) == (
        "objects.npy: the file has Python objects, which are not read; save an array of numbers or texts"
    )


def test_damaged_arrays_are_refused(folder):
    np.savez("whole.npz", a=A, b=B)
    for name in ("a.npy", "whole.npz"):
        content = (folder / name).read_bytes()
        (folder / f"cut-{name}").write_bytes(content[: len(content) * 2 // 3])
        assert refusal([f"cut-{name}"], ONE).startswith(f"cut-{name}: the file is truncated or damaged: ")


def test_a_header_that_promises_too_much_is_refused_without_the_memory(folder):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (folder / "huge.npy").write_bytes(content)
    assert refusal(["huge.npy"], ONE).startswith("huge.npy: the file is truncated or damaged: ")
    with zipfile.ZipFile("huge.npz", "w") as archive:
        archive.writestr("x.npy", content)
    assert refusal(["huge.npz"], ONE).startswith("huge.npz: the file is truncated or damaged: ")


def test_an_archive_of_something_else_is_refused():
    with zipfile.ZipFile("document.npz", "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    assert refusal(["x=document.npz"], ONE) == "document.npz: the file has no arrays"
    assert refusal(["document.npz"], ONE) == "document.npz: the file has no arrays"


def test_a_text_file_has_numbers_with_blanks_commas_or_line_ends_between_them(folder):
    (folder / "a.txt").write_text("1, 2\n3")
    (folder / "b.csv").write_text("7,8.0\n")
    assert read(["a.txt", "b.csv"]) == BOTH


def test_a_text_file_may_begin_with_a_byte_order_mark(folder):
    (folder / "a.txt").write_text("1 2 3", encoding="utf-8-sig")
    (folder / "b.csv").write_text("7,8", encoding="utf-8-sig")
    assert read(["a.txt", "b.csv"]) == BOTH


def test_a_text_file_sets_the_size_of_an_open_dimension(folder):
    (folder / "rows.txt").write_text("1 2 3\n4 5 6\n")
    assert read(["rows.txt"], {"x": TensorInfo(("n", 3))}) == {"x": [[1, 2, 3], [4, 5, 6]]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2", "b.txt: the file has 2 numbers, but input 'x' int8[3] takes 3"),
        (
            "1 2 x",
            "b.txt: the file is no text of numbers with blanks, commas or lines between them: could not convert string "
            "to float: 'x'",
        ),
        ("1 2 300", "b.txt: input 'x' is int64 and holds 300 at [2]; expected int8, whole numbers from -128 to 127"),
        ("1 2 0.5", "b.txt: input 'x' is float64 and holds 0.5 at [2]; expected int8, whole numbers from -128 to 127"),
        ("", "b.txt: the file is empty"),
        ("\xff", "b.txt: the file is no text of numbers with blanks, commas or lines between them: "),
    ],
)
def test_a_text_file_that_does_not_fit_is_refused(text, message, folder):
    (folder / "b.txt").write_text(text, encoding="latin-1")
    assert refusal(["b.txt"], {"x": TensorInfo((3,), "int8")}).startswith(message)
