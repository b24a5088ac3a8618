"""Plain calls of a model that is one part of a plug-in: the same with direct calls and without them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import CreationOptions, Network, Runtime, TensorInfo
from interposer.core.config import DIRECT_CALLS
from interposer.core.errors import BindingError, DeadlineExceededError, ExecutionError, InvalidArgumentError
from interposer.core.types import Array
from interposer.plugins.capi import running
from interposer.plugins.capi.running import direct as direct_module
from interposer.plugins.capi.running.direct import extension
from interposer.session import Model
from tests.native import Natives

A, B = np.float32([[1, 2, 3]]), np.float32([[10, 20, 30]])
SUM, TWICE = [[11.0, 22.0, 33.0]], [[22.0, 44.0, 66.0]]
LONG = 30
Sums = Callable[..., Model]


@pytest.fixture(params=["yes", "no"])
def direct(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether calls are direct; each test runs with both."""
    monkeypatch.setenv(DIRECT_CALLS, request.param)
    if request.param == "yes" and extension() is None:
        pytest.skip("the extension for direct calls was not built")
    return bool(request.param == "yes")


@pytest.fixture
def sums(natives: Natives, tmp_path: Path) -> Iterator[Sums]:
    """Makes models of ``sum = a + b`` and ``twice = sum + sum`` on a plug-in that statements can make fail.

    The outputs in `again` are outputs once more, under names of their own.
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("dynamic backends are only for Linux")
    runtimes = []

    def sums(
        shape: tuple[int | None, ...] = (1, 3), options: Any = None, again: tuple[int, ...] = (), **statements: str
    ) -> Model:
        flags = [f"-D{name}={statement}" for name, statement in statements.items()]
        folder = tmp_path / str(len(runtimes))
        natives.install(folder, "Tests_Adder_backend.so", Path("adder.c"), *flags)
        runtimes.append(Runtime(CreationOptions(dynamic_backends_path=folder, probe_seconds=0)))
        network = Network("sums")
        a, b = (network.add_input_layer(n, TensorInfo(shape), name=name) for n, name in enumerate("ab"))
        total = network.add_addition_layer(a, b)
        results = [total, network.add_addition_layer(total, total)]
        for number, output in enumerate((0, 1, *again)):
            network.add_output_layer(number, results[output], name=["sum", "twice", "third", "fourth"][number])
        return ip.load(network, ["Adder"], runtime=runtimes[-1], fallback=False)

    yield sums
    for runtime in runtimes:
        runtime.close()


def lists(outputs: list[Any]) -> list[Any]:
    return [output.tolist() for output in outputs]


def is_direct(model: Model) -> bool:
    [number] = model.runtime.loaded_networks
    return model.runtime.direct_call(number, (0, 1)) is not None


# --- arguments --------------------------------------------------------------------------------------------------------


def test_a_model_of_one_part_is_called_directly_unless_a_variable_forbids_it(sums: Sums, direct: bool) -> None:
    assert is_direct(sums()) == direct


ARGUMENTS: dict[str, Callable[[Model], list[Any]]] = {
    "a list": lambda model: model.run([A, B]),
    "a tuple": lambda model: model.run((A, B)),
    "a mapping": lambda model: model.run({"b": B, "a": A}),
    "keywords": lambda model: model.run(b=B, a=A),
    "a call with a mapping": lambda model: list(model({"a": A, "b": B}).values()),
    "a call with keywords": lambda model: list(model(a=A, b=B).values()),
    "names of outputs": lambda model: model.run([A, B], ["sum", "twice"]),
    "lists of numbers": lambda model: model.run([A.tolist(), B.tolist()]),
    "another type": lambda model: model.run([A.astype(np.int16), B.astype(np.float64)]),
    "swapped bytes": lambda model: model.run([A.astype(">f4"), B]),
    "strides": lambda model: model.run([np.repeat(A, 2, axis=1)[:, ::2], B]),
    "a reversed array": lambda model: model.run([A[:, ::-1].copy()[:, ::-1], B]),
    "an odd address": lambda model: model.run([at_odd_address(A), B]),
    "a subclass": lambda model: model.run([A.view(np.ma.MaskedArray), B.view(np.recarray)]),
    "read-only inputs": lambda model: model.run([read_only(A), read_only(B)]),
    "objects with __dlpack__": lambda model: model.run([Shared(A), Shared(B)]),
    "bound arrays": lambda model: model.bind([A, B])(),
    "a deadline": lambda model: model.run([A, B], deadline=LONG),
    "given outputs": lambda model: model.run([A, B], [np.empty_like(A), np.empty_like(A)]),
    "given outputs with strides": lambda model: model.run([A, B], [np.empty((1, 6), np.float32)[:, ::2], A.copy()]),
    "outputs by name": lambda model: model.run([A, B], {"twice": np.empty_like(A), "sum": np.empty_like(A)}),
}  # fmt: skip


class Shared:
    """An array of another library."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def at_odd_address(array: Array) -> Array:
    result = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


