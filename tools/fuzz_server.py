"""Send many damaged requests to a server, and check that it answers, does not grow, and still gives right results.

    python tools/fuzz_server.py [--requests 100000] [--seed 1] [--clients 16]

The server is `interposer serve` in a process of its own, with small models. A third of the requests are valid, and
their results are compared. The others are changed at random: fields, types, shapes, sizes, bytes, headers, compression,
paths, gRPC messages, and clients that leave early. Failures are: a server that ends, no answer within some seconds,
and an HTTP answer from 400 on without a JSON error. The status is 0 if there is none.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from interposer import Network, TensorInfo
from interposer.serving.protocol.grpc_messages import message
from interposer.writers import tflite

SECONDS = 30
TYPES = ("FP32", "FP16", "BF16", "FP64", "INT8", "UINT8", "INT32", "INT64", "BOOL", "BYTES", "FP33", "", None, 7)
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 1.5, 1e308, "", "x", "\ud800", "\0", [], {}, [[]],
    [1, "a"], {"a": 1}, [[1, 2], [3]], "9" * 400, [[[[[[[[[[1]]]]]]]]]],
)  # fmt: skip
PATHS = (
    "/", "/v2", "/v2/models/none/infer", "/v2/models/%00/infer", "/v2/models/double/versions/9/infer",
    "/v2/repository/models/double/unload", "/v2/models/small/infer", "/v2/logging",
    "/v2/cudasharedmemory/region/r/register",
)  # fmt: skip
WIDE = 400
"""Elements of the input of the model `wide`, whose answers are large enough to be compressed."""
ACCEPTED = ("gzip", "deflate", "gzip;q=0", "*;q=0.5, gzip;q=x", "identity, gzip;q=1.000", "br", ",;=", "a" * 999)
"""Values of the header Accept-Encoding."""
UNPACK = {b"gzip": gzip.decompress, b"deflate": zlib.decompress}


def network(dtype: str, shape: tuple[Any, ...]) -> Network:
    """Return a network that computes y = x + x."""
    doubler = Network("double")
    x = doubler.add_input_layer(0, TensorInfo(shape, dtype), name="x")
    doubler.add_output_layer(0, doubler.add_addition_layer(x, x, name="sum"), name="y")
    return doubler


class Fuzzer:
    """Makes requests at random, sends them, and counts the answers."""

    def __init__(self, seed: int, port: int, grpc_port: int) -> None:
        self.draw = random.Random(seed)
        self.port, self.grpc_port = port, grpc_port
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def valid(self, size: int) -> tuple[dict[str, Any], bytes, list[float]]:
        """Return the JSON object and the bytes of a valid request, and the elements of its result."""
        values = [float(self.draw.randrange(100)) for _ in range(size)]
        tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, size]}
        fields: dict[str, Any] = {"inputs": [tensor], "id": str(self.draw.randrange(1000))}
        tail = b""
        if self.draw.random() < 0.5:
            tail = np.array(values, np.float32).tobytes()
            tensor["parameters"] = {"binary_data_size": len(tail)}
        else:
            tensor["data"] = values
        return fields, tail, [2 * value for value in values]

    def changed(self, json_value: Any, depth: int = 0) -> Any:
        """Return a JSON value with one random change inside of it."""
        draw = self.draw
        if isinstance(json_value, dict) and json_value and draw.random() < 0.8:
            key = draw.choice(list(json_value))
            changed_value = dict(json_value)
            choice = draw.random()
            if choice < 0.1:
                del changed_value[key]
            elif choice < 0.2:
                changed_value[draw.choice(["", "x", "data", "parameters", "shape", "outputs"])] = draw.choice(ODD)
            elif key == "datatype":
                changed_value[key] = draw.choice(TYPES)
            else:
                changed_value[key] = self.changed(json_value[key], depth + 1)
            return changed_value
        if isinstance(json_value, list) and json_value and draw.random() < 0.8:
            result_list = list(json_value)
            result_list[draw.randrange(len(json_value))] = self.changed(draw.choice(json_value), depth + 1)
            return result_list * 2 if len(result_list) < 8 and draw.random() < 0.2 else result_list
        return draw.choice(ODD)

    def garbled(self, data: bytes) -> bytes:
        """Return bytes with some of them changed, removed or added."""
        garbled = bytearray(data)
        for _ in range(self.draw.randrange(1, 6)):
            at = self.draw.randrange(len(garbled) + 1)
            choice = self.draw.random()
            if choice < 0.5 and at < len(garbled):
                garbled[at] = self.draw.randrange(256)
            elif choice < 0.75:
                del garbled[at : at + self.draw.randrange(1, 8)]
            else:
                garbled[at:at] = self.draw.randbytes(self.draw.randrange(1, 8))
        return bytes(garbled)

    def http_request(self) -> tuple[bytes, list[float] | None]:
        """Return the bytes of an HTTP request, and the elements of its result if it is valid."""
        draw = self.draw
        is_wide = draw.random() < 0.1
        fields, tail, doubled = self.valid(WIDE if is_wide else 4)
        expected: list[float] | None = doubled
        path = f"/v2/models/{'wide' if is_wide else 'double'}/infer"
        if draw.random() < 0.67:
            expected = None
            for _ in range(draw.randrange(1, 4)):
                fields = self.changed(fields)
        head = json.dumps(fields).encode()
        length: Any = len(head) if tail else None
        data = head + tail
        extra = f"Accept-Encoding: {draw.choice(ACCEPTED)}\r\n" if draw.random() < 0.3 else ""
        if expected is None:
            data, length, path = self.damaged(data, length, len(head), path)
        if draw.random() < 0.2:
            kind = draw.choice(("gzip", "deflate"))
            data = gzip.compress(data, 1) if kind == "gzip" else zlib.compress(data, 1)
            if expected is None and draw.random() < 0.3:
                data = self.garbled(data)
            extra += f"Content-Encoding: {kind}\r\n"
        if length is not None:
            extra += f"Inference-Header-Content-Length: {length}\r\n"
        return (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: {len(data)}\r\n\r\n".encode() + data,
            expected,
        )

    def damaged(self, data: bytes, length: Any, head: int, path: str) -> tuple[bytes, Any, str]:
        """Return other bytes, another length of the JSON object and another path, each of them only sometimes."""
        draw = self.draw
        if draw.random() < 0.2:
            data = self.garbled(data)
        if draw.random() < 0.2:
            length = draw.choice((-1, 0, head + draw.randrange(-3, 4), 2**70, "x", len(data) + 1))
        if draw.random() < 0.1:
            path = draw.choice(PATHS)
        if draw.random() < 0.01:  # larger than --max-body
            data += b" " * 70_000
        return data, length, path

    async def client(self, count: int) -> None:
        """Send so many requests over HTTP, one after another, with a new connection where the server has closed one."""
        streams: Any = None
        for _ in range(count):
            data, expected = self.http_request()
            if streams is None or streams[1].is_closing():
                streams = await asyncio.open_connection("127.0.0.1", self.port)
            if expected is None and self.draw.random() < 0.02:  # a client that leaves early
                streams[1].write(data[: self.draw.randrange(len(data) + 1)])
                streams[1].close()
                streams = None
                self.counts["left"] += 1
                continue
            try:
                async with asyncio.timeout(SECONDS):
                    streams = await self.exchanged(streams, data, expected)
            except TimeoutError:
                self.failures.append(f"no answer within {SECONDS} s: {data[:300]!r}")
                streams = None
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if expected is not None:
                    self.failures.append(f"{type(error).__name__} for a valid request")
                self.counts["closed"] += 1
                streams = None

    async def exchanged(self, streams: Any, data: bytes, expected: list[float] | None) -> Any:
        """Send a request and check its answer; return the streams, or None if the connection has ended."""
        reader, writer = streams
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        sizes = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        body = await (reader.readexactly(int(sizes[1])) if sizes else reader.read())
        encoding = re.search(rb"(?i)\r\ncontent-encoding: (\w+)", head)
        if encoding is not None:
            body = UNPACK[encoding[1]](body)
            self.counts["compressed"] += 1
        self.counts[str(status)] += 1
        if expected is not None and (status != 200 or json.loads(body)["outputs"][0]["data"] != expected):
            self.failures.append(f"a valid request got {status}: {body[:200]!r}")
        if status >= 500 and status not in (501, 503, 504):
            self.failures.append(f"status {status} {body[:200]!r} for {data[:600]!r}")
        if status >= 400 and "error" not in json.loads(body):
            self.failures.append(f"no error in {body[:200]!r}")
        if not sizes or b"connection: close" in head.lower():
            writer.close()
            return None
        return streams

    async def grpc_client(self, count: int) -> None:
        """Send so many requests over gRPC."""
        import grpc  # noqa: PLC0415 - --help needs no package

        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
            for _ in range(count):
                data, expected = self.grpc_request()
                try:
                    answer = message("ModelInferResponse").FromString(await call(data, timeout=SECONDS))
                    self.counts["OK"] += 1
                    if expected is not None and answer.raw_output_contents[0] != expected:
                        self.failures.append("a wrong result over gRPC")
                except grpc.aio.AioRpcError as error:
                    name = error.code().name
                    self.counts[name] += 1
                    if expected is not None or name in ("UNKNOWN", "INTERNAL", "UNAVAILABLE"):
                        self.failures.append(f"{name} {error.details()} for {data[:300]!r}")

    def grpc_request(self) -> tuple[bytes, bytes | None]:
        """Return a message, and the bytes of its result if it is valid."""
        draw = self.draw
        array = np.array([[draw.randrange(100) for _ in range(4)]], np.float32)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4]}
        request = message("ModelInferRequest")(
            model_name="double", inputs=[tensor], raw_input_contents=[array.tobytes()]
        )
        if draw.random() < 0.33:
            return request.SerializeToString(), (array + array).tobytes()
        choice = draw.random()
        if choice < 0.2:
            request.inputs[0].shape[:] = [draw.choice((-1, 0, 1, 4, 2**40, 2**62)) for _ in range(draw.randrange(10))]
        elif choice < 0.4:
            request.inputs[0].datatype = str(draw.choice(TYPES))
        elif choice < 0.6:
            request.raw_input_contents[0] = draw.randbytes(draw.randrange(40))
        elif choice < 0.7:
            request.parameters["timeout"].int64_param = draw.choice((-1, 0, 1, 2**62))
        elif choice < 0.8:
            request.inputs[0].contents.fp32_contents.extend([1.0] * draw.randrange(6))
            del request.raw_input_contents[:]
        else:
            data = self.garbled(request.SerializeToString())
            try:
                message("ModelInferRequest").FromString(data)
            except Exception:  # grpc itself refuses what is no message, with the status UNKNOWN or INTERNAL
                return request.SerializeToString(), (array + array).tobytes()
            return data, None
        return request.SerializeToString(), None


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) << 10  # type: ignore[index] # Linux has this line


async def fuzz(args: argparse.Namespace, process: subprocess.Popen[str], ports: tuple[int, int]) -> int:
    """Send all requests in tenths, print the memory after each, and return how many failures there were."""
    fuzzer = Fuzzer(args.seed, *ports)
    tenth = max(1, args.requests // 10)
    sizes = [resident(process.pid)]
    for part in range(10):
        each = tenth * 4 // 5 // args.clients
        work = [fuzzer.client(each) for _ in range(args.clients)]
        await asyncio.gather(*work, *(fuzzer.grpc_client(tenth // 20) for _ in range(4)))
        sizes.append(resident(process.pid))
        print(f"{part + 1}0%: {sizes[-1] / 2**20:.1f} MiB, {sum(fuzzer.counts.values()):,} requests", flush=True)
        if process.poll() is not None:
            fuzzer.failures.append(f"the server has ended with status {process.returncode}")
            break
    print(dict(sorted(fuzzer.counts.items())))
    grown = sizes[-1] - sizes[3]
    print(f"memory: {sizes[0] / 2**20:.1f} MiB at first, {grown / 2**20:+.1f} MiB since 30%")
    for text in fuzzer.failures[:10]:
        print(text)
    print(f"{len(fuzzer.failures)} failures")
    return len(fuzzer.failures)


def main() -> int:
    """Start a server, send the requests, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tflite.save(network("float32", (1, 4)), Path(folder, "double.tflite"))
        tflite.save(network("float32", (1, WIDE)), Path(folder, "wide.tflite"))
        tflite.save(network("int8", (1, 4)), Path(folder, "small.tflite"))
        command = [sys.executable, "-m", "interposer", "serve", folder, "--backends", "CpuRef", "--max-body", "64K"]
        command += ["--port", "0", "--grpc-port", "0", "--batch", "4", "--queue", "256"]
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            line = process.stdout.readline() if process.stdout else ""
            http, rpc = re.findall(r":(\d+)", line)
            failures = asyncio.run(fuzz(args, process, (int(http), int(rpc))))
        finally:
            process.terminate()
            process.wait(60)
            text = Path(folder, "log").read_text(encoding="utf-8")
            print(f"the log of the server has {text.count('Traceback')} tracebacks\n{text[-2000:]}")
    return int(failures > 0 or "Traceback" in text)


if __name__ == "__main__":
    sys.exit(main())
