"""Backends that break the rules after they were found: the error says who and what, and the runtime goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from interposer import Network, Runtime, TensorInfo, optimize
from interposer.backend import (
    ArenaMemoryManager,
    ArrayHandle,
    Backend,
    BackendContext,
    Failure,
    KernelTable,
    KernelWorkloadFactory,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    SubgraphView,
    Substitution,
    Support,
    TensorHandle,
    Workload,
    WorkloadFactory,
)
from interposer.core.errors import (
    BackendContractError,
    ExecutionError,
    LoadError,
    UnsupportedLayerError,
)
from interposer.ir.graph import Graph
from interposer.ops import Addition, Input, Multiplication, Output, PreCompiled
from interposer.report.optimized import OptimizedNetwork
from tests.devices import Sums

INFO = TensorInfo((3,))
X = np.float32([1, 2, 3])


class Faulty(Backend):
    """Works like Sums, until something of it is replaced."""

    id: ClassVar = "Faulty"
    kernels: ClassVar = Sums.kernels


def faulty(**methods: Callable[..., Any]) -> Backend:
    """Return a defective backend with some of its methods replaced."""
    return type("Replaced", (Faulty,), methods)()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as created:
        created.registry.register("Sums", Sums)
        yield created
        assert_usable(created)


def assert_usable(runtime: Runtime) -> None:
    """Another network still loads, runs and goes: on CpuRef, or where that is absent on Sums."""
    healthy = "CpuRef" if runtime.registry.reason_absent("CpuRef") is None else "Sums"
    network_id = runtime.load_network(optimize(chain(), [healthy], runtime.device_spec))
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], (2 * X) ** 2 + 2 * X)
    runtime.unload_network(network_id)


def chain() -> Network:
    """Return a network that computes (x + x) squared, plus x + x."""
    network = Network("chain")
    x = network.add_input_layer(0, INFO, name="x")
    first = network.add_layer(Addition(), x, x, name="first")
    second = network.add_layer(Multiplication(), first, first, name="second")
    third = network.add_layer(Addition(), second, first, name="third")
    network.add_output_layer(0, third, name="y")
    return network


def use(runtime: Runtime, backend: Backend, others: tuple[str, ...] = ()) -> np.ndarray:
    """Optimize for a backend, load, and run."""
    runtime.registry.register("Faulty", lambda: backend)
    optimized = optimize(chain(), ["Faulty", *others], runtime.device_spec)
    return runtime.enqueue_workload(runtime.load_network(optimized), {0: X})[0]


def raising(error: Exception) -> Callable[..., Any]:
    def method(*_: object) -> Any:
        raise error

    return method


def giving(answer: object) -> Callable[..., Any]:
    return lambda *_: answer


# --- support ----------------------------------------------------------------------------------------------------------


def supporting(query: Callable[..., Any]) -> Backend:
    support = type("Odd", (LayerSupport,), {"query": query})
    return faulty(layer_support=giving(support()))


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (supporting(giving(None)), "query of backend 'Faulty' returned NoneType; expected list"),
        (supporting(giving((Support.yes(),) * 3)), "query of backend 'Faulty' returned tuple; expected list"),
        (supporting(giving([True] * 3)), "query of backend 'Faulty' returned bool; expected Support"),
        (supporting(giving([Support.yes()])), "query of backend 'Faulty' gave 1 verdicts for 3 layers"),
    ],
)
def test_verdicts_of_the_wrong_kind_or_number_are_refused(runtime: Runtime, backend: Backend, text: str) -> None:
    with pytest.raises(BackendContractError) as caught:
        use(runtime, backend)
    assert (str(caught.value), caught.value.backend) == (text, "Faulty")


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        (supporting(raising(KeyError("dtype"))), "asking it raised KeyError: 'dtype'"),
        (faulty(layer_support=raising(OSError("no driver"))), "asking it raised OSError: no driver"),
        (
            faulty(layer_support=giving(None)),
            "asking it raised AttributeError: 'NoneType' object has no attribute 'query'",
        ),
    ],
)
def test_a_backend_that_cannot_say_what_it_supports_gets_nothing(
    runtime: Runtime, backend: Backend, reason: str
) -> None:
    runtime.registry.register("Faulty", lambda: backend)
    optimized = optimize(chain(), ["Faulty", "Sums"], runtime.device_spec)
    assert {placement.backend for placement in optimized.placements} == {"Sums"}
    assert {refusal.reasons for refusal in optimized.refusals} == {(reason,)}


def test_reasons_that_are_no_texts_are_shown_as_texts(runtime: Runtime) -> None:
    with pytest.raises(UnsupportedLayerError) as caught:
        use(runtime, supporting(lambda _, view: [Support.no(8, None), Support("a bare text"), Support.of("another")]))
    assert str(caught.value) == (
        "3 layers cannot be run\n"
        "no backend in ['Faulty'] can run layer 'first' (Addition)\n"
        "  a: float32[3]\n"
        "  b: float32[3]\n"
        "  Faulty says: 8; None\n"
        "no backend in ['Faulty'] can run layer 'second' (Multiplication)\n"
        "  a: float32[3]\n"
        "  b: float32[3]\n"
        "  Faulty says: a bare text\n"
        "no backend in ['Faulty'] can run layer 'third' (Addition)\n"
        "  a: float32[3]\n"
        "  b: float32[3]\n"
        "  Faulty says: another"
    )


# --- optimization -----------------------------------------------------------------------------------------------------


def optimizing(answer: Callable[[SubgraphView], Any]) -> Backend:
    return faulty(optimize_subgraph=lambda self, view, options: answer(view))


def test_parts_that_a_backend_fails_to_optimize_go_to_the_next(runtime: Runtime) -> None:
    backend = faulty(optimize_subgraph=raising(ZeroDivisionError("division by zero")))
    np.testing.assert_array_equal(use(runtime, backend, ("Sums",)), (2 * X) ** 2 + 2 * X)


def test_where_there_is_no_next_backend_the_failure_is_named(runtime: Runtime) -> None:
    with pytest.raises(UnsupportedLayerError) as caught:
        use(runtime, optimizing(lambda view: OptimizationViews.all_failed(view, "the compiler ran out of registers")))
    assert str(caught.value).splitlines()[:5] == [
        "3 layers cannot be run",
        "no backend in ['Faulty'] can run layer 'first' (Addition)",
        "  a: float32[3]",
        "  b: float32[3]",
        "  Faulty says: the compiler ran out of registers",
    ]
    assert {refusal.stage for refusal in caught.value.refusals} == {"optimize"}


def compiled(part: SubgraphView, outputs: int = 1) -> Substitution:
    return Substitution(part, PreCompiled(num_outputs=outputs))


def answer(*substitutions: object, failed: tuple[object, ...] = ()) -> Callable[[SubgraphView], OptimizationViews]:
    """An answer of substitutions, each made of the view where it is a function."""

    def made(view: SubgraphView) -> OptimizationViews:
        value = [substitution(view) if callable(substitution) else substitution for substitution in substitutions]
        return OptimizationViews(view, substitutions=value, failed=failed)

    return made


def part(view: SubgraphView, *numbers: int) -> SubgraphView:
    return view.part([view.layers[number] for number in numbers])


def elsewhere() -> SubgraphView:
    graph = chain().graph
    return SubgraphView(graph, [graph.layer("first")])


def open_end() -> Graph:
    graph = Graph()
    graph.add(Input(0), outputs=[INFO])
    graph.add(Output(0))
    return graph


CANNOT = "backend 'Faulty': optimize_subgraph returned an answer that cannot be used: "


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (giving(None), "optimize_subgraph of backend 'Faulty' returned NoneType; expected OptimizationViews"),
        (
            lambda view: OptimizationViews(part(view, 0)),
            "backend 'Faulty': optimize_subgraph gave an answer for another view",
        ),
        (
            answer(lambda v: compiled(part(v, 0)), lambda v: compiled(part(v, 0, 1))),
            CANNOT + "layer 'first' (Addition) is in two parts",
        ),
        (answer(compiled(elsewhere())), CANNOT + "layer 'first' (Addition) is not in the view"),
        (answer(lambda v: compiled(part(v))), CANNOT + "a part is empty"),
        (
            answer(lambda v: compiled(part(v, 0), outputs=2)),
            CANNOT + "PreCompiled has 2 outputs, but the part has 1",
        ),
        (
            answer(lambda v: Substitution(part(v, 0), open_end())),
            CANNOT + "output 'output' of the replacement is not connected",
        ),
        (
            answer(lambda v: Substitution(part(v, 0), Graph())),
            CANNOT
            + "the replacement has 0 inputs, but the part has 1; the replacement has 0 outputs, but the part has 1",
        ),
        (
            answer(lambda v: compiled(part(v, 0, 2), outputs=2), lambda v: compiled(part(v, 1))),
            CANNOT + "the substituted parts would depend on each other in a cycle",
        ),
        (
            answer(lambda v: compiled(part(v, 0, 2), outputs=2)),
            CANNOT + "the substituted parts would depend on each other in a cycle",
        ),
        (
            answer(lambda v: Substitution(part(v, 1), Addition(), part(v, 0).inputs * 2)),
            CANNOT + "the value 'x' does not enter the part",
        ),
        (answer("fused"), CANNOT + "a substitution is 'fused'; expected Substitution"),
        (
            answer(lambda v: Substitution(list(v), "fused", ("x",))),
            CANNOT + "a substituted part is [<Layer 'first': Addition()>, <Layer 'second': Multiplication()>, "
            "<Layer 'third': Addition()>]; expected SubgraphView; a replacement is 'fused'; expected Op or Graph; "
            "an input is 'x'; expected Value",
        ),
        (
            answer(failed=(Failure(elsewhere(), None), "all")),
            CANNOT + "the reason of a failure is None; expected str; a failure is 'all'; expected Failure",
        ),
        (
            answer(lambda v: Substitution(part(v, 0), Addition(), 5)),
            "backend 'Faulty': the answer of optimize_subgraph cannot be read, TypeError: 'int' object is not iterable",
        ),
        (
            answer(lambda v: Substitution(part(v, 1), Addition(), part(v, 1).inputs * 3)),
            "backend 'Faulty': Addition takes at most 2 inputs, but 3 were given",
        ),
        (
            answer(lambda v: Substitution(part(v, 1), Addition())),
            "backend 'Faulty': the substitution Addition() does not fit: b is not connected",
        ),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_refused(
    runtime: Runtime, answer: Callable[[SubgraphView], Any], text: str
) -> None:
    with pytest.raises(BackendContractError) as caught:
        use(runtime, optimizing(answer), ("Sums",))
    assert (str(caught.value), caught.value.backend) == (text, "Faulty")


def test_a_part_must_not_be_replaced_by_another_tensor(runtime: Runtime) -> None:
    """A pass-through of the right count, but the part's output is a sum of another shape."""
    network = Network()
    row, column = network.add_input_layer(0, TensorInfo((1, 3))), network.add_input_layer(1, TensorInfo((2, 1)))
    network.add_output_layer(0, network.add_layer(Addition(), row, column, name="table"))

    def pass_through(view: SubgraphView) -> OptimizationViews:
        body = Graph()
        values = [body.add(Input(n), outputs=[value.known]).output for n, value in enumerate(view.operands)]
        body.add(Output(0), values[:1])
        return OptimizationViews(view, substitutions=[Substitution(view, body)])

    runtime.registry.register("Faulty", lambda: optimizing(pass_through))
    with pytest.raises(BackendContractError) as caught:
        optimize(network, ["Faulty"], runtime.device_spec)
    assert str(caught.value) == ("backend 'Faulty': the tensor 'table', float32[2, 3], is replaced by float32[1, 3]")


