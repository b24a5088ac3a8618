"""ONNX converters for operators that encode words and labels as numbers and back, some of the domain ai.onnx.ml."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType, integer_range
from interposer.frontends.elementwise import EQUAL, GREATER
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.reshaping import inserted_axes, reshaped
from interposer.ir.graph import Value
from interposer.ops.features import LabelEncoder, TermWeighting, TfIdfVectorizer
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast

__all__: list[str] = []

_ML: Final = "ai.onnx.ml"


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(node: Node) -> Value:
    """Convert TfIdfVectorizer; its pool holds either integers or strings."""
    mode = node.text("mode")
    if mode not in TermWeighting.__members__:
        raise ParseError(f"its mode is {mode!r}; expected {', '.join(TermWeighting.__members__)}")
    if node.has_attribute("pool_int64s") == node.has_attribute("pool_strings"):
        raise ParseError("it needs either pool_int64s or pool_strings")
    op = TfIdfVectorizer(
        pool=_list(node, "pool_int64s" if node.has_attribute("pool_int64s") else "pool_strings"),
        ngram_counts=node.integers("ngram_counts"),
        ngram_indexes=node.integers("ngram_indexes"),
        min_gram_length=node.integer("min_gram_length"),
        max_gram_length=node.integer("max_gram_length"),
        max_skip_count=node.integer("max_skip_count"),
        mode=TermWeighting[mode],
        weights=node.numbers("weights", ()),
    )
    return node.result(op, node.value(0))


# --- ai.onnx.ml -------------------------------------------------------------------------------------------------------


def _list(node: Node, name: str) -> Array:
    """Return the attribute `name` as an array; the name's ending gives its type: int64s, floats, strings or tensor."""
    if name.endswith("_tensor"):
        return node.tensor_array(name)
    if name.endswith("strings"):
        return np.array([*node.texts(name), ""], object)[:-1]
    return np.array(node.integers(name), np.int64) if name.endswith("int64s") else np.array(node.numbers(name), "f4")


@operator("LabelEncoder", since=1, domain=_ML)
def label_encoder_of_classes(node: Node) -> Value:
    """Convert LabelEncoder of ai.onnx.ml 1: strings become indices into the list of classes, and indices strings."""
    classes = _list(node, "classes_strings")
    indices = np.arange(len(classes), dtype=np.int64)
    if node.info(0).dtype is DataType.STRING:
        return node.result(LabelEncoder(classes, indices, _default(node, "values_int64s")), node.value(0))
    return node.result(LabelEncoder(indices, classes, _default(node, "values_strings")), node.value(0))


@operator("LabelEncoder", since=2, domain=_ML)
def label_encoder_of_lists(node: Node) -> Value:
    """Convert LabelEncoder before ai.onnx.ml 4: keys and values are lists, and a key that is NaN matches nothing."""
    keys, values, default = _encoding(node)
    if keys.dtype.kind == "f" and keys.shape == values.shape:
        keys, values = keys[~np.isnan(keys)], values[~np.isnan(keys)]
    return node.result(LabelEncoder(keys, values, default), node.value(0))


@operator("LabelEncoder", since=4, domain=_ML)
def label_encoder(node: Node) -> Value:
    """Convert LabelEncoder; keys and values are lists of numbers or strings, or tensors."""
    return node.result(LabelEncoder(*_encoding(node)), node.value(0))


def _encoding(node: Node) -> tuple[Array, Array, Any]:
    """Return the keys, the values and the default of a LabelEncoder."""
    keys, values_name = _list(node, _present_attribute(node, "keys")), _present_attribute(node, "values")
    return keys.reshape(-1), _list(node, values_name).reshape(-1), _default(node, values_name)


def _present_attribute(node: Node, title: str) -> str:
    """Return the name of the attribute that has the encoder's keys or values; `title` is "keys" or "values".

    `ParseError` is raised unless the node has exactly one of the attributes, such as keys_int64s and keys_strings.
    """
    candidates = [f"{title}_{suffix}" for suffix in ("int64s", "floats", "strings", "tensor")]
    present_names = [name for name in candidates if node.has_attribute(name)]
    if len(present_names) != 1:
        raise ParseError(f"it has {', '.join(present_names) or 'no ' + title}; expected one of {', '.join(candidates)}")
    return present_names[0]


def _default(node: Node, values_name: str) -> Any:
    if values_name == "values_strings":
        return np.array(node.text("default_string", "_Unused"), object)
    if values_name == "values_int64s":
        return np.array(node.integer("default_int64", -1), np.int64)
    if values_name == "values_floats":
        return np.array(node.number("default_float", -0.0), np.float32)
    if node.has_attribute("default_tensor"):
        return node.tensor_array("default_tensor")
    dtype = node.tensor_array(values_name).dtype
    return np.array("_Unused" if dtype.kind == "O" else -1 if dtype.kind in "iu" else -0.0, dtype)


@operator("ArrayFeatureExtractor", since=1, domain=_ML)
def array_feature_extractor(node: Node) -> Value:
    """Convert ArrayFeatureExtractor: elements along the last axis; a vector counts as one row."""
    x, indices = node.value(0), reshaped(node, node.value(1), (-1,))
    if x.known.rank > 1:
        return node.result(Gather(-1), x, indices)
    selected = node.step(Gather(-1), x, indices)
    return inserted_axes(node, selected, [0])


@operator("Binarizer", since=1, domain=_ML)
def binarizer(node: Node) -> Value:
    """Convert Binarizer: 1 for elements above the threshold, else 0, in the input's type."""
    x, threshold = node.value(0), node.number("threshold", 0.0)
    dtype = x.known.dtype
    if dtype.is_integer:
        low, high = integer_range(dtype)
        threshold = high if math.isnan(threshold) else math.floor(min(max(threshold, low - 1), high))
        if threshold < low:
            return node.result(Cast(dtype), node.step(EQUAL, x, x))
    threshold_constant = node.constant(np.array(threshold, dtype.numpy))
    return node.result(Cast(dtype), node.step(GREATER, x, threshold_constant))
