"""A client that sends one request again and again, for benchmarks of servers; it prints its figures as JSON.

    python benchmarks/serving_client.py KIND PORT MODEL CONCURRENCY SECONDS BODY

KIND is "binary", "json" or "grpc". BODY is a file with the bytes of the request. For HTTP, its first 8 bytes are the
length of the JSON object, or 0 if the body is only JSON. All connections are opened, and one request is sent on each of
them, before the time begins.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Send = Callable[[], Awaitable[bool]]


async def http_sender(port: int, model: str, body: bytes) -> Send:
    """Return a function that sends the request over one connection, and returns whether the answer was a result."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length, data = int.from_bytes(body[:8], "little"), body[8:]
    header = f"Inference-Header-Content-Length: {length}\r\n" if length else "Content-Type: application/json\r\n"
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {len(data)}\r\n\r\n"
    message = head.encode() + data

    async def send() -> bool:
        writer.write(message)
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(answer.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        return answer.startswith(b"http/1.1 200")

    return send


async def grpc_sender(port: int, model: str, body: bytes) -> Send:
    """Return a function that sends the request over one channel, and returns whether the answer was a result."""
    import grpc  # noqa: PLC0415 - only for gRPC

    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)])
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)

    async def send() -> bool:
        try:
            await call(body)
        except grpc.aio.AioRpcError:
            return False
        return True

    return send


async def measure(kind: str, port: int, model: str, concurrency: int, seconds: float, body: bytes) -> dict[str, Any]:
    """Return requests per second, errors, and the median and the 99th percentile of the times in milliseconds."""
    create = grpc_sender if kind == "grpc" else http_sender
    if kind == "grpc":
        sender = await create(port, model, body)
        senders = [sender] * concurrency
    else:
        senders = [await create(port, model, body) for _ in range(concurrency)]
    await asyncio.gather(*(send() for send in senders))
    times: list[float] = []
    errors = 0
    began = time.perf_counter()
    end = began + seconds

    async def client(send: Send) -> None:
        nonlocal errors
        while (start := time.perf_counter()) < end:
            if await send():
                times.append(time.perf_counter() - start)
            else:
                errors += 1

    await asyncio.gather(*(client(send) for send in senders))
    spent = time.perf_counter() - began
    times.sort()
    if not times:
        return {"rps": 0.0, "errors": errors, "p50": None, "p99": None, "count": errors}
    return {
        "rps": len(times) / spent,
        "errors": errors,
        "count": len(times) + errors,
        "p50": times[len(times) // 2] * 1e3,
        "p99": times[int(len(times) * 0.99)] * 1e3,
    }


def main() -> None:
    """Measure as the command line says."""
    kind, port, model, concurrency, seconds, body = sys.argv[1:]
    try:
        import uvloop  # noqa: PLC0415 - quicker, if it is installed

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        work = measure(kind, int(port), model, int(concurrency), float(seconds), Path(body).read_bytes())
        print(json.dumps(runner.run(work)))


if __name__ == "__main__":
    main()
