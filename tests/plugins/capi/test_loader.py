"""From files to registered backends: every step, and what becomes of each file."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import subprocess
import threading

import numpy as np
import pytest

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from interposer.core.errors import (
    BackendUnavailableError,
    ConfigError,
    InvalidArgumentError,
    OptionError,
    UnknownBackendError,
)
from interposer.isolation import Isolation
from interposer.plugins import BackendRegistry, DeviceSpec
from interposer.plugins.capi.abi.reading import code_fault
from interposer.plugins.capi.loading.records import State, Step
from tests import warm
from tests.native import mapped_files, open_descriptors
from tests.parameters import one_in, slow_unless
from tests.plugins.capi.conftest import add_twice


def outcome(record):
    return record.file_name, record.state.value, record.step.value


# --- a backend that is loaded -----------------------------------------------------------------------------------------


def test_a_backend_is_found_loaded_and_run(install, runtime_of):
    path = install()
    runtime = runtime_of()
    [record] = runtime.dynamic_backends()
    assert (record.path, record.library, record.id, record.version) == (str(path), str(path), "Adder", "1.0")
    assert outcome(record) == ("Tests_Adder_backend.so", "loaded", "register")
    assert str(record) == f"{path} (backend Adder) is loaded"
    assert "Adder" in runtime.device_spec.supported_backends
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]


def test_a_record_is_data(install, runtime_of):
    path = install()
    [record] = runtime_of().dynamic_backends()
    assert record.to_dict() == {
        "file": "Tests_Adder_backend.so", "path": str(path), "library": str(path), "state": "loaded",
        "step": "register", "reason": "", "id": "Adder", "version": "1.0", "sha256": record.sha256,
    }  # fmt: skip
    assert record.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_registry_knows_where_a_backend_comes_from(install, runtime_of):
    path = install()
    result = next(record for record in runtime_of().registry.records() if record.id == "Adder")
    assert (result.available, result.version, result.source) == (True, "1.2.3", f"shared object {path}")


def test_a_library_that_was_linked_for_fast_arithmetic_does_not_change_that_of_its_host(install, runtime_of):
    """gcc before 13 lets such a library flush small numbers to zero in the thread that loads it."""
    install("Tests_Adder_backend.so", "-ffast-math")
    [record] = runtime_of(probe_seconds=0).dynamic_backends()
    assert record.state is State.LOADED
    assert (np.float32([1e-40]) * np.float32(1))[0] == np.float32(1e-40)


# --- names and links --------------------------------------------------------------------------------------------------

NAMES = [
    ("Arm_GpuAcc_backend.so", True),
    ("Arm_GpuAcc_backend.so.1", True),
    ("Arm_GpuAcc_backend.so.1.2", True),
    ("Arm_GpuAcc_backend.so.1.2.3", True),
    ("Arm_GpuAcc_backend.so.10.1.27", True),
    ("Arm_GpuAcc_backend.so.10.1.33.", False),
    ("Arm_GpuAcc_backend.so.3.4..5", False),
    ("Arm_GpuAcc_backend.so.1,1.1", False),
    ("Arm123_GpuAcc_backend.so", True),
    ("Arm_GpuAcc456_backend.so", True),
    ("Arm%Co_GpuAcc_backend.so", False),
    ("Arm_Gpu.Acc_backend.so", False),
    ("GpuAcc_backend.so", False),
    ("_GpuAcc_backend.so", False),
    ("Arm__backend.so", False),
    ("Arm_GpuAcc.so", False),
    ("__backend.so", False),
    ("__.so", False),
    ("Arm_GpuAcc_backend", False),
    ("Arm_GpuAcc_backend_v1.2.so", False),
    ("Arm_GpuAcc_backendXso", False),
    ("Arm_CpuAcc_backend.so", True),
]


def test_a_file_is_loaded_where_its_name_is_of_the_scheme(install, runtime_of):
    """All of them have one id, so that each but the first gets as far as its registration."""
    for name, _ in NAMES:
        install(name)
    records = runtime_of(probe_seconds=0).dynamic_backends()
    assert {record.file_name: record.step.value for record in records} == {
        name: "register" if valid else "name" for name, valid in NAMES
    }
    assert [record.state for record in records].count(State.LOADED) == 1


def test_links_and_links_to_links_to_one_library_load_it_once(install, runtime_of, tmp_path):
    install("Arm_CpuAcc_backend.so", ID='"First"')
    install("Arm_GpuAcc_backend.so", ID='"Second"')
    folder = tmp_path / "plugins"
    (folder / "Arm_CpuAcc_backend.so.1").symlink_to("Arm_CpuAcc_backend.so")
    (folder / "Arm_CpuAcc_backend.so.1.2").symlink_to(folder / "Arm_CpuAcc_backend.so.1")
    (folder / "Arm_CpuAcc_backend.so.1.2.3").symlink_to("Arm_CpuAcc_backend.so.1.2")
    os.link(folder / "Arm_GpuAcc_backend.so", folder / "Arm_GpuAcc_backend.so.5")
    (folder / "Arm_no_backend.so").symlink_to("nothing")
    records = {record.file_name: record for record in runtime_of().dynamic_backends()}
    assert [outcome(record) for record in records.values()] == [
        ("Arm_CpuAcc_backend.so", "loaded", "register"),
        ("Arm_CpuAcc_backend.so.1", "skipped", "library"),
        ("Arm_CpuAcc_backend.so.1.2", "skipped", "library"),
        ("Arm_CpuAcc_backend.so.1.2.3", "skipped", "library"),
        ("Arm_GpuAcc_backend.so", "loaded", "register"),
        ("Arm_GpuAcc_backend.so.5", "skipped", "library"),
        ("Arm_no_backend.so", "refused", "link"),
    ]
    link = records["Arm_CpuAcc_backend.so.1.2.3"]
    assert link.reason == f"it is the same file as {folder / 'Arm_CpuAcc_backend.so'}"
    assert link.library == str(folder / "Arm_CpuAcc_backend.so")
    assert records["Arm_no_backend.so"].reason == "the symbolic link leads nowhere: No such file or directory"


def test_a_link_into_another_folder_has_the_name_that_counts(install, runtime_of, tmp_path):
    library = install("whatever.bin", folder=tmp_path / "elsewhere")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "Tests_Adder_backend.so").symlink_to(library)
    [record] = runtime_of().dynamic_backends()
    assert (record.state, record.library) == (State.LOADED, str(library))


def test_links_in_a_circle_lead_nowhere(runtime_of, tmp_path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "A_B_backend.so").symlink_to("A_B_backend.so")
    [record] = runtime_of().dynamic_backends()
    assert (record.step, record.reason) == (
        Step.LINK, "the symbolic link leads nowhere: Too many levels of symbolic links",
    )  # fmt: skip


# --- order, and ids that are taken ------------------------------------------------------------------------------------


def test_of_two_files_with_one_id_the_first_folder_wins(install, tmp_path, monkeypatch):
    first = install("Arm_GpuAcc_backend.so", folder=tmp_path / "b")
    install("Arm_GpuAcc_backend.so", "-DOTHER", folder=tmp_path / "a")
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", f"{tmp_path}/b:{tmp_path}/a")
    with Runtime() as runtime:
        item, two = runtime.dynamic_backends()
    assert (item.path, two.path) == (str(first), f"{tmp_path}/a/Arm_GpuAcc_backend.so")
    assert outcome(two) == ("Arm_GpuAcc_backend.so", "skipped", "register")
    assert two.reason == f"the id 'Adder' is registered already (shared object {first})"


def test_in_a_folder_files_come_by_their_names(install, runtime_of):
    for name in ("B_B", "a_a", "A_A", "A_B"):
        install(f"{name}_backend.so", ID=f'"{name}"')
    assert [record.id for record in runtime_of().dynamic_backends()] == ["A_A", "A_B", "B_B", "a_a"]


@pytest.mark.needs_cpuref
def test_an_id_of_a_backend_of_the_package_is_taken(install, runtime_of):
    install(ID='"CpuRef"')
    runtime = runtime_of()
    [record] = runtime.dynamic_backends()
    assert outcome(record) == ("Tests_Adder_backend.so", "skipped", "register")
    assert record.reason == "the id 'CpuRef' is registered already (entry point of interposer-nn)"
    assert add_twice(runtime, "CpuRef") == [3.0, 6.0, 9.0]


def test_a_backend_takes_the_place_of_one_that_is_disabled(install, runtime_of):
    path = install(ID='"CpuRef"')
    runtime = runtime_of(disabled_backends=["CpuRef"])
    [record] = runtime.dynamic_backends()
    assert (record.id, record.state) == ("CpuRef", State.LOADED)
    result = [record for record in runtime.registry.records() if record.id == "CpuRef"]
    assert [(item.available, item.source) for item in result] == [(True, f"shared object {path}")]
    assert add_twice(runtime, "CpuRef") == [3.0, 6.0, 9.0]
    runtime.close()
    assert runtime.registry.reason_absent("CpuRef") == "it is disabled"


def test_a_backend_that_is_disabled_is_known_but_not_loaded(install, runtime_of):
    path = install(AT_SHUTDOWN="", ID='"Unwanted"')
    runtime = runtime_of(disabled_backends="Unwanted")
    [record] = runtime.dynamic_backends()
    assert (record.step, record.reason) == (Step.REGISTER, "it is disabled")
    assert runtime.registry.reason_absent("Unwanted") == "it is disabled"
    assert str(path) not in mapped_files()


# --- folders ----------------------------------------------------------------------------------------------------------


def test_every_folder_that_is_no_good_is_a_record_and_a_line(install, tmp_path, monkeypatch, caplog):
    path = install()
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", f"relative:{tmp_path}/nothing:{path}::{path.parent}")
    with caplog.at_level("WARNING"), Runtime() as runtime:
        records = runtime.dynamic_backends()
    assert [(record.path, record.step.value, record.reason) for record in records[:-1]] == [
        ("relative", "folder", "the path is not absolute"),
        (f"{tmp_path}/nothing", "folder", "the folder does not exist"),
        (str(path), "folder", "the path is not that of a folder"),
        ("", "folder", "the path is empty"),
    ]
    assert records[-1].state is State.LOADED
    assert caplog.messages == [str(record) for record in records[:-1]]


def test_a_path_of_the_caller_takes_the_place_of_the_list(install, runtime_of, tmp_path, monkeypatch):
    install("Tests_Listed_backend.so", folder=tmp_path / "listed")
    install("Tests_Named_backend.so")
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(tmp_path / "listed"))
    assert [dynamic_backend.file_name for dynamic_backend in runtime_of().dynamic_backends()] == [
        "Tests_Named_backend.so"
    ]
    [record] = runtime_of("/nothing/here").dynamic_backends()
    assert (record.path, record.reason) == ("/nothing/here", "the folder does not exist")


def test_without_folders_there_is_nothing(runtime_of, monkeypatch):
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", "")
    with Runtime() as runtime:
        assert runtime.dynamic_backends() == ()


def test_a_runtime_without_folders_does_not_import_what_loads_backends():
    code = (
        "import sys, interposer as ip; ip.Runtime(); ip.DeviceSpec.default();"
        "print([name for name in sorted(sys.modules) if name.startswith('interposer.plugins.capi.')])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "INTERPOSER_BACKEND_PATH"}
    done = subprocess.run(
        [warm.NEW_INTERPRETER, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.split() == [
        "['interposer.plugins.capi.loading',",
        "'interposer.plugins.capi.loading.paths',",
        "'interposer.plugins.capi.loading.records']",
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("given", [5, ["/a", "/b"]])
def test_there_is_exactly_one_path_of_the_caller(given):
    with pytest.raises(InvalidArgumentError, match="dynamic_backends_path must be one path, not"):
        CreationOptions(dynamic_backends_path=given)


def test_a_folder_that_must_not_be_read_is_a_record(runtime_of, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("the superuser may read everything")
    (tmp_path / "plugins").mkdir(mode=0)
    [record] = runtime_of().dynamic_backends()
    assert record.reason == "the folder cannot be read: Permission denied"


# --- files that are no backends ---------------------------------------------------------------------------------------


def test_a_name_that_would_disturb_a_terminal_is_written_with_escapes(runtime_of, tmp_path, caplog):
    (tmp_path / "plugins").mkdir()
    path = tmp_path / "plugins" / "\x1b[31m\n_backend.so"
    path.touch()
    with caplog.at_level("WARNING"):
        runtime_of()
    [line] = caplog.messages
    assert line.startswith(f"{str(path)!r} is refused: the file name ")
    assert line.isprintable()


def test_what_lies_beside_a_backend_is_recorded_and_does_not_disturb(install, runtime_of, tmp_path, caplog):
    install()
    folder = tmp_path / "plugins"
    (folder / "README.txt").write_text("hello")
    (folder / "A_Folder_backend.so").mkdir()
    (folder / "A_Text_backend.so").write_text("no library")
    os.mkfifo(folder / "A_Pipe_backend.so")
    (folder / "backend.so").touch()
    (folder / os.fsdecode(b"\xff.so")).touch()
    install("Tests_Zero_backend.so", ID='"Unwanted"')
    with caplog.at_level("WARNING"):
        result = {
            dynamic_backend.file_name: dynamic_backend
            for dynamic_backend in runtime_of(disabled_backends="Unwanted").dynamic_backends()
        }
    assert result.pop("Tests_Zero_backend.so").reason == "it is disabled"
    assert result.pop("Tests_Adder_backend.so").state is State.LOADED
    assert {name: (item.state.value, item.step.value) for name, item in result.items()} == {
        "README.txt": ("skipped", "name"),
        "A_Folder_backend.so": ("refused", "file"),
        "A_Text_backend.so": ("refused", "file"),
        "A_Pipe_backend.so": ("refused", "file"),
        "backend.so": ("refused", "name"),
        "\udcff.so": ("skipped", "name"),
    }
    assert result["A_Text_backend.so"].reason == "it is not an ELF file"
    assert result["A_Pipe_backend.so"].reason == result["A_Folder_backend.so"].reason == "it is not a regular file"
    assert caplog.messages == [str(item) for item in result.values() if item.state is State.REFUSED]


def test_a_library_without_the_functions_is_never_executed(natives, install, runtime_of, tmp_path):
    marker = tmp_path / "executed"
    source = f'#include <stdio.h>\n__attribute__((constructor)) static void f(void) {{ fopen("{marker}", "w"); }}'
    natives.install(tmp_path / "plugins", "A_B_backend.so", source)
    [record] = runtime_of().dynamic_backends()
    assert (record.step, record.reason) == (
        Step.FILE, "it does not export GetBackendId and GetVersion and BackendFactory",
    )  # fmt: skip
    assert not marker.exists()


def test_a_library_that_lacks_another_is_refused_by_the_linker(install, runtime_of):
    install(AT_SHUTDOWN="extern void missing(void); missing();")
    [record] = runtime_of().dynamic_backends()
    assert record.step is Step.OPEN
    assert record.reason.startswith("the dynamic linker refuses it: ")
    assert record.reason.endswith("undefined symbol: missing")


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "here", "fits"), [
    ((2, 4), (2, 4), True), ((2, 1), (2, 4), True), ((2, 5), (2, 4), False), ((2, 0), (1, 0), False),
    ((2, 0), (3, 0), False), ((1, 0), (1, 0), True),
])  # fmt: skip
def test_a_version_fits_where_majors_are_equal_and_the_minor_is_not_greater(backend, here, fits):
    from interposer.plugins.capi.library.library import version_problem

    assert (version_problem(backend, here) is None) is fits


@pytest.mark.parametrize(("major", "minor"), one_in(3, [(0, 0), (1, 1), (2, 0), (4294967295, 0)]))
def test_a_backend_for_another_version_is_refused(major, minor, install, runtime_of):
    install(MAJOR=f"{major}u", MINOR=minor)
    [record] = runtime_of().dynamic_backends()
    assert outcome(record) == ("Tests_Adder_backend.so", "refused", "version")


# --- the probe --------------------------------------------------------------------------------------------------------

PLACES = {
    "LOAD": "while it is loaded",
    "VERSION": "in GetVersion",
    "ID": "in GetBackendId",
    "FACTORY": "in BackendFactory",
    "INFO": "in get_info",
    "INIT": "in init",
    "SUPPORT": "in query_support",
    "COMPILE": "in compile",
    "EXECUTE": "in execute",
    "SHUTDOWN": "in shutdown",
    "UNLOAD": "while its process ends",
}


CRASHES = ("LOAD", "INFO", "EXECUTE", "UNLOAD")


@pytest.mark.parametrize(("place", "where"), slow_unless(lambda item: item[0] in CRASHES, PLACES.items()))
def test_a_backend_that_crashes_is_refused_and_others_are_loaded(place, where, install, runtime_of):
    install("A_Crashing_backend.so", ID='"Crashing"', **{f"AT_{place}": "CRASH"})
    install("B_Adder_backend.so")
    runtime = runtime_of()
    crashing, good = runtime.dynamic_backends()
    assert outcome(crashing) == ("A_Crashing_backend.so", "refused", "probe")
    assert crashing.reason == f"it crashed with SIGSEGV {where}"
    assert good.state is State.LOADED
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]


def refused(runtime_of, text):
    """Return the record of a plug-in that is refused with a text, and the time limit of its trial.

    A short limit comes first. It is raised if a busy machine exceeds it before the plug-in comes to what is expected.
    """
    for seconds in (0.5, 5, 60):
        [record] = runtime_of(probe_seconds=seconds).dynamic_backends()
        if record.reason.startswith(text):
            break
    return record, seconds


@pytest.mark.parametrize("place", slow_unless({"VERSION", "SUPPORT"}.__contains__, PLACES))
def test_a_backend_that_hangs_is_refused_when_its_time_is_over(place, install, runtime_of):
    install(**{f"AT_{place}": "HANG"})
    record, seconds = refused(runtime_of, f"it hangs {PLACES[place]}")
    assert record.step is Step.PROBE
    assert record.reason == f"it hangs {PLACES[place]}: nothing happened for {seconds:g} seconds"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("abort();", "it crashed with SIGABRT in init"),
        ("exit(0);", "it ends its process in init"),
        ("_exit(7);", "it ended its process with status 7 in init"),
        ('fputs("no device\\n", stderr); abort();', "it crashed with SIGABRT in init; it wrote 'no device'"),
        ("for (;;) write(1, ID, 1);", "it hangs in init"),
    ],
)
def test_other_ways_to_end_are_told(statement, text, install, runtime_of):
    install("Tests_Adder_backend.so", "-Wno-unused-result", "-include", "stdio.h", AT_INIT=statement)
    record, seconds = refused(runtime_of, text)
    written = f": nothing happened for {seconds:g} seconds; it wrote 'AAAA" if "hangs" in text else ""
    assert record.reason.startswith(f"{text}{written}")


def test_what_the_probe_leaves_running_is_ended(install, runtime_of):
    install(AT_INIT="if (getsid(0) == getpid() && fork() == 0) HANG")  # not in this process, which leads no session
    if os.getsid(0) == os.getpid():
        pytest.skip("the plug-in would take this process for that of the probe")
    [record] = runtime_of().dynamic_backends()
    assert record.state is State.LOADED


def test_an_id_whose_file_was_refused_is_known_with_the_reason(install, runtime_of):
    path = install(ID='"Crashing"', AT_INIT="CRASH")
    runtime = runtime_of()
    with pytest.raises(BackendUnavailableError) as caught:
        runtime.registry.get("Crashing")
    assert caught.value.reason == "it crashed with SIGSEGV in init"
    assert [record.source for record in runtime.registry.records() if record.id == "Crashing"] == [
        f"shared object {path}"
    ]


def test_a_good_verdict_is_kept_for_later_processes_and_a_bad_one_is_not(install, runtime_of, user_cache):
    good = install("A_Good_backend.so")
    install("A_Bad_backend.so", ID='"Bad"', AT_INIT="CRASH")
    runtime_of().close()
    [cached] = (user_cache / "probed").iterdir()
    assert cached.name.startswith(hashlib.sha256(good.read_bytes()).hexdigest())
    said = json.loads(cached.read_text())
    assert (said["id"], said["version"], said["options"]) == ("Adder", "1.0", {})
    assert str(good) not in said["files"]
    assert any(path.endswith(".so") or ".so." in path for path in said["files"])


def test_a_file_is_tried_again_when_a_library_that_it_needs_has_changed(
    natives, install, runtime_of, user_cache, tmp_path, monkeypatch
):
    from interposer.plugins.capi.loading import loader

    needed = natives.install(tmp_path, "libneeded.so", "int answer(void) { return 42; }\n", "-Wl,-soname,libneeded.so")
    install("A_B_backend.so", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lneeded", f"-Wl,-rpath,{tmp_path}")
    tried = []
    real = loader.probe
    monkeypatch.setattr(loader, "probe", lambda *value, **more: tried.append(value) or real(*value, **more))
    for change, times in ((lambda: None, 1), (lambda: None, 1), (lambda: os.utime(needed), 2)):
        change()
        loader.forget_verdicts()
        [record] = runtime_of().dynamic_backends()
        assert (record.state, len(tried)) == (State.LOADED, times)


MODE = """
  static const ipr_property options_[1] = {
      {.name = {"mode", 4}, .kind = IPR_KIND_INT, .scope = IPR_SCOPE_INIT}};
  out->options = options_, out->option_count = 1, out->option_stride = sizeof *options_;
