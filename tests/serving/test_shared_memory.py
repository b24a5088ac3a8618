"""Tensors in shared memory: registration, its limits, inputs and outputs."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer.serving.options import ServeOptions
from interposer.serving.peers import Peer
from interposer.serving.protocol.errors import ServingError
from interposer.serving.shared_memory import SharedMemory
from tests.serving.running import Running, doubler, model, running, serving

pytestmark = pytest.mark.needs_cpuref
ME = Peer(socket_user=os.geteuid())


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[SharedMemory]:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "key").write_bytes(bytes(range(100)))
    (tmp_path / "secret").write_bytes(bytes(100))
    os.symlink(tmp_path / "secret", tmp_path / "shared" / "link")
    os.mkfifo(tmp_path / "shared" / "pipe")
    shared_memory = SharedMemory(str(tmp_path / "shared"))
    yield shared_memory
    shared_memory.unregister()


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(ServingError) as caught:
        function(*arguments, ME)
    return str(caught.value)


def test_a_tensor_that_is_larger_than_the_limit_is_refused_before_it_is_copied(tmp_path):
    (tmp_path / "key").touch()
    os.truncate(tmp_path / "key", 1 << 40)  # sparse
    memory = SharedMemory(str(tmp_path), limit=1000)
    memory.register("r", "key", 0, 1 << 40, ME)
    assert refused(memory.read, "r", 0, 1 << 40) == "the tensor in the region 'r' is larger than 1,000 bytes"
    assert len(memory.read("r", 0, 1000, ME)) == 1000
    memory.unregister()


def test_bytes_are_read_and_written_inside_of_a_region(memory, tmp_path):
    memory.register("r", "/key", 10, 20, ME)
    assert bytes(memory.read("r", 5, 4, ME)) == bytes([15, 16, 17, 18])
    memory.write("r", 16, 4, np.array([1, 2], np.uint8), ME)
    assert (tmp_path / "shared" / "key").read_bytes()[24:30] == bytes([24, 25, 1, 2, 28, 29])
    assert memory.status() == [{"name": "r", "key": "/key", "offset": 10, "byte_size": 20}]
    memory.unregister("r")
    assert memory.status() == []


@pytest.mark.parametrize("key", ["", "/", "..", "a/b", "../secret", "/../secret", "a\0b", 5, None, "x" * 300])
def test_a_key_is_a_name_and_never_a_path(memory, key):
    assert refused(memory.register, "r", key, 0, 1) == "the key of the region is not a name of shared memory"


@pytest.mark.parametrize("key", ["none", "link", "\udc80"])
def test_a_key_without_memory_is_refused(memory, key):
    assert refused(memory.register, "r", key, 0, 1).endswith("cannot be opened")


@pytest.mark.parametrize(("offset", "size"), [(0, 101), (100, 1), (1, 100), (1 << 62, 1 << 62), (50, 51)])
def test_a_region_is_inside_of_its_file(memory, offset, size):
    text = f"the shared memory 'key' does not have {size} bytes at offset {offset}"
    assert refused(memory.register, "r", "key", offset, size) == text
    assert refused(memory.register, "r", "pipe", 0, 0).startswith("the shared memory 'pipe' ")


@pytest.mark.parametrize("size", [-1, 1.0, True, "1", None, 1 << 63])
def test_a_size_is_a_whole_number(memory, size):
    assert (
        refused(memory.register, "r", "key", 0, size) == "the byte_size of the region is not a whole number from 0 on"
    )


def test_reads_and_writes_outside_of_a_region_are_refused(memory, tmp_path):
    memory.register("r", "key", 10, 20, ME)
    assert refused(memory.register, "r", "key", 0, 1) == "the shared memory region 'r' is registered already"
    assert refused(memory.read, "s", 0, 1) == "no shared memory region 's' is registered"
    assert refused(memory.read, "r", 0, 21) == "the region 'r' has 20 bytes, not 21 at offset 0"
    assert refused(memory.read, "r", 1 << 62, 1 << 62).startswith("the region 'r' has 20 bytes")
    array = np.zeros(5, np.uint8)
    assert refused(memory.write, "r", 0, 4, array) == "the output needs 5 bytes, and 4 of the region 'r' are for it"
    os.truncate(tmp_path / "shared" / "key", 12)
    assert refused(memory.read, "r", 0, 20) == "the region 'r' was made smaller after its registration"
    assert refused(memory.write, "r", 0, 20, array) == "the region 'r' was made smaller after its registration"


def test_a_region_is_for_the_user_to_whom_it_belongs(memory):
    for other, reason in (
        (Peer(socket_user=os.geteuid() + 1), "does not belong to the user who asks for it"),
        (Peer("192.0.2.1"), "connect to the Unix socket of the server"),
    ):
        with pytest.raises(ServingError, match=reason):
            memory.register("r", "key", 0, 10, other)
        memory.register("r", "key", 0, 10, ME)
        with pytest.raises(ServingError, match=reason):
            memory.read("r", 0, 1, other)
        with pytest.raises(ServingError, match=reason):
            memory.of_user(other).read("r", 0, 1)
        with pytest.raises(ServingError, match=reason):
            memory.write("r", 0, 1, np.zeros(1, np.uint8), other)
        memory.unregister("r")


@pytest.fixture
def server() -> Iterator[Running]:
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    with running(
        serving({"doubler": model(doubler())}), ServeOptions(shared_memory=True, token="abc")
    ) as running_server:
        yield running_server


def test_the_size_of_a_tensor_is_checked_before_it_is_copied(server):
    path = Path("/dev/shm", f"interposer-large-{os.getpid()}")
    size, token = 1 << 40, {"Authorization": "Bearer abc"}
    try:
        path.touch()
        os.truncate(path, size)
        body = {"key": path.name, "byte_size": size}
        assert server.client.post("/v2/systemsharedmemory/region/r/register", body, **token).status == 200
        parameters = {"shared_memory_region": "r", "shared_memory_byte_size": size}
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": parameters}
        answer = server.client.post("/v2/models/doubler/infer", {"inputs": [tensor]})
        text = f"input 'x' has {size} bytes; FP32 with the shape [1, 4] needs 16"
        assert (answer.status, answer.json) == (400, {"error": text})
    finally:
        path.unlink()


def test_inputs_and_outputs_can_be_in_shared_memory(server):
    key = f"interposer-test-{os.getpid()}"
    path = Path("/dev/shm", key)
    path.write_bytes(struct.pack("<4f", 1, 2, 3, 4) + bytes(16))
    client, token = server.client, {"Authorization": "Bearer abc"}
    try:
        register = "/v2/systemsharedmemory/region/r/register"
        body = {"key": f"/{key}", "offset": 0, "byte_size": 32}
        assert client.post(register, body).status == 401
        assert client.post(register, body, Authorization="Bearer abd").status == 401
        assert client.post(register, body, **token).status == 200
        assert client.get("/v2/systemsharedmemory/status", **token).json == [{"name": "r", **body}]
        there = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": there}
        outputs = [{"name": "y", "parameters": {**there, "shared_memory_offset": 16}}]
        answer = client.post("/v2/models/doubler/infer", {"inputs": [tensor], "outputs": outputs})
        assert answer.json["outputs"] == [
            {"name": "y", "datatype": "FP32", "shape": [1, 4], "parameters": {**there, "shared_memory_offset": 16}}
        ]
        assert struct.unpack("<8f", path.read_bytes()) == (1, 2, 3, 4, 2, 4, 6, 8)
        assert client.post("/v2/systemsharedmemory/region/r/unregister", {}, **token).status == 200
        assert client.post("/v2/models/doubler/infer", {"inputs": [tensor]}).status == 400
    finally:
        path.unlink()
