"""Sub-tensors of tensors in ordinary memory."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.backend import ArrayHandle
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, TensorInfo


class Counting(ArrayHandle):
    """Counts how often it is mapped and not yet unmapped."""

    maps = 0

    def map(self) -> Array:
        self.maps += 1
        return super().map()

    def unmap(self) -> None:
        self.maps -= 1


def test_unmapping_a_sub_tensor_of_a_sub_tensor_unmaps_the_tensor_that_it_lies_in():
    whole = Counting(TensorInfo((4, 6)))
    whole.allocate()
    half = whole.create_sub_tensor((2, 0), TensorInfo((2, 6)))
    piece = half.create_sub_tensor((0, 3), TensorInfo((1, 3)))
    with piece.mapped() as array:
        assert (array.shape, whole.maps) == ((1, 3), 1)
    assert whole.maps == 0


def test_a_sub_tensor_has_its_parent_and_the_strides_of_the_parent():
    whole = ArrayHandle(TensorInfo((2, 4, 6), "int16"))
    assert (whole.parent, whole.strides) == (None, (48, 12, 2))
    half = whole.create_sub_tensor((0, 2, 0), TensorInfo((2, 2, 6), "int16"))
    piece = half.create_sub_tensor((0, 0, 3), TensorInfo((2, 2, 1), "int16"))
    assert (half.parent, piece.parent, piece.strides) == (whole, half, (48, 12, 2))
    whole.allocate()
    assert piece.map().strides == piece.strides


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (4, 1, 7)])
def test_strides_are_those_of_a_compact_array(shape):
    assert ArrayHandle(TensorInfo(shape, "float64")).strides == np.empty(shape, np.float64).strides


def test_strides_of_an_unknown_shape_are_an_error():
    with pytest.raises(BackendContractError, match=r"^the strides of float32\[\?, 2\] are unknown, as its shape is$"):
        _ = ArrayHandle(TensorInfo((None, 2))).strides
