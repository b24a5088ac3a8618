"""ONNX writers for sequences and optionals, and for operators on strings and terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interposer.core.types import DataType
from interposer.ops.containers import (
    ConcatFromSequence,
    OptionalConstruct,
    OptionalEmpty,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from interposer.ops.features import LabelEncoder, TfIdfVectorizer
from interposer.ops.strings import RegexFullMatch, StringConcat, StringNormalizer, StringSplit
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.forms import form
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.protos import full_type_name
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []


def _node(draft: Draft, operands: Sequence[Tensor | None], **attributes: Any) -> Tensor:
    """Write the layer as the ONNX operator of the same name (Optional for both optional layers), and return its result.

    The layer is refused if the operator does not accept the types of `operands`: elements of a sequence cannot be cast.
    """
    kind = draft.layer.kind.replace("OptionalConstruct", "Optional").replace("OptionalEmpty", "Optional")
    signature, result_info = form(kind, draft.opset), draft.result
    if signature is None:
        refuse(f"opset {draft.opset} has no {kind}")
    typed_operands = [
        (signature.operand(i), draft.info(i)) for i, operand in enumerate(operands) if operand is not None
    ]
    for name, info in (*typed_operands, (signature.result(0), result_info)):
        type_text = full_type_name(info)
        if type_text not in signature.allowed.get(name, {name}):
            refuse(f"{kind} of ONNX (since opset {signature.since}) knows no {type_text}")
    return draft.node(kind, *operands, giving=result_info.dtype, **attributes)


@writer(SequenceConstruct, SequenceInsert, SequenceErase, SequenceAt, SequenceLength, moves=True)
def sequence(draft: Draft, op: SequenceConstruct) -> Tensor:
    """Write a layer on sequences whose ONNX operator has the same name and operands, such as SequenceConstruct."""
    return _node(draft, draft.operands)


@writer(OptionalConstruct, OptionalHasElement, OptionalGetElement, moves=True)
def optional(draft: Draft, op: OptionalConstruct) -> Tensor:
    """Write a layer on optionals as its ONNX operator: OptionalConstruct as Optional, others under their own names."""
    return _node(draft, draft.operands)


@writer(SequenceEmpty)
def sequence_empty(draft: Draft, op: SequenceEmpty) -> Tensor:
    """Write SequenceEmpty; the element type is an attribute."""
    return _node(draft, (), dtype=op.dtype)


@writer(OptionalEmpty)
def optional_empty(draft: Draft, op: OptionalEmpty) -> Tensor:
    """Write an empty Optional; its full type is an attribute."""
    return _node(draft, (), type=draft.result.element)


@writer(ConcatFromSequence, moves=True)
def concat_from_sequence(draft: Draft, op: ConcatFromSequence) -> Tensor:
    """Write ConcatFromSequence as the operator of this name."""
    return _node(draft, draft.operands, axis=op.axis, new_axis=1 if op.new_axis else None)


@writer(SplitToSequence, moves=True)
def split_to_sequence(draft: Draft, op: SplitToSequence) -> Tensor:
    """Write SplitToSequence as the operator of this name."""
    return _node(draft, draft.operands, axis=op.axis, keepdims=None if op.keepdims else 0)


# --- texts ------------------------------------------------------------------------------------------------------------


@writer(StringConcat)
def string_concat(draft: Draft, op: StringConcat) -> Tensor:
    """Write StringConcat as the operator of this name."""
    return draft.node("StringConcat", *draft.tensors())


@writer(StringSplit)
def string_split(draft: Draft, op: StringSplit) -> list[Tensor]:
    """Write StringSplit as the operator of this name."""
    attributes: dict[str, Any] = {"delimiter": op.delimiter or None, "maxsplit": op.maxsplit}
    return draft.nodes("StringSplit", draft.operand(0), count=2, giving=DataType.STRING, **attributes)


@writer(StringNormalizer)
def string_normalizer(draft: Draft, op: StringNormalizer) -> Tensor:
    """Write StringNormalizer as the operator of this name, without a locale."""
    attributes: dict[str, Any] = {
        "case_change_action": op.case_change.name,
        "is_case_sensitive": int(op.is_case_sensitive),
        "stopwords": list(op.stopwords) or None,
    }
    return draft.node("StringNormalizer", draft.operand(0), giving=DataType.STRING, **attributes)


@writer(RegexFullMatch)
def regex_full_match(draft: Draft, op: RegexFullMatch) -> Tensor:
    """Write RegexFullMatch as the operator of this name."""
    return draft.node("RegexFullMatch", draft.operand(0), pattern=op.pattern)


@writer(TfIdfVectorizer)
def tf_idf_vectorizer(draft: Draft, op: TfIdfVectorizer) -> Tensor:
    """Write TfIdfVectorizer as the operator of this name; its pool holds numbers or strings."""
    texts = op.pool.dtype == object
    attributes: dict[str, Any] = {
        "pool_strings" if texts else "pool_int64s": op.pool.tolist(),
        "ngram_counts": list(op.ngram_counts),
        "ngram_indexes": list(op.ngram_indexes),
        "min_gram_length": op.min_gram_length,
        "max_gram_length": op.max_gram_length,
        "max_skip_count": op.max_skip_count,
        "mode": op.mode.name,
        "weights": list(op.weights) or None,
    }
    return draft.node("TfIdfVectorizer", draft.operand(0), **attributes)


@writer(LabelEncoder)
def label_encoder(draft: Draft, op: LabelEncoder) -> Tensor:
    """Refuse LabelEncoder, which belongs to another operator set."""
    refuse("ONNX has tables of labels in the domain ai.onnx.ml only, which is not written")
