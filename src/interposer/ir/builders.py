"""Methods that add one layer each. Written by tools/generate.py from the operators' declarations; do not edit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interposer.ops.activation import Activation, ActivationFunction, Hardmax, LogSoftmax, Softmax
from interposer.ops.attention import Attention, AttentionScores, RotaryEmbedding
from interposer.ops.blocks import (
    BatchToSpaceNd,
    ChannelShuffle,
    DepthToSpace,
    DepthToSpaceMode,
    SpaceToBatchNd,
    SpaceToDepth,
)
from interposer.ops.choice import RandomMultinomial, TopK
from interposer.ops.containers import (
    ConcatFromSequence,
    OptionalConstruct,
    OptionalEmpty,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from interposer.ops.control import Debug, MemCopy, MemImport, Merge, PreCompiled, StandIn, Switch
from interposer.ops.control_flow import If, Loop, Scan, While
from interposer.ops.convolution import Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.ops.convolution3d import Convolution3d
from interposer.ops.deformable import DeformableConvolution2d
from interposer.ops.detection import (
    AxisAlignedBboxTransform,
    BoxWithNmsLimit,
    DetectionPostProcess,
    DetectionRules,
    GenerateProposals,
    NmsKernel,
    NonMaxSuppression,
)
from interposer.ops.dynamic import (
    DynamicBroadcastTo,
    DynamicPad,
    DynamicReshape,
    DynamicSlice,
    DynamicTile,
    DynamicTopK,
)
from interposer.ops.einsum import Einsum
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    LogicalBinary,
    LogicalBinaryOperation,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    Subtraction,
    UnaryOperation,
    Where,
)
from interposer.ops.embedding import EmbeddingLookup, HashtableLookup, LshProjection, LshProjectionType, OneHot
from interposer.ops.features import LabelEncoder, TermWeighting, TfIdfVectorizer
from interposer.ops.fused import Fused, FusedKernelType
from interposer.ops.gather import Gather, GatherElements, GatherNd
from interposer.ops.grid import AffineGrid, GridPadding, GridSample, GridSampleMode
from interposer.ops.images import ImageDecoder, PixelFormat
from interposer.ops.linear_attention import LinearAttention
from interposer.ops.lstm import BidirectionalSequenceLstm, Lstm, UnidirectionalSequenceLstm
from interposer.ops.matmul import BatchMatMul, FullyConnected
from interposer.ops.matrices import Det, EyeLike, MatrixDiag, MatrixSetDiag, Trilu
from interposer.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    NormalizationAlgorithmMethod,
    RmsNormalization,
)
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, Pooling2d, PoolingAlgorithm
from interposer.ops.pooling3d import Pooling3d
from interposer.ops.quantization import (
    Bitcast,
    Cast,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Dequantize,
    FakeQuantization,
    Quantize,
    RoundingMethod,
)
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.randomness import Distribution, RandomFill
from interposer.ops.rearrange import (
    Concat,
    Pad,
    PaddingMode,
    Permute,
    ReverseV2,
    Slice,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
)
from interposer.ops.recurrent import BidirectionalSequenceRnn, FusedActivation, Rnn, Svdf, UnidirectionalSequenceRnn
from interposer.ops.recurrent_sequence import GruSequence, LstmSequence, RecurrentDirection, RnnSequence
from interposer.ops.reduction import ArgMinMax, ArgMinMaxFunction, Mean, Reduce, ReduceOperation
from interposer.ops.regions import HeatmapMaxKeypoint, RoiAlign, RoiAlignMode, RoiPooling
from interposer.ops.reshape import BroadcastTo, Fill, Rank, Reshape, Shape
from interposer.ops.resize import Resize, ResizeMethod
from interposer.ops.scatter import DynamicUpdateSlice, ScatterElements, ScatterFunction, ScatterNd, TensorScatter
from interposer.ops.selection import Compress, NonZero, Unique
from interposer.ops.sequence import CumProd, CumSum, Range, ReverseSequence
from interposer.ops.spectral import Dft, MelWeightMatrix, SignalWindow, Stft, WindowFunction
from interposer.ops.strings import CaseChange, RegexFullMatch, StringConcat, StringNormalizer, StringSplit
from interposer.ops.trees import TreeAggregation, TreeEnsemble
from interposer.ops.windowed import Col2Im, LpPooling, MaxPoolingWithIndices, MaxUnpooling
from interposer.types import DataLayout, DataType

if TYPE_CHECKING:
    from interposer.ir.graph import Graph, Layer, Value
    from interposer.ir.network import Network
    from interposer.schema import Op
    from interposer.types import Array, TensorInfo

__all__ = ["Builders"]


class Builders(ABC):
    """A method for every operator: operands by position, None for one that is absent, and attributes by name."""

    @abstractmethod
    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
        regions: Sequence[Network | Graph] = (),
    ) -> Layer:
        """Add a layer that runs `op` on `values`."""

    def add_activation_layer(
        self,
        input: Value | Layer | None,
        *,
        function: ActivationFunction = ActivationFunction.SIGMOID,
        a: float = 0.0,
        b: float = 0.0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Apply a function to every element; `a` and `b` are the function's parameters."""
        op = Activation(function=function, a=a, b=b)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_hardmax_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int = -1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """1 for the greatest element along an axis (of equal ones, the first), 0 for all others."""
        op = Hardmax(axis=axis)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_log_softmax_layer(
        self,
        input: Value | Layer | None,
        *,
        beta: float = 1.0,
        axis: int = -1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The logarithm of `Softmax`: beta * x - log(sum of exp(beta * x))."""
        op = LogSoftmax(beta=beta, axis=axis)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_softmax_layer(
        self,
        input: Value | Layer | None,
        *,
        beta: float = 1.0,
        axis: int = -1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Turn scores into probabilities along an axis: exp(beta * x) / sum of exp(beta * x)."""
        op = Softmax(beta=beta, axis=axis)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_attention_layer(
        self,
        query: Value | Layer | None,
        key: Value | Layer | None,
        value: Value | Layer | None,
        mask: Value | Layer | None = None,
        past_key: Value | Layer | None = None,
        past_value: Value | Layer | None = None,
        valid_lengths: Value | Layer | None = None,
        *,
        scale: float | None = None,
        is_causal: bool = False,
        softcap: float = 0.0,
        q_num_heads: int = 0,
        kv_num_heads: int = 0,
        left_window_size: int = -1,
        right_window_size: int = -1,
        present: bool = False,
        scores: AttentionScores = AttentionScores.NONE,
        softmax_precision: DataType | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Scaled dot-product attention of several heads: softmax(scale * query key^T + mask) value, head by head."""
        op = Attention(
            scale=scale,
            is_causal=is_causal,
            softcap=softcap,
            q_num_heads=q_num_heads,
            kv_num_heads=kv_num_heads,
            left_window_size=left_window_size,
            right_window_size=right_window_size,
            present=present,
            scores=scores,
            softmax_precision=softmax_precision,
        )
        return self.add_layer(
            op, query, key, value, mask, past_key, past_value, valid_lengths, name=name, outputs=outputs
        )

    def add_rotary_embedding_layer(
        self,
        input: Value | Layer | None,
        cos_cache: Value | Layer | None,
        sin_cache: Value | Layer | None,
        position_ids: Value | Layer | None = None,
        *,
        interleaved: bool = False,
        num_heads: int = 0,
        rotary_embedding_dim: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Turn pairs of elements of each head by angles that depend on the position: rotary position embedding."""
        op = RotaryEmbedding(interleaved=interleaved, num_heads=num_heads, rotary_embedding_dim=rotary_embedding_dim)
        return self.add_layer(op, input, cos_cache, sin_cache, position_ids, name=name, outputs=outputs)

    def add_batch_to_space_nd_layer(
        self,
        input: Value | Layer | None,
        *,
        block_shape: tuple[int, ...] = (1, 1),
        crops: tuple[tuple[int, int], ...] = ((0, 0), (0, 0)),
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Move blocks out of the batch back into the image axes and crop these: the inverse of `SpaceToBatchNd`."""
        op = BatchToSpaceNd(block_shape=block_shape, crops=crops, data_layout=data_layout)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_channel_shuffle_layer(
        self,
        input: Value | Layer | None,
        *,
        num_groups: int,
        axis: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Deal the elements of an axis out: seen as (groups, members), the axis is read members first."""
        op = ChannelShuffle(num_groups=num_groups, axis=axis)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_depth_to_space_layer(
        self,
        input: Value | Layer | None,
        *,
        block_size: int,
        data_layout: DataLayout = DataLayout.NHWC,
        mode: DepthToSpaceMode = DepthToSpaceMode.DCR,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Move blocks of channels into the height and width of an image."""
        op = DepthToSpace(block_size=block_size, data_layout=data_layout, mode=mode)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_space_to_batch_nd_layer(
        self,
        input: Value | Layer | None,
        *,
        block_shape: tuple[int, ...] = (1, 1),
        pad_list: tuple[tuple[int, int], ...] = ((0, 0), (0, 0)),
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pad the image axes with zeros and move blocks of them into the batch."""
        op = SpaceToBatchNd(block_shape=block_shape, pad_list=pad_list, data_layout=data_layout)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_space_to_depth_layer(
        self,
        input: Value | Layer | None,
        *,
        block_size: int,
        data_layout: DataLayout = DataLayout.NHWC,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Move blocks of the height and width of an image into its channels."""
        op = SpaceToDepth(block_size=block_size, data_layout=data_layout)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_random_multinomial_layer(
        self,
        logits: Value | Layer | None,
        seeds: Value | Layer | None = None,
        *,
        num_samples: int,
        dtype: DataType = DataType.INT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Draw classes at random, each as often as its probability says, which is ``softmax(logits)``."""
        op = RandomMultinomial(num_samples=num_samples, dtype=dtype)
        return self.add_layer(op, logits, seeds, name=name, outputs=outputs)

    def add_top_k_layer(
        self,
        input: Value | Layer | None,
        *,
        k: int,
        axis: int = -1,
        largest: bool = True,
        index_dtype: DataType = DataType.INT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The largest elements along an axis (or the smallest), best first, and where they were."""
        op = TopK(k=k, axis=axis, largest=largest, index_dtype=index_dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_concat_from_sequence_layer(
        self,
        sequence: Value | Layer | None,
        *,
        axis: int,
        new_axis: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Join the tensors of a sequence along an axis, or along a new one."""
        op = ConcatFromSequence(axis=axis, new_axis=new_axis)
        return self.add_layer(op, sequence, name=name, outputs=outputs)

    def add_optional_construct_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An optional that holds a tensor or a sequence."""
        return self.add_layer(OptionalConstruct(), input, name=name, outputs=outputs)

    def add_optional_empty_layer(
        self,
        *,
        dtype: DataType = DataType.FLOAT32,
        of_sequence: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An optional that holds nothing."""
        op = OptionalEmpty(dtype=dtype, of_sequence=of_sequence)
        return self.add_layer(op, name=name, outputs=outputs)

    def add_optional_get_element_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The element of an optional, which must hold one."""
        return self.add_layer(OptionalGetElement(), input, name=name, outputs=outputs)

    def add_optional_has_element_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Whether an optional holds an element."""
        return self.add_layer(OptionalHasElement(), input, name=name, outputs=outputs)

    def add_sequence_at_layer(
        self,
        sequence: Value | Layer | None,
        position: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One tensor of a sequence."""
        return self.add_layer(SequenceAt(), sequence, position, name=name, outputs=outputs)

    def add_sequence_construct_layer(
        self,
        *inputs: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A sequence of tensors of one type, whose shapes may differ."""
        return self.add_layer(SequenceConstruct(), *inputs, name=name, outputs=outputs)

    def add_sequence_empty_layer(
        self,
        *,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A sequence of no tensors."""
        op = SequenceEmpty(dtype=dtype)
        return self.add_layer(op, name=name, outputs=outputs)

    def add_sequence_erase_layer(
        self,
        sequence: Value | Layer | None,
        position: Value | Layer | None = None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Take a tensor out of a sequence."""
        return self.add_layer(SequenceErase(), sequence, position, name=name, outputs=outputs)

    def add_sequence_insert_layer(
        self,
        sequence: Value | Layer | None,
        tensor: Value | Layer | None,
        position: Value | Layer | None = None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Put a tensor into a sequence."""
        return self.add_layer(SequenceInsert(), sequence, tensor, position, name=name, outputs=outputs)

    def add_sequence_length_layer(
        self,
        sequence: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """How many tensors a sequence holds."""
        return self.add_layer(SequenceLength(), sequence, name=name, outputs=outputs)

    def add_split_to_sequence_layer(
        self,
        input: Value | Layer | None,
        split: Value | Layer | None = None,
        *,
        axis: int = 0,
        keepdims: bool = True,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut a tensor along an axis into a sequence of pieces."""
        op = SplitToSequence(axis=axis, keepdims=keepdims)
        return self.add_layer(op, input, split, name=name, outputs=outputs)

    def add_debug_layer(
        self,
        input: Value | Layer | None,
        *,
        watched: str = "",
        slot: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pass a tensor on and show it: to the registered callback, or as a line of JSON on standard output."""
        op = Debug(watched=watched, slot=slot)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_mem_copy_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Copy a tensor from the memory of one backend to that of another; the optimizer inserts it."""
        return self.add_layer(MemCopy(), input, name=name, outputs=outputs)

    def add_mem_import_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Let a backend use the memory of another one in place; the optimizer inserts it."""
        return self.add_layer(MemImport(), input, name=name, outputs=outputs)

    def add_merge_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pass on whichever input is there; where both are, they must have the same shape and the first is taken."""
        return self.add_layer(Merge(), a, b, name=name, outputs=outputs)

    def add_pre_compiled_layer(
        self,
        *inputs: Value | Layer | None,
        num_outputs: int = 1,
        object: Any = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A part of the network that a backend has compiled: an opaque object of its own."""
        op = PreCompiled(num_outputs=num_outputs, object=object)
        return self.add_layer(op, *inputs, name=name, outputs=outputs)

    def add_stand_in_layer(
        self,
        *inputs: Value | Layer | None,
        num_outputs: int = 1,
        description: str = "",
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Hold the place of an operator that a front end does not know; it can be looked at, not run."""
        op = StandIn(num_outputs=num_outputs, description=description)
        return self.add_layer(op, *inputs, name=name, outputs=outputs)

    def add_switch_layer(
        self,
        data: Value | Layer | None,
        condition: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give the data to both outputs; which of them is live is told by the condition."""
        return self.add_layer(Switch(), data, condition, name=name, outputs=outputs)

    def add_if_layer(
        self,
        condition: Value | Layer | None,
        *inputs: Value | Layer | None,
        regions: Sequence[Network | Graph],
        num_outputs: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Run one of two regions: the first one where the condition is true, else the second one."""
        op = If(num_outputs=num_outputs)
        return self.add_layer(op, condition, *inputs, name=name, outputs=outputs, regions=regions)

    def add_loop_layer(
        self,
        trip_count: Value | Layer | None = None,
        condition: Value | Layer | None = None,
        *inputs: Value | Layer | None,
        regions: Sequence[Network | Graph],
        num_carried: int = 0,
        num_scan_outputs: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Run a region again and again: as often as ``trip_count`` says, and only while the condition is true."""
        op = Loop(num_carried=num_carried, num_scan_outputs=num_scan_outputs)
        return self.add_layer(op, trip_count, condition, *inputs, name=name, outputs=outputs, regions=regions)

    def add_scan_layer(
        self,
        *inputs: Value | Layer | None,
        regions: Sequence[Network | Graph],
        num_states: int = 0,
        num_scan_inputs: int = 1,
        num_scan_outputs: int = 0,
        input_axes: tuple[int, ...] = (),
        output_axes: tuple[int, ...] = (),
        reverse_inputs: tuple[bool, ...] = (),
        reverse_outputs: tuple[bool, ...] = (),
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Run a region for every index along an axis of some tensors, which it sees in slices."""
        op = Scan(
            num_states=num_states,
            num_scan_inputs=num_scan_inputs,
            num_scan_outputs=num_scan_outputs,
            input_axes=input_axes,
            output_axes=output_axes,
            reverse_inputs=reverse_inputs,
            reverse_outputs=reverse_outputs,
        )
        return self.add_layer(op, *inputs, name=name, outputs=outputs, regions=regions)

    def add_while_layer(
        self,
        *inputs: Value | Layer | None,
        regions: Sequence[Network | Graph],
        num_carried: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Run a region as long as another one says so, which is asked before every iteration."""
        op = While(num_carried=num_carried)
        return self.add_layer(op, *inputs, name=name, outputs=outputs, regions=regions)

    def add_convolution2d_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        *,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        stride_x: int = 1,
        stride_y: int = 1,
        dilation_x: int = 1,
        dilation_y: int = 1,
        data_layout: DataLayout = DataLayout.NCHW,
        groups: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Correlate an image with weights: every output channel sums all input channels."""
        op = Convolution2d(
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            stride_x=stride_x,
            stride_y=stride_y,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
            data_layout=data_layout,
            groups=groups,
        )
        return self.add_layer(op, input, weights, bias, name=name, outputs=outputs)

    def add_depthwise_convolution2d_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        *,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        stride_x: int = 1,
        stride_y: int = 1,
        dilation_x: int = 1,
        dilation_y: int = 1,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Correlate every channel of an image by itself with M windows of weights."""
        op = DepthwiseConvolution2d(
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            stride_x=stride_x,
            stride_y=stride_y,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
            data_layout=data_layout,
        )
        return self.add_layer(op, input, weights, bias, name=name, outputs=outputs)

    def add_transpose_convolution2d_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        *,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        stride_x: int = 1,
        stride_y: int = 1,
        dilation_x: int = 1,
        dilation_y: int = 1,
        data_layout: DataLayout = DataLayout.NCHW,
        groups: int = 1,
        output_shape: tuple[int, ...] | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Spread every cell of an image over a window of the output, weighted: the gradient of a convolution."""
        op = TransposeConvolution2d(
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            stride_x=stride_x,
            stride_y=stride_y,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
            data_layout=data_layout,
            groups=groups,
            output_shape=output_shape,
        )
        return self.add_layer(op, input, weights, bias, name=name, outputs=outputs)

    def add_convolution3d_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        *,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        pad_front: int = 0,
        pad_back: int = 0,
        stride_x: int = 1,
        stride_y: int = 1,
        stride_z: int = 1,
        dilation_x: int = 1,
        dilation_y: int = 1,
        dilation_z: int = 1,
        groups: int = 1,
        data_layout: DataLayout = DataLayout.NDHWC,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Correlate a volume with weights: every output channel sums all input channels."""
        op = Convolution3d(
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            pad_front=pad_front,
            pad_back=pad_back,
            stride_x=stride_x,
            stride_y=stride_y,
            stride_z=stride_z,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
            dilation_z=dilation_z,
            groups=groups,
            data_layout=data_layout,
        )
        return self.add_layer(op, input, weights, bias, name=name, outputs=outputs)

    def add_deformable_convolution2d_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        offset: Value | Layer | None,
        bias: Value | Layer | None = None,
        mask: Value | Layer | None = None,
        *,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        stride_x: int = 1,
        stride_y: int = 1,
        dilation_x: int = 1,
        dilation_y: int = 1,
        groups: int = 1,
        offset_groups: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Correlate an image with weights that look at places moved by offsets."""
        op = DeformableConvolution2d(
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            stride_x=stride_x,
            stride_y=stride_y,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
            groups=groups,
            offset_groups=offset_groups,
        )
        return self.add_layer(op, input, weights, offset, bias, mask, name=name, outputs=outputs)

    def add_axis_aligned_bbox_transform_layer(
        self,
        boxes: Value | Layer | None,
        deltas: Value | Layer | None,
        batches: Value | Layer | None,
        image_info: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Move and stretch boxes, in another way for each class, and clip them to their image."""
        return self.add_layer(
            AxisAlignedBboxTransform(), boxes, deltas, batches, image_info, name=name, outputs=outputs
        )

    def add_box_with_nms_limit_layer(
        self,
        scores: Value | Layer | None,
        boxes: Value | Layer | None,
        batches: Value | Layer | None,
        *,
        score_threshold: float = 0.0,
        max_detections: int = -1,
        nms_kernel: NmsKernel = NmsKernel.HARD,
        iou_threshold: float = 0.5,
        sigma: float = 1.0,
        nms_score_threshold: float = 0.0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Keep the best boxes of every class but class 0 (the background) by soft or hard non-maximum suppression."""
        op = BoxWithNmsLimit(
            score_threshold=score_threshold,
            max_detections=max_detections,
            nms_kernel=nms_kernel,
            iou_threshold=iou_threshold,
            sigma=sigma,
            nms_score_threshold=nms_score_threshold,
        )
        return self.add_layer(op, scores, boxes, batches, name=name, outputs=outputs)

    def add_detection_post_process_layer(
        self,
        box_encodings: Value | Layer | None,
        scores: Value | Layer | None,
        anchors: Value | Layer | None,
        *,
        max_detections: int,
        num_classes: int,
        max_classes_per_detection: int = 1,
        detections_per_class: int = 1,
        nms_score_threshold: float = 0.0,
        nms_iou_threshold: float = 0.5,
        use_regular_nms: bool = False,
        scale_x: float = 1.0,
        scale_y: float = 1.0,
        scale_w: float = 1.0,
        scale_h: float = 1.0,
        rules: DetectionRules = DetectionRules.TFLITE,
        background_in_classes: bool = False,
        label_dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Decode boxes relative to anchors, and keep the best of those that do not overlap too much."""
        op = DetectionPostProcess(
            max_detections=max_detections,
            num_classes=num_classes,
            max_classes_per_detection=max_classes_per_detection,
            detections_per_class=detections_per_class,
            nms_score_threshold=nms_score_threshold,
            nms_iou_threshold=nms_iou_threshold,
            use_regular_nms=use_regular_nms,
            scale_x=scale_x,
            scale_y=scale_y,
            scale_w=scale_w,
            scale_h=scale_h,
            rules=rules,
            background_in_classes=background_in_classes,
            label_dtype=label_dtype,
        )
        return self.add_layer(op, box_encodings, scores, anchors, name=name, outputs=outputs)

    def add_generate_proposals_layer(
        self,
        scores: Value | Layer | None,
        deltas: Value | Layer | None,
        anchors: Value | Layer | None,
        image_info: Value | Layer | None,
        *,
        height_stride: float = 1.0,
        width_stride: float = 1.0,
        pre_nms_max: int = -1,
        post_nms_max: int = -1,
        iou_threshold: float = 0.5,
        min_size: float = 0.0,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Lay anchors over an image, transform them by what a network says."""
        op = GenerateProposals(
            height_stride=height_stride,
            width_stride=width_stride,
            pre_nms_max=pre_nms_max,
            post_nms_max=post_nms_max,
            iou_threshold=iou_threshold,
            min_size=min_size,
            data_layout=data_layout,
        )
        return self.add_layer(op, scores, deltas, anchors, image_info, name=name, outputs=outputs)

    def add_non_max_suppression_layer(
        self,
        boxes: Value | Layer | None,
        scores: Value | Layer | None,
        *,
        max_output_boxes_per_class: int = 0,
        iou_threshold: float = 0.0,
        score_threshold: float | None = None,
        center_point_box: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pick the best boxes of every class of every image, by their number."""
        op = NonMaxSuppression(
            max_output_boxes_per_class=max_output_boxes_per_class,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            center_point_box=center_point_box,
        )
        return self.add_layer(op, boxes, scores, name=name, outputs=outputs)

    def add_dynamic_broadcast_to_layer(
        self,
        input: Value | Layer | None,
        shape: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Repeat a tensor along axes of extent 1, and along new ones in front, as a shape that is a tensor asks for."""
        return self.add_layer(DynamicBroadcastTo(), input, shape, name=name, outputs=outputs)

    def add_dynamic_pad_layer(
        self,
        input: Value | Layer | None,
        pads: Value | Layer | None,
        *,
        pad_value: float = 0.0,
        padding_mode: PaddingMode = PaddingMode.CONSTANT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Add a border to a tensor that is as wide as a tensor says."""
        op = DynamicPad(pad_value=pad_value, padding_mode=padding_mode)
        return self.add_layer(op, input, pads, name=name, outputs=outputs)

    def add_dynamic_reshape_layer(
        self,
        input: Value | Layer | None,
        shape: Value | Layer | None,
        *,
        copy_zeros: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give the same elements, in the same order, a shape that is a tensor."""
        op = DynamicReshape(copy_zeros=copy_zeros)
        return self.add_layer(op, input, shape, name=name, outputs=outputs)

    def add_dynamic_slice_layer(
        self,
        input: Value | Layer | None,
        starts: Value | Layer | None,
        ends: Value | Layer | None,
        steps: Value | Layer | None = None,
        *,
        axes: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut a piece out of a tensor, from, to and in steps that are tensors."""
        op = DynamicSlice(axes=axes)
        return self.add_layer(op, input, starts, ends, steps, name=name, outputs=outputs)

    def add_dynamic_tile_layer(
        self,
        input: Value | Layer | None,
        multiples: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Repeat a tensor along each axis as often as a tensor says."""
        return self.add_layer(DynamicTile(), input, multiples, name=name, outputs=outputs)

    def add_dynamic_top_k_layer(
        self,
        input: Value | Layer | None,
        k: Value | Layer | None,
        *,
        axis: int = -1,
        largest: bool = True,
        index_dtype: DataType = DataType.INT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The largest elements along an axis (or the smallest), as many as a tensor says, and where they were."""
        op = DynamicTopK(axis=axis, largest=largest, index_dtype=index_dtype)
        return self.add_layer(op, input, k, name=name, outputs=outputs)

    def add_einsum_layer(
        self,
        *inputs: Value | Layer | None,
        equation: str,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Einstein's summation: name the axes of tensors by letters, multiply."""
        op = Einsum(equation=equation)
        return self.add_layer(op, *inputs, name=name, outputs=outputs)

    def add_addition_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Add two tensors."""
        return self.add_layer(Addition(), a, b, name=name, outputs=outputs)

    def add_comparison_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        operation: ComparisonOperation = ComparisonOperation.EQUAL,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Compare two tensors, element by element; quantized ones by the real numbers that they stand for."""
        op = Comparison(operation=operation)
        return self.add_layer(op, a, b, name=name, outputs=outputs)

    def add_division_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Divide a by b; integers truncate towards zero, and give 0 where b is 0."""
        return self.add_layer(Division(), a, b, name=name, outputs=outputs)

    def add_elementwise_binary_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        operation: BinaryOperation = BinaryOperation.ADD,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Compute an operation on two tensors, element by element."""
        op = ElementwiseBinary(operation=operation)
        return self.add_layer(op, a, b, name=name, outputs=outputs)

    def add_elementwise_unary_layer(
        self,
        input: Value | Layer | None,
        *,
        operation: UnaryOperation = UnaryOperation.ABS,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Compute an operation on every element of a tensor."""
        op = ElementwiseUnary(operation=operation)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_floor_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Round every element down to a whole number."""
        return self.add_layer(Floor(), input, name=name, outputs=outputs)

    def add_logical_binary_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        operation: LogicalBinaryOperation = LogicalBinaryOperation.LOGICAL_AND,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Join two tensors of truth values, element by element."""
        op = LogicalBinary(operation=operation)
        return self.add_layer(op, a, b, name=name, outputs=outputs)

    def add_maximum_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Take the greater of two elements; NaN if either is."""
        return self.add_layer(Maximum(), a, b, name=name, outputs=outputs)

    def add_minimum_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Take the smaller of two elements; NaN if either is."""
        return self.add_layer(Minimum(), a, b, name=name, outputs=outputs)

    def add_multiplication_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Multiply two tensors, element by element."""
        return self.add_layer(Multiplication(), a, b, name=name, outputs=outputs)

    def add_prelu_layer(
        self,
        input: Value | Layer | None,
        alpha: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Multiply the negative elements by a slope that is a tensor: x where x >= 0, else alpha * x."""
        return self.add_layer(Prelu(), input, alpha, name=name, outputs=outputs)

    def add_subtraction_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Subtract b from a."""
        return self.add_layer(Subtraction(), a, b, name=name, outputs=outputs)

    def add_where_layer(
        self,
        condition: Value | Layer | None,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Choose an element of a where the condition is true, of b where it is not."""
        return self.add_layer(Where(), condition, a, b, name=name, outputs=outputs)

    def add_embedding_lookup_layer(
        self,
        lookups: Value | Layer | None,
        values: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pick rows of a table by their number; a number without a row is an error, a negative one too."""
        return self.add_layer(EmbeddingLookup(), lookups, values, name=name, outputs=outputs)

    def add_hashtable_lookup_layer(
        self,
        lookups: Value | Layer | None,
        keys: Value | Layer | None,
        values: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pick rows of a table by their keys."""
        return self.add_layer(HashtableLookup(), lookups, keys, values, name=name, outputs=outputs)

    def add_lsh_projection_layer(
        self,
        seeds: Value | Layer | None,
        input: Value | Layer | None,
        weights: Value | Layer | None = None,
        *,
        type: LshProjectionType = LshProjectionType.SPARSE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Hash a tensor so that similar ones get similar bits (locality sensitive hashing)."""
        op = LshProjection(type=type)
        return self.add_layer(op, seeds, input, weights, name=name, outputs=outputs)

    def add_one_hot_layer(
        self,
        indices: Value | Layer | None,
        *,
        depth: int,
        axis: int = -1,
        on_value: float = 1.0,
        off_value: float = 0.0,
        dtype: DataType = DataType.FLOAT32,
        from_end: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """For every index a row of one value, but for the place that it names."""
        op = OneHot(depth=depth, axis=axis, on_value=on_value, off_value=off_value, dtype=dtype, from_end=from_end)
        return self.add_layer(op, indices, name=name, outputs=outputs)

    def add_label_encoder_layer(
        self,
        input: Value | Layer | None,
        *,
        keys: Array,
        values: Array,
        default: Array,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Replace every element that is one of the keys by the value that belongs to the key."""
        op = LabelEncoder(keys=keys, values=values, default=default)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_tf_idf_vectorizer_layer(
        self,
        input: Value | Layer | None,
        *,
        pool: Array,
        ngram_counts: tuple[int, ...],
        ngram_indexes: tuple[int, ...],
        min_gram_length: int = 1,
        max_gram_length: int = 1,
        max_skip_count: int = 0,
        mode: TermWeighting = TermWeighting.TF,
        weights: tuple[float, ...] = (),
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Count the terms of a pool in texts, a term being some words one after the other."""
        op = TfIdfVectorizer(
            pool=pool,
            ngram_counts=ngram_counts,
            ngram_indexes=ngram_indexes,
            min_gram_length=min_gram_length,
            max_gram_length=max_gram_length,
            max_skip_count=max_skip_count,
            mode=mode,
            weights=weights,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_fused_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        multiplier: Value | Layer | None,
        addend: Value | Layer | None,
        *,
        kernel_type: FusedKernelType = FusedKernelType.ADD_MUL_ADD,
        num_outputs: int = 2,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Add two tensors, multiply by a third one and add a fourth one: ``(a + b) * multiplier + addend``."""
        op = Fused(kernel_type=kernel_type, num_outputs=num_outputs)
        return self.add_layer(op, a, b, multiplier, addend, name=name, outputs=outputs)

    def add_gather_layer(
        self,
        params: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        axis: int = 0,
        batch_dims: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pick slices of a tensor along an axis: ``params[..., indices, ...]``."""
        op = Gather(axis=axis, batch_dims=batch_dims)
        return self.add_layer(op, params, indices, name=name, outputs=outputs)

    def add_gather_elements_layer(
        self,
        params: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        axis: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pick single elements along an axis: every index stands where its element will be."""
        op = GatherElements(axis=axis)
        return self.add_layer(op, params, indices, name=name, outputs=outputs)

    def add_gather_nd_layer(
        self,
        params: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        batch_dims: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pick slices of a tensor by tuples of indices, which are the last axis of ``indices``."""
        op = GatherNd(batch_dims=batch_dims)
        return self.add_layer(op, params, indices, name=name, outputs=outputs)

    def add_affine_grid_layer(
        self,
        theta: Value | Layer | None,
        *,
        extents: tuple[int, ...],
        align_corners: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A grid for `GridSample`: the places of the pixels of an image, moved by a matrix."""
        op = AffineGrid(extents=extents, align_corners=align_corners)
        return self.add_layer(op, theta, name=name, outputs=outputs)

    def add_grid_sample_layer(
        self,
        input: Value | Layer | None,
        grid: Value | Layer | None,
        *,
        mode: GridSampleMode = GridSampleMode.LINEAR,
        padding_mode: GridPadding = GridPadding.ZEROS,
        align_corners: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Sample images at the places that a grid names."""
        op = GridSample(mode=mode, padding_mode=padding_mode, align_corners=align_corners)
        return self.add_layer(op, input, grid, name=name, outputs=outputs)

    def add_image_decoder_layer(
        self,
        input: Value | Layer | None,
        *,
        pixel_format: PixelFormat = PixelFormat.RGB,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Decode the bytes of an image file: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP or a portable image."""
        op = ImageDecoder(pixel_format=pixel_format)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_linear_attention_layer(
        self,
        query: Value | Layer | None,
        key: Value | Layer | None,
        value: Value | Layer | None,
        past_state: Value | Layer | None = None,
        decay: Value | Layer | None = None,
        beta: Value | Layer | None = None,
        *,
        q_num_heads: int,
        kv_num_heads: int,
        scale: float | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Attention by way of a state S, a matrix for each head, step by step through a sequence."""
        op = LinearAttention(q_num_heads=q_num_heads, kv_num_heads=kv_num_heads, scale=scale)
        return self.add_layer(op, query, key, value, past_state, decay, beta, name=name, outputs=outputs)

    def add_bidirectional_sequence_lstm_layer(
        self,
        input: Value | Layer | None,
        forward_input_to_input_weights: Value | Layer | None,
        forward_input_to_forget_weights: Value | Layer | None,
        forward_input_to_cell_weights: Value | Layer | None,
        forward_input_to_output_weights: Value | Layer | None,
        forward_recurrent_to_input_weights: Value | Layer | None,
        forward_recurrent_to_forget_weights: Value | Layer | None,
        forward_recurrent_to_cell_weights: Value | Layer | None,
        forward_recurrent_to_output_weights: Value | Layer | None,
        forward_cell_to_input_weights: Value | Layer | None,
        forward_cell_to_forget_weights: Value | Layer | None,
        forward_cell_to_output_weights: Value | Layer | None,
        forward_input_gate_bias: Value | Layer | None,
        forward_forget_gate_bias: Value | Layer | None,
        forward_cell_bias: Value | Layer | None,
        forward_output_gate_bias: Value | Layer | None,
        forward_projection_weights: Value | Layer | None,
        forward_projection_bias: Value | Layer | None,
        backward_input_to_input_weights: Value | Layer | None,
        backward_input_to_forget_weights: Value | Layer | None,
        backward_input_to_cell_weights: Value | Layer | None,
        backward_input_to_output_weights: Value | Layer | None,
        backward_recurrent_to_input_weights: Value | Layer | None,
        backward_recurrent_to_forget_weights: Value | Layer | None,
        backward_recurrent_to_cell_weights: Value | Layer | None,
        backward_recurrent_to_output_weights: Value | Layer | None,
        backward_cell_to_input_weights: Value | Layer | None,
        backward_cell_to_forget_weights: Value | Layer | None,
        backward_cell_to_output_weights: Value | Layer | None,
        backward_input_gate_bias: Value | Layer | None,
        backward_forget_gate_bias: Value | Layer | None,
        backward_cell_bias: Value | Layer | None,
        backward_output_gate_bias: Value | Layer | None,
        backward_projection_weights: Value | Layer | None = None,
        backward_projection_bias: Value | Layer | None = None,
        forward_output_state_in: Value | Layer | None = None,
        forward_cell_state_in: Value | Layer | None = None,
        backward_output_state_in: Value | Layer | None = None,
        backward_cell_state_in: Value | Layer | None = None,
        aux_input: Value | Layer | None = None,
        forward_aux_input_to_input_weights: Value | Layer | None = None,
        forward_aux_input_to_forget_weights: Value | Layer | None = None,
        forward_aux_input_to_cell_weights: Value | Layer | None = None,
        forward_aux_input_to_output_weights: Value | Layer | None = None,
        backward_aux_input_to_input_weights: Value | Layer | None = None,
        backward_aux_input_to_forget_weights: Value | Layer | None = None,
        backward_aux_input_to_cell_weights: Value | Layer | None = None,
        backward_aux_input_to_output_weights: Value | Layer | None = None,
        forward_input_layer_norm_weights: Value | Layer | None = None,
        forward_forget_layer_norm_weights: Value | Layer | None = None,
        forward_cell_layer_norm_weights: Value | Layer | None = None,
        forward_output_layer_norm_weights: Value | Layer | None = None,
        backward_input_layer_norm_weights: Value | Layer | None = None,
        backward_forget_layer_norm_weights: Value | Layer | None = None,
        backward_cell_layer_norm_weights: Value | Layer | None = None,
        backward_output_layer_norm_weights: Value | Layer | None = None,
        *,
        activation_func: FusedActivation = FusedActivation.TANH,
        clipping_thres_cell: float = 0.0,
        clipping_thres_proj: float = 0.0,
        time_major: bool = False,
        merge_outputs: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Two LSTMs over a sequence, one of which starts at its end."""
        op = BidirectionalSequenceLstm(
            activation_func=activation_func,
            clipping_thres_cell=clipping_thres_cell,
            clipping_thres_proj=clipping_thres_proj,
            time_major=time_major,
            merge_outputs=merge_outputs,
        )
        return self.add_layer(
            op,
            input,
            forward_input_to_input_weights,
            forward_input_to_forget_weights,
            forward_input_to_cell_weights,
            forward_input_to_output_weights,
            forward_recurrent_to_input_weights,
            forward_recurrent_to_forget_weights,
            forward_recurrent_to_cell_weights,
            forward_recurrent_to_output_weights,
            forward_cell_to_input_weights,
            forward_cell_to_forget_weights,
            forward_cell_to_output_weights,
            forward_input_gate_bias,
            forward_forget_gate_bias,
            forward_cell_bias,
            forward_output_gate_bias,
            forward_projection_weights,
            forward_projection_bias,
            backward_input_to_input_weights,
            backward_input_to_forget_weights,
            backward_input_to_cell_weights,
            backward_input_to_output_weights,
            backward_recurrent_to_input_weights,
            backward_recurrent_to_forget_weights,
            backward_recurrent_to_cell_weights,
            backward_recurrent_to_output_weights,
            backward_cell_to_input_weights,
            backward_cell_to_forget_weights,
            backward_cell_to_output_weights,
            backward_input_gate_bias,
            backward_forget_gate_bias,
            backward_cell_bias,
            backward_output_gate_bias,
            backward_projection_weights,
            backward_projection_bias,
            forward_output_state_in,
            forward_cell_state_in,
            backward_output_state_in,
            backward_cell_state_in,
            aux_input,
            forward_aux_input_to_input_weights,
            forward_aux_input_to_forget_weights,
            forward_aux_input_to_cell_weights,
            forward_aux_input_to_output_weights,
            backward_aux_input_to_input_weights,
            backward_aux_input_to_forget_weights,
            backward_aux_input_to_cell_weights,
            backward_aux_input_to_output_weights,
            forward_input_layer_norm_weights,
            forward_forget_layer_norm_weights,
            forward_cell_layer_norm_weights,
            forward_output_layer_norm_weights,
            backward_input_layer_norm_weights,
            backward_forget_layer_norm_weights,
            backward_cell_layer_norm_weights,
            backward_output_layer_norm_weights,
            name=name,
            outputs=outputs,
        )

    def add_lstm_layer(
        self,
        input: Value | Layer | None,
        output_state_in: Value | Layer | None,
        cell_state_in: Value | Layer | None,
        input_to_input_weights: Value | Layer | None,
        input_to_forget_weights: Value | Layer | None,
        input_to_cell_weights: Value | Layer | None,
        input_to_output_weights: Value | Layer | None,
        recurrent_to_input_weights: Value | Layer | None,
        recurrent_to_forget_weights: Value | Layer | None,
        recurrent_to_cell_weights: Value | Layer | None,
        recurrent_to_output_weights: Value | Layer | None,
        cell_to_input_weights: Value | Layer | None,
        cell_to_forget_weights: Value | Layer | None,
        cell_to_output_weights: Value | Layer | None,
        input_gate_bias: Value | Layer | None,
        forget_gate_bias: Value | Layer | None,
        cell_bias: Value | Layer | None,
        output_gate_bias: Value | Layer | None,
        projection_weights: Value | Layer | None = None,
        projection_bias: Value | Layer | None = None,
        input_layer_norm_weights: Value | Layer | None = None,
        forget_layer_norm_weights: Value | Layer | None = None,
        cell_layer_norm_weights: Value | Layer | None = None,
        output_layer_norm_weights: Value | Layer | None = None,
        *,
        cifg_enabled: bool = True,
        peephole_enabled: bool = False,
        projection_enabled: bool = False,
        layer_norm_enabled: bool = False,
        activation_func: FusedActivation = FusedActivation.RELU,
        clipping_thres_cell: float = 0.0,
        clipping_thres_proj: float = 0.0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One step of an LSTM."""
        op = Lstm(
            cifg_enabled=cifg_enabled,
            peephole_enabled=peephole_enabled,
            projection_enabled=projection_enabled,
            layer_norm_enabled=layer_norm_enabled,
            activation_func=activation_func,
            clipping_thres_cell=clipping_thres_cell,
            clipping_thres_proj=clipping_thres_proj,
        )
        return self.add_layer(
            op,
            input,
            output_state_in,
            cell_state_in,
            input_to_input_weights,
            input_to_forget_weights,
            input_to_cell_weights,
            input_to_output_weights,
            recurrent_to_input_weights,
            recurrent_to_forget_weights,
            recurrent_to_cell_weights,
            recurrent_to_output_weights,
            cell_to_input_weights,
            cell_to_forget_weights,
            cell_to_output_weights,
            input_gate_bias,
            forget_gate_bias,
            cell_bias,
            output_gate_bias,
            projection_weights,
            projection_bias,
            input_layer_norm_weights,
            forget_layer_norm_weights,
            cell_layer_norm_weights,
            output_layer_norm_weights,
            name=name,
            outputs=outputs,
        )

    def add_unidirectional_sequence_lstm_layer(
        self,
        input: Value | Layer | None,
        output_state_in: Value | Layer | None,
        cell_state_in: Value | Layer | None,
        input_to_input_weights: Value | Layer | None,
        input_to_forget_weights: Value | Layer | None,
        input_to_cell_weights: Value | Layer | None,
        input_to_output_weights: Value | Layer | None,
        recurrent_to_input_weights: Value | Layer | None,
        recurrent_to_forget_weights: Value | Layer | None,
        recurrent_to_cell_weights: Value | Layer | None,
        recurrent_to_output_weights: Value | Layer | None,
        cell_to_input_weights: Value | Layer | None,
        cell_to_forget_weights: Value | Layer | None,
        cell_to_output_weights: Value | Layer | None,
        input_gate_bias: Value | Layer | None,
        forget_gate_bias: Value | Layer | None,
        cell_bias: Value | Layer | None,
        output_gate_bias: Value | Layer | None,
        projection_weights: Value | Layer | None = None,
        projection_bias: Value | Layer | None = None,
        input_layer_norm_weights: Value | Layer | None = None,
        forget_layer_norm_weights: Value | Layer | None = None,
        cell_layer_norm_weights: Value | Layer | None = None,
        output_layer_norm_weights: Value | Layer | None = None,
        *,
        cifg_enabled: bool = True,
        peephole_enabled: bool = False,
        projection_enabled: bool = False,
        layer_norm_enabled: bool = False,
        activation_func: FusedActivation = FusedActivation.RELU,
        clipping_thres_cell: float = 0.0,
        clipping_thres_proj: float = 0.0,
        time_major: bool = False,
        input_intermediate_scale: float = 0.0,
        forget_intermediate_scale: float = 0.0,
        cell_intermediate_scale: float = 0.0,
        output_intermediate_scale: float = 0.0,
        hidden_state_zero_point: int = 0,
        hidden_state_scale: float = 0.0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An LSTM over a sequence: `Lstm`, step by step."""
        op = UnidirectionalSequenceLstm(
            cifg_enabled=cifg_enabled,
            peephole_enabled=peephole_enabled,
            projection_enabled=projection_enabled,
            layer_norm_enabled=layer_norm_enabled,
            activation_func=activation_func,
            clipping_thres_cell=clipping_thres_cell,
            clipping_thres_proj=clipping_thres_proj,
            time_major=time_major,
            input_intermediate_scale=input_intermediate_scale,
            forget_intermediate_scale=forget_intermediate_scale,
            cell_intermediate_scale=cell_intermediate_scale,
            output_intermediate_scale=output_intermediate_scale,
            hidden_state_zero_point=hidden_state_zero_point,
            hidden_state_scale=hidden_state_scale,
        )
        return self.add_layer(
            op,
            input,
            output_state_in,
            cell_state_in,
            input_to_input_weights,
            input_to_forget_weights,
            input_to_cell_weights,
            input_to_output_weights,
            recurrent_to_input_weights,
            recurrent_to_forget_weights,
            recurrent_to_cell_weights,
            recurrent_to_output_weights,
            cell_to_input_weights,
            cell_to_forget_weights,
            cell_to_output_weights,
            input_gate_bias,
            forget_gate_bias,
            cell_bias,
            output_gate_bias,
            projection_weights,
            projection_bias,
            input_layer_norm_weights,
            forget_layer_norm_weights,
            cell_layer_norm_weights,
            output_layer_norm_weights,
            name=name,
            outputs=outputs,
        )

    def add_batch_mat_mul_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        transpose_x: bool = False,
        transpose_y: bool = False,
        adjoint_x: bool = False,
        adjoint_y: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Multiply matrices, which are the last two axes, over a batch; NumPy's ``matmul``."""
        op = BatchMatMul(transpose_x=transpose_x, transpose_y=transpose_y, adjoint_x=adjoint_x, adjoint_y=adjoint_y)
        return self.add_layer(op, a, b, name=name, outputs=outputs)

    def add_fully_connected_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        *,
        transpose_weight_matrix: bool = False,
        keep_dims: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Multiply a batch of vectors with a matrix of weights and add a bias."""
        op = FullyConnected(transpose_weight_matrix=transpose_weight_matrix, keep_dims=keep_dims)
        return self.add_layer(op, input, weights, bias, name=name, outputs=outputs)

    def add_det_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The determinant of every matrix."""
        return self.add_layer(Det(), input, name=name, outputs=outputs)

    def add_eye_like_layer(
        self,
        input: Value | Layer | None,
        *,
        k: int = 0,
        dtype: DataType | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A matrix with ones along a diagonal, as large as another one."""
        op = EyeLike(k=k, dtype=dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_matrix_diag_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Matrices that have the rows of a tensor as their diagonals, and zeros elsewhere."""
        return self.add_layer(MatrixDiag(), input, name=name, outputs=outputs)

    def add_matrix_set_diag_layer(
        self,
        input: Value | Layer | None,
        diagonal: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give every matrix another main diagonal."""
        return self.add_layer(MatrixSetDiag(), input, diagonal, name=name, outputs=outputs)

    def add_trilu_layer(
        self,
        input: Value | Layer | None,
        *,
        k: int = 0,
        upper: bool = True,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Keep one triangle of every matrix, and put zeros in the other one."""
        op = Trilu(k=k, upper=upper)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_batch_normalization_layer(
        self,
        input: Value | Layer | None,
        mean: Value | Layer | None,
        variance: Value | Layer | None,
        beta: Value | Layer | None,
        gamma: Value | Layer | None,
        *,
        eps: float = 0.0001,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Normalize every channel by a given mean and variance: gamma * (x - mean) / sqrt(variance + eps) + beta."""
        op = BatchNormalization(eps=eps, data_layout=data_layout)
        return self.add_layer(op, input, mean, variance, beta, gamma, name=name, outputs=outputs)

    def add_group_normalization_layer(
        self,
        input: Value | Layer | None,
        gamma: Value | Layer | None = None,
        beta: Value | Layer | None = None,
        *,
        num_groups: int,
        eps: float = 1e-05,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Normalize groups of channels that follow one another, of every sample, by their mean and variance."""
        op = GroupNormalization(num_groups=num_groups, eps=eps, data_layout=data_layout)
        return self.add_layer(op, input, gamma, beta, name=name, outputs=outputs)

    def add_instance_normalization_layer(
        self,
        input: Value | Layer | None,
        gamma: Value | Layer | None = None,
        beta: Value | Layer | None = None,
        *,
        eps: float = 1e-12,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Normalize every channel of every sample by its own mean and variance."""
        op = InstanceNormalization(eps=eps, data_layout=data_layout)
        return self.add_layer(op, input, gamma, beta, name=name, outputs=outputs)

    def add_l2_normalization_layer(
        self,
        input: Value | Layer | None,
        *,
        eps: float = 1e-12,
        data_layout: DataLayout = DataLayout.NCHW,
        axis: int | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Divide by the Euclidean length along an axis: x / sqrt(max(sum of x**2, eps))."""
        op = L2Normalization(eps=eps, data_layout=data_layout, axis=axis)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_layer_normalization_layer(
        self,
        input: Value | Layer | None,
        gamma: Value | Layer | None = None,
        beta: Value | Layer | None = None,
        *,
        axis: int = -1,
        eps: float = 1e-05,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Normalize every sample by the mean and variance over all axes from ``axis`` on."""
        op = LayerNormalization(axis=axis, eps=eps)
        return self.add_layer(op, input, gamma, beta, name=name, outputs=outputs)

    def add_mean_variance_normalization_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...] = (0, 2, 3),
        eps: float = 1e-09,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Bring the elements along axes to mean 0 and deviation 1: (x - mean) / (sqrt(variance) + eps)."""
        op = MeanVarianceNormalization(axis=axis, eps=eps)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_normalization_layer(
        self,
        input: Value | Layer | None,
        *,
        channel_type: NormalizationAlgorithmChannel = NormalizationAlgorithmChannel.ACROSS,
        method_type: NormalizationAlgorithmMethod = NormalizationAlgorithmMethod.LOCAL_BRIGHTNESS,
        norm_size: int = 0,
        alpha: float = 0.0,
        beta: float = 0.0,
        k: float = 0.0,
        data_layout: DataLayout = DataLayout.NCHW,
        axis: int | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Local response normalization: x / (k + alpha * sum of x**2 over a window)**beta."""
        op = Normalization(
            channel_type=channel_type,
            method_type=method_type,
            norm_size=norm_size,
            alpha=alpha,
            beta=beta,
            k=k,
            data_layout=data_layout,
            axis=axis,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_rms_normalization_layer(
        self,
        input: Value | Layer | None,
        gamma: Value | Layer | None = None,
        *,
        axis: int = -1,
        eps: float = 1e-05,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Divide by the root of the mean square over all axes from ``axis`` on."""
        op = RmsNormalization(axis=axis, eps=eps)
        return self.add_layer(op, input, gamma, name=name, outputs=outputs)

    def add_pooling2d_layer(
        self,
        input: Value | Layer | None,
        *,
        pool_type: PoolingAlgorithm = PoolingAlgorithm.MAX,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        pool_width: int = 0,
        pool_height: int = 0,
        stride_x: int = 0,
        stride_y: int = 0,
        output_shape_rounding: OutputShapeRounding = OutputShapeRounding.FLOOR,
        padding_method: PaddingMethod = PaddingMethod.EXCLUDE,
        data_layout: DataLayout = DataLayout.NCHW,
        dilation_x: int = 1,
        dilation_y: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reduce what lies under a window that slides over an image, each channel by itself."""
        op = Pooling2d(
            pool_type=pool_type,
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            pool_width=pool_width,
            pool_height=pool_height,
            stride_x=stride_x,
            stride_y=stride_y,
            output_shape_rounding=output_shape_rounding,
            padding_method=padding_method,
            data_layout=data_layout,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_pooling3d_layer(
        self,
        input: Value | Layer | None,
        *,
        pool_type: PoolingAlgorithm = PoolingAlgorithm.MAX,
        pad_left: int = 0,
        pad_right: int = 0,
        pad_top: int = 0,
        pad_bottom: int = 0,
        pad_front: int = 0,
        pad_back: int = 0,
        pool_width: int = 0,
        pool_height: int = 0,
        pool_depth: int = 0,
        stride_x: int = 0,
        stride_y: int = 0,
        stride_z: int = 0,
        output_shape_rounding: OutputShapeRounding = OutputShapeRounding.FLOOR,
        padding_method: PaddingMethod = PaddingMethod.EXCLUDE,
        data_layout: DataLayout = DataLayout.NCDHW,
        dilation_x: int = 1,
        dilation_y: int = 1,
        dilation_z: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reduce what lies under a window that slides through a volume, each channel by itself."""
        op = Pooling3d(
            pool_type=pool_type,
            pad_left=pad_left,
            pad_right=pad_right,
            pad_top=pad_top,
            pad_bottom=pad_bottom,
            pad_front=pad_front,
            pad_back=pad_back,
            pool_width=pool_width,
            pool_height=pool_height,
            pool_depth=pool_depth,
            stride_x=stride_x,
            stride_y=stride_y,
            stride_z=stride_z,
            output_shape_rounding=output_shape_rounding,
            padding_method=padding_method,
            data_layout=data_layout,
            dilation_x=dilation_x,
            dilation_y=dilation_y,
            dilation_z=dilation_z,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_bitcast_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Read the same bits as elements of another type, as wide as their own."""
        op = Bitcast(dtype=dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_cast_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert numbers to another type: stored integers as they are, whatever real numbers they stand for."""
        op = Cast(dtype=dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_convert_bf16_to_fp32_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert bfloat16 to float32."""
        return self.add_layer(ConvertBf16ToFp32(), input, name=name, outputs=outputs)

    def add_convert_fp16_to_fp32_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert float16 to float32."""
        return self.add_layer(ConvertFp16ToFp32(), input, name=name, outputs=outputs)

    def add_convert_fp32_to_bf16_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert float32 to bfloat16, rounding half to even."""
        return self.add_layer(ConvertFp32ToBf16(), input, name=name, outputs=outputs)

    def add_convert_fp32_to_fp16_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert float32 to float16, rounding half to even."""
        return self.add_layer(ConvertFp32ToFp16(), input, name=name, outputs=outputs)

    def add_dequantize_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The real numbers that stored integers stand for: ``scale * (input - zero_point)``."""
        op = Dequantize(dtype=dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_fake_quantization_layer(
        self,
        input: Value | Layer | None,
        *,
        min: float = -6.0,
        max: float = 6.0,
        num_bits: int = 8,
        narrow_range: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Round real numbers to those that a quantized tensor could hold, as quantizing and dequantizing would."""
        op = FakeQuantization(min=min, max=max, num_bits=num_bits, narrow_range=narrow_range)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_quantize_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType = DataType.UINT8,
        rounding: RoundingMethod = RoundingMethod.HALF_AWAY_FROM_ZERO,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Store real numbers as integers: ``clamp(round(input / scale) + zero_point)``."""
        op = Quantize(dtype=dtype, rounding=rounding)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_q_lstm_layer(
        self,
        input: Value | Layer | None,
        output_state_in: Value | Layer | None,
        cell_state_in: Value | Layer | None,
        input_to_input_weights: Value | Layer | None,
        input_to_forget_weights: Value | Layer | None,
        input_to_cell_weights: Value | Layer | None,
        input_to_output_weights: Value | Layer | None,
        recurrent_to_input_weights: Value | Layer | None,
        recurrent_to_forget_weights: Value | Layer | None,
        recurrent_to_cell_weights: Value | Layer | None,
        recurrent_to_output_weights: Value | Layer | None,
        cell_to_input_weights: Value | Layer | None,
        cell_to_forget_weights: Value | Layer | None,
        cell_to_output_weights: Value | Layer | None,
        input_gate_bias: Value | Layer | None,
        forget_gate_bias: Value | Layer | None,
        cell_bias: Value | Layer | None,
        output_gate_bias: Value | Layer | None,
        projection_weights: Value | Layer | None = None,
        projection_bias: Value | Layer | None = None,
        input_layer_norm_weights: Value | Layer | None = None,
        forget_layer_norm_weights: Value | Layer | None = None,
        cell_layer_norm_weights: Value | Layer | None = None,
        output_layer_norm_weights: Value | Layer | None = None,
        *,
        cifg_enabled: bool = True,
        peephole_enabled: bool = False,
        projection_enabled: bool = False,
        layer_norm_enabled: bool = False,
        cell_clip: float = 0.0,
        projection_clip: float = 0.0,
        input_intermediate_scale: float = 0.0,
        forget_intermediate_scale: float = 0.0,
        cell_intermediate_scale: float = 0.0,
        output_intermediate_scale: float = 0.0,
        hidden_state_zero_point: int = 0,
        hidden_state_scale: float = 0.0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One step of an LSTM in integers of 8 and 16 bits, with tanh for the cell."""
        op = QLstm(
            cifg_enabled=cifg_enabled,
            peephole_enabled=peephole_enabled,
            projection_enabled=projection_enabled,
            layer_norm_enabled=layer_norm_enabled,
            cell_clip=cell_clip,
            projection_clip=projection_clip,
            input_intermediate_scale=input_intermediate_scale,
            forget_intermediate_scale=forget_intermediate_scale,
            cell_intermediate_scale=cell_intermediate_scale,
            output_intermediate_scale=output_intermediate_scale,
            hidden_state_zero_point=hidden_state_zero_point,
            hidden_state_scale=hidden_state_scale,
        )
        return self.add_layer(
            op,
            input,
            output_state_in,
            cell_state_in,
            input_to_input_weights,
            input_to_forget_weights,
            input_to_cell_weights,
            input_to_output_weights,
            recurrent_to_input_weights,
            recurrent_to_forget_weights,
            recurrent_to_cell_weights,
            recurrent_to_output_weights,
            cell_to_input_weights,
            cell_to_forget_weights,
            cell_to_output_weights,
            input_gate_bias,
            forget_gate_bias,
            cell_bias,
            output_gate_bias,
            projection_weights,
            projection_bias,
            input_layer_norm_weights,
            forget_layer_norm_weights,
            cell_layer_norm_weights,
            output_layer_norm_weights,
            name=name,
            outputs=outputs,
        )

    def add_quantized_lstm_layer(
        self,
        input: Value | Layer | None,
        cell_state_in: Value | Layer | None,
        output_state_in: Value | Layer | None,
        input_to_input_weights: Value | Layer | None,
        input_to_forget_weights: Value | Layer | None,
        input_to_cell_weights: Value | Layer | None,
        input_to_output_weights: Value | Layer | None,
        recurrent_to_input_weights: Value | Layer | None,
        recurrent_to_forget_weights: Value | Layer | None,
        recurrent_to_cell_weights: Value | Layer | None,
        recurrent_to_output_weights: Value | Layer | None,
        input_gate_bias: Value | Layer | None,
        forget_gate_bias: Value | Layer | None,
        cell_bias: Value | Layer | None,
        output_gate_bias: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One step of the basic LSTM in integers, with 8-bit weights and a 16-bit cell state."""
        return self.add_layer(
            QuantizedLstm(),
            input,
            cell_state_in,
            output_state_in,
            input_to_input_weights,
            input_to_forget_weights,
            input_to_cell_weights,
            input_to_output_weights,
            recurrent_to_input_weights,
            recurrent_to_forget_weights,
            recurrent_to_cell_weights,
            recurrent_to_output_weights,
            input_gate_bias,
            forget_gate_bias,
            cell_bias,
            output_gate_bias,
            name=name,
            outputs=outputs,
        )

    def add_random_fill_layer(
        self,
        dims: Value | Layer | None,
        *,
        distribution: Distribution = Distribution.UNIFORM,
        a: float = 0.0,
        b: float = 1.0,
        seed: int | None = None,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A tensor of a shape that is given as a tensor, filled with random numbers."""
        op = RandomFill(distribution=distribution, a=a, b=b, seed=seed, dtype=dtype)
        return self.add_layer(op, dims, name=name, outputs=outputs)

    def add_concat_layer(
        self,
        *inputs: Value | Layer | None,
        axis: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Join tensors along an axis."""
        op = Concat(axis=axis)
        return self.add_layer(op, *inputs, name=name, outputs=outputs)

    def add_pad_layer(
        self,
        input: Value | Layer | None,
        *,
        pad_list: tuple[tuple[int, int], ...],
        pad_value: float = 0.0,
        padding_mode: PaddingMode = PaddingMode.CONSTANT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Add a border to a tensor."""
        op = Pad(pad_list=pad_list, pad_value=pad_value, padding_mode=padding_mode)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_permute_layer(
        self,
        input: Value | Layer | None,
        *,
        dim_mappings: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give the axes another order: axis i of the input becomes axis ``dim_mappings[i]`` of the result."""
        op = Permute(dim_mappings=dim_mappings)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_reverse_v2_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Turn the order of the elements round along some axes."""
        op = ReverseV2(axis=axis)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_slice_layer(
        self,
        input: Value | Layer | None,
        *,
        begin: tuple[int, ...],
        size: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut a box out of a tensor."""
        op = Slice(begin=begin, size=size)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_splitter_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int,
        sizes: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut a tensor along an axis into pieces of given sizes."""
        op = Splitter(axis=axis, sizes=sizes)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_stack_layer(
        self,
        *inputs: Value | Layer | None,
        axis: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Join tensors of one shape along a new axis."""
        op = Stack(axis=axis)
        return self.add_layer(op, *inputs, name=name, outputs=outputs)

    def add_strided_slice_layer(
        self,
        input: Value | Layer | None,
        *,
        begin: tuple[int, ...],
        end: tuple[int, ...],
        stride: tuple[int, ...],
        begin_mask: int = 0,
        end_mask: int = 0,
        shrink_axis_mask: int = 0,
        ellipsis_mask: int = 0,
        new_axis_mask: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut a box with steps out of a tensor, as Python's ``x[begin:end:stride, ...]`` does."""
        op = StridedSlice(
            begin=begin,
            end=end,
            stride=stride,
            begin_mask=begin_mask,
            end_mask=end_mask,
            shrink_axis_mask=shrink_axis_mask,
            ellipsis_mask=ellipsis_mask,
            new_axis_mask=new_axis_mask,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_tile_layer(
        self,
        input: Value | Layer | None,
        *,
        multiples: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Repeat a tensor along its axes."""
        op = Tile(multiples=multiples)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_transpose_layer(
        self,
        input: Value | Layer | None,
        *,
        permutation: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give the axes another order: axis i of the result is axis ``permutation[i]`` of the input."""
        op = Transpose(permutation=permutation)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_bidirectional_sequence_rnn_layer(
        self,
        input: Value | Layer | None,
        forward_weights: Value | Layer | None,
        forward_recurrent_weights: Value | Layer | None,
        forward_bias: Value | Layer | None,
        forward_hidden_state_in: Value | Layer | None,
        backward_weights: Value | Layer | None,
        backward_recurrent_weights: Value | Layer | None,
        backward_bias: Value | Layer | None,
        backward_hidden_state_in: Value | Layer | None = None,
        aux_input: Value | Layer | None = None,
        forward_aux_weights: Value | Layer | None = None,
        backward_aux_weights: Value | Layer | None = None,
        *,
        activation_func: FusedActivation = FusedActivation.TANH,
        time_major: bool = False,
        merge_outputs: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Two simple recurrent layers over a sequence, one of which starts at its end."""
        op = BidirectionalSequenceRnn(
            activation_func=activation_func, time_major=time_major, merge_outputs=merge_outputs
        )
        return self.add_layer(
            op,
            input,
            forward_weights,
            forward_recurrent_weights,
            forward_bias,
            forward_hidden_state_in,
            backward_weights,
            backward_recurrent_weights,
            backward_bias,
            backward_hidden_state_in,
            aux_input,
            forward_aux_weights,
            backward_aux_weights,
            name=name,
            outputs=outputs,
        )

    def add_rnn_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        recurrent_weights: Value | Layer | None,
        bias: Value | Layer | None,
        hidden_state_in: Value | Layer | None = None,
        *,
        activation_func: FusedActivation = FusedActivation.TANH,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One step of a simple recurrent layer: act(weights @ input + recurrent_weights @ hidden_state_in + bias)."""
        op = Rnn(activation_func=activation_func)
        return self.add_layer(op, input, weights, recurrent_weights, bias, hidden_state_in, name=name, outputs=outputs)

    def add_svdf_layer(
        self,
        input: Value | Layer | None,
        weights_feature: Value | Layer | None,
        weights_time: Value | Layer | None,
        bias: Value | Layer | None = None,
        state_in: Value | Layer | None = None,
        *,
        rank: int = 1,
        activation_func: FusedActivation = FusedActivation.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A recurrent layer whose weights over inputs and time are factored into vectors."""
        op = Svdf(rank=rank, activation_func=activation_func)
        return self.add_layer(op, input, weights_feature, weights_time, bias, state_in, name=name, outputs=outputs)

    def add_unidirectional_sequence_rnn_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        recurrent_weights: Value | Layer | None,
        bias: Value | Layer | None,
        hidden_state_in: Value | Layer | None = None,
        *,
        activation_func: FusedActivation = FusedActivation.TANH,
        time_major: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A simple recurrent layer over a sequence: `Rnn`, step by step."""
        op = UnidirectionalSequenceRnn(activation_func=activation_func, time_major=time_major)
        return self.add_layer(op, input, weights, recurrent_weights, bias, hidden_state_in, name=name, outputs=outputs)

    def add_gru_sequence_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        recurrent_weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        sequence_lengths: Value | Layer | None = None,
        hidden_state_in: Value | Layer | None = None,
        *,
        direction: RecurrentDirection = RecurrentDirection.FORWARD,
        time_major: bool = True,
        activations: tuple[ActivationFunction, ...] = (),
        activation_a: tuple[float, ...] = (),
        activation_b: tuple[float, ...] = (),
        clip: float = 0.0,
        linear_before_reset: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A layer of gated recurrent units over sequences; the functions are f and g."""
        op = GruSequence(
            direction=direction,
            time_major=time_major,
            activations=activations,
            activation_a=activation_a,
            activation_b=activation_b,
            clip=clip,
            linear_before_reset=linear_before_reset,
        )
        return self.add_layer(
            op, input, weights, recurrent_weights, bias, sequence_lengths, hidden_state_in, name=name, outputs=outputs
        )

    def add_lstm_sequence_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        recurrent_weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        sequence_lengths: Value | Layer | None = None,
        hidden_state_in: Value | Layer | None = None,
        cell_state_in: Value | Layer | None = None,
        peephole_weights: Value | Layer | None = None,
        *,
        direction: RecurrentDirection = RecurrentDirection.FORWARD,
        time_major: bool = True,
        activations: tuple[ActivationFunction, ...] = (),
        activation_a: tuple[float, ...] = (),
        activation_b: tuple[float, ...] = (),
        clip: float = 0.0,
        input_forget: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A layer of LSTMs over sequences; the functions are f, g and h."""
        op = LstmSequence(
            direction=direction,
            time_major=time_major,
            activations=activations,
            activation_a=activation_a,
            activation_b=activation_b,
            clip=clip,
            input_forget=input_forget,
        )
        return self.add_layer(
            op,
            input,
            weights,
            recurrent_weights,
            bias,
            sequence_lengths,
            hidden_state_in,
            cell_state_in,
            peephole_weights,
            name=name,
            outputs=outputs,
        )

    def add_rnn_sequence_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        recurrent_weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        sequence_lengths: Value | Layer | None = None,
        hidden_state_in: Value | Layer | None = None,
        *,
        direction: RecurrentDirection = RecurrentDirection.FORWARD,
        time_major: bool = True,
        activations: tuple[ActivationFunction, ...] = (),
        activation_a: tuple[float, ...] = (),
        activation_b: tuple[float, ...] = (),
        clip: float = 0.0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A simple recurrent layer over sequences: H' = f(W @ x + R @ H + b)."""
        op = RnnSequence(
            direction=direction,
            time_major=time_major,
            activations=activations,
            activation_a=activation_a,
            activation_b=activation_b,
            clip=clip,
        )
        return self.add_layer(
            op, input, weights, recurrent_weights, bias, sequence_lengths, hidden_state_in, name=name, outputs=outputs
        )

    def add_arg_min_max_layer(
        self,
        input: Value | Layer | None,
        *,
        function: ArgMinMaxFunction = ArgMinMaxFunction.MIN,
        axis: int = -1,
        keep_dims: bool = False,
        dtype: DataType = DataType.INT32,
        select_last_index: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The index, along an axis, of the smallest or greatest element; of equal ones the first."""
        op = ArgMinMax(
            function=function, axis=axis, keep_dims=keep_dims, dtype=dtype, select_last_index=select_last_index
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_mean_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...] = (),
        keep_dims: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The arithmetic mean over axes; an axis that is named twice counts once."""
        op = Mean(axis=axis, keep_dims=keep_dims)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_reduce_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...] = (),
        keep_dims: bool = False,
        operation: ReduceOperation = ReduceOperation.SUM,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Take the elements along axes together; an axis that is named twice counts once."""
        op = Reduce(axis=axis, keep_dims=keep_dims, operation=operation)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_heatmap_max_keypoint_layer(
        self,
        heatmaps: Value | Layer | None,
        boxes: Value | Layer | None,
        *,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Find the maximum of every heatmap, between its cells, and where it lies in the image."""
        op = HeatmapMaxKeypoint(data_layout=data_layout)
        return self.add_layer(op, heatmaps, boxes, name=name, outputs=outputs)

    def add_roi_align_layer(
        self,
        input: Value | Layer | None,
        regions: Value | Layer | None,
        batches: Value | Layer | None,
        *,
        output_height: int,
        output_width: int,
        height_stride: float = 1.0,
        width_stride: float = 1.0,
        data_layout: DataLayout = DataLayout.NCHW,
        height_sampling_ratio: int = 0,
        width_sampling_ratio: int = 0,
        mode: RoiAlignMode = RoiAlignMode.AVERAGE,
        half_pixel: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut regions out of images in one size: bins of equal size, each sampled at some points between the cells."""
        op = RoiAlign(
            output_height=output_height,
            output_width=output_width,
            height_stride=height_stride,
            width_stride=width_stride,
            data_layout=data_layout,
            height_sampling_ratio=height_sampling_ratio,
            width_sampling_ratio=width_sampling_ratio,
            mode=mode,
            half_pixel=half_pixel,
        )
        return self.add_layer(op, input, regions, batches, name=name, outputs=outputs)

    def add_roi_pooling_layer(
        self,
        input: Value | Layer | None,
        regions: Value | Layer | None,
        batches: Value | Layer | None,
        *,
        output_height: int,
        output_width: int,
        height_stride: float = 1.0,
        width_stride: float = 1.0,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut regions out of images in one size: bins of nearly equal size, of each the largest cell."""
        op = RoiPooling(
            output_height=output_height,
            output_width=output_width,
            height_stride=height_stride,
            width_stride=width_stride,
            data_layout=data_layout,
        )
        return self.add_layer(op, input, regions, batches, name=name, outputs=outputs)

    def add_broadcast_to_layer(
        self,
        input: Value | Layer | None,
        *,
        shape: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Repeat a tensor along its axes of extent 1, and along new axes in front, until it has a shape."""
        op = BroadcastTo(shape=shape)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_fill_layer(
        self,
        dims: Value | Layer | None,
        *,
        value: float = 0.0,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A tensor of a shape that is given as a tensor, filled with one value."""
        op = Fill(value=value, dtype=dtype)
        return self.add_layer(op, dims, name=name, outputs=outputs)

    def add_rank_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The number of axes of a tensor, as a scalar."""
        return self.add_layer(Rank(), input, name=name, outputs=outputs)

    def add_reshape_layer(
        self,
        input: Value | Layer | None,
        *,
        target_shape: tuple[int, ...],
        copy_zeros: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give the same elements, in the same order, another shape."""
        op = Reshape(target_shape=target_shape, copy_zeros=copy_zeros)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_shape_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType = DataType.INT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The extents of a tensor, as a tensor."""
        op = Shape(dtype=dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_resize_layer(
        self,
        input: Value | Layer | None,
        *,
        target_width: int,
        target_height: int,
        method: ResizeMethod = ResizeMethod.NEAREST_NEIGHBOR,
        data_layout: DataLayout = DataLayout.NCHW,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Resample an image to another height and width."""
        op = Resize(
            target_width=target_width,
            target_height=target_height,
            method=method,
            data_layout=data_layout,
            align_corners=align_corners,
            half_pixel_centers=half_pixel_centers,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_dynamic_update_slice_layer(
        self,
        input: Value | Layer | None,
        update: Value | Layer | None,
        start: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Write a box over a part of a tensor, at a place that is data."""
        return self.add_layer(DynamicUpdateSlice(), input, update, start, name=name, outputs=outputs)

    def add_scatter_elements_layer(
        self,
        input: Value | Layer | None,
        indices: Value | Layer | None,
        updates: Value | Layer | None,
        *,
        axis: int = 0,
        function: ScatterFunction = ScatterFunction.UPDATE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Write single elements to the places along an axis that indices name; every other element stays."""
        op = ScatterElements(axis=axis, function=function)
        return self.add_layer(op, input, indices, updates, name=name, outputs=outputs)

    def add_scatter_nd_layer(
        self,
        input: Value | Layer | None,
        indices: Value | Layer | None,
        updates: Value | Layer | None,
        *,
        function: ScatterFunction = ScatterFunction.UPDATE,
        input_enabled: bool = True,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Write slices to the places that tuples of indices name, which are the last axis of ``indices``."""
        op = ScatterNd(function=function, input_enabled=input_enabled)
        return self.add_layer(op, input, indices, updates, name=name, outputs=outputs)

    def add_tensor_scatter_layer(
        self,
        input: Value | Layer | None,
        updates: Value | Layer | None,
        start: Value | Layer | None = None,
        *,
        axis: int = -2,
        circular: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Write the newest steps of sequences into a cache, for every sample from a place of its own on."""
        op = TensorScatter(axis=axis, circular=circular)
        return self.add_layer(op, input, updates, start, name=name, outputs=outputs)

    def add_compress_layer(
        self,
        input: Value | Layer | None,
        condition: Value | Layer | None,
        *,
        axis: int | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Keep the slices along an axis, or without one the elements, for which a condition is true."""
        op = Compress(axis=axis)
        return self.add_layer(op, input, condition, name=name, outputs=outputs)

    def add_non_zero_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The places of all elements that are not zero, in their order, the last axis first."""
        return self.add_layer(NonZero(), input, name=name, outputs=outputs)

    def add_unique_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int | None = None,
        sorted: bool = True,
        index_dtype: DataType = DataType.INT64,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The different elements, or with an axis the different slices along it, and where they are."""
        op = Unique(axis=axis, sorted=sorted, index_dtype=index_dtype)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_cum_prod_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int = -1,
        exclusive: bool = False,
        reverse: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The product, for every element, of all elements up to it along an axis; integers wrap around."""
        op = CumProd(axis=axis, exclusive=exclusive, reverse=reverse)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_cum_sum_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int = -1,
        exclusive: bool = False,
        reverse: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The sum, for every element, of all elements up to it along an axis; integers wrap around."""
        op = CumSum(axis=axis, exclusive=exclusive, reverse=reverse)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_range_layer(
        self,
        start: Value | Layer | None,
        limit: Value | Layer | None,
        delta: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The numbers start, start + delta, start + 2 * delta ."""
        return self.add_layer(Range(), start, limit, delta, name=name, outputs=outputs)

    def add_reverse_sequence_layer(
        self,
        input: Value | Layer | None,
        lengths: Value | Layer | None,
        *,
        time_axis: int = 0,
        batch_axis: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Turn round the first elements along an axis, as many for each sample as its length says; the others stay."""
        op = ReverseSequence(time_axis=time_axis, batch_axis=batch_axis)
        return self.add_layer(op, input, lengths, name=name, outputs=outputs)

    def add_dft_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int = -2,
        length: int | None = None,
        inverse: bool = False,
        onesided: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The discrete Fourier transform along an axis: y_k = sum of exp(-2 pi i k n / N) * x_n, or its inverse."""
        op = Dft(axis=axis, length=length, inverse=inverse, onesided=onesided)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_mel_weight_matrix_layer(
        self,
        num_mel_bins: Value | Layer | None,
        dft_length: Value | Layer | None,
        sample_rate: Value | Layer | None,
        lower_edge_hertz: Value | Layer | None,
        upper_edge_hertz: Value | Layer | None,
        *,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A matrix that turns the magnitudes of frequencies into those of bands on the mel scale."""
        op = MelWeightMatrix(dtype=dtype)
        return self.add_layer(
            op, num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, name=name, outputs=outputs
        )

    def add_signal_window_layer(
        self,
        size: Value | Layer | None,
        *,
        function: WindowFunction = WindowFunction.HANN,
        periodic: bool = True,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A window that a signal can be multiplied with."""
        op = SignalWindow(function=function, periodic=periodic, dtype=dtype)
        return self.add_layer(op, size, name=name, outputs=outputs)

    def add_stft_layer(
        self,
        signal: Value | Layer | None,
        window: Value | Layer | None = None,
        *,
        frame_step: int,
        frame_length: int,
        onesided: bool = True,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The Fourier transforms of the frames of a signal, each multiplied with a window."""
        op = Stft(frame_step=frame_step, frame_length=frame_length, onesided=onesided)
        return self.add_layer(op, signal, window, name=name, outputs=outputs)

    def add_regex_full_match_layer(
        self,
        input: Value | Layer | None,
        *,
        pattern: str = "",
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Whether texts as a whole are what a regular expression describes."""
        op = RegexFullMatch(pattern=pattern)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_string_concat_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Join texts, element by element."""
        return self.add_layer(StringConcat(), a, b, name=name, outputs=outputs)

    def add_string_normalizer_layer(
        self,
        input: Value | Layer | None,
        *,
        case_change: CaseChange = CaseChange.NONE,
        is_case_sensitive: bool = False,
        stopwords: tuple[str, ...] = (),
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Drop some texts from a list, and change the case of the others."""
        op = StringNormalizer(case_change=case_change, is_case_sensitive=is_case_sensitive, stopwords=stopwords)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_string_split_layer(
        self,
        input: Value | Layer | None,
        *,
        delimiter: str = "",
        maxsplit: int | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Cut texts at a separator; all have as many pieces as the one with the most."""
        op = StringSplit(delimiter=delimiter, maxsplit=maxsplit)
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_tree_ensemble_layer(
        self,
        input: Value | Layer | None,
        *,
        roots: Array,
        features: Array,
        comparisons: Array,
        thresholds: Array,
        true_branches: Array,
        false_branches: Array,
        leaf_starts: Array,
        targets: Array,
        weights: Array,
        missing_true: Array | None = None,
        num_targets: int = 1,
        aggregation: TreeAggregation = TreeAggregation.SUM,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Send every row down all trees, and gather for each target what the leaves give that it ends in."""
        op = TreeEnsemble(
            roots=roots,
            features=features,
            comparisons=comparisons,
            thresholds=thresholds,
            true_branches=true_branches,
            false_branches=false_branches,
            leaf_starts=leaf_starts,
            targets=targets,
            weights=weights,
            missing_true=missing_true,
            num_targets=num_targets,
            aggregation=aggregation,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_col2_im_layer(
        self,
        input: Value | Layer | None,
        *,
        window_shape: tuple[int, ...],
        strides: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (),
        pad_list: tuple[tuple[int, int], ...] = (),
        image_shape: tuple[int, ...] = (),
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Put the columns that a sliding window has cut out of an image back to their places; where they overlap."""
        op = Col2Im(
            window_shape=window_shape, strides=strides, dilations=dilations, pad_list=pad_list, image_shape=image_shape
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_lp_pooling_layer(
        self,
        input: Value | Layer | None,
        *,
        window_shape: tuple[int, ...],
        strides: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (),
        pad_list: tuple[tuple[int, int], ...] = (),
        output_shape_rounding: OutputShapeRounding = OutputShapeRounding.FLOOR,
        p: int = 2,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The norm of what lies under a window that slides over every channel: (sum of abs(x)**p)**(1 / p)."""
        op = LpPooling(
            window_shape=window_shape,
            strides=strides,
            dilations=dilations,
            pad_list=pad_list,
            output_shape_rounding=output_shape_rounding,
            p=p,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_max_pooling_with_indices_layer(
        self,
        input: Value | Layer | None,
        *,
        window_shape: tuple[int, ...],
        strides: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (),
        pad_list: tuple[tuple[int, int], ...] = (),
        output_shape_rounding: OutputShapeRounding = OutputShapeRounding.FLOOR,
        column_major: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The largest cell under a window that slides over every channel, and the number of that cell."""
        op = MaxPoolingWithIndices(
            window_shape=window_shape,
            strides=strides,
            dilations=dilations,
            pad_list=pad_list,
            output_shape_rounding=output_shape_rounding,
            column_major=column_major,
        )
        return self.add_layer(op, input, name=name, outputs=outputs)

    def add_max_unpooling_layer(
        self,
        input: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        extents: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Put elements to the places that `MaxPoolingWithIndices` found them at, and zeros everywhere else."""
        op = MaxUnpooling(extents=extents)
        return self.add_layer(op, input, indices, name=name, outputs=outputs)
