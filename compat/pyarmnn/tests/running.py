"""Running a parsed network as programs of PyArmNN do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarmnn as ann

Arrays = list[np.ndarray[Any, Any]]


def run(
    network: Any, inputs: Sequence[Any], outputs: Sequence[Any], arrays: Arrays, backends: Sequence[str] = ("CpuRef",)
) -> Arrays:
    """Optimize, load and run a network; inputs and outputs are the binding infos of a parser."""
    runtime = ann.IRuntime(ann.CreationOptions())
    preferred = [ann.BackendId(backend) for backend in backends]
    optimized, messages = ann.Optimize(network, preferred, runtime.GetDeviceSpec(), ann.OptimizerOptions())
    assert messages == ()
    network_id, message = runtime.LoadNetwork(optimized)
    assert message == ""
    results = ann.make_output_tensors(outputs)
    runtime.EnqueueWorkload(network_id, ann.make_input_tensors(inputs, arrays), results)
    return ann.workload_tensors_to_ndarray(results)
