"""Run a model through PyArmNN's interface, for the interpreter that has the package to be timed.

    python arm_nn_worker.py MODEL INPUTS.npz BACKEND...

It prints "ready" once the model is loaded. For each line of standard input it then runs the model once, and prints the
milliseconds. It uses nothing of Interposer but the package `pyarmnn`.
"""

import sys
import time

import numpy as np
import pyarmnn as ann


def main(path, inputs, *backends):
    """Load the model, and run it once for each line of standard input."""
    parser, runtime = ann.ITfLiteParser(), ann.IRuntime(ann.CreationOptions())
    network = parser.CreateNetworkFromBinaryFile(path)
    preferred = [ann.BackendId(backend) for backend in backends]
    optimized, _ = ann.Optimize(network, preferred, runtime.GetDeviceSpec(), ann.OptimizerOptions())
    number, _ = runtime.LoadNetwork(optimized)
    sources = [parser.GetNetworkInputBindingInfo(0, name) for name in parser.GetSubgraphInputTensorNames(0)]
    results = [parser.GetNetworkOutputBindingInfo(0, name) for name in parser.GetSubgraphOutputTensorNames(0)]
    arrays = np.load(inputs)
    tensors = ann.make_input_tensors(sources, [arrays[f"input{place}"] for place in range(len(sources))])
    outputs = ann.make_output_tensors(results)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        runtime.EnqueueWorkload(number, tensors, outputs)
        print((time.perf_counter() - begin) * 1000, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
