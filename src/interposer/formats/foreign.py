"""Recognition of files that people give instead of a model, by their first bytes, and of other projects' models.

Each message says what the file is, and what to do.
"""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["foreign", "foreign_suffix"]

_SIZE: Final = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
"""A size in protobuf's encoding."""
_EXPORT: Final = "export the original model to ONNX"
_LANGUAGE_MODEL: Final = (
    "export the original model to ONNX, for example with: optimum-cli export onnx --model MODEL FOLDER"
)
_TENSORRT: Final = (
    "TensorRT, which only runs with the version and the GPU that it was built for, and is not read; "
    "give the ONNX file that it was built from"
)
_COREML: Final = "Core ML, which is not read; convert the original model to ONNX or TFLite instead"
_EXECUTORCH: Final = (
    "ExecuTorch, which is not read; write the network with torch.export.save(torch.export.export(module, inputs), path)"
)
_PICKLE: Final = "a pickle of Python, which can run any program when it is opened, and is not read"
_KERAS: Final = "load it in Keras, and write it with: model.export(folder)"

_KINDS: Final = (
    (rb"version https://git-lfs", "the file is a pointer of Git LFS, not a model; get the model with: git lfs pull"),
    (rb"(?i:\s*(<\?xml[^>]*>\s*)?<(!doctype html|html|head))",
     "the file is a web page, not a model; download the model itself"),
    (rb"(?s:(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<PMML)",
     "the file is a model in PMML, which is not read; convert the original model to ONNX, for example with skl2onnx"),
    (rb"\x89HDF\r\n",
     "the file is in HDF5, as Keras writes models and weights (.h5), which is not read; " + _KERAS),
    (rb"(?s:PK\x03\x04.{22}.{4}metadata\.json)",
     "the file is a model of Keras, which is not supported; write it with Keras' model.export(folder)"),
    (rb"model_checkpoint_path:|(?s:\x00\x00.\x08.\x1a)",
     "the file is a part of a checkpoint of TensorFlow, which has no graph; write a SavedModel or a frozen graph"),
    (rb"(?s:\n%(size)b\x12%(size)b\n%(size)b\n[\x01-\x7f][A-Z])" % {b"size": _SIZE},
     "the file is a meta graph of TensorFlow, which has no values of variables; "
     "write a SavedModel or a frozen graph"),
    (rb"GGUF|FUGG|ggml|lmgg|tjgg|fmgg|algg",
     "the file is a language model for llama.cpp (GGUF), which is not read; "
     f"run it with llama.cpp, or {_LANGUAGE_MODEL}"),
    (rb"[fp]trt", f"the file is an engine of {_TENSORRT}"),
    (rb"(?s:\x08[\x02-\x20]\x12%(size)b\n%(size)b\n[\x01-\x7f][A-Za-z_])|\x08[\x01-\x20]\xa2\x1f" % {b"size": _SIZE},
     f"the file is a model of {_COREML}"),
    (rb"\n%(size)b\x08\x00\x10" % {b"size": _SIZE},
     "the file is a program of PaddlePaddle, which is not read; convert it with: "
     "paddle2onnx --model_dir FOLDER --model_filename FILE --params_filename FILE --save_file model.onnx"),
    (rb"7767517\s", "the file is a network of ncnn, which is not read; " + _EXPORT),
    (rb"(?s:.{4}ORT[M0-9])",
     "the file is a model in ONNX Runtime's own format (.ort), which is not read; "
     "give the .onnx file that it was made from"),
    (rb"(?s:.{4}ET\d\d)", f"the file is a program of {_EXECUTORCH}"),
    (rb"(?s:.{4}CIR0)",
     "the file is a model of Circle (ONE), which is not read; give the TFLite file that it was made from"),
    (rb"RKNN|(?s:.{4}RKNN)", "the file is a model for NPUs of Rockchip (RKNN), which is not read; " + _EXPORT),
    (rb"\x93NUMPY", "the file is an array of NumPy, not a model; arrays are given as inputs, as in --input NAME=FILE"),
    (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8|BM.{4}\x00{4}|(?s:RIFF.{4}WEBP)",
     "the file is an image, not a model; images are given as inputs, as in --input FILE"),
)  # fmt: skip

_SUFFIXES: Final = {
    ".engine": f"the suffix is that of an engine of {_TENSORRT}",
    ".plan": f"the suffix is that of an engine of {_TENSORRT}",
    ".trt": f"the suffix is that of an engine of {_TENSORRT}",
    ".mlmodel": f"the suffix is that of a model of {_COREML}",
    ".mnn": "the suffix is that of a model of MNN, which is not read; " + _EXPORT,
    ".gguf": "the suffix is that of a language model for llama.cpp, but the file does not begin with GGUF; "
    + _LANGUAGE_MODEL,
    ".pdmodel": "the suffix is that of a program of PaddlePaddle, which is not read; convert it with paddle2onnx",
    ".pdiparams": "the suffix is that of PaddlePaddle's weights, which have no network; "
    "convert the model with paddle2onnx",
    ".pte": f"the suffix is that of a program of {_EXECUTORCH}",
    ".weights": "the suffix is that of Darknet's weights, which have no network; " + _EXPORT,
    ".cfg": "the suffix is that of a network of Darknet, which is not read; " + _EXPORT,
    ".params": "the suffix is that of weights of MXNet, which have no network; " + _EXPORT,
    ".dlc": "the suffix is that of a model for Qualcomm's SNPE, which is not read; " + _EXPORT,
    ".rknn": "the suffix is that of a model for NPUs of Rockchip, which is not read; " + _EXPORT,
    ".hef": "the suffix is that of a model for Hailo's processors, which is not read; " + _EXPORT,
    ".om": "the suffix is that of a model for Ascend processors, which is not read; " + _EXPORT,
    ".pkl": f"the suffix is that of {_PICKLE}; {_EXPORT}",
    ".joblib": f"the suffix is that of {_PICKLE}; convert a model of scikit-learn with skl2onnx",
    ".bin": "files with this suffix often hold weights without a network; give the file with the network, "
    "such as the .xml file of OpenVINO's IR",
    ".npz": "the suffix is that of arrays of NumPy, not of a model; "
    "arrays are given as inputs, as in --input NAME=FILE",
}  # fmt: skip


def foreign(head: bytes, source: str | bytes | bytearray | memoryview | None = None) -> str | None:
    """Return what the file is that begins with these bytes, and what to do; None if it may be a model.

    `source` is the path or the content of the file; the members of an archive are then looked at.
    """
    for pattern, message in _KINDS:
        if re.match(pattern, head[:512]):
            return message
    from interposer.formats.archives import explained_archive  # noqa: PLC0415 - only for files that are no models

    return explained_archive(head, source)


def foreign_suffix(path: str | os.PathLike[str]) -> str | None:
    """Return what a file is by its suffix, and what to do; None if the suffix is unknown.

    It is meant for files whose content does not show what they are.
    """
    return _SUFFIXES.get(os.path.splitext(os.fsdecode(path))[1].lower())
