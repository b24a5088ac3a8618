import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from interposer.core.errors import InvalidArgumentError, InvalidValueError
from interposer.core.types import DataType, TensorInfo
from interposer.kernels import evaluate
from interposer.ops.spectral import Dft, MelWeightMatrix, SignalWindow, Stft, WindowFunction
from tests.computing import compute

F32 = np.float32
SIGNALS = arrays.arrays(F32, (2, 6, 2), elements=st.integers(-9, 9).map(F32))


def evaluated(op, *inputs):
    """The result where its shape depends on data."""
    infos = [TensorInfo(array.shape, DataType.of(array.dtype)) for array in inputs]
    [inferred] = evaluate(op, inputs, infos, op.infer_infos(*infos))
    return inferred


@given(SIGNALS, st.integers(-3, 1), st.booleans())
def test_a_transform_is_what_its_formula_says(signal, axis, inverse):
    axis = axis if axis not in (-1, 2) else 0
    numbers = np.moveaxis(signal[..., 0] + 1j * signal[..., 1], axis % 3, -1)
    size = numbers.shape[-1]
    table = np.outer(np.arange(size), np.arange(size))
    matrix = np.exp((2j if inverse else -2j) * np.pi * table / size) / (size if inverse else 1)
    expected = np.moveaxis(numbers @ matrix, -1, axis % 3)
    result = compute(Dft(axis, inverse=inverse), signal)
    np.testing.assert_allclose(result[..., 0] + 1j * result[..., 1], expected, atol=1e-4)


@given(SIGNALS, st.sampled_from([None, 4, 9]))
def test_the_inverse_leads_back(signal, length):
    there = compute(Dft(length=length), signal)
    back = compute(Dft(inverse=True), there)
    padded = np.zeros((2, length or 6, 2), F32)
    padded[:, : min(6, length or 6)] = signal[:, : length or 6]
    np.testing.assert_allclose(back, padded, atol=1e-4)


@given(SIGNALS)
def test_half_of_the_frequencies_of_a_real_signal_say_all(signal):
    real = signal[..., :1]
    one_side, all_frequencies = compute(Dft(onesided=True), real), compute(Dft(), real)
    np.testing.assert_allclose(one_side, all_frequencies[:, :4], atol=1e-4)
    np.testing.assert_allclose(compute(Dft(inverse=True, onesided=True), one_side), real, atol=1e-4)


@given(SIGNALS)
def test_every_frame_is_transformed_by_itself(signal):
    window = F32([1, 2, 3])
    result = compute(Stft(2, 3, onesided=False), signal, window)
    for frame in range(2):
        part = signal[:, 2 * frame : 2 * frame + 3] * window[:, None]
        np.testing.assert_allclose(result[:, frame], compute(Dft(), part), atol=1e-4)


@pytest.mark.parametrize("function", WindowFunction)
def test_a_window_is_symmetric_and_periodic_ones_lack_the_last_element(function):
    symmetric = evaluated(SignalWindow(function, periodic=False), np.array(7))
    np.testing.assert_allclose(symmetric, symmetric[::-1], atol=1e-7)
    assert symmetric[3] == pytest.approx(1)
    np.testing.assert_allclose(evaluated(SignalWindow(function), np.array(6)), symmetric[:6], atol=1e-7)
    assert evaluated(SignalWindow(function, periodic=False), np.array(1)).tolist() == [pytest.approx(1)]


def test_a_window_has_no_less_than_no_elements():
    with pytest.raises(InvalidArgumentError, match="^size is -1; expected 0 or more$"):
        evaluated(SignalWindow(), np.array(-1))


def mel(*numbers):
    bins, length, rate, lower, upper = numbers
    return evaluated(
        MelWeightMatrix(), *map(np.array, (bins, length, rate)), F32(lower).reshape(()), F32(upper).reshape(())
    )


def test_bands_are_triangles_that_reach_to_their_neighbours():
    matrix = mel(5, 256, 16000, 100, 7000)
    assert matrix.shape == (129, 5)
    assert (matrix.max(axis=0) == 1).all()
    peaks = matrix.argmax(axis=0)
    assert (np.diff(peaks) > 0).all()
    inner = matrix[peaks[0] : peaks[-1] + 1]
    np.testing.assert_allclose(inner.sum(axis=1), 1, atol=1e-6)


def test_numbers_that_no_bands_can_have_are_refused():
    with pytest.raises(InvalidValueError, match="^num_mel_bins is -1; expected 0 or more$"):
        mel(-1, 16, 8, 0, 1)
    with pytest.raises(InvalidValueError, match="^sample_rate is 0; expected more than 0$"):
        mel(1, 16, 0, 0, 1)
