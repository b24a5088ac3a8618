"""Values of a caller as plain arrays: masks of `numpy.ma` are not read, so that masked elements are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import BindingError

__all__ = ["plain_array"]


def plain_array(value: Any, title: str = "it", error: Callable[[str], Exception] = BindingError) -> NDArray[Any]:
    """Return a value as a plain array; one of a subclass, such as those of `numpy.ma`, as an array of its memory.

    Raises:
        Exception: elements are masked, so that they have no value. It is what `error` makes of the message, which
            begins with `title`.
        ValueError: NumPy cannot convert the value.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked_count = int(np.ma.getmaskarray(value).sum())
        raise error(
            f"{title} is an array of numpy.ma with {masked_count} of {value.size} elements masked, and masks are not "
            "read; pass array.filled(number), or array.data for the values under the mask"
        )
    return np.asarray(value)
