"""Networks of one layer each, written against PyArmNN's interface alone.

``python layer_cases.py OUT.json`` runs all of them with the library that ``import pyarmnn`` finds, and writes the
outputs. The tests run them with this package, and compare with what Arm NN 20.08 returns.
"""

import json
import sys

import numpy as np
import pyarmnn as ann

TYPES = {0: np.float16, 1: np.float32, 2: np.uint8, 3: np.int32, 5: np.int16, 7: np.int8, 8: np.int8}
F32, U8, S32, S16, S8 = 1, 2, 3, 5, 8
NHWC, NCHW = 2, 1


def info(*shape, dtype=F32, scale=0.0, offset=0):
    return ann.TensorInfo(ann.TensorShape(shape), dtype, scale, offset)


def u8(*shape, scale=0.1, offset=120):
    return info(*shape, dtype=U8, scale=scale, offset=offset)


def s8(*shape, scale=0.1, offset=3):
    return info(*shape, dtype=S8, scale=scale, offset=offset)


def s32(*shape):
    return info(*shape, dtype=S32)


def numbers(seed, tensor_info, low=-3.0, high=3.0):
    """Return numbers for a tensor: floats between the limits, or any quantized values."""
    shape = tuple(tensor_info.GetShape()[axis] for axis in range(tensor_info.GetNumDimensions()))
    draw = np.random.RandomState(seed)
    dtype = TYPES[tensor_info.GetDataType()]
    if tensor_info.GetDataType() == S32:
        return draw.randint(int(low), int(high), shape).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        return draw.randint(limits.min, limits.max + 1, shape).astype(dtype)
    return draw.uniform(low, high, shape).astype(dtype)


def constant(seed, *shape, like=None, low=-1.0, high=1.0):
    tensor_info = like or info(*shape)
    return ann.ConstTensor(tensor_info, numbers(seed, tensor_info, low, high))


def described(kind, **fields):
    descriptor = getattr(ann, f"{kind}Descriptor")()
    for name, value in fields.items():
        assert hasattr(descriptor, f"m_{name}"), name
        setattr(descriptor, f"m_{name}", value)
    return descriptor


class Case:
    """A layer with its arguments, the infos of its inputs and outputs, and the range of the input numbers."""

    def __init__(self, kind, arguments, inputs, outputs, low=-3.0, high=3.0, data=None):
        self.kind, self.arguments, self.inputs, self.outputs = kind, arguments, inputs, outputs
        self.low, self.high, self.data = low, high, data or {}

    def run(self, backend="CpuRef"):
        network = ann.INetwork()
        layer = getattr(network, f"Add{self.kind}Layer")(*self.arguments, name="layer")
        for number, tensor_info in enumerate(self.inputs):
            source = network.AddInputLayer(number, f"in{number}").GetOutputSlot(0)
            source.SetTensorInfo(tensor_info)
            source.Connect(layer.GetInputSlot(number))
        for number, tensor_info in enumerate(self.outputs):
            layer.GetOutputSlot(number).SetTensorInfo(tensor_info)
            sink = network.AddOutputLayer(number, f"out{number}").GetInputSlot(0)
            layer.GetOutputSlot(number).Connect(sink)
        return self._run(network, backend)

    def _run(self, network, backend):
        runtime = ann.IRuntime(ann.CreationOptions())
        backends = [ann.BackendId(backend)]
        optimized, _ = ann.Optimize(network, backends, runtime.GetDeviceSpec(), ann.OptimizerOptions())
        number, _ = runtime.LoadNetwork(optimized)
        arrays = [
            np.array(self.data[k], TYPES[i.GetDataType()]) if k in self.data else numbers(k, i, self.low, self.high)
            for k, i in enumerate(self.inputs)
        ]
        inputs = ann.make_input_tensors(list(enumerate(self.inputs)), arrays)
        outputs = ann.make_output_tensors(list(enumerate(self.outputs)))
        runtime.EnqueueWorkload(number, inputs, outputs)
        return [array.copy() for array in ann.workload_tensors_to_ndarray(outputs)]


CASES = {}
KEPT = []
"""Constants of recurrent layers: Arm NN's parameters refer to tensors without owning them."""


def case(name, kind, arguments, inputs, outputs, **options):
    assert name not in CASES, name
    CASES[name] = Case(kind, arguments, inputs, outputs, **options)


# --- elementwise ------------------------------------------------------------------------------------------------------

