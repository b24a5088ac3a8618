"""Descriptors have the defaults of Arm NN 20.08, convert assigned values, and refuse wrong ones."""

import re

import numpy as np
import pyarmnn as ann
import pytest

PADS = {"m_PadLeft": 0, "m_PadRight": 0, "m_PadTop": 0, "m_PadBottom": 0}
NCHW, NHWC = 1, 2
CONVOLUTION = {
    **PADS,
    "m_StrideX": 0,
    "m_StrideY": 0,
    "m_DilationX": 1,
    "m_DilationY": 1,
    "m_BiasEnabled": False,
    "m_DataLayout": NCHW,
}
TINY = pytest.approx(1e-12)
DEFAULTS = {
    "Activation": {"m_Function": 0, "m_A": 0, "m_B": 0},
    "ArgMinMax": {"m_Function": 0, "m_Axis": -1},
    "BatchNormalization": {"m_Eps": pytest.approx(1e-4), "m_DataLayout": NCHW},
    "BatchToSpaceNd": {"m_BlockShape": [1, 1], "m_Crops": [(0, 0), (0, 0)], "m_DataLayout": NCHW},
    "Comparison": {"m_Operation": 0},
    "Convolution2d": CONVOLUTION,
    "DepthToSpace": {"m_BlockSize": 1, "m_DataLayout": NHWC},
    "DepthwiseConvolution2d": CONVOLUTION,
    "DetectionPostProcess": {
        "m_MaxDetections": 0,
        "m_MaxClassesPerDetection": 1,
        "m_DetectionsPerClass": 1,
        "m_NmsScoreThreshold": 0,
        "m_NmsIouThreshold": 0,
        "m_NumClasses": 0,
        "m_UseRegularNms": False,
        "m_ScaleX": 0,
        "m_ScaleY": 0,
        "m_ScaleW": 0,
        "m_ScaleH": 0,
    },
    "ElementwiseUnary": {"m_Operation": 0},
    "FakeQuantization": {"m_Min": -6, "m_Max": 6},
    "Fill": {"m_Value": 0},
    "FullyConnected": {"m_BiasEnabled": False, "m_TransposeWeightMatrix": False},
    "Gather": {"m_Axis": 0},
    "InstanceNormalization": {"m_Gamma": 1, "m_Beta": 0, "m_Eps": TINY, "m_DataLayout": NCHW},
    "L2Normalization": {"m_Eps": TINY, "m_DataLayout": NCHW},
    "Lstm": {
        "m_ActivationFunc": 1,
        "m_ClippingThresCell": 0,
        "m_ClippingThresProj": 0,
        "m_CifgEnabled": True,
        "m_PeepholeEnabled": False,
        "m_ProjectionEnabled": False,
        "m_LayerNormEnabled": False,
    },
    "Mean": {"m_Axis": [], "m_KeepDims": False},
    "Normalization": {
        "m_NormChannelType": 0,
        "m_NormMethodType": 0,
        "m_NormSize": 0,
        "m_Alpha": 0,
        "m_Beta": 0,
        "m_K": 0,
        "m_DataLayout": NCHW,
    },
    "Pad": {"m_PadList": [], "m_PadValue": 0},
    "Pooling2d": {
        **PADS,
        "m_PoolType": 0,
        "m_PoolWidth": 0,
        "m_PoolHeight": 0,
        "m_StrideX": 0,
        "m_StrideY": 0,
        "m_OutputShapeRounding": 0,
        "m_PaddingMethod": 1,
        "m_DataLayout": NCHW,
    },
    "Resize": {
        "m_TargetWidth": 0,
        "m_TargetHeight": 0,
        "m_Method": 1,
        "m_DataLayout": NCHW,
        "m_AlignCorners": False,
        "m_HalfPixelCenters": False,
    },
    "Slice": {"m_Begin": [], "m_Size": []},
    "Softmax": {"m_Beta": 1, "m_Axis": -1},
    "SpaceToBatchNd": {"m_BlockShape": [1, 1], "m_PadList": [(0, 0), (0, 0)], "m_DataLayout": NCHW},
    "SpaceToDepth": {"m_BlockSize": 1, "m_DataLayout": NHWC},
    "StandIn": {"m_NumInputs": 0, "m_NumOutputs": 0},
    "StridedSlice": {
        "m_Begin": [],
        "m_End": [],
        "m_Stride": [],
        "m_BeginMask": 0,
        "m_EndMask": 0,
        "m_ShrinkAxisMask": 0,
        "m_EllipsisMask": 0,
        "m_NewAxisMask": 0,
        "m_DataLayout": NCHW,
    },
    "TransposeConvolution2d": {
        **PADS,
        "m_StrideX": 0,
        "m_StrideY": 0,
        "m_BiasEnabled": False,
        "m_DataLayout": NCHW,
        "m_OutputShapeEnabled": False,
        "m_OutputShape": [],
    },
}
NAMES = [*DEFAULTS, "Concat", "Permute", "Reshape", "Splitter", "Stack"]
CLASSES = [getattr(ann, f"{name}Descriptor") for name in NAMES]


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_new_descriptor_has_the_defaults_of_arm_nn(name):
    descriptor = getattr(ann, f"{name}Descriptor")()
    fields = [field for field in dir(descriptor) if field.startswith("m_")]
    assert {field: getattr(descriptor, field) for field in fields} == DEFAULTS[name]


