"""A backend in a child process does what it does in this one."""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.backend import Backend, Support
from interposer.core.errors import (
    BackendContractError,
    BackendUnavailableError,
    ExecutionError,
    InvalidArgumentError,
    LoadError,
    UnknownBackendError,
    UnsupportedLayerError,
)
from interposer.core.types import DataType
from interposer.ir.subgraph import SubgraphView
from interposer.isolation import isolated_backend
from interposer.testing import check_backend, samples_of
from tests import warm
from tests.counting import Counting
from tests.devices import Device, Sums
from tests.faulty import Faulty
from tests.isolating import C, X, expected, faulty_runtime, kill, needs_linux, no_trace_left, process_of, sums_and_relu
from tests.sketchy import Flooding, Nesting, Replacing, Talking, Wavering, Writing

pytestmark = needs_linux
as_forks = pytest.mark.usefixtures("warm_python")
"""For tests that look at answers and results; the others are about processes that are started."""
ROOT = Path(__file__).parents[2]


def isolating(*backends: Any, **options: Any) -> ip.Runtime:
    """A runtime with backends in child processes, by class or by (id, factory)."""
    pairs = [backend if isinstance(backend, tuple) else (backend.id, backend) for backend in backends]
    runtime = ip.Runtime(ip.CreationOptions(isolate=[name for name, _ in pairs], **options))
    for name, factory in pairs:
        if name not in runtime.registry:
            runtime.registry.register(name, factory)
    return runtime


def doubling() -> ip.Network:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2, 2)), name="x")
    twice = network.add_addition_layer(x, x, name="twice")
    network.add_output_layer(0, network.add_multiplication_layer(twice, x, name="times"), name="y")
    return network


# --- what it says and makes -------------------------------------------------------------------------------------------


@as_forks
def test_it_says_of_itself_what_it_says_here() -> None:
    with faulty_runtime() as runtime:
        result = runtime.registry.get("Faulty")
        assert (result.id, result.version, result.api_version) == ("Faulty", "2.1", (1, 0))
        assert result.capabilities.to_dict() == {"HasFp16": False, "NumberOfThreads": 1}
        [record] = [record for record in runtime.registry.records() if record.id == "Faulty"]
        assert (record.available, record.version) == (True, "2.1")


@as_forks
def test_its_answers_about_support_are_those_that_it_gives_here() -> None:
    graph = sums_and_relu().graph
    view = SubgraphView(graph, graph)
    with isolating(Sums) as runtime:
        here, there = Sums().layer_support({}).query(view), runtime.registry.get("Sums").layer_support({}).query(view)
        assert there == here
        assert Support.no("no kernel for Activation") in there
        [item] = [layer for layer in view if layer.name == "relu"]
        assert not runtime.registry.get("Sums").layer_support({}).is_layer_supported(item)


@as_forks
def test_layers_that_cannot_cross_are_refused_with_the_reason() -> None:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2,), DataType.STRING), name="words")
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(2, 1), name="column"))
    with ip.Runtime(ip.CreationOptions(isolate="CpuRef")) as runtime:
        view = SubgraphView(network.graph, [network.graph.layer("column")])
        [verdict] = runtime.registry.get("CpuRef").layer_support({}).query(view)
        assert verdict == Support.no("'words' holds string, which cannot be stored in shared memory")


@as_forks
@pytest.mark.parametrize(("by", "kind"), [("operator", "PreCompiled"), ("graph", "Multiplication")])
def test_what_it_puts_in_place_of_a_part_comes_through(by: str, kind: str) -> None:
    options = ip.OptimizerOptions(model_options={"Replacing": {"by": by}})
    with no_trace_left(), isolating(Replacing) as runtime:
        model = ip.load(doubling(), ["Replacing"], runtime=runtime, options=options)
        assert kind in [layer.kind for layer in model.optimized.graph]
        assert model.explain().remarks == ("Replacing: it doubles 1 times",)
        x = np.float32([[1, 2], [3, 4]])
        np.testing.assert_array_equal(model.run([x])[0], 2 * x * x)
        kill(runtime, "Replacing")
        np.testing.assert_array_equal(model.run([x])[0], 2 * x * x)


