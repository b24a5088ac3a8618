"""Calibration data in files: what is read from folders, archives and tables, and what is wrong with others."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer.core.errors import InvalidArgumentError, MissingDependencyError
from interposer.quantization import Preprocessing, quantize, read_samples
from tests.quantization.networks import image_network


def network(*names: str, shape: tuple[int, ...] = (1, 2), dtype: str = "float32") -> Network:
    network = Network("inputs")
    for number, name in enumerate(names):
        network.add_input_layer(number, TensorInfo(shape, dtype), name=name)
    return network


def values(samples: list[dict[str, np.ndarray]]) -> list[dict[str, list[object]]]:
    return [{name: array.ravel().tolist() for name, array in sample.items()} for sample in samples]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_an_archive_has_an_array_for_each_input_with_the_samples_along_axis_0(tmp_path):
    np.savez(tmp_path / "all.npz", a=np.float32([[1, 2], [3, 4]]), b=np.float32([[5, 6], [7, 8]]))
    assert values(read_samples(network("a", "b"), tmp_path / "all.npz")) == [
        {"a": [1, 2], "b": [5, 6]}, {"a": [3, 4], "b": [7, 8]},
    ]  # fmt: skip
    assert len(read_samples(network("a", "b"), tmp_path / "all.npz", limit=1)) == 1


def test_the_name_of_a_single_array_does_not_matter_for_a_single_input(tmp_path):
    np.savez(tmp_path / "any.npz", np.float32([[1, 2]]))
    assert values(read_samples(network("a"), tmp_path / "any.npz")) == [{"a": [1, 2]}]


def test_the_files_of_a_folder_are_samples_in_the_order_of_their_names(tmp_path):
    np.save(tmp_path / "2.npy", np.float32([[3, 4]]))
    np.savez(tmp_path / "1.npz", a=np.float32([[1, 2]]))
    (tmp_path / "more").mkdir()
    np.save(tmp_path / "more" / "3.npy", np.float32([[5, 6], [7, 8]]))
    write(tmp_path / "notes.txt", "no sample")
    assert values(read_samples(network("a"), str(tmp_path))) == [
        {"a": pair} for pair in ([1, 2], [3, 4], [5, 6], [7, 8])
    ]
    assert len(read_samples(network("a"), tmp_path, limit=3)) == 3


def test_arm_nns_table_keeps_all_inputs_of_a_run_in_any_order(tmp_path):
    for name, text in {"a0": "1 2", "a1": "3\n4", "b0": "5 6 ", "b1": "7,8"}.items():
        write(tmp_path / "data" / f"{name}.raw", text)
    table = write(tmp_path / "t.csv", "0,0,data/a0.raw\n1,1,data/b1.raw\n\n0,1, data/b0.raw\n1,0,data/a1.raw\n")
    assert values(read_samples(network("a", "b"), table)) == [{"a": [1, 2], "b": [5, 6]}, {"b": [7, 8], "a": [3, 4]}]
    assert values(read_samples(network("a", "b"), table, limit=1)) == [{"a": [1, 2], "b": [5, 6]}]


def test_a_table_may_name_inputs_arrays_and_bare_numbers(tmp_path):
    np.float32([1.5, 2.5]).tofile(tmp_path / "a.bin")
    np.save(tmp_path / "b.npy", np.float32([[3, 4]]))
    table = write(tmp_path / "t.csv", "0,a,a.bin\n0,b,b.npy\n")
    assert values(read_samples(network("a", "b"), table)) == [{"a": [1.5, 2.5], "b": [3, 4]}]


@pytest.mark.parametrize("title", ["", "first,second\n"])
def test_a_plain_table_has_a_sample_in_each_row(tmp_path, title):
    table = write(tmp_path / "t.csv", f"{title}1,2\n3, 4.5\n")
    assert values(read_samples(network("a"), table)) == [{"a": [1, 2]}, {"a": [3, 4.5]}]


def test_numbers_of_a_plain_table_become_integers_for_an_input_of_integers(tmp_path):
    table = write(tmp_path / "t.csv", "1,2\n")
    assert values(read_samples(network("a", dtype="int32"), table)) == [{"a": [1, 2]}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{file}: the table is empty"),
        ("1,2,3\n", "{file}, line 1: there are 3 numbers; expected float32[1, 2]"),
        ("1,2\n3,x\n", "{file}, line 2: 'x' is no number"),
        ("1,nan\n", "{file}: sample 0 of input 'a' has NaN; calibration data must be finite"),
        ("0,0,none.raw\n", "{file}, line 1: there is no file none.raw"),
        ("0,7,one.raw\n", "{file}, line 1: the network has no input with the binding id 7 (it has: 0 (a))"),
        ("0,0,one.raw\n0,0,one.raw\n", "{file}, line 2: run 0 has input 0 already"),
        ("0,0,odd.raw\n", "{folder}/odd.raw: there are 3 numbers; expected float32[1, 2]"),
        (
            "0,0,words.raw\n",
            "{folder}/words.raw: the file is no text of numbers: could not convert string to float: 'x'",
        ),
    ],
)
def test_wrong_tables_are_named_by_line(tmp_path, text, message):
    for name, content in {"one": "1 2", "odd": "1 2 3", "words": "x y"}.items():
        write(tmp_path / f"{name}.raw", content)
    table = write(tmp_path / "t.csv", text)
    with pytest.raises(InvalidArgumentError) as caught:
        read_samples(network("a"), table)
    assert str(caught.value) == message.format(file=table, folder=tmp_path)


def test_a_run_without_one_of_the_inputs_is_refused(tmp_path):
    write(tmp_path / "one.raw", "1 2")
    table = write(tmp_path / "t.csv", "0,0,one.raw\n")
    with pytest.raises(InvalidArgumentError, match=r"sample 0 has no array for the input 'b' float32\[1, 2\]"):
        read_samples(network("a", "b"), table)


@pytest.mark.parametrize(("name", "content"), [("a.npy", b"\x93NUMPY damaged"), ("a.npz", b"PK\x03\x04 damaged")])
def test_damaged_archives_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=f"{name}: the arrays? cannot be read: "):
        read_samples(network("a"), tmp_path)


def test_other_files_and_several_inputs_are_refused_with_what_to_do(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((1, 2), np.float32))
    with pytest.raises(InvalidArgumentError) as caught:
        read_samples(network("a", "b"), tmp_path / "a.npy")
    assert str(caught.value) == (
        f"{tmp_path / 'a.npy'}: the network has 2 inputs; give .npz files with an array for each of them (a, b)"
    )


def test_images_in_a_folder_are_samples_which_the_preprocessing_converts(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in (0, 255):
        image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    inputs = network("a", shape=(1, 2, 1, 3))
    assert values(read_samples(inputs, tmp_path)) == [{"a": [0.0] * 6}, {"a": [1.0] * 6}]
    shifted = Preprocessing(mean=(127.5,), std=(127.5,))
    assert values(read_samples(inputs, tmp_path, shifted)) == [{"a": [-1.0] * 6}, {"a": [1.0] * 6}]
    assert values(read_samples(inputs, tmp_path / "255.png", shifted)) == [{"a": [1.0] * 6}]


@pytest.mark.needs_cpuref
def test_quantize_reads_a_folder_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in range(3):
        image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)).save(
            tmp_path / f"{number}.png"
        )
    report = quantize(image_network(), tmp_path, backends=["CpuRef"]).report
    assert report.samples == 3
    assert report.outputs[0].cosine > 0.99


def test_damaged_images_and_inputs_that_are_no_images_are_named(tmp_path):
    pytest.importorskip("PIL")
    write(tmp_path / "x.png", "no image")
    with pytest.raises(InvalidArgumentError, match=r"x.png: no image that Pillow knows"):
        read_samples(network("a", shape=(1, 2, 1, 3)), tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"input 'a' float32\[1, 2\] is no image"):
        read_samples(network("a"), tmp_path)


def test_images_need_pillow(tmp_path, monkeypatch):
    write(tmp_path / "x.png", "no image")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependencyError, match=r"reading images needs the package 'pillow'"):
        read_samples(network("a", shape=(1, 2, 1, 3)), tmp_path)
