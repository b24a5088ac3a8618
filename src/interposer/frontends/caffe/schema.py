"""The messages of ``caffe.proto`` that decide what a network computes, as plain data.

Fields that only matter for training, for data sources or for the choice of an implementation are left out; protobuf
skips them. Each field is a line with its label (``repeated`` or nothing), type, name, number and default value. `ENUMS`
has the values of enumerations.

Source: ``caffe.proto`` of BVLC Caffe, and of the forks for SSD (numbers from 200), ShuffleNet and PSPNet.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENUMS", "MESSAGES", "V1_TYPES"]

_COMMON: Final = {
    "argmax_param": "ArgMaxParameter",
    "concat_param": "ConcatParameter",
    "convolution_param": "ConvolutionParameter",
    "dropout_param": "DropoutParameter",
    "dummy_data_param": "DummyDataParameter",
    "eltwise_param": "EltwiseParameter",
    "exp_param": "ExpParameter",
    "inner_product_param": "InnerProductParameter",
    "lrn_param": "LrnParameter",
    "memory_data_param": "MemoryDataParameter",
    "mvn_param": "MvnParameter",
    "pooling_param": "PoolingParameter",
    "power_param": "PowerParameter",
    "relu_param": "ReluParameter",
    "slice_param": "SliceParameter",
    "softmax_param": "SoftmaxParameter",
    "threshold_param": "ThresholdParameter",
}
"""Parameters of both versions of layers: the type of each field by its name."""

_V2_NUMBERS: Final = {
    "argmax_param": 103, "concat_param": 104, "convolution_param": 106, "dropout_param": 108, "dummy_data_param": 109,
    "eltwise_param": 110, "exp_param": 111, "inner_product_param": 117, "lrn_param": 118, "memory_data_param": 119,
    "mvn_param": 120, "pooling_param": 121, "power_param": 122, "relu_param": 123, "softmax_param": 125,
    "slice_param": 126, "threshold_param": 128,
}  # fmt: skip
_V1_NUMBERS: Final = {
    "concat_param": 9, "convolution_param": 10, "dropout_param": 12, "inner_product_param": 17, "lrn_param": 18,
    "pooling_param": 19, "power_param": 21, "memory_data_param": 22, "argmax_param": 23, "eltwise_param": 24,
    "threshold_param": 25, "dummy_data_param": 26, "relu_param": 30, "slice_param": 31, "mvn_param": 34,
    "softmax_param": 39, "exp_param": 41,
}  # fmt: skip


def _parameters(numbers: dict[str, int]) -> str:
    return "".join(f"{_COMMON[name]} {name} {number}\n" for name, number in numbers.items())


MESSAGES: Final = {
    "NetParameter": """
        string name 1
        repeated V1LayerParameter layers 2
        repeated string input 3
        repeated int64 input_dim 4
        repeated BlobShape input_shape 8
        repeated LayerParameter layer 100
    """,
    "BlobShape": "repeated int64 dim 1",
    "BlobProto": """
        int64 num 1
        int64 channels 2
        int64 height 3
        int64 width 4
        repeated float data 5
        BlobShape shape 7
        repeated double double_data 8
        int32 raw_data_type 10
        bytes raw_data 12
    """,
    "FillerParameter": """
        string type 1 constant
        float value 2
    """,
    "ParamSpec": "string name 1",
    "NetStateRule": """
        Phase phase 1
        int64 min_level 2
        int64 max_level 3
        repeated string stage 4
        repeated string not_stage 5
    """,
    "LayerParameter": """
        string name 1
        string type 2
        repeated string bottom 3
        repeated string top 4
        repeated ParamSpec param 6
        repeated BlobProto blobs 7
        repeated NetStateRule include 8
        repeated NetStateRule exclude 9
        PythonParameter python_param 130
        PReluParameter prelu_param 131
        SppParameter spp_param 132
        ReshapeParameter reshape_param 133
        LogParameter log_param 134
        FlattenParameter flatten_param 135
        ReductionParameter reduction_param 136
        EmbedParameter embed_param 137
        TileParameter tile_param 138
        BatchNormParameter batch_norm_param 139
        EluParameter elu_param 140
        BiasParameter bias_param 141
        ScaleParameter scale_param 142
        InputParameter input_param 143
        CropParameter crop_param 144
        ParameterParameter parameter_param 145
        RecurrentParameter recurrent_param 146
        SwishParameter swish_param 147
        ClipParameter clip_param 148
        ShuffleChannelParameter shuffle_channel_param 164
        PermuteParameter permute_param 202
        PriorBoxParameter prior_box_param 203
        DetectionOutputParameter detection_output_param 204
        NormalizeParameter norm_param 206
        Relu6Parameter relu6_param 10001
        UpsampleParameter upsample_param 10002
        InterpParameter interp_param 10003
        BnParameter bn_param 10004
        RoiPoolingParameter roi_pooling_param 8266711
    """
    + _parameters(_V2_NUMBERS),
    "V1LayerParameter": """
        V0LayerParameter layer 1
        repeated string bottom 2
        repeated string top 3
        string name 4
        V1LayerType type 5
        repeated BlobProto blobs 6
        repeated NetStateRule include 32
        repeated NetStateRule exclude 33
        repeated string param 1001
        BnParameter bn_param 10001
        CropParameter crop_param 10002
        InterpParameter interp_param 10003
        PReluParameter prelu_param 10004
        ReshapeParameter reshape_param 10005
    """
    + _parameters(_V1_NUMBERS),
    "V0LayerParameter": """
        string name 1
        string type 2
        uint64 num_output 3
        bool biasterm 4 true
        uint64 pad 7
        uint64 kernelsize 8
        uint64 group 9 1
        uint64 stride 10 1
        PoolMethod pool 11 MAX
        float dropout_ratio 12 0.5
        uint64 local_size 13 5
        float alpha 14 1
        float beta 15 0.75
        uint64 batchsize 19
        uint64 cropsize 20
        float k 22 1
        repeated BlobProto blobs 50
        int64 new_num 60
        int64 new_channels 61
        int64 new_height 62
        int64 new_width 63
        uint64 concat_dim 65 1
    """,
    "ArgMaxParameter": """
        bool out_max_val 1
        uint64 top_k 2 1
        int64 axis 3
    """,
    "ConcatParameter": """
        uint64 concat_dim 1 1
        int64 axis 2 1
    """,
    "BatchNormParameter": """
        bool use_global_stats 1
        float eps 3 1e-5
    """,
    "BnParameter": """
        float eps 4 1e-5
        BnMode bn_mode 10001 LEARN
    """,
    "BiasParameter": """
        int64 axis 1 1
        int64 num_axes 2 1
    """,
    "ClipParameter": """
        float min 1
        float max 2
    """,
    "ConvolutionParameter": """
        uint64 num_output 1
        bool bias_term 2 true
        repeated uint64 pad 3
        repeated uint64 kernel_size 4
        uint64 group 5 1
        repeated uint64 stride 6
        uint64 pad_h 9
        uint64 pad_w 10
        uint64 kernel_h 11
        uint64 kernel_w 12
        uint64 stride_h 13
        uint64 stride_w 14
        int64 axis 16 1
        repeated uint64 dilation 18
        repeated uint64 hole 10001
        uint64 hole_h 10002
        uint64 hole_w 10003
    """,
    "CropParameter": """
        int32 axis 1 2
        repeated uint32 offset 2
    """,
    "DropoutParameter": """
        float dropout_ratio 1 0.5
        bool scale_train 2 true
    """,
    "DummyDataParameter": """
        repeated FillerParameter data_filler 1
        repeated uint64 num 2
        repeated uint64 channels 3
        repeated uint64 height 4
        repeated uint64 width 5
        repeated BlobShape shape 6
    """,
    "EltwiseParameter": """
        EltwiseOp operation 1 SUM
        repeated float coeff 2
    """,
    "EluParameter": "float alpha 1 1",
    "EmbedParameter": """
        uint64 num_output 1
        uint64 input_dim 2
        bool bias_term 3 true
    """,
    "ExpParameter": """
        float base 1 -1
        float scale 2 1
        float shift 3
    """,
    "FlattenParameter": """
        int64 axis 1 1
        int64 end_axis 2 -1
    """,
    "InnerProductParameter": """
        uint64 num_output 1
        bool bias_term 2 true
        int64 axis 5 1
        bool transpose 6
    """,
    "InputParameter": "repeated BlobShape shape 1",
    "InterpParameter": """
        int32 height 1
        int32 width 2
        int32 zoom_factor 3 1
        int32 shrink_factor 4 1
        int32 pad_beg 5
        int32 pad_end 6
    """,
    "LogParameter": """
        float base 1 -1
        float scale 2 1
        float shift 3
    """,
    "LrnParameter": """
        uint64 local_size 1 5
        float alpha 2 1
        float beta 3 0.75
        NormRegion norm_region 4 ACROSS_CHANNELS
        float k 5 1
    """,
    "MemoryDataParameter": """
        uint64 batch_size 1
        uint64 channels 2
        uint64 height 3
        uint64 width 4
    """,
    "MvnParameter": """
        bool normalize_variance 1 true
        bool across_channels 2
        float eps 3 1e-9
    """,
    "NormalizeParameter": """
        bool across_spatial 1 true
        bool channel_shared 3 true
        float eps 4 1e-10
    """,
    "ParameterParameter": "BlobShape shape 1",
    "PermuteParameter": "repeated uint32 order 1",
    "PoolingParameter": """
        PoolMethod pool 1 MAX
        repeated uint64 kernel_size 2
        repeated uint64 stride 3
        repeated uint64 pad 4
        uint64 kernel_h 5
        uint64 kernel_w 6
        uint64 stride_h 7
        uint64 stride_w 8
        uint64 pad_h 9
        uint64 pad_w 10
        bool global_pooling 12
        bool ceil_mode 10001 true
        RoundMode round_mode 10002 CEIL
    """,
    "PowerParameter": """
        float power 1 1
        float scale 2 1
        float shift 3
    """,
    "PReluParameter": "bool channel_shared 2",
    "PriorBoxParameter": """
        repeated float min_size 1
        repeated float max_size 2
        repeated float aspect_ratio 3
        bool flip 4 true
        bool clip 5
        repeated float variance 6
        uint32 img_size 7
        uint32 img_h 8
        uint32 img_w 9
        float step 10
        float step_h 11
        float step_w 12
        float offset 13 0.5
    """,
    "PythonParameter": """
        string module 1
        string layer 2
    """,
    "DetectionOutputParameter": """
        uint32 num_classes 1
        bool share_location 2 true
        int32 background_label_id 3
        NonMaximumSuppressionParameter nms_param 4
        CodeType code_type 6 CORNER
        int32 keep_top_k 7 -1
        bool variance_encoded_in_target 8
        float confidence_threshold 9
    """,
    "NonMaximumSuppressionParameter": """
        float nms_threshold 1 0.3
        int32 top_k 2
        float eta 3 1
    """,
    "ReductionParameter": """
        ReductionOp operation 1 SUM
        int64 axis 2
        float coeff 3 1
    """,
    "RecurrentParameter": """
        uint32 num_output 1
        bool expose_hidden 5
    """,
    "ReluParameter": "float negative_slope 1",
    "Relu6Parameter": "float negative_slope 1",
    "ReshapeParameter": """
        BlobShape shape 1
        int64 axis 2
        int64 num_axes 3 -1
    """,
    "RoiPoolingParameter": """
        uint32 pooled_h 1
        uint32 pooled_w 2
        float spatial_scale 3 1
    """,
    "ScaleParameter": """
        int64 axis 1 1
        int64 num_axes 2 1
        bool bias_term 4
    """,
    "ShuffleChannelParameter": "uint32 group 1 1",
    "SliceParameter": """
        uint64 slice_dim 1 1
        repeated uint64 slice_point 2
        int64 axis 3 1
    """,
    "SoftmaxParameter": "int64 axis 2 1",
    "SppParameter": """
        uint64 pyramid_height 1
        PoolMethod pool 2 MAX
    """,
    "SwishParameter": "float beta 1 1",
    "ThresholdParameter": "float threshold 1",
    "TileParameter": """
        int64 axis 1 1
        int64 tiles 2
    """,
    "UpsampleParameter": """
        int32 scale 1
        int32 scale_h 2
        int32 scale_w 3
        uint32 upsample_h 5
        uint32 upsample_w 6
        bool pad_out_h 7
        bool pad_out_w 8
    """,
}
"""The fields of every message, one in a line."""

_V1_NAMES: Final = """
    NONE ACCURACY BNLL CONCAT CONVOLUTION DATA DROPOUT EUCLIDEAN_LOSS FLATTEN HDF5_DATA HDF5_OUTPUT IM2COL IMAGE_DATA
    INFOGAIN_LOSS INNER_PRODUCT LRN MULTINOMIAL_LOGISTIC_LOSS POOLING RELU SIGMOID SOFTMAX SOFTMAX_LOSS SPLIT TANH
    WINDOW_DATA ELTWISE POWER SIGMOID_CROSS_ENTROPY_LOSS HINGE_LOSS MEMORY_DATA ARGMAX THRESHOLD DUMMY_DATA SLICE MVN
    ABSVAL SILENCE CONTRASTIVE_LOSS EXP DECONVOLUTION
