import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import Quantization, TensorInfo, TensorShape
from interposer.ops import (
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

PER_AXIS = TensorInfo((2, 3), "int8", Quantization([1.0, 2.0, 3.0], axis=1))


def shape_of(op, *infos):
    assert op.violations(*infos) == []
    return op.infer_infos(*infos)[0].shape


def test_transpose_and_permute_say_the_same_the_other_way_round():
    info = TensorInfo((2, 3, 5))
    assert shape_of(Transpose((2, 0, 1)), info) == (5, 2, 3)
    assert shape_of(Permute((2, 0, 1)), info) == (3, 5, 2)
    assert Permute((2, 0, 1)).permutation == (1, 2, 0)
    assert Transpose((0, 0, 1)).violations(info) == [
        "permutation is (0, 0, 1); expected every axis of the input, 0 to 2, once"
    ]


def test_concat_adds_up_one_axis_and_learns_the_others():
    assert shape_of(Concat(1), TensorInfo(("n", 2)), TensorInfo((4, 3))) == (4, 5)
    assert shape_of(Concat(-1), TensorInfo((4, "w")), TensorInfo((4, 3))) == TensorShape((4, None))


def test_concat_names_the_input_that_does_not_fit():
    problems = Concat(0).violations(TensorInfo((2, 3)), TensorInfo((2, 3)), TensorInfo((2, 4)))
    assert problems == ["inputs[2] has shape [2, 4]; expected [2, 3] but for axis 0"]
    assert Concat(2).violations(TensorInfo((2, 3))) == ["axis is 2, but the input has rank 2; expected -2 to 1"]


def test_a_splitter_has_as_many_outputs_as_sizes():
    op = Splitter(-1, (1, 2))
    assert op.num_results() == 2
    assert [info.shape for info in op.infer_infos(TensorInfo((5, 3)))] == [(5, 1), (5, 2)]
    assert op.violations(TensorInfo((5, 4))) == ["sizes is (1, 2), 3 in all, but axis 1 has size 4"]
    assert op.violations(TensorInfo((5, "n"))) == []


def test_stack_inserts_an_axis():
    assert shape_of(Stack(1), TensorInfo((2, 3)), TensorInfo((2, 3))) == (2, 2, 3)
    assert shape_of(Stack(-1), TensorInfo((2, 3))) == (2, 3, 1)
    assert Stack(3).violations(TensorInfo((2, 3))) == ["axis is 3, but the result has rank 3"]
    assert Stack(0).violations(TensorInfo((2,)), TensorInfo((3,))) == ["inputs[1] has shape [3]; expected [2]"]


def test_a_slice_of_size_minus_one_takes_what_is_left():
    assert shape_of(Slice((1, 0), (-1, 2)), TensorInfo((5, 4))) == (4, 2)
    assert shape_of(Slice((0, 1), (-1, -1)), TensorInfo(("n", "m"))) == TensorShape(("n", None))
    assert Slice((3, 0), (4, 4)).violations(TensorInfo((5, 4))) == [
        "elements 3 to 6 of axis 0 are out of range for size 5"
    ]
    assert Slice((0,), (1,)).violations(TensorInfo((5, 4))) == [
        "begin is (0,) and size (1,); expected 2 numbers each, the input's rank"
    ]


@st.composite
def strided_slices(draw):
    """A shape, an index in NumPy's own terms, and the operator that should mean the same."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    item_count = draw(st.integers(0, len(shape)))
    kinds = [draw(st.sampled_from(["slice", "number"])) for _ in range(item_count)]
    for _ in range(draw(st.integers(0, 2))):
        kinds.insert(draw(st.integers(0, len(kinds))), "new")
    if draw(st.booleans()):
        kinds.insert(draw(st.integers(0, len(kinds))), "ellipsis")
    begin, end, stride, index, masks = [], [], [], [], dict.fromkeys(["begin", "end", "shrink", "ellipsis", "new"], 0)
    items_before_ellipsis = kinds.index("ellipsis") if "ellipsis" in kinds else len(kinds)
    taken_after = sum(kind in {"slice", "number"} for kind in kinds[items_before_ellipsis:])
    axis = 0
    for place, kind in enumerate(kinds):
        if kind == "ellipsis":
            axis = len(shape) - taken_after
        dim = shape[axis] if kind in {"slice", "number"} else 1
        axis += kind in {"slice", "number"}
        first, last = draw(st.integers(-6, 6)), draw(st.integers(-6, 6))
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        if kind == "number":
            first = draw(st.integers(-dim, dim - 1))
        open_first, open_last = draw(st.booleans()), draw(st.booleans())
        begin.append(first)
        end.append(last)
        stride.append(step)
        masks["begin"] |= (open_first and kind != "number") << place
        masks["end"] |= open_last << place
        masks["shrink"] |= (kind == "number") << place
        masks["ellipsis"] |= (kind == "ellipsis") << place
        masks["new"] |= (kind == "new") << place
        open_slice = slice(None if open_first else first, None if open_last else last, step)
        index.append({"slice": open_slice, "number": first, "new": None, "ellipsis": ...}[kind])
    op = StridedSlice(
        begin, end, stride, masks["begin"], masks["end"], masks["shrink"], masks["ellipsis"], masks["new"]
    )
    return tuple(shape), tuple(index), op


@settings(max_examples=200)
@given(strided_slices())
def test_a_strided_slice_means_what_python_means(case):
    shape, index, op = case
    array = np.arange(np.prod(shape)).reshape(shape)
    info = TensorInfo.of(array)
    assert op.violations(info) == []
    assert tuple(op.infer(info).shape) == array[index].shape
    np.testing.assert_array_equal(array[op.index(array.ndim)], array[index])


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (StridedSlice((0,), (1, 1), (1,)), "begin, end and stride have 1, 2 and 1 items; expected as many"),
        (StridedSlice((0,), (1,), (0,)), "stride is (0,); a step must not be 0"),
        (StridedSlice((0,) * 3, (1,) * 3, (1,) * 3), "3 axes are sliced, but the input has rank 2"),
        (
            StridedSlice((0, 0), (1, 1), (1, 1), ellipsis_mask=3),
            "ellipsis_mask is 0b11; at most one item may be an ellipsis",
        ),
        (StridedSlice((5,), (6,), (1,), shrink_axis_mask=1), "element 5 of axis 0 is out of range for size 4"),
    ],
)
def test_a_strided_slice_that_cannot_be_meant_is_refused(op, text):
    assert op.violations(TensorInfo((4, 3))) == [text]


def test_a_strided_slice_keeps_unknown_extents_that_it_does_not_touch():
    op = StridedSlice((0, 1), (0, 3), (1, 1), begin_mask=1, end_mask=1)
    assert shape_of(op, TensorInfo(("n", 5))) == TensorShape(("n", 2))
    assert shape_of(StridedSlice((1,), (3,), (1,)), TensorInfo(("n",))) == TensorShape((None,))


@pytest.mark.parametrize(
    ("mode", "limit"), [(PaddingMode.REFLECT, 2), (PaddingMode.SYMMETRIC, 3), (PaddingMode.WRAP, 3)]
)
def test_a_mirror_shows_no_more_than_there_is(mode, limit):
    info = TensorInfo((3,))
    assert Pad(((limit, 0),), padding_mode=mode).violations(info) == []
    assert Pad(((0, limit + 1),), padding_mode=mode).violations(info) == [
        f"the pads of axis 0 are (0, {limit + 1}); {mode.name} allows at most {limit} there"
    ]


def test_an_axis_without_elements_need_not_be_mirrored():
    assert Pad(((0, 0), (1, 0)), padding_mode=PaddingMode.REFLECT).violations(TensorInfo((0, 2))) == []


def test_pads_are_added_to_the_extents():
    assert shape_of(Pad(((1, 2), (0, 0))), TensorInfo((3, "n"))) == TensorShape((6, "n"))
    assert Pad(((1, -1),)).violations(TensorInfo((3,))) == ["the pads of axis 0 are (1, -1); expected 0 or more"]
    assert Pad(((1, 1),)).violations(TensorInfo((3, 3))) == ["pad_list has 1 pairs, but the input has rank 2"]


def test_the_edge_of_nothing_cannot_be_repeated():
    op = Pad(((1, 0),), padding_mode=PaddingMode.EDGE)
    assert op.violations(TensorInfo((0,))) == ["axis 0 is empty and has no edge to repeat"]
    assert op.violations(TensorInfo(("n",))) == []


def test_a_tile_multiplies_extents():
    assert shape_of(Tile((2, 1)), TensorInfo((3, "n"))) == TensorShape((6, "n"))
    assert Tile((2,)).violations(TensorInfo((3, 3))) == ["multiples is (2,); expected 2 numbers, the input's rank"]


@pytest.mark.parametrize(
    "op",
    [
        Concat(1),
        Splitter(1, (1, 2)),
        Slice((0, 0), (2, 2)),
        StridedSlice((0, 0), (2, 2), (1, 1)),
        Pad(((0, 0), (1, 0))),
        Tile((1, 2)),
        ReverseV2((-1,)),
    ],
)
def test_nothing_takes_the_axis_of_the_scales_apart(op):
    [problem] = op.violations(PER_AXIS)
    assert problem.startswith("the input is quantized along axis 1, which the operator would ")


@pytest.mark.parametrize("op", [Concat(0), Slice((0, 0), (1, 3)), Pad(((1, 0), (0, 0))), Tile((2, 1)), ReverseV2((0,))])
def test_the_other_axes_may_change_and_the_scales_stay(op):
    assert op.violations(PER_AXIS) == []
    assert op.infer_infos(PER_AXIS)[0].quantization == PER_AXIS.quantization
