"""What the examples share: reading a model and images, and running a network through PyArmNN's interface."""

from pathlib import Path

import numpy as np
import pyarmnn as ann


class Runner:
    """A model that is loaded for some backends, in order of preference.

    `inputs` and `outputs` are pairs of a binding id and a `TensorInfo`. `names` are those of the input and the output
    of an ONNX model.
    """

    def __init__(self, path, backends=("CpuAcc", "CpuRef"), names=("input", "output")):
        network, self.inputs, self.outputs = parsed(path, names)
        self.runtime = ann.IRuntime(ann.CreationOptions())
        preferred = [ann.BackendId(backend) for backend in backends]
        optimized, self.messages = ann.Optimize(
            network, preferred, self.runtime.GetDeviceSpec(), ann.OptimizerOptions()
        )
        self.network_id, _ = self.runtime.LoadNetwork(optimized)
        self.results = ann.make_output_tensors(self.outputs)

    def run(self, *arrays):
        """Run the network on an array for each input, and return an array for each output.

        The next run overwrites the results.
        """
        tensors = ann.make_input_tensors(self.inputs, list(arrays))
        self.runtime.EnqueueWorkload(self.network_id, tensors, self.results)
        return ann.workload_tensors_to_ndarray(self.results)


def parsed(path, names):
    """Return the network of a TensorFlow Lite or ONNX file, and the binding infos of its inputs and outputs."""
    if Path(path).suffix == ".onnx":
        return parsed_onnx(path, *names)
    parser = ann.ITfLiteParser()
    network = parser.CreateNetworkFromBinaryFile(str(path))
    main = parser.GetSubgraphCount() - 1
    inputs = [parser.GetNetworkInputBindingInfo(main, name) for name in parser.GetSubgraphInputTensorNames(main)]
    outputs = [parser.GetNetworkOutputBindingInfo(main, name) for name in parser.GetSubgraphOutputTensorNames(main)]
    return network, inputs, outputs


def parsed_onnx(path, source, result):
    """Return the same for an ONNX file with one input and one output, which are called `source` and `result`."""
    parser = ann.IOnnxParser()
    network = parser.CreateNetworkFromBinaryFile(str(path))
    return network, [parser.GetNetworkInputBindingInfo(source)], [parser.GetNetworkOutputBindingInfo(result)]


def image(path, height, width):
    """Return a bitmap of 24 bits per pixel as RGB, an array of uint8 of shape (1, height, width, 3).

    It is resized by taking the nearest pixels.
    """
    content = Path(path).read_bytes()
    offset = int.from_bytes(content[10:14], "little")
    columns, rows = (int.from_bytes(content[at : at + 4], "little", signed=True) for at in (18, 22))
    if content[:2] != b"BM" or int.from_bytes(content[28:30], "little") != 24:
        raise SystemExit(f"{path} is no bitmap of 24 bits per pixel")
    stride = (columns * 3 + 3) // 4 * 4
    lines = np.frombuffer(content, np.uint8, stride * abs(rows), offset).reshape(abs(rows), stride)
    pixels = lines[:, : columns * 3].reshape(abs(rows), columns, 3)[:: -1 if rows > 0 else 1, :, ::-1]
    places = (np.arange(size) * old // size for size, old in ((height, abs(rows)), (width, columns)))
    return np.ascontiguousarray(pixels[np.ix_(*places)])[np.newaxis]


def fitting(pixels, info):
    """Return an image of uint8 as the type that an input has: quantized values, or floats from -1 to 1."""
    numbers = pixels.astype(np.float32) / 127.5 - 1
    if info.GetDataType() == ann.DataType_Float32:
        return numbers
    if info.GetDataType() == ann.DataType_QAsymmU8:
        return pixels
    steps = np.round(numbers / info.GetQuantizationScale()) + info.GetQuantizationOffset()
    return np.clip(steps, -128, 127).astype(np.int8)


def real(values, info):
    """Return the numbers that the values of an output stand for."""
    if not info.IsQuantized():
        return values.astype(np.float32)
    return (values.astype(np.float32) - info.GetQuantizationOffset()) * np.float32(info.GetQuantizationScale())
