"""Values that the reference refuses are the caller's error on every engine, whether the engine refuses them or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Limits
from interposer.core.errors import InterposerError, InvalidValueError, LimitExceededError
from interposer.ops import EmbeddingLookup, Gather, GatherElements, GatherNd, ReverseSequence, ScatterElements
from interposer.testing.bad_values import with_bad_values
from tests.backends.engines.adapters import PLACES, engine_class
from tests.session.test_invalid_values import computed_network, decided, decided_inputs, table_network


@pytest.fixture(params=PLACES)
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


def test_an_index_that_the_part_computes_from_an_input_is_checked(engine: str) -> None:
    with ip.load(computed_network(), [engine, "CpuRef"]) as model:
        assert model.run([np.array([0, 1])])[0].tolist() == [[2, 3], [4, 5]]
        with pytest.raises(InvalidValueError, match=r"indices has 8 at \[1\]; expected -3 to 2"):
            model.run([np.array([0, 7])])
        assert model.run([np.array([0, 1])])[0].tolist() == [[2, 3], [4, 5]]
        assert model.events == ()


@pytest.mark.parametrize(
    "op",
    [Gather, GatherElements, GatherNd, EmbeddingLookup, ReverseSequence, ScatterElements],
    ids=lambda op: op.op_name(),
)
def test_an_engine_refuses_the_values_that_the_reference_refuses(op: Any, engine: str) -> None:
    limits = Limits(max_bytes=1 << 22, max_operations=10**7)
    for sample in decided(op):
        network, feeds = sample.network()
        try:
            model = ip.load(network, [engine], limits=limits)
        except InterposerError:
            continue
        reference = ip.load(network, ["CpuRef"], limits=limits)
        arrays = {f"input_{number}": array for number, array in feeds.items()}
        names = [f"input_{number}" for number in decided_inputs(sample)]
        for changed in with_bad_values(arrays, names, np.random.default_rng(0)):
            assert is_refused(model, changed) == is_refused(reference, changed), changed
        assert model.events == ()


def is_refused(model: ip.Model, arrays: dict[str, Any]) -> bool:
    try:
        model.run(arrays)
    except (InvalidValueError, LimitExceededError):
        return True
    return False