FUNCTIONS = ["Sigmoid", "TanH", "Linear", "ReLu", "BoundedReLu", "SoftReLu", "LeakyReLu", "Abs", "Sqrt", "Square"]
FUNCTIONS += ["Elu", "HardSwish"]
for index, function in enumerate(FUNCTIONS):
    parameters = {"BoundedReLu": (2.0, -1.0)}.get(function, (0.75, 0.5))
    activation = described("Activation", Function=index, A=parameters[0], B=parameters[1])
    low = 0.0 if function == "Sqrt" else -3.0
    case(f"activation_{function}", "Activation", [activation], [info(2, 5)], [info(2, 5)], low=low)
for index in (0, 1, 3, 4):
    activation = described("Activation", Function=index, A=1.0 if index == 1 else 6.0, B=1.0 if index == 1 else 0.0)
    case(
        f"activation_u8_{FUNCTIONS[index]}", "Activation", [activation], [u8(2, 9)], [u8(2, 9, scale=0.05, offset=100)]
    )
for kind in ("Addition", "Subtraction", "Multiplication", "Division", "Maximum", "Minimum"):
    case(kind, kind, [], [info(2, 1, 3), info(2, 4, 1)], [info(2, 4, 3)])
    case(f"{kind}_u8", kind, [], [u8(2, 6), u8(2, 6, scale=0.2, offset=90)], [u8(2, 6, scale=0.5, offset=128)])
    case(f"{kind}_s8", kind, [], [s8(2, 6), s8(2, 6, scale=0.2, offset=-9)], [s8(2, 6, scale=0.5, offset=0)])
case("Addition_s32", "Addition", [], [s32(2, 3), s32(2, 3)], [s32(2, 3)], low=-90, high=90)
for index, operation in enumerate(["Abs", "Exp", "Sqrt", "Rsqrt", "Neg"]):
    unary = ann.ElementwiseUnaryDescriptor(index)
    case(f"unary_{operation}", "ElementwiseUnary", [unary], [info(2, 3)], [info(2, 3)], low=0.1)
case("Floor", "Floor", [], [info(2, 5)], [info(2, 5)])
case("Prelu", "Prelu", [], [info(1, 2, 2, 3), info(1, 1, 1, 3)], [info(1, 2, 2, 3)])
case("Quantize_u8", "Quantize", [], [info(2, 5)], [u8(2, 5, scale=0.03)])
case("Quantize_s8", "Quantize", [], [info(2, 5)], [s8(2, 5, scale=0.03)])
case("Quantize_s16", "Quantize", [], [info(2, 5)], [info(2, 5, dtype=S16, scale=0.001)])
case("Dequantize_u8", "Dequantize", [], [u8(2, 5)], [info(2, 5)])
case("Dequantize_s16", "Dequantize", [], [info(2, 5, dtype=S16, scale=0.01)], [info(2, 5)])

# --- windows ----------------------------------------------------------------------------------------------------------

WINDOW = {"PadLeft": 1, "PadRight": 0, "PadTop": 2, "PadBottom": 1, "StrideX": 2, "StrideY": 1}
for layout, image, weights, result in (
    (NHWC, (2, 5, 6, 3), (4, 3, 2, 3), (2, 6, 3, 4)),
    (NCHW, (2, 3, 5, 6), (4, 3, 3, 2), (2, 4, 6, 3)),
):
    for bias in (False, True):
        convolution = described("Convolution2d", DataLayout=layout, BiasEnabled=bias, **WINDOW)
        biases = constant(8, 4) if bias else None
        arguments = [convolution, constant(7, *weights), biases]
        case(f"convolution_{layout}_{bias}", "Convolution2d", arguments, [info(*image)], [info(*result)])
dilated = described("Convolution2d", DataLayout=NHWC, StrideX=1, StrideY=1, DilationX=2, DilationY=3)
case("convolution_dilated", "Convolution2d", [dilated, constant(7, 2, 2, 3, 3)], [info(1, 7, 7, 3)], [info(1, 4, 3, 2)])
quantized = described("Convolution2d", DataLayout=NHWC, BiasEnabled=True, **WINDOW)
scaled = info(4, dtype=S32, scale=0.1 * 0.02)
arguments = [quantized, constant(7, like=u8(4, 3, 2, 3, scale=0.02, offset=110)), constant(8, like=scaled, high=900)]
case("convolution_u8", "Convolution2d", arguments, [u8(1, 5, 6, 3)], [u8(1, 6, 3, 4, scale=0.6, offset=128)])
arguments = [quantized, constant(7, like=s8(4, 3, 2, 3, scale=0.02, offset=0)), constant(8, like=scaled, high=900)]
case("convolution_s8", "Convolution2d", arguments, [s8(1, 5, 6, 3)], [s8(1, 6, 3, 4, scale=0.6, offset=-3)])
for layout, image, result in ((NHWC, (1, 5, 6, 3), (1, 6, 3, 6)), (NCHW, (1, 3, 5, 6), (1, 6, 6, 3))):
    depthwise = described("DepthwiseConvolution2d", DataLayout=layout, BiasEnabled=True, **WINDOW)
    arguments = [depthwise, constant(7, 2, 3, 3, 2), constant(8, 6)]
    case(f"depthwise_{layout}", "DepthwiseConvolution2d", arguments, [info(*image)], [info(*result)])