# --- loading ----------------------------------------------------------------------------------------------------------


class Liar(ArrayHandle):
    """Says another type of tensor than it was asked for."""

    def __init__(self, info: TensorInfo) -> None:
        super().__init__(info.with_shape((5,)))


class Silent(TensorHandle):
    """Has nothing to map, and never called its base."""

    def __init__(self, info: TensorInfo) -> None:
        pass

    def map(self) -> Any:
        return None


def making(**methods: Callable[..., Any]) -> Backend:
    """A defective backend whose workload factory has some of its methods replaced."""
    created = type("OddFactory", (KernelWorkloadFactory,), methods)
    return faulty(create_workload_factory=lambda self, manager, options: created(self.kernels, manager))


class Unready(Workload):
    """Cannot be configured."""

    def post_allocation_configure(self) -> None:
        raise RuntimeError("no queue")

    def execute(self, inputs: Any, outputs: Any) -> None:
        raise NotImplementedError


NO_FACTORY = "backend Faulty could not make its workload factory: "
FIRST = "layer 'first' (Addition) "


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (
            faulty(create_memory_manager=giving("a lot")),
            NO_FACTORY + "create_memory_manager of backend 'Faulty' returned str; expected MemoryManager",
        ),
        (faulty(create_memory_manager=raising(MemoryError("no arena"))), NO_FACTORY + "MemoryError: no arena"),
        (
            faulty(create_workload_factory=giving(None)),
            NO_FACTORY + "create_workload_factory of backend 'Faulty' returned NoneType; expected WorkloadFactory",
        ),
        (faulty(create_workload_factory=raising(OSError("busy"))), NO_FACTORY + "OSError: busy"),
        (
            faulty(create_workload_factory=giving(WorkloadFactory())),
            FIRST
            + "got no workload on backend Faulty: WorkloadFactory creates no workload for layer 'first' (Addition)",
        ),
        (
            making(create_workload=giving(None)),
            FIRST + "got no workload on backend Faulty: create_workload of backend 'Faulty' returned NoneType; "
            "expected Workload",
        ),
        (
            making(create_workload=raising(ValueError("odd stride"))),
            FIRST + "got no workload on backend Faulty: ValueError: odd stride",
        ),
        (
            making(create_workload=giving(Unready())),
            FIRST + "could not be configured on backend Faulty: RuntimeError: no queue",
        ),
        (
            making(create_tensor_handle=giving(None)),
            "layer 'x' (Input) got no tensor handle on backend Faulty: create_tensor_handle of backend 'Faulty' "
            "returned NoneType; expected TensorHandle",
        ),
        (
            making(create_tensor_handle=lambda _, info: Liar(info)),
            "layer 'x' (Input) got no tensor handle on backend Faulty: create_tensor_handle gave a handle of "
            "float32[5]; expected float32[3]",
        ),
        (
            making(create_tensor_handle=lambda _, info: Silent(info)),
            "layer 'x' (Input) got no tensor handle on backend Faulty: AttributeError: 'Silent' object has no "
            "attribute 'info'",
        ),
        (
            making(create_tensor_handle=lambda _, info: replaced_handle(info, manage=raising(OSError("full")))),
            "layer 'x' (Input) got no memory on backend Faulty: OSError: full",
        ),
        (
            making(create_tensor_handle=lambda _, info: replaced_handle(info, allocate=raising(OSError("full")))),
            "layer 'x' (Input) got no memory on backend Faulty: OSError: full",
        ),
        (
            faulty(create_backend_context=raising(OSError("no device"))),
            "backend Faulty could not make its context: OSError: no device",
        ),
        (
            faulty(create_backend_context=giving(True)),
            "backend Faulty could not make its context: create_backend_context of backend 'Faulty' returned bool; "
            "expected BackendContext",
        ),
    ],
)
def test_a_backend_that_cannot_make_what_a_network_needs_leaves_nothing_behind(
    runtime: Runtime, backend: Backend, text: str
) -> None:
    with pytest.raises(LoadError) as caught:
        use(runtime, backend)
    assert str(caught.value) == text
    assert runtime.loaded_networks == ()


