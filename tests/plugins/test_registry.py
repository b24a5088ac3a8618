"""Which backends exist: registration, scopes, and those that are left out."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import ClassVar

import pytest

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from interposer.backend import Backend, BackendId, Capabilities
from interposer.core.errors import (
    BackendUnavailableError,
    DuplicateBackendError,
    InvalidArgumentError,
    UnknownBackendError,
    UnsupportedLayerError,
)
from interposer.ops import Addition, BatchMatMul
from interposer.plugins import BackendRecord, BackendRegistry, DeviceSpec
from tests.devices import Sums


class Plain(Backend):
    id: ClassVar = "Plain"
    version: ClassVar = "2.1"
    capabilities: ClassVar = Capabilities(HasFp16=False)


class Missing(Backend):
    id: ClassVar = "Missing"

    @classmethod
    def unavailable(cls) -> str | None:
        return "there is no such device"


@pytest.fixture
def registry() -> BackendRegistry:
    backend_registry = BackendRegistry()
    backend_registry.register("Plain", Plain)
    backend_registry.register("Missing", Missing, source="a test")
    return backend_registry


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "a backend id must be a text other than '' and 'Unknown', not ''"),
        ("Unknown", "a backend id must be a text other than '' and 'Unknown', not 'Unknown'"),
        (None, "a backend id must be a text other than '' and 'Unknown', not None"),
        ("Two Words", "a backend id must not contain blanks, commas or colons, as 'Two Words' does"),
        ("A,B", "a backend id must not contain blanks, commas or colons, as 'A,B' does"),
    ],
)
def test_an_id_that_cannot_be_one_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        BackendId(name)
    assert str(caught.value) == text


def test_an_id_is_a_text_and_a_class_makes_one_of_a_plain_text() -> None:
    assert BackendId("Plain") == "Plain"
    assert type(Plain.id) is BackendId


def test_a_class_with_an_id_that_cannot_be_one_cannot_be_made() -> None:
    with pytest.raises(InvalidArgumentError, match="must not contain blanks"):
        type("Bad", (Backend,), {"id": "Bad Id"})


# --- registration -----------------------------------------------------------------------------------------------------


def test_a_registered_backend_is_made_once_when_it_is_first_asked_for(registry: BackendRegistry) -> None:
    assert registry.get("Plain") is registry.get("Plain")
    assert isinstance(registry.get("Plain"), Plain)


def test_a_registry_can_be_asked_what_it_has(registry: BackendRegistry) -> None:
    assert registry.ids == ("Plain", "Missing")
    assert list(registry) == ["Plain", "Missing"]
    assert len(registry) == 2
    assert registry.is_registered("Missing")
    assert "Missing" in registry
    assert "missing" not in registry
    assert 5 not in registry
    assert registry.available() == ("Plain",)


def test_records_say_of_each_backend_whether_it_is_available_and_why_not(registry: BackendRegistry) -> None:
    assert registry.records() == [
        BackendRecord("Plain", True, "registered by code", "", "2.1", (("HasFp16", False),)),
        BackendRecord("Missing", False, "a test", "there is no such device"),
    ]
    assert registry.records()[0].to_dict() == {
        "id": "Plain",
        "available": True,
        "source": "registered by code",
        "reason": "",
        "version": "2.1",
        "capabilities": {"HasFp16": False},
    }


def test_a_second_backend_of_one_id_is_refused_and_both_are_named(registry: BackendRegistry) -> None:
    with pytest.raises(DuplicateBackendError) as caught:
        registry.register("Missing", Plain)
    assert str(caught.value) == "backend 'Missing' (registered by code) is refused: the id is taken (a test)"
    assert caught.value.backend == "Missing"


def test_an_unknown_id_is_named_with_the_nearest_that_is_known(registry: BackendRegistry) -> None:
    with pytest.raises(UnknownBackendError) as caught:
        registry.get("Plian")
    assert str(caught.value) == "unknown backend 'Plian'; did you mean 'Plain'? (known: Plain, Missing)"


def test_an_unavailable_backend_is_an_error_with_its_reason(registry: BackendRegistry) -> None:
    with pytest.raises(BackendUnavailableError) as caught:
        registry.get("Missing")
    assert str(caught.value) == "backend 'Missing' is not available: there is no such device"
    assert registry.reason_absent("Missing") == "there is no such device"
    assert registry.reason_absent("Plain") is None


def test_a_backend_that_is_not_available_is_logged_once(
    registry: BackendRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        for _ in range(3):
            registry.available()
    assert caplog.messages == ["backend Missing (a test) is not available: there is no such device"]
    assert caplog.records[0].levelname == "INFO"


def test_a_backend_can_be_removed_and_registered_again(registry: BackendRegistry) -> None:
    first = registry.get("Plain")
    registry.deregister("Plain")
    assert "Plain" not in registry
    registry.register("Plain", Plain)
    assert registry.get("Plain") is not first


def test_only_what_was_registered_here_can_be_removed(registry: BackendRegistry) -> None:
    with pytest.raises(UnknownBackendError, match="unknown backend 'Other'"):
        registry.deregister("Other")
    with pytest.raises(UnknownBackendError):
        BackendRegistry(registry).deregister("Plain")


def test_what_cannot_be_called_cannot_make_a_backend(registry: BackendRegistry) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        registry.register("Other", 5)  # type: ignore[arg-type]
    assert str(caught.value) == "register needs a Backend class or a function that makes one, not 5"


# --- scopes -----------------------------------------------------------------------------------------------------------


def test_a_scope_sees_the_backends_above_it_and_has_some_of_its_own(registry: BackendRegistry) -> None:
    scope = BackendRegistry(registry)
    scope.register("Sums", Sums)
    assert scope.ids == ("Plain", "Missing", "Sums")
    assert registry.ids == ("Plain", "Missing")


def test_every_scope_has_instances_of_its_own(registry: BackendRegistry) -> None:
    assert BackendRegistry(registry).get("Plain") is not registry.get("Plain")


def test_an_id_that_is_taken_above_is_taken(registry: BackendRegistry) -> None:
    with pytest.raises(DuplicateBackendError):
        BackendRegistry(registry).register("Plain", Plain)


def test_what_is_removed_above_is_gone_below(registry: BackendRegistry) -> None:
    scope = BackendRegistry(registry)
    scope.get("Plain")
    registry.deregister("Plain")
    with pytest.raises(UnknownBackendError):
        scope.get("Plain")


def test_a_disabled_backend_is_known_but_absent_in_its_scope_and_below(registry: BackendRegistry) -> None:
    scope = BackendRegistry(registry, ["Plain"])
    below = BackendRegistry(scope)
    assert registry.reason_absent("Plain") is None
    assert scope.reason_absent("Plain") == below.reason_absent("Plain") == "it is disabled"
    assert scope.records()[0] == BackendRecord("Plain", False, "registered by code", "it is disabled")


FIRST_USE = """
import sys, threading
import interposer as ip
sys.setswitchinterval(1e-6)
together, found = threading.Barrier(8), []
def use():
    together.wait()
    found.append((ip.process_registry(), ip.DeviceSpec.default().registry, ip.default_runtime()))