"""


def test_a_file_is_tried_again_with_other_options(install, runtime_of, user_cache):
    install(AT_INFO=MODE.replace("\n", " "))
    with pytest.raises(OptionError):
        runtime_of(backend_options={"Adder": {"mod": 3}})
    [right] = runtime_of(backend_options={"Adder": {"mode": 3}}).dynamic_backends()
    assert right.state is State.LOADED


@pytest.mark.parametrize(
    "options", [{}, {"probe_seconds": 0}, {"isolate": "Adder"}, {"isolate": "Adder", "probe_seconds": 0}]
)
def test_a_misspelt_option_for_a_runtime_is_an_error_and_moves_nothing_to_another_backend(install, runtime_of, options):
    install(AT_INFO=MODE.replace("\n", " "))
    with pytest.raises(OptionError) as caught:
        runtime_of(backend_options={"Adder": {"mod": 3}}, **options)
    assert str(caught.value) == "backend 'Adder' has no option 'mod'; did you mean 'mode'? (it has: mode)"
    with pytest.raises(OptionError, match="option 'mode' of backend 'Adder' must be a int, not 'three'"):
        runtime_of(backend_options={"Adder": {"mode": "three"}}, **options)


def test_options_for_a_misspelt_backend_are_refused(runtime_of):
    with pytest.raises(UnknownBackendError, match="^unknown backend 'CpuReff'; did you mean 'CpuRef'"):
        runtime_of(path=None, backend_options={"CpuReff": {"mode": 3}})


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_does_not_start_a_backend_again_that_its_parent_has_started(install, runtime_of, tmp_path):
    marker = tmp_path / "starts"
    statement = f'FILE* f = fopen("{marker}", "a"); fputc(46, f); fclose(f);'
    install("A_B_backend.so", "-include", "stdio.h", AT_INIT=statement)
    runtime = runtime_of(probe_seconds=0)
    child = os.fork()
    if child == 0:
        runtime.close()
        gc.collect()
        [record] = Runtime(
            CreationOptions(dynamic_backends_path=tmp_path / "plugins", probe_seconds=0)
        ).dynamic_backends()
        marker.write_text(f"{marker.read_text()} {record.reason}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert marker.read_text() == ". it could not be shut down after its last use; only a new process can use it"
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]


def test_a_file_is_tried_once_as_long_as_its_content_stays(install, runtime_of, user_cache, tmp_path):
    marker = tmp_path / "loads"
    statement = f'FILE* f = fopen("{marker}", "a"); fputc(46, f); fclose(f);'
    path = install("A_B_backend.so", "-include", "stdio.h", AT_LOAD=statement)
    runtime_of().close()
    first = len(marker.read_text())
    assert first == 2  # in the probe, and here
    from interposer.plugins.capi.loading import loader

    loader.forget_verdicts()
    runtime_of().close()
    assert len(marker.read_text()) == 2  # it is known, and open
    os.utime(path)
    loader.forget_verdicts()
    (next((user_cache / "probed").iterdir())).write_text("{damaged")
    [record] = runtime_of().dynamic_backends()
    assert len(marker.read_text()) == 3
    assert record.reason == "it was changed after this process had loaded it; only a new one can load it"


def test_without_a_probe_a_file_is_loaded_at_once(install, runtime_of, user_cache):
    install()
    [record] = runtime_of(probe_seconds=0).dynamic_backends()
    assert record.state is State.LOADED
    assert not (user_cache / "probed").exists()


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), "soon"])
def test_a_time_that_cannot_be_meant_is_refused(seconds):
    with pytest.raises(InvalidArgumentError, match="probe_seconds must"):
        CreationOptions(probe_seconds=seconds)


def test_a_cache_folder_that_cannot_be_written_is_survived(install, runtime_of, user_cache):
    user_cache.write_text("in the way")
    install()
    [record] = runtime_of().dynamic_backends()
    assert record.state is State.LOADED


# --- the list of allowed files ----------------------------------------------------------------------------------------


def test_only_files_whose_content_is_listed_are_loaded(install, runtime_of):
    good = install("A_Good_backend.so")
    bad = install("B_Bad_backend.so", ID='"Other"', AT_LOAD="CRASH")
    digest = hashlib.sha256(good.read_bytes()).hexdigest()
    runtime = runtime_of(backend_allow_list=[digest.upper()])
    allowed, refused = runtime.dynamic_backends()
    assert (allowed.state, allowed.sha256) == (State.LOADED, digest)
    assert outcome(refused) == ("B_Bad_backend.so", "refused", "allow-list")
    other = hashlib.sha256(bad.read_bytes()).hexdigest()
    assert refused.reason == f"its SHA-256 is not in the list of allowed ones: {other}"
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]


def test_the_list_may_be_a_file_that_the_environment_names(install, tmp_path, monkeypatch):
    path = install()
    listed = tmp_path / "allowed"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    listed.write_text(f"# ours\n\n{digest} *{path}\n{'0' * 64}\n")
    monkeypatch.setenv("INTERPOSER_BACKEND_ALLOW_LIST", str(listed))
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(path.parent))
    with Runtime() as runtime:
        assert [dynamic_backend.state for dynamic_backend in runtime.dynamic_backends()] == [State.LOADED]
    listed.write_text("")
    with Runtime() as runtime:
        assert [dynamic_backend.step for dynamic_backend in runtime.dynamic_backends()] == [Step.ALLOW_LIST]


def test_a_list_that_cannot_be_read_lets_nothing_in(install, runtime_of, tmp_path):
    install()
    with pytest.raises(ConfigError) as caught:
        runtime_of(backend_allow_list=tmp_path / "nothing")
    assert str(caught.value).endswith("/nothing cannot be read: No such file or directory")
    (tmp_path / "bad").write_text("hello\n")
    with pytest.raises(ConfigError) as caught:
        runtime_of(backend_allow_list=tmp_path / "bad")
    assert str(caught.value) == f"{tmp_path / 'bad'}, line 1, does not begin with a SHA-256: 'hello'"
    with pytest.raises(InvalidArgumentError, match="64 hexadecimal digits; 'abc' is none"):
        runtime_of(backend_allow_list=["abc"])


def test_the_file_that_was_hashed_is_the_one_that_is_loaded_and_two_are_not_confused(install, runtime_of, tmp_path):
    """The linker knows libraries by names, and those of descriptors could come again."""
    folders = [tmp_path / str(number) for number in range(3)]
    paths = [install("A_B_backend.so", folder=folder, ID=f'"Number{folder.name}"') for folder in folders]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    for number, path in enumerate(paths):
        runtime = runtime_of(path.parent, backend_allow_list=digests, unload_libraries=number != 1)
        assert [dynamic_backend.id for dynamic_backend in runtime.dynamic_backends()] == [f"Number{number}"]
        runtime.close()


# --- the end ----------------------------------------------------------------------------------------------------------


def events_of(install, tmp_path, **statements):
    """Installs an adder that writes down when it is initialised and shut down, and gives what reads it."""
    log = tmp_path / "events"
    log.touch()
    write = f'FILE* f = fopen("{log}", "a"); fputs("%s ", f); fclose(f);'
    settings = {f"AT_{name.upper()}": write % name for name in ("init", "shutdown", "load", "unload")}
    path = install("Tests_Adder_backend.so", "-include", "stdio.h", **settings)

    def events():
        return log.read_text().split()

    return path, events


def test_closing_the_runtime_removes_shuts_down_and_forgets(install, runtime_of, tmp_path):
    path, events = events_of(install, tmp_path)
    runtime = runtime_of(probe_seconds=0)
    assert events() == ["load", "init"]
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]
    runtime.close()
    assert events() == ["load", "init", "shutdown"]
    assert "Adder" not in runtime.registry
    assert [outcome(dynamic_backend) for dynamic_backend in runtime.dynamic_backends()] == [
        ("Tests_Adder_backend.so", "closed", "register")
    ]
    assert str(path) in mapped_files()
    runtime.close()
    assert events() == ["load", "init", "shutdown"]


def test_a_runtime_that_is_collected_lets_go_too(install, tmp_path):
    _, events = events_of(install, tmp_path)
    runtime = Runtime(CreationOptions(dynamic_backends_path=tmp_path / "plugins", probe_seconds=0))
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]
    del runtime
    gc.collect()
    assert events() == ["load", "init", "shutdown"]


def test_several_runtimes_share_a_library_until_the_last_is_closed(install, runtime_of, tmp_path):
    _, events = events_of(install, tmp_path)
    first, second = runtime_of(probe_seconds=0), runtime_of(probe_seconds=0)
    assert first.registry.get("Adder").library is second.registry.get("Adder").library
    first.close()
    assert events() == ["load", "init"]
    assert add_twice(second, "Adder") == [3.0, 6.0, 9.0]
    second.close()
    assert events() == ["load", "init", "shutdown"]
    assert add_twice(runtime_of(probe_seconds=0), "Adder") == [3.0, 6.0, 9.0]
    assert events() == ["load", "init", "shutdown", "init"]


def test_an_optimized_network_keeps_its_backend_alive(install, runtime_of, tmp_path):
    _, events = events_of(install, tmp_path)
    runtime = runtime_of(probe_seconds=0)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((3,)))
    network.add_output_layer(0, network.add_addition_layer(x, x))
    optimized = optimize(network, ["Adder"], runtime.device_spec)
    runtime.close()
    assert events() == ["load", "init"]
    with Runtime() as other:
        number = other.load_network(optimized)
        assert other.enqueue_workload(number, {0: np.float32([1, 2, 3])})[0].tolist() == [2.0, 4.0, 6.0]
    del optimized, other
    gc.collect()
    assert events() == ["load", "init", "shutdown"]


def test_a_library_leaves_the_process_only_where_that_is_asked_for(install, runtime_of, tmp_path):
    path, events = events_of(install, tmp_path)
    before = open_descriptors()
    runtime = runtime_of(probe_seconds=0, unload_libraries=True)
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]
    address = ctypes.cast(runtime.registry.get("Adder").library.functions["init"], ctypes.c_void_p).value
    assert code_fault(address) is None
    runtime.close()
    gc.collect()
    assert events() == ["load", "init", "shutdown", "unload"]
    assert str(path) not in mapped_files()
    assert code_fault(address) == f"is {address:#x}, where there is nothing"
    assert open_descriptors() <= before
    assert add_twice(runtime_of(probe_seconds=0), "Adder") == [3.0, 6.0, 9.0]


def test_another_file_of_the_same_path_waits_for_the_next_process(install, runtime_of):
    path = install()
    runtime_of().close()
    path.unlink()
    install(ID='"New"')
    [record] = runtime_of().dynamic_backends()
    assert (record.id, record.step) == ("New", Step.OPEN)
    assert record.reason == "this process has loaded another file of this path; only a new one can load it"


def test_a_backend_whose_device_is_missing_is_known_and_absent(install, runtime_of):
    install(AT_INIT='return ipr_fail(error, IPR_UNAVAILABLE, 0, -1, "there is no device");')
    runtime = runtime_of()
    [record] = runtime.dynamic_backends()
    assert outcome(record) == ("Tests_Adder_backend.so", "skipped", "init")
    assert runtime.registry.reason_absent("Adder") == record.reason == "there is no device"


def test_who_asks_without_a_runtime_sees_the_backends_of_the_list(install, monkeypatch, tmp_path):
    install()
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(tmp_path / "plugins"))
    assert "Adder" in DeviceSpec.default().supported_backends
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", "")
    with pytest.raises(UnknownBackendError):
        DeviceSpec.default().registry.get("Adder")


# --- the package's own folder -----------------------------------------------------------------------------------------


@pytest.fixture
def load(tmp_path):
    """Loads backends with a folder in the place of the package's own one, and closes them at the end."""
    from interposer.plugins.capi.loading.loader import LoadingOptions, load_backends
    from interposer.plugins.capi.loading.paths import folders_to_search

    created = []

    def load(override=None, registry=None, **options):
        registry = BackendRegistry() if registry is None else registry
        folders = folders_to_search(override)
        created.append(load_backends(registry, folders, LoadingOptions(**options), own_folder=str(tmp_path / "own")))
        return registry, created[-1].records

    yield load
    for item in created:
        item.close()


