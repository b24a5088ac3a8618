"""Contexts and blobs of plug-ins; the Rust binding; plug-ins of version 1.0 under later headers."""

import ctypes
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, TensorInfo, optimize
from interposer.core.errors import InvalidArgumentError, LoadError, PluginError, UnsupportedLayerError
from interposer.ir.subgraph import SubgraphView
from interposer.ops import PreCompiled
from interposer.plugins.capi.abi import attributes, flatten
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.caching.blobs import Blob
from interposer.testing import check_backend
from tests.native import SOURCES

ROOT = Path(__file__).parents[4]


def sums(constant=False, name="twice"):
    """Return a network that computes ``(x + x) + x``, or ``(x + x) + [1, 2, 3]``."""
    network = Network("sums")
    x = network.add_input_layer(0, TensorInfo((3,)), name="x")
    other = network.add_constant_layer(np.float32([1, 2, 3]), name="c") if constant else x
    twice = network.add_addition_layer(x, x, name=name)
    network.add_output_layer(0, network.add_addition_layer(twice, other, name="more"))
    return network


def run(runtime, optimized):
    network_id = runtime.load_network(optimized)
    return runtime.enqueue_workload(network_id, {0: np.float32([1, 2, 3])})[0].tolist()


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# --- contexts ---------------------------------------------------------------------------------------------------------


def test_a_context_is_told_of_every_network(backend, runtime_with, caplog):
    plugin = backend("arithmetic.cpp")
    runtime = runtime_with(plugin)
    network_id = runtime.load_network(optimize(sums(), ["Arithmetic"], runtime.device_spec))
    runtime.unload_network(network_id)
    assert lines(caplog) == ["created -1", *(f"{what} 0" for what in (
        "before_load", "after_load", "before_unload", "after_unload"
    ))]  # fmt: skip
    runtime.close()
    assert lines(caplog)[-1] == "destroyed -1"


def test_a_context_that_refuses_says_why(backend, runtime_with):
    runtime = runtime_with(backend("arithmetic.cpp", options={"refuse": True}))
    with pytest.raises(LoadError, match="networks are not welcome"):
        runtime.load_network(optimize(sums(), ["Arithmetic"], runtime.device_spec))
    assert runtime.loaded_networks == ()


def test_a_plug_in_without_the_extensions_has_no_context_and_no_blobs(backend):
    for source in ("kernels.cpp", "liar.c"):
        assert backend(source).create_backend_context({}) is None
        assert backend(source).blobs is None


# --- blobs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(backend, runtime_with):
    """A backend, its compiled part, and the view that the part was made of."""

    def compiled(**how):
        plugin = backend("arithmetic.cpp")
        runtime = runtime_with(plugin)
        network = sums(**how)
        network.validate()
        view = SubgraphView(network.graph, [layer for layer in network.graph if layer.kind == "Addition"])
        [substitution] = plugin.optimize_subgraph(view, {}).substitutions
        return plugin, runtime, substitution.replacement.object, view

    return compiled


def test_a_saved_part_can_be_restored_and_computes_the_same(compiled):
    item, runtime, executable, _ = compiled()
    blob = item.blobs.save(executable)
    assert not blob.needs_graph
    restored = item.blobs.restore(blob)
    optimized = optimize(sums(), ["Arithmetic"], runtime.device_spec)
    [layer] = [layer for layer in optimized.graph if isinstance(layer.op, PreCompiled)]
    layer.op = PreCompiled(object=restored)
    assert run(runtime, optimized) == [3, 6, 9]


def test_a_blob_without_constants_is_restored_with_its_part(compiled):
    item, runtime, executable, view = compiled(constant=True)
    blob = item.blobs.save(executable)
    assert blob.needs_graph
    with pytest.raises(InvalidArgumentError, match="restore it with the part that was compiled"):
        item.blobs.restore(blob)
    optimized = optimize(sums(constant=True), ["Arithmetic"], runtime.device_spec)
    [layer] = [layer for layer in optimized.graph if isinstance(layer.op, PreCompiled)]
    layer.op = PreCompiled(object=item.blobs.restore(blob, view))
    assert run(runtime, optimized) == [3, 6, 9]


@pytest.mark.parametrize(
    ("damage", "options", "fault"),
    [
        (lambda data: data, {}, None),
        (lambda data: data[:-1], {}, "corrupt blob: it is truncated"),
        (lambda data: b"", {}, "corrupt blob: it is no tape"),
        (lambda data: b"TAPE9999" + data[8:], {}, "stale blob: another version of tapes"),
        (lambda data: data, {"gain": 2.0}, "stale blob: another gain"),
    ],
)
def test_blobs_are_checked_before_they_are_restored(damage, options, fault, compiled):
    item, _, executable, _ = compiled()
    blob = Blob(damage(item.blobs.save(executable).data))
    assert item.blobs.fault(blob, options) == fault
    if fault is not None:
        with pytest.raises(CallError) as caught:
            item.blobs.restore(blob, None, options)
        assert caught.value.status in (abi.STALE, abi.CORRUPT)
        assert caught.value.reason == fault


