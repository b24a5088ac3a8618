"""Files that are no networks, or are no more: the message says first what is wrong with the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interposer.core.errors import DamagedFileError, ParseError
from interposer.session import read_network
from tests.cli import networks

pytest.importorskip("onnx", reason="the package onnx is not installed")


def refusal(path: object, **how: object) -> str:
    with pytest.raises(ParseError) as result:
        read_network(path, **how)
    return str(result.value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    networks.doubler(tmp_path)
    return tmp_path


def test_the_empty_path_is_told_as_that(folder):
    assert refusal("") == "the file cannot be read: the path is empty"
    assert refusal("", format="nnapi") == "the file cannot be read: the path is empty"


@pytest.mark.parametrize("format", [None, "onnx", "tflite", "nnapi", "text"])
def test_a_pipe_is_refused_and_not_waited_for(folder, format):
    os.mkfifo("pipe.onnx")
    assert refusal("pipe.onnx", format=format) == (
        "pipe.onnx: the file cannot be read: it is a pipe, not a regular file"
    )


@pytest.mark.parametrize("format", [None, "onnx", "tflite", "nnapi", "text"])
def test_a_device_and_a_folder_are_refused(folder, format):
    assert refusal("/dev/null", format=format) == (
        "/dev/null: the file cannot be read: it is a device or a socket, not a regular file"
    )
    advice = f"this is a folder; give the path of the model in it, such as '{folder / 'doubler.onnx'}'"
    reason = advice if format is None else "the file cannot be read: Is a directory"
    assert refusal(str(folder), format=format) == f"{folder}: {reason}"


@pytest.mark.parametrize("format", [None, "onnx", "tflite", "nnapi", "text"])
def test_a_missing_file_is_told_whatever_its_format(folder, format):
    assert refusal("no.onnx", format=format) == "no.onnx: the file cannot be read: No such file or directory"


def test_a_truncated_onnx_file_is_told_as_that(folder):
    Path("cut.onnx").write_bytes(Path("doubler.onnx").read_bytes()[:-7])
    assert refusal("cut.onnx").startswith("cut.onnx: the file is truncated or damaged, or is no ONNX model (protobuf: ")


def test_a_truncated_tflite_file_is_told_before_the_detail(folder):
    writers = pytest.importorskip("interposer.writers")
    pytest.importorskip("flatbuffers")
    writers.tflite.save(read_network("doubler.onnx"), "whole.tflite")
    Path("cut.tflite").write_bytes(Path("whole.tflite").read_bytes()[:60])
    with pytest.raises(DamagedFileError) as result:
        read_network("cut.tflite")
    assert str(result.value).startswith("cut.tflite: the file is truncated or damaged: ")
    assert result.value.path == "cut.tflite"


def test_a_truncated_document_and_a_text_that_is_none_are_told(folder):
    Path("cut.json").write_text('{"main": {')
    assert refusal("cut.json").startswith("cut.json: the file is truncated or damaged, or is no JSON: ")
    Path("bad.txt").write_bytes(b"graph {\xff\xfe")
    assert refusal("bad.txt") == "bad.txt: the file is truncated or damaged, or is no text in UTF-8"
