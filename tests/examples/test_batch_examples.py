"""The examples for Ray and Spark predict every row once, also if a worker or the whole job is killed.

That of Ray Serve answers every request, also if a replica is killed.

They run on this machine: `make batch-test` installs Ray and Spark, and runs these tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import interposer as ip

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow, which comes with Ray")
pyarrow = pytest.importorskip("pyarrow")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "batch"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SECONDS = 600

pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Callable[[int, int], Path]:
    """Return a function that writes a number of Parquet files, with a number of rows each, and returns their folder."""

    def write(files: int, rows: int) -> Path:
        folder, random = tmp_path / "source", np.random.default_rng(3)
        folder.mkdir()
        for number in range(files):
            ids = np.arange(number * rows, (number + 1) * rows)
            table = pyarrow.table({"id": ids, "pixels": list(random.random((rows, 64), dtype=np.float32))})
            parquet.write_table(table, folder / f"part-{number:04}.parquet")
        return folder

    return write


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start an example in a process group of its own."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "RAY_DEDUP_LOGS": "0"}
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        end(process)
    assert process.returncode == 0, said
    return said


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process with all its descendants."""
    for number in [*descendants(process.pid), process.pid]:
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def descendants(parent: int) -> list[int]:
    """Return the process ids of all processes below a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(status[1]), []).append(int(folder.name))
    result, pending = [], [parent]
    while pending:
        below = children.get(pending.pop(), [])
        result += below
        pending += below
    return result


def workers(parent: int, title: bytes) -> Iterator[int]:
    """Yield the ids of the processes below `parent` whose command line has a text."""
    for number in descendants(parent):
        try:
            if title in Path(f"/proc/{number}/cmdline").read_bytes():
                yield number
        except OSError:
            continue


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < limit, "the job does not come to the point at which the test kills a process"
        time.sleep(0.01)


def check_digits(target: Path, source: Path) -> None:
    """Check that the results have each row of the source once, with the digit that the model gives alone."""
    result = parquet.read_table(target).to_pydict()
    rows = parquet.read_table(source)
    assert sorted(result["id"]) == rows["id"].to_pylist()
    with ip.load(DIGITS) as model:
        for row in range(0, len(rows), 97):
            place = result["id"].index(row)
            image = np.float32(rows["pixels"][row].as_py()).reshape(1, 1, 8, 8)
            assert digit_of(result, place) == model.run([image])[0].argmax()


def digit_of(result: dict[str, list], row: int) -> int:
    return result["digit"][row] if "digit" in result else int(np.argmax(result["probabilities"][row]))


@pytest.fixture(scope="module")
def ray():
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'ray[data]'")
    command = [sys.executable, "-c", "import ray.data; ray.init()"]
    started = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    if started.returncode:
        pytest.skip(f"Ray does not start here: {started.stderr[-300:]}")


@pytest.fixture(scope="module")
def spark():
    if find_spec("pyspark") is None:
        pytest.skip("needs Spark: pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")


def test_ray_predicts_every_row_once_with_several_actors(ray, source, tmp_path):
    rows, target = source(8, 100), tmp_path / "target"
    assert "800 rows are predicted" in finish(start("ray_files.py", rows, target))
    check_digits(target, rows)


def test_ray_predicts_every_row_once_although_an_actor_is_killed(ray, source, tmp_path):
    rows, target = source(120, 50), tmp_path / "target"
    process = start("ray_files.py", rows, target)
    try:
        wait_for(lambda: len(list(target.glob("*.parquet"))) > 3, process)
        victim = next(workers(process.pid, b"ray::MapWorker"))
        os.kill(victim, signal.SIGKILL)
        assert len(list(target.glob("*.parquet"))) < 120
        said = finish(process)
    finally:
        end(process)
    assert "6000 rows are predicted" in said
    check_digits(target, rows)


def test_ray_predicts_every_row_once_although_the_job_is_killed_and_started_again(ray, source, tmp_path):
    rows, target = source(120, 50), tmp_path / "target"
    process = start("ray_files.py", rows, target)
    try:
        wait_for(lambda: len(list(target.glob("*.parquet"))) > 3, process)
    finally:
        end(process)
    done = len(list(target.glob("*.parquet")))
    assert done < 120
    assert f"{120 - done} files have no result" in finish(start("ray_files.py", rows, target))
    check_digits(target, rows)
    assert "0 files have no result" in finish(start("ray_files.py", rows, target))


def test_a_job_of_ray_whose_actors_need_more_than_there_is_fails(ray, source, tmp_path):
    process = start("ray_files.py", source(2, 10), tmp_path / "target", "--cpus", 1000, "--patience", 10)
    try:
        said, _ = process.communicate(timeout=SECONDS)
    finally:
        end(process)
    assert process.returncode == 1
    assert "made no progress for at least 10s" in said


def send(port: int, image: np.ndarray) -> list[float] | None:
    """Send an image to the example of Ray Serve, and return the probabilities; None for an answer that is no result."""
    item = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": image.reshape(-1).tolist()}
    url = f"http://127.0.0.1:{port}/v2/models/digits/infer"
    try:
        with urllib.request.urlopen(url, json.dumps({"inputs": [item]}).encode(), timeout=300) as answer:
            return json.load(answer)["outputs"][0]["data"]
    except OSError:  # HTTP errors are among these
        return None


def test_ray_serve_answers_every_request_although_a_replica_is_killed(ray):
    if find_spec("fastapi") is None:
        pytest.skip("needs Ray Serve: pip install 'ray[serve]'")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = start("ray_serve.py", "--port", port)
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(process.stdout), daemon=True).start()
    try:
        wait_for(lambda: any(line.startswith("serving digits at") for line in said), process)
        with ip.load(DIGITS) as model:
            answers = [0] * 4
            clients = [threading.Thread(target=ask, args=(port, model, answers, number)) for number in range(4)]
            for client in clients:
                client.start()
            wait_for(lambda: min(answers) > 20, process)
            before = set(workers(process.pid, b"ray::ServeReplica"))
            os.kill(min(before), signal.SIGKILL)
            for client in clients:
                client.join()
        assert answers == [REQUESTS] * 4
        assert len(before) == 2
        wait_for(lambda: len(set(workers(process.pid, b"ray::ServeReplica")) - before) == 1, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        end(process)


REQUESTS = 200


def ask(port: int, model: ip.Model, answers: list[int], number: int) -> None:
    """Send random images until `REQUESTS` of them were answered rightly; one without a result is sent again."""
    random = np.random.default_rng(number)
    while answers[number] < REQUESTS:
        image = random.random((1, 1, 8, 8), dtype=np.float32)
        got = send(port, image)
        while got is None:
            time.sleep(0.05)
            got = send(port, image)
        np.testing.assert_allclose(got, model.run([image])[0][0], rtol=1e-4, atol=1e-6)
        answers[number] += 1


def test_spark_predicts_every_row_once(spark, source, tmp_path):
    rows, target = source(4, 100), tmp_path / "target"
    finish(start("spark_job.py", rows, target))
    check_digits(target, rows)


def test_spark_predicts_every_row_once_although_a_worker_is_killed(spark, source, tmp_path):
    rows, target = source(4, 4000), tmp_path / "target"
    process = start("spark_job.py", rows, target)
    try:
        wait_for(lambda: len(list(workers(process.pid, b"pyspark.daemon"))) > 1, process)
        time.sleep(0.3)  # the worker starts to predict
        os.kill(max(workers(process.pid, b"pyspark.daemon")), signal.SIGKILL)
        said = finish(process)
    finally:
        end(process)
    assert "crashed" in said or "Lost task" in said or "exited unexpectedly" in said, said
    check_digits(target, rows)
