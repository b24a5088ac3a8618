"""Every way for a plug-in to be wrong: the host survives it, says which check failed, and goes on to run a network.

Crashes and endless loops in every function are in ``test_loader.py``, lies about parts of networks one by one in
``adapter/test_lies.py``; here such plug-ins lie in a folder, beside a good one.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import interposer as ip
from interposer import Network, OptimizerOptions, TensorInfo
from interposer.core.errors import BackendUnavailableError, ExecutionError, InvalidValueError
from interposer.isolation import CRASHED, QUARANTINED, REPLACED
from interposer.ops import ActivationFunction
from interposer.plugins.capi.abi import attributes
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.library import library
from interposer.plugins.capi.loading.records import State
from tests.native import open_descriptors
from tests.parameters import one_in, slow_unless
from tests.plugins.capi.conftest import add_twice

pytestmark = pytest.mark.needs_cpuref

NOWHERE = "(void*)16"
REQUIRED = ("init", "shutdown", "get_info", "query_support", "compile", "execute")


def table_with(change):
    """The flag for a plug-in whose factory gives a changed table."""
    return f"AT_FACTORY=static ipr_backend t; t = table; {change} return &t;"


REFUSED = {
    # the functions that it exports
    "no GetBackendId": (["GetBackendId=id_of"], "file", "it does not export GetBackendId"),
    "no GetVersion": (["GetVersion=version_of"], "file", "it does not export GetVersion"),
    "no BackendFactory": (["BackendFactory=factory_of"], "file", "it does not export BackendFactory"),
    # the version
    "another major": (["MAJOR=2u"], "version", "it needs version 2.0 of the backend interface; this is 1.0"),
    "a major of the past": (["MAJOR=0u"], "version", "it needs version 0.0 of the backend interface; this is 1.0"),
    "a newer minor": (["MINOR=1"], "version", "it needs version 1.1 of the backend interface; this is 1.0"),
    "no version": (["AT_VERSION=return;"], "version", "GetVersion did not write the major version"),
    "half a version": (["AT_VERSION=*major = 1; return;"], "version", "GetVersion did not write the minor version"),
    # the id
    "a NULL id": (["AT_ID=return NULL;"], "id", "GetBackendId gave NULL"),
    "an id nowhere": ([f"AT_ID=return {NOWHERE};"], "id",
                      "GetBackendId gave no valid id: the id: 64 bytes at 0x10 cannot be read"),
    "an empty id": (['ID=""'], "id",
                    "GetBackendId gave no valid id: a backend id must be a text other than '' and 'Unknown', not ''"),
    "an id with a blank": (['ID="a b"'], "id",
                           "GetBackendId gave no valid id: a backend id must not contain blanks, commas or colons, "
                           "as 'a b' does"),
    "an id that is no UTF-8": (['ID="caf\\xe9"'], "id",
                               "GetBackendId gave no valid id: 'utf-8' codec can't decode byte 0xe9 in position 3: "
                               "unexpected end of data"),
    "an id without end": (["AT_ID=static char x[999]; memset(x, 120, 998); return x;"], "id",
                          "GetBackendId gave no valid id: it is longer than 256 bytes"),
    # the table
    "NULL from the factory": (["AT_FACTORY=return NULL;"], "factory", "BackendFactory gave NULL"),
    "a table nowhere": ([f"AT_FACTORY=return {NOWHERE};"], "table", "the table: 16 bytes at 0x10 cannot be read"),
    "another magic": ([table_with("t.magic = 1;")], "table",
                      "it begins with 0x0000000000000001, not with 0x31444e4b42525049: BackendFactory gave no "
                      "ipr_backend (a backend for Arm NN exports the same functions, and gives a C++ object)"),
    "a short struct_size": ([table_with("t.struct_size -= 8;")], "table",
                            "its struct_size is 80; version 1.0 of the interface, which GetVersion returns, needs at "
                            "least 88, and 65,536 is the most"),
    "an enormous struct_size": ([table_with("t.struct_size = 1ull << 40;")], "table",
                                "its struct_size is 1,099,511,627,776; version 1.0 of the interface, which GetVersion "
                                "returns, needs at least 88, and 65,536 is the most"),
    **{f"a NULL {name}": ([table_with(f"t.{name} = NULL;")], "table", f"its member {name} is NULL")
       for name in REQUIRED},
    "data for code": ([table_with("t.execute = (void*)&t;")], "table", None),
    "data for an optional function": ([table_with("t.optimize = (void*)&t;")], "table", None),
    # what it says
    "failing get_info": (['AT_INFO=return ipr_fail(error, IPR_FAILED, 0, -1, "who knows?");'], "info",
                         "get_info: who knows?"),
    "failing init": (['AT_INIT=return ipr_fail(error, 77, 0, -1, "the fan is stuck");'], "init",
                     "init: status 77: the fan is stuck"),
    "failing init without a word": (["AT_INIT=return IPR_OUT_OF_MEMORY;"], "init",
                                    "init: out of memory, without a message"),
    "an error that is no UTF-8": (['AT_INIT=return ipr_fail(error, IPR_FAILED, 0, -1, "caf\\xe9");'], "init",
                                  "init: caf\N{REPLACEMENT CHARACTER}"),
    "an error longer than its buffer": (
        ["AT_INIT=memset(error->text, 120, error->capacity); error->length = 1000000; return IPR_FAILED;"], "init",
        f"init: {'x' * 4096}... (1,000,000 bytes)"),
    "an error past its buffer": (
        ["AT_INIT=memset(error->text, 120, error->capacity + 9); error->length = 5; return IPR_FAILED;"], "init",
        "init wrote past the end of the error's text"),
}  # fmt: skip
"""Flags for the adder, the step at which it is refused, and the record's reason; None if addresses are in it."""


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Check that no file remains, and that no more descriptors are open than before."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = targets_of_descriptors()
    yield
    gc.collect()  # an error that the test has caught refers to its frame, and so to the model
    assert list(folder.iterdir()) == []
    end = time.monotonic() + 60
    while not targets_of_descriptors() <= before and time.monotonic() < end:
        time.sleep(
            0.01
        )  # the thread that reads the events of a child process closes its socket when the child has ended
    assert targets_of_descriptors() <= before


