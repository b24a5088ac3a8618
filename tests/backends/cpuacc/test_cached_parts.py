"""Parts of every operator that are restored from the cache give the results of those that were compiled."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.core.schema import registered_ops
from interposer.core.types import Array
from interposer.errors import UnsupportedLayerError
from interposer.plugins.capi.caching.part_cache import FOLDER
from interposer.testing import Sample, samples_of

TRIED = 20
"""The number of samples of an operator among which the first that CpuAcc takes is searched."""


def runs_of(sample: Sample) -> list[list[Array]] | None:
    """Return the results of a sample that is compiled, and of the same one restored; None if CpuAcc refuses it."""
    network, feeds = sample.network()
    if any(array.dtype == object for array in feeds.values()):  # sequences and texts
        return None
    try:
        return [list(ip.load(network, ["CpuAcc"]).run(list(feeds.values()))) for _ in range(2)]
    except UnsupportedLayerError:
        return None


def results() -> Iterator[tuple[str, list[list[Array]]]]:
    for op in registered_ops().values():
        samples = [sample for sample in samples_of(op)[:TRIED] if not sample.statistical]
        pairs = ((sample.id, runs_of(sample)) for sample in samples)
        yield from next(([(name, runs)] for name, runs in pairs if runs is not None), [])


def test_restored_parts_of_every_operator_give_the_results_of_compiled_ones(
    cpuacc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, "interposer.cache")
    found = list(results())
    for name, (compiled, restored) in found:
        for one, other in zip(compiled, restored, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert [record.getMessage() for record in caplog.records if record.name == "interposer.cache"] == []
    assert len(found) > 100
    assert len(list((tmp_path / FOLDER).iterdir())) >= 100
