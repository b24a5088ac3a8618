"""What a plug-in in C does wrong is found by the kit, which names the layer and the tensor."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.cli.main import main
from interposer.testing import Status, check_backend
from tests.native import SOURCES, Natives, compiler_for
from tests.parameters import one_in

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dynamic backends are only for Linux"),
    pytest.mark.usefixtures("warm_python"),
]

PLAIN = ("-Wno-error",)


@pytest.fixture
def plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Builds the plug-in that `new-backend` writes, after a change of its source, and gives its path."""

    def plugin(right: str = "", wrong: str = "", name: str = "backend.c") -> str:
        folder = tmp_path / "project"
        assert main(["new-backend", "Npu", "--lang", "c", "--folder", str(folder)]) == 0
        source, target = folder / "src" / "backend.c", folder / "Local_Npu_backend.so"
        if right:
            text = (folder / "src" / name).read_text()
            assert text.count(right) == 1
            (folder / "src" / name).write_text(text.replace(right, wrong))
        words = [compiler_for("c"), "-shared", "-fPIC", f"-I{folder / 'include'}", source, "-o", target]
        subprocess.run([str(word) for word in words], check=True)
        return str(target)

    return plugin


def test_a_write_past_the_end_of_an_output_is_reported_with_the_layer_and_the_output(plugin) -> None:
    path = plugin("for (n = 0; n < made->count; ++n)", "for (n = 0; n < made->count + 1; ++n)")
    [result] = check_backend(path, only="results/Addition-float32").results
    assert (result.status, result.text) == (
        Status.FAIL,
        "it said yes, but then: layer 'layer' (Addition) failed on backend Npu: execute wrote outside of output 0, at "
        "byte 96 of 96",
    )


def test_a_write_to_an_input_is_reported_with_the_layer_and_the_input(plugin) -> None:
    path = plugin("sum[n] = a[n] + b[n]", "sum[n] = a[n] + b[n], ((float*)a)[n] = 0")
    results = check_backend(path, only=["results/Addition-float32", "inputs/Addition-float32"]).failures
    assert any("layer 'layer' (Addition)" in result.text and "input 0" in result.text for result in results), results


@pytest.mark.parametrize(
    ("right", "wrong", "edge"),
    [
        ("sum[n] = a[n] + b[n]", "sum[n] = a[n] + b[n], (void)*(volatile const float*)(a + n + 1)", "end at"),
        ("sum[n] = a[n] + b[n]", "sum[n] = a[n] + b[n], (void)*(volatile const float*)(b + n - 1)", "begin after"),
    ],
    ids=["after the end", "before the beginning"],
)
@pytest.mark.parametrize("variant", ["bound", "imported"])
def test_a_read_outside_of_an_input_is_reported_with_the_sample(
    plugin, variant: str, right: str, wrong: str, edge: str
) -> None:
    [result] = check_backend(plugin(right, wrong), only=f"guards/{variant}", families=["elementwise"]).results
    assert result.status is Status.FAIL
    assert "the backend crashed with SIGSEGV" in result.text
    assert f"Addition-float32, on inputs and outputs that {edge} a page that must not be accessed" in result.text


def test_a_plugin_without_errors_passes_on_guarded_pages(plugin) -> None:
    report = check_backend(plugin(), only="guards/*", families=["elementwise"])
    assert report.counts["pass"] == 2


PROFILING_ERRORS = {
    "an interval has no end": (
        ".end_ns = end,", ".end_ns = 0,", "intervals", "^the interval 'add' ends before it begins, or has no end",
    ),
    "the clock of the device is read wrongly": (
        "out->device_ns = device_now()", "out->device_ns = host_now()",
        "intervals", "^the interval 'add', on the clock of the device 'Npu 0', is not inside a run of the network",
    ),
    "events are counted twice": (
        "  profile.added = 0; /*", "  /*", "counters", "^the counter 'elements added' has .* again in the next report",
    ),
    "values are not numbers": (
        "out_values[n] = values[n]", "out_values[n] = 0.0 / 0.0", "counters",
        "has the value nan; expected a finite number",
    ),
    "two counters have one name": (
        '.name = TEXT("bandwidth"), .category = TEXT("memory")',
        '.name = TEXT("elements added"), .category = TEXT("work")',
        "ids", "^register_counters raised InvalidArgumentError: the counter 'elements added' cannot be registered: the "
        "category 'work' has a counter of this name",
    ),
    "it measures while profiling is disabled": (
        "  if (on) profile.first = profile.count = profile.lost = 0, profile.added = profile.rate = 0;\n"
        "  profile.on = on;", "  profile.on = 1, (void)on;", "switching",
        "^the interval 'add' is from before profiling was enabled",
    ),
    "disabling fails": (
        "  profile.on = on;\n  pthread_mutex_unlock(&profile.mutex);\n  return IPR_OK;",
        "  profile.on = on;\n  pthread_mutex_unlock(&profile.mutex);\n"
        '  return on ? IPR_OK : ipr_fail(error, IPR_UNAVAILABLE, IPR_ITEM_NONE, -1, "no driver");',
        "switching", "^enable_profiling raised .*no driver",
    ),
    "collecting never ends": (
        "*out_count = n,", "*out_count = capacity,", "intervals",
        "^report_intervals raised BackendContractError: .*collect has filled the room",
    ),
    "more is collected than there is room for": (
        "*out_count = n,", "*out_count = capacity + 1,", "intervals",
        "^report_intervals raised BackendContractError: .*collect wrote 4,097 intervals, but had room for 4,096",
    ),
}  # fmt: skip


