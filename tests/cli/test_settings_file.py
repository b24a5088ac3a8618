"""The table [cli] of interposer.toml: defaults for the options of the command line."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from interposer.cli.main import main
from tests.cli import networks

pytest.importorskip("onnx", reason="the package onnx is not installed")
pytestmark = pytest.mark.needs_cpuref


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Run a command with the settings of the working directory, and perhaps those of the user."""
    Path(networks.doubler(tmp_path)).rename(tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", "/nowhere")

    def run(line: str, settings: str = "", of_user: str = "") -> tuple[int, str, str]:
        Path("interposer.toml").write_text(settings)
        Path("config/interposer").mkdir(parents=True, exist_ok=True)
        Path("config/interposer/interposer.toml").write_text(of_user)
        status = main(shlex.split(line))
        return status, *capsys.readouterr()

    return run


def runs(said, line: str, settings: str, of_user: str = "") -> dict[str, object]:
    status, output, messages = said(line, settings, of_user)
    assert (status, messages) == (0, "")
    return json.loads(output)


DEFAULTS = "[cli]\nrandom = true\n[cli.run]\njson = true\nbackends = ['CpuRef']\nrepeat = 3\n"


def test_options_have_the_defaults_of_the_file(said):
    result = runs(said, "run net.onnx", DEFAULTS)
    assert (result["runs"], result["placement"]) == (3, {"CpuRef": 1})


def test_the_command_line_wins(said):
    assert runs(said, "run net.onnx --repeat 2", DEFAULTS)["runs"] == 2
    assert runs(said, "run net.onnx --repeat=2", DEFAULTS)["runs"] == 2


@pytest.mark.parametrize("shape", ["-sx=1x4", "-s x=1x4", "--shape=x=1x4", "--shape x=1x4"])
def test_every_form_of_an_option_wins(shape, said):
    assert runs(said, f"run net.onnx {shape}", DEFAULTS + "shape = ['nothing=3']\n")["runs"] == 3


def test_an_argument_wins_over_a_default_that_it_excludes(said):
    settings = "[cli.ops]\nbackend = 'CpuRef'\n"
    listed = said("ops", settings)
    assert listed == said("ops --backend CpuRef --no-settings")
    for line in ("ops Softmax", "ops --json Softmax", "ops --log-level error Softmax", "ops -- Softmax"):
        assert said(line, settings) == said(f"--no-settings {line}")
        assert said(line, settings) != listed


def test_the_working_directory_wins_over_the_user_and_a_command_over_all(said):
    assert runs(said, "run net.onnx", DEFAULTS, "[cli.run]\nrepeat = 7\nseed = 1\n")["runs"] == 3
    assert runs(said, "run net.onnx", "[cli]\nrepeat = 5\n" + DEFAULTS.replace("[cli]\n", ""))["runs"] == 3


def test_settings_can_be_left_out(said):
    assert said("run net.onnx --no-settings", DEFAULTS)[0] == 2
    assert "no --input gives these inputs" in said("run net.onnx --no-settings", DEFAULTS)[2]


def test_names_may_have_underscores_and_values_may_be_lists(said):
    settings = "[cli.run]\nrandom = true\njson = true\nlog_level = 'error'\nshape = ['x=1x4']\nbackends = 'CpuRef'\n"
    assert runs(said, "run net.onnx", settings)["runs"] == 1


def test_a_table_gives_names_and_values(said):
    of_user = "[cli.run.option.CpuRef]\nspeed = 2\n"
    status, _, messages = said("run net.onnx --random --backends CpuRef", "", of_user)
    assert status == 2
    assert "backend CpuRef has no option 'speed'" in messages


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[cli.run]\nrepaet = 3\n",
         "[cli.run] repaet: run has no such option; did you mean 'repeat'? (known: "),
        ("[cli.rnu]\nrepeat = 3\n",
         "[cli] rnu: there is no such command, and no command has this option; did you mean 'run'?"),
        ("[cli]\nbackedns = 'CpuRef'\n",
         "[cli] backedns: there is no such command, and no command has this option; did you mean 'backends'?"),
        ("[cli]\nrun = 3\n",
         "[cli] run is the name of a command; expected a table [cli.run]"),
        ("[cli.bench]\nrouns = 3\n",
         "[cli.bench] rouns: bench has no such option; did you mean 'rounds'? (known: "),
        ("[cli.run]\nrepeat = 0\n",
         "[cli.run] repeat: expected a whole number of 1 or more, not '0'\n"),
        ("[cli.run]\nlayout = 'HWC'\n",
         "[cli.run] layout: unknown choice 'HWC'; did you mean 'NHWC'? (known: NHWC, NCHW)\n"),
        ("[cli.run]\nrandom = 'yes'\n",
         "[cli.run] random is 'yes'; expected true or false\n"),
        ("[cli.run]\nrepeat = true\n",
         "[cli.run] repeat is True; the option takes another value\n"),
        ("cli = 3\n",
         "cli is 3; expected a table, such as [cli.run]\n"),
        ("[cli\n",
         "is not valid TOML: "),
        ("[clo]\n",
         "has an unknown key 'clo'; did you mean 'cli'? (known: "),
        ("[cli.run]\nhelp = true\n",
         "[cli.run] help: run has no such option"),
    ],
)  # fmt: skip
def test_what_the_file_cannot_have_is_refused_with_the_nearest_name(settings, message, said):
    status, output, messages = said("run net.onnx", settings)
    assert (status, output) == (2, "")
    assert re.match(rf"interposer: interposer.toml:? {re.escape(message)}", messages)