def replaced_handle(info: TensorInfo, **methods: Callable[..., Any]) -> TensorHandle:
    return type("OddHandle", (ArrayHandle,), methods)(info)


def test_a_constant_that_gets_no_handle_is_named_by_the_layer_that_needs_it(runtime: Runtime) -> None:
    network = Network()
    x = network.add_input_layer(0, INFO, name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, network.add_constant_layer(X), name="more"))
    runtime.registry.register("Faulty", lambda: making(create_constant_handle=giving(None)))
    with pytest.raises(LoadError) as caught:
        runtime.load_network(optimize(network, ["Faulty"], runtime.device_spec))
    assert str(caught.value) == (
        "layer 'more' (Addition) got no constant on backend Faulty: create_constant_handle of backend 'Faulty' "
        "returned NoneType; expected TensorHandle"
    )


# --- running ----------------------------------------------------------------------------------------------------------


class Explodes(Workload):
    """Cannot run."""

    def execute(self, inputs: Any, outputs: Any) -> None:
        raise FloatingPointError("the chip is too hot")


def mapping(array: object) -> Backend:
    """A defective backend whose handles map to this array."""
    return making(create_tensor_handle=lambda _, info: replaced_handle(info, map=giving(array)))


FAILS_TO_TAKE = "layer 'x' (Input) could not take in its data on backend Faulty: "