"""

ENUMS: Final = {
    "BnMode": {"LEARN": 0, "INFERENCE": 1},
    "CodeType": {"CORNER": 1, "CENTER_SIZE": 2, "CORNER_SIZE": 3},
    "EltwiseOp": {"PROD": 0, "SUM": 1, "MAX": 2},
    "NormRegion": {"ACROSS_CHANNELS": 0, "WITHIN_CHANNEL": 1},
    "Phase": {"TRAIN": 0, "TEST": 1},
    "PoolMethod": {"MAX": 0, "AVE": 1, "STOCHASTIC": 2},
    "ReductionOp": {"SUM": 1, "ASUM": 2, "SUMSQ": 3, "MEAN": 4},
    "RoundMode": {"CEIL": 0, "FLOOR": 1},
    "V1LayerType": {name: number for number, name in enumerate(_V1_NAMES.split())}
    | {"BN": 10001, "CROP": 10002, "INTERP": 10003, "PRELU": 10004, "RESHAPE": 10005},
}
"""The values of every enumeration by name."""

V1_TYPES: Final = {
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BN": "BN",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "CROP": "Crop",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "ELTWISE": "Eltwise",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "INTERP": "Interp",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "PRELU": "PReLU",
    "RELU": "ReLU",
    "RESHAPE": "Reshape",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
    "WINDOW_DATA": "WindowData",
}
"""The type of a layer by the name that ``V1LayerParameter`` has for it."""