def test_the_packages_own_folder_comes_first_and_nothing_hides_it(install, load, tmp_path, monkeypatch):
    install("Z_Own_backend.so", ID='"Own"', folder=tmp_path / "own")
    install("A_Users_backend.so", ID='"Users"', folder=tmp_path / "users")
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(tmp_path / "users"))
    assert load()[0].ids == ("Own", "Users")
    assert load(override="/nothing")[0].ids == ("Own",)
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", "")
    assert load()[0].ids == ("Own",)


def test_the_packages_own_files_need_no_probe_and_no_leave(install, load, tmp_path, user_cache):
    install("A_Own_backend.so", folder=tmp_path / "own")
    registry, [record] = load(allowed=frozenset())
    assert (record.state, registry.ids) == (State.LOADED, ("Adder",))
    assert not (user_cache / "probed").exists()


def test_an_own_backend_that_is_disabled_is_not_even_looked_at(install, load, tmp_path):
    path = install("A_Own_backend.so", ID='"Own"', folder=tmp_path / "own")
    registry, records = load(disabled=["Own"])
    assert (registry.ids, records) == ((), ())
    assert str(path) not in mapped_files()


def test_a_users_backend_takes_the_place_of_an_own_one_that_is_disabled(install, load, tmp_path, monkeypatch):
    install("A_Own_backend.so", ID='"Own"', folder=tmp_path / "own")
    path = install("B_Own_backend.so", "-DOTHER", ID='"Own"', folder=tmp_path / "users")
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(tmp_path / "users"))
    registry, [record] = load(disabled=["Own"], registry=BackendRegistry(disabled=["Own"]))
    assert (record.state, record.path) == (State.LOADED, str(path))
    assert [(record.available, record.source) for record in registry.records()] == [(True, f"shared object {path}")]


