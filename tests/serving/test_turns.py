"""Rates, priorities, instances, warm-up requests and cached results of models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer.core.errors import ConfigError, DeadlineExceededError
from interposer.ops import RandomFill
from interposer.serving import turns
from interposer.serving.cache import Cache
from interposer.serving.folder import ModelSettings, found_in
from interposer.serving.loading import Loader
from interposer.serving.repository import Repository
from interposer.serving.statistics import Statistics, Timing
from interposer.serving.turns import Gate, RateLimit
from interposer.serving.warming import WarmUp
from interposer.writers import tflite
from tests.serving.running import Running, doubler, infer_body, model, running

for package in ("starlette", "uvicorn", "prometheus_client", "flatbuffers"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref
DEFAULTS = ModelSettings(backends=("CpuRef",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tflite.save(doubler(shape=(1, 4)), tmp_path / "m.tflite")
    return tmp_path


def served(folder: Path, settings: str = "", **options: Any) -> Any:
    (folder / "m.toml").write_text(settings)
    return lambda: Repository(lambda: found_in(str(folder), DEFAULTS), Loader(1, **options))


def infer(server: Running, rows: Any = ((1, 2, 3, 4),), **fields: Any) -> Any:
    return server.client.post("/v2/models/m/infer", infer_body(rows=rows, **fields))


def test_a_model_gets_no_more_requests_than_its_rate(folder):
    with running(served(folder, "rate = 0.001\nburst = 2")) as server:
        assert [infer(server).status for _ in range(3)] == [200, 200, 429]
        refused = infer(server)
        assert refused.json == {"error": "model 'm' gets at most 0.001 requests per second"}
        assert 0 < int(refused.headers["retry-after"]) <= 1000


def test_workers_divide_the_rate_of_a_model(folder):
    with running(served(folder, "rate = 0.004\nburst = 4", workers=2)) as server:
        assert [infer(server).status for _ in range(3)] == [200, 200, 429]


def test_a_rate_allows_more_requests_after_some_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])
    limit = RateLimit(10.0, 1)
    limit.take("m")
    with pytest.raises(turns.ServingError):
        limit.take("m")
    now[0] += 0.1001
    limit.take("m")


def test_runs_that_wait_begin_in_the_order_of_their_priorities():
    begun: list[str] = []

    async def main() -> None:
        gate = Gate(1)
        await gate.enter((5, 0), 1)

        async def run(name: str, order: tuple[int, int]) -> None:
            await gate.enter(order, 60)
            begun.append(name)
            gate.leave()

        names = {"late": (9, 0), "first": (1, 0), "second level": (5, 2), "first level": (5, 1), "after it": (5, 1)}
        tasks = [asyncio.ensure_future(run(name, order)) for name, order in names.items()]
        await asyncio.sleep(0)
        gate.leave()
        await asyncio.gather(*tasks)
        assert gate.is_empty

    asyncio.run(main())
    assert begun == ["first", "first level", "after it", "second level", "late"]


def test_a_run_whose_time_is_over_leaves_the_queue_and_its_place():
    async def main() -> None:
        gate = Gate(1)
        await gate.enter((5, 0), 1)
        with pytest.raises(DeadlineExceededError, match=r"waited for its turn longer than 0\.01 seconds"):
            await gate.enter((5, 0), 0.01)
        cancelled = asyncio.ensure_future(gate.enter((5, 0), 60))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        gate.leave()
        assert gate.is_empty
        waiting = asyncio.ensure_future(gate.enter((1, 0), 60))
        await waiting
        granted = asyncio.ensure_future(gate.enter((1, 0), 60))
        await asyncio.sleep(0)
        gate.leave()  # grants the place, and then the task is cancelled before it sees it
        granted.cancel()
        await asyncio.gather(granted, return_exceptions=True)
        assert gate.is_empty

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings", ["priority = 1", "priority_levels = 3", "instances = 1", "priority = 9\nbatch = 4"]
)
def test_models_with_priorities_and_instances_answer_all_requests(folder, settings):
    with running(served(folder, settings)) as server:
        statuses: list[int] = []

        def work(level: int) -> None:
            statuses.extend(infer(server, parameters={"priority": level}).status for _ in range(4))

        threads = [threading.Thread(target=work, args=(level,)) for level in (0, 1, 3, 99)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200] * 16


def test_a_priority_that_is_no_number_is_refused(folder):
    with running(served(folder, "priority_levels = 3")) as server:
        answer = infer(server, parameters={"priority": "high"})
        assert answer.json == {"error": "the parameter priority is not a whole number from 0 on"}
        assert infer(server, parameters={"priority": "2"}).status == 200


def counts(server: Running) -> dict[str, int]:
    [stats] = server.client.get("/v2/models/m/stats").json["model_stats"]
    return {kind: stats["inference_stats"][kind]["count"] for kind in ("success", "cache_hit", "cache_miss")} | {
        "runs": stats["execution_count"]
    }


def test_results_are_cached_for_equal_inputs(folder):
    with running(served(folder, "cache = true")) as server:
        first = infer(server).json["outputs"]
        assert infer(server).json["outputs"] == first
        assert infer(server, rows=((1, 2, 3, 5),)).json["outputs"][0]["data"] == [2, 4, 6, 10]
        assert counts(server) == {"success": 3, "cache_hit": 1, "cache_miss": 2, "runs": 2}
        text = server.client.get("/metrics").body.decode()
        assert 'nv_cache_num_hits_per_model{model="m",version="1"} 1.0' in text


def test_without_the_setting_results_are_not_cached(folder):
    with running(served(folder)) as server:
        assert [infer(server).status for _ in range(2)] == [200, 200]
        assert counts(server) == {"success": 2, "cache_hit": 0, "cache_miss": 0, "runs": 2}


def test_a_model_that_is_loaded_again_has_no_old_results(folder):
    from interposer.serving.options import ServeOptions

    with running(served(folder, "cache = true"), ServeOptions(control=True)) as server:
        infer(server)
        network = Network("tripler")
        x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
        network.add_output_layer(0, network.add_addition_layer(network.add_addition_layer(x, x), x, name="s"), name="y")
        tflite.save(network, folder / "m.tflite")
        assert server.client.post("/v2/repository/models/m/load").status == 200
        assert infer(server).json["outputs"][0]["data"] == [3, 6, 9, 12]


def test_a_cache_drops_what_was_not_used_for_longest():
    cache = Cache(40_000)
    part = cache.of_model()
    keys = [part.key({"x": np.full(1000, number, np.float32)}, ["y"]) for number in range(9)]
    assert len(set(keys)) == 9
    for key in keys[:8]:
        part.put(key, [np.zeros(1000, np.float32)])
        assert part.get(keys[0]) is not None
    part.put(keys[8], [np.zeros(1000, np.float32)])
    assert [part.get(key) is not None for key in (keys[0], keys[1], keys[8])] == [True, False, True]
    assert cache.bytes <= 40_000
    part.put(part.key({}, ["large"]), [np.zeros(5000, np.float32)])
    assert part.get(part.key({}, ["large"])) is None
    part.close()
    assert cache.bytes == 0


def test_keys_of_a_cache_depend_on_everything_that_a_result_depends_on():
    part = Cache(1000).of_model()
    x = np.arange(4, dtype=np.int32)
    texts = np.array(["a", "b,"], object)
    keys = [
        part.key({"x": x}, ["y"]),
        part.key({"x": x}, ["z"]),
        part.key({"x": x.reshape(2, 2)}, ["y"]),
        part.key({"x": x.view(np.float32)}, ["y"]),
        part.key({"z": x}, ["y"]),
        part.key({"x": texts}, ["y"]),
        part.key({"x": np.array(["a,", "b"], object)}, ["y"]),
        Cache(1000).of_model().key({"x": x}, ["y"])[1:],
    ]
    assert len(set(keys)) == len(keys)
    assert part.key({"x": x.copy()}, ["y"]) == keys[0]


def test_random_results_are_not_cached(folder, caplog):
    from interposer.serving.loading import _why_not_cached

    network = Network("random")
    x = network.add_input_layer(0, TensorInfo((2,), "int32"), name="x")
    network.add_output_layer(0, network.add_layer(RandomFill(), x), name="y")
    with model(network) as loaded:
        assert _why_not_cached(loaded) in ("random layers", "layers that depend on the values of inputs")
    with model(doubler()) as loaded:
        assert _why_not_cached(loaded) == ""


@pytest.fixture
def doubled() -> Iterator[Any]:
    with model(doubler()) as loaded:
        yield loaded


def test_warm_up_requests_run_before_a_model_is_ready(folder, caplog):
    np.save(folder / "x.npy", np.ones((3, 4), np.float32))
    tflite.save(doubler(shape=(None, 4)), folder / "m.tflite")
    settings = '[[warmup]]\ncount = 3\ninputs = { x = "x.npy" }\n[[warmup]]\ninputs = { x = { shape = [2, 4] } }'
    repository = served(folder, settings)()
    asyncio.run(repository.load_all())
    [loaded] = repository.served
    assert loaded.model.is_prepared
    assert list(loaded.model.optimized.inputs[0].output.known.shape) == [2, 4]
    repository.close()


def test_a_file_of_a_warm_up_request_that_does_not_fit_is_explained(doubled, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    with pytest.raises(ConfigError, match=r"x.npy has 12 elements, which the shape \[7\] has not"):
        WarmUp({"x": (str(tmp_path / "x.npy"), (7,))}).arrays("m", doubled.inputs)


@pytest.mark.parametrize(
    ("warm_up", "text"),
    [
        (WarmUp({"z": ("random", None)}), "warmup of model 'm': it has no input 'z'"),
        (WarmUp({"x": ("zeros", None)}), r"the model leaves its shape open \(.*\), so it needs a shape"),
        (WarmUp({"x": ("zeros", (4, 4, 4))}), r"the model expects .*, not the shape \[4, 4, 4\]"),
        (WarmUp({"x": ("/nowhere.npy", None)}), "nowhere.npy is not a file of NumPy's format .npy: "),
    ],
)
def test_a_warm_up_request_that_does_not_fit_is_explained(doubled, warm_up, text):
    with pytest.raises(ConfigError, match=text):
        warm_up.arrays("m", doubled.inputs)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("rate = 0", "rate must be a number of requests per second above 0, not 0"),
        ("burst = 2", "burst is for a model with a rate; set rate, too"),
        ("instances = 0", "instances must be a whole number from 1 to 1024, not 0"),
        ("priority = 10", "priority must be a whole number from 1 \\(first\\) to 9, not 10"),
        ("cache = 1", "cache must be true or false, not 1"),
        ("feedback = 1", "feedback must be a table of outputs by input, not 1"),
        ("warmup = [{ input = 1 }]", "warmup must be a list of tables with inputs and count"),
        ("[[warmup]]\ncount = 0", "warmup must be a list of tables with inputs and count"),
    ],
)
def test_wrong_settings_are_explained(folder, settings, text):
    (folder / "m.toml").write_text(settings)
    [source] = found_in(str(folder), DEFAULTS)
    with pytest.raises(ConfigError, match=text):
        source.check()


def test_percentiles_are_those_of_all_processes(tmp_path):
    statistics = Statistics("m", "1", str(tmp_path))
    assert statistics.percentiles(50, 99) == [0, 0]
    for milliseconds in range(1, 101):
        statistics.succeeded(milliseconds / 1e3, Timing())
    assert statistics.percentiles(50, 90, 99) == pytest.approx([0.050, 0.090, 0.099], rel=0.1)
    statistics.succeeded(0.0, Timing())
    statistics.succeeded(1e9, Timing())
    assert statistics.percentiles(0.5)[0] < 2e-6
