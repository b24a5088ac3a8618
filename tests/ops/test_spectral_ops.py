import numpy as np
import pytest

from interposer.core.types import UNKNOWN, DataType, Dim, TensorInfo
from interposer.ops.spectral import Dft, MelWeightMatrix, SignalWindow, Stft


def shape(op, *infos):
    assert op.violations(*infos) == []
    [info] = op.infer_infos(*infos)
    return tuple(info.shape)


def number(value):
    return TensorInfo.of(np.array(value))


@pytest.mark.parametrize(
    ("op", "given", "expected"),
    [
        (Dft(), (2, 6, 1), (2, 6, 2)),
        (Dft(onesided=True), (2, 6, 1), (2, 4, 2)),
        (Dft(onesided=True, length=7), (2, 6, 1), (2, 4, 2)),
        (Dft(inverse=True), (2, 6, 2), (2, 6, 2)),
        (Dft(inverse=True, onesided=True), (2, 4, 2), (2, 6, 1)),
        (Dft(0, length=9), (2, 6, 1), (9, 6, 2)),
        (Dft(onesided=True), ("n", None, 1), (Dim("n"), Dim(), 2)),
        (Stft(2, 4), (1, 9, 1), (1, 3, 3, 2)),
        (Stft(2, 4, False), (1, "length", 2), (1, Dim(), 4, 2)),
    ],
)
def test_there_are_as_many_frequencies_as_are_asked_for(op, given, expected):
    infos = [TensorInfo(given), None] if isinstance(op, Stft) else [TensorInfo(given)]
    assert shape(op, *infos) == expected


def test_sizes_that_are_known_give_known_shapes():
    late = TensorInfo((), DataType.INT64)
    assert shape(SignalWindow(), number(5)) == (5,)
    assert shape(SignalWindow(), late) == (UNKNOWN,)
    edges = [TensorInfo()] * 2
    assert shape(MelWeightMatrix(), number(4), number(16), late, *edges) == (9, 4)
    assert shape(MelWeightMatrix(), number(4), late, late, *edges) == (UNKNOWN, 4)


@pytest.mark.parametrize(
    ("op", "infos", "fault"),
    [
        (Dft(3), [TensorInfo((2, 6, 1))], "axis is 3, but the input has rank 3; expected -3 to 2"),
        (
            Dft(-1),
            [TensorInfo((2, 6, 1))],
            "axis is -1, the axis of the real and imaginary parts; expected another one",
        ),
        (Dft(), [TensorInfo((2, 6, 3))], "input has shape [2, 6, 3]; expected 1 or 2 as its last dimension"),
        (Dft(onesided=True), [TensorInfo((2, 6, 2))], "input has shape [2, 6, 2]; expected 1 as its last dimension"),
        (Dft(), [TensorInfo((2, 0, 1))], "input has shape [2, 0, 1], whose axis -2 is too short for a signal"),
        (Stft(1, 8), [TensorInfo((1, 5, 1)), None], "signal has 5 elements, but a frame has 8"),
        (
            Stft(1, 4),
            [TensorInfo((1, 5, 1)), TensorInfo((3,))],
            "window has 3 elements; expected 4, the length of a frame",
        ),
        (SignalWindow(), [TensorInfo.of(np.array([1, 2]))], "size has shape [2]; expected one element"),
        (SignalWindow(), [TensorInfo.of(np.array(-1))], "size is -1; expected 0 or more"),
    ],
)
def test_a_fault_says_what_was_expected(op, infos, fault):
    assert op.violations(*infos) == [fault]
