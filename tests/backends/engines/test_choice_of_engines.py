"""Which backends are used where none is named, and what becomes of options that a backend refuses."""

from __future__ import annotations

import sys
from subprocess import run

import numpy as np
import pytest

import interposer as ip
from interposer.backend import Backend, Capabilities, KernelTable
from interposer.core.errors import BackendUnavailableError, InvalidArgumentError
from interposer.core.types import DataType
from interposer.ops import Addition
from interposer.plugins import BackendRegistry, DeviceSpec, process_registry
from tests.backends.engines.adapters import PLACES, engine_class

kernel = KernelTable()


@kernel(Addition, dtypes={DataType.FLOAT32})
def addition(op, a, b, *, out):
    np.add(a, b, out=out)


class Usual(Backend):
    id = "Usual"
    kernels = kernel


class Named(Usual):
    """Takes part where it is named, and has no options."""

    id = "Named"
    capabilities = Capabilities(OnlyByName=True)

    def layer_support(self, options):
        if options:
            raise InvalidArgumentError(f"Named has no option {next(iter(options))!r}")
        return super().layer_support(options)


def device(*kinds: type[Backend]) -> DeviceSpec:
    registry = BackendRegistry()
    for kind in kinds:
        registry.register(kind.id, kind)
    return DeviceSpec(registry)


def twice() -> ip.Network:
    network = ip.Network("twice")
    x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"))
    return network


def test_a_backend_only_by_name_takes_no_part_where_none_is_named():
    both = device(Named, Usual)
    assert (both.supported_backends, both.default_backends) == (("Named", "Usual"), ("Usual",))
    assert [placement.backend for placement in ip.optimize(twice(), None, both).placements] == ["Usual"]
    assert [placement.backend for placement in ip.optimize(twice(), ["Named"], both).placements] == ["Named"]


def test_where_all_backends_are_only_by_name_one_must_be_named():
    with pytest.raises(BackendUnavailableError, match="none was named, and only by name are used Named"):
        ip.optimize(twice(), None, device(Named))


def test_options_that_a_backend_refuses_are_an_error_and_no_reason_to_use_another_backend():
    options = ip.OptimizerOptions(model_options={"Named": {"speed": 2}})
    with pytest.raises(InvalidArgumentError, match="Named has no option 'speed'"):
        ip.optimize(twice(), ["Named", "Usual"], device(Named, Usual), options)


def test_to_know_of_engines_nothing_of_them_is_imported():
    names = [engine_class(name).packages[0] for name in PLACES]
    code = (
        "import sys; from interposer.plugins import process_registry; process_registry().records();"
        f"print([name for name in {names!r} if name.partition('.')[0] in sys.modules])"
    )
    result = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_what_is_used_where_no_backend_is_named_imports_neither_engines_nor_kernels():
    code = (
        "import sys, interposer as ip; ip.default_runtime().device_spec.default_backends;"
        "unwanted = ('interposer.backends.engines', 'interposer.kernels.kernel_families', 'interposer.writers.tflite');"
        "print([name for name in unwanted if name in sys.modules])"
    )
    result = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_backends_that_are_known_to_be_used_only_if_named_say_so_themselves():
    registry = process_registry()
    known = [name for name in registry.ids if registry.is_by_name_only(name)]
    assert set(PLACES) <= set(known)
    assert all(
        registry.get(name).capabilities.has("OnlyByName") for name in known if registry.reason_absent(name) is None
    )