def test_what_the_build_says_of_itself_is_no_file_to_load(install, load, tmp_path):
    install("A_Own_backend.so", folder=tmp_path / "own")
    (tmp_path / "own" / "not_built.txt").write_text("there was no compiler\n")
    assert [item.file_name for item in load()[1]] == ["A_Own_backend.so"]


def test_a_fault_of_the_packages_own_file_is_a_record_too(install, load, tmp_path):
    install("A_Own_backend.so", MAJOR="9", folder=tmp_path / "own")
    assert [item.step for item in load()[1]] == [Step.VERSION]


# --- with others ------------------------------------------------------------------------------------------------------


def test_a_backend_that_crashes_when_it_is_tried_is_there_for_who_isolates_it(install, runtime_of):
    path = install(AT_EXECUTE="if (run->run_id % 2 == 0) CRASH")
    [refused] = runtime_of().dynamic_backends()
    assert refused.step is Step.PROBE
    runtime = runtime_of(isolate={"Adder"})
    [record] = runtime.dynamic_backends()
    assert (record.state, record.id) == (State.LOADED, "Adder")
    assert str(path) not in mapped_files()


COUNT_LOADS = '{ int f = open(getenv("LOADS"), O_CREAT|O_WRONLY|O_APPEND, 0600); if (write(f, "x", 1)) close(f); }'