def read_only(array: Array) -> Array:
    result = array.copy()
    result.setflags(write=False)
    return result


@pytest.mark.parametrize("call", ARGUMENTS.values(), ids=ARGUMENTS)
def test_every_form_of_arguments_gives_the_same_outputs(
    call: Callable[[Model], list[Any]], sums: Sums, direct: bool
) -> None:
    model = sums()
    for _ in range(2):
        assert lists(call(model)) == [SUM, TWICE]


def test_calls_in_turn_on_both_paths_share_their_tables(sums: Sums, direct: bool) -> None:
    model = sums()
    for call in (*ARGUMENTS.values(), *reversed(ARGUMENTS.values())):
        assert lists(call(model)) == [SUM, TWICE]


def test_one_of_the_outputs_can_be_named(sums: Sums, direct: bool) -> None:
    model = sums()
    assert lists(model.run([A, B], ["twice"])) == [TWICE]
    assert lists(model.run([A, B], ["twice", "sum"])) == [TWICE, SUM]
    assert lists(model.run([A, B], "twice")) == [TWICE]
    assert model({"a": A, "b": B}, "sum").tolist() == SUM


def test_new_outputs_are_arrays_of_their_own(sums: Sums, direct: bool) -> None:
    model = sums()
    first, second = model.run([A, B]), model.run([B, B])
    assert lists(first) == [SUM, TWICE]
    assert all(array.flags.owndata and array.flags.writeable and type(array) is np.ndarray for array in first)
    assert not any(np.shares_memory(a, b) for a in first for b in second)


def test_given_outputs_are_returned_themselves(sums: Sums, direct: bool) -> None:
    model = sums()
    given = [np.empty_like(A), np.empty_like(A)]
    outputs = model.run([A, B], given)
    assert outputs[0] is given[0] and outputs[1] is given[1]
    assert lists(given) == [SUM, TWICE]


def test_inputs_are_not_written_to_and_not_kept(sums: Sums, direct: bool) -> None:
    model = sums()
    a, b = A.copy(), B.copy()
    before = sys.getrefcount(a)
    model.run([a, b])
    assert sys.getrefcount(a) == before
    assert (a.tolist(), b.tolist()) == (A.tolist(), B.tolist())


def test_outputs_may_overlap_inputs(sums: Sums, direct: bool) -> None:
    model = sums()
    a, b = A.copy(), B.copy()
    assert lists(model.run([a, b], [a, b])) == [SUM, TWICE]
    memory = np.zeros((1, 4), np.float32)
    memory[:, :3] = A
    assert lists(model.run([memory[:, :3], B], [memory[:, 1:], np.empty_like(A)])) == [SUM, TWICE]


