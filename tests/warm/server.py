"""Fork this process, which has imported most of the package, into programs of Python: ``server.py SOCKET``.

It answers the clients of `client.py`, and ends when its standard input does. A fork has no threads of the package, and
nothing that its modules remember: modules are only imported here, and none of their functions is called.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import io
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).resolve().parents[2] / "src" / "interposer"
PACKAGES = (
    "cli", "cli/arguments", "file_formats", "frontends/onnx", "frontends/tflite", "kernels", "ops", "session",
    "testing/judge",
)  # fmt: skip
MODULES = (
    "interposer.backends.reference", "interposer.include", "interposer.isolation.server", "interposer.profiling.page",
    "interposer.serving.remote", "interposer.serving.server", "interposer.serving.workers",
    "interposer.session.torch.format", "interposer.testing.random_networks", "interposer.writers.onnx",
    "interposer.writers.tflite",
    "PIL.Image", "numpy.random", "onnx", "rich.table", "starlette.applications", "urllib.request",
    "uvicorn.protocols.http.httptools_impl", "uvloop", "xml.etree.ElementTree",
)  # fmt: skip


def import_all() -> None:
    """Import what most programs need."""
    for name in (*MODULES, *modules_of(PACKAGES)):
        with suppress(ImportError):  # packages that are not installed everywhere
            import_module(name)


def modules_of(packages: Iterable[str]) -> Iterator[str]:
    """Yield the names of the modules in packages of Interposer."""
    for package in packages:
        for file in sorted((SOURCES / package).glob("*.py")):
            if not file.stem.startswith("__"):
                yield f"interposer.{package.replace('/', '.')}.{file.stem}"


class Server:
    """Forks this process for each client, and sends it the number of the fork, and its exit status at the end."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._ended, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        self._clients: dict[int, socket.socket] = {}
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup.fileno())

    def serve(self) -> list[str] | None:
        """Return the words of a program in each fork; return None in this process when its standard input ends."""
        while True:
            poll = select.poll()
            for descriptor in (0, self._listener.fileno(), self._ended.fileno()):
                poll.register(descriptor, select.POLLIN)
            for connection in self._clients.values():
                poll.register(connection, 0)  # for the end of the client alone
            ready = {descriptor for descriptor, _ in poll.poll()}
            self._kill(ready)
            if 0 in ready:
                return None
            self._reap()
            if self._listener.fileno() in ready and (words := self._accept()) is not None:
                return words

    def _accept(self) -> list[str] | None:
        connection, _ = self._listener.accept()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the threads of native libraries
            pid = os.fork()
        if pid:
            self._clients[pid] = connection
            with suppress(OSError):  # the client was killed
                connection.sendall(pid.to_bytes(4, "big"))
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        return become(connection)

    def _kill(self, ready: set[int]) -> None:
        """Kill the programs whose clients have ended, with their process groups; all if the standard input has."""
        for pid, connection in self._clients.items():
            if not ready.isdisjoint({0, connection.fileno()}):
                with suppress(ProcessLookupError):  # it has not called setsid yet
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # else the client is ready again until it has ended

    def _reap(self) -> None:
        """Send the exit status of programs that have ended to their clients, and end what they have left running."""
        self._ended.setblocking(False)
        with suppress(BlockingIOError):
            self._ended.recv(4096)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with suppress(OSError):  # no other process is in its group
                    os.killpg(ended[0], signal.SIGKILL)
                connection = self._clients.pop(ended[0])
                with suppress(OSError):  # the client was killed
                    connection.sendall(os.waitstatus_to_exitcode(ended[1]).to_bytes(4, "big", signed=True))
                connection.close()


# --- in a fork --------------------------------------------------------------------------------------------------------


def become(connection: socket.socket) -> list[str]:
    """Take the environment, the folder and the descriptors of a client; return the words of its program."""
    words, environment, numbers, parent, received = request_of(connection)
    own, real_parent = os.getpid(), os.getppid
    os.getppid = lambda: parent if os.getpid() == own else real_parent()  # programs end with their parents
    os.environb.clear()
    os.environb.update(environment)
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 512) for descriptor in (*received, connection.detach())]
    os.closerange(0, 512)
    folder, *opened, _ = high  # the last stays open: the client would take its end for the end of the program
    os.fchdir(folder)
    os.close(folder)
    for descriptor, number in zip(opened, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    open_streams()
    return words


def request_of(connection: socket.socket) -> tuple[list[str], dict[bytes, bytes], list[int], int, list[int]]:
    """Return the words, the environment, the numbers of open descriptors and the parent of a client; the descriptors.

    The first one received is that of the folder.
    """
    length, descriptors, _, _ = socket.recv_fds(connection, 4, 253)
    content = b""
    while len(content) < int.from_bytes(length, "big"):
        content += connection.recv(1 << 20)
    return *marshal.loads(content), descriptors


def open_streams() -> None:
    """Open the standard streams as a new interpreter does; one that is closed is None."""
    sys.stdin = sys.__stdin__ = _stream(0, "r")
    sys.stdout = sys.__stdout__ = _stream(1, "w")
    sys.stderr = sys.__stderr__ = _stream(2, "w", errors="backslashreplace", line_buffering=True)


def _stream(descriptor: int, mode: str, **settings: object) -> io.TextIOWrapper | None:
    try:
        raw = io.FileIO(descriptor, mode, closefd=False)
    except OSError:
        return None
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding="utf-8", **{"line_buffering": raw.isatty()} | settings)


def run(words: list[str]) -> None:
    """Run a program as ``python WORDS`` does; the words are ``-c CODE``, ``-m MODULE`` or a file, and arguments."""
    is_isolated, is_safe = words[0] == "-I", words[0] in {"-I", "-P"}
    option, *arguments = words[is_safe:]
    main = sys.modules["__main__"] = ModuleType("__main__")
    code = None
    if option == "-c":
        place, code = "", compile(arguments.pop(0), "<string>", "exec")
        sys.argv = ["-c", *arguments]
    elif option == "-m":
        place, sys.argv = os.getcwd(), ["-m", *arguments[1:]]
    else:
        place, sys.argv, main.__file__ = os.path.dirname(os.path.abspath(option)), [option, *arguments], option
        code = compile(Path(option).read_bytes(), option, "exec")
    folders = "" if is_isolated else os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [*([] if is_safe else [place]), *filter(None, folders.split(os.pathsep))]
    if code is None:
        runpy._run_module_as_main(arguments[0])
    else:
        exec(code, main.__dict__)


def run_to_the_end(words: list[str]) -> int:
    """Run a program, and return its exit status.

    An exception that it does not catch has the traceback that a new interpreter would print.
    """
    try:
        run(words)
        return 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in {__file__, runpy.__file__}:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    return 1


def end(status: int) -> None:
    """End this process as an interpreter does, except that modules are not destroyed, which takes most of the time."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None, a full disk, or closed
            stream.flush()
    ctypes.CDLL(None).exit(status)  # which runs what native libraries do at the end


if __name__ == "__main__":
    server = Server(sys.argv[1])
    import_all()
    gc.collect()
    gc.freeze()
    program = server.serve()
    if program is not None:
        end(run_to_the_end(program))
