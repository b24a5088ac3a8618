"""The methods of `Network` that add one layer each. Written by tools/generate.py; do not edit."""

# fmt: off
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.network import Network
from interposer.ops.activation import ActivationFunction
from interposer.ops.attention import AttentionScores
from interposer.ops.blocks import DepthToSpaceMode
from interposer.ops.detection import BoxCode, DetectionRules, NmsKernel
from interposer.ops.elementwise import BinaryOperation, ComparisonOperation, LogicalBinaryOperation, UnaryOperation
from interposer.ops.embedding import LshProjectionType
from interposer.ops.features import TermWeighting
from interposer.ops.fused import FusedKernelType
from interposer.ops.grid import GridPadding, GridSampleMode
from interposer.ops.images import PixelFormat
from interposer.ops.normalization import NormalizationAlgorithmChannel, NormalizationAlgorithmMethod
from interposer.ops.pooling import OutputShapeRounding, PaddingMethod, PoolingAlgorithm
from interposer.ops.quantization import Requantization, RoundingMethod
from interposer.ops.randomness import BitGenerator, Distribution, RandomGenerator
from interposer.ops.rearrange import PaddingMode
from interposer.ops.recurrent import ActivationRounding, FusedActivation
from interposer.ops.recurrent_sequence import RecurrentDirection
from interposer.ops.reduction import ArgMinMaxFunction, ReduceOperation
from interposer.ops.regions import RoiAlignMode
from interposer.ops.resize import ResizeMethod
from interposer.ops.scatter import ScatterFunction
from interposer.ops.spectral import WindowFunction
from interposer.ops.strings import CaseChange
from interposer.ops.trees import TreeAggregation

__all__ = ["Builders"]

