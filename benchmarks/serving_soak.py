"""Keep servers busy while backends fail, clients leave or attack, models are loaded again and workers are killed.

    python benchmarks/serving_soak.py [--minutes 10] [--clients 16]

Two servers run at the same time. One has a model that a client loads again every few seconds, after its file was
replaced, damaged or written to, and a second model whose backend is isolated: its process is killed every few seconds.
A third model has states, in sequences of which some are never ended. The other server has two workers, one of which is
killed every few seconds. Some clients leave before their answer, and others send indices that are out of range, damaged
or compressed bodies of the wrong size, bodies and heads that never end, and large or cancelled gRPC messages. Every
other request must get its right result, or an error with a sentence. A connection that a killed worker closes is
counted apart. The status is 0 if no request is lost or wrong, and the memory of the first server has not grown by more
than 32 MiB after the first third.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import interposer as ip
from interposer import Network, TensorInfo
from interposer.serving.protocol.grpc_messages import message
from interposer.writers import tflite

TOKEN = {"INTERPOSER_SERVE_TOKEN": "soak"}


def network(factor: int) -> Network:
    """Return a network that adds its input to itself `factor` times."""
    network = Network("sum")
    x = value = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    for number in range(factor - 1):
        value = network.add_addition_layer(value, x, name=f"add{number}")
    network.add_output_layer(0, value, name="y")
    return network


def table() -> Network:
    """Return a network that looks up rows of a table with four rows."""
    network = Network("table")
    x = network.add_input_layer(0, TensorInfo((1, 4), "int32"), name="x")
    rows = network.add_constant_layer(np.arange(4, dtype=np.float32) * 10)
    network.add_output_layer(0, network.add_gather_layer(rows, x), name="y")
    return network


def counter() -> Network:
    """Return a network that adds its input to a state, and returns the sum."""
    network = Network("counter")
    x = network.add_input_layer(0, TensorInfo((1, 4)), name="x")
    total = network.add_addition_layer(network.add_state("total", TensorInfo((1, 4))), x, name="add")
    network.set_state("total", total)
    network.add_output_layer(0, total, name="y")
    return network


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) << 10  # type: ignore[index] # Linux has this line


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or not."""
    texts = [text_of(task / "children") for task in Path(f"/proc/{pid}").glob("task/*")]
    direct = [int(number) for text in texts for number in text.split()]
    return [*direct, *(below for child in direct for below in children(child))]