def test_tensors_without_elements_can_be_passed(sums: Sums, direct: bool) -> None:
    model = sums((0, 3))
    empty = np.empty((0, 3), np.float32)
    assert [output.shape for output in model.run([empty, empty])] == [(0, 3), (0, 3)]
    assert [output.shape for output in model.run([empty, empty], [empty, empty])] == [(0, 3), (0, 3)]


def test_open_shapes_get_a_variant_for_each_set_of_shapes(sums: Sums, direct: bool) -> None:
    model = sums((None, 3))
    for rows in (1, 4, 2, 1):
        x = np.full((rows, 3), rows, np.float32)
        assert lists(model.run([x, x])) == [(2 * x).tolist(), (4 * x).tolist()]


# --- errors -----------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[Model], object], str]] = {
    "too few inputs": (lambda model: model.run([A]), "1 inputs were given; the model has 2 ('a', 'b')"),
    "no inputs": (lambda model: model.run(), "no array was given for 'a', 'b'"),
    "a missing name": (lambda model: model.run({"a": A}), "no array was given for 'b'"),
    "an unknown name": (
        lambda model: model.run({"a": A, "bb": B}),
        "the model has no input 'bb'; did you mean 'b'?",
    ),
    "an unknown keyword": (
        lambda model: model.run(a=A, output=B),
        "'output' is neither an input of the model ('a', 'b') nor an argument; did you mean 'outputs'?",
    ),
    "a mapping and keywords": (
        lambda model: model.run({"a": A}, b=B),
        "inputs are given both as an argument and by keyword ('b'); use one way for all of them",
    ),
    "a bare array": (
        lambda model: model.run(A),
        "run takes a list of arrays or a mapping by name, not ndarray",
    ),
    "another shape": (lambda model: model.run([A, B[0]]), "input 'b' has shape [3]; expected [1, 3]"),
    "one output of two": (
        lambda model: model.run([A, B], [A.copy()]),
        "1 outputs were given; the model has 2 ('sum', 'twice')",
    ),
    "a name given twice": (
        lambda model: model.run([A, B], ["sum", "sum"]),
        "outputs: 'sum' is named twice; name each value once",
    ),
    "a name among arrays": (
        lambda model: model.run([A, B], ["sum", A.copy()]),
        "outputs are names of values or arrays to write to, not both: ndarray stands among names",
    ),
    "the name of no value": (
        lambda model: model.run([A, B], ["summ"]),
        "outputs: the model has no value 'summ'; did you mean 'sum'?",
    ),
    "an unknown output": (
        lambda model: model.run([A, B], {"sums": A.copy()}),
        "the model has no output 'sums'; did you mean 'sum'?",
    ),
    "a read-only output": (
        lambda model: model.run([A, B], [read_only(A), A.copy()]),
        "output 0 (sum) is read-only; give an array that can be written to",
    ),
    "an output of another type": (
        lambda model: model.run([A, B], [A.astype(np.float64), A.copy()]),
        "output 0 (sum) is float64; expected float32",
    ),
    "an output of another shape": (
        lambda model: model.run([A, B], [A.copy(), A[0].copy()]),
        "output 1 (twice) has shape [3]; expected [1, 3]",
    ),
}