def targets_of_descriptors():
    return {open_descriptor.partition(": ")[2] for open_descriptor in open_descriptors()}


@pytest.fixture
def beside(install, runtime_of):
    """Installs a defective adder of these flags beside a good one; checks the good one, and gives the record."""

    def beside(flags, **options):
        install("A_Wrong_backend.so", **{"ID": '"Wrong"'} | dict(flag.split("=", 1) for flag in flags))
        return goes_on(install, runtime_of, **options)

    return beside


def goes_on(install, runtime_of, **options):
    """The record of the first file in the folder; with a good one beside it, and CpuRef, networks run."""
    install("B_Adder_backend.so")
    runtime = runtime_of(**options)
    wrong, good = runtime.dynamic_backends()
    assert good.state is State.LOADED
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]
    assert add_twice(runtime, "CpuRef") == [3.0, 6.0, 9.0]
    return wrong


def refusal(record):
    return record.state.value, record.step.value, record.reason


# --- files that are refused when they are loaded ----------------------------------------------------------------------


def adds_a_kind(fault):
    return not fault.startswith(("a NULL ", "an id ", "failing ")) or fault in (
        "a NULL execute",
        "an id nowhere",
        "failing init",
    )


@pytest.mark.parametrize("fault", slow_unless(adds_a_kind, REFUSED))
def test_a_plug_in_that_is_wrong_is_refused_for_what_is_wrong(fault, beside):
    flags, step, reason = REFUSED[fault]
    result = refusal(beside(flags, probe_seconds=0))  # a probe does the same in another process
    if reason is None:
        assert result[:2] == ("refused", step)
        assert re.fullmatch(r"its member (execute|optimize) is 0x[0-9a-f]+, which is no code", result[2])
    else:
        assert result == ("refused", step, reason)


def test_an_id_may_have_256_bytes(beside):
    assert beside([f'ID="{256 * "x"}"'], probe_seconds=0).state is State.LOADED


@pytest.mark.parametrize("fault", one_in(3, ["failing init", "no GetVersion", "another major", "a short struct_size"]))
def test_a_probe_finds_the_same(fault, beside):
    flags, step, reason = REFUSED[fault]
    assert refusal(beside(flags)) == ("refused", step, reason)


def test_a_plug_in_for_arm_nn_is_known_for_what_it_is(natives, install, runtime_of, tmp_path):
    natives.install(tmp_path / "plugins", "Arm_GpuAcc_backend.so", Path("arm_nn.cpp"))
    state, step, reason = refusal(goes_on(install, runtime_of))
    assert (state, step) == ("refused", "table")
    assert re.fullmatch(
        r"it begins with 0x[0-9a-f]{16}, not with 0x31444e4b42525049: BackendFactory gave no ipr_backend "
        r"\(a backend for Arm NN exports the same functions, and gives a C\+\+ object\)",
        reason,
    )