@as_forks
@pytest.mark.needs_cpuref
def test_what_it_gives_back_goes_to_the_next_backend() -> None:
    options = ip.OptimizerOptions(model_options={"Replacing": {"by": "failure"}})
    with isolating(Replacing) as runtime:
        model = ip.load(doubling(), ["Replacing", "CpuRef"], runtime=runtime, options=options)
        assert model.optimized.graph.layer("twice").backend == "CpuRef"
        assert [refusal.reasons for refusal in model.optimized.refusals] == [("no doubling today",)]
        assert model.run([[[1, 2], [3, 4]]])[0].tolist() == [[2, 8], [18, 32]]


@as_forks
def test_one_that_compiles_another_thing_in_a_fresh_process_is_put_aside(tmp_path: Path) -> None:
    with isolating(("Wavering", partial(Wavering, str(tmp_path)))) as runtime:
        model = ip.load(doubling(), ["Wavering"], runtime=runtime)
        kill(runtime, "Wavering")
        with pytest.raises(ExecutionError, match="it optimizes a part in another way than before"):
            model.run([np.ones((2, 2), np.float32)])


@as_forks
def test_its_context_is_told_and_may_refuse() -> None:
    with isolating(("Device", partial(Device, ["before_load"]))) as runtime:
        network = ip.Network()
        x = network.add_input_layer(0, ip.TensorInfo((2,)))
        relu = network.add_activation_layer(x, function=ip.ops.ActivationFunction.RELU)
        network.add_output_layer(0, relu)
        with pytest.raises(LoadError, match="the context of backend Device said no"):
            ip.load(network, ["Device"], runtime=runtime)


@as_forks
def test_tensors_whose_shapes_depend_on_data_cross_too() -> None:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((6,)), name="x")
    result = network.add_non_zero_layer(x, name="places")
    network.add_output_layer(0, network.add_addition_layer(result, result, name="twice"), name="y")
    with ip.Runtime(ip.CreationOptions(isolate="CpuRef")) as runtime:
        model = ip.load(network, ["CpuRef"], runtime=runtime)
        assert model.run([[0, 1, 0, 1, 1, 0]])[0].tolist() == [[2, 6, 8]]
        kill(runtime, "CpuRef")
        assert model.run([[1, 0, 0, 0, 0, 0]])[0].tolist() == [[0]]
        assert model.run([[0, 0, 0, 0, 0, 0]])[0].tolist() == [[]]


@pytest.mark.parametrize("dtype", ["int4", "bfloat16", "bool", "float64", "float8_e4m3fn", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (1, 2, 3)], ids=str)
def test_every_type_and_shape_crosses(dtype: str, shape: tuple[int, ...], runtime_with_reference: ip.Runtime) -> None:
    network = ip.Network()
    info = ip.TensorInfo(shape, dtype)
    x = network.add_input_layer(0, info)
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(1, *shape)))
    model = ip.load(network, ["CpuRef"], runtime=runtime_with_reference)
    array = np.ones(shape).astype(info.dtype.numpy)
    np.testing.assert_array_equal(model.run([array])[0], array[None])


@pytest.fixture(scope="module")
def runtime_with_reference() -> Any:
    with ip.Runtime(ip.CreationOptions(isolate="CpuRef")) as runtime:
        if "CpuRef" not in runtime.registry.available():
            pytest.skip("CpuRef is disabled")
        yield runtime


@as_forks
@pytest.mark.parametrize(("backend", "op"), [(Sums, ip.ops.Addition), (Device, ip.ops.Activation)])
def test_the_conformance_kit_passes(backend: type[Backend], op: Any) -> None:
    with no_trace_left(), isolating(backend) as runtime:
        patterns = ["results/*", "order/*", "division/chain-*"]
        report = check_backend(str(backend.id), runtime=runtime, samples=samples_of(op)[::3], only=patterns)
        assert [f"{result.id}: {result.text}" for result in report.results if not result.status.good] == []
        passed = {result.check for result in report.results if result.status.value == "pass"}
        assert passed == {"results", "order", "division"}


# --- which backends are isolated --------------------------------------------------------------------------------------


def test_a_factory_that_cannot_be_handed_over_makes_the_backend_unavailable() -> None:
    with isolating(("Faulty", lambda: Faulty("execute"))) as runtime:
        with pytest.raises(BackendUnavailableError) as caught:
            runtime.registry.get("Faulty")
        assert "cannot be handed to a child process" in caught.value.reason
        assert "register a class or a function of a module, or do not isolate the backend" in caught.value.reason