def test_a_fingerprint_depends_on_options(compiled):
    item, *_ = compiled()
    assert item.blobs.fingerprint() == "tape 1, gain 1.000000"
    assert item.blobs.fingerprint({"gain": 3}) == "tape 1, gain 3.000000"


def test_a_part_of_another_backend_cannot_be_saved(compiled):
    first, second = compiled(), compiled()
    with pytest.raises(InvalidArgumentError, match="was compiled by another backend than 'Arithmetic'"):
        first[0].blobs.save(second[2])


# --- the C++ wrapper --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.needs_cpuref
@pytest.mark.parametrize("source", ["arithmetic.cpp", "kernels.cpp"])
def test_plug_ins_of_the_tests_conform(source, backend):
    report = check_backend(lambda: backend(source), families=["activation", "elementwise"])
    assert report.ok, report


def test_the_class_in_the_documentation_is_a_backend(backend, runtime_with):
    page = (ROOT / "docs" / "c-abi.md").read_text(encoding="utf-8")
    [source] = re.findall(r"^```cpp\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    runtime = runtime_with(backend(source, language="c++"))
    assert run(runtime, optimize(sums(constant=True), ["Adder"], runtime.device_spec)) == [3, 6, 9]


# --- Rust -------------------------------------------------------------------------------------------------------------


def test_a_backend_in_rust_computes(backend, runtime_with, caplog):
    plugin = backend("arithmetic.rs")
    assert lines(caplog) == ["1 threads or more"]
    assert (plugin.version, plugin.capabilities.get("Safe")) == ("0.3", True)
    runtime = runtime_with(plugin)
    assert run(runtime, optimize(sums(), ["Sums"], runtime.device_spec)) == [3, 6, 9]


def test_reasons_and_panics_of_a_backend_in_rust_come_through(backend, runtime_with):
    runtime = runtime_with(backend("arithmetic.rs"))
    with pytest.raises(UnsupportedLayerError, match="Sums says: panicked: explode went off"):
        optimize(sums(name="explode"), ["Sums"], runtime.device_spec)
    with pytest.raises(UnsupportedLayerError, match="Sums says: not two float32 tensors of one shape"):
        optimize(sums(constant=True), ["Sums"], runtime.device_spec)


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_plug_in_built_with_the_header_of_1_0_keeps_working(runtime_with, backend):
    """With members, versions and layers that came later, of which it knows nothing."""
    text = (SOURCES / "adder.c").read_text(encoding="utf-8")
    header = (SOURCES / "frozen/1.0/interposer/backend.h").read_text(encoding="utf-8")
    plugin = backend(text.replace('#include "interposer/backend.h"', header))
    runtime = runtime_with(plugin)
    assert run(runtime, optimize(sums(), ["Adder"], runtime.device_spec)) == [3, 6, 9]


LATEST_BOTH_SIDES_KNOW = """
static uint32_t host_minor;
IPR_EXPORT void SetHostVersion(uint32_t major, uint32_t minor) {{ host_minor = major == 1 ? minor : 0; }}
static uint32_t answer(uint32_t newest) {{ return host_minor < newest ? host_minor : newest; }}
"""


def newest_that_the_host_knows(newest):
    """The text of a plug-in written to version 1.`newest` that answers a lower version on an older host."""
    text = (SOURCES / "adder.c").read_text(encoding="utf-8")
    before = "IPR_EXPORT void GetVersion"
    text = text.replace(before, LATEST_BOTH_SIDES_KNOW.format() + before)
    return text.replace("*minor = MINOR;", f"*minor = answer({newest});")


@pytest.mark.parametrize(("host", "answered"), [((1, 0), "1.0"), ((1, 1), "1.1"), ((1, 5), "1.3")])
def test_a_plug_in_learns_the_version_of_the_host_before_it_answers_its_own(host, answered, opened, monkeypatch):
    monkeypatch.setattr(abi, "API_VERSION", host)
    monkeypatch.setattr(abi, "TABLE_SIZES", {minor: abi.TABLE_SIZES[0] for minor in range(host[1] + 1)})
    assert opened(newest_that_the_host_knows(3)).identity.version == answered


def test_a_plug_in_that_ignores_the_version_of_the_host_is_still_refused_when_it_is_newer(opened, monkeypatch):
    with pytest.raises(PluginError, match=r"it needs version 1\.1 of the backend interface; this is 1\.0"):
        opened(newest_that_the_host_knows(3).replace("return host_minor <", "return 1; return host_minor <"))


def test_a_plug_in_says_which_revision_of_the_vocabulary_it_knows(opened):
    text = (SOURCES / "adder.c").read_text(encoding="utf-8")
    exported = "IPR_EXPORT uint32_t GetVocabularyRevision(void) { return 3; }\n"
    before = "IPR_EXPORT void GetVersion"
    assert opened(text).identity.vocabulary == 0
    assert opened(text.replace(before, exported + before)).identity.vocabulary == 3


def longer(kind):
    return type(kind.__name__, (ctypes.Structure,), {"_fields_": [*kind._fields_, ("later", ctypes.c_uint64 * 3)]})


def test_a_plug_in_of_1_0_keeps_working_when_structs_and_elements_grow(backend, runtime_with, monkeypatch):
    """The host has a later version, with longer structs and longer elements of arrays."""
    for name in ("Graph", "Options", "Report", "Answer", "Executable", "Run", "Info", "Host"):
        monkeypatch.setattr(abi, name, longer(getattr(abi, name)))
    for name, kind in (("_LAYER", abi.Layer), ("_TENSOR", abi.TensorInfo), ("_CONSTANT", abi.Constant)):
        monkeypatch.setattr(flatten, name, np.dtype(longer(kind)))
    for name in ("Attribute", "Verdict", "Substitution", "Failure", "Property"):
        monkeypatch.setattr(abi, name, longer(getattr(abi, name)))
    monkeypatch.setattr(abi, "Tensor", longer(abi.Tensor))
    monkeypatch.setattr(attributes, "_shown", {})
    plugin = backend("arithmetic.cpp")
    runtime = runtime_with(plugin)
    options = OptimizerOptions(model_options={"Arithmetic": {"gain": 1.0}})
    assert run(runtime, optimize(sums(constant=True), ["Arithmetic"], runtime.device_spec, options)) == [3, 6, 9]


@pytest.mark.parametrize(
    ("flags", "check", "text"),
    [
        (["-DMAJOR=2"], "version", "it needs version 2.0 of the backend interface; this is 1.0"),
        (["-DMINOR=1"], "version", "it needs version 1.1 of the backend interface; this is 1.0"),
        (["-DAT_VERSION=return;"], "version", "GetVersion did not write the major version"),
        (["-DAT_ID=return NULL;"], "id", "GetBackendId gave NULL"),
        (['-DID=""'], "id", "GetBackendId gave no valid id"),
        (['-DID="Unknown"'], "id", "GetBackendId gave no valid id"),
        (['-DID="caf\\xe9"'], "id", "GetBackendId gave no valid id"),
        (["-DAT_ID=return (const char*)8;"], "id", "GetBackendId gave no valid id"),
        (["-DAT_FACTORY=return NULL;"], "factory", "BackendFactory gave NULL"),
        (["-DAT_FACTORY=return (void*)8;"], "table", "the table: 16 bytes at 0x8 cannot be read"),
        (["-DAT_FACTORY=return (void*)GetVersion;"], "table", "BackendFactory gave no ipr_backend"),
        (["-DAT_INFO=return ipr_fail(error, IPR_FAILED, 0, -1, \"tired\");"], "info", "get_info: tired"),
        (["-DAT_INFO=out->alignment = 48;"], "info", "the alignment is 48; expected a power of two up to 4096"),
        (["-DAT_INIT=return ipr_fail(error, IPR_FAILED, 0, -1, \"tired\");"], "init", "init: tired"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_refused_by_the_name_of_the_check(flags, check, text, opened):
    with pytest.raises(PluginError) as caught:
        opened("adder.c", "-Wno-unused-function", "-Wno-error", *flags)
    assert caught.value.check == check
    assert text in str(caught.value)
    assert caught.value.path in str(caught.value)


TABLE = """
#include "interposer/backend.h"
{rest}
IPR_EXPORT const char* GetBackendId(void) {{ return "Table"; }}
IPR_EXPORT void GetVersion(uint32_t* a, uint32_t* b) {{ *a = 1; *b = 0; }}
static int32_t f(void) {{ return 0; }}
static void g(void* self) {{ (void)self; }}
static ipr_backend table[2];
IPR_EXPORT void* BackendFactory(void) {{
  ipr_backend* t = &table[0];
  t->magic = IPR_MAGIC, t->struct_size = sizeof *t, t->shutdown = g;
  t->init = (void*)f, t->get_info = (void*)f, t->query_support = (void*)f, t->compile = (void*)f, t->execute = (void*)f;
  {change}
  return t;
}}
"""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("t->struct_size = 80;", "its struct_size is 80; version 1.0 of the interface, which GetVersion returns"),
        ("t->struct_size = 1 << 20;", "its struct_size is 1,048,576"),
        ("t->magic = 0;", "it begins with 0x0000000000000000"),
        *((f"t->{name} = NULL;", f"its member {name} is NULL") for name in abi.REQUIRED),
        ("t->execute = (void*)table;", "which is no code"),
        ("t->get_extension = (void*)8;", "its member get_extension is 0x8, where there is nothing"),
    ],
)  # fmt: skip
def test_a_table_with_a_fault_is_refused(change, text, opened):
    with pytest.raises(PluginError) as caught:
        opened(TABLE.format(rest="", change=change))
    assert caught.value.check == "table"
    assert text in str(caught.value)


def test_a_longer_table_is_accepted(opened):
    assert opened(TABLE.format(rest="", change="t->struct_size = 2 * sizeof *t;")).id == "Table"
