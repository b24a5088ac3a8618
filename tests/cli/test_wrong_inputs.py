"""The table of wrong inputs in the documentation: each command is run and compared."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from interposer.cli.main import COMMANDS, main
from interposer.session import read_network
from interposer.writers import tflite
from tests.cli import networks

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("warm_python")]

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
ANYTHING = "..."


class Row(NamedTuple):
    """A command without its first word, what it says on standard error, and its exit status."""

    command: str
    message: str
    status: int


def rows() -> list[Row]:
    """Return the rows of the table; in a message, ``<br>`` is the end of a line."""
    text = PAGE.read_text(encoding="utf-8").partition("<!-- table -->")[2]
    cells = re.findall(r"^\| `interposer (.*)` \| `(.*)` \| (\d) \|$", text, re.MULTILINE)
    return [Row(command, message.replace("`<br>`", "\n"), int(status)) for command, message, status in cells]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder with the files that the page describes."""
    folder = tmp_path_factory.mktemp("files")
    Path(networks.doubler(folder, ("batch", 4))).rename(folder / "open.onnx")
    Path(networks.doubler(folder)).rename(folder / "net.onnx")
    tflite.save(read_network(folder / "net.onnx"), folder / "whole.tflite")
    (folder / "cut.onnx").write_bytes((folder / "net.onnx").read_bytes()[:-7])
    (folder / "cut.tflite").write_bytes((folder / "whole.tflite").read_bytes()[:60])
    np.save(folder / "x.npy", np.ones((1, 4), np.float32))
    np.save(folder / "short.npy", np.ones(3, np.float32))
    (folder / "empty.onnx").touch()
    (folder / "-dash.onnx").write_bytes((folder / "net.onnx").read_bytes())
    (folder / "notes.txt").write_text("notes\n")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe.onnx")
    Path(networks.splitter(folder)).rename(folder / "two.onnx")
    (folder / "whole.tflite").unlink()
    write_inputs(folder)
    write_foreign_models(folder)
    return folder


def write_inputs(folder):
    """Write files of inputs, most of which do not fit."""
    np.savez(folder / "two.npz", a=np.ones((1, 3), np.float32), z=np.ones((2, 3), np.float32))
    np.savez(folder / "none.npz")
    np.save(folder / "text.npy", np.array(["a", "b"]))
    np.save(folder / "object.npy", np.array([{1: 2}], dtype=object), allow_pickle=True)
    np.save(folder / "complex.npy", np.ones((1, 4), np.complex64))
    (folder / "cut.npz").write_bytes((folder / "two.npz").read_bytes()[:50])
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:90])
    (folder / "five.txt").write_text("1 2 3 4 5\n")
    (folder / "words.txt").write_text("1 2 three 4\n")
    (folder / "six.raw").write_bytes(bytes(6))
    (folder / "plan.json").write_text('{"layers": 3}')


def write_foreign_models(folder):
    """Write the beginnings of models of other programs."""
    (folder / "model.xml").write_text("<?xml version='1.0'?><net name='a'></net>")
    (folder / "page.html").write_text("<!DOCTYPE html><html></html>")
    (folder / "model.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(64))
    (folder / "model.json").write_text('{"a": 1}')
    (folder / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(60))
    (folder / "model.pkl").write_bytes(b"\x80\x04\x95" + bytes(40))
    (folder / "model.safetensors").write_bytes((8).to_bytes(8, "little") + b'{"a":{}}' + bytes(8))
    (folder / "model.engine").write_bytes(b"ptrt" + bytes(60))
    (folder / "model.mlpackage").mkdir()
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "hf" / "model.safetensors").write_bytes(bytes(9))


def said(text: str) -> str:
    """What is on standard error, without the usage and the program's name."""
    lines = re.sub(r"^usage: .*?(?=^interposer)", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^interposer[a-z -]*: (error: )?", "", lines).strip()


def pattern(message: str) -> str:
    return ".*".join(map(re.escape, message.split(ANYTHING)))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.command)
def test_a_wrong_input_is_answered_as_the_table_says(row, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    before = sorted(os.listdir(files))

    status = main(shlex.split(row.command))

    out, err = capsys.readouterr()
    assert (status, "Traceback" in err) == (row.status, False)
    assert re.fullmatch(pattern(row.message), said(err) if status == 2 else out.strip(), re.DOTALL), said(err) or out
    assert sorted(os.listdir(files)) == before


def test_the_table_has_every_command():
    assert {row.command.split()[0] for row in rows()} >= set(COMMANDS)
