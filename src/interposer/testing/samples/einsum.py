"""Samples of Einsum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from interposer.core.types import Quantization
from interposer.ops import Einsum
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, INTEGERS, QUANTIZED, SMALL_FLOATS, declared, f32, plain

__all__: list[str] = []

FORMS: Final[dict[str, tuple[str, list[tuple[int, ...]]]]] = {
    "transpose": ("ij->ji", [(2, 3)]),
    "sum": ("i->", [(4,)]),
    "trace": ("ii", [(3, 3)]),
    "diagonals": ("...ii->...i", [(2, 3, 3)]),
    "inner": ("i,i", [(4,), (4,)]),
    "outer": ("i,j->ij", [(2,), (3,)]),
    "matrices": ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 2)]),
    "implied": ("ij,jk", [(3, 4), (4, 2)]),
    "ellipsis": ("...ij,...jk->...ik", [(2, 1, 3, 4), (3, 4, 2)]),
    "attention": ("bqhd,bkhd->bhqk", [(1, 2, 2, 3), (1, 4, 2, 3)]),
    "three": ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    "ones": ("ij,jk->ik", [(2, 1), (3, 2)]),
    "scalar": (",i->i", [(), (3,)]),
    "empty": ("ij,jk->ik", [(2, 0), (0, 2)]),
}


@samples(Einsum)
def forms() -> Iterator[Sample]:
    """Yield Einsum samples: every form of equation, and matrix products in every type."""
    for title, (equation, shapes) in FORMS.items():
        yield Sample(Einsum(equation), [given(shape) for shape in shapes], name=title)
    op, shapes = Einsum("ij,jk->ik"), [(2, 3), (3, 2)]
    for dtype in (*FLOATS, *SMALL_FLOATS):
        yield Sample(op, [given(shape, dtype) for shape in shapes], name=f"type-{dtype}")
    for dtype in INTEGERS:
        yield Sample(op, [plain(shape, dtype, low=-5, high=5) for shape in shapes], name=f"type-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        operands = [given(shape, dtype, quantization, low=-1, high=1) for shape in shapes]
        coarser_quantization = Quantization(quantization.scale * 2, quantization.zero_point)
        yield Sample(op, operands, [declared(op, *operands, q=coarser_quantization)], f"quantized-{dtype}")
    yield Sample(Einsum("ij,j->i"), [of([[1, 2], [3, 4]]), of([10, 1])], name="worked", expected=[f32([12, 34])])
