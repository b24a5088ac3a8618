"""Samples of linear attention."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.types import DataType
from interposer.ops import LinearAttention
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import FLOATS, f32

__all__: list[str] = []


def _three(dtype: DataType) -> list[Given]:
    """Return query, key and value of five steps; four heads of the query share two heads of the state."""
    shapes = (2, 5, 12), (2, 5, 6), (2, 5, 8)
    return [given(shape, dtype, low=-1, high=1) for shape in shapes]


@samples(LinearAttention)
def rules() -> Iterator[Sample]:
    """Yield LinearAttention samples: with and without decay, beta and a past state, in every type."""
    decays = {"": None, "-decay": (2, 5, 2), "-decays": (2, 5, 6)}
    betas = {"": None, "-beta": (2, 5, 1), "-betas": (2, 5, 2)}
    for dtype in FLOATS:
        past = given((2, 2, 3, 4), dtype, low=-1, high=1)
        for decay_suffix, decay in decays.items():
            for beta_suffix, beta in betas.items():
                gates = [
                    decay and given(decay, dtype, low=-2, high=0),
                    beta and given(beta, dtype, low=0, high=1),
                ]
                op = LinearAttention(4, 2)
                yield Sample(op, [*_three(dtype), None, *gates], name=f"{dtype}{decay_suffix}{beta_suffix}")
                yield Sample(op, [*_three(dtype), past, *gates], name=f"{dtype}-past{decay_suffix}{beta_suffix}")
    op = LinearAttention(4, 2, scale=2.0)
    half_state = given((2, 2, 3, 4), DataType.FLOAT16, low=-1, high=1)
    yield Sample(op, [*_three(DataType.FLOAT32), half_state], name="narrow-past")
    no_steps = [given((2, 0, 4)), given((2, 0, 4)), given((2, 0, 4))]
    yield Sample(LinearAttention(2, 2), no_steps, name="no-steps")


@samples(LinearAttention)
def worked() -> Iterator[Sample]:
    """Yield worked LinearAttention examples whose state is a single number, with each kind of gate and with a past."""
    ones, values = of([[[1], [1], [1]]]), of([[[2], [3], [4]]])
    half = of([[[0.5], [0.5], [0.5]]])
    op = LinearAttention(1, 1, scale=1.0)
    for title, gates, output, state in (
        ("sum", [], [2, 5, 9], 9),
        ("delta", [None, None, ones], [2, 3, 4], 4),
        ("half", [None, None, half], [1, 2, 3], 3),
        ("past", [of([[[[10]]]])], [12, 15, 19], 19),
    ):
        expected = [f32(output).reshape(1, 3, 1), f32(state).reshape(1, 1, 1, 1)]
        yield Sample(op, [ones, ones, values, *gates], name=f"worked-{title}", expected=expected)
