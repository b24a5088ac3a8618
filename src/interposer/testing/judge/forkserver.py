"""The fork server: a fresh interpreter without threads that has imported the modules workers need, and forks them."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress
from importlib import import_module
from typing import Final

from interposer.kernels.evaluation import reference
from interposer.testing.judge.channel import Channel
from interposer.testing.judge.serving import Setup
from interposer.testing.judge.workers import _PID, run_worker

__all__ = ["main"]

_MODULES: Final = ("interposer.testing.judge.tasks", "interposer.testing.random_networks")
_FORMAT_MODULES: Final = (
    "interposer.frontends.onnx",
    "interposer.frontends.tflite",
    "interposer.writers.onnx",
    "interposer.writers.tflite",
    "onnx",
)


def main(control: int) -> None:
    """Fork a worker on each request, and report how workers ended. This is the entry point of the fork server.

    `control` is the descriptor of the socket to the parent process, which first sends the `Setup`.
    """
    with socket.socket(fileno=control) as connection:
        setup: Setup = Channel(connection).receive()
        reference()
        for name in (*_MODULES, *(_FORMAT_MODULES if setup.formats else ())):
            with suppress(ImportError):
                import_module(name)
        gc.freeze()
        connection.sendall(_PID.pack(0))
        _serve(connection, setup)


def _serve(connection: socket.socket, setup: Setup) -> None:
    while True:
        content, descriptors, _, _ = socket.recv_fds(connection, _PID.size, 2)
        if not content:
            return
        (pid,) = _PID.unpack(content)
        connection.sendall(_PID.pack(_ended(pid) if pid else _forked(connection, descriptors, setup)))


def _forked(control: socket.socket, descriptors: list[int], setup: Setup) -> int:
    pid = os.fork()
    if not pid:
        control.close()
        run_worker(socket.socket(fileno=descriptors[0]), descriptors[1], setup)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
