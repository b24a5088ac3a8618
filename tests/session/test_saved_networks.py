"""Models from saved networks: they give the same as before, and what does not fit is compiled again and reported."""

from __future__ import annotations

import copy
import gc
import logging
import os
import pickle
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.backend import (
    Backend,
    KernelTable,
    KernelWorkloadFactory,
    OptimizationViews,
    SavedPart,
    Substitution,
    Workload,
)
from interposer.core.errors import InvalidArgumentError, LoadError, ParseError
from interposer.isolation import Isolation
from interposer.ops import ElementwiseUnary, PreCompiled, UnaryOperation
from interposer.optimizer import OptimizerOptions
from interposer.session.placement import Plan
from interposer.testing.conformance import all_samples
from interposer.testing.random_networks import random_network
from tests import warm
from tests.saved.rewriting import X, mixed

pytestmark = pytest.mark.needs_cpuref
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGE = np.random.default_rng(3).standard_normal((1, 1, 8, 8), np.float32)


def same(first: Any, second: Any) -> bool:
    """Return True if two values of outputs have the same bits: arrays, texts, sequences or None."""
    if isinstance(first, list) or first is None or second is None:
        return type(first) is type(second) and (first is None or all(map(same, first, second)))
    a, b = np.asarray(first), np.asarray(second)
    if a.dtype == object:
        return a.shape == b.shape and bool(a.tolist() == b.tolist())
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def open_network() -> ip.Network:
    """A network with an open batch dimension."""
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo(("batch", 8)), name="x")
    weights = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    product = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights, name="w"), name="product")
    network.add_output_layer(0, network.add_softmax_layer(product), name="y")
    return network


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.ipn"


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the warnings of the session since the last call."""
    caplog.set_level(logging.WARNING, "interposer.session")

    def taken() -> list[str]:
        texts = [record.getMessage() for record in caplog.records if record.name == "interposer.session"]
        caplog.clear()
        return texts

    return taken


# --- the same as before -----------------------------------------------------------------------------------------------


def test_a_saved_model_gives_and_explains_the_same(path: Path, warnings: Any) -> None:
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(path)
        explained, values, first = str(model.explain()), model.values, model.run([X])
        second = model.run([X])
    with ip.load(path) as loaded:
        assert (str(loaded.explain()), loaded.values) == (explained, values)
        assert all(map(same, loaded.run([X]), first))
        assert all(map(same, loaded.run([X]), second))
        assert warnings() == []


def test_an_optimized_network_is_saved_by_itself(path: Path) -> None:
    optimized = ip.optimize(mixed(), ["CpuRef"])
    optimized.save(path)
    with ip.load(path) as loaded, ip.load(mixed(), ["CpuRef"]) as model:
        assert all(map(same, loaded.run([X]), model.run([X])))
        assert str(loaded.explain()) == str(optimized.explain())


def test_a_saved_network_is_recognised_by_its_content(path: Path, tmp_path: Path) -> None:
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(path)
    path.rename(tmp_path / "net.onnx")
    content = (tmp_path / "net.onnx").read_bytes()
    with ip.load(tmp_path / "net.onnx") as first, ip.load(content) as second, open(tmp_path / "net.onnx", "rb") as file:
        assert all(map(same, first.run([X]), second.run([X])))
        assert ip.load(file, format="saved").name == "mixed"


def test_inner_values_can_be_requested(path: Path) -> None:
    with ip.load(mixed(), ["CpuRef"]) as model:
        model.save(path)
        with ip.load(path) as loaded:
            assert same(loaded(X, "product"), model(X, "product"))


def test_a_loaded_model_can_be_saved_copied_and_pickled(path: Path, tmp_path: Path) -> None:
    with ip.load(mixed(), ["CpuRef"], options=OptimizerOptions(hints={"product": "CpuRef"})) as model:
        model.save(path)
        right = model.run([X])
    with ip.load(path) as loaded:
        loaded.save(tmp_path / "again.ipn")
        models = [copy.copy(loaded), pickle.loads(pickle.dumps(loaded)), ip.load(tmp_path / "again.ipn")]
    assert (tmp_path / "again.ipn").read_bytes() == path.read_bytes()
    for other in models:
        assert all(map(same, other.run([X]), right))
        other.close()


def test_open_dimensions_stay_open(path: Path) -> None:
    with ip.load(open_network(), ["CpuRef"]) as model:
        for count in (1, 3):
            model.run([np.ones((count, 8), np.float32)])
        model.save(path)
        with ip.load(path) as loaded:
            assert len(ip.saved.describe(path).variants) == 2
            assert loaded.inputs["x"].shape == model.inputs["x"].shape
            for count in (3, 1, 5):
                x = np.random.default_rng(count).standard_normal((count, 8), np.float32)
                assert all(map(same, loaded.run([x]), model.run([x])))


def test_variants_are_optimized_for_shapes_that_no_call_had(path: Path) -> None:
    with ip.load(open_network(), ["CpuRef"]) as model:
        with pytest.raises(InvalidArgumentError, match=r"^the shapes of 'x' .* run the model once"):
            model.save(path)
        model.save(path, shapes=[{"batch": 2}, {"x": (4, 8)}])
    assert [variant.shapes for variant in ip.saved.describe(path).variants] == [{"x": (2, 8)}, {"x": (4, 8)}]


def test_networks_that_depend_on_values_have_a_variant_for_each(path: Path) -> None:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])]
    file = helper.make_model(helper.make_graph(nodes, "values", inputs, outputs)).SerializeToString()
    x, shape = np.arange(6, dtype=np.float32), np.array([2, 3])
    with ip.load(file, ["CpuRef"]) as model:
        right = model.run([x, shape])
        model.save(path)
    with ip.load(path) as loaded:
        assert all(map(same, loaded.run([x, shape]), right))
        assert loaded.needed_values in ((), ("shape",))


def test_the_plan_and_the_options_are_saved(path: Path) -> None:
    plan = Plan("digits", ("CpuRef",), {"type:Softmax": "CpuRef"})
    with ip.load(DIGITS, plan=plan) as model:
        model.save(path)
    with ip.load(path) as loaded:
        assert loaded.plan == plan
    options = OptimizerOptions(reduce_fp32_to_fp16=True, exclude={"Softmax": ("LiteRt",)})
    with ip.load(DIGITS, ["CpuRef"], options=options) as model:
        model.save(path)
        right = model.run([IMAGE])
    with ip.load(path) as loaded:
        assert all(map(same, loaded.run([IMAGE]), right))


def test_metadata_and_signatures_are_saved(path: Path) -> None:
    from interposer.frontends.template import Metadata, Template

    network = open_network()
    x = {"x": ip.TensorInfo(("batch", 8))}
    template = Template(
        "open", x, {"y": None}, lambda shapes, values: network, {"x": (2, 8)},
        {"score": lambda: Template("open", x, {"y": None}, lambda shapes, values: network)},
        lambda: Metadata("a description", {"version": b"1"}, {"labels.txt": b"cat\n"}),
    )  # fmt: skip
    with ip.load(template, ["CpuRef"]) as model:
        model.save(path)
    with ip.load(path) as loaded:
        assert loaded.metadata == Metadata("a description", {"version": b"1"}, {"labels.txt": b"cat\n"})
        assert list(loaded.signatures) == ["score"]
        rows = np.ones((2, 8), np.float32)
        assert same(loaded.run([rows], signature="score")[0], loaded.run([rows])[0])


# --- random networks and samples --------------------------------------------------------------------------------------


def check_random(number: int, path: Path) -> None:
    """Compare a random network, with random hints, with the same network after it was saved and loaded."""
    created = random_network(31, number)
    rng = random.Random(number)
    ids = ["CpuAcc", "CpuRef"] if number % 5 else ["CpuRef"]
    hints = {layer.name: rng.choice(ids) for layer in created.network.graph if rng.random() < 0.4}
    feeds = {layer.name: created.feeds[layer.op.binding_id] for layer in created.network.graph.inputs}  # type: ignore[attr-defined]
    with ip.load(created.network, ids, options=OptimizerOptions(hints=hints)) as model:
        (model.optimized if number % 3 == 0 else model).save(path)
        with ip.load(path) as loaded:
            assert all(map(same, loaded.run(feeds), model.run(feeds))), created.id
            assert str(loaded.explain()) == str(model.explain()), created.id


def test_random_networks_give_the_same_bits(cpuacc: None, path: Path, warnings: Any) -> None:
    for number in range(60):
        check_random(number, path)
    assert warnings() == []


@pytest.mark.slow
def test_many_random_networks_give_the_same_bits(cpuacc: None, path: Path) -> None:
    for number in range(60, 1500):
        check_random(number, path)


@pytest.mark.slow
def test_all_samples_give_the_same_bits(path: Path) -> None:
    compared = 0
    for sample in all_samples():
        network, feeds = sample.network()
        inputs = {layer.name: feeds[layer.op.binding_id] for layer in network.graph.inputs}  # type: ignore[attr-defined]
        try:
            with ip.load(network, ["CpuRef"]) as model:
                model.optimized.save(path)
                first, second = model.run(inputs), model.run(inputs)
        except (ip.errors.UnsupportedLayerError, ip.errors.BindingError):
            continue  # the reference has no kernel, or the arrays are for the runtime alone
        with ip.load(path) as loaded:
            random = not all(map(same, first, second))  # it gives other numbers in every run
            assert random or all(map(same, loaded.run(inputs), first)), sample.id
        compared += 1
    assert compared > 10_000


# --- compiled parts ---------------------------------------------------------------------------------------------------

kernel = KernelTable()
_FUNCTIONS: dict[str, Any] = {"ABS": np.abs, "NEG": np.negative}


@kernel(ElementwiseUnary, when=lambda op, info: None if op.operation.name in _FUNCTIONS else "it is unknown")
def _unary(op: Any, x: Any) -> Any:
    return _FUNCTIONS[op.operation.name](x)


class _Program(Workload):
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def execute(self, inputs: Any, outputs: Any) -> None:
        with inputs[0].mapped() as x, outputs[0].mapped() as out:
            for name in self.names:
                x = _FUNCTIONS[name](x)
            out[...] = x


class _Factory(KernelWorkloadFactory):
    def create_workload(self, layer: Any, info: Any) -> Workload:
        return _Program(layer.op.object)


class Saving(Backend):
    """Compiles chains of layers to lists of names, which are saved as text; `build` is its identity."""

    id = "Saving"
    kernels = kernel
    build = "1"
    log: list[str] = []
    damaged = False

    @property
    def identity(self) -> str:
        return self.build

    def optimize_subgraph(self, view: Any, options: Any) -> OptimizationViews:
        self.log.append("compiled")
        names = [layer.op.operation.name for layer in view]
        return OptimizationViews(view, substitutions=[Substitution(view, PreCompiled(object=names))])

    def create_workload_factory(self, memory_manager: Any, options: Any) -> Any:
        return _Factory(self.kernels, memory_manager)

    def save_compiled(self, compiled: Any) -> SavedPart:
        return SavedPart([" ".join(compiled).encode()])

    def restore_compiled(self, saved: SavedPart, options: Any) -> Any:
        if self.damaged:
            raise RuntimeError("it is of another year")
        self.log.append("restored")
        return bytes(saved.pieces[0]).decode().split()


def chain() -> ip.Network:
    network = ip.Network("chain")
    x = network.add_input_layer(0, ip.TensorInfo((3,)), name="x")
    negative = network.add_elementwise_unary_layer(x, operation=UnaryOperation.NEG, name="neg")
    absolute = network.add_elementwise_unary_layer(negative, operation=UnaryOperation.ABS, name="abs")
    network.add_output_layer(0, network.add_elementwise_unary_layer(absolute, operation=UnaryOperation.SQRT), name="y")
    return network


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Saving, "log", [])
    monkeypatch.setattr(Saving, "build", "1")
    monkeypatch.setattr(Saving, "damaged", False)
    with ip.Runtime() as runtime:
        runtime.registry.register("Saving", Saving)
        yield runtime


V = np.float32([4, -9, 16])


def test_a_python_backend_restores_what_it_saved(path: Path, runtime: Any, warnings: Any) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)
        explained = str(model.explain())
    Saving.log.clear()
    with ip.load(path, runtime=runtime) as loaded:
        assert (loaded.run([V])[0].tolist(), Saving.log) == ([2, 3, 4], ["restored"])
        assert (str(loaded.explain()), warnings()) == (explained, [])


def test_another_build_of_a_backend_compiles_again_and_says_so(path: Path, runtime: Any, warnings: Any) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)
    Saving.log.clear()
    Saving.build = "2"
    with ip.load(path, runtime=runtime) as loaded:
        assert (loaded.run([V])[0].tolist(), Saving.log) == ([2, 3, 4], ["compiled"])
        note = "backend 'Saving' has compiled its compiled part again: the file is for '1', and this is '2'"
        assert warnings() == [f"{path}: {note}"]
        assert f"WARNING: {note}" in loaded.explain().notes


def test_what_was_compiled_again_is_not_reported_by_the_next_file(path: Path, tmp_path: Path, runtime: Any) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)
        explained = str(model.explain())
    Saving.build = "2"
    with ip.load(path, runtime=runtime) as loaded:
        assert "has compiled its compiled part again" in str(loaded.explain())
        loaded.save(tmp_path / "again.ipn")
        loaded.optimized.save(tmp_path / "optimized.ipn")
    for name in ("again.ipn", "optimized.ipn"):
        with ip.load(tmp_path / name, runtime=runtime) as loaded:
            assert str(loaded.explain()) == explained


def test_a_part_that_cannot_be_restored_is_compiled_again(path: Path, runtime: Any, warnings: Any) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)
    Saving.log.clear()
    Saving.damaged = True
    with ip.load(path, runtime=runtime) as loaded:
        assert (loaded.run([V])[0].tolist(), Saving.log) == ([2, 3, 4], ["compiled"])
        [warning] = warnings()
        assert warning == (
            f"{path}: backend 'Saving' has compiled a part again, as it could not restore it: it is of another year"
        )


def test_without_a_backend_the_network_is_optimized_again(path: Path, runtime: Any, warnings: Any) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)
    with ip.Runtime() as other:
        other.registry.register("Saving", _Missing)
        with ip.load(path, runtime=other) as loaded:
            assert loaded.run([V])[0].tolist() == [2, 3, 4]
            note = "the saved network was optimized again: backend 'Saving' is not available here: it is unplugged"
            assert warnings() == [f"chain: {note}"]
            assert f"WARNING: {note}" in loaded.explain().notes


class _Missing(Backend):
    id = "Saving"

    @classmethod
    def unavailable(cls) -> str:
        return "it is unplugged"


def test_other_backends_can_be_requested(path: Path, runtime: Any) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)
    with ip.load(path, ["CpuRef"], runtime=runtime) as loaded:
        assert (loaded.run([V])[0].tolist(), loaded.explain().counts()) == ([2, 3, 4], {"CpuRef": 3})


def test_the_fallback_still_works(path: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with ip.load(chain(), ["Saving", "CpuRef"], runtime=runtime) as model:
        model.save(path)

    def fail(self: Any, inputs: Any, outputs: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(_Program, "execute", fail)
    with ip.load(path, runtime=runtime) as loaded:
        assert loaded.run([V])[0].tolist() == [2, 3, 4]
        assert [event.backend for event in loaded.events] == ["Saving"]


def test_an_isolated_backend_compiles_its_parts_when_it_is_loaded(path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("backends are isolated on Linux only")
    options = ip.CreationOptions(isolate={"CpuRef": Isolation()})
    with ip.Runtime(options) as isolated, ip.load(mixed(), ["CpuRef"], runtime=isolated) as model:
        model.save(path)
        right = model.run([X])
        with ip.load(path, runtime=isolated) as loaded:
            assert all(map(same, loaded.run([X]), right))
    with ip.load(path) as loaded:
        assert all(map(same, loaded.run([X]), right))


def test_cpuacc_restores_its_blobs(cpuacc: None, path: Path, warnings: Any) -> None:
    with ip.load(DIGITS, ["CpuAcc", "CpuRef"]) as model:
        model.save(path)
        [variant] = ip.saved.check(path).variants
        assert variant.compiled == variant.parts
        with ip.load(path) as loaded:
            assert all(map(same, loaded.run([IMAGE]), model.run([IMAGE])))
    assert warnings() == []


def test_another_number_of_threads_is_reported(cpuacc: None, path: Path, warnings: Any) -> None:
    with ip.Runtime(ip.CreationOptions(num_threads=2)) as two, ip.load(DIGITS, ["CpuAcc"], runtime=two) as model:
        model.save(path)
        right = model.run([IMAGE])
    code = (
        "import interposer, logging, numpy, sys; logging.basicConfig(stream=sys.stdout, level=logging.WARNING)\n"
        f"print(interposer.load({str(path)!r}).run([numpy.zeros((1, 1, 8, 8), numpy.float32)])[0].shape)"
    )
    environment = os.environ | {"INTERPOSER_NUM_THREADS": "3"}
    result = subprocess.run(
        [*warm.python(), "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert "backend 'CpuAcc' has compiled its compiled part again: the file is for 'threads " in result
    assert str(right[0].shape) in result


def test_a_file_of_another_version_of_the_package_is_optimized_again(
    path: Path, warnings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ip.load(mixed(), ["CpuRef"]) as model:
        monkeypatch.setattr("interposer.saved.writing.__version__", "0.0.9")
        model.save(path)
        with ip.load(path) as loaded:
            assert all(map(same, loaded.run([X]), model.run([X])))
    [warning] = warnings()
    assert "the saved network was optimized again: it was saved by interposer 0.0.9, and this is" in warning


# --- files ------------------------------------------------------------------------------------------------------------


def large() -> ip.Network:
    """Return a network with 4 MiB of weights."""
    network = ip.Network("large")
    x = network.add_input_layer(0, ip.TensorInfo((1, 1024)), name="x")
    weights = np.random.default_rng(1).standard_normal((1024, 1024), np.float32)
    product = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights, name="w"), name="product")
    network.add_output_layer(0, product, name="y")
    return network


def test_constants_are_used_where_the_file_is_mapped(path: Path) -> None:
    with ip.load(large(), ["CpuRef"]) as model:
        model.save(path)
    with ip.load(path) as loaded:
        memory = loaded.memory()
        assert memory.mapped_constants == memory.constants >= 1 << 22


def test_a_file_that_is_written_to_after_it_was_mapped_is_noticed(path: Path) -> None:
    with ip.load(large(), ["CpuRef"]) as model:
        model.save(path)
    with ip.load(path) as loaded:
        os.utime(path, ns=(1, 1))
        with pytest.raises(LoadError, match="was written to after its constants were mapped"):
            loaded.run([np.zeros((1, 1024), np.float32)], ["product"])


def test_a_file_that_is_cut_before_it_is_loaded_is_refused(path: Path) -> None:
    with ip.load(large(), ["CpuRef"]) as model:
        model.save(path)
    os.truncate(path, 1 << 21)
    with pytest.raises(ParseError, match="header: the file has 2,097,152 bytes; expected"):
        ip.load(path)


def test_writers_of_one_file_do_not_disturb_each_other(path: Path) -> None:
    with ip.load(mixed(), ["CpuRef"]) as model:
        threads = [threading.Thread(target=model.save, args=(path,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ip.saved.check(path).name == "mixed"
    assert os.listdir(path.parent) == [path.name]


def test_a_model_that_is_closed_leaves_no_mapping(path: Path) -> None:
    with ip.load(large(), ["CpuRef"]) as model:
        model.save(path)
    with ip.load(path) as loaded:
        loaded.run([np.zeros((1, 1024), np.float32)])
    del loaded
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()


# --- what cannot be saved ---------------------------------------------------------------------------------------------


def test_options_of_other_types_are_refused(path: Path, runtime: Any) -> None:
    options = OptimizerOptions(model_options={"CpuRef": {"Table": [1, 2]}})  # type: ignore[dict-item]
    optimized = ip.optimize(mixed(), ["CpuRef"])
    with pytest.raises(InvalidArgumentError) as caught:
        replace(optimized, model_options=options.model_options).save(path)
    assert str(caught.value) == (
        "option 'Table' of backend CpuRef cannot be saved: it is list; expected a number, a text or a boolean"
    )
    assert not path.exists()


def test_a_closed_model_and_open_shapes_cannot_be_saved(path: Path) -> None:
    model = ip.load(mixed(), ["CpuRef"])
    model.close()
    with pytest.raises(InvalidArgumentError, match="the model 'mixed' is closed"):
        model.save(path)
    lacking = "give all of its sizes"
    with ip.load(open_network(), ["CpuRef"]) as opened, pytest.raises(InvalidArgumentError, match=lacking):
        opened.save(path, shapes=[{}])