@pytest.mark.parametrize("error", one_in(3, PROFILING_ERRORS))
def test_an_error_in_the_profiling_of_a_plugin_is_found(error: str, plugin) -> None:
    right, wrong, variant, message = PROFILING_ERRORS[error]
    path = plugin(right, wrong, "profiling.h")
    failures = check_backend(path, only=f"profiling/{variant}", families=["elementwise"]).failures
    assert any(re.search(message, failure.text) for failure in failures), [str(failed) for failed in failures]


@pytest.mark.parametrize(
    ("shifts", "message"),
    [
        (
            (1_000_000_000, 0),
            "^report_intervals raised BackendContractError: .*the interval 'add' ends before it begins",
        ),
        ((-5_000_000_000, -5_000_000_000), "^the interval 'add', on the host's clock, is not inside a run"),
        ((-100_000, 50_000_000), "^the interval 'add', on the host's clock, is not inside a run"),
    ],
    ids=["backwards", "early", "long"],
)
def test_an_error_in_intervals_of_the_host_is_found(
    shifts: tuple[int, int], message: str, natives: Natives, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, shift in zip(("SHIFT_OF_BEGIN", "SHIFT_OF_END"), shifts, strict=True):
        monkeypatch.setenv(name, str(shift))
    path = natives.install(tmp_path, "Tests_Measured_backend.so", Path("measured.cpp"))
    failures = check_backend(str(path), only="profiling/intervals", families=["elementwise"]).failures
    assert any(re.search(message, failure.text) for failure in failures), [str(failed) for failed in failures]


def test_the_plugin_itself_has_no_error_in_its_profiling(plugin) -> None:
    report = check_backend(plugin(), only="profiling/*", families=["elementwise"])
    assert [result.text for result in report.results if result.status is not Status.PASS] == []


PRIVATE_ERRORS = {
    "it ignores the strides of its own tensors": (
        "views[p->count] = (view){data_of(out), out->strides};",
        "int64_t dense[RANKS]; int axis; int64_t step = 4;\n"
        "  for (axis = out->rank - 1; axis >= 0; step *= out->shape[axis--]) dense[axis] = step;\n"
        "  views[p->count] = (view){data_of(out), dense};",
        "results/Addition-float32",
        "output 0: .* elements are wrong",
    ),
    "it runs without its first input": (
        "ipr_input_at(run, p->operand[n] - 1)->native_handle", "ipr_input_at(run, p->count - 1)->native_handle",
        "results/Addition-float32", "output 0: .* elements are wrong",
    ),
    "it says that it ran, but did not": (
        "if (p->kind == 'C') return IPR_OK;", "return IPR_OK;",
        "results/Addition-float32", "what the kit filled the memory with",
    ),
    "it writes to its input": (
        "view to = {data_of(out), out->strides};",
        "view to = {data_of(out), out->strides};\n    *(float*)data_of(in) += 1;",
        "inputs/Addition-float32", r"the workload of layer 'layer' \(Addition\) wrote to its input 0",
    ),
    "a copy returns before it has copied": (
        "AT_COPY\n  for", "return IPR_OK;\n  for",
        "order/Addition-float32", "the device copy of .* copied wrong values to",
    ),
    "tensors that live at the same time lie at one place": (
        "offset < other->offset + other->room && other->offset < offset + one->room", "offset > SIZE_MAX - 1",
        "memory/contents", "they overlap",
    ),
    "its table has no entry for copies": (
        "allocate, no_map, no_unmap, copy, no_import", "allocate, no_map, no_unmap, 0, no_import",
        "results/Addition-float32", "the table of ipr.handles/1: its member copy is NULL",
    ),
    "its table has no entry for tensors": (
        "acquire, give_back, create_tensor, create_sub_tensor", "acquire, give_back, 0, create_sub_tensor",
        "results/Addition-float32", "the table of ipr.handles/1: its member create_tensor is NULL",
    ),
    "it crashes where a tensor is private": (
        "const tensor* out = tensor_of(result->native_handle);", "const tensor* out = (const tensor*)result->data;",
        "results/Addition-float32", "crashed with SIGSEGV\nit was running layer 'layer'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("error", one_in(4, PRIVATE_ERRORS))
def test_an_error_in_the_private_memory_of_a_plugin_is_found(error: str, natives: Natives, tmp_path: Path) -> None:
    right, wrong, case, message = PRIVATE_ERRORS[error]
    text = (SOURCES / "discrete.c").read_text(encoding="utf-8")
    assert text.count(right) >= 1
    path = natives.install(tmp_path, "Tests_DiscreteC_backend.so", text.replace(right, wrong), *PLAIN)
    failures = check_backend(str(path), only=case).failures
    assert any(re.search(message, failure.text, re.DOTALL) for failure in failures), [
        str(failed) for failed in failures
    ]
