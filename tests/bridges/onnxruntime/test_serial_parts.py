"""Parts of a backend in C that does not allow concurrent runs, in sessions that several threads run."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.bridges import reports
from interposer.testing.replay import backend_of

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

CUSTOM = Path(__file__).parents[3] / "examples" / "custom_native" / "c" / "custom.c"
CHANGES = {
    "#include <stdlib.h>": "#include <stdatomic.h>\n#include <stdlib.h>\n#include <time.h>",
    "IPR_CAP_CONCURRENT_EXECUTE | ": "",
    "typedef struct part {": "typedef struct part {\n  atomic_int inside;",
    "const part* p = executable;": """part* p = executable;
  if (atomic_fetch_add(&p->inside, 1)) return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, "two concurrent runs");
  nanosleep(&(struct timespec){0, 100000}, NULL);""",
    "  return IPR_OK;\n}\n\nstatic int32_t create": "  p->inside = 0;\n  return IPR_OK;\n}\n\nstatic int32_t create",
}


@pytest.fixture
def serial_backend(natives, tmp_path):
    """The id of the example in C, changed to refuse concurrent runs and to fail if there are some."""
    source = CUSTOM.read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        assert old in source
        source = source.replace(old, new)
    backend = backend_of(str(natives.install(tmp_path, "Example_Custom_backend.so", source, "-std=gnu11")))
    ip.process_registry().register(backend.id, lambda: backend)
    yield backend.id
    ip.process_registry().deregister(backend.id)


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