@pytest.mark.parametrize("fault", ["a text", "an empty file", "another architecture", "half a file"])
def test_a_file_that_is_no_library_for_this_machine_is_refused(fault, install, runtime_of):
    path = install("A_Wrong_backend.so")
    content = path.read_bytes()
    if sys.maxsize < 2**32 or content[18:20] != b"\x3e\x00":
        pytest.skip("the example is for x86-64")
    wrong, reason = {
        "a text": (b"backend\n", "it is not an ELF file"),
        "an empty file": (b"", "it is not an ELF file, but empty"),
        "another architecture": (
            content[:18] + b"\xb7\x00" + content[20:],
            "it is for AArch64 (64-bit, little-endian), but this process is x86-64 (64-bit, little-endian)",
        ),
        "half a file": (
            content[: len(content) // 2],
            "it is damaged: an offset in it is beyond the end of the file",
        ),
    }[fault]
    path.write_bytes(wrong)
    assert refusal(goes_on(install, runtime_of)) == ("refused", "file", reason)


def test_an_id_of_another_backend_is_skipped(beside):
    assert refusal(beside(['ID="CpuRef"'], probe_seconds=0)) == (
        "skipped", "register", "the id 'CpuRef' is registered already (entry point of interposer-nn)",
    )  # fmt: skip


# --- files that look wrong and are not --------------------------------------------------------------------------------


def test_a_larger_struct_size_is_loaded(install, runtime_of):
    install(
        AT_FACTORY="static struct { ipr_backend t; char more[64]; } s; s.t = table; s.t.struct_size += 64; return &s;"
    )
    runtime = runtime_of(probe_seconds=0)
    assert runtime.dynamic_backends()[0].state is State.LOADED
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]


def test_an_older_minor_is_loaded_and_never_shown_what_is_newer(install, runtime_of, monkeypatch):
    """The host as it will be: at version 1.1, with a larger table and a layer that is newer."""
    monkeypatch.setitem(abi.TABLE_SIZES, 1, abi.TABLE_SIZES[0] + 8)
    monkeypatch.setattr(library, "version_problem", partial(library.version_problem, supported=(1, 1)))
    monkeypatch.setattr(attributes, "_shown", {})
    monkeypatch.setitem(attributes.LAYERS, "Activation", (1, {"input": 1}, {}))
    look = 'for (n = 0; n < graph->layer_count; ++n) if (ipr_equal(ipr_layer_at(graph, n)->type, "Activation")) CRASH'
    install("A_Old_backend.so", ID='"Old"', AT_SUPPORT=look, AT_COMPILE=look)
    runtime = runtime_of(probe_seconds=0)
    assert [
        (dynamic_backend.id, dynamic_backend.version, dynamic_backend.state)
        for dynamic_backend in runtime.dynamic_backends()
    ] == [("Old", "1.0", State.LOADED)]
    model = ip.load(sums_and_relu(), ["Old", "CpuRef"], runtime=runtime)
    assert model.run([[1, -2, 3]])[0].tolist() == [3, -2, 9]
    [refused] = [item for item in model.optimized.refusals if item.layer == "relu"]
    assert refused.reasons == ("layer type newer than revision 0 of the vocabulary",)


# --- files that pass, and go wrong later ------------------------------------------------------------------------------


def sums_and_relu():
    """Return a network that computes relu(x + x) + x."""
    network = Network("sums")
    x = network.add_input_layer(0, TensorInfo((3,)), name="x")
    twice = network.add_addition_layer(x, x, name="twice")
    relu = network.add_activation_layer(twice, function=ActivationFunction.RELU, name="relu")
    network.add_output_layer(0, network.add_addition_layer(relu, x, name="last"), name="y")
    return network


LIES = {
    "too many verdicts": "query_support gave 3 verdicts for 2 layers",
    "an unknown verdict": "query_support gave the verdict 17 for layer 'first' (Addition); expected 0 to 3",
    "verdicts nowhere": "the list of verdicts: 96 bytes at 0x10 cannot be read",
    "a broken reason": "caf\N{REPLACEMENT CHARACTER} and \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",
    "a layer that is missing": "substitution 0 names layer 60; there are 2",
    "a negative layer": "substitution 0 names layer -1; there are 2",
    "overlapping substitutions": "substitution 1 names layer 0, 'first' (Addition), which is named already",
    "a long error": f"{'x' * 4096}... (1,000,000 bytes)",
    "an error past its end": "compile wrote past the end of the error's text",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_a_refusal_and_the_next_backend_runs_the_layers(lie, natives, runtime_of, tmp_path):
    natives.install(tmp_path / "plugins", "Tests_Liar_backend.so", Path("liar.c"))
    runtime = runtime_of(probe_seconds=0)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((4,)))
    first = network.add_addition_layer(x, x, name="first")
    network.add_output_layer(0, network.add_addition_layer(first, x, name="second"))
    options = OptimizerOptions(model_options={"Liar": {"lie": lie}})
    model = ip.load(network, ["Liar", "CpuRef"], runtime=runtime, options=options)
    assert LIES[lie] in "; ".join(text for item in model.optimized.refusals for text in item.reasons)
    assert "CpuRef" in {placement.backend for placement in model.optimized.placements}


