"""Answers about health on a port of their own, from a process that nothing else uses.

The threads of the server take turns, and receiving a large message takes a long one. The process answers at once also
then, and while all connections of the server are taken.
"""

from __future__ import annotations

import mmap
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

__all__ = ["HealthPort"]

_PROGRAM: Final = Path(__file__).with_name("health_process.py")
_STATE: Final = struct.Struct("<d?")
"""As in the program."""


class HealthPort:
    """A process that answers ``GET /v2/health/live`` and ``/v2/health/ready``, with 200 or 503.

    Args:
        bound: the socket, which is bound; it is closed at the end.
    """

    def __init__(self, bound: socket.socket) -> None:
        bound.listen(64)
        self._socket = bound
        self._file = tempfile.TemporaryFile(prefix="interposer-health-")  # noqa: SIM115 - open until `close`
        self._file.truncate(_STATE.size)
        self._memory = mmap.mmap(self._file.fileno(), _STATE.size)
        self.beat(False)
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        """Start the process, in the server's session: Linux may let a busy session run for long before another one."""
        descriptors = self._socket.fileno(), self._file.fileno()
        return subprocess.Popen(
            [sys.executable or "python3", "-I", str(_PROGRAM), *map(str, descriptors)],
            stdin=subprocess.PIPE,  # the process ends when the server is gone
            pass_fds=descriptors,
            process_group=0,  # a Ctrl-C in the terminal reaches the server only
        )

    def beat(self, is_ready: bool) -> None:
        """Note that the event loop has its turn, and whether the server is ready; called some times per second."""
        _STATE.pack_into(self._memory, 0, time.monotonic(), is_ready)

    def check(self) -> None:
        """Start the process again if it has ended."""
        if self._process.poll() is not None:
            self._end()
            self._process = self._started()

    def close(self) -> None:
        """End the process, and close the port."""
        self._end()
        self._socket.close()
        self._memory.close()
        self._file.close()

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()  # it may be stopped, and then it would not see that standard input has ended
        self._process.wait()
