"""The arguments that describe a network have an effect in every command that declares them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer.cli.main import main
from tests.options.enumerated import options

pytestmark = pytest.mark.needs_cpuref
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("--random",),
    "explain": (),
    "trace": ("--random", "--output", "trace.json"),
    "bench": ("--random", "--rounds", "1", "--seconds", "0"),
    "compare": ("--random", "--backends", "CpuRef,LiteRt"),
    "plan": ("--output", "plan.json"),
    "compile": ("--output", "saved.ipn"),
    "convert": ("written.txt",),
    "quantize": ("--output", "quantized.txt", "--data", "x.npy"),
}
"""The commands that read a network, with arguments that each needs."""
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "--backends": (("Nosuch",), "unknown backend 'Nosuch'"),
    "--format": (("onxx",), "unknown choice 'onxx'; did you mean 'onnx'?"),
    "--signature": (("decode",), "--signature is for TFLite files, TensorFlow models and saved networks"),
    "--stand-in": ((), "--stand-in is for TFLite files"),
    "--subgraph": (("1",), "--subgraph is for TFLite files"),
    "--shape": (("z=1",), "the network has no dimension 'z'"),
    "--weights": (("x.npy",), "--weights is for Caffe networks"),
    "--trusted-key": (("net.txt",), "--trusted-key is for saved networks"),
    "--value": (("z=1",), "the model has no input 'z'"),
    "--limit-bytes": (("1",), "bytes of memory, but the limit is 1"),
    "--limit-operations": (("1",), "operations of arithmetic, but the limit is 1"),
    "--plan": (("nosuch.json",), "the plan cannot be read"),
    "--precision": (("float8",), "unknown choice 'float8'"),
}
"""For each argument: values that do not fit the network, and what the message says of them."""
PAIRS = sorted(
    (command, option)
    for command, option in {(where.partition(" ")[2], name) for where, name in options()}
    if command in COMMANDS and option in REFUSED
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    network = Network("net")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    weights = network.add_constant_layer(np.eye(4, dtype=np.float32))
    network.add_output_layer(0, network.add_softmax_layer(network.add_fully_connected_layer(x, weights)), name="y")
    Path("net.txt").write_text(network.text(), encoding="utf-8")
    np.save("x.npy", np.ones((2, 1, 4), np.float32))
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("command", "option"), PAIRS)
def test_a_value_that_does_not_fit_the_network_is_refused(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "CpuRef,LiteRt" in COMMANDS[command]:
        pytest.importorskip("ai_edge_litert")
    values, message = REFUSED[option]
    status = main([command, "net.txt", *COMMANDS[command], option, *values])
    output = capsys.readouterr()
    assert (status, message in output.err + output.out) == (_status(command, option), True), output.err


def _status(command: str, option: str) -> int:
    """The benchmark lists what it could not load, and ends with 1."""
    return 1 if command == "bench" and option.startswith("--limit") else 2
