"""Ends of processes that have used the delegate; `python -m tests.bridges.litert.scenarios NAME` runs one of them.

A scenario leaves what it creates in `RETAINED`, so that it exists when the interpreter of Python ends.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

import interposer as ip
from examples.compute_backend import TinyBackend
from interposer.backend import KernelTable
from interposer.ops import BatchMatMul
from tests.bridges.litert.hosting import delegate, interpreter, last_report, perceptron, random_feeds, run
from tests.isolating import children

RETAINED: Final[list[Any]] = []
CONTENT: Final = perceptron(softmax=False)


def hosted(**options: str) -> Any:
    """Return an interpreter that has run once."""
    made = interpreter(CONTENT, [delegate(**({"backends": "CpuAcc"} | options))])
    run(made, random_feeds(made))
    RETAINED.append(made)
    return made


def on_tiny() -> Any:
    """Return an interpreter whose runs take the way through Python."""
    ip.process_registry().register("Tiny", TinyBackend)
    return hosted(backends="Tiny")


def forever(made: Any) -> None:
    while True:
        made.invoke()


def begin(made: Any) -> None:
    """Run an interpreter in a thread that does not end by itself."""
    threading.Thread(target=forever, args=[made], daemon=True).start()
    time.sleep(0.2)


def alive() -> None:
    """The interpreter and its delegate exist at the end."""
    hosted()


def runs_at_exit() -> None:
    """The program runs the interpreter in a function that it has registered with atexit."""
    made = hosted()
    atexit.register(lambda: print(run(made, random_feeds(made))[0].shape))


def thread() -> None:
    """A daemon thread runs a compiled part at the end."""
    begin(hosted())


def thread_in_python() -> None:
    """A daemon thread runs a backend in Python at the end."""
    begin(on_tiny())


class Interrupted(TinyBackend):
    """Sends a signal to its own process in its next runs."""

    id = "Interrupted"
    kernels = KernelTable()
    signals: ClassVar[list[signal.Signals]] = []


@Interrupted.kernels(BatchMatMul)
def interrupted_product(op: BatchMatMul, a: Any, b: Any, *, out: Any) -> None:
    while Interrupted.signals:
        os.kill(os.getpid(), Interrupted.signals.pop())
        sum(range(1000))
    np.matmul(a, b, out=out)


def interrupted() -> None:
    """Ctrl-C in a run arrives as KeyboardInterrupt, and `sys.exit` in a signal handler ends the process."""
    ip.process_registry().register("Interrupted", Interrupted)
    made = hosted(backends="Interrupted")
    Interrupted.signals = [signal.SIGINT]
    try:
        made.invoke()
        raise AssertionError("nothing was raised")
    except KeyboardInterrupt:
        made.invoke()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Interrupted.signals = [signal.SIGTERM]
    made.invoke()
    os._exit(1)


def threads() -> None:
    """Threads create and run an interpreter each, and drop it."""
    results = []

    def work() -> None:
        made = interpreter(CONTENT, [delegate(backends="CpuAcc")])
        feeds = random_feeds(made)
        results.append([run(made, feeds)[0] for _ in range(50)])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(results[0][0], result) for each in results for result in each)


def cycle() -> None:
    """The interpreter is in a cycle that only the end of Python breaks."""
    gc.disable()
    cell: list[Any] = [hosted()]
    cell.append(cell)
    RETAINED.clear()


def reopened() -> None:
    """A file with the constants of an earlier one is opened when the memory of the earlier ones is not valid any more.

    The later file is larger, so that it is not mapped to the same address.
    """
    gc.disable()  # objects in cycles stay
    with tempfile.TemporaryDirectory() as folder:
        for count in (3, 9):
            path = Path(folder, f"{count}.tflite")
            path.write_bytes(perceptron([256] * count, softmax=False))
            made = interpreter(path, [delegate(backends="CpuAcc")])
            run(made, random_feeds(made))
            assert last_report().taken
            del made


def dropped() -> None:
    """Everything is dropped before the end."""
    hosted()
    RETAINED.clear()
    gc.collect()


def error() -> None:
    """The last run failed."""
    made = hosted(backends="CpuAcc", min_nodes="1")
    made.resize_tensor_input(made.get_input_details()[0]["index"], [2, 7])
    try:
        made.allocate_tensors()
    except RuntimeError as problem:
        print(str(problem)[:200])
    else:
        raise AssertionError("7 columns were accepted")


def forked() -> None:
    """A process that was forked after a run creates and runs an interpreter of its own."""
    hosted()
    child = os.fork()
    if not child:
        made = interpreter(CONTENT, [delegate(backends="CpuAcc", threads="1")])
        os._exit(0 if run(made, random_feeds(made))[0].shape == (2, 4) else 3)
    assert os.waitpid(child, 0)[1] == 0


def freed_late() -> None:
    """The interpreter is dropped after Python has closed the gate, and its report is read."""

    def late() -> None:
        RETAINED.clear()
        gc.collect()
        if last_report().parts[0].counters()[0] != 1:
            os._exit(3)  # exceptions in functions of atexit do not change the exit code

    atexit.register(late)  # before the bridge registers its function, and thus called after it
    hosted()


def exception() -> None:
    """The program ends with an exception."""
    hosted()
    raise SystemExit(0)


def unused() -> None:
    """A delegate is created and never used."""
    RETAINED.append(delegate(backends="CpuAcc"))


def killed() -> None:
    """The child process of an isolated backend is killed between two runs, and the next run is right."""
    made = hosted(backends="CpuAcc", isolate="CpuAcc")
    feeds = random_feeds(made)
    assert children()
    first = run(made, feeds)[0]
    for process in children():
        os.kill(process, signal.SIGKILL)
    assert np.array_equal(run(made, feeds)[0], first)
    print(last_report().explain())


def flat() -> None:
    """A thousand interpreters are created and dropped, and the memory does not grow."""

    def once() -> None:
        made = interpreter(CONTENT, [taker])
        run(made, feeds)

    taker = delegate(backends="CpuAcc")
    feeds = random_feeds(interpreter(CONTENT))
    sizes = []
    for count in range(1000):
        once()
        if count in (199, 999):
            gc.collect()
            sizes.append(resident())
    print(sizes)
    assert sizes[1] - sizes[0] < 4 << 20, sizes


def resident() -> int:
    """Return the bytes of memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SCENARIOS: Final[dict[str, Callable[[], None]]] = {
    scenario.__name__: scenario
    for scenario in (
        alive, runs_at_exit, thread, thread_in_python, threads, cycle, reopened, dropped, error, freed_late, forked,
        exception, unused, killed, flat, interrupted,
    )
}  # fmt: skip

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
    print("end of", sys.argv[1], flush=True)
