"""Kernels of Merge and Switch, which pass data on without computing anything."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.kernels.reference import kernel
from interposer.ops.control import Merge, Switch

__all__: list[str] = []


@kernel(Merge)
def merge(op: Merge, a: Array, b: Array) -> Array:
    """Compute `Merge`: both inputs are available when a whole graph runs, so return the first one."""
    return a


@kernel(Switch)
def switch(op: Switch, data: Array, condition: Array) -> tuple[Array, Array]:
    """Compute `Switch`: both outputs get the data, since a graph is run as a whole; the condition decides nothing."""
    return data, np.copy(data)