arguments = [depthwise, constant(7, like=u8(2, 3, 3, 2, scale=0.02)), constant(8, like=info(6, dtype=S32, scale=0.002))]
result = u8(1, 6, 6, 3, scale=0.3)
case("depthwise_u8", "DepthwiseConvolution2d", arguments, [u8(1, 3, 5, 6)], [result])
for layout, image, weights, result in (
    (NHWC, (1, 3, 4, 2), (3, 2, 3, 2), (1, 4, 8, 3)),
    (NCHW, (1, 2, 3, 4), (3, 2, 2, 3), (1, 3, 4, 8)),
):
    fields = {"DataLayout": layout, "BiasEnabled": True, "StrideX": 2, "StrideY": 1, "PadLeft": 1}
    transposed = described("TransposeConvolution2d", **fields)
    arguments = [transposed, constant(7, *weights), constant(8, 3)]
    case(f"transpose_convolution_{layout}", "TransposeConvolution2d", arguments, [info(*image)], [info(*result)])
for transpose, weights in ((False, (6, 4)), (True, (4, 6))):
    connected = described("FullyConnected", BiasEnabled=True, TransposeWeightMatrix=transpose)
    arguments = [connected, constant(7, *weights), constant(8, 4)]
    case(f"fully_connected_{transpose}", "FullyConnected", arguments, [info(2, 1, 2, 3)], [info(2, 4)])
weights, biases = constant(7, like=u8(4, 6, scale=0.02)), constant(8, like=info(4, dtype=S32, scale=0.002), high=500)
case("fully_connected_u8", "FullyConnected", [connected, weights, biases], [u8(2, 6)], [u8(2, 4, scale=0.2)])
for pool, name in enumerate(("max", "average", "l2")):
    for method in (0, 1):
        for rounding, size in ((0, 4), (1, 5)):
            fields = {"PoolType": pool, "PaddingMethod": method, "OutputShapeRounding": rounding, "DataLayout": NHWC}
            window = {"PoolWidth": 3, "PoolHeight": 2, "StrideX": 2, "StrideY": 2, "PadLeft": 1, "PadRight": 1}
            pooling = described("Pooling2d", **fields, **window)
            result = info(1, 3 if rounding == 0 else 4, size, 2)
            title = f"pooling_{name}_{method}_{rounding}"
            case(title, "Pooling2d", [pooling], [info(1, 7, 7 + rounding, 2)], [result])
whole = described("Pooling2d", PoolType=1, PoolWidth=4, PoolHeight=3, DataLayout=NCHW)
case("pooling_global", "Pooling2d", [whole], [info(1, 2, 3, 4)], [info(1, 2, 1, 1)])
for layout, shape in ((NHWC, (2, 2, 3, 4)), (NCHW, (2, 4, 2, 3))):
    statistics = [constant(5, 4), constant(6, 4, low=0.1), constant(7, 4), constant(8, 4)]
    normalization = described("BatchNormalization", DataLayout=layout, Eps=0.01)
    case(f"batch_norm_{layout}", "BatchNormalization", [normalization, *statistics], [info(*shape)], [info(*shape)])
    normalization = described("InstanceNormalization", DataLayout=layout, Gamma=1.5, Beta=0.5, Eps=0.01)
    case(f"instance_norm_{layout}", "InstanceNormalization", [normalization], [info(*shape)], [info(*shape)])
    normalization = described("L2Normalization", DataLayout=layout, Eps=0.01)
    case(f"l2_norm_{layout}", "L2Normalization", [normalization], [info(*shape)], [info(*shape)])
    fields = {"DataLayout": layout, "NormSize": 3, "Alpha": 0.5, "Beta": 0.75, "K": 1.5}
    normalization = described("Normalization", **fields)
    case(f"lrn_{layout}", "Normalization", [normalization], [info(*shape)], [info(*shape)])