class Builders(ABC):
    @abstractmethod
    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
        regions: Sequence[Network | Graph] = (),
    ) -> Layer: ...
    def add_activation_layer(
        self,
        input: Value | Layer | None,
        *,
        function: ActivationFunction = ActivationFunction.SIGMOID,
        a: float | None = None,
        b: float | None = None,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Apply a function to every element; `a` and `b` are the function's parameters."""
    def add_hardmax_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int = -1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """1 for the greatest element along an axis, 0 for all others; the first of several equal maxima gets the 1."""
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
    def add_attention_layer(
        self,
        query: Value | Layer | None,
        key: Value | Layer | None,
        value: Value | Layer | None,
        mask: Value | Layer | None = None,
        past_key: Value | Layer | None = None,
        past_value: Value | Layer | None = None,
        valid_lengths: Value | Layer | None = None,
        sink: Value | Layer | None = None,
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
        """Multi-head scaled dot-product attention: softmax(scale * query key^T + mask) value."""
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
        """Rotary position embedding: rotate pairs of elements of each head by position-dependent angles."""
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
        """Move blocks out of the batch back into the spatial axes and crop these: the inverse of `SpaceToBatchNd`."""
    def add_channel_shuffle_layer(
        self,
        input: Value | Layer | None,
        *,
        num_groups: int,
        axis: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Shuffle an axis: reshape it to (groups, members), swap these two, and flatten them again."""
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
        """Pad the spatial axes with zeros and move blocks of them into the batch."""
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
        """Sample classes at random from the distribution ``softmax(logits)`` of each row."""
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
        """The k largest (or smallest) elements along an axis, best first, and their indices."""
    def add_concat_from_sequence_layer(
        self,
        sequence: Value | Layer | None,
        *,
        axis: int,
        new_axis: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Concatenate the tensors of a sequence along an axis, or stack them along a new one."""
    def add_optional_construct_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An optional that holds a tensor or a sequence."""
    def add_optional_empty_layer(
        self,
        *,
        dtype: DataType = DataType.FLOAT32,
        of_sequence: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An empty optional."""
    def add_optional_get_element_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The element of an optional, which must not be empty."""
    def add_optional_has_element_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """True if an optional holds an element."""
    def add_sequence_at_layer(
        self,
        sequence: Value | Layer | None,
        position: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The tensor at a position of a sequence."""
    def add_sequence_construct_layer(
        self,
        *inputs: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A sequence of tensors of one type; their shapes may differ."""
    def add_sequence_empty_layer(
        self,
        *,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An empty sequence."""
    def add_sequence_erase_layer(
        self,
        sequence: Value | Layer | None,
        position: Value | Layer | None = None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Remove a tensor from a sequence."""
    def add_sequence_insert_layer(
        self,
        sequence: Value | Layer | None,
        tensor: Value | Layer | None,
        position: Value | Layer | None = None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Insert a tensor into a sequence."""
    def add_sequence_length_layer(
        self,
        sequence: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The number of tensors in a sequence."""
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
        """Split a tensor along an axis into a sequence of pieces."""
    def add_debug_layer(
        self,
        input: Value | Layer | None,
        *,
        watched: str = "",
        slot: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pass a tensor through and report it to the registered callback, or as a line of JSON on standard output."""
    def add_mem_copy_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Copy a tensor from the memory of one backend to that of another; inserted by the optimizer."""
    def add_mem_import_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Give a backend access to the memory of another backend without a copy; inserted by the optimizer."""
    def add_merge_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pass on the input that is available; if both are, they must have the same shape."""
    def add_pre_compiled_layer(
        self,
        *inputs: Value | Layer | None,
        num_outputs: int = 1,
        object: Any = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A subgraph that a backend has compiled, as one layer that holds the backend's opaque object."""
    def add_stand_in_layer(
        self,
        *inputs: Value | Layer | None,
        num_outputs: int = 1,
        description: str = "",
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Placeholder for an operator of a model file that a front end does not know."""
    def add_switch_layer(
        self,
        data: Value | Layer | None,
        condition: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Pass the data to both outputs; the condition is meant to select one of them, but both are computed."""
    def add_if_layer(
        self,
        condition: Value | Layer | None,
        *inputs: Value | Layer | None,
        regions: Sequence[Network | Graph],
        num_outputs: int = 1,
        then_failure: str = "",
        else_failure: str = "",
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Run one of two regions: the first one if the condition is true, else the second one."""
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
        """Run a region repeatedly: at most ``trip_count`` times, and only while the condition is true."""
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
        """Run a region for every index along an axis of some tensors; the region receives one slice per iteration."""
    def add_while_layer(
        self,
        *inputs: Value | Layer | None,
        regions: Sequence[Network | Graph],
        num_carried: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Run a region while the result of another region is true, which is evaluated before every iteration."""
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
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """2D convolution (cross-correlation): every output channel sums over all input channels of its group."""
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
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Depthwise convolution: each input channel is convolved with M windows; output channel c uses input c // M."""
    def add_integer_convolution2d_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        input_zero_point: Value | Layer | None = None,
        weights_zero_point: Value | Layer | None = None,
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
        """2D convolution of 8-bit integers: `Convolution2d` of input and weights, less their zero points, in int32."""
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
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Transposed convolution: add every input cell, multiplied by the weights, to a window of the output."""
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
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """3D convolution (cross-correlation): every output channel sums over all input channels of its group."""
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
        """Deformable convolution: the sampling position of every weight is shifted by an offset, which is data."""
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
        """Shift and scale boxes, separately for each class, and clip them to their image."""
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
    def add_detection_output_layer(
        self,
        locations: Value | Layer | None,
        confidences: Value | Layer | None,
        priors: Value | Layer | None,
        *,
        num_classes: int,
        share_location: bool = True,
        background_label: int = 0,
        code: BoxCode = BoxCode.CORNER,
        variance_encoded_in_target: bool = False,
        confidence_threshold: float | None = None,
        nms_threshold: float = 0.3,
        top_k: int = -1,
        keep_top_k: int = -1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Decode boxes relative to prior boxes, select the best ones of each class, and list them (the end of SSD)."""
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
        """Decode boxes relative to anchors, and select the best ones by non-maximum suppression."""
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
        """Propose boxes: place anchors over an image, transform them by deltas."""
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
        """Select the best boxes of every class and image; boxes that overlap a better selected box are dropped."""
    def add_padded_non_max_suppression_layer(
        self,
        boxes: Value | Layer | None,
        scores: Value | Layer | None,
        max_output_size: Value | Layer | None,
        iou_threshold: Value | Layer | None,
        score_threshold: Value | Layer | None,
        soft_nms_sigma: Value | Layer | None = None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Select the best boxes of one image by hard or soft suppression, and fill the results up with zeros."""
    def add_dynamic_broadcast_to_layer(
        self,
        input: Value | Layer | None,
        shape: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Broadcast to a shape that is a tensor, along axes of size 1 and along new axes at the front."""
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
        """Add a border to a tensor; the widths are a tensor."""
    def add_dynamic_reshape_layer(
        self,
        input: Value | Layer | None,
        shape: Value | Layer | None,
        *,
        copy_zeros: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reshape to a shape that is a tensor; the order of the elements stays the same."""
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
        """Slice a tensor along axes, with starts, ends and steps that are tensors."""
    def add_dynamic_splitter_layer(
        self,
        input: Value | Layer | None,
        sizes: Value | Layer | None,
        *,
        axis: int,
        num_outputs: int,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Split a tensor along an axis into pieces whose sizes are a tensor."""
    def add_dynamic_tile_layer(
        self,
        input: Value | Layer | None,
        multiples: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Repeat a tensor along each axis; the counts are a tensor."""
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
        """The k largest (or smallest) elements along an axis and their indices, where k is a tensor."""
    def add_einsum_layer(
        self,
        *inputs: Value | Layer | None,
        equation: str,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Einstein summation: multiply tensors whose axes are named by letters."""
    def add_addition_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Add two tensors."""
    def add_comparison_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        operation: ComparisonOperation = ComparisonOperation.EQUAL,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Compare two tensors, element by element; quantized tensors by their dequantized values."""
    def add_division_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Divide a by b; integers truncate towards zero, and give 0 where b is 0."""
    def add_elementwise_binary_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        operation: BinaryOperation = BinaryOperation.ADD,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Apply an operation to two tensors, element by element."""
    def add_elementwise_unary_layer(
        self,
        input: Value | Layer | None,
        *,
        operation: UnaryOperation = UnaryOperation.ABS,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Apply an operation to every element of a tensor."""
    def add_floor_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Round every element down to an integer."""
    def add_logical_binary_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        operation: LogicalBinaryOperation = LogicalBinaryOperation.LOGICAL_AND,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Combine two boolean tensors, element by element."""
    def add_maximum_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The greater of two elements; NaN if either is NaN."""
    def add_minimum_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The smaller of two elements; NaN if either is NaN."""
    def add_multiplication_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Multiply two tensors, element by element."""
    def add_prelu_layer(
        self,
        input: Value | Layer | None,
        alpha: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Parametric ReLU, whose slope is a tensor: x where x >= 0, else alpha * x."""
    def add_subtraction_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Subtract b from a."""
    def add_where_layer(
        self,
        condition: Value | Layer | None,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Select the element of a where the condition is true, of b where it is false."""
    def add_embedding_lookup_layer(
        self,
        lookups: Value | Layer | None,
        values: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Select rows of a table by their index; an index out of range is an error, and so is a negative one."""
    def add_hashtable_lookup_layer(
        self,
        lookups: Value | Layer | None,
        keys: Value | Layer | None,
        values: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Select rows of a table by their keys; a missing key gives a row of zeros and no hit."""
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
        """Locality-sensitive hashing of a tensor: similar tensors get similar bits."""
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
        """One-hot encoding: for every index a row of ``off_value``, with ``on_value`` at the index."""
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
        """Replace every element that is a key by the value of that key, and all other elements by a default."""
    def add_pairwise_coupling_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Compute the probabilities of C classes from the probabilities of each class against each other one."""
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
        """Count in texts the n-grams (terms of n words) of a pool; words may be skipped between those of a term."""
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
        """Select slices of a tensor along an axis: ``params[..., indices, ...]``."""
    def add_gather_elements_layer(
        self,
        params: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        axis: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Select single elements along an axis; the result has the shape of ``indices``."""
    def add_gather_nd_layer(
        self,
        params: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        batch_dims: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Select slices of a tensor by index tuples, which are stored along the last axis of ``indices``."""
    def add_affine_grid_layer(
        self,
        theta: Value | Layer | None,
        *,
        extents: tuple[int, ...],
        align_corners: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A grid for `GridSample`: the positions of an image's pixels under an affine transformation."""
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
        """Sample images at the positions of a grid."""
    def add_image_decoder_layer(
        self,
        input: Value | Layer | None,
        *,
        pixel_format: PixelFormat = PixelFormat.RGB,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Decode the bytes of an image file: BMP, JPEG, JPEG 2000, TIFF, PNG, WebP or a portable image (PNM)."""
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
        """Linear attention: process a sequence step by step with a state matrix S for each head."""
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
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A bidirectional LSTM: two LSTMs over a sequence, one forward and one backward in time."""
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
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One step of an LSTM."""
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
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An LSTM over a sequence: `Lstm` applied step by step."""
    def add_batch_mat_mul_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        transpose_x: bool = False,
        transpose_y: bool = False,
        adjoint_x: bool = False,
        adjoint_y: bool = False,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Batched matrix multiplication over the last two axes, like NumPy's ``matmul``."""
    def add_fully_connected_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        bias: Value | Layer | None = None,
        *,
        transpose_weight_matrix: bool = False,
        keep_dims: bool = False,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Fully connected (dense) layer: multiply a batch of vectors with a weight matrix and add a bias."""
    def add_integer_mat_mul_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        a_zero_point: Value | Layer | None = None,
        b_zero_point: Value | Layer | None = None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Batched matrix multiplication of 8-bit integers: ``(a - a_zero_point) @ (b - b_zero_point)`` in int32."""
    def add_det_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The determinant of every matrix."""
    def add_eye_like_layer(
        self,
        input: Value | Layer | None,
        *,
        k: int = 0,
        dtype: DataType | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A matrix with the shape of the input, ones along a diagonal, and zeros elsewhere."""
    def add_matrix_diag_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Diagonal matrices, whose main diagonals are the rows of the input."""
    def add_matrix_set_diag_layer(
        self,
        input: Value | Layer | None,
        diagonal: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Replace the main diagonal of every matrix."""
    def add_trilu_layer(
        self,
        input: Value | Layer | None,
        *,
        k: int = 0,
        upper: bool = True,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Keep the upper or lower triangle of every matrix, and set the other elements to zero."""
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
        """Normalize groups of consecutive channels of every sample by their mean and variance."""
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
        """Normalize every channel of every sample by its mean and variance."""
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
    def add_mean_variance_normalization_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...] = (0, 2, 3),
        eps: float = 1e-09,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Normalize to mean 0 and standard deviation 1 along axes: (x - mean) / (sqrt(variance) + eps)."""
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
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """2D pooling: reduce every window that slides over an image, independently for each channel."""
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
        """3D pooling: reduce every window that slides through a volume, independently for each channel."""
    def add_bitcast_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reinterpret the bits of the elements as another type of the same width."""
    def add_block_dequantize_layer(
        self,
        input: Value | Layer | None,
        scale: Value | Layer | None,
        zero_point: Value | Layer | None = None,
        *,
        block_size: int,
        axis: int = 1,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Dequantize integers with a scale for every block along an axis: ``scale * (input - zero_point)``."""
    def add_cast_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert to another type; quantized values are converted as plain integers, without their scale."""
    def add_convert_bf16_to_fp32_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert bfloat16 to float32."""
    def add_convert_fp16_to_fp32_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert float16 to float32."""
    def add_convert_fp32_to_bf16_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert float32 to bfloat16, rounding half to even."""
    def add_convert_fp32_to_fp16_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Convert float32 to float16, rounding half to even."""
    def add_dequantize_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Dequantize integers to float values: ``scale * (input - zero_point)``."""
    def add_dynamic_fake_quantization_layer(
        self,
        input: Value | Layer | None,
        *,
        axes: tuple[int, ...] = (),
        asymmetric: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Simulate dynamic quantization."""
    def add_dynamic_quantize_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Quantize float values to uint8, with a scale and a zero point that follow from the values."""
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
        """Simulate quantization: round float values as quantizing and dequantizing would."""
    def add_quantize_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType = DataType.UINT8,
        rounding: RoundingMethod = RoundingMethod.HALF_AWAY_FROM_ZERO,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Quantize float values: ``clamp(round(input / scale) + zero_point)``."""
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
        """One step of an LSTM in 8- and 16-bit integers with tanh as cell activation; formulas as for `Lstm`."""
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
    def add_random_bits_layer(
        self,
        state: Value | Layer | None,
        *,
        shape: tuple[int, ...],
        generator: BitGenerator = BitGenerator.THREEFRY,
        dtype: DataType = DataType.UINT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A tensor of random bits, and the state that gives the following bits."""
    def add_random_fill_layer(
        self,
        dims: Value | Layer | None,
        *,
        distribution: Distribution = Distribution.UNIFORM,
        a: float = 0.0,
        b: float = 1.0,
        seed: int | None = None,
        dtype: DataType = DataType.FLOAT32,
        generator: RandomGenerator = RandomGenerator.MERSENNE_TWISTER,
        seed2: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A tensor of random numbers; an operand holds the tensor's shape."""
    def add_concat_layer(
        self,
        *inputs: Value | Layer | None,
        axis: int = 1,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Concatenate tensors along an axis."""
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
    def add_permute_layer(
        self,
        input: Value | Layer | None,
        *,
        dim_mappings: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Permute the axes: axis i of the input becomes axis ``dim_mappings[i]`` of the result."""
    def add_reverse_v2_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reverse the order of the elements along some axes."""
    def add_slice_layer(
        self,
        input: Value | Layer | None,
        *,
        begin: tuple[int, ...],
        size: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Extract a rectangular slice of a tensor."""
    def add_splitter_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: int,
        sizes: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Split a tensor along an axis into pieces of given sizes."""
    def add_stack_layer(
        self,
        *inputs: Value | Layer | None,
        axis: int = 0,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Stack tensors of the same shape along a new axis."""
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
        """Extract a strided slice of a tensor, as Python's ``x[begin:end:stride, ...]`` does."""
    def add_tile_layer(
        self,
        input: Value | Layer | None,
        *,
        multiples: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Repeat a tensor along its axes."""
    def add_transpose_layer(
        self,
        input: Value | Layer | None,
        *,
        permutation: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Permute the axes: axis i of the result is axis ``permutation[i]`` of the input."""
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
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A bidirectional simple recurrent layer: one RNN runs forward in time, the other backward."""
    def add_rnn_layer(
        self,
        input: Value | Layer | None,
        weights: Value | Layer | None,
        recurrent_weights: Value | Layer | None,
        bias: Value | Layer | None,
        hidden_state_in: Value | Layer | None = None,
        *,
        activation_func: FusedActivation = FusedActivation.TANH,
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """One step of a simple recurrent layer: act(weights @ input + recurrent_weights @ hidden_state_in + bias)."""
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
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """SVDF: a recurrent layer whose weights over inputs and time are factored by a singular value decomposition."""
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
        activation_rounding: ActivationRounding = ActivationRounding.NONE,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A simple recurrent layer over a sequence: `Rnn` applied step by step."""
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
        """A gated recurrent unit (GRU) layer over sequences; the activation functions are f and g."""
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
        dynamic_quantization: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """An LSTM layer over sequences; the activation functions are f, g and h."""
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
        """The index of the smallest or greatest element along an axis."""
    def add_mean_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...] = (),
        keep_dims: bool = False,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The arithmetic mean over axes; an axis that is listed twice counts once."""
    def add_reduce_layer(
        self,
        input: Value | Layer | None,
        *,
        axis: tuple[int, ...] = (),
        keep_dims: bool = False,
        operation: ReduceOperation = ReduceOperation.SUM,
        requantization: Requantization = Requantization.FIXED_POINT,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reduce the elements along axes; an axis that is listed twice counts once."""
    def add_heatmap_max_keypoint_layer(
        self,
        heatmaps: Value | Layer | None,
        boxes: Value | Layer | None,
        *,
        data_layout: DataLayout = DataLayout.NCHW,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Find the maximum of every heatmap with sub-cell precision, and its position in the image."""
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
        """Extract regions of images at a fixed size: each region is divided into bins, which are sampled bilinearly."""
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
        """Extract regions of images at a fixed size: each region is divided into bins."""
    def add_broadcast_to_layer(
        self,
        input: Value | Layer | None,
        *,
        shape: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Broadcast a tensor to a shape, along its axes of size 1 and along new axes at the front."""
    def add_fill_layer(
        self,
        dims: Value | Layer | None,
        *,
        value: float = 0.0,
        dtype: DataType = DataType.FLOAT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """A tensor with one value in all elements; an operand holds the tensor's shape."""
    def add_rank_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The number of axes of a tensor, as a scalar."""
    def add_reshape_layer(
        self,
        input: Value | Layer | None,
        *,
        target_shape: tuple[int, ...],
        copy_zeros: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Reshape a tensor; the elements and their order are unchanged."""
    def add_shape_layer(
        self,
        input: Value | Layer | None,
        *,
        dtype: DataType = DataType.INT32,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The shape of a tensor, as a tensor."""
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
        """Resize an image to another height and width."""
    def add_dynamic_update_slice_layer(
        self,
        input: Value | Layer | None,
        update: Value | Layer | None,
        start: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Overwrite a rectangular slice of a tensor at a position that is data; the position is clamped to fit."""
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
        """Write single elements to positions along an axis; all other elements are unchanged."""
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
        """Write slices to positions given by index tuples, which are stored along the last axis of ``indices``."""
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
        """Write new steps of sequences into a cache, at a separate start position for every sample."""
    def add_compress_layer(
        self,
        input: Value | Layer | None,
        condition: Value | Layer | None,
        *,
        axis: int | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Keep the slices along an axis, or without ``axis`` the elements, where a condition is true."""
    def add_non_zero_layer(
        self,
        input: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The indices of all non-zero elements, in row-major order."""
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
        """The distinct elements (with ``axis``: the distinct slices along this axis) and their indices."""
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
        """The cumulative product along an axis; integers wrap around."""
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
        """The cumulative sum along an axis; integers wrap around."""
    def add_range_layer(
        self,
        start: Value | Layer | None,
        limit: Value | Layer | None,
        delta: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """The numbers start, start + delta, start + 2 * delta, ."""
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
        """Reverse the first elements along an axis, with a separate length for every sample."""
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
        """The weight matrix that converts the magnitudes of frequencies to bands on the mel scale."""
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
        """A window function, by which a signal can be multiplied."""
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
        """The short-time Fourier transform: the Fourier transforms of the frames of a signal."""
    def add_regex_full_match_layer(
        self,
        input: Value | Layer | None,
        *,
        pattern: str = "",
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """True for strings that a regular expression matches completely."""
    def add_skip_grams_layer(
        self,
        input: Value | Layer | None,
        *,
        ngram_size: int,
        max_skip_size: int = 0,
        include_all_ngrams: bool = False,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """List the n-grams of a text: sequences of its words in order, between which other words may be skipped."""
    def add_string_concat_layer(
        self,
        a: Value | Layer | None,
        b: Value | Layer | None,
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Concatenate strings, element by element."""
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
        """Remove stop words from a list of strings, and change the case of the others."""
    def add_string_split_layer(
        self,
        input: Value | Layer | None,
        *,
        delimiter: str = "",
        maxsplit: int | None = None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Split strings at a separator; shorter lists of pieces are filled up with empty strings."""
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
        """A decision tree ensemble: find the leaf of every tree for each row, and aggregate the leaves' weights."""
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
        """Combine the columns of a sliding window into an image; overlapping elements are summed."""
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
        """Lp pooling: the norm (sum of abs(x)**p)**(1 / p) of every window."""
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
        """Max pooling that also returns the index of each maximum."""
    def add_max_unpooling_layer(
        self,
        input: Value | Layer | None,
        indices: Value | Layer | None,
        *,
        extents: tuple[int, ...],
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Write elements to the indices that `MaxPoolingWithIndices` returned, and zeros everywhere else."""
