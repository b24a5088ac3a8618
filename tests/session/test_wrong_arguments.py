"""Arguments of the wrong kind for public methods: an error of ours for every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InterposerError, InvalidArgumentError, UnknownBackendError
from interposer.session.placement import Search
from interposer.testing import check_backend, samples_of

pytestmark = pytest.mark.needs_cpuref
X = np.ones(4, np.float32)
WRONG: list[Any] = ["a", 1.5, object(), [1], [None], {"x": 1}, b"x", np.ones(3), [X, X], {0: [[1], [1, 2]]}]


@pytest.fixture(scope="module")
def model() -> ip.Model:
    network = ip.Network("twice")
    x = network.add_input_layer(0, ip.TensorInfo((4,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    return ip.load(network, "CpuRef", runtime=ip.Runtime())


CALLS: dict[str, Callable[[ip.Model, int, Any], object]] = {
    "run": lambda model, number, wrong: model.run(wrong),
    "outputs": lambda model, number, wrong: model.run([X], wrong),
    "bind": lambda model, number, wrong: model.bind([X], wrong),
    "import": lambda model, number, wrong: model.import_inputs(wrong),
    "enqueue": lambda model, number, wrong: model.runtime.enqueue_workload(number, wrong),
    "numbers": lambda model, number, wrong: model.runtime.enqueue_workload(number, {0: X}, imported_inputs=wrong),
    "submit": lambda model, number, wrong: model.runtime.submit(number, wrong).result(),
    "arrays": lambda model, number, wrong: model.runtime.imported_arrays(number, "input", wrong),
    "reasons": lambda model, number, wrong: model.runtime.copy_reasons(number, [wrong]),
    "registry": lambda model, number, wrong: model.runtime.registry.get(wrong),
    "placement": lambda model, number, wrong: ip.OptimizerOptions(placement=wrong),
    "protected": lambda model, number, wrong: ip.CreationOptions(protected_mode=wrong),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_what_cannot_be_meant_is_an_error_of_ours(
    model: ip.Model, call: Callable[[ip.Model, int, Any], object], wrong: Any
) -> None:
    [number] = model.runtime.loaded_networks
    with pytest.raises(InterposerError):
        call(model, number, wrong)


@pytest.mark.parametrize("wrong", ["a", [1], 0, float("nan")])
def test_a_budget_is_a_number_of_seconds(model: ip.Model, wrong: Any) -> None:
    with pytest.raises(InterposerError, match="^budget_seconds must be more than 0, and finite"):
        model.explain(measure=True, budget_seconds=wrong)


def open_network() -> ip.Network:
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo((None, 4)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    return network


def options_for(backend: str) -> ip.OptimizerOptions:
    return ip.OptimizerOptions(model_options={backend: {"bogus": 1}})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backends": ["CpuReff"]}, "unknown backend 'CpuReff'; did you mean 'CpuRef'"),
        ({"backends": ["CpuRef"], "options": options_for("CpuRef")}, "backend CpuRef has no option 'bogus'"),
        ({"backends": "auto", "options": options_for("CpuRef")}, "backend CpuRef has no option 'bogus'"),
        ({"options": options_for("CpuReff")}, "unknown backend 'CpuReff'; did you mean 'CpuRef'"),
        ({"options": options_for("OnnxRuntime")}, "is not one of the backends that are used unless backends are named"),
        ({"options": ip.OptimizerOptions(exclude={"Softmax": ["Nobody"]})}, "unknown backend 'Nobody'"),
        ({"backends": ["CpuRef"], "options": ip.OptimizerOptions(hints={"x": "No"})}, "hint for layer 'x' names"),
    ],
)
def test_a_network_with_open_shapes_refuses_names_when_it_is_loaded(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidArgumentError, UnknownBackendError), match=message):
        ip.load(open_network(), **arguments)


def test_integers_of_numpy_are_numbers_like_any_other() -> None:
    two = np.int64(2)
    assert ip.CreationOptions(num_threads=two).num_threads == 2
    assert ip.Limits(max_bytes=two).max_bytes == 2
    assert Search(blocks=two, budget_seconds=np.float32(1)).blocks == 2
    model = ip.load(open_network(), ["CpuRef"])
    assert model.run([np.ones((two, 4), np.float32)], deadline=np.float32(60))[0].tolist() == [[2.0] * 4] * 2


def test_a_flag_of_numpy_is_named_as_it_was_given() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        ip.load(open_network(), ["CpuRef"], fallback=np.bool_(True))
    assert str(error.value) == f"fallback must be True, False or None, not {np.True_!r}"


HUGE = 10**400


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ip.RunControl(HUGE), "a deadline must be a number of seconds above 0, not 1"),
        (lambda: ip.RunControl(True), "a deadline must be a number of seconds above 0, not True"),
        (lambda: ip.OptimizerOptions(placement="measured", budget_seconds=HUGE), "budget_seconds must be more than 0"),
        (lambda: ip.CreationOptions(probe_seconds=HUGE), "probe_seconds must be a number, not 1"),
        (lambda: ip.Isolation(deadline_seconds=HUGE), "deadline_seconds must be a positive number of seconds, not 1"),
        (lambda: ip.quantize(open_network(), [X], target=HUGE), "target must be a number, not 1"),
        (lambda: ip.Limits(max_bytes=float("nan")), "max_bytes must be a number or None, not nan"),  # type: ignore[arg-type]
        (lambda: ip.Limits(max_bytes=np.float32("nan")), "max_bytes must be a number or None, not nan"),  # type: ignore[arg-type]
    ],
)
def test_numbers_that_float64_cannot_hold_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{message}"):
        call()


def test_a_network_has_an_output() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^outputs is empty, so no layer would run; name one value or more"):
        ip.load(open_network(), "CpuRef", outputs=[])


@pytest.mark.parametrize("path", [None, 3, True, b"model.ipn", ["model.ipn"]])
def test_a_file_is_written_to_a_path(model: ip.Model, path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="^a path must be a text or a path object, not "):
        model.save(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": ["y", "y"]}, "outputs: 'y' is named twice; name each value once"),
        ({"outputs": {"y", "x"}}, "the order of outputs matters, and a set has none; pass a list, such as ['x', 'y']"),
        ({"inputs": {"y", "x"}}, "the order of inputs matters, and a set has none; pass a list, such as ['x', 'y']"),
        ({"shapes": {"n": "3"}}, "shapes: 'n' is a dimension; expected its size, a whole number, not '3'"),
        ({"shapes": {"n": True}}, "shapes: 'n' is a dimension; expected its size, a whole number, not True"),
    ],
)
def test_arguments_of_load_that_cannot_be_meant_are_refused(arguments: dict[str, Any], message: str) -> None:
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo(("n",)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(network, "CpuRef", **arguments)
    assert str(caught.value) == message


PATHLESS: dict[str, Callable[[Any], object]] = {
    "profile": lambda wrong: ip.Profile().save(wrong),
    "plan": ip.Plan.load,
}


@pytest.mark.parametrize("wrong", [None, {}, 3])
@pytest.mark.parametrize("call", PATHLESS.values(), ids=PATHLESS)
def test_a_path_of_no_type_is_refused(call: Callable[[Any], object], wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="^a path must be a text or a path object, not "):
        call(wrong)


def test_one_backend_of_a_calibration_is_a_text() -> None:
    with pytest.raises(UnknownBackendError, match="^unknown backend 'Nope'"):
        ip.quantize(open_network(), [X[np.newaxis]], backends="Nope")


def test_a_measurement_is_asked_for_by_true(model: ip.Model) -> None:
    with pytest.raises(InvalidArgumentError, match="^measure must be True or False, not 'yes'"):
        model.explain(measure="yes")  # type: ignore[arg-type]


def test_samples_and_patterns_of_the_kit_have_types() -> None:
    with pytest.raises(InvalidArgumentError, match="^samples are those of an operator, such as .*, not 'Softmax'"):
        samples_of("Softmax")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="^samples are those of an operator, such as .*, not int$"):
        samples_of(int)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="^only must be a list of names, not 3"):
        check_backend("CpuRef", only=3)  # type: ignore[arg-type]
