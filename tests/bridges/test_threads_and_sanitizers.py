"""The C code of the bridges under sanitizers, and with threads that run, change and close parts at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.plugins.capi.loading.paths import own_files
from tests.backends.cpuacc.building import sanitizer_environment
from tests.native import INCLUDE, compiler_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bridges are only for Linux")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = ROOT / "native" / "bridge"
PRINTED = {
    "shapes": "12 replaced beside 6 threads",
    "pause": "0 running in 50 pauses",
    "end": "0 left, 0 running",
}


def built(target: Path, sources: list[Path], *flags: str) -> Path:
    """Return a program or a shared object compiled from sources in C; skip the test if a sanitizer is missing."""
    words = [compiler_for("c"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", *flags, f"-I{INCLUDE}"]
    done = subprocess.run(
        [*words, f"-I{SOURCES}", *map(str, sources), "-o", str(target), "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "cannot find" in done.stderr and any("sanitize" in flag for flag in flags):
        pytest.skip("the compiler has no such sanitizer")
    assert done.returncode == 0, done.stderr
    return target


def program(folder: Path, *flags: str) -> Path:
    sources = [HERE / "threads.c", *(SOURCES / name for name in ("bridge.c", "direct.c", "onnxruntime.c"))]
    return built(folder / "threads", sources, *flags)


def ran(path: Path, scenario: str) -> subprocess.CompletedProcess[str]:
    # Without Python: runs that are not direct fail.
    environment = os.environ | {"INTERPOSER_LIBPYTHON": str(path.with_name("absent.so")), "TSAN_OPTIONS": "exitcode=9"}
    return subprocess.run([path, scenario], capture_output=True, text=True, check=False, env=environment, timeout=240)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("scenario", PRINTED)
def test_new_shapes_pauses_and_the_end_of_the_process_do_not_wait_for_all_runs_of_other_threads(plain, scenario):
    done = ran(plain, scenario)
    assert (done.returncode, done.stdout.strip()) == (0, PRINTED[scenario]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("scenario", PRINTED)
def test_sanitizers_find_nothing_while_threads_run_parts(tmp_path, scenario, sanitizer):
    done = ran(program(tmp_path, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"), scenario)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, PRINTED[scenario], "")


@pytest.mark.slow
@pytest.mark.skipif("CpuAcc" not in own_files(), reason="CpuAcc was not built")
@pytest.mark.parametrize(
    ("host", "scenario"),
    [
        *(
            ("onnxruntime", name)
            for name in ("threads", "sessions", "direct_shapes", "strict", "wrong_value", "io_binding")
        ),
        *(("litert", name) for name in ("alive", "thread", "cycle")),
    ],
)
def test_sanitizers_find_nothing_in_a_host(tmp_path, host, scenario):
    pytest.importorskip({"onnxruntime": "onnxruntime", "litert": "ai_edge_litert"}[host])
    flags = ("-fPIC", "-shared", "-fvisibility=hidden", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    library = built(tmp_path / "libinterposer_bridge.so", sorted(SOURCES.glob("*.c")), *flags)
    script = [
        "import runpy, sys, interposer.bridges.files",
        f"interposer.bridges.files._LIBRARY = {str(library)!r}",
        f"sys.argv = ['scenarios', {scenario!r}, 'CpuAcc']",
        f"runpy.run_module('tests.bridges.{host}.scenarios', run_name='__main__')",
        f"assert {str(library)!r} in open('/proc/self/maps').read()",
    ]
    environment = os.environ | sanitizer_environment() | {"INTERPOSER_DISABLED_BACKENDS": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(script)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr
