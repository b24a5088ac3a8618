"""The arithmetic of sliding windows, compared with windows that are moved one by one."""

from __future__ import annotations

import itertools

import pytest

from interposer.core.types import Dim
from interposer.ops.window import Window

WINDOWS = [
    Window(*sizes) for sizes in itertools.product((1, 2, 3), (1, 2, 3, 5), (1, 2), (0, 1, 2), (0, 1, 2))
]  # size, stride, dilation, pads
SIZES = range(1, 9)


def starts(window, size):
    """The first elements of all windows that lie inside of the padded axis."""
    last = size + window.pad_before + window.pad_after - window.reach
    return list(range(0, last + 1, window.stride))


def cases():
    return [(window, size) for window in WINDOWS for size in SIZES if starts(window, size)]


def test_places_are_the_windows_that_fit():
    assert [window.places(size) for window, size in cases()] == [len(starts(*case)) for case in cases()]


def test_a_last_window_may_pass_the_end_unless_it_begins_in_the_end_padding():
    for window, size in cases():
        result, padded = starts(window, size), size + window.pad_before + window.pad_after
        if result[-1] + window.reach < padded:
            result.append(result[-1] + window.stride)
        if result[-1] >= size + window.pad_before:
            result.pop()
        assert window.places_rounded_up(size) == len(result), (window, size)


def test_covered_is_the_end_of_the_last_window():
    for window, size in cases():
        assert window.covered(window.places(size)) == starts(window, size)[-1] + window.reach


def test_an_end_pad_gives_the_requested_number_of_places_and_is_the_smallest():
    for window, size in cases():
        places = window.places(size)
        pad = window.pad_after_for(size, places)
        assert window._replace(pad_after=pad).places(size) == places or pad == 0
        assert pad <= window.pad_after


def test_same_gives_a_place_for_each_stride_with_the_odd_element_at_the_end():
    for window, size in itertools.product(WINDOWS, SIZES):
        pad_before, pad_after = window.same_pads(size)
        assert pad_after - pad_before in (0, 1)
        places = window._replace(pad_before=pad_before, pad_after=pad_after).places(size)
        assert places == -(-size // window.stride) or window.stride > window.reach


@pytest.mark.parametrize("stride", [0, 2])
def test_same_pads_of_an_unknown_size_are_not_known(stride):
    assert Window(3, stride, 1, 0, 0).same_pads(Dim("n")) is None


def test_same_pads_with_stride_1_do_not_depend_on_the_size():
    assert Window(4, 1, 2, 0, 0).same_pads(Dim("n")) == (3, 3)
    assert Window(2, 1, 1, 0, 0).same_pads(Dim("n")) == (0, 1)