threads = [threading.Thread(target=use) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print([len(set(map(id, made))) for made in zip(*found)])
"""


def test_threads_that_use_the_package_first_at_the_same_time_share_one_registry() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[1, 1, 1]\n", "")


def test_a_disabled_id_of_a_backend_above_is_free_for_another(registry: BackendRegistry) -> None:
    class Another(Plain):
        version: ClassVar = "3"

    scope = BackendRegistry(registry, ["Plain"])
    assert scope.taken_by("Plain") is None
    scope.register("Plain", Another)
    assert scope.get("Plain").version == "3"
    assert scope.ids == ("Plain", "Missing")
    assert scope.taken_by("Plain") == "registered by code"
    scope.deregister("Plain")
    assert scope.reason_absent("Plain") == "it is disabled"
    assert registry.get("Plain").version == "2.1"


def test_an_id_can_be_known_without_a_backend(registry: BackendRegistry) -> None:
    registry.register_absent("Broken", "its file is damaged", source="a file")
    assert (
        registry.reason_absent("Broken") == BackendRegistry(registry).reason_absent("Broken") == "its file is damaged"
    )
    assert registry.records()[-1] == BackendRecord("Broken", False, "a file", "its file is damaged")
    with pytest.raises(DuplicateBackendError):
        registry.register_absent("Plain", "", source="")


def test_a_device_spec_shows_what_is_available(registry: BackendRegistry) -> None:
    registry.register("Sums", Sums)
    assert str(DeviceSpec(registry)) == "DeviceSpec(supported_backends=[Plain, Sums])"


@pytest.mark.needs_cpuref
def test_the_reference_backend_comes_last_among_those_that_are_available() -> None:
    with Runtime() as runtime:
        runtime.registry.register("Sums", Sums)
        assert runtime.device_spec.supported_backends[-1] == "CpuRef"


# --- without CpuRef ---------------------------------------------------------------------------------------------------


def sum_network() -> Network:
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2, 2)), name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x, name="sum"))
    return network


def product_network() -> Network:
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2, 2)), name="x")
    network.add_output_layer(0, network.add_layer(BatchMatMul(), x, x, name="product"), name="y")
    return network


def disable_too(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Disable more backends. GpuAcc stays disabled: once it has found no drivers, a process never finds any."""
    monkeypatch.setenv("INTERPOSER_DISABLED_BACKENDS", f"{os.environ['INTERPOSER_DISABLED_BACKENDS']}, {names}")


@pytest.mark.parametrize("by", ["options", "one option", "environment"])
def test_a_disabled_backend_is_skipped_with_a_message(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "environment":
        disable_too(monkeypatch, "Other, CpuRef")
    disabled: dict[str, object] = {"options": ["CpuRef"], "one option": "CpuRef", "environment": ()}
    with Runtime(CreationOptions(disabled_backends=disabled[by])) as runtime:  # type: ignore[arg-type]
        runtime.registry.register("Sums", Sums)
        optimized = optimize(sum_network(), ["CpuRef", "Sums"], runtime.device_spec)
        assert [(item.id, item.reason) for item in optimized.absent] == [("CpuRef", "it is disabled")]
        assert [str(message) for message in optimized.messages] == [
            "WARNING: backend 'CpuRef' is skipped: it is disabled"
        ]
        assert optimized.explain().counts() == {"Sums": 1}
        assert runtime.device_spec.supported_backends[-1] == "Sums"


def test_the_environment_is_read_without_a_runtime_too(monkeypatch: pytest.MonkeyPatch) -> None:
    disable_too(monkeypatch, "CpuRef")
    assert "CpuRef" not in DeviceSpec.default().supported_backends
    with pytest.raises(BackendUnavailableError) as caught:
        optimize(sum_network(), ["CpuRef"])
    assert str(caught.value).startswith("backend 'CpuRef' is not available: CpuRef: it is disabled (available: ")


def test_a_layer_that_nobody_takes_is_told_together_with_who_was_absent() -> None:
    with Runtime(CreationOptions(disabled_backends=["CpuRef"])) as runtime:
        runtime.registry.register("Sums", Sums)
        with pytest.raises(UnsupportedLayerError) as caught:
            optimize(product_network(), ["Sums", "CpuRef"], runtime.device_spec)
    assert str(caught.value) == (
        "no backend in ['Sums'] can run layer 'product' (BatchMatMul)\n"
        "  a: float32[2, 2]\n"
        "  b: float32[2, 2]\n"
        "  Sums says: no kernel for BatchMatMul\n"
        "  CpuRef is absent: it is disabled"
    )


@pytest.mark.parametrize(
    ("backends", "text"),
    [
        ([], "no backends were given; name some, or give None for all that are available"),
        ([Sums], f"backends are named by their ids, such as 'CpuRef', not by {Sums!r}"),
        (Sums, f"backends are named by their ids, such as 'CpuRef', not by {Sums!r}"),
    ],
)
def test_preferences_that_are_no_ids_are_refused(backends: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        optimize(sum_network(), backends)  # type: ignore[arg-type]
    assert str(caught.value) == text


def test_ids_to_disable_or_isolate_that_no_backend_has_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INTERPOSER_DISABLED_BACKENDS", "CpuRf,CpuAcc,OpenVino:GPU")
    monkeypatch.setenv("INTERPOSER_ISOLATE", "Npu,CpuRef")
    with Runtime(CreationOptions(disabled_backends=["Npu"])) as runtime:
        known = ", ".join(sorted(runtime.registry.ids))
    assert caplog.messages == [
        f"'CpuRf' is to be disabled, but no backend has this id; did you mean 'CpuRef'? (known: {known})",
        f"'Npu' is to be disabled, but no backend has this id (known: {known})",
        f"'Npu' is to be isolated, but no backend has this id (known: {known})",
    ]
