"""Run a program of Python in a fork of the process of `server.py`: ``client.py SOCKET WORDS_OF_PYTHON...``.

The program gets the arguments, environment, folder and standard streams of this process, which ends with its exit
status, or by the signal that ended it. Signals that this process gets are sent on to the program. If this process is
killed, the server kills the program. Only built-in modules are imported here, so that this takes 10 ms.
"""

from __future__ import annotations

import _signal
import _socket
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SIGKILL = 9
SENT_ON = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGTERM)


def main() -> None:
    """Send the request, and end as the program does."""
    opened = list(open_descriptors())
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(sys.argv[1])
    try:
        folder = posix.open(".", posix.O_RDONLY | posix.O_DIRECTORY)
    except OSError:  # it was deleted, and the program starts in the root folder
        folder = posix.open("/", posix.O_RDONLY | posix.O_DIRECTORY)
    request = marshal.dumps((sys.argv[2:], dict(posix.environ), opened, posix.getppid()))
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in (folder, *opened))
    length = len(request).to_bytes(4, "big")
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, SENT_ON)  # the program may answer before it can be sent signals
    connection.sendmsg([length], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    connection.sendall(request)
    send_signals_to(int.from_bytes(connection.recv(4), "big"))
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    end(connection.recv(4))


def send_signals_to(process: int) -> None:
    """Send the signals that end a process, and those of users, to another one instead, unless they are ignored."""

    def send_on(number: int, _: object) -> None:
        try:
            posix.kill(process, number)
        except ProcessLookupError:
            return  # it has ended, and its status is on its way

    for number in SENT_ON if process else ():
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, send_on)


def open_descriptors() -> Iterator[int]:
    """Yield the descriptors that a program inherits: this is called before any other is opened."""
    for name in posix.listdir("/dev/fd"):
        try:
            posix.fstat(int(name))
        except OSError:  # of the list itself
            continue
        yield int(name)


def end(answer: bytes) -> None:
    """End with the exit status, or by the signal, of the program."""
    if not answer:
        posix._exit(255)
    status = int.from_bytes(answer, "big", signed=True)
    if status >= 0:
        posix._exit(status)
    if -status != SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)


main()
