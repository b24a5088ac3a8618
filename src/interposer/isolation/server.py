"""The main loop of the child process, which answers requests of the host."""

from __future__ import annotations

import base64
import faulthandler
import fcntl
import json
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from interposer.core.config import ISOLATE
from interposer.core.errors import InvalidValueError, LimitExceededError
from interposer.isolation.channel import ANSWER, ASK, PROBLEM, RUN, Channel, Message
from interposer.isolation.served import Served
from interposer.isolation.wire import problem_to_plain

__all__ = ["serve"]

_F_SETSIG: Final = 10


def serve(settings: Mapping[str, Any]) -> None:
    """Run the child process: answer the requests of the host until it closes the connection.

    `settings` has the descriptors of the socket and of the lifeline, and the limit of memory.
    """
    socket_end = socket.socket(fileno=settings["socket"])
    socket_end.set_inheritable(False)
    _die_with_the_host(settings["lifeline"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    os.environ[ISOLATE] = ""  # a runtime that the backend creates in this process isolates nothing again
    _Server(Channel(socket_end), _limit(settings["memory_bytes"])).run()
    sys.stdout.flush()


def _die_with_the_host(lifeline: int) -> None:
    """Let the kernel kill this process when the host ends, which closes its end of the pipe `lifeline`."""
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def _limit(memory_bytes: int | None) -> Callable[[int], None]:
    """Return a function that limits the address space of this process to its present size plus `memory_bytes`.

    The argument of the function is the size in bytes of mapped shared memory, which does not count. None means no
    limit.
    """
    if memory_bytes is None:
        return lambda shared_size: None
    pages = int(open("/proc/self/statm", encoding="ascii").read().split()[0])  # noqa: SIM115
    base_size = pages * resource.getpagesize() + int(memory_bytes)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)

    def apply(shared_size: int) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (base_size + shared_size, hard))

    return apply


class _Server:
    def __init__(self, channel: Channel, limit: Callable[[int], None]) -> None:
        self.channel, self.limit = channel, limit
        self.served = Served()
        self.shared = 0

    def run(self) -> None:
        """Receive requests and send the answers until the host closes the connection."""
        while True:
            try:
                message = self.channel.receive()
            except EOFError:
                return
            kind, body = self._answer(message)
            try:
                self.channel.send(kind, message.number, body)
            except OSError:  # the host has ended
                return

    def _answer(self, message: Message) -> tuple[int, bytes]:
        self.served.number = message.number
        try:
            if message.kind == RUN:
                self.served.run(message.body)
                return ANSWER, b""
            return ANSWER, json.dumps(self._answer_request(message)).encode()
        except Exception as error:
            if not isinstance(error, InvalidValueError | LimitExceededError):  # which the caller has caused
                with suppress(OSError):  # there is no room for more output
                    traceback.print_exc()
                    sys.stderr.flush()
            return PROBLEM, json.dumps(problem_to_plain(error)).encode()

    def _answer_request(self, message: Message) -> Mapping[str, Any]:
        assert message.kind == ASK
        request = message.plain
        name = request["do"]
        if name == "map":
            self.shared += request["size"]
            self.limit(self.shared)
            self.served.map(request["region"], message.fds[0], request["size"], request["writable"])
            return {}
        if name == "profile":
            self.served.profile(message.fds[0])
            return {}
        if name == "make":
            self.served.make(request["backend"], pickle.loads(base64.b64decode(request["factory"])))
            self.limit(self.shared)
            return self.served.description()
        answer: Mapping[str, Any] = getattr(self.served, f"do_{name}")(request)
        return answer
