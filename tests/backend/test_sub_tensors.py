"""Sub-tensors of tensors in ordinary memory."""

from __future__ import annotations

from interposer.backend import ArrayHandle
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