@pytest.mark.parametrize("kind", CLASSES)
def test_new_descriptors_of_a_kind_are_equal(kind):
    assert kind() == kind()
    assert kind() != 3
    assert kind() != ann.TensorShape((1,))


def test_descriptors_of_other_kinds_or_values_differ():
    changed = ann.SoftmaxDescriptor()
    changed.m_Axis = 0
    assert changed != ann.SoftmaxDescriptor()
    assert ann.Convolution2dDescriptor() != ann.DepthwiseConvolution2dDescriptor()


def test_fields_with_shapes_and_permutations_are_empty_at_first():
    assert ann.ReshapeDescriptor().m_TargetShape.GetNumDimensions() == 0
    assert ann.PermuteDescriptor().m_DimMappings.GetSize() == 0
    stack = ann.StackDescriptor()
    assert (stack.m_Axis, stack.m_NumInputs, stack.m_InputShape.GetNumDimensions()) == (0, 0, 0)


def test_constructors_take_the_fields_in_order():
    assert ann.ReshapeDescriptor(ann.TensorShape((2, 3))).m_TargetShape[1] == 3
    assert ann.PermuteDescriptor(ann.PermutationVector((1, 0))).m_DimMappings.GetSize() == 2
    assert ann.StackDescriptor(2, 3, ann.TensorShape((4,))).m_NumInputs == 3
    assert ann.PadDescriptor([(1, 2)], 2.5).m_PadValue == 2.5
    assert ann.PadDescriptor([(1, 2)]).m_PadList == [(1, 2)]
    assert ann.SliceDescriptor([1], (2,)).m_Size == [2]
    assert ann.StridedSliceDescriptor([1], [2], [-1]).m_Stride == [-1]
    assert ann.MeanDescriptor([1], True).m_KeepDims is True
    assert ann.GatherDescriptor(-1).m_Axis == -1
    assert ann.FillDescriptor(1.5).m_Value == 1.5
    assert ann.StandInDescriptor(1, 2).m_NumOutputs == 2
    assert ann.DepthToSpaceDescriptor(2, NCHW).m_DataLayout == NCHW
    assert ann.ElementwiseUnaryDescriptor(4).m_Operation == ann.UnaryOperation_Neg


@pytest.mark.parametrize("kind", [ann.BatchToSpaceNdDescriptor, ann.SpaceToBatchNdDescriptor])
def test_blocks_are_given_to_the_constructor_or_assigned(kind):
    pairs = "m_Crops" if kind is ann.BatchToSpaceNdDescriptor else "m_PadList"
    for descriptor in (kind([1, 2], [(4, 5), (3, 1)]), kind((1, 2), ((4, 5), (3, 1)))):
        assert (descriptor.m_BlockShape, getattr(descriptor, pairs)) == ([1, 2], [(4, 5), (3, 1)])
        assert descriptor.m_DataLayout == NCHW
    descriptor = kind()
    descriptor.m_BlockShape = ()
    setattr(descriptor, pairs, [])
    assert (descriptor.m_BlockShape, getattr(descriptor, pairs)) == ([], [])


