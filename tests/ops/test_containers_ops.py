"""Operators on sequences and optionals: what they refuse, and what they know before running."""

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import compute
from interposer.ops import (
    Activation,
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


def sequence(length, *shape, dtype=DataType.FLOAT32):
    element = TensorInfo(... if shape == (...,) else shape, dtype)
    return TensorInfo((length,), DataType.SEQUENCE, element=element)


def known(*numbers):
    return TensorInfo.of(np.array(numbers if len(numbers) != 1 else numbers[0], np.int64))


F = TensorInfo((2, 3))


def inferred(op, *infos):
    assert op.violations(*infos) == []
    return str(op.infer_infos(*infos)[0])


def test_what_is_known_of_elements_is_what_is_true_of_all():
    assert inferred(SequenceConstruct(), F, F) == "sequence[2] of float32[2, 3]"
    assert inferred(SequenceConstruct(), F, TensorInfo((5, 3))) == "sequence[2] of float32[?, 3]"
    assert inferred(SequenceConstruct(), F, TensorInfo((3,))) == "sequence[2] of float32[...]"


def test_an_empty_sequence_says_nothing_of_elements_to_come():
    [empty] = SequenceEmpty().infer_infos()
    assert str(empty) == "sequence[0] of float32[...]"
    assert inferred(SequenceInsert(), empty, F) == "sequence[1] of float32[2, 3]"
    assert inferred(SequenceInsert(), sequence(None, ...), F) == "sequence[?] of float32[...]"
    assert inferred(SequenceInsert(), sequence(1, 2, 3), TensorInfo((4, 3))) == "sequence[2] of float32[?, 3]"


def test_lengths_are_constants_where_they_are_known():
    [inferred] = SequenceLength().infer_infos(sequence(3, 2))
    assert inferred.constant == 3
    [inferred] = SequenceLength().infer_infos(sequence(None, 2))
    assert inferred.constant is None
    [inferred] = OptionalHasElement().infer_infos(OptionalEmpty().infer_infos()[0])
    assert inferred.constant == np.array(False)
    [inferred] = OptionalHasElement().infer_infos(OptionalConstruct().infer_infos(F)[0])
    assert inferred.constant == np.array(True)


def test_elements_are_joined_along_old_and_new_axes():
    assert inferred(ConcatFromSequence(0), sequence(3, 2, 4)) == "float32[6, 4]"
    assert inferred(ConcatFromSequence(-1), sequence(None, 2, 4)) == "float32[2, ?]"
    assert inferred(ConcatFromSequence(-1, new_axis=True), sequence(3, 2, 4)) == "float32[2, 4, 3]"
    assert inferred(ConcatFromSequence(0), sequence(3, ...)) == "float32[...]"


@pytest.mark.parametrize(
    ("op", "split", "wanted"),
    [
        (SplitToSequence(), None, "sequence[4] of float32[1, 3]"),
        (SplitToSequence(1, keepdims=False), None, "sequence[3] of float32[4]"),
        (SplitToSequence(), known(2), "sequence[2] of float32[2, 3]"),
        (SplitToSequence(), known(3), "sequence[2] of float32[?, 3]"),
        (SplitToSequence(), known(1, 3), "sequence[2] of float32[?, 3]"),
        (SplitToSequence(), TensorInfo((), "int64"), "sequence[?] of float32[?, 3]"),
        (SplitToSequence(), TensorInfo((5,), "int64"), "sequence[5] of float32[?, 3]"),
    ],
    ids=["ones", "flat", "even", "uneven", "given", "unknown", "as many as"],
)
def test_pieces_are_as_many_as_their_extents_say(op, split, wanted):
    assert inferred(op, TensorInfo((4, 3)), split) == wanted


PER_AXIS = TensorInfo((2, 3), "int8", Quantization([0.5, 0.25], 0, axis=0))


@pytest.mark.parametrize(
    ("op", "infos", "fault"),
    [
        (SequenceAt(), [F, known(0)], "sequence is float32; expected one of sequence"),
        (SequenceConstruct(), [F, sequence(1, 2)], "inputs[1] is sequence[1] of float32[2]; expected a tensor"),
        (
            SequenceConstruct(),
            [F, TensorInfo((2,), "int8")],
            "inputs[1] is int8[2]; expected float32[...], the type of the first input",
        ),
        (
            SequenceConstruct(),
            [PER_AXIS],
            "the input is quantized along axis 0, which the operator would collect; dequantize it first",
        ),
        (
            SequenceInsert(),
            [sequence(1, 2), TensorInfo((2,), "int8")],
            "tensor is int8[2]; expected float32[...], as the elements of the sequence",
        ),
        (
            SequenceAt(),
            [sequence(2, 2), TensorInfo((2,), "int64")],
            "position has shape [2]; expected one number",
        ),
        (ConcatFromSequence(2), [sequence(2, 3, 4)], "axis is 2, but the result has rank 2"),
        (SplitToSequence(), [F, known(0)], "split is 0; expected 1 or more"),
        (SplitToSequence(), [F, known(1, 2)], "split is [1, 2], 3 in all, but axis 0 has 2"),
        (SplitToSequence(2), [F], "axis is 2, but the input has rank 2; expected -2 to 1"),
        (OptionalConstruct(), [OptionalEmpty().infer_infos()[0]], None),
    ],
    ids=lambda value: value.op_name() if hasattr(value, "op_name") else "",
)
def test_what_does_not_fit_is_refused(op, infos, fault):
    [problem] = op.violations(*infos)
    assert fault is None or problem == fault


@pytest.mark.parametrize(
    ("op", "operands", "wanted"),
    [
        (SequenceErase(), [sequence(0, 2)], "sequence[0] of float32[2]"),
        (SequenceAt(), [sequence(0, 2), known(0)], "float32[2]"),
        (ConcatFromSequence(0), [sequence(0, 2)], "float32[0]"),
        (OptionalGetElement(), OptionalEmpty().infer_infos(), "float32[...]"),
    ],
    ids=lambda value: value.op_name() if hasattr(value, "op_name") else "",
)
def test_what_may_never_be_read_is_no_fault_yet(op, operands, wanted):
    """A branch that asks for an element of what is known to be empty is a right one, as long as it does not run."""
    assert inferred(op, *operands) == wanted


@pytest.mark.parametrize(
    ("op", "operands", "fault"),
    [
        (SequenceInsert(), [[], np.float32(1), np.int64(2)], "position is 2; expected 0 to 0"),
        (SequenceErase(), [[]], "position is -1; the sequence is empty"),
        (SequenceErase(), [[np.float32(1)], np.int64(-2)], "position is -2; expected -1 to 0"),
        (SequenceAt(), [[np.float32(1)], np.int64(1)], "position is 1; expected -1 to 0"),
        (ConcatFromSequence(0), [[]], "the sequence is empty"),
        (OptionalGetElement(), [None], "the optional is empty"),
    ],
    ids=lambda value: value.op_name() if hasattr(value, "op_name") else "",
)
def test_reading_what_is_not_there_is_a_fault(op, operands, fault):
    with pytest.raises(InvalidArgumentError) as caught:
        compute(op, *operands)
    assert str(caught.value) == fault


def test_a_tensor_operator_takes_no_sequence():
    [problem] = Activation().violations(sequence(2, 3))
    assert problem == "input is sequence[2] of float32[3]; expected a tensor"
