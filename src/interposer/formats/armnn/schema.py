"""The schema of Arm NN's serialized networks, up to release 24.05, as plain data.

`SCHEMA` has the tables, whose fields keep the names of the format. Enumerations are tuples of the names that operators
of Interposer have for their members, in the order of their numbers.
"""

from __future__ import annotations

from typing import Final

from interposer.formats.flatbuffers import Schema

__all__ = [
    "ACTIVATIONS",
    "BINARY",
    "COMPARISONS",
    "DATA_TYPES",
    "LAYER_TYPES",
    "LAYOUTS",
    "LOGICAL",
    "LSTM_PARAMS",
    "NORMALIZATION_CHANNELS",
    "NORMALIZATION_METHODS",
    "PADDING_METHODS",
    "PADDING_MODES",
    "POOLINGS",
    "QLSTM_PARAMS",
    "QUANTIZED_LSTM_PARAMS",
    "REDUCTIONS",
    "RESIZE_METHODS",
    "ROUNDINGS",
    "SCATTER_FUNCTIONS",
    "SCHEMA",
    "UNARY",
    "layers",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LSTM_PARAMS: Final = (
    "inputToForgetWeights", "inputToCellWeights", "inputToOutputWeights", "recurrentToForgetWeights",
    "recurrentToCellWeights", "recurrentToOutputWeights", "forgetGateBias", "cellBias", "outputGateBias",
    "inputToInputWeights", "recurrentToInputWeights", "cellToInputWeights", "inputGateBias", "projectionWeights",
    "projectionBias", "cellToForgetWeights", "cellToOutputWeights", "inputLayerNormWeights", "forgetLayerNormWeights",
    "cellLayerNormWeights", "outputLayerNormWeights",
)  # fmt: skip
"""The constants of Lstm and UnidirectionalSequenceLstm layers, in the order of the file."""
QLSTM_PARAMS: Final = (
    *LSTM_PARAMS[:11], "inputGateBias", "projectionWeights", "projectionBias", "cellToInputWeights",
    "cellToForgetWeights", "cellToOutputWeights", *LSTM_PARAMS[17:],
)  # fmt: skip
"""The constants of QLstm layers, whose order differs from `LSTM_PARAMS`."""
QUANTIZED_LSTM_PARAMS: Final = (
    "inputToInputWeights", "inputToForgetWeights", "inputToCellWeights", "inputToOutputWeights",
    "recurrentToInputWeights", "recurrentToForgetWeights", "recurrentToCellWeights", "recurrentToOutputWeights",
    "inputGateBias", "forgetGateBias", "cellBias", "outputGateBias",
)  # fmt: skip
"""The constants of QuantizedLstm layers."""

_UNION: Final = _words("""
Activation Addition BatchToSpaceNd BatchNormalization Constant Convolution2d DepthwiseConvolution2d FullyConnected
Input Multiplication Output Permute Pooling2d Reshape Softmax SpaceToBatchNd Division Minimum Equal Maximum
Normalization Pad Rsqrt Floor Greater ResizeBilinear Subtraction StridedSlice Gather Mean Merger L2Normalization
Splitter DetectionPostProcess Lstm QuantizedLstm Quantize Dequantize Merge Switch Concat SpaceToDepth Prelu
TransposeConvolution2d Resize Stack Abs ArgMinMax Slice DepthToSpace InstanceNormalization LogSoftmax Comparison
StandIn ElementwiseUnary Transpose QLstm Fill Rank LogicalBinary Reduce Cast Shape UnidirectionalSequenceLstm
ChannelShuffle Convolution3d Pooling3d GatherNd BatchMatMul ElementwiseBinary ReverseV2 Tile ScatterNd
""")
"""The layers in the order of the union, whose first member has the number 1."""

LAYER_TYPES: Final = _words("""
Addition Input Multiplication Output Pooling2d Reshape Softmax Convolution2d DepthwiseConvolution2d Activation Permute
FullyConnected Constant SpaceToBatchNd BatchToSpaceNd Division Minimum Equal Maximum Normalization Pad Rsqrt Floor
BatchNormalization Greater ResizeBilinear Subtraction StridedSlice Gather Mean Merger L2Normalization Splitter
DetectionPostProcess Lstm Quantize Dequantize Merge Switch Concat SpaceToDepth Prelu TransposeConvolution2d Resize
Stack QuantizedLstm Abs ArgMinMax Slice DepthToSpace InstanceNormalization LogSoftmax Comparison StandIn
ElementwiseUnary Transpose QLstm Fill Rank LogicalBinary Reduce Cast Shape UnidirectionalSequenceLstm ChannelShuffle
Convolution3d Pooling3d GatherNd BatchMatMul ElementwiseBinary ReverseV2 Tile ScatterNd
""")
"""The layers in the order of the enumeration in the layer's base, whose first member has the number 0."""

_WITHOUT_DESCRIPTOR: Final = frozenset(
    _words("""
Input Output Constant Abs Addition Cast Division Equal Floor GatherNd Greater Minimum Maximum Multiplication Quantize
Dequantize Merge Switch Prelu Rank ReverseV2 Rsqrt Shape Subtraction QuantizedLstm
""")
)
_DESCRIPTORS: Final = {"Concat": "OriginsDescriptor", "Merger": "OriginsDescriptor", "Splitter": "ViewsDescriptor"}
_CONSTANTS: Final = {
    "BatchNormalization": "mean variance beta gamma",
    "Constant": "input",
    "Convolution2d": "weights biases",
    "DepthwiseConvolution2d": "weights biases",
    "DetectionPostProcess": "anchors",
    "FullyConnected": "weights biases",
    "TransposeConvolution2d": "weights biases",
}
_PARAMS: Final = {
    "Lstm": "LstmInputParams",
    "QLstm": "QLstmInputParams",
    "QuantizedLstm": "QuantizedLstmInputParams",
    "UnidirectionalSequenceLstm": "LstmInputParams",
}

_PADS: Final = "padLeft:u32 padRight:u32 padTop:u32 padBottom:u32"
_CONVOLUTION: Final = (
    f"{_PADS} strideX:u32 strideY:u32 dilationX:u32=1 dilationY:u32=1 biasEnabled:bool dataLayout:i8=1"
)
_FEATURES: Final = "cifgEnabled:bool=1 peepholeEnabled:bool projectionEnabled:bool layerNormEnabled:bool"
_LSTM: Final = f"activationFunc:u32 clippingThresCell:f32 clippingThresProj:f32 {_FEATURES}"

_TABLES: Final = f"""
SerializedGraph: layers:[AnyLayer] inputIds:[i32] outputIds:[i32] featureVersions:FeatureCompatibilityVersions
FeatureCompatibilityVersions: bindingIdsScheme:u32 weightsLayoutScheme:u32 constantTensorsAsInputs:u32
AnyLayer: layer:Layer
LayerBase: index:u32 layerName:string layerType:u32 inputSlots:[InputSlot] outputSlots:[OutputSlot]
BindableLayerBase: base:LayerBase layerBindingId:i32
InputSlot: index:u32 connection:Connection isOverridden:bool overriddenTensorInfo:TensorInfo
OutputSlot: index:u32 tensorInfo:TensorInfo
TensorInfo: dimensions:[u32] dataType:i8 quantizationScale:f32=1 quantizationOffset:i32 quantizationScales:[f32]
    quantizationDim:u32 dimensionality:u32=1 dimensionSpecificity:[bool] isConstant:bool
ConstTensor: info:TensorInfo data:ConstTensorData
ByteData: data:[i8]
ShortData: data:[i16]
IntData: data:[i32]
LongData: data:[i64]
UintVector: data:[u32]
ActivationDescriptor: activationFunction:i8 a:f32 b:f32
ArgMinMaxDescriptor: argMinMaxFunction:i8 axis:i32
BatchMatMulDescriptor: transposeX:bool transposeY:bool adjointX:bool adjointY:bool dataLayoutX:i8=1 dataLayoutY:i8=1
BatchNormalizationDescriptor: eps:f32 dataLayout:i8
BatchToSpaceNdDescriptor: blockShape:[u32] crops:[u32] dataLayout:i8
ChannelShuffleDescriptor: axis:u32 numGroups:u32
ComparisonDescriptor: operation:i8
Convolution2dDescriptor: {_CONVOLUTION}
Convolution3dDescriptor: {_PADS} padFront:u32 padBack:u32 strideX:u32 strideY:u32 strideZ:u32 dilationX:u32=1
    dilationY:u32=1 dilationZ:u32=1 biasEnabled:bool dataLayout:i8=2
DepthToSpaceDescriptor: blockSize:u32 dataLayout:i8
DepthwiseConvolution2dDescriptor: {_CONVOLUTION}
DetectionPostProcessDescriptor: maxDetections:u32 maxClassesPerDetection:u32 detectionsPerClass:u32
    nmsScoreThreshold:f32 nmsIouThreshold:f32 numClasses:u32 useRegularNms:bool scaleX:f32 scaleY:f32 scaleW:f32
    scaleH:f32
ElementwiseBinaryDescriptor: operation:i8
ElementwiseUnaryDescriptor: operation:i8
FillDescriptor: value:f32
FullyConnectedDescriptor: biasEnabled:bool transposeWeightsMatrix:bool constantWeights:bool=1
GatherDescriptor: axis:i32
InstanceNormalizationDescriptor: gamma:f32 beta:f32 eps:f32 dataLayout:i8
L2NormalizationDescriptor: dataLayout:i8=1 eps:f32=1e-12
LogicalBinaryDescriptor: operation:i8
LogSoftmaxDescriptor: beta:f32=1 axis:i32=-1
LstmDescriptor: {_LSTM}
MeanDescriptor: axis:[u32] keepDims:bool
NormalizationDescriptor: normChannelType:i8 normMethodType:i8 normSize:u32 alpha:f32 beta:f32 k:f32 dataLayout:i8=1
OriginsDescriptor: concatAxis:u32 numViews:u32 numDimensions:u32 viewOrigins:[UintVector]
PadDescriptor: padList:[u32] padValue:f32 paddingMode:i8
PermuteDescriptor: dimMappings:[u32]
Pooling2dDescriptor: poolType:i8 {_PADS} poolWidth:u32 poolHeight:u32 strideX:u32 strideY:u32 outputShapeRounding:i8
    paddingMethod:i8 dataLayout:i8
Pooling3dDescriptor: poolType:i8 {_PADS} padFront:u32 padBack:u32 poolWidth:u32 poolHeight:u32 poolDepth:u32
    strideX:u32 strideY:u32 strideZ:u32 outputShapeRounding:i8 paddingMethod:i8 dataLayout:i8
QLstmDescriptor: {_FEATURES} cellClip:f32 projectionClip:f32 inputIntermediateScale:f32 forgetIntermediateScale:f32
    cellIntermediateScale:f32 outputIntermediateScale:f32 hiddenStateZeroPoint:i32 hiddenStateScale:f32
ReduceDescriptor: keepDims:bool axis:[u32] reduceOperation:i8
ReshapeDescriptor: targetShape:[u32]
ResizeBilinearDescriptor: targetWidth:u32 targetHeight:u32 dataLayout:i8 alignCorners:bool halfPixelCenters:bool
ResizeDescriptor: targetHeight:u32 targetWidth:u32 method:i8 dataLayout:i8 alignCorners:bool halfPixelCenters:bool
ScatterNdDescriptor: m_Function:i8 m_InputEnabled:bool=1 m_Axis:i32 m_AxisEnabled:bool
SliceDescriptor: begin:[u32] size:[u32]
SoftmaxDescriptor: beta:f32 axis:i32=-1
SpaceToBatchNdDescriptor: blockShape:[u32] padList:[u32] dataLayout:i8
SpaceToDepthDescriptor: blockSize:u32 dataLayout:i8
StackDescriptor: axis:u32 numInputs:u32 inputShape:[u32]
StandInDescriptor: numInputs:u32 numOutputs:u32
StridedSliceDescriptor: begin:[i32] end:[i32] stride:[i32] beginMask:i32 endMask:i32 shrinkAxisMask:i32
    ellipsisMask:i32 newAxisMask:i32 dataLayout:i8
TileDescriptor: m_Multiples:[u32]
TransposeConvolution2dDescriptor: {_PADS} strideX:u32 strideY:u32 biasEnabled:bool dataLayout:i8=1
TransposeDescriptor: dimMappings:[u32]
UnidirectionalSequenceLstmDescriptor: {_LSTM} timeMajor:bool
ViewsDescriptor: origins:OriginsDescriptor viewSizes:[UintVector] hasAxis:bool axis:i32
"""


def _layer_table(kind: str) -> str:
    """Return the line that describes the table of a kind of layer."""
    fields = [f"base:{'BindableLayerBase' if kind in {'Input', 'Output'} else 'LayerBase'}"]
    if kind not in _WITHOUT_DESCRIPTOR:
        fields.append(f"descriptor:{_DESCRIPTORS.get(kind, f'{kind}Descriptor')}")
    fields += [f"{name}:ConstTensor" for name in _CONSTANTS.get(kind, "").split()]
    fields += [f"inputParams:{_PARAMS[kind]}"] if kind in _PARAMS else []
    return f"{kind}Layer: {' '.join(fields)}"


def _params_table(name: str, params: tuple[str, ...]) -> str:
    return f"{name}: {' '.join(f'{param}:ConstTensor' for param in params)}"


SCHEMA: Final = Schema(
    "\n".join(
        [
            _TABLES.strip(),
            *map(_layer_table, _UNION),
            _params_table("LstmInputParams", LSTM_PARAMS),
            _params_table("QLstmInputParams", QLSTM_PARAMS),
            _params_table("QuantizedLstmInputParams", QUANTIZED_LSTM_PARAMS),
        ]
    ),
    f"Layer: {' '.join(f'{kind}Layer' for kind in _UNION)}\nConstTensorData: ByteData ShortData IntData LongData",
    "Connection: sourceLayerIndex outputSlotIndex",
    open_unions=True,
)
"""The tables of the format."""


def layers() -> tuple[str, ...]:
    """Return the kinds of layers that files can have, such as ``Convolution2d``, in the order of the format."""
    return _UNION


DATA_TYPES: Final = (
    "Float16", "Float32", "QuantisedAsymm8", "Signed32", "Boolean", "QuantisedSymm16", "QAsymmU8", "QSymmS16",
    "QAsymmS8", "QSymmS8", "Signed64",
)  # fmt: skip
"""The types of tensors by their Arm NN names, in the order of their numbers in files."""

LAYOUTS: Final = ("NHWC", "NCHW", "NDHWC", "NCDHW")
ACTIVATIONS: Final = (
    "SIGMOID", "TANH", "LINEAR", "RELU", "BOUNDED_RELU", "SOFT_RELU", "LEAKY_RELU", "ABS", "SQRT", "SQUARE", "ELU",
    "HARD_SWISH", "GELU",
)  # fmt: skip
UNARY: Final = ("ABS", "RSQRT", "SQRT", "EXP", "NEG", "LOGICAL_NOT", "LOG", "SIN", "CEIL")
BINARY: Final = ("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "SUB", "SQ_DIFF", "POWER")
COMPARISONS: Final = ("EQUAL", "GREATER", "GREATER_OR_EQUAL", "LESS", "LESS_OR_EQUAL", "NOT_EQUAL")
LOGICAL: Final = ("LOGICAL_AND", "LOGICAL_OR")
REDUCTIONS: Final = ("SUM", "MAX", "MEAN", "MIN", "PROD")
POOLINGS: Final = ("MAX", "AVERAGE", "L2")
ROUNDINGS: Final = ("FLOOR", "CEILING")
PADDING_METHODS: Final = ("IGNORE_VALUE", "EXCLUDE")
PADDING_MODES: Final = ("CONSTANT", "REFLECT", "SYMMETRIC")
RESIZE_METHODS: Final = ("NEAREST_NEIGHBOR", "BILINEAR")
NORMALIZATION_CHANNELS: Final = ("ACROSS", "WITHIN")
NORMALIZATION_METHODS: Final = ("LOCAL_BRIGHTNESS", "LOCAL_CONTRAST")
SCATTER_FUNCTIONS: Final = ("UPDATE", "ADD", "SUB", "MAX", "MIN", "MUL")