@pytest.mark.parametrize(
    ("value", "shown", "kind"),
    [((1, "a"), "'a'", "str"), ([1.5], "1.5", "float"), ((1, -1), "-1", "int"), ([[1]], "[1]", "list")]
    + [((1, None), "None", "NoneType")],
)
def test_elements_of_a_wrong_type_are_named(value, shown, kind):
    text = f"Failed to convert python input value {shown} of type '{kind}' to C type 'j'"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        ann.BatchToSpaceNdDescriptor().m_BlockShape = value


@pytest.mark.parametrize("value", [[(1, "a")], [(1,)], [(1, 2, 3)], [1], [(1.5, 2)], [[1, 2]], [(-1, 2)]])
def test_elements_that_are_no_pairs_are_named(value):
    text = f"Failed to convert python input value {value[0]!r} of type '{type(value[0]).__name__}' to C type"
    with pytest.raises(TypeError, match=re.escape(text)):
        ann.BatchToSpaceNdDescriptor().m_Crops = value


@pytest.mark.parametrize("value", [5, None, {1: 2}])
def test_a_value_that_is_no_sequence_is_refused(value):
    text = "Argument value object does not provide sequence protocol, implement __getitem__() method."
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        ann.SliceDescriptor().m_Begin = value


@pytest.mark.parametrize(
    ("kind", "field", "value", "error", "c_type"),
    [
        ("Activation", "m_A", "x", TypeError, "float"),
        ("Activation", "m_A", 1e300, OverflowError, "float"),
        ("Activation", "m_Function", 1.0, TypeError, "armnn::ActivationFunction"),
        ("Convolution2d", "m_PadLeft", -1, OverflowError, "uint32_t"),
        ("Convolution2d", "m_PadLeft", 1 << 32, OverflowError, "uint32_t"),
        ("Convolution2d", "m_PadLeft", 1.5, TypeError, "uint32_t"),
        ("Convolution2d", "m_BiasEnabled", 1, TypeError, "bool"),
        ("Convolution2d", "m_DataLayout", "NHWC", TypeError, "armnn::DataLayout"),
        ("ArgMinMax", "m_Axis", 1 << 31, OverflowError, "int"),
        ("Permute", "m_DimMappings", (1, 0), TypeError, "armnn::PermutationVector *"),
        ("Reshape", "m_TargetShape", (1, 0), TypeError, "armnn::TensorShape *"),
        ("Stack", "m_InputShape", None, TypeError, "armnn::TensorShape *"),
    ],
)
def test_a_field_refuses_a_wrong_value_with_its_type(kind, field, value, error, c_type):
    text = f"in method '{kind}Descriptor_{field}_set', argument 2 of type '{c_type}'"
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        setattr(getattr(ann, f"{kind}Descriptor")(), field, value)


@pytest.mark.parametrize("kind", [ann.InstanceNormalizationDescriptor, ann.L2NormalizationDescriptor])
def test_the_epsilon_of_a_normalization_is_the_float32_next_to_1e_12(kind):
    assert kind().m_Eps == float(np.float32(1e-12))


def test_a_field_cannot_be_deleted():
    with pytest.raises(AttributeError) as caught:
        del ann.ActivationDescriptor().m_A
    assert str(caught.value) == "property 'm_A' of 'ActivationDescriptor' object has no deleter"


def test_a_constructor_without_such_arguments_lists_its_prototypes():
    with pytest.raises(TypeError) as caught:
        ann.StandInDescriptor(3)
    assert str(caught.value) == (
        "Wrong number or type of arguments for overloaded function 'new_StandInDescriptor'.\n"
        "  Possible C/C++ prototypes are:\n"
        "    armnn::StandInDescriptor::StandInDescriptor()\n"
        "    armnn::StandInDescriptor::StandInDescriptor(uint32_t,uint32_t)\n"
    )


def test_a_list_that_is_read_is_a_copy():
    descriptor = ann.SliceDescriptor([1], [2])
    descriptor.m_Begin.append(3)
    assert descriptor.m_Begin == [1]


def test_starts_and_stops_of_a_strided_slice_follow_from_the_shape():
    shape = ann.TensorShape((3, 4))
    descriptor = ann.StridedSliceDescriptor([-1, 9], [-2, 0], [1, -1])
    assert [descriptor.GetStartForAxis(shape, axis) for axis in (0, 1)] == [2, 3]
    assert [descriptor.GetStopForAxis(shape, axis, 0) for axis in (0, 1)] == [1, 0]
    with pytest.raises(RuntimeError, match=re.escape("Invalid dimension index: 2 (number of dimensions is 2)")):
        descriptor.GetStartForAxis(shape, 2)