def test_the_packages_own_file_is_not_tried_where_another_backend_is_isolated(install, load, tmp_path, user_cache):
    install("A_Own_backend.so", AT_INIT="if (getppid() == PARENT) CRASH", PARENT=os.getpid(), folder=tmp_path / "own")
    registry, [record] = load(registry=BackendRegistry(isolate={"Other": Isolation()}))
    assert (record.state, record.sha256, registry.ids) == (State.LOADED, "", ("Adder",))
    assert not (user_cache / "probed").exists()


def test_the_packages_own_file_is_not_opened_where_its_name_is_that_of_an_isolated_backend(install, load, tmp_path):
    path = install("A_Adder_backend.so", folder=tmp_path / "own")
    _, [record] = load(registry=BackendRegistry(isolate={"Adder": Isolation()}))
    assert (record.state, record.id) == (State.LOADED, "Adder")
    assert str(path) not in mapped_files()


def test_a_file_that_is_to_be_loaded_without_a_trial_gets_none_where_another_backend_is_isolated(
    install, runtime_of, user_cache
):
    install(AT_INIT="if (getppid() == PARENT) CRASH", PARENT=os.getpid())
    runtime = runtime_of(isolate={"CpuRef"}, probe_seconds=0)
    assert add_twice(runtime, "Adder") == [3.0, 6.0, 9.0]
    assert not (user_cache / "probed").exists()


