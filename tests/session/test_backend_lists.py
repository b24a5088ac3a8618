"""Lists of backends: one id as a text everywhere, and clear errors for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import interposer as ip
from interposer.analysis.compare import compare
from interposer.core.errors import InvalidArgumentError, UnknownBackendError
from interposer.session.placement import Plan, Search, place

pytestmark = pytest.mark.needs_cpuref


def network() -> ip.Network:
    network = ip.Network("sum")
    x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="twice"), name="y")
    return network


def exclude(ids: Any) -> ip.OptimizerOptions:
    return ip.OptimizerOptions(exclude={"Addition": ids})


PREFERENCES: list[Callable[[Any], object]] = [
    lambda ids: ip.load(network(), ids),
    lambda ids: ip.Model(network(), ip.Runtime(), ids),
    lambda ids: ip.optimize(network(), ids),
    lambda ids: place(network(), ip.Runtime(), ids, None, Search(0.01)),
]
OTHERS: list[Callable[[Any], object]] = [
    exclude,
    lambda ids: ip.CreationOptions(disabled_backends=ids),
    lambda ids: ip.CreationOptions(isolate=ids),
]


@pytest.mark.parametrize("take", [*PREFERENCES, *OTHERS])
def test_one_id_is_a_list_of_one(take: Callable[[Any], object]) -> None:
    take("CpuRef")
    take(["CpuRef"])
    take(iter(("CpuRef",)))


@pytest.mark.parametrize("take", PREFERENCES)
@pytest.mark.parametrize("given", [1, [1], [None], b"CpuRef", {"CpuRef": 1}, [["CpuRef"]]])
def test_what_is_no_id_is_named(take: Callable[[Any], object], given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="^backends are named by their ids, such as 'CpuRef', not by "):
        take(given)


@pytest.mark.parametrize("take", [*PREFERENCES, *OTHERS])
def test_one_text_with_commas_gets_a_hint(take: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        take("CpuAcc, CpuRef")
    hint = "backends: 'CpuAcc, CpuRef' is one text with commas; pass a list: ['CpuAcc', 'CpuRef']"
    titles = ("", "exclude['Addition']: ", "disabled_backends: ", "isolate: ")
    assert str(caught.value) in [f"{title}{hint}" for title in titles]


@pytest.mark.parametrize("take", PREFERENCES)
def test_a_set_of_several_ids_is_refused_as_it_has_no_order(take: Callable[[Any], object]) -> None:
    take({"CpuRef"})
    hint = "the order of backends matters, and a set has none; pass a list, such as ['CpuAcc', 'CpuRef']"
    for ids in ({"CpuRef", "CpuAcc"}, frozenset({"CpuRef", "CpuAcc"}), dict.fromkeys(["CpuRef", "CpuAcc"]).keys()):
        with pytest.raises(InvalidArgumentError) as caught:
            take(ids)
        assert str(caught.value) == hint


def test_lists_without_an_order_may_be_sets() -> None:
    assert exclude({"CpuRef", "CpuAcc"}).exclude == {"Addition": ("CpuAcc", "CpuRef")}
    ip.CreationOptions(disabled_backends={"CpuRef", "CpuAcc"})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["auto", ["AUTO"]])
def test_optimizing_cannot_measure_placements(given: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.optimize(network(), given)
    name = given if isinstance(given, str) else given[0]
    assert str(caught.value) == (
        f"backends: {name!r} measures which placement is fastest, which only interposer.load does; "
        "name backends here, or give None for all that are available"
    )


def test_a_plan_takes_one_id_for_a_list() -> None:
    plan = Plan("twice", "CpuRef", {}, {"Addition": "CpuAcc"})  # type: ignore[arg-type,dict-item]
    assert (plan.backends, plan.exclude) == (("CpuRef",), {"Addition": ("CpuAcc",)})
    assert plan == Plan("twice", ("CpuRef",), {}, {"Addition": ("CpuAcc",)})
    with pytest.raises(InvalidArgumentError, match="^a plan's backends: 'CpuAcc,CpuRef' is one text with commas; pass"):
        Plan("twice", "CpuAcc,CpuRef", {})  # type: ignore[arg-type]


@pytest.mark.parametrize("take", [exclude, OTHERS[1]])
@pytest.mark.parametrize("given", [1, [1], [None], {"CpuRef": 1}])
def test_other_lists_name_their_argument(take: Callable[[Any], object], given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"(exclude\['Addition'\]|disabled_backends): backends are named by"):
        take(given)


@pytest.mark.parametrize("take", PREFERENCES)
def test_an_unknown_id_comes_with_the_nearest(take: Callable[[Any], object]) -> None:
    with pytest.raises(UnknownBackendError, match="^unknown backend 'CpuReff'; did you mean 'CpuRef'"):
        take("CpuReff")


@pytest.mark.parametrize("given", ["auto", "AUTO", ["Auto"]])
def test_auto_is_taken_in_any_case(given: Any) -> None:
    options = ip.OptimizerOptions(budget_seconds=0.01)
    assert ip.load(network(), given, options=options).plan is not None


def test_auto_beside_others_gets_a_hint() -> None:
    with pytest.raises(InvalidArgumentError, match="'auto' chooses among all backends, so it stands alone"):
        ip.load(network(), ["auto", "CpuRef"])


def test_excluded_backends_are_lists_afterwards() -> None:
    assert exclude("CpuAcc").exclude == {"Addition": ("CpuAcc",)}


def test_hints_are_ids_of_layers_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="^the hint for layer 'twice' must be the id of a backend, not 1"):
        ip.OptimizerOptions(hints={"twice": 1})  # type: ignore[dict-item]


def test_comparing_takes_two_ids() -> None:
    with pytest.raises(InvalidArgumentError, match="^compare takes two different backends, not CpuRef"):
        compare(network(), "CpuRef")
    with pytest.raises(InvalidArgumentError, match="^backends are named by their ids"):
        compare(network(), [1, 2])  # type: ignore[list-item]


def test_an_empty_list_is_refused_on_load_although_a_dimension_is_open():
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo((None,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="twice"), name="y")
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(network, [])
    assert str(caught.value) == "no backends were given; name some, or give None for all that are available"
