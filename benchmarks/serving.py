"""Requests per second and times of servers for the same model, measured alternately.

`interposer serve` is compared with kserve's server and MLServer, which run the model through the same library, so that
the servers make the difference. Their packages are in folders of their own (``pip install --target FOLDER kserve``).
`benchmarks/serving_peer.py`, the shortest server that answers the same requests, shows what the checks, limits and
metrics cost. The processor time of a request is that of the server's process and of its children, without the client.
The client is the same for all: `benchmarks/serving_client.py`, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from interposer import load
from interposer.core.types import Dim
from interposer.serving.protocol.datatypes import wire_type
from interposer.serving.protocol.grpc_messages import message

CLIENT = Path(__file__).with_name("serving_client.py")
PEER = Path(__file__).with_name("serving_peer.py")
KSERVE = """
import sys, interposer, kserve
class Served(kserve.Model):
    def load(self):
        self.inner = interposer.load(sys.argv[1], backends=BACKENDS)
        self.ready = True
        return True
    async def predict(self, request, headers=None, response_headers=None):
        arrays = {item.name: item.as_numpy() for item in request.inputs}
        outputs = []
        for name, array in zip(self.inner.outputs, await self.inner.run_async(arrays)):
            output = kserve.InferOutput(name, list(array.shape), TYPES[name])
            output.set_data_from_numpy(array, binary_data=True)
            outputs.append(output)
        return kserve.InferResponse(request.id or "0", self.name, outputs)
model = Served("net")
model.load()
kserve.ModelServer(http_port=int(sys.argv[2]), grpc_port=int(sys.argv[3])).start([model])
"""
MLSERVER = """
import interposer
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
class Served(MLModel):
    async def load(self):
        self.inner = interposer.load(self.settings.parameters.uri, backends=BACKENDS)
        return True
    async def predict(self, payload):
        arrays = {item.name: NumpyCodec.decode_input(item) for item in payload.inputs}
        outputs = zip(self.inner.outputs, await self.inner.run_async(arrays))
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output(name, array) for name, array in outputs]
        )
"""


@dataclass(frozen=True)
class Server:
    """A server to measure: its command, its ports, and the kinds of requests that it takes."""

    name: str
    command: list[str]
    folder: str
    path: str
    http: int
    grpc: int
    kinds: tuple[str, ...]

    def start(self, cpus: str, log: Path) -> subprocess.Popen[bytes]:
        """Start the server and wait until it is ready."""
        paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), self.path, self.folder)))
        if self.path:  # its own versions of packages first
            paths = os.pathsep.join((self.path, self.folder, str(Path(__file__).resolve().parent.parent / "src")))
        with log.open("w") as file:
            process = subprocess.Popen(
                ["taskset", "-c", cpus, *self.command], cwd=self.folder, stdout=file, stderr=file,
                env={**os.environ, "PYTHONPATH": paths, "INTERPOSER_NUM_THREADS": str(cpus.count(",") + 1)},
            )  # fmt: skip
        for _ in range(600):
            time.sleep(0.2)
            if process.poll() is not None:
                raise SystemExit(f"{self.name} does not start:\n{log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/net/ready", timeout=5):
                    return process
            except (OSError, urllib.error.URLError):
                continue
        raise SystemExit(f"{self.name} is not ready:\n{log.read_text()[-2000:]}")


def free_port() -> int:
    """Return a port that nothing uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def servers(args: argparse.Namespace, folder: str) -> list[Server]:
    """Return the servers that are installed."""
    backends = args.backends.split(",")
    model = load(args.model, backends)
    types = {name: wire_type(info) for name, info in model.outputs.items() if info is not None}
    head = f"BACKENDS = {backends}\nTYPES = {types}\n"
    ports = [free_port() for _ in range(9)]
    command = [sys.executable, "-m", "interposer", "serve", args.model, "--name", "net", "--backends", args.backends]
    command += ["--port", str(ports[0]), "--grpc-port", str(ports[1]), "--queue", "256", *args.options.split()]
    servers = [Server("interposer", command, folder, "", ports[0], ports[1], ("binary", "json", "grpc"))]
    command = [sys.executable, str(PEER), args.model, args.backends, str(ports[7]), str(ports[8])]
    servers.append(Server("shortest", command, folder, "", ports[7], ports[8], ("binary", "json", "grpc")))
    if args.kserve:
        Path(folder, "kserve_model.py").write_text(head + KSERVE)
        command = [sys.executable, "kserve_model.py", args.model, str(ports[2]), str(ports[3])]
        servers.append(Server("kserve", command, folder, args.kserve, ports[2], ports[3], ("binary", "json", "grpc")))
    if args.mlserver:
        Path(folder, "mlserver_model.py").write_text(head + MLSERVER)
        settings = {"name": "net", "implementation": "mlserver_model.Served", "parameters": {"uri": args.model}}
        Path(folder, "model-settings.json").write_text(json.dumps(settings))
        general = {"http_port": ports[4], "grpc_port": ports[5], "metrics_port": ports[6], "parallel_workers": 0}
        Path(folder, "settings.json").write_text(json.dumps({"host": "127.0.0.1", "debug": False, **general}))
        command = [sys.executable, "-c", "from mlserver.cli import main; main()", "start", folder]
        servers.append(Server("mlserver", command, folder, args.mlserver, ports[4], ports[5], ("json", "grpc")))
    return servers


