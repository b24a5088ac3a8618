import pytest

from interposer.core.types import DataType, Dim, Quantization, TensorInfo
from interposer.ops.einsum import Einsum
from interposer.ops.matrices import Det, EyeLike, MatrixDiag, MatrixSetDiag, Trilu


def shape(op, *shapes):
    infos = [TensorInfo(sizes) for sizes in shapes]
    assert op.violations(*infos) == []
    [info] = op.infer_infos(*infos)
    return tuple(info.shape)


def test_shapes_of_matrices():
    assert shape(Trilu(), (2, None, 3)) == (2, Dim(), 3)
    assert shape(EyeLike(dtype=DataType.INT64), (2, 3)) == (2, 3)
    assert shape(MatrixDiag(), (2, "n")) == (2, Dim("n"), Dim("n"))
    assert shape(MatrixSetDiag(), (2, 3, 5), (2, 3)) == (2, 3, 5)
    assert shape(Det(), (2, 3, 3)) == (2,)


@pytest.mark.parametrize(
    ("op", "infos", "fault"),
    [
        (Trilu(), [TensorInfo((2, 2), DataType.STRING)], "input is string, which has no zero; expected another type"),
        (
            EyeLike(),
            [TensorInfo((2, 2), DataType.STRING)],
            "the result is string, which has no one; expected another type",
        ),
        (
            MatrixDiag(),
            [TensorInfo((2,), DataType.INT8, Quantization([0.1, 0.2], axis=0))],
            "the input is quantized along axis 0, which the operator would spread; dequantize it first",
        ),
        (MatrixSetDiag(), [TensorInfo((3, 2)), TensorInfo((3,))], "diagonal has shape [3]; expected [2]"),
        (
            MatrixSetDiag(),
            [TensorInfo((1, 1), DataType.INT8, Quantization(0.1)), TensorInfo((1,), DataType.INT8, Quantization(0.2))],
            "diagonal and input have different quantizations; requantize one of them first",
        ),
        (Det(), [TensorInfo((2, 3))], "input has shape [2, 3]; only square matrices have a determinant"),
    ],
)
def test_a_fault_of_a_matrix_is_named(op, infos, fault):
    assert op.violations(*infos) == [fault]


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], (2, 4)),
        ("ij,jk", [(2, 3), (3, 4)], (2, 4)),
        ("ba", [(2, 3)], (3, 2)),
        ("ii", [(3, 3)], ()),
        ("...ij,...jk->...ik", [(5, 1, 2, 3), (7, 3, 4)], (5, 7, 2, 4)),
        ("i...->...", [(2, 3, 4)], (3, 4)),
        ("ij,jk->ik", [("batch", 3), (None, "width")], (Dim("batch"), Dim("width"))),
        ("i,i->i", [(None,), (4,)], (4,)),
    ],
)
def test_an_equation_says_the_shape_of_its_result(equation, shapes, expected):
    assert shape(Einsum(equation), *shapes) == expected


@pytest.mark.parametrize(
    ("equation", "shapes", "fault"),
    [
        ("ij,jk->ik", [(2, 2)], "equation 'ij,jk->ik' is for 2 inputs, but there are 1"),
        ("i1->i", [(2, 2)], "equation 'i1->i': 'i1' may only have letters and one ellipsis"),
        ("ij->k", [(2, 2)], "equation 'ij->k': no input has the letter 'k' of the result"),
        ("ij->ii", [(2, 2)], "equation 'ij->ii': the result has a letter twice"),
        ("...i->i", [(2, 2)], "equation '...i->i': either inputs and result have an ellipsis, or neither"),
        ("ij->i", [(2,)], "inputs[0] has shape [2]; expected rank 2 for 'ij'"),
        ("ij...->i...", [(2,)], "inputs[0] has shape [2]; expected rank 2 or more for 'ij...'"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "equation 'ij,jk->ik': 'j' stands for [3] and [4]"),
        ("...i,...i->...", [(2, 3), (4, 3)], "equation '...i,...i->...': the ellipsis stands for [2] and [4]"),
    ],
)
def test_a_fault_of_an_equation_is_named(equation, shapes, fault):
    assert Einsum(equation).violations(*(TensorInfo(sizes) for sizes in shapes)) == [fault]


def test_sums_of_products_cost_a_product_for_every_combination_of_letters():
    op, inputs = Einsum("ij,jk->ik"), [TensorInfo((2, 3)), TensorInfo((3, 4))]
    assert op.operations(inputs, op.infer_infos(*inputs)) == 2 * 2 * 3 * 4
