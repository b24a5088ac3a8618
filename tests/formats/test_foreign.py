"""Files, folders and addresses that are given instead of a model: the message says what they are, and what to do."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import interposer as ip
from interposer.errors import FileReadError, InterposerError, MissingFileError, ParseError

ONNX = "export the original model to ONNX"
LANGUAGE_MODEL = f"{ONNX}, for example with: optimum-cli export onnx --model MODEL FOLDER"
TENSORRT = (
    "TensorRT, which only runs with the version and the GPU that it was built for, and is not read; "
    "give the ONNX file that it was built from"
)
COREML = "Core ML, which is not read; convert the original model to ONNX or TFLite instead"


def refusal(source: object) -> str:
    with pytest.raises(ParseError) as caught:
        ip.load(source)
    return str(caught.value)


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return file.getvalue()


def tarred(*names: str, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(mode=mode, fileobj=file) as archive:  # type: ignore[call-overload] # the mode is a parameter
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return file.getvalue()


CONTENTS: dict[str, tuple[bytes, str]] = {
    "GGUF": (
        b"GGUF\x03\0\0\0" + bytes(16),
        "the file is a language model for llama.cpp (GGUF), which is not read; run it with llama.cpp, or "
        f"{LANGUAGE_MODEL}",
    ),
    "TensorRT": (b"ftrt" + bytes(30), f"the file is an engine of {TENSORRT}"),
    "older TensorRT": (b"ptrt" + bytes(30), f"the file is an engine of {TENSORRT}"),
    "Core ML": (b"\x08\x04\x12\x09\n\x07\n\x05image\xa2\x1f\x02", f"the file is a model of {COREML}"),
    "ncnn": (b"7767517\n2 2\nInput data 0 1 data\n", f"the file is a network of ncnn, which is not read; {ONNX}"),
    "PaddlePaddle": (
        b"\n\x8f\x02\x08\x00\x10\xff\xff\xff\xff\x0f\x1a\x20",
        "the file is a program of PaddlePaddle, which is not read; convert it with: paddle2onnx --model_dir FOLDER "
        "--model_filename FILE --params_filename FILE --save_file model.onnx",
    ),
    "ONNX Runtime's format": (
        b"\x18\0\0\0ORTM" + bytes(30),
        "the file is a model in ONNX Runtime's own format (.ort), which is not read; "
        "give the .onnx file that it was made from",
    ),
    "ExecuTorch": (
        b"\x1c\0\0\0ET12" + bytes(30),
        "the file is a program of ExecuTorch, which is not read; "
        "write the network with torch.export.save(torch.export.export(module, inputs), path)",
    ),
    "HDF5": (
        b"\x89HDF\r\n\x1a\n",
        "the file is in HDF5, as Keras writes models and weights (.h5), which is not read; "
        "load it in Keras, and write it with: model.export(folder)",
    ),
    "web page": (b"<!DOCTYPE html><html></html>", "the file is a web page, not a model; download the model itself"),
    "XHTML": (
        b'<?xml version="1.0"?>\n<html xmlns="x">',
        "the file is a web page, not a model; download the model itself",
    ),
    "PMML": (
        b'<?xml version="1.0"?>\n<!-- a -->\n<PMML version="4.4">',
        "the file is a model in PMML, which is not read; convert the original model to ONNX, for example with skl2onnx",
    ),
    "Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "the file is a pointer of Git LFS, not a model; get the model with: git lfs pull",
    ),
    "array": (
        b"\x93NUMPY\x01\0",
        "the file is an array of NumPy, not a model; arrays are given as inputs, as in --input NAME=FILE",
    ),
    "image": (
        b"\x89PNG\r\n\x1a\n",
        "the file is an image, not a model; images are given as inputs, as in --input FILE",
    ),
    "ZIP archive": (
        zipped("a/readme.md", "a/net.onnx"),
        "the file is an archive with 'a/net.onnx'; extract the model from it",
    ),
    "ZIP archive without a model": (zipped("readme.md"), "the file is an archive; extract the model from it"),
    "damaged ZIP archive": (zipped("net.onnx")[:40], "the file is an archive; extract the model from it"),
    "tar": (tarred("m/net.tflite", mode="w"), "the file is an archive with 'm/net.tflite'; extract the model from it"),
    "tar.gz": (
        tarred("m/", "m/saved_model.pb"),
        "the file is an archive with 'm/saved_model.pb'; extract the model from it",
    ),
    "tar.xz": (
        tarred("net.onnx", mode="w:xz"),
        "the file is an archive with 'net.onnx'; extract the model from it",
    ),
    "gzip": (gzip.compress(b"\x08\x07abc"), "the file is compressed with gzip; decompress it first: gunzip FILE"),
    "damaged gzip": (b"\x1f\x8b\x08junk", "the file is compressed with gzip; decompress it first: gunzip FILE"),
    "Zstandard": (
        b"\x28\xb5\x2f\xfd" + bytes(9),
        "the file is compressed with Zstandard; decompress it first: unzstd FILE",
    ),
}


@pytest.mark.parametrize("title", CONTENTS)
def test_files_of_other_projects_are_named(title: str) -> None:
    content, text = CONTENTS[title]
    assert refusal(content) == text


def test_the_command_that_decompresses_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(b"\x08\x07abc"))
    assert refusal(path) == f"{path}: the file is compressed with gzip; decompress it first: gunzip {path}"


DOCUMENTS: dict[str, tuple[object, str]] = {
    "TensorFlow.js": (
        {"format": "graph-model", "modelTopology": {}, "weightsManifest": []},
        "the file is a model of TensorFlow.js, which is not read; "
        "convert it with tensorflowjs_converter to a SavedModel",
    ),
    "Hugging Face": (
        {"architectures": ["BertModel"], "model_type": "bert"},
        "the file is the configuration of a model of Hugging Face, not a network; "
        "write the model as ONNX with: optimum-cli export onnx --model MODEL FOLDER",
    ),
    "index of weights": (
        {"metadata": {}, "weight_map": {"a": "model-1.safetensors"}},
        "the file is an index of weights in the format safetensors, which have no network; export the model to ONNX",
    ),
    "Keras": (
        {"class_name": "Sequential", "config": {}},
        "the file is the architecture of a model of Keras without its weights; "
        "load the model in Keras, and write it with: model.export(folder)",
    ),
    "MXNet": (
        {"nodes": [], "arg_nodes": [0]},
        "the file is a network of MXNet without its weights, which is not read; export the original model to ONNX",
    ),
    "another object": (
        {"name": "net", "scores": [1, 2]},
        "the file is JSON, but no NNAPI document, the only JSON that is read as a network: "
        "it has no 'operands' and 'operations'",
    ),
    "a list": (
        [{"a": 1}],
        "the file is JSON, but no NNAPI document, the only JSON that is read as a network: "
        "it has no 'operands' and 'operations'",
    ),
}


@pytest.mark.parametrize("title", DOCUMENTS)
def test_json_files_are_named(title: str) -> None:
    document, text = DOCUMENTS[title]
    assert refusal(json.dumps(document, indent=1).encode()) == text


def test_a_document_of_nnapi_whose_operands_come_late_is_one() -> None:
    document = {"note": "x" * 10_000, "operations": [], "inputs": [], "outputs": []}
    assert refusal(json.dumps(document).encode()) == "document: 'operands' is missing"


SUFFIXES = {
    "net.engine": f"the suffix is that of an engine of {TENSORRT}",
    "net.plan": f"the suffix is that of an engine of {TENSORRT}",
    "net.mlmodel": f"the suffix is that of a model of {COREML}",
    "net.MNN": f"the suffix is that of a model of MNN, which is not read; {ONNX}",
    "net.pdiparams": "the suffix is that of PaddlePaddle's weights, which have no network; "
    "convert the model with paddle2onnx",
}


@pytest.mark.parametrize("name", SUFFIXES)
def test_a_suffix_names_a_file_whose_content_does_not(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xee\xee\xee\xee" + bytes(60))
    assert refusal(tmp_path / name) == f"{tmp_path / name}: {SUFFIXES[name]}"


FOLDERS: dict[str, tuple[tuple[str, ...], Callable[[Path], str]]] = {
    "empty": ((), lambda folder: "the folder is empty"),
    "Hugging Face": (
        ("config.json", "model.safetensors", "tokenizer.json"),
        lambda folder: (
            "the folder is a model of Hugging Face, whose weights (model.safetensors) have no network; "
            f"write it as ONNX: optimum-cli export onnx --model {folder} FOLDER"
        ),
    ),
    "a package of Core ML": (("Manifest.json", "Data/a"), lambda folder: f"the folder is a model of {COREML}"),
    "PaddlePaddle": (
        ("inference.pdmodel", "inference.pdiparams"),
        lambda folder: "the folder is a model of PaddlePaddle, which is not read; convert it with paddle2onnx",
    ),
    "a checkpoint": (
        ("checkpoint", "model.ckpt.index", "model.ckpt.data-00000-of-00001"),
        lambda folder: (
            "the folder has a checkpoint of TensorFlow, which has no graph; write a SavedModel or a frozen graph"
        ),
    ),
    "a model file": (
        ("readme.md", "net.onnx"),
        lambda folder: f"this is a folder; give the path of the model in it, such as '{folder / 'net.onnx'}'",
    ),
    "others": (("readme.md",), lambda folder: "the folder holds no saved_model.pb"),
}


@pytest.mark.parametrize("title", FOLDERS)
def test_folders_are_named(title: str, tmp_path: Path) -> None:
    names, text = FOLDERS[title]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert refusal(tmp_path) == f"{tmp_path}: {text(tmp_path)}"


DOWNLOAD = "this is an address, and files are not downloaded; download the file"
ADDRESSES = {
    "https://models.example/net.onnx": f"{DOWNLOAD}, for example with: curl -LO https://models.example/net.onnx, "
    "and give its path",
    "hf://group/name/onnx/model.onnx": f"{DOWNLOAD}, for example with: hf download group/name onnx/model.onnx, "
    "and give its path",
    "s3://bucket/net.onnx": f"{DOWNLOAD}, for example with: aws s3 cp s3://bucket/net.onnx ., and give its path",
    "ftp://host/net.onnx": f"{DOWNLOAD}, and give its path",
    "file:///models/net.onnx": "this is an address; give the path of the file: /models/net.onnx",
}


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("format", [None, "onnx", "tflite"])
def test_an_address_is_not_downloaded(address: str, format: str | None) -> None:
    with pytest.raises(MissingFileError) as caught:
        ip.load(address, format=format)
    assert str(caught.value) == f"{address}: {ADDRESSES[address]}"


def test_a_missing_file_is_the_error_that_python_raises_for_one() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        ip.load("absent.onnx")
    error = caught.value
    assert isinstance(error, MissingFileError) and isinstance(error, InterposerError)
    assert (error.errno, error.strerror, error.filename) == (2, "No such file or directory", "absent.onnx")
    assert str(error) == "absent.onnx: the file cannot be read: No such file or directory"


def test_a_file_that_cannot_be_read_is_an_error_of_the_operating_system_too() -> None:
    with pytest.raises(OSError, match="it is a device or a socket, not a regular file") as caught:
        ip.load("/dev/null")
    assert isinstance(caught.value, FileReadError) and not isinstance(caught.value, MissingFileError)


def test_the_error_for_a_missing_file_survives_pickling() -> None:
    with pytest.raises(MissingFileError) as caught:
        ip.load("absent.onnx")
    copy = pickle.loads(pickle.dumps(caught.value))
    facts = [(type(e), str(e), e.path, e.message, e.errno, e.strerror, e.filename) for e in (caught.value, copy)]
    assert facts[0] == facts[1]
