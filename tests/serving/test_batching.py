"""Dynamic batching: what is batched, that rows are those of single runs, and late and failing requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from interposer import DataType, Network, Runtime, TensorInfo
from interposer.core.errors import DeadlineExceededError, ExecutionError, InvalidArgumentError, InvalidValueError
from interposer.serving.batching import (
    Batcher,
    batch_shapes,
    gains,
    largest_integers,
    seconds_of_a_row,
    sizes_up_to,
    why_not_batched,
)
from interposer.serving.folder import ModelSettings, ModelSource
from interposer.serving.loading import Loader
from interposer.serving.protocol.errors import Status, as_serving_error
from interposer.serving.statistics import Timing
from interposer.session import Model, load
from interposer.writers import onnx, tflite
from tests.runtime.test_concurrency import OpenGates
from tests.serving.running import doubler, model

pytestmark = pytest.mark.needs_cpuref


def test_the_sizes_are_powers_of_two_and_the_largest():
    assert [sizes_up_to(batch) for batch in (2, 3, 8, 12)] == [[2], [2, 3], [2, 4, 8], [2, 4, 8, 12]]


def mean_of_all(rows: int = 1) -> Network:
    """Return a network whose result depends on all rows of its input."""
    network = Network("mean")
    x = network.add_input_layer(0, TensorInfo((rows, 4)), name="x")
    mean = network.add_mean_layer(x, axis=(0,), keep_dims=True, name="mean")
    network.add_output_layer(0, network.add_addition_layer(x, mean, name="add"), name="y")
    return network


def many_layers() -> Network:
    """Return a network of many small layers, each of which takes as long for several rows as for one."""
    network = Network("layers")
    x = value = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    for number in range(100):
        value = network.add_maximum_layer(value, x, name=f"maximum{number}")
    network.add_output_layer(0, value, name="y")
    return network


def test_a_batch_whose_rows_depend_on_each_other_is_refused():
    single, several = model(mean_of_all()), model(mean_of_all(4))
    assert why_not_batched(single, several, 4) == "row 0 of output 'y' differs from that of a single run"
    assert why_not_batched(model(doubler(shape=(1, 4))), model(doubler(shape=(4, 4))), 4) == ""


def test_batches_gain_only_if_a_row_becomes_cheaper_by_more_than_its_gathering():
    assert gains(1e-3, 2e-4) and not gains(46e-6, 29e-6) and not gains(1e-3, 1e-3)


def test_the_time_of_a_row_is_measured_alone_and_in_a_batch():
    single, several = model(doubler(shape=(1, 4))), model(doubler(shape=(64, 4)))
    alone, together = seconds_of_a_row(single, several, 64, 7)
    assert alone > 0 and together > 0


def sums_of_indices(rows: int = 1) -> Network:
    """Return a network of integers whose result depends on all rows of its input, unless all of them are zero."""
    network = Network("sums")
    x = network.add_input_layer(0, TensorInfo((rows, 4), DataType.INT64), name="x")
    total = network.add_reduce_layer(x, axis=(0,), keep_dims=True, name="total")
    network.add_output_layer(0, network.add_multiplication_layer(x, total, name="product"), name="y")
    return network


def embedding(rows: int = 1, words: int = 3) -> Network:
    """Return a network that looks up rows of a small table."""
    network = Network("embedding")
    x = network.add_input_layer(0, TensorInfo((rows, 4), DataType.INT64), name="x")
    table = network.add_constant_layer(np.arange(2 * words, dtype=np.float32).reshape(words, 2))
    network.add_output_layer(0, network.add_gather_layer(table, x, axis=0, name="gather"), name="y")
    return network


def test_integers_and_texts_are_not_all_zero_in_the_check_of_batches():
    reason = why_not_batched(model(sums_of_indices()), model(sums_of_indices(4)), 4)
    assert reason == "row 0 of output 'y' differs from that of a single run"
    texts = [Network("texts") for _ in range(2)]
    for network, rows in zip(texts, (1, 4), strict=True):
        x = network.add_input_layer(0, TensorInfo((rows, 4), DataType.STRING), name="x")
        network.add_output_layer(0, x, name="y")
    assert why_not_batched(model(texts[0]), model(texts[1]), 4) == ""


def test_smaller_indices_are_tried_for_a_small_table():
    with load(embedding(), ["CpuRef"], fallback=False) as probe:
        most = largest_integers(probe)
    assert most == 1
    assert why_not_batched(model(embedding()), model(embedding(4)), 4, most) == ""


def test_wrong_indices_of_the_check_disable_no_backend(tmp_path, caplog):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    network = Network("open")
    x = network.add_input_layer(0, TensorInfo((None, 4), DataType.INT64), name="x")
    table = network.add_constant_layer(np.arange(6, dtype=np.float32).reshape(3, 2))
    network.add_output_layer(0, network.add_gather_layer(table, x, axis=0, name="gather"), name="y")
    onnx.save(network, tmp_path / "open.onnx")
    loader = Loader()
    served = loader(ModelSource("open", "1", str(tmp_path / "open.onnx"), ModelSettings(batch=4)))
    assert isinstance(served.runner, Batcher) or "because it gains nothing from them" in caplog.text
    assert served.model.runtime.events == ()
    served.retire()
    loader.close()


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((), "input 'x', float32[], has no rows"),
        ((3, 4), "the first size of input 'x' is 3; batching needs 1, or any size"),
        ((1, None), "the sizes of a row of input 'x', [1, ?], are not all known"),
    ],
)
def test_inputs_without_rows_are_refused(shape, text):
    with pytest.raises(InvalidArgumentError) as caught:
        batch_shapes(model(doubler(shape=shape)), 4)
    assert str(caught.value) == text


def batcher(single: Model, delay: float = 0.05, size: int = 4, backend: str = "CpuRef") -> Batcher:
    rest = list(single.inputs["x"].shape)[1:]
    variants = {n: model(doubler(shape=(n, *rest)), single.runtime, backend) for n in sizes_up_to(size)}
    return Batcher(single, variants, delay)


def asked(runner: Batcher, number: int, timings: list[Timing] | None = None, seconds: float = 30) -> Any:
    timing = Timing()
    if timings is not None:
        timings.append(timing)
    return runner.run({"x": np.full((1, 4), number, np.float32)}, ["y"], seconds, {}, timing)


def test_requests_at_the_same_time_run_together_and_get_their_own_rows():
    runner = batcher(model(doubler(shape=(1, 4))))
    timings: list[Timing] = []

    async def main() -> list[Any]:
        return await asyncio.gather(*(asked(runner, number, timings) for number in range(23)))

    for number, [row] in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(row, np.full((1, 4), 2 * number))
    assert max(timing.batch for timing in timings) == 4
    assert sum(timing.batch for timing in timings if timing.is_counted) == 23


def test_requests_of_several_rows_run_together():
    runner = batcher(model(doubler()), size=8)
    arrays = [np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) + rows for rows in (1, 3, 2, 8, 9, 1, 0, 4)]

    async def main() -> list[Any]:
        return await asyncio.gather(*(runner.run({"x": x}, ["y"], 30, {}, Timing()) for x in arrays))

    for x, [result] in zip(arrays, asyncio.run(main()), strict=True):
        np.testing.assert_array_equal(result, 2 * x)


@pytest.fixture
def blocked(gates: OpenGates) -> Iterator[Batcher]:
    """A batcher whose runs wait until the gates are open, two at a time."""
    with Runtime() as runtime:
        runtime.registry.register("OpenGates", lambda: gates)
        yield batcher(model(doubler(shape=(1, 4)), runtime, "OpenGates"), delay=10, backend="OpenGates")
        gates.open.set()


def test_late_and_cancelled_requests_leave_the_queue(blocked, gates):
    timings: list[Timing] = []

    async def main() -> None:
        first = asyncio.ensure_future(asked(blocked, 1, timings))
        while not gates.inside:
            await asyncio.sleep(0.01)
        late = asyncio.ensure_future(asked(blocked, 2, seconds=0.1))
        leaving = asyncio.ensure_future(asked(blocked, 3))
        staying = asyncio.ensure_future(asked(blocked, 4, timings))
        await asyncio.sleep(0.05)
        leaving.cancel()
        with pytest.raises(DeadlineExceededError, match="the run took longer than 0.1 seconds"):
            await late
        gates.open.set()
        await asyncio.gather(first, staying)

    asyncio.run(main())
    assert [timing.batch for timing in timings] == [1, 1]


class Broken:
    """A model for batches that fails in every run."""

    def __init__(self, inner: Model) -> None:
        self.inner, self.runtime = inner, inner.runtime

    def run(self, *arguments: Any, **options: Any) -> Any:
        raise ExecutionError("a row is bad")

    def close(self) -> None:
        self.inner.close()


def test_a_batch_that_fails_runs_again_request_by_request():
    runner = batcher(model(doubler(shape=(1, 4))))
    runner._variants = {size: Broken(variant) for size, variant in runner._variants.items()}
    timings: list[Timing] = []

    async def main() -> list[Any]:
        return await asyncio.gather(*(asked(runner, number, timings) for number in range(6)))

    for number, [row] in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(row, np.full((1, 4), 2 * number))
    assert [timing.batch for timing in timings] == [1] * 6


def test_of_a_batch_with_a_wrong_index_only_the_request_that_sent_it_fails():
    single = model(embedding())
    runner = Batcher(single, {rows: model(embedding(rows), single.runtime) for rows in (2, 4)}, 0.05)
    indices = [np.full((1, 4), 9 if number % 5 == 0 else number % 3) for number in range(23)]

    async def main() -> list[Any]:
        requests = (runner.run({"x": x}, ["y"], 30, {}, Timing()) for x in indices)
        return await asyncio.gather(*requests, return_exceptions=True)

    for x, result in zip(indices, asyncio.run(main()), strict=True):
        if x[0, 0] == 9:
            assert isinstance(result, InvalidValueError)
            assert as_serving_error(result).status is Status.INVALID
        else:
            np.testing.assert_array_equal(result[0], np.arange(6, dtype=np.float32).reshape(3, 2)[x])
    assert single.events == ()
    assert all(variant.events == () for variant in runner._variants.values())


def test_a_model_that_cannot_be_batched_runs_alone_with_a_warning(tmp_path, caplog):
    pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
    for name, network in (("mean", mean_of_all()), ("deep", many_layers())):
        tflite.save(network, tmp_path / f"{name}.tflite")
    settings = ModelSettings(backends=("CpuRef",), batch=4)
    loader = Loader()
    mean = loader(ModelSource("mean", "1", str(tmp_path / "mean.tflite"), settings))
    assert not isinstance(mean.runner, Batcher)
    [text] = [record.getMessage() for record in caplog.records]
    assert text.startswith("model 'mean' runs without batches of 4: ")
    deep = loader(ModelSource("deep", "1", str(tmp_path / "deep.tflite"), settings))
    assert deep.runner.describe() == "batches of up to 4 rows, after 2 ms at most"
    for item in (mean, deep):
        item.retire()
    loader.close()


def test_a_model_that_gains_nothing_from_batches_runs_alone_with_a_warning(tmp_path, caplog):
    pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
    tflite.save(doubler(shape=(1, 4)), tmp_path / "twice.tflite")
    loader, settings = Loader(), ModelSettings(backends=("CpuRef",), batch=2)
    served = loader(ModelSource("twice", "1", str(tmp_path / "twice.tflite"), settings))
    assert not isinstance(served.runner, Batcher)
    [text] = [record.getMessage() for record in caplog.records]
    assert text.startswith("model 'twice' runs without batches of 2, because it gains nothing from them: a row takes ")
    served.retire()
    loader.close()