def test_a_class_of_the_main_program_makes_the_backend_unavailable() -> None:
    code = """
        import interposer as ip
        class Mine(ip.Backend):
            id = "Mine"
        runtime = ip.Runtime(ip.CreationOptions(isolate="Mine"))
        runtime.registry.register("Mine", Mine)
        print(runtime.registry.reason_absent("Mine"))
    """
    said = python(code)
    assert said.startswith("'Mine' is defined in the main program, which a child process does not run; put it into a")


def test_where_no_process_can_be_started_the_backend_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with no_trace_left(), pytest.raises(BackendUnavailableError, match="cannot be started"):
        isolated_backend("Sums", Sums)


@as_forks
def test_one_that_calls_itself_otherwise_is_not_available() -> None:
    with pytest.raises(BackendUnavailableError, match="its id is 'Sums'"):
        isolated_backend("Other", Sums)


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [warm.NEW_INTERPRETER, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])} | environment,
        capture_output=True, text=True, check=False, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


WHO = """
    import interposer as ip
    from tests.faulty import Faulty
    runtime = ip.Runtime(ip.CreationOptions({}))
    runtime.registry.register("Faulty", Faulty)
    print(type(runtime.registry.get("Faulty")).__name__, runtime.registry.isolation("Faulty"))
    runtime.close()
"""


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ("", {}, "Faulty None"),
        ("isolate='Faulty'", {}, "IsolatedBackend Isolation(deadline_seconds=120.0, "),
        ("", {"INTERPOSER_ISOLATE": "Other, Faulty"}, "IsolatedBackend Isolation(deadline_seconds=120.0, "),
        ("isolate=()", {"INTERPOSER_ISOLATE": "Faulty"}, "Faulty None"),
        (
            "isolate={'Faulty'}",
            {"INTERPOSER_ISOLATION_DEADLINE_SECONDS": "0", "INTERPOSER_ISOLATION_MAX_RESTARTS": "8"},
            "IsolatedBackend Isolation(deadline_seconds=None, start_seconds=60.0, max_restarts=8, memory_bytes=None)",
        ),
    ],
)
def test_arguments_come_before_the_environment(arguments: str, environment: dict[str, str], said: str) -> None:
    assert python(WHO.format(arguments), **environment).startswith(said)


def test_the_file_says_what_is_isolated_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interposer.toml").write_text('isolate = ["Faulty"]\nisolation_max_restarts = 1\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with ip.Runtime() as runtime:
        assert runtime.registry.isolation("Faulty") == ip.Isolation(max_restarts=1)
        assert runtime.registry.isolation("Other") is None


@as_forks
def test_a_child_process_isolates_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERPOSER_ISOLATE", "Nesting")
    with ip.Runtime() as runtime:
        runtime.registry.register("Nesting", Nesting)
        assert runtime.registry.reason_absent("Nesting") == "a runtime here isolates none"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"deadline_seconds": 0}, "deadline_seconds must be a positive number of seconds, not 0"),
        ({"start_seconds": None}, "start_seconds must be a positive number of seconds, not None"),
        ({"max_restarts": math.inf}, "max_restarts must be None or a whole number from 0, not inf"),
        ({"max_restarts": -1}, "max_restarts must be None or a whole number from 0, not -1"),
        ({"memory_bytes": 0.5}, "memory_bytes must be None or a whole number from 1, not 0.5"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.Isolation(**given)
    assert str(caught.value) == fault


@pytest.mark.parametrize("given", [3, [3], {"Faulty": 3}])
def test_what_is_isolated_must_be_ids(given: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        ip.CreationOptions(isolate=given)


# --- the processes ----------------------------------------------------------------------------------------------------


def test_a_misspelt_id_is_refused() -> None:
    with pytest.raises(UnknownBackendError, match="^unknown backend 'CpuReff'; did you mean 'CpuRef'"):
        ip.Runtime(ip.CreationOptions(isolate="CpuReff"))


@as_forks
def test_inputs_are_only_for_reading() -> None:
    with isolating(Writing) as runtime:
        network = ip.Network()
        x = network.add_input_layer(0, ip.TensorInfo((2,)))
        network.add_output_layer(0, network.add_addition_layer(x, x))
        model = ip.load(network, ["Writing"], runtime=runtime)
        with pytest.raises(ExecutionError, match="read-only"):
            model.run([[1, 2]])


def test_what_it_writes_goes_to_the_log_and_not_to_the_host(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "interposer.backend.isolated"), isolating(Talking) as runtime:
        ip.load(doubling(), ["Talking"], runtime=runtime)
    assert {"Talking: to standard output", "Talking: to standard error"} <= {
        record.message for record in caplog.records
    }
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_ends_the_process_and_the_next_run_works(tmp_path: Path) -> None:
    errors = {"where": "execute", "how": "native_sleep", "folder": str(tmp_path)}

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with faulty_runtime(errors) as runtime:
        model = ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime)
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                model.run([X])
        finally:
            signal.signal(signal.SIGALRM, before)
        np.testing.assert_array_equal(model.run([X])[0], expected(X))
        assert runtime.events == ()


@as_forks
def test_networks_run_from_several_threads() -> None:
    with faulty_runtime() as runtime:
        models = [ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime) for _ in range(3)]
        wrong: list[int] = []

        def work(number: int) -> None:
            for count in range(20):
                x = X * (number + count)
                if not np.array_equal(models[number % 3].run([x])[0], expected(x)):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_fork_of_the_host_has_a_process_and_memory_of_its_own() -> None:
    code = """
        import os, numpy as np, interposer as ip
        from tests.isolating import X, expected, sums_and_relu, process_of
        from tests.faulty import Faulty
        runtime = ip.Runtime(ip.CreationOptions(isolate="Faulty"))
        runtime.registry.register("Faulty", Faulty)
        model = ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime)
        model.run([X])
        mine = process_of(runtime)
        child = os.fork()
        right = all(np.array_equal(model.run([n * X])[0], expected(n * X)) for n in range(200 if child else 100, 0, -1))
        if not child:
            runtime.close()
            os._exit(0 if right and runtime.events == () else 1)
        print(right, os.waitpid(child, 0)[1], process_of(runtime) == mine, runtime.events)
        runtime.close()
    """
    assert python(code) == "True 0 True ()\n"


