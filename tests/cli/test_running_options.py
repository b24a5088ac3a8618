"""--option, --backend-path, --profile-to and backends named MODULE:CLASS, on every command that runs something."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from interposer import process_registry
from interposer.cli.main import main
from tests.cli import networks

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("warm_python")]

NOTED = {
    "run": "run net.onnx --random",
    "explain": "explain net.onnx",
    "trace": "trace net.onnx --random -o trace.json",
    "bench": "bench net.onnx --random --no-auto --rounds 1 --seconds 0",
    "compare": "compare net.onnx --random",
    "plan": "plan net.onnx --budget 0.1",
    "compile": "compile net.onnx -o net.ipn",
    "quantize": "quantize net.onnx --scheme float16 -o half.onnx",
}
BACKEND = """
from pathlib import Path

from interposer.backend import Backend, Capabilities, Capability, LayerSupport
from interposer.core.errors import OptionError
from tests.devices import Sums


class Noting(Sums):
    id = "Noting"
    capabilities = Capabilities(Capability("level", 1, "An option."))

    def layer_support(self, options):
        Path("noted.txt").write_text(repr(dict(options)))
        return super().layer_support(options)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a network, and with a module that has a backend."""
    Path(networks.doubler(tmp_path)).rename(tmp_path / "net.onnx")
    (tmp_path / "noting.py").write_text(BACKEND)
    (tmp_path / "plugins").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "noting", raising=False)
    yield tmp_path
    if "Noting" in process_registry():
        process_registry().deregister("Noting")


@pytest.mark.parametrize("command", NOTED)
def test_every_command_gives_a_backend_of_the_working_directory_its_options(command, folder, capsys):
    backends = "noting:Noting" if command in ("compare", "bench") else "noting:Noting,CpuRef"
    status = main(shlex.split(f"{NOTED[command]} --backends {backends} --option Noting.level=3"))
    said = capsys.readouterr().err
    assert status == 0
    assert "--option" not in said
    if command != "quantize":  # which runs nothing without data
        assert (folder / "noted.txt").read_text() == "{'level': 3}"


@pytest.mark.parametrize("command", NOTED)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--option Noting", "--option: expected BACKEND.NAME=VALUE, such as CpuAcc.NumberOfThreads=2, not 'Noting'"),
        ("--option Nothing.a=1", "unknown backend 'Nothing'; did you mean 'Noting'?"),
        ("--option Noting.level=high", "--option Noting.level: expected a whole number, not 'high'"),
        ("--option Noting.level=1 --option Noting.level=2", "--option gives 'Noting.level' more than once"),
        ("--backend-path nowhere", "--backend-path: there is no folder 'nowhere'"),
        ("--profile-to out.txt", "--profile-to takes a file with the suffix .json, .pftrace, .perfetto-trace, .html, "
         ".bin, or the socket of a collector, not 'out.txt'"),
        ("--profile-to no/out.json", "--profile-to cannot be written to 'no/out.json': there is no folder 'no'"),
    ],
)  # fmt: skip
def test_every_command_refuses_wrong_options(command, option, message, folder, capsys):
    backends = "noting:Noting" if command in ("compare", "bench") else "noting:Noting,CpuRef"
    assert main(shlex.split(f"{NOTED[command]} --backends {backends} {option}")) == 2
    assert message in capsys.readouterr().err


def test_an_option_of_a_backend_that_is_not_used_is_refused(folder, capsys):
    assert main(shlex.split("run net.onnx --random --backends CpuRef --option Torch.threads=1")) == 2
    assert capsys.readouterr().err == (
        "interposer: --option: backend 'Torch' is not used; name it with --backends (used: CpuRef)\n"
    )


def test_an_option_that_a_backend_does_not_declare_is_remarked(folder, capsys):
    assert main(shlex.split("run net.onnx --random --backends noting:Noting --option Noting.speed=2")) == 0
    assert capsys.readouterr().err == (
        "interposer: backend Noting declares no option 'speed'; --option may have no effect\n"
    )


def test_an_option_that_a_backend_refuses_is_not_remarked_first(folder, capsys):
    assert main(shlex.split("run net.onnx --random --backends CpuRef --option CpuRef.speed=2")) == 2
    assert capsys.readouterr().err == "interposer: backend CpuRef has no option 'speed' (it has none)\n"


def test_a_folder_without_backends_is_remarked(folder, capsys):
    assert main(shlex.split("run net.onnx --random --backends CpuRef --backend-path plugins")) == 0
    assert "--backend-path: 'plugins' contains no backend" in capsys.readouterr().err


def test_a_file_is_no_folder_of_backends(folder, capsys):
    assert main(shlex.split("run net.onnx --random --backend-path noting.py")) == 2
    assert capsys.readouterr().err == (
        "interposer: --backend-path: 'noting.py' is a file; give the folder that contains it, '.'\n"
    )


@pytest.mark.parametrize("command", ["run", "bench", "explain", "backends", "ops", "check-backend"])
def test_the_folder_of_backends_is_that_of_the_option(command, folder, capsys, monkeypatch):
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(folder / "other"))
    (folder / "plugins" / "Local_Broken_backend.so").write_bytes(b"no library")
    words = {"backends": "backends", "ops": "ops --backend Broken", "check-backend": "check-backend Broken"}
    line = words.get(command) or f"{NOTED[command]} --backends Broken,CpuRef"
    main(shlex.split(f"{line} --backend-path plugins"))
    said = "".join(capsys.readouterr())
    assert "Broken" in said
    assert os.environ["INTERPOSER_BACKEND_PATH"] == str(folder / "other")


@pytest.mark.parametrize("target", ["out.json", "out.html", "out.pftrace", "out.bin"])
@pytest.mark.parametrize("command", ["run", "compare", "explain --measure --random", "compile"])
def test_what_runs_is_recorded_to_a_file(command, target, folder, capsys):
    first, _, rest = command.partition(" ")
    line = f"{NOTED[first]} {rest} --backends CpuRef --profile-to {target}"
    line = line.replace("--backends CpuRef", "--backends noting:Noting") if first == "compare" else line
    assert main(shlex.split(line)) == 0
    assert (folder / target).stat().st_size > 100
    if target == "out.json":
        assert json.loads((folder / target).read_text())["traceEvents"]
    if target == "out.bin":
        assert main(["profile", target]) == 0
        assert "inference" in capsys.readouterr().out or first == "compile"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run net.onnx --input x.bin --profile-to x.bin",
         "--profile-to would overwrite 'x.bin', which the command reads; name another file"),
        ("run net.onnx --input xs --profile-to xs/x.bin",
         "--profile-to would overwrite 'xs/x.bin', which the command reads; name another file"),
        ("run net.onnx --random --plan plan.json --profile-to plan.json",
         "--profile-to would overwrite 'plan.json', which the command reads; name another file"),
        ("run net.onnx --random --save out.json --profile-to ./out.json",
         "--profile-to and --save name one file, './out.json'"),
        ("run net.onnx --random --save-intermediates out.json --profile-to out.json",
         "--profile-to and --save-intermediates name one file, 'out.json'"),
        ("run net.onnx --input x.bin x.bin --save out.json --profile-to out-1.json",
         "--save and --profile-to name one file, 'out-1.json'"),
        ("trace net.onnx --random -o out.json --profile-to out.json", "--profile-to and --output name one file, "
         "'out.json'"),
        ("explain net.onnx --html out.html --profile-to out.html", "--profile-to and --html name one file, 'out.html'"),
        ("serve net.onnx served --profile-to served/other.json",
         "--profile-to would overwrite 'served/other.json', which the command reads; name another file"),
    ],
)  # fmt: skip
def test_a_profile_is_not_written_to_a_file_that_the_command_reads_or_writes(line, message, folder, capsys):
    Path("xs").mkdir()
    Path("served").mkdir()
    for path in ("x.bin", "xs/x.bin"):
        np.ones((1, 4), np.float32).tofile(path)
    Path("plan.json").write_text("{}")
    Path("served/other.json").symlink_to(Path("net.onnx").absolute())
    assert main([*shlex.split(line), "--backends", "CpuRef"]) == 2
    assert capsys.readouterr().err == f"interposer: {message}\n"
    assert not Path("out.json").exists()


def test_a_profile_may_have_the_name_of_an_output(folder):
    assert main(shlex.split("run net.onnx --random --backends CpuRef --output y --profile-to y.json")) == 0


def test_a_class_that_cannot_be_a_backend_is_refused(folder, capsys):
    (folder / "wrong.py").write_text("class Nothing:\n    pass\n")
    assert main(shlex.split("run net.onnx --random --backends wrong:Nothing")) == 2
    assert "which is not a Backend" in capsys.readouterr().err
    assert main(shlex.split("run net.onnx --random --backends wrong:Something")) == 2
    assert (
        "'wrong:Something' cannot be imported: module 'wrong' has no attribute 'Something'" in capsys.readouterr().err
    )


def test_the_installed_command_checks_a_backend_of_the_working_directory(folder):
    (folder / "echo.py").write_text("from tests.devices import Sums\n")
    words = [sys.executable, "-P", "-m", "interposer", "check-backend", "echo:Sums", "--only", "registration/*"]
    paths = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([*words, "--list"], capture_output=True, text=True, check=False, env=paths)
    assert (done.returncode, done.stderr) == (0, "")
    words[-1] = "results/Addition-float32*"
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=paths)
    assert "cannot be imported" not in done.stderr


def test_the_calibration_has_the_options_of_its_backends(folder, capsys):
    np.save(folder / "x.npy", np.ones((2, 1, 4), np.float32))
    line = "quantize net.onnx --data x.npy -o q.onnx --backends noting:Noting,CpuRef --option Noting.level=3"
    assert main(shlex.split(line)) == 0
    assert (folder / "noted.txt").read_text() == "{'level': 3}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--option Noting", "--option: expected BACKEND.NAME=VALUE, such as CpuAcc.NumberOfThreads=2, not 'Noting'"),
        ("--option Noting.level=x", "--option Noting.level: expected a whole number, not 'x'"),
        ("--backend-path nowhere", "--backend-path: there is no folder 'nowhere'"),
        ("--profile-to out.txt", "--profile-to takes a file with the suffix .json, .pftrace, .perfetto-trace, .html, "
         ".bin, or the socket of a collector, not 'out.txt'"),
        ("--profile-to out.json --workers 2",
         "--profile-to needs --workers 1, as each worker would write the same profile"),
    ],
)  # fmt: skip
def test_a_server_has_the_options(options, message, folder, capsys):
    pytest.importorskip("starlette")
    assert main(shlex.split(f"serve net.onnx --port 0 --no-grpc --backends noting:Noting,CpuRef {options}")) == 2
    assert capsys.readouterr().err == f"interposer: {message}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--option Other.level=1", "--option: the backend is 'Noting', not 'Other'"),
        ("--option Noting.level=x", "--option Noting.level: expected a whole number, not 'x'"),
        ("--backend-path nowhere", "--backend-path: there is no folder 'nowhere'"),
    ],
)
def test_a_check_has_the_options(options, message, folder, capsys):
    assert main(shlex.split(f"check-backend noting:Noting --only 'results/Addition-*' {options}")) == 2
    assert capsys.readouterr().err == f"interposer: {message}\n"


def test_random_networks_run_with_the_options(folder, capsys):
    words = "--random 2 --kind float --jobs 1"
    assert main(shlex.split(f"check-backend noting:Noting,CpuRef {words} --option Noting.level=3")) == 0
    assert (folder / "noted.txt").read_text() == "{'level': 3}"
    capsys.readouterr()
    assert main(shlex.split(f"check-backend noting:Noting,CpuRef {words} --option Other.level=3")) == 2
    assert capsys.readouterr().err == "interposer: --option: the backends are 'Noting', 'CpuRef', not 'Other'\n"