def test_a_process_that_tries_a_file_tries_no_others_where_the_environment_isolates_a_backend(
    install, tmp_path, user_cache, monkeypatch
):
    monkeypatch.setenv("LOADS", str(tmp_path / "loads"))
    monkeypatch.setenv("INTERPOSER_ISOLATE", "Other")
    path = install("A_A_backend.so", "-include", "fcntl.h", AT_LOAD=COUNT_LOADS)
    install("B_B_backend.so", "-include", "fcntl.h", AT_LOAD=COUNT_LOADS, ID='"Second"')
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(path.parent))
    with Runtime() as runtime:
        assert {"Adder", "Second"} <= set(runtime.device_spec.supported_backends)
    assert (tmp_path / "loads").read_text() == "xx" * 2  # for each file the trial, and this process


def test_threads_that_load_at_the_same_time_share_one_backend(install, tmp_path):
    path, events = events_of(install, tmp_path)
    together, result = threading.Barrier(6), []

    def use():
        together.wait()
        with Runtime(CreationOptions(dynamic_backends_path=path.parent, probe_seconds=0)) as runtime:
            result.append(runtime.registry.get("Adder").id)
            together.wait()

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert result == ["Adder"] * 6
    assert events() == ["load", "init", "shutdown"]


def test_a_process_that_ends_with_open_backends_shuts_them_down(install, tmp_path):
    path, events = events_of(install, tmp_path)
    options = f"ip.CreationOptions(dynamic_backends_path={str(path.parent)!r}, probe_seconds=0)"
    code = f"import interposer as ip; runtime = ip.Runtime({options})"
    done = subprocess.run([warm.NEW_INTERPRETER, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert events() == ["load", "init", "shutdown", "unload"]