def test_what_a_process_writes_without_end_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "interposer")
    with isolating(Flooding) as runtime:
        with pytest.raises(UnsupportedLayerError, match="PermissionError"):
            ip.load(doubling(), ["Flooding"], runtime=runtime)
        assert runtime.registry.reason_absent("Flooding") is None  # the process goes on
        with pytest.raises(UnsupportedLayerError, match="PermissionError"):
            ip.load(doubling(), ["Flooding"], runtime=runtime)


def test_nothing_of_the_working_directory_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('from the working directory')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with isolating(Device) as runtime:
        assert runtime.registry.reason_absent(Device.id) is None


@as_forks
@pytest.mark.parametrize("seconds", [1e7, 1e300])
def test_a_deadline_may_be_far_away(seconds: float) -> None:
    options = ip.CreationOptions(isolate={"CpuRef": ip.Isolation(deadline_seconds=seconds, start_seconds=seconds)})
    with ip.Runtime(options) as runtime:
        [result] = ip.load(doubling(), ["CpuRef"], runtime=runtime).run([np.float32([[1, 2], [3, 4]])])
    assert result.tolist() == [[2, 8], [18, 32]]


def test_a_host_without_descriptors_is_told_and_goes_on_when_there_are_some() -> None:
    code = """
        import gc, os, resource, interposer as ip
        from tests.isolating import X, expected, kill, sums_and_relu
        from tests.faulty import Faulty
        runtime = ip.Runtime(ip.CreationOptions(isolate={"Faulty": ip.Isolation(max_restarts=None)}))
        runtime.registry.register("Faulty", Faulty)
        model = ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime, fallback=False)
        model.run([X])
        kill(runtime)
        count, (soft, hard) = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
        for few in range(8):
            resource.setrlimit(resource.RLIMIT_NOFILE, (count - 6 + few, hard))
            try:
                model.run([X])
            except ip.errors.ExecutionError as error:
                crash = error.__cause__
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print((model.run([X])[0] == expected(X)).all(), type(crash).__name__, crash.reason)
        del crash
        gc.collect()
        print(len(os.listdir("/proc/self/fd")) - count)
        runtime.close()
    """
    assert python(code) == "True BackendCrashedError could not start again ([Errno 24] Too many open files)\n0\n"