for axis in (-1, 1):
    softmax = described("Softmax", Beta=0.7, Axis=axis)
    case(f"softmax_{axis}", "Softmax", [softmax], [info(2, 3, 4)], [info(2, 3, 4)])
    case(f"log_softmax_{axis}", "LogSoftmax", [softmax], [info(2, 3, 4)], [info(2, 3, 4)])
case("softmax_u8", "Softmax", [described("Softmax")], [u8(2, 9)], [u8(2, 9, scale=1 / 256, offset=0)])
for method in (0, 1):
    for align, half in ((False, False), (True, False), (False, True)):
        fields = {"Method": method, "AlignCorners": align, "HalfPixelCenters": half, "DataLayout": NHWC}
        resize = described("Resize", TargetWidth=5, TargetHeight=7, **fields)
        case(f"resize_{method}_{align}_{half}", "Resize", [resize], [info(1, 3, 4, 2)], [info(1, 7, 5, 2)])
fields = {
    "MaxDetections": 3,
    "NumClasses": 2,
    "NmsIouThreshold": 0.5,
    "NmsScoreThreshold": 0.1,
    "DetectionsPerClass": 5,
}
scales = {"ScaleX": 10.0, "ScaleY": 10.0, "ScaleW": 5.0, "ScaleH": 5.0}
boxes, anchors = [info(1, 6, 4), info(1, 6, 3)], constant(4, 6, 4, low=0.2, high=0.9)
results = [info(1, 3, 4), info(1, 3), info(1, 3), info(1)]
for regular in (False, True):
    detection = described("DetectionPostProcess", UseRegularNms=regular, **fields, **scales)
    title = f"detection_{regular}"
    case(title, "DetectionPostProcess", [detection, anchors], boxes, results, low=0.0, high=1.0)

# --- movement ---------------------------------------------------------------------------------------------------------

for index, name in enumerate(("min", "max")):
    for axis, shape in ((-1, (2, 3)), (1, (2, 4))):
        argument = described("ArgMinMax", Function=index, Axis=axis)
        case(f"arg_{name}_{axis}", "ArgMinMax", [argument], [info(2, 3, 4)], [s32(*shape)])
blocks = ann.BatchToSpaceNdDescriptor([2, 2], [(1, 0), (0, 1)])
case("batch_to_space", "BatchToSpaceNd", [blocks], [info(4, 3, 2, 2)], [info(1, 3, 3, 3)])
blocks = ann.SpaceToBatchNdDescriptor([2, 3], [(1, 0), (0, 2)])
case("space_to_batch", "SpaceToBatchNd", [blocks], [info(1, 2, 3, 4)], [info(6, 2, 2, 2)])
blocks = ann.BatchToSpaceNdDescriptor([2, 2], [(1, 0), (0, 1)])
rescaled = u8(1, 3, 3, 3, scale=0.3, offset=90)
case("batch_to_space_rescaled", "BatchToSpaceNd", [blocks], [u8(4, 3, 2, 2)], [rescaled])
blocks = ann.SpaceToBatchNdDescriptor([2, 3], [(1, 0), (0, 2)])
rescaled = s8(6, 2, 2, 2, scale=0.07, offset=-9)
case("space_to_batch_rescaled", "SpaceToBatchNd", [blocks], [s8(1, 2, 3, 4)], [rescaled])
case("concat", "Concat", [ann.CreateDescriptorForConcatenation([ann.TensorShape((2, 3)), ann.TensorShape((2, 2))], 1)],
     [info(2, 3), info(2, 2)], [info(2, 5)])  # fmt: skip
case("constant", "Constant", [constant(5, 2, 3)], [], [info(2, 3)])
for layout, shape, result in ((NHWC, (1, 2, 3, 8), (1, 4, 6, 2)), (NCHW, (1, 8, 2, 3), (1, 2, 4, 6))):
    case(f"depth_{layout}", "DepthToSpace", [ann.DepthToSpaceDescriptor(2, layout)], [info(*shape)], [info(*result)])
    case(f"space_{layout}", "SpaceToDepth", [ann.SpaceToDepthDescriptor(2, layout)], [info(*result)], [info(*shape)])