@pytest.mark.parametrize(("call", "text"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_give_the_same_errors(
    call: Callable[[Model], object], text: str, sums: Sums, direct: bool
) -> None:
    model = sums()
    with pytest.raises(BindingError) as error:
        call(model)
    assert str(error.value) == text
    assert lists(model.run([A, B])) == [SUM, TWICE]


def test_outputs_that_share_memory_are_refused(sums: Sums, direct: bool) -> None:
    model, memory = sums(), np.zeros((1, 4), np.float32)
    with pytest.raises(BindingError) as error:
        model.run([A, B], [memory[:, :3], memory[:, 1:]])
    assert str(error.value) == "output 0 (sum) and output 1 (twice) share memory; give each an array of its own"


def test_a_failing_run_names_the_layer_and_the_message(sums: Sums, direct: bool) -> None:
    model = sums(AT_EXECUTE='return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, 7, "it broke");')
    for _ in range(2):
        with pytest.raises(ExecutionError) as error:
            model.run([A, B])
        layer = "PreCompiled:addition"
        assert str(error.value) == f"layer {layer!r} (PreCompiled) failed on backend Adder: execute: it broke"
        assert (error.value.backend, error.value.layer) == ("Adder", layer)
        assert str(error.value.__cause__) == "execute: it broke"


def test_a_run_may_fail_once(sums: Sums, direct: bool) -> None:
    once = 'static int calls; if (calls++ == 1) return ipr_fail(error, IPR_OUT_OF_MEMORY, 0, -1, "full");'
    model = sums(AT_EXECUTE=once)
    assert lists(model.run([A, B])) == [SUM, TWICE]
    with pytest.raises(ExecutionError, match="failed on backend Adder: execute: out of memory: full$"):
        model.run([A, B])
    assert lists(model.run([A, B])) == [SUM, TWICE]


def test_a_warning_beside_success_is_ignored_and_forgotten(sums: Sums, direct: bool) -> None:
    model = sums(AT_EXECUTE='ipr_fail(error, IPR_FAILED, 0, -1, "not quite");')
    assert lists(model.run([A, B])) == lists(model.run([A, B])) == [SUM, TWICE]


def test_an_error_past_its_buffer_is_noticed(sums: Sums, direct: bool) -> None:
    model = sums(AT_EXECUTE="memset(error->text, 1, error->capacity + 9); return IPR_FAILED;")
    with pytest.raises(ExecutionError, match="execute wrote past the end of the error's text$"):
        model.run([A, B])


def test_lines_that_a_run_logs_are_passed_on(sums: Sums, direct: bool, caplog: pytest.LogCaptureFixture) -> None:
    model = sums(AT_EXECUTE='ipr_log(the_host, IPR_LOG_WARNING, "slow today");')
    with caplog.at_level("WARNING", "interposer"):
        model.run([A, B])
    assert [record.message for record in caplog.records] == ["slow today"]


@pytest.mark.parametrize("inputs", [(0,), (0, 2), (0, 0), (0, 1, 2), None, "ab"])
def test_a_function_for_direct_calls_takes_each_input_once(inputs: Any, sums: Sums, direct: bool) -> None:
    model = sums()
    [number] = model.runtime.loaded_networks
    with pytest.raises(BindingError) as error:
        model.runtime.direct_call(number, inputs)
    assert str(error.value) == f"a direct call takes each input once, by its binding id (0, 1), not {inputs!r}"


# --- lifetime ---------------------------------------------------------------------------------------------------------


def test_a_closed_model_refuses_calls(sums: Sums, direct: bool) -> None:
    model = sums()
    run = model.run
    model.close()
    with pytest.raises(InvalidArgumentError, match="^the model 'sums' is closed$"):
        run([A, B])


def test_arrays_that_are_bound_are_read_and_written_in_place(sums: Sums, direct: bool) -> None:
    model, a, y = sums(), A.copy(), [np.empty_like(A), np.empty_like(A)]
    with model.bind([a, B], y) as call:
        assert call() is call.outputs
        a += 1
        call()
        assert lists(y) == [[[12.0, 23.0, 34.0]], [[24.0, 46.0, 68.0]]]
        model.close()
        with pytest.raises(ExecutionError, match="^the network 'sums' was unloaded before the run began$"):
            call()


def test_a_function_of_an_unloaded_network_declines(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    if extension() is None:
        pytest.skip("the extension for direct calls was not built")
    model = sums()
    [number] = model.runtime.loaded_networks
    run = model.runtime.direct_call(number, (0, 1))
    assert run is not None and lists(run([A, B], None) or []) == [SUM, TWICE]
    model.close()
    assert run([A, B], None) is None


def test_closing_waits_for_a_run_in_progress(sums: Sums, direct: bool, tmp_path: Path) -> None:
    began, go_on = tmp_path / "began-XXXXXX", tmp_path / "go_on"
    model = sums(AT_EXECUTE=f'mkdtemp((char[]){{"{began}"}}); while (access("{go_on}", F_OK)) usleep(1000);')
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(model.run, [A, B])
        while not list(tmp_path.glob("began-*")):
            threading.Event().wait(0.001)
        closing = pool.submit(model.close)
        threading.Event().wait(0.05)
        assert not closing.done()
        go_on.touch()
        assert lists(running.result(LONG)) == [SUM, TWICE]
        closing.result(LONG)
    assert model.runtime.loaded_networks == ()


def test_a_hanging_run_exceeds_its_deadline(sums: Sums, direct: bool, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    model = sums(AT_EXECUTE=f'while (access("{go_on}", F_OK)) usleep(1000);')
    with pytest.raises(DeadlineExceededError):
        model.run([A, B], deadline=0.05)
    go_on.touch()
    assert lists(model.run([A, B])) == [SUM, TWICE]


def test_threads_get_their_own_results(sums: Sums, direct: bool) -> None:
    model = sums()

    def right(number: int) -> bool:
        x = np.full((1, 3), number, np.float32)
        return all(lists(model.run([x, A])) == [(x + A).tolist(), (2 * (x + A)).tolist()] for _ in range(50))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(right, range(60)))


def test_a_plug_in_that_is_not_fork_safe_is_not_called_in_a_forked_process(sums: Sums, direct: bool) -> None:
    text = """
import os, sys, numpy as np, interposer as ip
folder = sys.argv[1]
runtime = ip.Runtime(ip.CreationOptions(dynamic_backends_path=folder, probe_seconds=0))
network = ip.Network("sums")
a = network.add_input_layer(0, ip.TensorInfo((3,)), name="a")
network.add_output_layer(0, network.add_addition_layer(a, a), name="sum")
model = ip.load(network, ["Adder"], runtime=runtime, fallback=False)
x = np.ones(3, np.float32)
assert model.run([x])[0].tolist() == [2, 2, 2]
if os.fork() == 0:
    try:
        model.run([x])
    except ip.errors.ExecutionError as error:
        print(str(error).partition(" on backend ")[2], flush=True)
    os._exit(0)
os.wait()
assert model.run([x])[0].tolist() == [2, 2, 2]
"""
    folder = sums().runtime.dynamic_backends()[0].path.rpartition("/")[0]
    words = [sys.executable, "-W", "ignore", "-c", text, folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Adder: backend 'Adder' is not available: it was opened before this process was forked\n"


# --- outputs that are the same tensor ---------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [(0,), (1,), (1, 0), (0, 0)], ids=str)
def test_a_tensor_that_is_an_output_several_times_is_given_as_often(
    again: tuple[int, ...], sums: Sums, direct: bool
) -> None:
    model = sums(again=again)
    assert is_direct(model) == direct
    expected = [[SUM, TWICE][output] for output in (0, 1, *again)]
    for _ in range(2):
        outputs = model.run([A, B])
        assert lists(outputs) == expected
        assert all(array.flags.owndata and array.flags.writeable for array in outputs)
        pairs = [(a, b) for n, a in enumerate(outputs) for b in outputs[:n]]
        assert not any(np.shares_memory(a, b) for a, b in pairs)
        assert lists(model.run({"b": B, "a": A}, ["third", "twice"])) == [expected[2], TWICE]
        given = [np.empty_like(A) for _ in expected]
        assert lists(model.run([A, B], given)) == lists(given) == expected
        assert lists(model.run([A, B], deadline=LONG)) == expected
        assert lists(model.bind([A, B])()) == expected
        assert lists(list(model({"a": A, "b": B}).values())) == expected


def test_wrong_calls_are_refused_if_a_tensor_is_an_output_several_times(sums: Sums, direct: bool) -> None:
    model = sums(again=(0,))
    with pytest.raises(BindingError) as caught:
        model.run([A])
    assert str(caught.value) == "1 inputs were given; the model has 2 ('a', 'b')"
    model.close()
    with pytest.raises(InvalidArgumentError) as closed:
        model.run([A, B])
    assert "closed" in str(closed.value)


# --- shapes that depend on data ---------------------------------------------------------------------------------------

Searches = Callable[..., Model]
VALUES = ([0, 1, 0, 2, 3, 0], [0] * 6, [1] * 6)


@pytest.fixture
def searches(natives: Natives, tmp_path: Path) -> Iterator[Searches]:
    """Makes models that find the elements of a vector that are not zero, on a plug-in with model options."""
    if not sys.platform.startswith("linux"):
        pytest.skip("dynamic backends are only for Linux")
    runtimes = []

    def searches(backend: str, source: str, size: int = 6, limits: ip.Limits | None = None, **options: Any) -> Model:
        folder = tmp_path / str(len(runtimes))
        natives.install(folder, f"Tests_{backend}_backend.so", Path(source))
        runtimes.append(Runtime(CreationOptions(dynamic_backends_path=folder, probe_seconds=0)))
        network = Network("search")
        x = network.add_input_layer(0, TensorInfo((size,)), name="x")
        network.add_output_layer(0, network.add_non_zero_layer(x), name="found")
        model_options = ip.OptimizerOptions(model_options={backend: options})
        return ip.load(network, [backend], runtime=runtimes[-1], options=model_options, fallback=False, limits=limits)

    yield searches
    for runtime in runtimes:
        runtime.close()


def found(model: Model, values: Any, *outputs: Any) -> Any:
    return model.run([np.float32(values)], *outputs)[0].tolist()


def test_shapes_of_outputs_may_depend_on_data_in_direct_calls(searches: Searches, direct: bool) -> None:
    model = searches("Kernels", "kernels.cpp")
    [number] = model.runtime.loaded_networks
    assert (model.runtime.direct_call(number, (0,)) is not None) == direct
    for values in VALUES * 2:
        assert found(model, values) == found(model, values, ["found"]) == np.argwhere(values).T.tolist()


def test_threads_get_results_of_their_own_shapes(searches: Searches, direct: bool) -> None:
    model = searches("Kernels", "kernels.cpp")

    def right(number: int) -> bool:
        values = [n % (number + 1) for n in range(6)]
        return all(found(model, values) == np.argwhere(values).T.tolist() for _ in range(50))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(right, range(30)))


def test_an_output_without_a_shape_is_an_error_of_direct_calls(searches: Searches, direct: bool) -> None:
    model = searches("Kernels", "kernels.cpp", forget=True)
    for _ in range(2):
        with pytest.raises(ExecutionError, match="did not give output 0, int64.*, a shape: call `resize` for it"):
            found(model, VALUES[0])


def test_direct_calls_count_the_memory_of_outputs(searches: Searches, direct: bool) -> None:
    model = searches("Kernels", "kernels.cpp", 10_000, ip.Limits(max_bytes=60_000))
    assert found(model, [1] + [0] * 9_999) == [[0]]
    with pytest.raises(ip.errors.LimitExceededError, match="memory"):
        found(model, [1] * 10_000)


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ("resizing another", "resize was called for output 9; there are 1"),
        ("resizing to another rank", "resize gave output 0, int64.*, the rank 1"),
        ("resizing below zero", r"resize gave output 0, int64.*, the shape \[1, -2\]"),
    ],
)
def test_wrong_shapes_give_the_same_errors(lie: str, text: str, searches: Searches, direct: bool) -> None:
    model = searches("Liar", "liar.c", 4, lie=lie)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=text):
            found(model, [1, 2, 3, 4])