@pytest.mark.parametrize(
    ("backend", "layer", "text"),
    [
        (
            making(create_workload=giving(Explodes())),
            "first",
            FIRST + "failed on backend Faulty: FloatingPointError: the chip is too hot",
        ),
        (mapping(np.zeros(1, np.float32)), "x", FAILS_TO_TAKE + "the handle of float32[3] maps to float32[1]"),
        (mapping(np.zeros(3, np.float64)), "x", FAILS_TO_TAKE + "the handle of float32[3] maps to float64[3]"),
        (mapping([0, 0, 0]), "x", FAILS_TO_TAKE + "the handle of float32[3] maps to list, which is not an array"),
        (
            making(create_tensor_handle=lambda _, info: replaced_handle(info, map=raising(OSError("lost")))),
            "x",
            FAILS_TO_TAKE + "OSError: lost",
        ),
        (
            making(
                create_tensor_handle=lambda _, info: replaced_handle(
                    info, imports=False, copy_out=raising(OSError("lost"))
                )
            ),
            "y",
            "layer 'y' (Output) could not give its data on backend Faulty: OSError: lost",
        ),
    ],
)
def test_a_run_that_fails_names_the_layer_and_the_next_one_fails_alike(
    runtime: Runtime, backend: Backend, layer: str, text: str
) -> None:
    runtime.registry.register("Faulty", lambda: backend)
    network_id = runtime.load_network(optimize(chain(), ["Faulty"], runtime.device_spec))
    for _ in range(2):
        with pytest.raises(ExecutionError) as caught:
            runtime.enqueue_workload(network_id, {0: X})
        assert (str(caught.value), caught.value.layer, caught.value.backend) == (text, layer, "Faulty")
    runtime.unload_network(network_id)


