"""Parts of a backend in C that does not allow concurrent runs run without Python in an interpreter."""

from __future__ import annotations

import numpy as np

import interposer as ip
from interposer.writers import tflite as writer
from tests.bridges.litert.hosting import delegate, interpreter, last_report, run


def test_a_backend_without_concurrent_runs_needs_no_python(serial_backend):
    network = ip.Network("sum")
    x = network.add_input_layer(0, ip.TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
    made = interpreter(writer.write(network), [delegate(backends=serial_backend, min_nodes="1")])
    for value in range(3):
        feed = np.full((2, 3), value, np.float32)
        np.testing.assert_array_equal(run(made, [feed])[0], feed + feed)
    [part] = last_report().parts
    assert (part.counters()[:2], part.events) == ((3, 3), [])
