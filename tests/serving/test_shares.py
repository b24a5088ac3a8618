"""What clients share: places, connections, answers that are not read, sequences and the list of models."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer import DataType, Network, TensorInfo
from interposer.serving.access import Client
from interposer.serving.cache import Cache
from interposer.serving.folder import ModelSource
from interposer.serving.options import ServeOptions
from interposer.serving.protocol.errors import ServingError
from interposer.serving.protocol.messages import CLIENT
from interposer.serving.repository import Repository
from interposer.serving.sequences import Places, SequenceRunner, Sequences
from interposer.serving.shared_memory import SharedMemory
from interposer.serving.statistics import Timing
from interposer.serving.turns import RateLimit
from tests.runtime.test_concurrency import OpenGates
from tests.serving.running import Client as HttpClient
from tests.serving.running import doubler, infer_body, model, running, serving, slow, wait_until
from tests.serving.test_sequences import counter

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref
MIB = 1 << 20
INFER = "/v2/models/double/infer"


def elsewhere(port: int, data: bytes, receives: int = 0) -> socket.socket:
    """Return a connection from another address of this host that has sent some bytes."""
    connection = socket.socket()
    if receives:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    connection.settimeout(60)
    try:
        connection.bind(("127.0.0.2", 0))
    except OSError:
        pytest.skip("this system has no other address for this host")
    connection.connect(("127.0.0.1", port))
    connection.sendall(data)
    return connection


def request(body: Any, path: str = INFER) -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def status_of(connection: socket.socket) -> int:
    """Return the status of the answer on a connection, which is closed."""
    with connection:
        return int(connection.recv(4096).split()[1])


# --- places -----------------------------------------------------------------------------------------------------------


def test_one_client_cannot_take_all_places_of_a_model():
    gates = OpenGates()
    with slow(gates) as gated, running(serving({"double": gated}), ServeOptions(queue=2)) as server:
        served, body = server.core.repository.find("double"), infer_body(rows=np.zeros((8, 16)))
        others = [elsewhere(server.client.port, request(body)) for _ in range(3)]
        wait_until(lambda: served.num_places_taken == 3)
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.client.post(INFER, body).status)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answers) == 1)
        assert answers == [503]
        gates.open.set()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [200, 503]
        assert sorted(map(status_of, others)) == [200, 200, 429]


def test_streams_whose_events_are_not_read_take_no_places():
    with running(serving({"double": model(doubler())}), ServeOptions(queue=1)) as server:
        served = server.core.repository.find("double")
        rows = np.zeros((2_000, 4), int)
        stream = request(infer_body(rows=rows, parameters={"steps": 60_000}), f"{INFER}_stream")
        unread = [elsewhere(server.client.port, stream, 4096)]
        for number in range(1, served.runner.concurrency + 3):
            wait_until(lambda number=number: served.num_parked == number)
            assert server.client.post(INFER, infer_body()).status == 200
            unread.append(elsewhere(server.client.port, stream, 4096))
        for connection in unread:
            connection.close()
        wait_until(lambda: server.core.in_flight == 0)
        assert (served.num_parked, server.core.admission.held) == (0, 0)


def test_the_runs_of_a_stream_wait_for_the_rate_of_their_model():
    def repository() -> Repository:
        made: Repository = serving({"double": model(doubler())})()
        made.find("double").rate = RateLimit(1e-3, 2)
        return made

    with running(repository) as server:
        answer = server.client.post(f"{INFER}_stream", infer_body(parameters={"steps": 3}))
        assert answer.status == 200
        first, second, last, end = answer.body.split(b"\n\n")
        assert b'"outputs"' in first and b'"outputs"' in second and not end
        assert last.startswith(b"event: error\ndata: ") and b"s for the rate of its model" in last
        assert server.client.post(INFER, infer_body()).status == 429


# --- answers over gRPC ------------------------------------------------------------------------------------------------


def test_answers_over_grpc_count_until_they_are_read():
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from tools.attack_forms import METHOD
    from tools.attack_shares import hang_up, in_field, of_rows, unread_calls
    from tools.attacking import Target

    size = 16 * 20_000
    message = of_rows(20_000) + in_field(7, bytes(size))
    options = ServeOptions(max_body=MIB, max_memory=4 * MIB)
    with running(serving({"double": model(doubler())}), options, grpc=True) as server:
        port = int(server.grpc.rpartition(":")[2])
        target = Target(server.client.port, port, 0, Path(), 1.0, 0)
        unread = []
        for number in range(1, 3):
            unread.append(unread_calls(target, message, METHOD, 1))
            wait_until(lambda number=number: server.core.admission.held == 2 * size * number)
        statistics = server.core.repository.find("double").statistics
        unread.append(unread_calls(target, message, METHOD, 1))
        wait_until(lambda: statistics.to_dict()["inference_stats"]["fail"]["count"] == 1)
        assert server.core.admission.held == 2 * 2 * size  # of the 2 MiB that one client may hold
        for connection in unread:
            hang_up(connection)
        wait_until(lambda: server.core.admission.held == 0)


def test_messages_over_grpc_count_while_their_calls_run():
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.protocol.grpc_messages import message
    from tools.attack_shares import METHOD

    gates, size = OpenGates(), 500 << 10
    fields = message("ModelInferRequest")(
        model_name="double",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [8, 16]}],
        raw_input_contents=[bytes(512)],
    )
    fields.parameters["padding"].string_param = "a" * size  # counts as a text, too
    data = fields.SerializeToString()
    options = ServeOptions(max_body=MIB, max_memory=4 * MIB)
    with slow(gates) as gated, running(serving({"double": gated}), options, grpc=True) as server:
        with grpc.insecure_channel(server.grpc) as channel:
            infer = channel.unary_unary(METHOD, None, None)
            waiting = []
            for number in range(1, 3):
                waiting.append(infer.future(data, timeout=60))
                wait_until(lambda number=number: server.core.admission.held > number * 2 * size)
            with pytest.raises(grpc.RpcError, match="the requests of this client hold") as caught:
                infer(data, timeout=60)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            gates.open.set()
            assert all(call.result() for call in waiting)
        assert server.core.admission.held == 0


def test_streams_over_grpc_whose_answers_are_not_read_take_no_places(monkeypatch):
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from tools.attack_shares import STREAM_METHOD, hang_up, in_steps, unread_calls
    from tools.attacking import Target

    monkeypatch.setattr("interposer.serving.grpc_service._UNREAD", 600)  # until all streams have begun
    with running(serving({"double": model(doubler())}), ServeOptions(queue=1), grpc=True) as server:
        target = Target(server.client.port, int(server.grpc.rpartition(":")[2]), 0, Path(), 1.0, 0)
        served = server.core.repository.find("double")
        unread = []
        for number in range(1, served.runner.concurrency + 4):
            unread.append(unread_calls(target, in_steps(60_000), STREAM_METHOD, 1))
            wait_until(lambda number=number: served.num_parked == number)
        assert server.client.post(INFER, infer_body()).status == 200
        for connection in unread:
            hang_up(connection)
        wait_until(lambda: server.core.in_flight == 0)


def test_a_stream_over_grpc_that_nobody_reads_is_no_failure_of_its_model(monkeypatch, caplog):
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from tools.attack_shares import STREAM_METHOD, in_steps, unread_calls
    from tools.attacking import Target

    def counts() -> list[int]:
        [stats] = server.client.get("/v2/models/double/stats").json["model_stats"]
        return [stats["inference_stats"][name]["count"] for name in ("success", "fail", "cancel")]

    monkeypatch.setattr("interposer.serving.grpc_service._UNREAD", 0.1)
    with running(serving({"double": model(doubler())}), grpc=True) as server:
        target = Target(server.client.port, int(server.grpc.rpartition(":")[2]), 0, Path(), 1.0, 0)
        with contextlib.ExitStack() as connections:
            for _ in range(3):
                connections.enter_context(unread_calls(target, in_steps(60_000), STREAM_METHOD, 1))
            wait_until(lambda: counts() == [0, 0, 3])
        # the first of the streams of one connection closes it, perhaps before the last one has begun
        with unread_calls(target, in_steps(60_000), STREAM_METHOD, 5):
            wait_until(lambda: counts()[2] > 3 and server.core.repository.find("double", "").statistics.in_flight == 0)
        assert counts()[:2] == [0, 0]
        assert server.client.get("/v2/models/double/ready").status == 200
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def test_large_tensors_over_grpc_are_the_same_in_all_forms():
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.protocol.grpc_messages import message
    from tools.attack_shares import METHOD, STREAM_METHOD

    array = np.arange(400_000, dtype=np.float32).reshape(-1, 4)
    tensor = {"name": "x", "datatype": "FP32", "shape": array.shape}
    raw = message("ModelInferRequest")(
        model_name="double", id="a", inputs=[tensor], raw_input_contents=[array.tobytes()]
    )
    typed = message("ModelInferRequest")(
        model_name="double", inputs=[{**tensor, "contents": {"fp32_contents": array.reshape(-1)}}]
    )
    with running(serving({"double": model(doubler())}), grpc=True) as server:
        with grpc.insecure_channel(server.grpc, [("grpc.max_receive_message_length", -1)]) as channel:
            infer = channel.unary_unary(METHOD, None, message("ModelInferResponse").FromString)
            first, second = (infer(item.SerializeToString(), timeout=60) for item in (raw, typed))
            np.testing.assert_array_equal(
                np.frombuffer(first.raw_output_contents[0], np.float32), 2 * array.reshape(-1)
            )
            np.testing.assert_array_equal(second.outputs[0].contents.fp32_contents, 2 * array.reshape(-1))
            assert (first.id, first.outputs[0].shape, second.raw_output_contents) == ("a", [100_000, 4], [])
            stream = channel.stream_stream(STREAM_METHOD, None, message("ModelStreamInferResponse").FromString)
            [answer] = stream(iter([raw.SerializeToString()]), timeout=60)
            assert answer.infer_response == first
            data = raw.SerializeToString()
            for damaged in (data[:-1], data + b"\x3a\x7f", data + b"\x3a", data + b"\x3a\x80"):
                with pytest.raises(grpc.RpcError, match="is not a message of the protocol") as caught:
                    infer(damaged, timeout=60)
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert server.core.admission.held == 0


def test_the_characters_of_texts_in_answers_count():
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.protocol.grpc_messages import message
    from tools.attack_shares import METHOD

    network = Network("texts")
    network.add_output_layer(0, network.add_input_layer(0, TensorInfo((1,), DataType.STRING), name="x"), name="y")
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1]}
    options = ServeOptions(max_body=MIB, max_memory=4 * MIB)
    with running(serving({"texts": model(network)}), options, grpc=True) as server:
        for length, status, code in ((1_000, 200, "OK"), (900_000, 413, "RESOURCE_EXHAUSTED")):
            text = "a" * length
            answer = server.client.post("/v2/models/texts/infer", {"inputs": [{**tensor, "data": [text]}]})
            assert answer.status == status
            contents = {"bytes_contents": [text.encode()]}
            request = message("ModelInferRequest")(model_name="texts", inputs=[{**tensor, "contents": contents}])
            with grpc.insecure_channel(server.grpc) as channel:
                call = channel.unary_unary(METHOD, None, None).future(request.SerializeToString(), timeout=60)
                assert call.code().name == code


# --- connections and calls --------------------------------------------------------------------------------------------


def test_a_client_with_many_connections_that_send_slowly_makes_room_for_others():
    with running(serving({"double": model(doubler())}), ServeOptions(max_connections=3)) as server:
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\nExpect: 100-continue\r\n\r\n"
        slow_senders = [elsewhere(server.client.port, head.encode()) for _ in range(3)]
        assert all(connection.recv(64).startswith(b"HTTP/1.1 100") for connection in slow_senders)
        assert server.client.post(INFER, infer_body()).status == 200
        wait_until(lambda: is_closed(slow_senders[0]))
        assert not any(map(is_closed, slow_senders[1:]))
        for connection in slow_senders:
            connection.close()


def test_connections_for_grpc_are_closed_if_there_are_too_many():
    from interposer.serving.grpc_connections import close_connection, close_excess

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]
        many = [elsewhere(port, b"") for _ in range(60)]
        few = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(3)]
        accepted = [listening.accept()[0] for _ in range(63)]
        assert (close_excess(port, 50), close_excess(port, 1_000_000)) == (13, 0)
        assert sum(is_closed(connection) for connection in many) == 13
        assert not any(map(is_closed, few))
        close_connection(few[1].getsockname(), port)
        assert list(map(is_closed, few)) == [False, True, False]
        for connection in (*many, *few, *accepted):
            connection.close()


EXHAUSTED = """
import os, resource, socket
from interposer.serving.grpc_connections import close_excess

resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
listening = socket.create_server(("127.0.0.1", 0), backlog=128)
pairs, others = [], []
try:
    while True:
        pairs.append((socket.create_connection(listening.getsockname(), 60), listening.accept()[0]))
except OSError:
    pass
try:
    while True:
        others.append(os.dup(0))
except OSError:
    pass
print(len(pairs) - close_excess(listening.getsockname()[1], 10))
print({client.recv(1) for client, _ in pairs[10:]})
"""


def test_connections_for_grpc_are_closed_if_no_more_files_can_be_opened():
    pytest.importorskip("resource", reason="this system has no limits of open files")
    result = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["10", "{b''}"]


def test_connections_for_http_and_for_grpc_share_the_files_that_the_system_allows():
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 456));"
        "from interposer.serving.connections import allowed_connections;"
        "print(allowed_connections(1000), allowed_connections(1000, 2), allowed_connections(50, 2))"
    )
    pytest.importorskip("resource", reason="this system has no limits of open files")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["200", "100", "50"]


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_one_client_may_have_half_of_the_calls():
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.grpc_reading import Calls

    calls = Calls(ServeOptions(max_connections=2))
    with calls.of("a"), calls.of("a"), calls.of("a"), calls.of("a"), calls.of("b"):
        with pytest.raises(ServingError, match="4 calls of this client are open already"), calls.of("a"):
            pass
        refused = pytest.raises(ServingError, match="^8 calls are open already")
        with calls.of("b"), calls.of("c"), calls.of("c"), refused, calls.of("d"):
            pass
    with calls.of("a"):
        pass


class Arriving:
    """A call of a client whose message arrives when the test says so."""

    def __init__(self, peer: str, order: list[str]) -> None:
        self._peer, self._order, self.is_there = peer, order, asyncio.Event()

    def peer(self) -> str:
        return self._peer

    async def read(self) -> bytes:
        self._order.append(self._peer)
        await self.is_there.wait()
        return b""


def test_the_messages_of_several_clients_arrive_in_turns():
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.grpc_reading import Readers

    async def main() -> list[str]:
        order: list[str] = []
        readers = Readers(ServeOptions(max_body=MIB, max_memory=2 * MIB))
        calls = [Arriving(f"ipv4:127.0.0.2:{port}", order) for port in range(10)]
        calls += [Arriving("ipv4:127.0.0.3:1", order), Arriving("ipv4:127.0.0.4:1", order)]
        tasks = [asyncio.create_task(readers.read(call, None)) for call in calls]
        await asyncio.sleep(0)
        assert len(order) == 4
        for call in calls:
            call.is_there.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    order = asyncio.run(main())
    assert order[4:7] == ["ipv4:127.0.0.2:4", "ipv4:127.0.0.3:1", "ipv4:127.0.0.4:1"]


def test_a_call_that_ends_at_its_turn_leaves_it_to_the_next_one():
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.grpc_reading import Readers

    async def main() -> list[str]:
        order: list[str] = []
        readers = Readers(ServeOptions(max_body=MIB, max_memory=2 * MIB))
        calls = [Arriving(f"ipv4:127.0.0.2:{port}", order) for port in range(6)]
        tasks = [asyncio.create_task(readers.read(call, None)) for call in calls]
        await asyncio.sleep(0)
        calls[0].is_there.set()
        await asyncio.sleep(0)  # the first call ends, and it is the turn of the fifth one
        tasks[4].cancel()
        await asyncio.wait([tasks[4]])
        await asyncio.sleep(0)
        late = order[4:]
        for call in calls:
            call.is_there.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return late

    assert asyncio.run(main()) == ["ipv4:127.0.0.2:5"]


# --- sequences --------------------------------------------------------------------------------------------------------


def step(runner: Sequences, client: str, number: int, *, start: bool = False) -> Any:
    parameters = {"sequence_id": number, "sequence_start": start, CLIENT: client}
    return runner.run({"x": np.ones((1, 2), np.float32)}, ["y"], 30, parameters, Timing())


def test_sequences_of_clients_with_names_are_their_own():
    runner = Sequences(model(counter()))

    async def main() -> list[float]:
        await step(runner, "client alice", 1, start=True)
        with pytest.raises(ServingError, match="sequence 1 has not begun"):
            await step(runner, "client bob", 1)
        await step(runner, "client bob", 1, start=True)
        results = [await step(runner, name, 1) for name in ("client alice", "client alice", "client bob")]
        await step(runner, "127.0.0.1", 1, start=True)
        results.append(await step(runner, "127.0.0.2", 1))  # clients without names may have several addresses
        return [float(arrays[0][0, 0]) for arrays in results]

    assert asyncio.run(main()) == [12, 13, 12, 12]
    runner.close()


@pytest.mark.parametrize("places", [None, 4])
def test_a_client_with_most_sequences_makes_room_for_one_of_another_client(places):
    runner = Sequences(model(counter()), most=4, places=None if places is None else Places(places))

    async def main() -> None:
        for number in range(1, 5):
            await step(runner, "127.0.0.2", number, start=True)
        await step(runner, "127.0.0.2", 1)
        await step(runner, "127.0.0.3", 5, start=True)
        with pytest.raises(ServingError, match="sequence 2 has not begun, .*, or had to make room for other clients"):
            await step(runner, "127.0.0.2", 2)
        for number in (1, 3, 4, 5):
            await step(runner, "127.0.0.2", number)
        if places is None:
            with pytest.raises(ServingError, match="4 sequences of the model exist already"):
                await step(runner, "127.0.0.2", 6, start=True)

    asyncio.run(main())
    runner.close()


def test_a_place_is_for_the_client_with_the_fewest_sequences():
    runner = Sequences(model(counter()), places=Places(2))

    async def main() -> None:
        for number in (1, 2):
            await step(runner, "127.0.0.2", number, start=True)
        waiting = [asyncio.create_task(step(runner, "127.0.0.2", number, start=True)) for number in (3, 4)]
        await asyncio.sleep(0)
        await step(runner, "127.0.0.3", 5, start=True)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await step(runner, "127.0.0.2", 2)

    asyncio.run(main())
    runner.close()


def test_a_sequence_that_has_to_make_room_ends_after_its_request_that_runs():
    runner = Sequences(model(counter()), places=Places(2))

    async def main() -> list[Any]:
        for number in (1, 2):
            await step(runner, "127.0.0.2", number, start=True)
        running = [asyncio.create_task(step(runner, "127.0.0.2", number)) for number in (1, 2, 1, 2)]
        await asyncio.sleep(0)
        await step(runner, "127.0.0.3", 5, start=True)
        return await asyncio.gather(*running, return_exceptions=True)

    one, two, one_again, two_again = asyncio.run(main())
    assert [float(arrays[0][0, 0]) for arrays in (one, two, two_again)] == [12, 12, 13]
    assert isinstance(one_again, ServingError) and "or had to make room for other clients" in str(one_again)
    runner.close()


def test_sequences_that_have_just_begun_make_room_too():
    runner = Sequences(model(counter()), places=Places(2))

    async def main() -> None:
        starting = [asyncio.create_task(step(runner, "127.0.0.2", number, start=True)) for number in (1, 2, 3, 4)]
        await asyncio.sleep(0)
        await step(runner, "127.0.0.3", 5, start=True)
        assert [task.done() for task in starting] == [True, True, False, False]
        for task in starting:
            task.cancel()
        await asyncio.wait(starting)

    asyncio.run(main())
    runner.close()


@pytest.mark.parametrize("places", [None, 8])
def test_many_new_sequences_of_a_client_get_no_more_than_its_share(places):
    runner = Sequences(model(counter()), most=8, places=None if places is None else Places(places))

    async def main() -> tuple[int, int]:
        for number in range(1, 9):
            await step(runner, "127.0.0.2", number, start=True)
        others = [asyncio.create_task(step(runner, "127.0.0.3", number, start=True)) for number in range(11, 19)]
        await asyncio.sleep(0)
        counted = [asyncio.create_task(step(runner, "127.0.0.2", number)) for number in range(1, 9)]
        kept = await asyncio.gather(*counted, return_exceptions=True)
        async with asyncio.timeout(60):
            while sum(task.done() for task in others) < 4:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # a fifth one would begin now
        for task in others:
            task.cancel()
        begun = await asyncio.gather(*others, return_exceptions=True)
        return sum(isinstance(arrays, list) for arrays in kept), sum(isinstance(arrays, list) for arrays in begun)

    assert asyncio.run(main()) == (4, 4)
    runner.close()


class Waits(SequenceRunner):
    """Sequences whose requests, but for the first, end when `may_end` is set."""

    def __init__(self, places: int) -> None:
        super().__init__(places=Places(places))
        self.may_end = asyncio.Event()

    def warm_up(self, inputs: Any) -> None:
        """Run nothing."""

    async def run_step(self, step: Any, *others: Any) -> list[Any]:
        if not step.start:
            await self.may_end.wait()
        return []


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_sequence_makes_room_between_two_of_its_requests(is_cancelled):
    async def main() -> list[Any]:
        runner = Waits(2)
        for number in (1, 2):
            await step(runner, "127.0.0.2", number, start=True)
        running = [asyncio.create_task(step(runner, "127.0.0.2", number)) for number in (1, 2)]
        await asyncio.sleep(0)
        following = [asyncio.create_task(step(runner, "127.0.0.2", number)) for number in (1, 2)]
        await asyncio.sleep(0)
        runner.may_end.set()  # both requests end before the next ones have their turns
        new = asyncio.create_task(step(runner, "127.0.0.3", 5, start=True))
        if is_cancelled:
            asyncio.get_running_loop().call_soon(lambda: [task.cancel() for task in following])
        await asyncio.wait_for(new, 20)
        await asyncio.gather(*running)
        results = await asyncio.gather(*following, return_exceptions=True)
        for number in (1, 2, 5):
            runner.forget({"sequence_id": number})
        for number in (6, 7):  # both places are free
            await asyncio.wait_for(step(runner, "127.0.0.3", number, start=True), 20)
        return results

    results = asyncio.run(main())
    expected = [asyncio.CancelledError] * 2 if is_cancelled else [ServingError, list]
    assert [type(result) for result in results] == expected


# --- lists, regions and caches ----------------------------------------------------------------------------------------


def test_the_models_are_listed_once_for_all_who_ask_meanwhile():
    may_end, listings = threading.Event(), Counter[str]()

    def sources() -> list[ModelSource]:
        listings["all"] += 1
        may_end.wait(60)
        return [ModelSource("late", "1", "late.tflite")]

    async def main() -> None:
        repository = Repository(sources)
        first = [asyncio.create_task(repository.index()) for _ in range(10)]
        while not listings["all"]:
            await asyncio.sleep(0)
        second = [asyncio.create_task(repository.index()) for _ in range(10)]
        await asyncio.sleep(0)
        may_end.set()
        answers = await asyncio.gather(*first, *second)
        assert all([row["name"] for row in rows] == ["late"] for rows in answers)

    asyncio.run(main())
    assert listings["all"] == 2


def test_clients_see_the_models_that_they_may_use():
    token = hashlib.sha256(b"a").hexdigest()
    options = ServeOptions(clients=(Client("alice", token, models=("double",)),))
    with running(serving({"double": model(doubler()), "secret": model(doubler())}), options) as server:
        alice = HttpClient(server.client.port, "a")
        assert [row["name"] for row in alice.post("/v2/repository/index", {}).json] == ["double"]
        assert [row["name"] for row in server.client.post("/v2/repository/index", {}).json] == ["double", "secret"]


def test_regions_of_other_users_are_neither_listed_nor_forgotten(tmp_path):
    from tests.serving.test_shared_memory import ME

    (tmp_path / "key").write_bytes(bytes(20))
    memory = SharedMemory(str(tmp_path))
    memory.register("r", "key", 0, 20, ME)
    other = ME.user + 1
    memory.unregister("r", other)
    memory.unregister("", other)
    assert memory.status("", other) == []
    with pytest.raises(ServingError, match="no shared memory region 'r' is registered"):
        memory.status("r", other)
    assert [region["name"] for region in memory.status("", ME.user)] == ["r"]
    memory.unregister("", ME.user)
    assert memory.status() == []


def test_a_cached_result_holds_no_more_memory_than_it_has():
    cache = Cache(1 << 20).of_model()
    batch = np.zeros((1000, 4), np.float32)
    key = cache.key({"x": batch[:1]}, ["y"])
    cache.put(key, [batch[:1]])
    assert cache.get(key)[0].base is None