def bodies(model: str, folder: str) -> None:
    """Write a request for the model in each form."""
    infos = load(model, ["CpuRef"]).inputs
    draw = np.random.default_rng(0)
    arrays = {}
    for name, info in infos.items():
        shape = [1 if isinstance(size, Dim) else int(size) for size in info.shape]
        arrays[name] = draw.integers(0, 100, shape).astype(info.dtype.numpy)
    heads = [{"name": name, "datatype": wire_type(infos[name]), "shape": list(x.shape)} for name, x in arrays.items()]
    raw = [x.tobytes() for x in arrays.values()]
    binary = [{**head, "parameters": {"binary_data_size": len(data)}} for head, data in zip(heads, raw, strict=True)]
    plain = [{**head, "data": x.reshape(-1).tolist()} for head, x in zip(heads, arrays.values(), strict=True)]
    header = json.dumps({"id": "1", "inputs": binary, "parameters": {"binary_data_output": True}}).encode()
    Path(folder, "body.binary").write_bytes(len(header).to_bytes(8, "little") + header + b"".join(raw))
    Path(folder, "body.json").write_bytes(bytes(8) + json.dumps({"id": "1", "inputs": plain}).encode())
    request = message("ModelInferRequest")(model_name="net", id="1", inputs=heads, raw_input_contents=raw)
    Path(folder, "body.grpc").write_bytes(request.SerializeToString())


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process and its children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, map(int, children)))


def measured(
    server: Server, pid: int, kind: str, concurrency: int, args: argparse.Namespace, folder: str
) -> dict[str, Any]:
    """Return the figures of one client."""
    port = server.grpc if kind == "grpc" else server.http
    command = ["taskset", "-c", args.client_cpus, sys.executable, str(CLIENT), kind, str(port), "net"]
    command += [str(concurrency), str(args.seconds), str(Path(folder, f"body.{kind}"))]
    before = processor_seconds(pid)
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=args.seconds * 10 + 60)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return {"rps": 0.0, "errors": 1, "p50": None, "p99": None, "cpu": None}
    figures: dict[str, Any] = json.loads(completed.stdout)
    count = max(1, figures.pop("count") + concurrency)  # one on each connection before the time begins
    return {**figures, "cpu": (processor_seconds(pid) - before) / count * 1e3}


def main(argv: list[str]) -> int:
    """Measure all servers in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=os.path.abspath, help="the file of the model")
    parser.add_argument("--backends", default="CpuAcc,CpuRef")
    parser.add_argument("--options", default="", help="more options of interposer serve, in one text")
    parser.add_argument("--kserve", metavar="FOLDER", help="where kserve is installed")
    parser.add_argument("--mlserver", metavar="FOLDER", help="where MLServer is installed")
    parser.add_argument("--concurrency", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    *others, last = sorted(os.sched_getaffinity(0))
    parser.add_argument(
        "--cpus",
        default=",".join(map(str, others or [last])),
        help="processors of the server (default: all but the last)",
    )
    parser.add_argument("--client-cpus", default=str(last), help="processors of the client (default: the last)")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args(argv)
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bodies(args.model, folder)
        known, pids = servers(args, folder), {}
        for server in known:
            process = server.start(args.cpus, Path(folder, f"{server.name}.log"))
            pids[server.name] = process.pid
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for _ in range(args.rounds):
            for kind in ("binary", "json", "grpc"):
                for concurrency in map(int, args.concurrency.split(",")):
                    for server in known:
                        if kind in server.kinds:
                            key = f"{server.name} {kind} {concurrency}"
                            figures = measured(server, pids[server.name], kind, concurrency, args, folder)
                            results[key].append(figures)
    _print(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _print(results: dict[str, list[dict[str, Any]]]) -> None:
    head = f"{'server, request, concurrency':32} {'requests/s':>10} {'p50 ms':>8} {'p99 ms':>8} {'cpu ms':>8}"
    print(f"{head} {'errors':>7}")
    for key, figures in results.items():
        good = [row for row in figures if row["p50"] is not None]
        errors = sum(row["errors"] for row in figures)
        if not good:
            print(f"{key:32} {'–':>10} {'–':>8} {'–':>8} {'–':>8} {errors:7}")
            continue
        middle = {name: statistics.median(row[name] for row in good) for name in ("rps", "p50", "p99", "cpu")}
        times = f"{middle['p50']:8.2f} {middle['p99']:8.2f} {middle['cpu']:8.3f}"
        print(f"{key:32} {middle['rps']:10.0f} {times} {errors:7}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
