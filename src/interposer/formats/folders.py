"""What to do with a folder that is given instead of a model, and is no SavedModel."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

__all__ = ["foreign_folder"]

_MODEL: Final = re.compile(r"(?i).*\.(onnx|tflite|pt2|armnn|caffemodel)")
_MOST: Final = 2_000
"""How many names of a folder are looked at."""


def foreign_folder(folder: Path) -> str | None:
    """Return what a folder is and what to do, by the names of its files; None if it is of no known kind."""
    try:
        names = {entry.name for entry in islice(os.scandir(folder), _MOST)}
    except OSError:
        return None
    if not names:
        return "the folder is empty"
    return _of_tools(folder, names) or _of_models(folder, names)


def _of_tools(folder: Path, names: set[str]) -> str | None:
    """Return the message for a folder that another tool has written as a whole."""
    if folder.suffix == ".mlpackage" or {"Manifest.json", "Data"} <= names or "coremldata.bin" in names:
        return (
            "the folder is a model of Core ML, which is not read; convert the original model to ONNX or TFLite instead"
        )
    if "config.json" in names and (weights := _first(names, r".*\.safetensors|pytorch_model.*\.bin|tf_model\.h5")):
        command = f"optimum-cli export onnx --model {shlex.quote(str(folder))} FOLDER"
        explanation = f"the folder is a model of Hugging Face, whose weights ({weights}) have no network"
        return f"{explanation}; write it as ONNX: {command}"
    if "model.json" in names and _first(names, r"group.*-shard.*"):
        return (
            "the folder is a model of TensorFlow.js, which is not read; "
            "convert it with: tensorflowjs_converter --input_format=tfjs_layers_model --output_format=keras_saved_model"
        )
    if "inference.pdmodel" in names or "__model__" in names or _first(names, r".*\.pdmodel|.*\.pdiparams"):
        return "the folder is a model of PaddlePaddle, which is not read; convert it with paddle2onnx"
    if {"metadata.json", "config.json"} <= names:
        return "the folder is a model of Keras, which is not read; load it and write it with: model.export(folder)"
    return None


def _of_models(folder: Path, names: set[str]) -> str | None:
    """Return the message for a folder that has model files or checkpoints."""
    models = sorted(filter(_MODEL.fullmatch, names))
    if models:
        return f"this is a folder; give the path of the model in it, such as {str(folder / models[0])!r}"
    network = next((name for name in sorted(names) if name.endswith(".xml") and f"{name[:-4]}.bin" in names), None)
    if network is not None:
        return f"this is a folder; give the path of the network in it, {str(folder / network)!r}"
    if "checkpoint" in names or _first(names, r".*\.ckpt.*|.*\.data-\d+-of-\d+"):
        return "the folder has a checkpoint of TensorFlow, which has no graph; write a SavedModel or a frozen graph"
    return None


def _first(names: Iterable[str], pattern: str) -> str | None:
    return next((name for name in sorted(names) if re.fullmatch(pattern, name)), None)