def with_memory(memory: MemoryManager) -> Backend:
    return faulty(create_memory_manager=giving(memory))


def test_a_network_can_run_again_once_the_memory_is_there(runtime: Runtime) -> None:
    full = [MemoryError("the device is full")]

    class Scarce(ArenaMemoryManager):
        def acquire(self) -> None:
            if full:
                raise full.pop()
            super().acquire()

    runtime.registry.register("Faulty", lambda: with_memory(Scarce()))
    network_id = runtime.load_network(optimize(chain(), ["Faulty"], runtime.device_spec))
    with pytest.raises(ExecutionError) as caught:
        runtime.enqueue_workload(network_id, {0: X})
    assert str(caught.value) == "backend Faulty got no memory: MemoryError: the device is full"
    assert caught.value.backend == "Faulty"
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], (2 * X) ** 2 + 2 * X)


def test_memory_that_cannot_be_released_is_logged_and_the_network_is_gone(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(ArenaMemoryManager):
        def release(self) -> None:
            raise OSError("in use")

    runtime.registry.register("Faulty", lambda: with_memory(Stuck()))
    network_id = runtime.load_network(optimize(chain(), ["Faulty"], runtime.device_spec))
    runtime.enqueue_workload(network_id, {0: X})
    runtime.unload_network(network_id)
    assert runtime.loaded_networks == ()
    assert caplog.messages == ["backend Faulty could not release its memory: OSError: in use"]


def test_handles_are_unmapped_even_where_a_kernel_fails(runtime: Runtime) -> None:
    mapped: list[TensorHandle] = []

    class Counted(ArrayHandle):
        def map(self) -> Any:
            mapped.append(self)
            return super().map()

        def unmap(self) -> None:
            mapped.remove(self)

    class Failing(KernelWorkloadFactory):
        def create_tensor_handle(self, info: TensorInfo) -> TensorHandle:
            return Counted(info)

    table = KernelTable()
    table(Addition, Multiplication)(raising(ArithmeticError("sum")))
    backend = faulty(create_workload_factory=lambda self, manager, options: Failing(table))
    with pytest.raises(ExecutionError, match="ArithmeticError: sum"):
        use(runtime, backend)
    assert mapped == []


# --- contexts ---------------------------------------------------------------------------------------------------------


class Moody(BackendContext):
    """Records its calls, and returns or raises what the test says."""

    def __init__(self, log: list[str], name: str, **moods: Any) -> None:
        for notice in ("before_load_network", "after_load_network", "before_unload_network", "after_unload_network"):
            setattr(self, notice, self._reaction(log, name, notice, moods.get(notice, True)))

    @staticmethod
    def _reaction(log: list[str], name: str, notice: str, mood: Any) -> Callable[[int], Any]:
        def react(network_id: int) -> Any:
            log.append(f"{name} {notice} {network_id}")
            if isinstance(mood, Exception):
                raise mood
            return mood

        return react


def two_contexts(runtime: Runtime, **moods: Any) -> tuple[list[str], OptimizedNetwork]:
    """A network for two backends whose contexts write one log; the second one has moods."""
    log: list[str] = []
    calm, moody = Moody(log, "Calm"), Moody(log, "Faulty", **moods)
    calm_backend = type("Calm", (Faulty,), {"id": "Calm", "create_backend_context": giving(calm)})
    runtime.registry.register("Calm", calm_backend)
    runtime.registry.register("Faulty", lambda: faulty(create_backend_context=giving(moody)))
    return log, optimize(chain(), ["Calm", "Faulty"], runtime.device_spec)


def test_an_answer_of_a_context_that_is_neither_yes_nor_no_prevents_loading(runtime: Runtime) -> None:
    _, optimized = two_contexts(runtime, before_load_network=np.array([True, True]))
    with pytest.raises(LoadError, match="^network 0 is not loaded: the context of backend Faulty raised ValueError: "):
        runtime.load_network(optimized)
    assert runtime.loaded_networks == ()


@pytest.mark.parametrize(("mood", "said"), [(False, "said no"), (OSError("closed"), "raised OSError: closed")])
def test_a_context_can_prevent_loading_and_the_others_are_told(runtime: Runtime, mood: Any, said: str) -> None:
    log, optimized = two_contexts(runtime, before_load_network=mood)
    with pytest.raises(LoadError) as caught:
        runtime.load_network(optimized)
    assert str(caught.value) == f"network 0 is not loaded: the context of backend Faulty {said}"
    assert log == ["Calm before_load_network 0", "Faulty before_load_network 0", "Calm after_unload_network 0"]
    assert runtime.loaded_networks == ()


@pytest.mark.parametrize(("mood", "said"), [(False, "said no"), (OSError("closed"), "raised OSError: closed")])
def test_a_context_can_prevent_unloading_and_the_network_still_runs(runtime: Runtime, mood: Any, said: str) -> None:
    log, optimized = two_contexts(runtime, before_unload_network=mood)
    network_id = runtime.load_network(optimized)
    log.clear()
    with pytest.raises(LoadError) as caught:
        runtime.unload_network(network_id)
    assert str(caught.value) == f"network 0 stays loaded: the context of backend Faulty {said}"
    assert log == ["Calm before_unload_network 0", "Faulty before_unload_network 0"]
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], (2 * X) ** 2 + 2 * X)


