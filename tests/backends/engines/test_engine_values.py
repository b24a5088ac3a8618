"""Values that an engine refuses: they are the caller's error if the reference refuses them too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidValueError
from tests.backends.engines.adapters import engine_class
from tests.session.test_invalid_values import table_network


@pytest.fixture(params=["OnnxRuntime", "Torch"])
def engine(request: pytest.FixtureRequest) -> str:
    kind: Any = engine_class(request.param)
    if kind.unavailable() is not None:
        pytest.skip(kind.unavailable())
    name: str = request.param
    return name


def test_an_index_out_of_range_is_the_callers_error_and_the_engine_goes_on(engine: str) -> None:
    with ip.load(table_network(), [engine]) as model:
        for _ in range(2):
            assert model.run([np.array([0, 2])])[0].tolist() == [[0, 1], [4, 5]]
            with pytest.raises(InvalidValueError) as caught:
                model.run([np.array([0, 9])])
            assert str(caught.value) == (
                "layer 'pick' (Gather) cannot use its inputs: indices has 9 at [1]; expected -3 to 2 (tensor 'i')"
            )
            assert (caught.value.backend, caught.value.layer, caught.value.position) == (engine, "pick", (1,))
        assert model.events == ()
