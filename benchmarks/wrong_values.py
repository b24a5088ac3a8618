"""Times of good requests to a server, with and without requests beside them whose values the model cannot use.

`interposer serve` has a model that looks up rows of a table and multiplies them. A client sends good requests at a
fixed rate, in every second leg together with some whose index is beyond the table. The times begin when a request is
due, so the times of a server that is too slow grow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from benchmarks.serving import Server, free_port
from benchmarks.serving_client import Send, http_sender

ROWS, WIDTH, LENGTH, LAYERS = 5000, 256, 64, 4
CONNECTIONS = 4


def network() -> ip.Network:
    """Return a network that looks up 64 rows of a table, multiplies them by four matrices, and averages them."""
    generator = np.random.default_rng(0)
    network = ip.Network("net")
    table = network.add_constant_layer(generator.standard_normal((ROWS, WIDTH), np.float32))
    indices = network.add_input_layer(0, ip.TensorInfo((LENGTH,), "int64"), name="ids")
    value: Any = network.add_gather_layer(table, indices, axis=0, name="lookup")
    for _ in range(LAYERS):
        weights = generator.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
        value = network.add_batch_mat_mul_layer(value, network.add_constant_layer(weights))
    network.add_output_layer(0, network.add_mean_layer(value, axis=(0,)), name="y")
    return network


def body(indices: Sequence[int]) -> bytes:
    """Return a request in the form that `http_sender` takes."""
    tensor = {"name": "ids", "datatype": "INT64", "shape": [LENGTH], "data": list(indices)}
    return bytes(8) + json.dumps({"inputs": [tensor]}).encode()


async def paced(senders: Sequence[Send], rate: float, seconds: float) -> tuple[list[float], int]:
    """Send requests at a rate over these connections; return the times in seconds, and how many had a result."""
    free: asyncio.Queue[Send] = asyncio.Queue()
    for sender in senders:
        free.put_nowait(sender)
    begin, times, results = time.perf_counter(), list[float](), 0

    async def one(due: float) -> None:
        nonlocal results
        send = await free.get()
        has_result = await send()
        results += has_result
        times.append(time.perf_counter() - due)
        free.put_nowait(send)

    tasks = []
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        await asyncio.sleep(due - time.perf_counter())
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    return times, results


async def leg(port: int, args: argparse.Namespace, bad_rate: float) -> dict[str, Any]:
    """Send the requests of one leg; return the times of the good ones, and check all answers."""
    good, bad = body(range(LENGTH)), body([0] * (LENGTH - 1) + [ROWS + 7])
    good_senders = [await http_sender(port, "net", good) for _ in range(CONNECTIONS)]
    bad_senders = [await http_sender(port, "net", bad) for _ in range(CONNECTIONS)]
    runs = [paced(good_senders, args.rate, args.seconds), paced(bad_senders, bad_rate, args.seconds)]
    (times, results), (bad_times, bad_results) = await asyncio.gather(*runs)
    if results != len(times) or bad_results:
        raise SystemExit(f"{len(times) - results} good requests failed, and {bad_results} bad ones had a result")
    return {"bad": len(bad_times), "milliseconds": [1e3 * seconds for seconds in times]}


def _client(words: list[str]) -> int:
    """Run one leg in this process, which `main` starts on a processor of its own; print its figures as JSON."""
    parser = argparse.ArgumentParser()
    for name in ("port", "rate", "bad_rate", "seconds"):
        parser.add_argument(name, type=float)
    args = parser.parse_args(words)
    print(json.dumps(asyncio.run(leg(int(args.port), args, args.bad_rate))))
    return 0


def main(argv: list[str]) -> int:
    """Measure legs with and without bad requests in turns, and print a table."""
    if argv[:1] == ["--client"]:
        return _client(argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="CpuAcc,CpuRef")
    parser.add_argument("--rate", type=float, default=50, help="good requests per second")
    parser.add_argument("--bad-rate", type=float, default=5, help="bad requests per second in every second leg")
    parser.add_argument("--seconds", type=float, default=30, help="seconds of each leg")
    parser.add_argument("--pairs", type=int, default=4, help="how often a leg with and one without them are measured")
    *others, last = sorted(os.sched_getaffinity(0))
    parser.add_argument("--cpus", default=",".join(map(str, others or [last])), help="processors of the server")
    parser.add_argument("--client-cpus", default=str(last), help="processors of the client")
    parser.add_argument("--priority", type=int, help="real-time priority of both (needs chrt)")
    parser.add_argument("--json", type=Path, help="also write the times there")
    args = parser.parse_args(argv)
    first = [] if args.priority is None else ["chrt", "-f", str(args.priority)]
    times: dict[str, list[list[float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file, port = Path(folder, "net.ipn"), free_port()
        ip.load(network(), args.backends.split(",")).save(file)
        command = [*first, sys.executable, "-m", "interposer", "serve", str(file), "--name", "net"]
        command += ["--backends", args.backends, "--port", str(port)]
        server = Server("interposer", command, folder, "", port, 0, ("json",)).start(args.cpus, Path(folder, "log"))
        stack.callback(server.wait)
        stack.callback(server.terminate)
        client = ["taskset", "-c", args.client_cpus, *first, sys.executable, __file__, "--client", str(port)]
        _leg(client, args, args.bad_rate, 3)
        for number in range(2 * args.pairs):
            kind = "with" if number % 4 in (1, 2) else "without"
            times[kind].append(_leg(client, args, args.bad_rate if kind == "with" else 0, args.seconds))
        log = Path(folder, "log").read_text()
    _print(times, log)
    if args.json:
        args.json.write_text(json.dumps(times) + "\n", encoding="utf-8")
    return 0


def _leg(client: list[str], args: argparse.Namespace, bad_rate: float, seconds: float) -> list[float]:
    """Run one leg in a process of its own, and return the times of the good requests in milliseconds."""
    command = [*client, str(args.rate), str(bad_rate), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if completed.returncode:
        raise SystemExit(completed.stderr)
    times: list[float] = json.loads(completed.stdout)["milliseconds"]
    return times


def _print(times: dict[str, list[list[float]]], log: str) -> None:
    print(f"{'bad requests':14} {'leg':>4} {'good':>6} {'p50 ms':>8} {'p99 ms':>8}")
    pooled = {}
    for kind, legs in times.items():
        for number, leg_times in enumerate([*legs, pooled.setdefault(kind, sum(legs, []))]):
            title = str(number + 1) if number < len(legs) else "all"
            print(f"{kind:14} {title:>4} {len(leg_times):6} {_p(leg_times, 50):8.3f} {_p(leg_times, 99):8.3f}")
    for percentile in (50, 99):
        ratios = [_p(a, percentile) / _p(b, percentile) for a, b in zip(times["with"], times["without"], strict=True)]
        ratio = _p(pooled["with"], percentile) / _p(pooled["without"], percentile)
        print(f"p{percentile}: {ratio:.3f} times (median of the pairs: {statistics.median(ratios):.3f})")
    print(f"lines in the log of the server: {len(log.splitlines())}")


def _p(times: list[float], percentile: float) -> float:
    return float(np.percentile(times, percentile))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