def text_of(path: Path) -> str:
    """Return the text of a file about a process or a thread; an empty text if it has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class Soak:
    """Sends requests to two servers and disturbs them until the time is over."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.draw = random.Random(1)
        self.sizes: list[int] = []

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    async def post(
        self, port: int, path: str, body: Any, leaves: bool = False, encoding: str = ""
    ) -> tuple[int, Any] | None:
        """Return status and body of the answer; None if the connection was closed, or if this client leaves."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = f"Host: localhost\r\nAuthorization: Bearer soak\r\nContent-Length: {len(data)}\r\n"
        headers += f"Content-Encoding: {encoding}\r\n" if encoding else ""
        head = f"POST {path} HTTP/1.1\r\n{headers}\r\n"
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return None
        try:
            writer.write(head.encode() + data)
            if leaves:
                await asyncio.sleep(self.draw.random() * 0.01)
                return None
            async with asyncio.timeout(60):
                answer = await reader.readuntil(b"\r\n\r\n")
                size = re.search(rb"(?i)\r\ncontent-length: (\d+)", answer)
                text = await reader.readexactly(int(size[1]) if size else 0)
            return int(answer.split()[1]), json.loads(text)
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()

    async def client(self, kind: str, port: int, model: str, factor: int) -> None:
        """Send requests until the end, and compare the results."""
        while self.goes_on:
            values = [self.draw.randrange(100) for _ in range(4)]
            tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": values}
            leaves = self.draw.random() < 0.05
            try:
                answer = await self.post(port, f"/v2/models/{model}/infer", {"inputs": [tensor]}, leaves)
            except TimeoutError:
                self.wrong.append(f"{kind}: no answer")
                continue
            if leaves:
                self.counts[f"{kind}: left"] += 1
            elif answer is None:
                self.counts[f"{kind}: closed"] += 1
                if kind != "workers":
                    self.wrong.append(f"{kind}: the connection was closed")
            elif answer[0] == 200:
                self.counts[f"{kind}: right"] += 1
                if answer[1]["outputs"][0]["data"] != [factor * value for value in values]:
                    self.wrong.append(f"{kind}: a wrong result {answer[1]} for {values}")
            else:
                self.counts[f"{kind}: {answer[0]}"] += 1
                if not answer[1].get("error"):
                    self.wrong.append(f"{kind}: status {answer[0]} without an error")

    async def lookup(self, port: int) -> None:
        """Look up rows, some of which the table does not have; these requests must be refused and change nothing."""
        while self.goes_on:
            values = [self.draw.randrange(4) for _ in range(4)]
            is_bad = self.draw.random() < 0.3
            values[0] = self.draw.choice((-9, 4, 1 << 30)) if is_bad else values[0]
            tensor = {"name": "x", "datatype": "INT32", "shape": [1, 4], "data": values}
            answer = await self.post(port, "/v2/models/table/infer", {"inputs": [tensor]})
            status = None if answer is None else answer[0]
            self.counts[f"values: {status}"] += 1
            if is_bad and status not in (400, 503):
                self.wrong.append(f"values: {answer} for {values}")
            if not is_bad and status == 200 and answer[1]["outputs"][0]["data"] != [10 * value for value in values]:
                self.wrong.append(f"values: a wrong result {answer[1]} for {values}")
            if not is_bad and status not in (200, 503):
                self.wrong.append(f"values: {answer} for {values}")

    async def attack(self, port: int) -> None:
        """Send bodies that are damaged, compressed from zeros, nested deeply, or never end."""
        zeros = gzip.compress(bytes(64 << 20))
        bodies = (
            (b"{", ""),
            (b"[" * 100_000, ""),
            (zeros, "gzip"),
            (b"\xff" * 1000, "gzip"),
            (b'{"inputs":[' + b"[]," * 10**6, ""),
        )
        while self.goes_on:
            body, encoding = self.draw.choice(bodies)
            answer = await self.post(port, "/v2/models/plain/infer", body, False, encoding)
            self.counts[f"attacks: {None if answer is None else answer[0]}"] += 1
            if answer is not None and answer[0] not in (400, 408, 413, 429, 503):
                self.wrong.append(f"attacks: {answer[0]}")
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(
                    b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n{"
                )
                await asyncio.sleep(0.5)
                writer.close()

    async def watch(self, pid: int) -> None:
        """Note the memory of a process."""
        while self.goes_on:
            self.sizes.append(resident(pid))
            await asyncio.sleep(1)

    async def sequences(self, port: int, number: int) -> None:
        """Send sequences of requests, of which one in ten is never ended, and compare the sums."""
        while self.goes_on:
            number, total, steps = number + 10, 0, self.draw.randrange(1, 8)
            is_left = self.draw.random() < 0.1
            for step in range(steps):
                value = self.draw.randrange(100)
                total += value
                flags = {"sequence_start": step == 0, "sequence_end": step == steps - 1 and not is_left}
                tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [value] * 4}
                body = {"inputs": [tensor], "parameters": {"sequence_id": number, **flags}}
                answer = await self.post(port, "/v2/models/counter/infer", body)
                self.counts[f"sequences: {None if answer is None else answer[0]}"] += 1
                if answer is None or answer[0] not in (200, 503, 504):
                    self.wrong.append(f"sequences: {answer}")
                if answer is None or answer[0] != 200:
                    break
                if answer[1]["outputs"][0]["data"] != [total] * 4:
                    self.wrong.append(f"sequences: {answer[1]} for {total}")

    async def grpc_client(self, port: int) -> None:
        """Send requests over gRPC, some of which are cancelled, damaged, or large messages of zeros in a few bytes."""
        import grpc  # noqa: PLC0415 - --help needs no package

        refusals = ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAVAILABLE")
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
            while self.goes_on:
                array = np.array([[self.draw.randrange(100) for _ in range(4)]], np.float32)
                tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4]}
                request = message("ModelInferRequest")(
                    model_name="plain", inputs=[tensor], raw_input_contents=[array.tobytes()]
                )
                data, choice, seconds = request.SerializeToString(), self.draw.random(), 60.0
                kind = "grpc"
                if choice < 0.1:
                    kind, seconds = "grpc: cancelled", self.draw.random() * 0.01
                elif choice < 0.2:
                    kind, data = "grpc: damaged", data[: self.draw.randrange(1, len(data))]
                elif choice < 0.22:
                    request.raw_input_contents[0] = bytes(8 << 20)
                    kind, data = "grpc: large", request.SerializeToString()
                try:
                    answer = await call(data, timeout=seconds, compression=grpc.Compression.Gzip)
                    code = "OK"
                    result = message("ModelInferResponse").FromString(answer).raw_output_contents[0]
                    if kind == "grpc" and result != (array + array).tobytes():
                        self.wrong.append("grpc: a wrong result")
                except grpc.aio.AioRpcError as error:
                    code = error.code().name
                    if code in ("INTERNAL", "UNKNOWN") or (kind == "grpc" and code not in refusals):
                        self.wrong.append(f"{kind}: {code} {error.details()}")
                self.counts[f"{kind}: {code}"] += 1

    async def half_requests(self, port: int) -> None:
        """Open connections whose heads never end, or whose answers are not read."""
        head = b"GET /v2/models/plain HTTP/1.1\r\nHost: localhost\r\n"
        while self.goes_on:
            writers = []
            with contextlib.suppress(OSError):
                for _ in range(20):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(self.draw.choice((head, head + b"A: " + b"a" * 70_000, (head + b"\r\n") * 50, b"\0")))
                    writers.append(writer)
                await asyncio.sleep(2)
            for writer in writers:
                writer.close()
            self.counts["half requests"] += len(writers)

    async def reload(self, port: int, path: Path) -> None:
        """Load a model again every few seconds, after its file was replaced, damaged, or written to."""
        content = path.read_bytes()
        while self.goes_on:
            await asyncio.sleep(3)
            kind = self.draw.choice(("replaced", "damaged", "written to"))
            new_content = content if kind == "replaced" else content[: len(content) // 2] + b"?" * 100
            if kind == "written to":
                path.write_bytes(new_content)  # which is not loaded, and must change nothing
                await asyncio.sleep(1)
                new_content = content
            new_path = path.with_suffix(".new")
            new_path.write_bytes(new_content)
            os.replace(new_path, path)
            answer = await self.post(port, "/v2/repository/models/plain/load", {})
            status = None if answer is None else answer[0]
            self.counts[f"file {kind}: {status}"] += 1
            if status != (400 if kind == "damaged" else 200):
                self.wrong.append(f"a file that was {kind} was loaded with {answer}")

    async def kill(self, description: str, parent: int, pattern: str, pause: float) -> None:
        """Kill a process below `parent` whose command has `pattern` in it, again and again."""
        while self.goes_on:
            await asyncio.sleep(pause)
            matching = [pid for pid in children(parent) if pattern in text_of(Path(f"/proc/{pid}/cmdline"))]
            if matching and self.goes_on:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.draw.choice(matching), signal.SIGKILL)
                self.counts[f"killed {description}"] += 1


def started(log: Path, *words: str, **environment: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a server; return its process and its ports."""
    command = [sys.executable, "-m", "interposer", "serve", "--port", "0", "--queue", "256", *words]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, **environment}
        )
    line = process.stdout.readline() if process.stdout else ""
    ports = [int(port) for port in re.findall(r":(\d+)", line)]
    if not ports:
        raise SystemExit(log.read_text(encoding="utf-8"))
    return process, ports