@pytest.mark.parametrize(
    ("settings", "subject"),
    [
        ("[cli.run]\nsave = 'out.npz'\n", "this option"),
        ("[cli.run]\nbackend-path = 'plugins'\n", "this option"),
        ("[cli.run]\nlimit-bytes = 'none'\n", "this option"),
        ("[cli.run]\ninput = 'secret.npy'\n", "this option"),
        ("[cli.run]\nbackends = 'evil:Backend'\n", "'evil:Backend' loads code, which"),
        ("[cli.run]\noption = { 'CpuAcc.CacheDirectory' = '/tmp' }\n", "this option"),
    ],
)
def test_a_file_of_the_working_directory_cannot_do_everything(settings, subject, said, tmp_path):
    key = settings.split("\n")[1].partition(" ")[0]
    assert said("run net.onnx", settings) == (
        2, "", f"interposer: interposer.toml: [cli.run] {key}: {subject} only the command line or "
        f"{tmp_path}/config/interposer/interposer.toml or /nowhere/interposer/interposer.toml may give\n",
    )  # fmt: skip


@pytest.mark.parametrize("line", ["ops", "run net.onnx --random"])
@pytest.mark.parametrize("value", ["'evil:B'", "['evil:B']"])
def test_a_file_of_the_working_directory_runs_no_code(line, value, said):
    Path("evil.py").write_text("open('executed', 'w').close()\n")
    option = "backend" if line == "ops" else "backends"
    status, output, messages = said(line, f"[cli.{line.split()[0]}]\n{option} = {value}\n")
    assert (status, output) == (2, "")
    assert "loads code, which only the command line or " in messages
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    ("command", "setting"),
    [
        *(("serve", setting) for setting in (
            "max-body = '9G'", "timeout = '9s'", "queue = 9", "metrics-port = 0", "workers = 9", "drain = '9s'",
        )),
        ("compile", "isa = 'avx2'"),
        ("profile", "listen = true"),
    ],
)  # fmt: skip
def test_a_file_of_the_working_directory_lifts_no_limits(command, setting, said):
    status, _, messages = said(f"{command} net.onnx", f"[cli.{command}]\n{setting}\n")
    assert status == 2
    assert f"[cli.{command}] {setting.split()[0]}: this option only the command line or " in messages


def test_the_file_of_the_user_can(said):
    assert said("run net.onnx --random --backends CpuRef", "", "[cli.run]\nsave = 'out.npz'\n")[0] == 0
    assert Path("out.npz").exists()


def test_an_error_of_a_default_says_where_it_is_set(said):
    assert said("bench net.onnx --random --no-auto", "[cli.bench]\nbudget = 3\n") == (
        2, "", "interposer: --budget is the time to look for the fastest mix, which --no-auto leaves out "
        "(set by interposer.toml: [cli.bench] budget)\n",
    )  # fmt: skip


def test_options_of_other_commands_have_no_effect(said):
    assert said("ops Softmax", DEFAULTS)[0] == 0