case("fill", "Fill", [ann.FillDescriptor(1.5)], [s32(2)], [info(3, 2)], data={0: [3, 2]})
case(
    "gather", "Gather", [ann.GatherDescriptor(0)], [info(4, 3), s32(2, 2)], [info(2, 2, 3)], data={1: [[3, 0], [1, 1]]}
)
for keep, shape in ((False, (2, 4)), (True, (2, 1, 4))):
    case(f"mean_{keep}", "Mean", [ann.MeanDescriptor([1], keep)], [info(2, 3, 4)], [info(*shape)])
case("mean_u8", "Mean", [ann.MeanDescriptor([0, 1], False)], [u8(2, 3, 4)], [u8(4)])
case("pad", "Pad", [ann.PadDescriptor([(1, 0), (2, 1)], 1.5)], [info(2, 3)], [info(3, 6)])
case("pad_u8", "Pad", [ann.PadDescriptor([(1, 0), (2, 1)])], [u8(2, 3)], [u8(3, 6)])
permutation = ann.PermuteDescriptor(ann.PermutationVector((2, 0, 1)))
case("permute", "Permute", [permutation], [info(2, 3, 4)], [info(3, 4, 2)])
case("reshape", "Reshape", [ann.ReshapeDescriptor(ann.TensorShape((4, 3)))], [info(2, 6)], [info(4, 3)])
case("slice", "Slice", [ann.SliceDescriptor([0, 1], [2, 2])], [info(3, 4)], [info(2, 2)])
case("stack", "Stack", [ann.StackDescriptor(1, 2, ann.TensorShape((2, 3)))], [info(2, 3), info(2, 3)], [info(2, 2, 3)])
strided = ann.StridedSliceDescriptor([0, 3], [3, 0], [2, -1])
case("strided_slice", "StridedSlice", [strided], [info(3, 4)], [info(2, 3)])
strided = ann.StridedSliceDescriptor([1, 3], [2, 0], [1, -2])
strided.m_ShrinkAxisMask, strided.m_EndMask = 1, 2
case("strided_slice_masks", "StridedSlice", [strided], [info(3, 4)], [info(2)])
views = ann.SplitterDescriptor(2, 2)
for view, begin, size in ((0, 0, 1), (1, 1, 3)):
    views.SetViewOriginCoord(view, 1, begin)
    views.SetViewSize(view, 0, 2)
    views.SetViewSize(view, 1, size)
case("splitter", "Splitter", [views], [info(2, 4)], [info(2, 1), info(2, 3)])

# --- recurrent --------------------------------------------------------------------------------------------------------


def lstm(cifg, *features):
    """Return a descriptor and weights of an LSTM with 3 inputs, 4 cells and 4 or 5 outputs."""
    outputs = 5 if "Projection" in features else 4
    descriptor = described("Lstm", ActivationFunc=4, CifgEnabled=cifg, ClippingThresCell=2.0)
    parameters = ann.LstmInputParams()
    gates = ["Forget", "Cell", "Output"] if cifg else ["Input", "Forget", "Cell", "Output"]
    shapes = {}
    for gate in gates:
        shapes[f"InputTo{gate}Weights"], shapes[f"RecurrentTo{gate}Weights"] = (4, 3), (4, outputs)
        shapes["CellBias" if gate == "Cell" else f"{gate}GateBias"] = (4,)
    for feature in features:
        setattr(descriptor, f"m_{feature}Enabled", True)
    if "Peephole" in features:
        shapes.update({f"CellTo{gate}Weights": (4,) for gate in gates if gate != "Cell"})
    if "Projection" in features:
        shapes.update({"ProjectionWeights": (5, 4), "ProjectionBias": (5,)})
    if "LayerNorm" in features:
        shapes.update({f"{gate}LayerNormWeights": (4,) for gate in gates})
    for seed, (name, shape) in enumerate(sorted(shapes.items())):
        KEPT.append(constant(20 + seed, *shape, low=-0.6, high=0.6))
        setattr(parameters, f"m_{name}", KEPT[-1])
    return [descriptor, parameters], outputs


for features in ((), ("Peephole",), ("Projection",), ("LayerNorm",), ("Peephole", "Projection", "LayerNorm")):
    for cifg in (True, False):
        arguments, width = lstm(cifg, *features)
        states = [info(2, 3), info(2, width), info(2, 4)]
        results = [info(2, 12 if cifg else 16), info(2, width), info(2, 4), info(2, width)]
        case(f"lstm_{cifg}_{'_'.join(features)}", "Lstm", arguments, states, results, low=-1.0, high=1.0)


def main(path):
    results = {}
    for name, each in CASES.items():
        try:
            results[name] = [array.ravel().tolist() for array in each.run()]
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"
    with open(path, "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1])