# --- views ------------------------------------------------------------------------------------------------------------


def test_a_concatenation_has_views_dimensions_and_an_axis():
    empty, sized = ann.ConcatDescriptor(), ann.ConcatDescriptor(2, 2)
    assert (empty.GetNumViews(), empty.GetNumDimensions(), empty.GetConcatAxis()) == (0, 0, 1)
    assert (sized.GetNumViews(), sized.GetNumDimensions(), ann.ConcatDescriptor(2).GetNumDimensions()) == (2, 2, 4)
    sized.SetViewOriginCoord(1, 0, 5)
    sized.SetConcatAxis(0)
    assert (sized.GetViewOrigin(0), sized.GetViewOrigin(1), sized.GetConcatAxis()) == ([0, 0], [5, 0], 0)


def test_views_have_origins_and_sizes():
    views = ann.SplitterDescriptor(2, 3)
    views.SetViewOriginCoord(0, 1, 5)
    views.SetViewSize(1, 0, 7)
    assert (views.GetNumViews(), views.GetNumDimensions(), views.GetOrigins().GetNumViews()) == (2, 3, 2)
    assert views.GetViewOrigin(0) == views.GetOrigins().GetViewOrigin(0) == [0, 5]
    assert views.GetViewSizes(1) == [7, 0]


def test_as_many_numbers_are_returned_as_there_are_views():
    views = ann.SplitterDescriptor(3, 2)
    views.SetViewOriginCoord(0, 1, 5)
    assert views.GetViewOrigin(0) == [0, 5, 0]


@pytest.mark.parametrize("kind", [ann.ConcatDescriptor, ann.SplitterDescriptor])
@pytest.mark.parametrize(("view", "coordinate"), [(9, 0), (0, 9)])
def test_views_and_coordinates_that_do_not_exist_are_refused(kind, view, coordinate):
    with pytest.raises(RuntimeError, match="^Failed to set view origin coordinates.$"):
        kind(2, 3).SetViewOriginCoord(view, coordinate, 1)
    with pytest.raises(RuntimeError, match="^Failed to set view size.$"):
        ann.SplitterDescriptor(2, 3).SetViewSize(view, coordinate, 1)


def shapes(*sizes):
    return [ann.TensorShape(size) for size in sizes]


def test_a_concatenation_is_described_by_the_shapes_of_its_inputs():
    descriptor = ann.CreateDescriptorForConcatenation(shapes((1, 2, 3), (4, 2, 3), (5, 2, 3)), 0)
    assert (descriptor.GetNumViews(), descriptor.GetNumDimensions(), descriptor.GetConcatAxis()) == (3, 3, 0)
    assert [descriptor.GetViewOrigin(view) for view in range(3)] == [[0, 0, 0], [1, 0, 0], [5, 0, 0]]


@pytest.mark.parametrize(
    ("sizes", "axis", "text"),
    [
        (((1, 2, 3),), 0, "Concatenation requires at least 2 inputs"),
        ((), 0, "Concatenation requires at least 2 inputs"),
        (((1, 2), (1, 2)), 2, "concatenationDimension must be between 0 and the number of dimensions."),
        (((1, 2), (1, 2, 3)), 0, "All inputs to concatenation must have the same number of dimensions"),
        (
            ((1, 2), (3, 4)),
            0,
            "All inputs to concatenation must be the same size along all dimensions  "
            "except the concatenation dimension",
        ),
    ],
)
def test_shapes_that_cannot_be_concatenated_are_refused(sizes, axis, text):
    with pytest.raises(RuntimeError, match=f"^{re.escape(text)}$"):
        ann.CreateDescriptorForConcatenation(shapes(*sizes), axis)


@pytest.mark.parametrize("value", [[1, 2, 3], [(1, 2)], 3, None, ["a"]])
def test_shapes_of_a_wrong_type_are_refused(value):
    vector = "std::vector< armnn::TensorShape,std::allocator< armnn::TensorShape > >"
    text = f"in method 'CreateDescriptorForConcatenation', argument 1 of type '{vector}'"
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        ann.CreateDescriptorForConcatenation(value, 0)