def test_it_dies_with_its_host_even_in_an_endless_loop() -> None:
    code = """
        import os, signal, sys, threading, time, interposer as ip
        from functools import partial
        from tests.isolating import X, sums_and_relu, process_of
        from tests.faulty import Faulty
        runtime = ip.Runtime(ip.CreationOptions(isolate="Faulty"))
        runtime.registry.register("Faulty", partial(Faulty, "execute", "native_sleep"))
        model = ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime)
        threading.Thread(target=model.run, args=([X],), daemon=True).start()
        time.sleep(0.3)
        print(process_of(runtime), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert _ends(int(done.stdout))


def _ends(process: int) -> bool:
    """Wait until a process has ended; return False if it has not after five minutes."""
    deadline = time.monotonic() + 300
    while _alive(Path(f"/proc/{process}/stat")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _alive(Path(f"/proc/{process}/stat"))


def _alive(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_host_that_ends_without_closing_anything_leaves_no_process() -> None:
    code = """
        import interposer as ip
        from tests.isolating import X, sums_and_relu, process_of
        from tests.faulty import Faulty
        runtime = ip.Runtime(ip.CreationOptions(isolate="Faulty"))
        runtime.registry.register("Faulty", Faulty)
        model = ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime)
        model.run([X])
        print(process_of(runtime))
    """
    assert _ends(int(python(code)))


@as_forks
def test_a_backend_that_outlives_its_runtime_starts_again_where_it_is_used() -> None:
    with no_trace_left(), faulty_runtime() as runtime:
        optimized = ip.optimize(sums_and_relu(), ["Faulty", "CpuRef"], runtime.device_spec)
        runtime.close()
        with ip.Runtime() as other:
            loaded = other.load_network(optimized)
            result = other.enqueue_workload(loaded, {0: X})
            np.testing.assert_array_equal(result[0], expected(X))
        optimized.backends["Faulty"].close()


@as_forks
def test_an_answer_that_makes_no_sense_is_a_broken_contract() -> None:
    from interposer.isolation.wire import Reader, WireError, reading

    for plain in ({"op": "Nothing"}, {"op": "Addition", "attributes": 3, "arrays": {}}, {"token": 1}):
        with pytest.raises(WireError) as caught, reading("the answer"):
            Reader([], lambda reported: reported["absent"]).op(plain)
        assert isinstance(caught.value, BackendContractError)


def test_loading_and_unloading_leaves_nothing_in_the_child() -> None:
    with faulty_runtime() as runtime:
        optimized = ip.optimize(sums_and_relu(), ["Faulty", "CpuRef"], runtime.device_spec)

        def cycle() -> int:
            network_id = runtime.load_network(optimized)
            np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], expected(X))
            runtime.unload_network(network_id)
            gc.collect()
            return len(os.listdir(f"/proc/{process_of(runtime)}/fd"))

        first = [cycle() for _ in range(5)]
        assert max(cycle() for _ in range(20)) <= max(first)


@as_forks
def test_the_constants_of_a_network_are_handed_over_once() -> None:
    with faulty_runtime() as runtime:
        model = ip.load(sums_and_relu(), ["Faulty", "CpuRef"], runtime=runtime)
        model.run([X])
        constants: Any = runtime.registry.get("Faulty").supervisor.constants  # type: ignore[attr-defined]
        sizes = [region.size for region, _ in constants._regions.values()]
        assert sizes == [64]
        assert C.nbytes <= 64


# --- concurrent branches ----------------------------------------------------------------------------------------------


@as_forks
@pytest.mark.needs_cpuref
def test_branches_of_a_run_that_change_its_tensors_concurrently_are_computed_right() -> None:
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
    twice = network.add_addition_layer(x, x, name="sum0")
    thrice = network.add_addition_layer(x, twice, name="sum1")
    others = [network.add_addition_layer(x, x, name=f"sum{number}") for number in (2, 3)]
    plain = network.add_addition_layer(thrice, x, name="plain")
    product = network.add_multiplication_layer(thrice, x, name="product")
    for number, value in enumerate([*others, plain, product]):
        network.add_output_layer(number, value, name=f"y{number}")
    hints = {f"sum{number}": "Counting" for number in range(4)} | {"plain": "Sums", "product": "CpuRef"}
    options = ip.OptimizerOptions(hints=hints, rewrite=False)
    array = np.full((2, 3), 3, np.float32)
    with isolating(Counting) as runtime:
        runtime.registry.register("Sums", Sums)
        for _ in range(10):
            model = ip.load(network, ["Counting", "Sums", "CpuRef"], runtime=runtime, options=options, fallback=False)
            results = model.run([array])
            model.close()
            for result, factor in zip(results, (2, 2, 4, 9), strict=True):
                np.testing.assert_array_equal(result, factor * array)
