"""Parts of a backend in C that does not allow concurrent runs, in sessions that several threads run."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import interposer as ip
from interposer.bridges import reports

onnx = pytest.importorskip("onnx", reason="onnx is not installed")


def session_of(host, backend, rows):
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"], name="sum")
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [rows, 3]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "net", infos[:1], infos[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    options = host.SessionOptions()
    devices = [device for device in host.get_ep_devices() if device.ep_name == "InterposerExecutionProvider"]
    options.add_provider_for_devices(devices, {"backends": backend})
    return host.InferenceSession(model.SerializeToString(), options)


@pytest.mark.parametrize("rows", [2, "n"])
def test_runs_with_and_without_python_wait_for_each_other(host, serial_backend, rows):
    session = session_of(host, serial_backend, rows)
    report, errors, counter, enough = reports()[-1], [], itertools.count(), threading.Event()

    def repeat(number):
        x = np.full((2 + (number % 2 if rows == "n" else 0), 3), number, np.float32)
        try:
            for _ in range(60):
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + x)
                if next(counter) > 200:
                    enough.set()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while not enough.wait(0.002) and any(thread.is_alive() for thread in threads):
        with ip.profile():  # runs through Python
            enough.wait(0.002)
    for thread in threads:
        thread.join()
    runs, direct_runs, _ = report.parts[0].counters()
    assert (errors, report.parts[0].events, runs) == ([], [], 360)
    assert 0 < direct_runs < runs
