"""The commands with curl in docs/serving.md, against a server."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for package in ("starlette", "uvicorn", "prometheus_client", "onnx"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [
    pytest.mark.needs_cpuref,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed"),
]
ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token"


def is_complete(command: str) -> bool:
    """Return True if a command does not end within quotes or before a line that continues it."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith("\\")


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, which follow ``$``, with what they print."""
    lines = iter(block.splitlines())
    command, printed = "", []
    for line in lines:
        if line.startswith("$ "):
            if command:
                yield command, "\n".join(printed)
            command, printed = line[2:], []
            while not is_complete(command):
                command += "\n" + next(lines)
        else:
            printed.append(line)
    yield command, "\n".join(printed)


def blocks() -> list[list[tuple[str, str]]]:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    found = re.findall(r"^```console served\n(\$ .*?)^```", page, re.MULTILINE | re.DOTALL)
    return [list(commands(block)) for block in found if "curl" in block]


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    words = ["examples/digits/digits.onnx", "--backends", "CpuRef", "--port", "0", "--no-grpc", "--control", "explicit"]
    command = [sys.executable, "-m", "interposer", "serve", *words]
    environment = {**os.environ, "INTERPOSER_SERVE_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        try:
            yield re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())[1]
        finally:
            process.terminate()


def test_the_page_has_commands_for_curl():
    text = str(blocks())
    for word in ("/infer -d", "--data-binary", "/v2/repository/index", "Authorization"):
        assert word in text


@pytest.mark.parametrize("number", range(len(blocks())))
def test_the_commands_of_the_page_print_what_it_says(port, number):
    script, expected = ["set -e"], []
    for command, printed in blocks()[number]:
        script.append(command.replace("localhost:8080", f"localhost:{port}").replace("curl ", "curl -sS "))
        if printed:
            script.append("echo")
            expected.append(re.escape(printed).replace(re.escape("..."), ".*"))
    environment = {**os.environ, "INTERPOSER_SERVE_TOKEN": TOKEN, "NO_PROXY": "localhost", "no_proxy": "localhost"}
    script_text = "\n".join(script)
    done = subprocess.run(
        ["bash", "-c", script_text], check=False, capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch("\n".join(expected) + "\n", done.stdout), done.stdout
