"""Mix valid and invalid calls of random networks from several threads, on all backends and through a server.

    python tools/mixed_calls.py [--seed 30] [--start 0] [--count 1000] [--seconds S] [--threads 8] [--calls 2]

Every valid call must give the same bits, whatever the calls before and beside it did, and no backend may be disabled
(`interposer.testing.judge.mixed`). Half of the networks favour operators that have indices or sizes. Each network runs
in one place, by its number: on CpuAcc, on CpuRef, on CpuAcc or CpuRef in a process of its own, on an installed engine,
or through the server over HTTP. The last lines count the networks and calls of each place, and the networks that it
refuses, or whose first valid run fails. The status is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import interposer as ip  # noqa: E402
from interposer.core.errors import InterposerError, InvalidValueError  # noqa: E402
from interposer.core.schema import Op, registered_ops  # noqa: E402
from interposer.core.traits import Role  # noqa: E402
from interposer.core.types import Array, DataType, TensorInfo  # noqa: E402
from interposer.serving.protocol.datatypes import data_type, wire_type  # noqa: E402
from interposer.testing.judge.mixed import mixed_problems  # noqa: E402
from interposer.testing.random_networks import RandomNetwork, random_network  # noqa: E402
from tests.backends.engines.adapters import add_engines, installed  # noqa: E402
from tests.serving.running import Client, running, serving  # noqa: E402

LIMITS: Final = ip.Limits(max_bytes=1 << 26, max_operations=10**9)
Feeds = Mapping[str, Array]
Call = Callable[[Feeds], list[Any]]


class Place:
    """Where networks run: a runtime and the backends, and whether calls go through a server."""

    def __init__(self, name: str, runtime: ip.Runtime, backends: list[str], *, is_served: bool = False) -> None:
        self.name, self.runtime, self.backends, self.is_served = name, runtime, backends, is_served

    def problems(self, made: RandomNetwork, threads: int, calls: int) -> list[str] | None:
        """Return the problems of a network; None if its backends refuse it or its inputs, or fail in the first run."""
        names = {layer.op.binding_id: layer.name for layer in made.network.graph.inputs}  # type: ignore[attr-defined]
        feeds = {names[number]: array for number, array in made.feeds.items()}
        try:
            model = ip.load(made.network, self.backends, runtime=self.runtime, limits=LIMITS)
        except InterposerError:
            return None
        with model:
            try:
                model.run(feeds)
            except InterposerError:
                return None
            if model.events:  # the engine cannot run what it compiled
                return None
            if not self.is_served:
                return mixed_problems(model, feeds, threads=threads, calls=calls, seed=made.number)
            if not has_types_of_server(model):
                return None
            with running(serving({"net": model})) as server:
                call = call_of(server.client, list(model.outputs))
                return mixed_problems(model, feeds, threads=threads, calls=calls, seed=made.number, call=call)


def has_types_of_server(model: ip.Model) -> bool:
    """Return True if the server's protocol has the types of all inputs and outputs, other than texts."""
    return all(
        info.is_tensor and info.dtype is not DataType.STRING and data_type(wire_type(info)) is info.dtype
        for info in (*model.inputs.values(), *model.outputs.values())
    )


def call_of(client: Client, outputs: list[str]) -> Call:
    """Return a function that calls the served network with binary tensors; a client error is `InvalidValueError`."""

    def call(feeds: Feeds) -> list[Any]:
        tensors = [tensor_of(name, array) for name, array in feeds.items()]
        head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
        body = head + b"".join(np.ascontiguousarray(array).tobytes() for array in feeds.values())
        answer = client.post("/v2/models/net/infer", body, Inference_Header_Content_Length=str(len(head)))
        if answer.status == 400:
            raise InvalidValueError(answer.json["error"])
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.body[:300]!r}")
        length = int(answer.headers["inference-header-content-length"])
        return arrays_of(json.loads(answer.body[:length])["outputs"], answer.body[length:], outputs)

    return call


def tensor_of(name: str, array: Array) -> dict[str, Any]:
    """Return the description of a binary tensor in a request; complex numbers have an unknown data type."""
    is_complex = array.dtype.kind == "c"
    return {
        "name": name,
        "datatype": "COMPLEX" if is_complex else wire_type(TensorInfo(array.shape, DataType.of(array.dtype))),
        "shape": list(array.shape),
        "parameters": {"binary_data_size": array.nbytes},
    }


def arrays_of(tensors: list[dict[str, Any]], data: bytes, names: list[str]) -> list[Array]:
    """Return the binary outputs of an answer in the order of `names`."""
    arrays = {}
    for tensor in tensors:
        size = tensor["parameters"]["binary_data_size"]
        dtype = data_type(tensor["datatype"]).numpy
        arrays[tensor["name"]] = np.frombuffer(data[:size], dtype).reshape(tensor["shape"])
        data = data[size:]
    return [arrays[name] for name in names]


@contextmanager
def places() -> Iterator[list[Place]]:
    """Yield the places in turn of use: CpuAcc has the largest share, and each engine a small one."""
    with ExitStack() as stack:
        runtime = stack.enter_context(ip.Runtime())
        add_engines(runtime.registry)
        isolated = stack.enter_context(ip.Runtime(ip.CreationOptions(isolate=["CpuAcc", "CpuRef"])))
        others = [
            Place("CpuRef", runtime, ["CpuRef"]),
            Place("isolated CpuAcc", isolated, ["CpuAcc", "CpuRef"]),
            Place("isolated CpuRef", isolated, ["CpuRef"]),
            Place("server", runtime, ["CpuAcc", "CpuRef"], is_served=True),
            *(Place(name, runtime, [name, "CpuRef"]) for name in installed()),
        ]
        yield [place for other in others for place in (Place("CpuAcc", runtime, ["CpuAcc", "CpuRef"]), other)]


def networks(seed: int, start: int) -> Iterator[RandomNetwork]:
    """Yield the random networks from the number `start` whose runs always give the same results."""
    for number in count(start):
        made = random_network(seed, number, favoured=favoured() if number // 2 % 2 else ())
        if all(layer.op.pure for layer in made.network):
            yield made


def favoured() -> list[type[Op]]:
    """Return the operators that have operands with indices or sizes."""
    roles = {Role.INDICES, Role.SIZES}
    return [op for op in registered_ops().values() if op.executable and roles & {each.role for each in op.operands}]


def main() -> int:
    """Run the networks and print what was found; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=2)
    given = parser.parse_args()
    end, ran, refused, wrong = time.monotonic() + given.seconds, Counter[str](), Counter[str](), 0
    with places() as turns:
        for index, made in zip(range(given.count), networks(given.seed, given.start), strict=False):
            place = turns[index % len(turns)]
            problems = place.problems(made, given.threads, given.calls)
            (refused if problems is None else ran)[place.name] += 1
            for problem in problems or ():
                print(f"{made.id} (favoured: {bool(made.number // 2 % 2)}) on {place.name}: {problem}", flush=True)
            wrong += bool(problems)
            if index % 100 == 99:
                print(f"... {sum(ran.values())} networks ran, to {made.id}", flush=True)
            if time.monotonic() > end:
                break
    calls = 2 * given.threads * given.calls
    for name, number in ran.items():
        print(f"{name}: {number} networks, {number * calls} calls, {refused[name]} refused")
    print(f"{sum(ran.values())} networks, {sum(ran.values()) * calls} calls, {wrong} networks with problems")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
