"""The places of a window, by view and by index."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.kernels.places import _picked, places, visible
from interposer.ops.window import Window

axes = st.tuples(
    st.builds(Window, st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 9), st.integers(0, 9)),
    st.integers(1, 6),
)


@given(axes, axes)
@settings(max_examples=80, deadline=None)
def test_a_place_shows_what_lies_under_the_window(down, across):
    image = np.arange(1, down[1] * across[1] + 1).reshape(1, down[1], across[1], 1)
    counts = [max(0, window.places(size)) for window, size in (down, across)]
    (rows, seen_rows), (columns, seen_columns) = (
        visible(window, size, count) for (window, size), count in zip((down, across), counts, strict=True)
    )
    result = places(image, rows, columns, -1)
    expected = np.full((*counts, down[0].size, across[0].size), -1)
    for oy, ox, i, j in np.ndindex(expected.shape):
        y = oy * down[0].stride + i * down[0].dilation - down[0].pad_before
        x = ox * across[0].stride + j * across[0].dilation - across[0].pad_before
        if 0 <= y < down[1] and 0 <= x < across[1]:
            expected[oy, ox, i, j] = image[0, y, x, 0]
    np.testing.assert_array_equal(result[0, ..., 0], expected[:, :, seen_rows, seen_columns])
    unseen = expected.copy()
    unseen[:, :, seen_rows, seen_columns] = -1
    assert (unseen == -1).all()
    if result.size:
        np.testing.assert_array_equal(_picked(image, rows.positions(), columns.positions(), -1), result)