def test_an_extension_of_another_version_is_named_and_not_used(
    sums: Sums, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other_version = ModuleType("_direct")
    other_version.__file__ = "_direct.abi3.so"
    monkeypatch.setattr(running, "_direct", other_version, raising=False)
    monkeypatch.setitem(sys.modules, f"{running.__name__}._direct", other_version)
    extension.cache_clear()
    try:
        assert lists(sums().run([A, B])) == lists(sums().run([A, B])) == [SUM, TWICE]
    finally:
        extension.cache_clear()
    assert caplog.text.count("the compiled extension _direct.abi3.so is of another version of Interposer (0, not") == 1
    assert "`make native` in a checkout" in caplog.text


@pytest.mark.parametrize("direct", ["yes"], indirect=True)
def test_a_wrong_argument_of_the_extension_is_not_taken_for_another_version(
    sums: Sums, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_module, "_described", lambda *_: ())
    with pytest.raises(TypeError):
        sums().run([A, B])


# --- networks without layers ------------------------------------------------------------------------------------------


@pytest.fixture
def passed_on() -> Iterator[Model]:
    """Give a model without layers, whose outputs are "b", "a" and "a" once more."""
    network = Network("passed on")
    a, b = (network.add_input_layer(n, TensorInfo((1, 3)), name=name) for n, name in enumerate("ab"))
    for number, (value, name) in enumerate([(b, "sum"), (a, "twice"), (a, "third")]):
        network.add_output_layer(number, value, name=name)
    with ip.load(network) as model:
        yield model


def test_a_model_without_layers_is_called_directly(passed_on: Model) -> None:
    [number] = passed_on.runtime.loaded_networks
    call = passed_on.runtime.direct_call(number, (1, 0))
    assert call is not None
    assert (
        lists(call([B, A], None) or []) == lists(call({"a": A, "b": B}, None) or []) == [B.tolist(), *[A.tolist()] * 2]
    )
    for inputs in ([B], [B, A.tolist()], [B, A[0]], {"a": A, "c": B}):
        assert call(inputs, None) is None
    passed_on.close()
    assert call([B, A], None) is None


def test_a_model_without_layers_gives_copies_of_its_inputs(passed_on: Model) -> None:
    for form in ([A, B], [A[:, ::-1].copy()[:, ::-1], B.astype(np.float64)], {"b": B, "a": A}):
        outputs = passed_on.run(form)
        assert lists(outputs) == [B.tolist(), A.tolist(), A.tolist()]
        assert all(array.flags.owndata and array.flags.writeable for array in outputs)
    given = [np.empty_like(A) for _ in range(3)]
    assert lists(passed_on.run([A, B], given)) == lists(passed_on.bind([A, B])()) == lists(given)


def test_a_model_whose_outputs_are_constants_is_called_directly() -> None:
    network = Network("constant")
    a = network.add_input_layer(0, TensorInfo((1, 3)), name="a")
    for number, value in enumerate([network.add_constant_layer(B), a, network.add_constant_layer(np.int8(5))]):
        network.add_output_layer(number, value)
    with ip.load(network) as model:
        call = model.runtime.direct_call(model.runtime.loaded_networks[0], (0,))
        assert call is not None
        results = call([A], None) or []
        assert lists(results) == lists(model.run([A], [np.empty_like(B), np.empty_like(A), np.empty((), np.int8)]))
        assert lists(results) == [B.tolist(), A.tolist(), 5] and results[2].dtype == np.int8
        results[0][:] = 9
        assert lists(call([A], None) or []) == [B.tolist(), A.tolist(), 5]


def test_a_model_whose_output_is_a_constant_text_is_not_called_directly() -> None:
    network = Network("text")
    network.add_output_layer(0, network.add_constant_layer(np.array(["a"], dtype=object)))
    with ip.load(network) as model:
        assert model.runtime.direct_call(model.runtime.loaded_networks[0], ()) is None
        assert lists(model.run([])) == [["a"]]
