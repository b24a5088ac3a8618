"""`interposer completion`: what can be completed, and the scripts in real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interposer.cli.main import COMMANDS, main
from tests import warm

BIN = Path(sys.executable).parent
pytestmark = pytest.mark.needs_cpuref


@pytest.fixture
def completed(tmp_path, monkeypatch, capsys):
    """Return what the last of some words can be; there are some files."""
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "next.tflite", "x.npy", "folder/in.npy"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()

    def candidates(*words: str) -> list[str]:
        assert main(["completion", "bash", "--", *words]) == 0
        return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]

    return candidates


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["b"], ["bench", "backends"]),
        (["comp"], ["compare", "compile", "completion"]),
        (["ne"], ["new-backend"]),
        (["net"], ["net.onnx"]),
        (["--log-level", ""], ["debug", "info", "warning", "error"]),
        (["--no"], ["--no-settings"]),
        (["run", "--rep"], ["--repeat"]),
        (["run", "--repeat", "3", "--rep"], []),
        (["run", "--sha"], ["--shape"]),
        (["run", "--shape", "x=1", "--sha"], ["--shape"]),
        (["run", "ne"], ["net.onnx", "next.tflite"]),
        (["run", "folder/"], ["folder/in.npy"]),
        (["run", "fol"], ["folder/"]),
        (["run", "net.onnx", "--input", "x="], ["x=folder/", "x=net.onnx", "x=next.tflite", "x=x.npy"]),
        (["run", "net.onnx", "--input=x."], ["--input=x.npy"]),
        (["run", "net.onnx", "--backend-path", ""], ["folder/"]),
        (["run", "--format", "t"], ["tensorflow", "text", "tflite", "torch"]),
        (["run", "--format=on"], ["--format=onnx"]),
        (["run", "--precision", "b"], ["bfloat16"]),
        (["run", "--backends", "CpuR"], ["CpuRef"]),
        (["run", "--backends", "Torch,CpuR"], ["Torch,CpuRef"]),
        (["run", "--backends", "CpuRef,CpuR"], []),
        (["run", "--backends", "a"], ["auto"]),
        (["run", "--option", "CpuR"], ["CpuRef."]),
        (["ops", "Softm"], ["Softmax"]),
        (["quantize", "--scheme", "weights-"], ["weights-int8", "weights-int4"]),
        (["ops", "--backend", "CpuR"], ["CpuRef"]),
        (["check-backend", "CpuR"], ["CpuRef"]),
        (["cache", ""], ["list", "why", "clear"]),
        (["cache", "why", "net"], ["net.onnx"]),
        (["new-backend", "Npu", "--lang", "c"], ["c", "cpp"]),
        (["convert", "net.onnx", "nex"], ["next.tflite"]),
        (["completion", "z"], ["zsh"]),
        (["run", "net.onnx", "--top", ""], []),
    ],
)
def test_words_are_completed(words, expected, completed):
    assert completed(*words) == expected


def test_backends_in_files_of_folders_are_completed(completed, tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_BACKEND_PATH", str(tmp_path / "folder"))
    for name in ("Acme_Zeta_backend.py", "Acme_Zest_backend.so.1", "Acme_Zero_backend.py.1"):
        (tmp_path / "folder" / name).touch()
    assert completed("run", "--backends", "Ze") == ["Zest", "Zeta"]


def test_all_commands_and_all_options_are_completed(completed):
    assert completed("") == list(COMMANDS)
    assert {"--input", "--backends", "--save", "--help", "--debug", "--log-level"} <= set(completed("run", "--"))


def test_what_plug_ins_can_extend_is_not_searched_for_descriptions(capsys):
    main(["completion", "fish", "--", "run", "--form"])
    assert capsys.readouterr().out == "--format\tthe format of the file, if its content is ambiguous\n"


# --- shells -----------------------------------------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BASH", "ZDOTDIR", "PS"))}
    path = f"{Path(warm.command()).parent}:{BIN}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "HOME": str(folder), "TERM": "dumb", "PS1": "$ "}


def needs(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    if not (BIN / "interposer").exists():
        pytest.skip("the command interposer is not installed")
    return path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("interposer be", ["bench"]),
        ("interposer run --rep", ["--repeat"]),
        ("interposer run ne", ["net.onnx"]),
        ("interposer run my", ["my\\ net.onnx"]),
        ("interposer run net.onnx --backends Torch,CpuR", ["Torch,CpuRef"]),
        ("interposer run net.onnx --input x=x.", ["x.npy"]),
        ("interposer run net.onnx --format=on", ["onnx"]),
    ],
)
def test_bash_completes(line, expected, tmp_path):
    bash = needs("bash")
    for name in ("net.onnx", "my net.onnx", "x.npy"):
        (tmp_path / name).touch()
    program = f"""
eval "$(interposer completion bash)"
compopt() {{ :; }}
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}
words=(); for word in $COMP_LINE; do
    while [[ $word == *=* ]]; do words+=("${{word%%=*}}" "="); word="${{word#*=}}"; done
    words+=("$word")
done
COMP_WORDS=("${{words[@]}}"); COMP_CWORD=$((${{#words[@]}} - 1))
_interposer
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        [bash, "--norc", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=environment(tmp_path),
    )  # fmt: skip
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


@pytest.mark.parametrize(
    ("shell", "begin", "load"),
    [
        ("bash", ["--norc", "-i"], 'eval "$(interposer completion bash)"'),
        ("zsh", ["-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(interposer completion zsh)"'),
    ],
)
def test_the_tab_key_completes_a_word(shell, begin, load, tmp_path):
    (tmp_path / "my net.onnx").touch()
    with Terminal([needs(shell), *begin], tmp_path) as terminal:
        terminal.write(f"{load}; echo rea''dy\r")
        terminal.read_until("ready")
        terminal.write("interposer new-b\t")
        terminal.read_until("new-backend")
        terminal.write("\x15interposer run my\t")
        terminal.read_until("my\\ net.onnx")
        terminal.write("\x15interposer run --format=on\t")
        terminal.read_until("--format=onnx")


class Terminal:
    """A shell on a terminal of its own, which is written to and read from."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._descriptor, theirs = pty.openpty()
        self._shell = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment(folder),
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
        self._shell.kill()
        self._shell.wait()

    def write(self, text: str) -> None:
        self._shown = ""
        os.write(self._descriptor, text.encode())

    def read_until(self, text: str, seconds: float = 60.0) -> None:
        """Wait until a text is shown, without escape sequences and backspaces between its letters."""
        end = time.monotonic() + seconds
        while text not in self._shown:
            assert time.monotonic() < end, self._shown
            if select.select([self._descriptor], [], [], 0.2)[0]:
                chunk = os.read(self._descriptor, 65536).decode(errors="replace")
                self._shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|[\x07\r]", "", self._shown + chunk)


def test_fish_completes(tmp_path):
    fish = needs("fish")
    (tmp_path / "net.onnx").touch()
    program = "interposer completion fish | source; complete -C 'interposer run --rep'; complete -C 'interposer run ne'"
    done = subprocess.run(
        [fish, "--no-config", "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=environment(tmp_path),
    )  # fmt: skip
    lines = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert lines == ["--repeat", "net.onnx"]
