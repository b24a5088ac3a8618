"""Names for doctests: the examples of operators use NumPy, `interposer` and `interposer.ops` without imports."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _names_for_operators_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    if not isinstance(request.node, pytest.DoctestItem) or not request.node.name.startswith("interposer.ops."):
        yield
        return
    import interposer  # noqa: PLC0415 - only for doctests
    from interposer import ops  # noqa: PLC0415

    exported = {name: getattr(interposer, name) for name in interposer.__all__} | vars(ops)
    names = {name: found for name, found in exported.items() if not isinstance(found, ModuleType)}
    doctest_namespace.update({"np": np}, **names)
    yield
    doctest_namespace.clear()