async def soak(args: argparse.Namespace, one: tuple[Any, list[int]], both: tuple[Any, list[int]], path: Path) -> Soak:
    """Run all clients and disturbances; `path` is that of the model that is loaded again."""
    state = Soak(args.minutes * 60)
    single, two = (one[0], one[1][0]), (both[0], both[1][0])
    each = max(1, args.clients // 4)
    work = [state.client("reloaded", single[1], "plain", 2) for _ in range(each * 2)]
    work += [state.client("failing", single[1], "isolated", 3) for _ in range(each)]
    work += [state.client("workers", two[1], "plain", 2) for _ in range(each)]
    work += [state.lookup(single[1]), state.attack(single[1]), state.watch(single[0].pid)]
    work += [state.sequences(single[1], number) for number in range(1, 4)]
    work += [state.grpc_client(one[1][1]) for _ in range(2)] + [state.half_requests(single[1])]
    work += [state.reload(single[1], path), state.kill("backend", single[0].pid, "isolation", 7)]
    work.append(state.kill("worker", two[0].pid, "serve", 15))
    await asyncio.gather(*work)
    return state


def main() -> int:
    """Start the servers, disturb them, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=16)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "models")
        home.mkdir()
        fixed = Path(folder, "fixed")
        fixed.mkdir()
        for parent in (home, fixed):
            tflite.save(network(2), parent / "plain.tflite")
        with ip.load(counter(), ["CpuRef"]) as stateful:
            stateful.save(home / "counter.ipn")
        settings = '[sequences]\nstrategy = "direct"\nidle_seconds = 10\n'
        (home / "counter.toml").write_text(f'backends = ["CpuRef"]\nbatch = 2\n{settings}')
        tflite.save(network(3), home / "isolated.tflite")
        ip.load(table(), ["CpuAcc", "CpuRef"]).save(home / "table.ipn")  # whose indices have no other meaning
        (home / "table.toml").write_text('backends = ["CpuAcc", "CpuRef"]\n')
        (home / "plain.toml").write_text('backends = ["CpuRef"]\n')
        (home / "isolated.toml").write_text('backends = ["CpuAcc", "CpuRef"]\nisolate = ["CpuAcc"]\n')
        log = Path(folder, "one"), Path(folder, "two")
        variables = {**TOKEN, "INTERPOSER_ISOLATION_MAX_RESTARTS": "1000000"}
        single = started(log[0], str(home), "--control", "explicit", **variables)
        fixed_path = str(fixed / "plain.tflite")
        two = started(log[1], fixed_path, "--backends", "CpuRef", "--workers", "2", "--no-grpc")
        try:
            figures = asyncio.run(soak(args, single, two, home / "plain.tflite"))
        finally:
            for process, _ in (single, two):
                process.terminate()
            statuses = [process.wait(60) for process, _ in (single, two)]
            tracebacks = sum(path.read_text(encoding="utf-8").count("Traceback") for path in log)
    for name, count in sorted(figures.counts.items()):
        print(f"{name:24} {count:10,}")
    print(f"exit statuses {statuses}, {tracebacks} tracebacks, {len(figures.wrong)} requests lost or wrong")
    for text in figures.wrong[:10]:
        print(text)
    after_third = figures.sizes[len(figures.sizes) // 3 :] or [0]
    first, last = max(after_third[: len(after_third) // 4 + 1]), max(after_third[-len(after_third) // 4 :])
    print(f"memory: {first / 2**20:.0f} MiB at most after a third of the time, {last / 2**20:.0f} MiB at the end")
    return int(bool(figures.wrong) or last - first > 32 << 20)


if __name__ == "__main__":
    sys.exit(main())