def test_what_is_written_behind_an_output_is_found_in_checking_mode(install, runtime_of, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CHECK_BACKENDS", "yes")
    install(AT_EXECUTE="((char*)ipr_output_at(run, 0)->data)[ipr_output_at(run, 0)->size + 2] = 1;")
    runtime = runtime_of(probe_seconds=0)
    with pytest.raises(ExecutionError) as caught:
        add_twice(runtime, "Adder")
    assert "failed on backend Adder: execute wrote outside of output 0, at byte 14 of 12" in str(caught.value)
    model = ip.load(sums_and_relu(), ["Adder", "CpuRef"], runtime=runtime, fallback=True)
    assert model.run([[1, -2, 3]])[0].tolist() == [3, -2, 9]
    assert REPLACED in [event.kind for event in model.events]


def test_a_probe_finds_what_is_written_behind_an_output(beside):
    write = "AT_EXECUTE=((char*)ipr_output_at(run, 0)->data)[ipr_output_at(run, 0)->size + 2] = 1;"
    state, step, reason = refusal(beside([write]))
    assert (state, step) == ("refused", "probe")
    assert reason.startswith("a small network does not run: ")
    assert reason.endswith("execute wrote outside of output 0, at byte 130 of 128")


@pytest.mark.parametrize(
    ("fault", "ending"),
    [("CRASH", "was killed by SIGSEGV"), ("HANG", "did not answer within 1 s")],
    ids=["crash", "hang"],
)
@pytest.mark.parametrize("place", slow_unless("EXECUTE".__eq__, ["SUPPORT", "COMPILE", "EXECUTE"]))
def test_one_that_passes_the_probe_and_fails_later_is_survived_where_it_is_isolated(
    place, fault, ending, install, runtime_of, monkeypatch
):
    install(**{f"AT_{place}": f'if (getenv("ADDER_FAILS") != NULL) {fault}'})
    limits = ip.Isolation(max_restarts=0, deadline_seconds=1 if fault == "HANG" else 120)
    runtime = runtime_of(isolate={"Adder": limits})
    [record] = runtime.dynamic_backends()
    assert (record.state, record.reason) == (State.LOADED, "")
    monkeypatch.setenv("ADDER_FAILS", "yes")
    model = ip.load(sums_and_relu(), ["Adder", "CpuRef"], runtime=runtime, fallback=True)
    assert model.run([[1, -2, 3]])[0].tolist() == [3, -2, 9]
    kinds = [event.kind for event in runtime.events]
    assert kinds[:2] == [CRASHED, QUARANTINED]
    with pytest.raises(BackendUnavailableError) as caught:
        runtime.registry.get("Adder")
    assert caught.value.reason == f"its child process {ending}"


FROZEN = Path(__file__).parents[1] / "native" / "frozen" / "1.0"
REFUSES_NINE = "if (((const float*)ipr_input_at(run, 0)->data)[1] == 9) "


@pytest.mark.parametrize("header", ["the present one", "the frozen one"])
def test_a_value_that_a_backend_refuses_is_the_callers_error(header, install, runtime_of):
    present = 'return ipr_fail_value(error, 0, 0, 1, 9, -2, 4, "nine is too much");'
    frozen = 'return ipr_fail(error, 12, IPR_ITEM_LAYER, 0, "nine is too much");'
    returned = present if header == "the present one" else frozen
    flags = [] if header == "the present one" else [f"-iquote{FROZEN}"]
    install("Tests_Adder_backend.so", *flags, AT_EXECUTE=REFUSES_NINE + returned)
    model = ip.load(sums_and_relu(), ["Adder", "CpuRef"], runtime=runtime_of())
    for _ in range(2):
        assert model.run([[1, -2, 3]])[0].tolist() == [3, -2, 9]
        with pytest.raises(InvalidValueError, match="nine is too much") as caught:
            model.run([[1, 9, 3]])
        assert caught.value.backend == "Adder"
        assert caught.value.allowed == ((-2, 4) if header == "the present one" else None)
    assert model.events == ()


def test_a_backend_whose_device_goes_away_is_replaced(install, runtime_of):
    gone = 'if (getenv("ADDER_FAILS") != NULL) return ipr_fail(error, IPR_DEVICE_LOST, 0, -1, "unplugged");'
    install(AT_EXECUTE=gone)
    runtime = runtime_of()
    model = ip.load(sums_and_relu(), ["Adder", "CpuRef"], runtime=runtime, fallback=True)
    assert model.run([[1, -2, 3]])[0].tolist() == [3, -2, 9]
    ctypes.CDLL(None).setenv(b"ADDER_FAILS", b"yes", 1)
    try:
        assert model.run([[1, -2, 3]])[0].tolist() == [3, -2, 9]
    finally:
        ctypes.CDLL(None).unsetenv(b"ADDER_FAILS")
    [event] = model.events
    assert event.kind == REPLACED
    assert "unplugged" in event.text