@pytest.mark.parametrize("notice", ["after_load_network", "after_unload_network"])
@pytest.mark.parametrize(("mood", "said"), [(False, "said no"), (OSError("closed"), "raised OSError: closed")])
def test_what_a_context_says_afterwards_is_only_logged(
    runtime: Runtime, notice: str, mood: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    log, optimized = two_contexts(runtime, **{notice: mood})
    runtime.unload_network(runtime.load_network(optimized))
    assert caplog.messages == [f"network 0: the context of backend Faulty {said} in {notice}"]
    assert [line.split()[1] for line in log[::2]] == [line.split()[1] for line in log[1::2]]


def test_contexts_that_had_agreed_are_told_where_loading_fails(runtime: Runtime) -> None:
    log: list[str] = []
    backend = faulty(
        create_backend_context=giving(Moody(log, "Faulty")), create_workload_factory=raising(OSError("busy"))
    )
    with pytest.raises(LoadError):
        use(runtime, backend)
    assert log == ["Faulty before_load_network 0", "Faulty after_unload_network 0"]


def test_closing_a_runtime_overrules_a_context_but_tells_it(runtime: Runtime) -> None:
    with Runtime() as other:
        log, optimized = two_contexts(other, before_unload_network=False)
        other.load_network(optimized)
    assert log[-2:] == ["Calm after_unload_network 0", "Faulty after_unload_network 0"]
