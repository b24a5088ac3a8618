"""What a JSON file is that people give as a model."""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["foreign_json", "is_json", "is_nnapi"]

_JSON: Final = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*["}]|\[\s*[\[{"])')
_OPERANDS: Final = re.compile(rb'"(operands|operations)"\s*:')
_KINDS: Final = (
    (rb'"(modelTopology|weightsManifest)"\s*:|"format"\s*:\s*"(graph|layers)-model"',
     "a model of TensorFlow.js, which is not read; convert it with tensorflowjs_converter to a SavedModel"),
    (rb'"weight_map"\s*:',
     "an index of weights in the format safetensors, which have no network; export the model to ONNX"),
    (rb'"(architectures|transformers_version|model_type)"\s*:',
     "the configuration of a model of Hugging Face, not a network; "
     "write the model as ONNX with: optimum-cli export onnx --model MODEL FOLDER"),
    (rb'"class_name"\s*:\s*"(Functional|Sequential|Model)"',
     "the architecture of a model of Keras without its weights; "
     "load the model in Keras, and write it with: model.export(folder)"),
    (rb'"arg_nodes"\s*:',
     "a network of MXNet without its weights, which is not read; export the original model to ONNX"),
    (rb'"learner"\s*:', "a model of XGBoost, which is not read; convert it to ONNX with onnxmltools"),
    (rb'"base_code"\s*:', "a program of PaddlePaddle, which is not read; convert it with paddle2onnx"),
    (rb'"added_tokens"\s*:', "a tokenizer of Hugging Face, not a network"),
)  # fmt: skip


def is_json(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is a JSON object, or a list of objects, lists or texts."""
    return _JSON.match(head) is not None


def is_nnapi(text: bytes) -> bool:
    """Return True if a JSON object has a key of an NNAPI document."""
    return _OPERANDS.search(text) is not None


def foreign_json(text: bytes) -> str | None:
    """Return what a JSON file is that is no NNAPI document, and what to do; None if it may be a damaged document.

    `text` is the beginning of the file, or all of it.
    """
    for pattern, kind in _KINDS:
        if re.search(pattern, text):
            return f"the file is {kind}"
    if not _is_whole(text):
        return None
    return (
        "the file is JSON, but no NNAPI document, the only JSON that is read as a network: "
        "it has no 'operands' and 'operations'"
    )


def _is_whole(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
